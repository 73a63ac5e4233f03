//! Faults of programs behind FastCGI, SCGI, uwsgi and AJP13: the same faults for each protocol that
//! can express them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use lighty_testkit::backend::{Backend, Peer};
use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::server::Server;
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::{lighty, wait_until};

const SOON: Duration = Duration::from_secs(30);

const READ_LIMIT: &str = "proxy-core.read-timeout = \"600ms\"";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Fastcgi,
    Scgi,
    Uwsgi,
    Ajp13,
}

pub(super) use Protocol::{Ajp13, Fastcgi, Scgi, Uwsgi};

pub(super) const ALL: [Protocol; 4] = [Fastcgi, Scgi, Uwsgi, Ajp13];

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            Fastcgi => "fastcgi",
            Scgi => "scgi",
            Uwsgi => "uwsgi",
            Ajp13 => "ajp13",
        }
    }

    /// Reads the request up to its body; for FastCGI, up to the end of the variables.
    pub(super) fn read_request(self, peer: &mut Peer) -> Option<()> {
        match self {
            Fastcgi => loop {
                let head = peer.read_exact(8)?;
                let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
                peer.read_exact(length + usize::from(head[6]))?;
                // FCGI_PARAMS, empty: the end of the variables.
                if head[1] == 4 && length == 0 {
                    return Some(());
                }
            },
            Scgi => {
                let mut digits = String::new();
                loop {
                    match peer.read_exact(1)?[0] {
                        b':' => break,
                        digit => digits.push(char::from(digit)),
                    }
                }
                peer.read_exact(digits.parse::<usize>().expect("a netstring") + 1).map(drop)
            }
            Uwsgi => {
                let head = peer.read_exact(4)?;
                peer.read_exact(usize::from(u16::from_le_bytes([head[1], head[2]]))).map(drop)
            }
            Ajp13 => {
                let head = peer.read_exact(4)?;
                assert_eq!(head[..2], [0x12, 0x34]);
                peer.read_exact(usize::from(u16::from_be_bytes([head[2], head[3]]))).map(drop)
            }
        }
    }

    /// A head, and perhaps a beginning of its body, that is not the end of the response.
    pub(super) fn begun(self, status: u16, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
        if self == Ajp13 {
            return ajp_answer(status, fields, body);
        }
        let mut text = format!("Status: {status} X\r\n");
        for (name, value) in fields {
            text += &format!("{name}: {value}\r\n");
        }
        self.wrap(format!("{text}\r\n{body}").as_bytes())
    }

    fn wrap(self, output: &[u8]) -> Vec<u8> {
        let mut wrapped = Vec::new();
        if self == Fastcgi {
            let length = u16::try_from(output.len()).expect("one record");
            wrapped.extend([1, 6, 0, 1, (length >> 8) as u8, length as u8, 0, 0]);
        }
        wrapped.extend(output);
        wrapped
    }

    /// Message that ends a response, for protocols with an end other than a close.
    pub(super) fn end(self) -> &'static [u8] {
        match self {
            Fastcgi => &[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            Ajp13 => &[b'A', b'B', 0, 2, 5, 0],
            Scgi | Uwsgi => &[],
        }
    }

    /// Returns true if a response without a length still has a marked end.
    fn has_end(self) -> bool {
        !self.end().is_empty()
    }
}

fn ajp_string(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u16).to_be_bytes());
    out.extend(text.as_bytes());
    out.push(0);
}

fn ajp_packet(payload: &[u8], out: &mut Vec<u8>) {
    out.extend(b"AB");
    out.extend((payload.len() as u16).to_be_bytes());
    out.extend(payload);
}

fn ajp_answer(status: u16, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head = vec![4];
    head.extend(status.to_be_bytes());
    ajp_string("X", &mut head);
    head.extend((fields.len() as u16).to_be_bytes());
    for (name, value) in fields {
        ajp_string(name, &mut head);
        ajp_string(value, &mut head);
    }
    let mut out = Vec::new();
    ajp_packet(&head, &mut out);
    if !body.is_empty() {
        let mut chunk = vec![3];
        ajp_string(body, &mut chunk);
        ajp_packet(&chunk, &mut out);
    }
    out
}

