//! Clients that leave, fall silent or still send while the response comes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lighty_testkit::backend::Backend;
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::wait_until;

use super::{SOON, front};

#[test]
fn an_early_413_is_passed_on_while_the_client_still_sends() {
    for (reset, framed) in [(false, true), (true, true), (false, false), (true, false)] {
        let backend = Backend::start(move |peer| {
            if peer.head().is_none() {
                return;
            }
            peer.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
            if reset {
                std::thread::sleep(Duration::from_millis(50));
                peer.reset();
            } else {
                peer.hang();
            }
        });
        let server = front(&backend, "");
        let mut client = server.connect();
        let framing =
            if framed { "Content-Length: 1000000000" } else { "Transfer-Encoding: chunked" };
        client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        let piece = match framed {
            true => "x".repeat(0x1000),
            false => format!("1000\r\n{}\r\n", "x".repeat(0x1000)),
        };
        let start = Stopwatch::start(&server);
        // A client that reads the response between two pieces of its body.
        client.send(&piece);
        let got = client.response();
        assert_eq!((got.status, got.text()), (413, "big"), "reset: {reset}");
        assert!(start.took() < Duration::from_secs(1), "{:?}", start.took());
        while client.try_send(&piece).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(10), "it takes and takes");
        }
    }
}

#[test]
fn an_early_413_reaches_a_client_that_sends_as_fast_as_it_can() {
    let backend = Backend::start(|peer| {
        if peer.head().is_some() {
            peer.skip(100_000);
            peer.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
            // Unread bytes make the kernel reset the connection.
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    let start = Stopwatch::start(&server);
    let piece = "x".repeat(16 << 10);
    // At most the bytes that all buffers on the way can hold, the lingering close included.
    for _ in 0..1024 {
        if client.try_send(&piece).is_err() || start.elapsed() > Duration::from_secs(1) {
            break;
        }
    }
    let got = client.response();
    assert_eq!((got.status, got.text()), (413, "big"));
    assert!(start.took() < Duration::from_secs(3), "{:?}", start.took());
}

#[test]
fn a_client_that_closes_its_half_gets_its_response() {
    let backend = Backend::start(|peer| {
        while peer.request().is_some() {
            std::thread::sleep(Duration::from_millis(500));
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            std::thread::sleep(Duration::from_millis(500));
            peer.send("5\r\nhello\r\n0\r\n\r\n");
        }
    });
    let server = front(&backend, "");
    for body in ["GET /x HTTP/1.1\r\n\r\n", "POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"] {
        let mut client = server.connect();
        client.send(body.replacen("\r\n", "\r\nHost: a\r\n", 1));
        client.half_close();
        assert_eq!(client.response().text(), "hello");
    }
}

#[test]
fn a_client_that_leaves_takes_its_backend_connection_along() {
    let (ended, ends) = mpsc::channel();
    let ended = std::sync::Mutex::new(ended);
    let backend = Backend::start(move |peer| {
        let Some(seen) = peer.request() else { return };
        if seen.target() == "/body" {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        }
        peer.hang();
        let _ = ended.lock().expect("nobody panics").send(());
    });
    let server = front(&backend, "");
    for target in ["/head", "/body"] {
        for wait in [0, 600] {
            let before = backend.requests().len();
            let mut client = server.connect();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            if target == "/body" {
                assert_eq!(client.response_head().status, 200);
            }
            assert!(wait_until(SOON, || backend.requests().len() > before));
            std::thread::sleep(Duration::from_millis(wait));
            let left = Stopwatch::start(&server);
            client.reset();
            ends.recv_timeout(SOON).unwrap_or_else(|_| panic!("{target}, {wait} ms"));
            assert!(left.took() < Duration::from_secs(1), "{target}: {:?}", left.took());
        }
    }
}

#[test]
fn a_client_that_only_listens_is_waited_for_as_long_as_the_limit_says() {
    let backend = Backend::start(|peer| {
        while peer.request().is_some() {
            std::thread::sleep(Duration::from_millis(2_500));
            peer.answer("late");
        }
    });
    let ask = |limit: &str| {
        let server = front(&backend, limit);
        let mut client = server.connect();
        client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        client.half_close();
        let response = client.response();
        (response.status, response.text().to_owned())
    };
    let line = |seconds: u32| format!("server.max-half-closed-idle = {seconds}");
    assert_eq!(ask(&line(60)), (200, "late".to_owned()));
    assert_eq!(ask(&line(0)), (200, "late".to_owned()));
    assert_eq!(ask(&line(1)).0, 408);
}

#[test]
fn a_thousand_clients_that_leave_leave_no_place_taken() {
    const PLACES: usize = 4;
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&arrived);
    let backend = Backend::start(move |peer| {
        while let Some(seen) = peer.request() {
            match seen.target() {
                "/together" => {
                    count.fetch_add(1, Ordering::SeqCst);
                    if !wait_until(SOON, || count.load(Ordering::SeqCst) >= PLACES) {
                        return;
                    }
                    peer.answer("all here");
                }
                "/chunks" => {
                    let begun = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel";
                    if !peer.send(begun) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                    if !peer.send("lo\r\n0\r\n\r\n") {
                        return;
                    }
                }
                _ => {
                    peer.answer("short");
                }
            }
        }
    });
    let server = front(&backend, &format!("proxy-core.max-pool-size = {PLACES}"));
    for index in 0..1000 {
        let mut client = server.connect();
        let target = ["/chunks", "/short", "/chunks", "/upload"][index % 4];
        let body = if target == "/upload" { "Content-Length: 10\r\n\r\nhal" } else { "\r\n" };
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{body}"));
        match index % 3 {
            0 => client.reset(),
            1 => drop(client),
            _ => client.half_close_quietly(),
        }
    }
    let clients: Vec<_> = (0..PLACES)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET /together HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    for mut client in clients {
        assert_eq!(client.response().text(), "all here");
    }
}

#[test]
fn a_backend_that_reads_nothing_holds_its_client_back_and_is_given_up() {
    let backend = Backend::start(|peer| {
        peer.head();
        wait_until(SOON, || peer.is_stopping());
    });
    let server = front(&backend, "proxy-core.write-timeout = 1");
    let mut client = server.connect();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    client.set_deadline(Duration::from_millis(300));
    let mut taken = 0;
    let piece = vec![b'x'; 64 << 10];
    while client.try_send(&piece).is_ok() {
        taken += piece.len();
        assert!(taken < 64 << 20, "nothing holds the client back");
    }
    client.set_deadline(SOON);
    assert_eq!(client.response().status, 504);
    server.await_log("proxy-core.write-timeout");
    assert!(server.peak_resident_kib() < 64 << 10, "{} KiB", server.peak_resident_kib());
}
