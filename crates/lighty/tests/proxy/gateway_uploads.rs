//! Request bodies on their way to programs behind FastCGI, SCGI, uwsgi and AJP13: sent again, too
//! large, and from clients that stall.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lighty_testkit::backend::{Backend, Peer};
use lighty_testkit::client::Client;
use lighty_testkit::wait_until;

use super::gateway_faults::{ALL, Ajp13, Fastcgi, Protocol, after_request, front};

const SOON: Duration = Duration::from_secs(20);

/// Reads a body of a known length to its end, behind the variables.
fn read_body(protocol: Protocol, peer: &mut Peer, length: usize) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    match protocol {
        Fastcgi => loop {
            let head = peer.read_exact(8)?;
            let count = usize::from(u16::from_be_bytes([head[4], head[5]]));
            body.extend(peer.read_exact(count)?);
            peer.read_exact(usize::from(head[6]))?;
            if (head[1], count) == (5, 0) {
                return Some(body);
            }
        },
        Ajp13 => {
            while body.len() < length {
                let head = peer.read_exact(4)?;
                let packet =
                    peer.read_exact(usize::from(u16::from_be_bytes([head[2], head[3]])))?;
                body.extend(&packet[2..]);
            }
            Some(body)
        }
        _ => peer.read_exact(length),
    }
}

/// Requests more of the body, as an AJP13 container has to.
fn ask_for_more(protocol: Protocol, peer: &mut Peer) {
    if protocol == Ajp13 {
        peer.send(b"AB\0\x03\x06\x1f\xfa");
    }
}

/// A program that takes a body and never responds. A container of AJP13 gets the first part of a
/// body unasked, if its length is announced.
fn taking(protocol: Protocol, is_chunked: bool) -> Backend {
    after_request(protocol, move |peer| {
        if is_chunked {
            ask_for_more(protocol, peer);
        }
        while protocol == Ajp13 && read_body(protocol, peer, 1).is_some_and(|part| !part.is_empty())
        {
            ask_for_more(protocol, peer);
        }
        peer.hang();
    })
}

/// Three bodies, each with its framing fields and its bytes.
const BODIES: [(&str, &str, &[u8]); 3] = [
    ("Content-Length: 5", "hello", b"hello"),
    ("Content-Length: 0", "", b""),
    ("Transfer-Encoding: chunked", "hello", b"5\r\nhello\r\n0\r\n\r\n"),
];