pub(super) fn front(protocol: Protocol, backend: &Backend, lines: &str) -> Server {
    let (name, address) = (protocol.name(), backend.address());
    lighty!()
        .config(&format!(
            "proxy-core.protocol = \"{name}\"\nproxy-core.backends = ( \"{address}\" )\n{lines}"
        ))
        .start()
}

/// A backend that reads each request and then does this; closed where that ends.
pub(super) fn after_request(
    protocol: Protocol,
    act: impl Fn(&mut Peer) + Send + Sync + 'static,
) -> Backend {
    Backend::start(move |peer| {
        if protocol.read_request(peer).is_some() {
            act(peer);
        }
    })
}

fn ask(server: &Server) -> Client {
    let mut client = server.connect();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    client
}

#[test]
fn a_proper_answer_arrives() {
    for protocol in ALL {
        let backend = after_request(protocol, move |peer| {
            peer.send(protocol.begun(200, &[("X", "y")], "hello"));
            peer.send(protocol.end());
        });
        let server = front(protocol, &backend, "");
        let got = ask(&server).response();
        assert_eq!((got.status, got.text(), got.field("X")), (200, "hello", Some("y")));
    }
}

#[test]
fn a_close_or_reset_before_the_head_is_answered_502() {
    for protocol in ALL {
        for reset in [false, true] {
            let backend = after_request(protocol, move |peer| {
                if reset {
                    peer.reset();
                }
            });
            let server = front(protocol, &backend, "");
            let got = ask(&server).response();
            assert_eq!(got.status, 502, "{protocol:?}, reset: {reset}\n{}", server.log());
            server.await_log(&backend.address().to_string());
        }
    }
}

/// Sign that a head is torn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TornBy {
    /// The end of the output.
    Close,
    /// The end of the response, on a connection that stays open.
    Message,
}

/// Requests responses that end after their first bytes, of every number, and fails if one is taken
/// for whole. `whole` itself must be a response.
fn assert_torn_is_a_fault(
    protocol: &str,
    torn_by: TornBy,
    read_request: impl Fn(&mut Peer) -> Option<()> + Send + Sync + 'static,
    whole: &[u8],
    torn: &[Vec<u8>],
) {
    let output = Arc::new(Mutex::new(Vec::new()));
    let reused = Arc::new(AtomicUsize::new(0));
    let backend = Backend::start({
        let (output, reused) = (Arc::clone(&output), Arc::clone(&reused));
        let complete = whole.to_vec();
        move |peer| {
            while read_request(peer).is_some() {
                let bytes = output.lock().expect("no panic").clone();
                peer.send(&bytes);
                if bytes == complete {
                    continue;
                }
                if torn_by == TornBy::Close {
                    peer.half_close();
                }
                // The connection stays readable for a request that must not follow.
                if read_request(peer).is_some() {
                    reused.fetch_add(1, Ordering::SeqCst);
                }
                return;
            }
        }
    });
    let address = backend.address();
    let server = lighty!()
        .config(&format!(
            "proxy-core.protocol = \"{protocol}\"\nproxy-core.backends = ( \"{address}\" )"
        ))
        .start();
    let ask_for = |bytes: &[u8]| {
        bytes.clone_into(&mut output.lock().expect("no panic"));
        ask(&server).response().status
    };
    assert_eq!(ask_for(whole), 200, "{protocol}\n{}", server.log());
    let named = format!("backend {address}: ");
    let is_named =
        |line: &str| line.contains(&named) && FAULTS.iter().any(|fault| line.contains(fault));
    for bytes in torn {
        let shown = bytes.escape_ascii();
        let before = server.log().len();
        assert_eq!(ask_for(bytes), 502, "{protocol}: {shown}");
        let is_logged = || server.log()[before..].lines().any(is_named);
        assert!(wait_until(SOON, is_logged), "{protocol}: {shown}\n{}", server.log());
        // The next response leaves a connection that the next torn one may arrive on.
        let opened = backend.opened();
        assert_eq!(ask_for(whole), 200, "{protocol}: {shown}\n{}", server.log());
        assert!(backend.opened() > opened, "{protocol}: {shown}: no new connection");
    }
    assert_eq!(reused.load(Ordering::SeqCst), 0, "{protocol}: a torn connection was used again");
}

