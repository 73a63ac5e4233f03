//! Connections that end between requests, and the requests that may be retried.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lighty_testkit::backend::Backend;
use lighty_testkit::client::Client;
use lighty_testkit::{lighty, wait_until};

use super::{SOON, ask, assert_status, front};

#[test]
fn a_close_or_reset_before_any_byte_is_answered_502() {
    for reset in [false, true] {
        for begun in ["", "HTTP/1.1 200 OK\r\nX: y\r\n"] {
            let backend = Backend::after_request(move |peer| {
                peer.send(begun);
                if reset {
                    std::thread::sleep(Duration::from_millis(30));
                    peer.reset();
                }
            });
            let server = front(&backend, "proxy-core.hold-time = 0");
            assert_status(&server, 502, &["closed the connection", &backend.address().to_string()]);
        }
    }
}

/// Connections of the server to a backend that are open, as the kernel's table has them, with the
/// number of bytes that came and that the server has not read.
fn open_to(backend: &Backend) -> Vec<u64> {
    const ESTABLISHED: &str = "01";
    let port = format!(":{:04X}", backend.address().port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let unread = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (_, unread) = columns.get(4)?.split_once(':')?;
        let is_open = columns[2].ends_with(&port) && columns[3] == ESTABLISHED;
        is_open.then(|| u64::from_str_radix(unread, 16).expect("hexadecimal"))
    };
    table.lines().filter_map(unread).collect()
}