#[test]
fn body_that_is_sent_again_is_whole() {
    for protocol in ALL {
        for (fields, body, sent) in BODIES {
            let backend = Backend::start(move |peer| {
                let is_first = peer.number() == 0;
                if protocol.read_request(peer).is_none() {
                    return;
                }
                if fields.contains("chunked") {
                    ask_for_more(protocol, peer);
                }
                let got = read_body(protocol, peer, body.len());
                if !is_first && got.as_deref() == Some(body.as_bytes()) {
                    peer.send(protocol.begun(200, &[], "done"));
                    peer.send(protocol.end());
                }
            });
            let server = front(protocol, &backend, "proxy-core.read-timeout = 5");
            let mut client = server.connect();
            client.send(format!("PUT /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
            client.send(sent);
            let got = client.response();
            assert_eq!((got.status, got.text()), (200, "done"), "{protocol:?}, {fields}");
            assert_eq!(backend.opened(), 2, "{protocol:?}, {fields}");
        }
    }
}

/// The length is announced, or follows from the chunks; the body is stored or streamed.
#[test]
fn body_that_is_too_large_is_answered_413() {
    for protocol in ALL {
        for stream in [0, 1, 2] {
            for is_chunked in [false, true] {
                let backend = taking(protocol, is_chunked);
                let lines = "server.max-request-size = 4\nserver.stream-request-body = ";
                let server = front(protocol, &backend, &format!("{lines}{stream}"));
                let mut client = server.connect();
                if is_chunked {
                    client
                        .send("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
                    for _ in 0..5 {
                        let _ = client.try_send(format!("400\r\n{}\r\n", "x".repeat(0x400)));
                    }
                } else {
                    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5120\r\n\r\n");
                }
                let what = format!("{protocol:?}, {stream}, chunked: {is_chunked}");
                assert_eq!(client.response().status, 413, "{what}");
                assert!(wait_until(SOON, || backend.open() == 0), "{what}");
            }
        }
    }
}

fn begin_upload(client: &mut Client) {
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n0123456789");
}

#[test]
fn client_that_stalls_in_its_body_is_answered_408() {
    for protocol in ALL {
        for stream in [0, 1, 2] {
            let backend = taking(protocol, false);
            let lines = "server.max-read-idle = 1\nserver.errorlog-level = \"info\"";
            let lines = format!("{lines}\nserver.stream-request-body = {stream}");
            let server = front(protocol, &backend, &lines);
            let mut client = server.connect();
            begin_upload(&mut client);
            assert_eq!(client.response().status, 408, "{protocol:?}, {stream}");
            assert!(wait_until(SOON, || backend.open() == 0), "{protocol:?}, {stream}");
            server.await_log("server.max-read-idle ran out");
        }
    }
}

/// The same behind the head of a response: too late for a status.
#[test]
fn client_that_stalls_beside_its_response_is_cut() {
    for protocol in ALL {
        let backend = after_request(protocol, move |peer| {
            if protocol == Ajp13 {
                read_body(protocol, peer, 1);
                ask_for_more(protocol, peer);
            }
            peer.send(protocol.begun(200, &[], "begun"));
            peer.hang();
        });
        let lines = "server.max-read-idle = 1\nserver.errorlog-level = \"info\"";
        let server = front(protocol, &backend, &format!("{lines}\nserver.stream-request-body = 2"));
        let mut client = server.connect();
        begin_upload(&mut client);
        assert_eq!(client.response_head().status, 200, "{protocol:?}");
        assert!(wait_until(SOON, || backend.open() == 0), "{protocol:?}\n{}", server.log());
        server.await_log("server.max-read-idle ran out");
    }
}

/// A byte now and then keeps the idle limit away, and not the rate.
#[test]
fn client_that_drips_its_body_is_cut_by_the_rate() {
    std::thread::scope(|scope| {
        for protocol in ALL {
            scope.spawn(move || {
                let backend = taking(protocol, false);
                let lines = "server.min-read-rate = 1000\nserver.errorlog-level = \"info\"";
                let lines = format!("{lines}\nserver.stream-request-body = 2");
                let server = front(protocol, &backend, &lines);
                let mut client = server.connect();
                begin_upload(&mut client);
                while client.stays_silent(Duration::from_millis(200)) {
                    let _ = client.try_send("x");
                }
                assert_eq!(client.response().status, 408, "{protocol:?}");
                assert!(wait_until(SOON, || backend.open() == 0), "{protocol:?}");
                server.await_log("server.min-read-rate");
            });
        }
    });
}

/// Single bytes arrive as sent, independent of record boundaries.
#[test]
fn body_in_chunks_of_one_byte_arrives_whole() {
    static GOT: AtomicUsize = AtomicUsize::new(0);
    for protocol in ALL {
        for stream in [0, 1, 2] {
            for is_chunked in [false, true] {
                let backend = Backend::start(move |peer| {
                    if protocol.read_request(peer).is_none() {
                        return;
                    }
                    // An AJP13 container requests each part after the first.
                    let mut body = Vec::new();
                    if is_chunked {
                        ask_for_more(protocol, peer);
                    }
                    while body.len() < 300 {
                        let left = 300 - body.len();
                        let got = match protocol {
                            Ajp13 => read_body(protocol, peer, 1),
                            _ => read_body(protocol, peer, left),
                        };
                        let Some(got) = got.filter(|got| !got.is_empty()) else { return };
                        body.extend(got);
                        if body.len() < 300 {
                            ask_for_more(protocol, peer);
                        }
                    }
                    GOT.store(body.len(), Ordering::SeqCst);
                    peer.send(protocol.begun(200, &[], "done"));
                    peer.send(protocol.end());
                });
                let lines = format!("server.stream-request-body = {stream}");
                let server = front(protocol, &backend, &lines);
                let mut client = server.connect();
                let (fields, piece) = match is_chunked {
                    true => ("Transfer-Encoding: chunked", "1\r\nx\r\n"),
                    false => ("Content-Length: 300", "x"),
                };
                client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
                (0..300).for_each(|_| client.send(piece));
                if is_chunked {
                    client.send("0\r\n\r\n");
                }
                let got = client.response();
                let what = format!("{protocol:?}, {stream}, chunked: {is_chunked}");
                assert_eq!((got.status, got.text()), (200, "done"), "{what}\n{}", server.log());
                assert_eq!(GOT.swap(0, Ordering::SeqCst), 300, "{what}");
            }
        }
    }
}