/// The faults of a response that ends within its head.
const FAULTS: [&str; 2] = [
    "the backend closed the connection before its response",
    "the backend's response is malformed",
];

#[test]
fn response_head_cut_at_any_byte_is_a_fault() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 0\r\n\r\n";
    let prefixes =
        |bytes: &[u8]| (0..bytes.len()).map(|end| bytes[..end].to_vec()).collect::<Vec<_>>();
    let read = |peer: &mut Peer| peer.head().map(drop);
    assert_torn_is_a_fault("http", TornBy::Close, read, HEAD, &prefixes(HEAD));
    for protocol in ALL {
        let head = protocol.begun(200, &[("X", "y"), ("Content-Length", "0")], "");
        let whole = [&head[..], protocol.end()].concat();
        let read = move |peer: &mut Peer| protocol.read_request(peer);
        assert_torn_is_a_fault(protocol.name(), TornBy::Close, read, &whole, &prefixes(&head));
    }
}

#[test]
fn incomplete_head_in_complete_messages_is_a_fault() {
    let text = b"Status: 200 X\r\nX: y\r\n\r\n";
    let ended = |end| [&Fastcgi.wrap(&text[..end])[..], Fastcgi.end()].concat();
    let torn: Vec<_> = (0..text.len()).map(ended).collect();
    let read = |peer: &mut Peer| Fastcgi.read_request(peer);
    assert_torn_is_a_fault("fastcgi", TornBy::Message, read, &ended(text.len()), &torn);

    let packets = Ajp13.begun(200, &[("X", "y")], "");
    let payload = &packets[4..];
    let ended = |end: usize| {
        let mut packets = Vec::new();
        ajp_packet(&payload[..end], &mut packets);
        [&packets[..], end_for_reuse(Ajp13)].concat()
    };
    let torn: Vec<_> = (0..payload.len()).map(ended).collect();
    let read = |peer: &mut Peer| Ajp13.read_request(peer);
    assert_torn_is_a_fault("ajp13", TornBy::Message, read, &ended(payload.len()), &torn);
}

#[test]
fn a_hang_before_the_head_is_answered_504_on_time() {
    for protocol in ALL {
        let backend = after_request(protocol, |peer| {
            peer.hang();
        });
        let server = front(protocol, &backend, READ_LIMIT);
        let start = Stopwatch::start(&server);
        assert_eq!(ask(&server).response().status, 504, "{protocol:?}\n{}", server.log());
        let (elapsed, took) = (start.elapsed(), start.took());
        assert!(elapsed >= Duration::from_millis(500), "{protocol:?}: {elapsed:?}");
        assert!(took < Duration::from_secs(2), "{protocol:?}: {took:?}");
        server.await_log("proxy-core.read-timeout");
    }
}

#[test]
fn a_body_that_breaks_off_never_ends_cleanly() {
    for protocol in ALL {
        for length in [Some("100"), None] {
            for reset in [false, true] {
                if length.is_none() && !reset && !protocol.has_end() {
                    // A close is how such a response ends.
                    continue;
                }
                let backend = after_request(protocol, move |peer| {
                    let fields: Vec<_> =
                        length.map(|l| ("Content-Length", l)).into_iter().collect();
                    peer.send(protocol.begun(200, &fields, "hello"));
                    if reset {
                        std::thread::sleep(Duration::from_millis(30));
                        peer.reset();
                    }
                });
                let server = front(protocol, &backend, "");
                let got = ask(&server).try_response(false);
                assert!(got.is_err(), "{protocol:?}, {length:?}, reset: {reset}: {got:?}");
                server.await_log("the backend's response ended early");
                server.await_log(&backend.address().to_string());
            }
        }
    }
}