#[test]
fn an_unrequested_response_reaches_no_client() {
    for pause in [0, 1, 20] {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let backend = Backend::start(move |peer| {
            while peer.request().is_some() {
                peer.answer("right");
                std::thread::sleep(Duration::from_millis(pause));
                peer.answer("wrong");
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let server = front(&backend, "");
        for round in 1..=10 {
            assert_eq!(server.get("/x").text(), "right", "after {pause} ms");
            assert!(wait_until(SOON, || sent.load(Ordering::SeqCst) == round));
            // A busy machine delivers bytes late, and bytes that arrive behind a request count as
            // its response.
            assert!(wait_until(SOON, || open_to(&backend).iter().all(|unread| *unread > 0)));
        }
    }
}

/// A backend that resets each connection a moment after its first response.
fn resets_when_idle() -> Backend {
    Backend::start(|peer| {
        if peer.request().is_some() {
            peer.answer("ok");
            std::thread::sleep(Duration::from_millis(5));
            peer.reset();
        }
    })
}

/// Returns true once the kernel has reported every reset to the server. A busy machine delivers a
/// reset late, and a request sent before that runs into it.
fn has_heard_the_end(backend: &Backend) -> bool {
    backend.open() == 0 && open_to(backend).is_empty()
}

#[test]
fn an_idle_connection_that_was_reset_costs_no_request() {
    let backend = resets_when_idle();
    let server = front(&backend, "");
    for _ in 0..10 {
        assert_eq!(server.get("/x").text(), "ok");
        assert!(wait_until(SOON, || has_heard_the_end(&backend)));
    }
    for index in 0..10 {
        let mut client = server.connect();
        client.send(format!("POST /{index} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
        assert_eq!(client.response().text(), "ok");
        assert!(wait_until(SOON, || has_heard_the_end(&backend)));
    }
    assert_eq!(backend.requests().len(), 20);
}

#[test]
fn a_post_is_never_sent_twice() {
    let bodies = [
        "Content-Length: 5\r\n\r\nhello".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_owned(),
        "Content-Length: 0\r\n\r\n".to_owned(),
        format!("Content-Length: 40000\r\n\r\n{}", "x".repeat(40_000)),
    ];
    for reset in [false, true] {
        for warm in [false, true] {
            for body in &bodies {
                let backend = Backend::start(move |peer| {
                    while let Some(received) = peer.request() {
                        if received.target() == "/warm" {
                            peer.answer("warm");
                            continue;
                        }
                        if reset {
                            peer.reset();
                        }
                        return;
                    }
                });
                let spare = Backend::start(|peer| peer.respond_to_all("spare"));
                let server = lighty!()
                    .config(&format!(
                        "proxy-core.protocol = \"http\"\nproxy-core.balancer = \"static\"\n\
                         proxy-core.backends = ( \"{}\", \"{}\" )",
                        backend.address(),
                        spare.address()
                    ))
                    .start();
                if warm {
                    assert_eq!(server.get("/warm").text(), "warm");
                }
                let mut client = server.connect();
                client.send(format!("POST /once HTTP/1.1\r\nHost: a\r\n{body}"));
                assert_eq!(client.response().status, 502, "{reset}, {warm}, {body:.40}");
                assert_eq!(backend.requests_for("/once").len(), 1, "{reset}, {warm}, {body:.40}");
                assert_eq!(spare.requests().len(), 0, "{reset}, {warm}, {body:.40}");
            }
        }
    }
}

/// Body that is unique for its index.
fn body_of(index: usize) -> String {
    format!("{index:06}").repeat(1 + index % 977)
}

/// A backend that does something wrong with every third response, and never the same twice running.
fn moody() -> Backend {
    Backend::start(|peer| {
        while let Some(received) = peer.request() {
            let index: usize = received.target()[1..].parse().expect("an index");
            let body = body_of(index);
            let (length, half) = (body.len(), body.len() / 2);
            let sized = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            match index % 24 {
                0 => return,
                3 => return peer.reset(),
                6 => {
                    peer.send(sized + &body[..half]);
                    return;
                }
                9 => {
                    peer.send(format!("{chunked}{length:x}\r\n{}", &body[..half]));
                    return peer.reset();
                }
                // Sent in one piece: no proxy can distinguish a response from bytes that arrive
                // after the connection was reused.
                12 => {
                    peer.send(format!(
                        "{sized}{body}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"
                    ));
                }
                15 => {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n");
                }
                18 => {
                    peer.answer(&body);
                    return peer.reset();
                }
                21 => {
                    peer.send(format!("{chunked}{length:x}\r\n{body}\r\nzz\r\n"));
                }
                other if other % 2 == 0 => {
                    peer.send(format!("{chunked}{length:x}\r\n{body}\r\n0\r\n\r\n"));
                }
                _ => {
                    peer.answer(&body);
                }
            }
        }
    })
}

#[test]
fn each_request_gets_its_own_whole_response() {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 400;
    let backend = moody();
    let server = front(&backend, "server.max-worker = 2\nproxy-core.max-pool-size = 6");
    let address = server.address();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::tcp(address);
                let mut whole = 0;
                for round in 0..REQUESTS {
                    let index = number * REQUESTS + round;
                    client.send(format!("GET /{index} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    match client.try_response(false) {
                        Ok(got) if got.status == 200 => {
                            assert_eq!(got.text(), body_of(index), "{index}");
                            whole += 1;
                        }
                        Ok(got) => assert!(matches!(got.status, 502 | 503), "{got:?}"),
                        Err(_) => client = Client::tcp(address),
                    }
                }
                whole
            })
        })
        .collect();
    let whole: usize = clients.into_iter().map(|c| c.join().expect("right or none")).sum();
    // Eighteen of 24 kinds are proper responses.
    assert!(whole >= CLIENTS * REQUESTS * 17 / 24, "{whole} whole answers");
    // And no connection slot is lost.
    for index in 0..50 {
        assert_eq!(server.get(&format!("/{}", 24 * index + 1)).status, 200);
    }
}

#[test]
fn a_backend_that_closes_behind_each_response_costs_no_get_and_doubles_no_post() {
    let backend = Backend::start(|peer| {
        if peer.request().is_some() {
            peer.answer("ok");
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    for _ in 0..100 {
        ask(&mut client, "1.1");
        assert_eq!(client.response().text(), "ok");
    }
    for index in 0..100 {
        client.send(format!("POST /{index} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
        let status = client.response().status;
        let seen = backend.requests_for(&format!("/{index}")).len();
        assert!(matches!((status, seen), (200, 1) | (502, 0)), "{index}: {status}, {seen} times");
    }
}