#[test]
fn an_end_before_the_announced_length_is_a_cut() {
    for protocol in ALL {
        let backend = after_request(protocol, move |peer| {
            peer.send(protocol.begun(200, &[("Content-Length", "100")], "hello"));
            peer.send(protocol.end());
        });
        let server = front(protocol, &backend, "");
        let got = ask(&server).try_response(false);
        assert!(got.is_err(), "{protocol:?}: {got:?}");
    }
}

#[test]
fn a_hang_in_the_body_is_cut_on_time() {
    for protocol in ALL {
        let backend = after_request(protocol, move |peer| {
            peer.send(protocol.begun(200, &[("Content-Length", "100")], "hello"));
            peer.hang();
        });
        let server = front(protocol, &backend, READ_LIMIT);
        let start = Stopwatch::start(&server);
        assert!(ask(&server).try_response(false).is_err(), "{protocol:?}");
        let (elapsed, took) = (start.elapsed(), start.took());
        assert!(elapsed >= Duration::from_millis(500), "{protocol:?}: {elapsed:?}");
        assert!(took < Duration::from_secs(2), "{protocol:?}: {took:?}");
    }
}

#[test]
fn hostile_answers_are_answered_502() {
    for protocol in ALL {
        let responses: Vec<Vec<u8>> = vec![
            vec![0xff; 64],
            protocol.wrap(b"no head at all\r\n\r\n"),
            protocol.begun(200, &[("Content-Length", "3"), ("Content-Length", "5")], "hello"),
            protocol.begun(200, &[("Content-Length", "-3")], "hello"),
            protocol.begun(200, &[("X", "a\rb")], "hello"),
            protocol.begun(200, &[("X", "a\0b")], "hello"),
            protocol.begun(200, &[("X y", "a")], "hello"),
            protocol.begun(99, &[], "hello"),
        ];
        for response in responses {
            let sent = response.clone();
            let backend = after_request(protocol, move |peer| {
                peer.send(&sent);
                peer.send(protocol.end());
            });
            let server = front(protocol, &backend, READ_LIMIT);
            let got = ask(&server).try_response(false).expect("a response");
            let shown = response.escape_ascii();
            assert_eq!(got.status, 502, "{protocol:?}: {shown}: {got:?}\n{}", server.log());
        }
    }
}

#[test]
fn an_endless_head_is_answered_502() {
    for protocol in [Fastcgi, Scgi, Uwsgi] {
        let backend = after_request(protocol, move |peer| {
            let line = format!("X: {}\r\n", "y".repeat(1000));
            while peer.send(protocol.wrap(line.as_bytes())) {}
        });
        let server = front(protocol, &backend, "");
        assert_eq!(ask(&server).response().status, 502, "{protocol:?}");
        assert!(server.peak_resident_kib() < 64 << 10, "{protocol:?}");
    }
}

#[test]
fn a_post_is_sent_once() {
    for protocol in ALL {
        for reset in [false, true] {
            let backend = after_request(protocol, move |peer| {
                peer.skip(5);
                if reset {
                    peer.reset();
                }
            });
            let server = front(protocol, &backend, "");
            let mut client = server.connect();
            client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
            assert_eq!(client.response().status, 502, "{protocol:?}");
            assert_eq!(backend.opened(), 1, "{protocol:?}, reset: {reset}");
        }
    }
}

#[test]
fn an_early_413_is_passed_on_while_the_client_still_sends() {
    for protocol in ALL {
        let backend = after_request(protocol, move |peer| {
            peer.send(protocol.begun(413, &[("Content-Length", "3")], "big"));
            peer.send(protocol.end());
            peer.hang();
        });
        let server = front(
            protocol,
            &backend,
            "server.max-request-size = 0\nserver.stream-request-body = 1",
        );
        let mut client = server.connect();
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
        client.send(vec![b'x'; 1000]);
        client.set_deadline(SOON);
        let got = client.try_response(false).map(|got| (got.status, got.body));
        assert_eq!(got, Ok((413, b"big".to_vec())), "{protocol:?}\n{}", server.log());
    }
}

#[test]
fn a_client_that_closes_its_half_gets_its_response() {
    for protocol in ALL {
        let backend = after_request(protocol, move |peer| {
            std::thread::sleep(Duration::from_millis(400));
            peer.send(protocol.begun(200, &[], "hello"));
            peer.send(protocol.end());
        });
        let server = front(protocol, &backend, "");
        let mut client = ask(&server);
        client.half_close();
        assert_eq!(client.response().text(), "hello", "{protocol:?}");
    }
}

#[test]
fn a_client_that_leaves_takes_its_backend_connection_along() {
    for protocol in ALL {
        for begun in [false, true] {
            let (ended, ends) = mpsc::channel();
            let ended = std::sync::Mutex::new(ended);
            let (there, arrivals) = mpsc::channel();
            let there = std::sync::Mutex::new(there);
            let backend = after_request(protocol, move |peer| {
                if begun {
                    peer.send(protocol.begun(200, &[("Content-Length", "100")], "hello"));
                }
                let _ = there.lock().expect("nobody panics").send(());
                let end: ConnectionEnd = peer.hang();
                let _ = ended.lock().expect("nobody panics").send(end);
            });
            let server = front(protocol, &backend, "");
            let client = ask(&server);
            arrivals.recv_timeout(SOON).expect("the request arrives");
            std::thread::sleep(Duration::from_millis(100));
            let left = Stopwatch::start(&server);
            client.reset();
            ends.recv_timeout(SOON).unwrap_or_else(|_| panic!("{protocol:?}, begun: {begun}"));
            let took = left.took();
            assert!(took < Duration::from_secs(2), "{protocol:?}: {took:?}");
        }
    }
}

/// Program that reads each request and responds on the same, kept connection.
fn answering(protocol: Protocol) -> Backend {
    Backend::start(move |peer| {
        while protocol.read_request(peer).is_some() {
            if protocol == Fastcgi {
                peer.skip(8);
            }
            peer.send(protocol.begun(200, &[("Content-Length", "2")], "ok"));
            // In AJP13 the container decides if the connection is kept.
            peer.send(if protocol == Ajp13 { b"AB\0\x02\x05\x01" } else { protocol.end() });
        }
    })
}

/// Required size of a request head, taken from the log.
fn needed_bytes(server: &Server) -> usize {
    server.await_log("can carry");
    let log = server.log();
    let line = log.lines().rfind(|line| line.contains("can carry")).expect("the line");
    let (before, _) = line.rsplit_once(" bytes, of ").expect("the number");
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn a_head_that_a_protocol_cannot_carry_is_answered_431() {
    let environment = |length: usize| {
        format!("setenv.add-environment = ( \"BIG\" => \"{}\" )", "x".repeat(length))
    };
    for (protocol, most, named) in [
        (Uwsgi, 65_535, "65535 that uwsgi can carry"),
        (Scgi, 1 << 20, "1048576 that SCGI can carry"),
    ] {
        let backend = answering(protocol);
        let server = front(protocol, &backend, &environment(most));
        let got = ask(&server).response();
        assert_eq!(got.status, 431, "{protocol:?}\n{}", server.log());
        server.await_log("does not fit into the protocol of its backend");
        server.await_log(named);
        // To the byte: the value may be as much shorter as the whole was too long.
        let excess = needed_bytes(&server) - most;
        for (length, status) in [(most - excess, 200), (most - excess + 1, 431)] {
            let server = front(protocol, &backend, &environment(length));
            assert_eq!(ask(&server).response().status, status, "{protocol:?}: {length}");
        }
    }
}

#[test]
fn a_head_that_needs_more_than_a_packet_of_ajp_is_answered_431_and_costs_no_connection() {
    const PACKET_BYTES: usize = 8192;
    let backend = answering(Ajp13);
    let lines = "server.max-request-field-size = 20000\nproxy-core.max-pool-size = 1";
    let server = front(Ajp13, &backend, lines);
    let mut client = server.connect();
    let mut status = |length: usize| {
        let value = "y".repeat(length);
        client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\nX-Long: {value}\r\n\r\n"));
        client.response().status
    };
    // A response shows that a process has accepted the connection; other connections are not kept.
    assert_eq!(status(1), 200);
    assert_eq!(status(PACKET_BYTES), 431, "{}", server.log());
    let named = "8192 that AJP13 (proxy-core.ajp-packet-size) can carry";
    server.await_log(named);
    let excess = needed_bytes(&server) - PACKET_BYTES;
    assert_eq!(status(PACKET_BYTES - excess), 200, "{}", server.log());
    assert_eq!(status(PACKET_BYTES - excess + 1), 431, "{}", server.log());
    assert_eq!(status(1), 200);
    assert_eq!(backend.opened(), 1, "a connection that heard nothing of it goes on");
}

/// Message that ends a response and offers the connection for another request.
fn end_for_reuse(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Ajp13 => &[b'A', b'B', 0, 2, 5, 1],
        other => other.end(),
    }
}

#[test]
fn a_body_that_its_client_left_off_ends_the_connection_that_it_was_for() {
    for protocol in [Fastcgi, Ajp13] {
        let left_off = Arc::new(Barrier::new(2));
        let reported = Arc::clone(&left_off);
        let backend = Backend::start(move |peer| {
            if protocol.read_request(peer).is_some() {
                peer.send(protocol.begun(200, &[], "hello"));
                if peer.number() == 0 {
                    reported.wait();
                }
                peer.send(end_for_reuse(protocol));
                // A further request here could be taken for the body that was never sent.
                peer.hang();
            }
        });
        let server = front(protocol, &backend, "");
        let mut client = server.connect();
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
        assert_eq!(client.response_head().status, 200, "{protocol:?}\n{}", server.log());
        client.half_close();
        left_off.wait();
        client.read_to_end();
        let got = ask(&server).response();
        assert_eq!((got.status, got.text()), (200, "hello"), "{protocol:?}\n{}", server.log());
        assert_eq!(backend.opened(), 2, "{protocol:?}");
    }
}

#[test]
fn a_body_that_a_container_was_sent_whole_leaves_the_connection_to_the_next() {
    let backend = Backend::start(|peer| {
        while Ajp13.read_request(peer).is_some() {
            // The first packet is sent unrequested; a length of its own precedes the bytes.
            let Some(head) = peer.read_exact(4) else { return };
            assert_eq!(head, [0x12, 0x34, 0, 2 + 5]);
            assert_eq!(peer.read_exact(2 + 5).as_deref(), Some(&b"\x00\x05tells"[..]));
            peer.send(Ajp13.begun(200, &[], "hello"));
            peer.send(end_for_reuse(Ajp13));
        }
    });
    let server = front(Ajp13, &backend, "");
    for _ in 0..3 {
        let mut client = server.connect();
        client.send("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\ntells");
        assert_eq!(client.response().text(), "hello", "{}", server.log());
    }
    assert_eq!(backend.opened(), 1);
}

#[test]
fn a_client_is_not_to_blame_while_a_container_asks_for_nothing() {
    const LENGTH: usize = 20_000;
    /// A packet with a piece of the body; how long that is.
    fn read_piece(peer: &mut Peer) -> Option<usize> {
        let head = peer.read_exact(4)?;
        let packet = peer.read_exact(usize::from(u16::from_be_bytes([head[2], head[3]])))?;
        Some(packet.len() - 2)
    }
    let backend = after_request(Ajp13, |peer| {
        let Some(mut came) = read_piece(peer) else { return };
        // Longer than the client may be silent.
        std::thread::sleep(Duration::from_secs(3));
        while came < LENGTH {
            peer.send([b'A', b'B', 0, 3, 6, 0x1f, 0xfa]);
            let Some(piece) = read_piece(peer) else { return };
            came += piece;
        }
        peer.send(Ajp13.begun(200, &[], "hello"));
        peer.send(Ajp13.end());
    });
    let server = front(Ajp13, &backend, "server.max-read-idle = 1");
    let mut client = server.connect();
    client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n"));
    // The body follows later: the proxy would not have to wait for a body that arrives with the
    // head.
    assert!(wait_until(SOON, || backend.opened() == 1));
    client.send("x".repeat(LENGTH));
    let got = client.response();
    assert_eq!((got.status, got.text()), (200, "hello"), "{}", server.log());
}

/// FastCGI's rejection of a request: FastCGI 1.0 section 5.5.
const CANT_MPX_CONN: u8 = 1;
const OVERLOADED: u8 = 2;

fn rejecting(protocol_status: u8) -> Backend {
    after_request(Fastcgi, move |peer| {
        peer.send([1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, protocol_status, 0, 0, 0]);
    })
}

#[test]
fn a_rejected_request_goes_to_another_address() {
    for protocol_status in [CANT_MPX_CONN, OVERLOADED] {
        let busy = [rejecting(protocol_status), rejecting(protocol_status)];
        let free = answering(Fastcgi);
        let server = lighty!()
            .config(&format!(
                "proxy-core.protocol = \"fastcgi\"\nproxy-core.balancer = \"static\"\n\
                 proxy-core.backends = ( \"{}\", \"{}\", \"{}\" )",
                busy[0].address(),
                busy[1].address(),
                free.address()
            ))
            .start();
        for round in 1..=3 {
            assert_eq!(ask(&server).response().status, 200, "{}", server.log());
            assert_eq!((busy[0].opened(), busy[1].opened()), (round, round), "they are still up");
        }
        // A non-idempotent request is not retried, even after a rejection.
        let mut client = server.connect();
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.response().status, 503);
    }
}

#[test]
fn a_request_that_everybody_rejects_is_answered_503_at_once() {
    let backends = [rejecting(OVERLOADED), rejecting(OVERLOADED)];
    let server = lighty!()
        .config(&format!(
            "proxy-core.protocol = \"fastcgi\"\nproxy-core.backends = ( \"{}\", \"{}\" )",
            backends[0].address(),
            backends[1].address()
        ))
        .start();
    let got = ask(&server).response();
    assert_eq!((got.status, got.field("Retry-After")), (503, Some("1")));
    server.await_log("the backend takes no request now");
    server.await_log("it is overloaded");
    assert_eq!((backends[0].opened(), backends[1].opened()), (1, 1), "each is asked once");
    server.signal(rustix::process::Signal::USR2);
    for backend in &backends {
        server.await_log(&format!("\"{}\".requests_failed: 1", backend.address()));
    }
}

#[test]
fn lengths_that_do_not_fit_are_logged_in_numbers() {
    for (announced, message) in [
        ("100", "it ended after 5 of the 100 bytes that Content-Length announced"),
        ("3", "a piece of 5 bytes where 3 are left of the 3 that Content-Length announced"),
    ] {
        for protocol in [Fastcgi, Ajp13] {
            if protocol == Fastcgi && announced == "3" {
                // FastCGI responses drop the excess, as PHP's own servers do.
                continue;
            }
            let backend = after_request(protocol, move |peer| {
                peer.send(protocol.begun(200, &[("Content-Length", announced)], "hello"));
                peer.send(protocol.end());
            });
            let server = front(protocol, &backend, "");
            assert!(ask(&server).try_response(false).is_err(), "{protocol:?}");
            server.await_log(message);
        }
    }
    let backend = after_request(Ajp13, |peer| {
        peer.send(b"AB\x23\x28");
    });
    let server = front(Ajp13, &backend, "");
    assert_eq!(ask(&server).response().status, 502);
    server.await_log("9004 bytes, of 8192 at most (proxy-core.ajp-packet-size)");
}

#[test]
fn a_switch_of_protocols_is_answered_502() {
    for protocol in ALL {
        let backend = after_request(protocol, move |peer| {
            peer.send(protocol.begun(101, &[("Upgrade", "echo"), ("Connection", "upgrade")], ""));
            peer.hang();
        });
        let server = front(protocol, &backend, "proxy-core.upgrade = \"enable\"");
        for wish in ["", "Connection: upgrade\r\nUpgrade: echo\r\n"] {
            let mut client = server.connect();
            client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{wish}\r\n"));
            assert_eq!(client.response().status, 502, "{protocol:?}, {wish:?}\n{}", server.log());
        }
    }
}

/// Output in records of a few bytes each, where there are records.
fn in_small_records(protocol: Protocol, output: &str) -> Vec<u8> {
    output.as_bytes().chunks(7).flat_map(|piece| protocol.wrap(piece)).collect()
}

#[test]
fn chunks_of_a_program_are_decoded() {
    const HEAD: &str = "Status: 200\r\nTransfer-Encoding: chunked\r\nContent-Length: 999\r\n\r\n";
    const BODY: &str = "5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX: y\r\n\r\n";
    for protocol in [Fastcgi, Scgi, Uwsgi] {
        for output in [
            protocol.wrap(format!("{HEAD}{BODY}").as_bytes()),
            in_small_records(protocol, &format!("{HEAD}{BODY}")),
            protocol.wrap(format!("{HEAD}{BODY}what nobody asked for").as_bytes()),
        ] {
            let backend = after_request(protocol, move |peer| {
                peer.send(&output);
                peer.send(protocol.end());
            });
            let server = front(protocol, &backend, "");
            for version in ["1.1", "1.0"] {
                let mut client = server.connect();
                client.send(format!("GET /x HTTP/{version}\r\nHost: a\r\n\r\n"));
                assert_eq!(client.response().text(), "hello world", "{protocol:?}, {version}");
            }
        }
    }
}

#[test]
fn chunks_that_break_off_or_are_none_never_end_cleanly() {
    for protocol in [Fastcgi, Scgi, Uwsgi] {
        for body in ["5\r\nhello\r\n", "5\r\nhel", "5\r\nhello\r\n0\r\n", "no chunk"] {
            let output = format!("Status: 200\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            let output = protocol.wrap(output.as_bytes());
            let backend = after_request(protocol, move |peer| {
                peer.send(&output);
                peer.send(protocol.end());
            });
            let server = front(protocol, &backend, "");
            let got = ask(&server).try_response(false);
            let is_whole = got.as_ref().is_ok_and(|got| got.status == 200);
            assert!(!is_whole, "{protocol:?}, {body:?}: {got:?}");
        }
        let output = protocol.wrap(b"Status: 200\r\nTransfer-Encoding: gzip\r\n\r\nx");
        let backend = after_request(protocol, move |peer| {
            peer.send(&output);
            peer.send(protocol.end());
        });
        let server = front(protocol, &backend, "");
        assert_eq!(ask(&server).response().status, 502, "{protocol:?}");
    }
}

#[test]
fn a_head_request_gets_the_length_and_leaves_the_connection_usable() {
    for protocol in ALL {
        for body in ["", "hello"] {
            let backend = Backend::start(move |peer| {
                while protocol.read_request(peer).is_some() {
                    if protocol == Fastcgi {
                        peer.skip(8);
                    }
                    peer.send(protocol.begun(200, &[("Content-Length", "5")], body));
                    peer.send(if protocol == Ajp13 { b"AB\0\x02\x05\x01" } else { protocol.end() });
                    if !protocol.has_end() {
                        return;
                    }
                }
            });
            let server = front(protocol, &backend, "");
            let mut client = server.connect();
            for _ in 0..2 {
                client.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
                let got = client.response_to_head();
                let what = format!("{protocol:?}, {body:?}\n{}", server.log());
                assert_eq!((got.status, got.field("Content-Length")), (200, Some("5")), "{what}");
                assert_eq!(got.field("Transfer-Encoding"), None, "{what}");
            }
            assert!(!server.log().contains("malformed"), "{}", server.log());
        }
    }
}
