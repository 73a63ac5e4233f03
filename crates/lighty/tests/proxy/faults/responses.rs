//! Responses that break off, lie, hang or are too large.

use std::time::{Duration, Instant};

use lighty_testkit::backend::Backend;
use lighty_testkit::stopwatch::Stopwatch;

use super::{READ_LIMIT, SOON, ask, assert_status, front};

#[test]
fn a_body_that_breaks_off_never_ends_cleanly() {
    const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let mid_chunk = format!("{CHUNKED}ff\r\nworld");
    let mid_size = format!("{CHUNKED}f");
    let bad_size = format!("{CHUNKED}xyz\r\n");
    let long_chunk = format!("{CHUNKED}3\r\nabcdef\r\n0\r\n\r\n");
    let no_last_line = format!("{CHUNKED}0\r\n");
    let bad_trailer = format!("{CHUNKED}0\r\nno trailer\r\n\r\n");
    let bodies = [
        LENGTH,
        CHUNKED,
        &mid_chunk,
        &mid_size,
        &bad_size,
        &long_chunk,
        &no_last_line,
        &bad_trailer,
    ];
    for body in bodies {
        for reset in [false, true] {
            for version in ["1.1", "1.0"] {
                let sent = body.to_owned();
                let backend = Backend::after_request(move |peer| {
                    peer.send(&sent);
                    if reset {
                        // The bytes before it are to be seen first.
                        std::thread::sleep(Duration::from_millis(30));
                        peer.reset();
                    }
                });
                let server = front(&backend, "");
                let mut client = server.connect();
                ask(&mut client, version);
                let got = client.try_response(false);
                assert!(got.is_err(), "{version}, reset: {reset}, {body:?}: {got:?}");
                server.await_log("the backend's response ended early");
                server.await_log(&backend.address().to_string());
            }
        }
    }
}

#[test]
fn a_body_until_close_is_whole_with_a_close_and_cut_with_a_reset() {
    let backend = Backend::start(|peer| {
        let Some(seen) = peer.request() else { return };
        peer.send("HTTP/1.0 200 OK\r\n\r\nhello");
        if seen.target() == "/reset" {
            std::thread::sleep(Duration::from_millis(30));
            peer.reset();
        }
    });
    let server = front(&backend, "");
    for version in ["1.0", "1.1"] {
        let mut client = server.connect();
        ask(&mut client, version);
        assert_eq!(client.response().text(), "hello");
        let mut client = server.connect();
        client.send(format!("GET /reset HTTP/{version}\r\nHost: a\r\n\r\n"));
        let got = client.try_response(false);
        assert!(got.is_err(), "{version}: {got:?}");
    }
}

#[test]
fn hostile_heads_are_answered_502() {
    let heads = [
        "garbage\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 3, 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX\x0c: a\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 99 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/3.7 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ];
    for head in heads {
        let backend = Backend::after_request(move |peer| {
            peer.send(head);
            peer.hang();
        });
        let server = front(&backend, READ_LIMIT);
        assert_status(&server, 502, &["malformed", &backend.address().to_string()]);
        // The address responded, so it is not marked as failed.
        assert_status(&server, 502, &[]);
        assert_eq!(backend.requests().len(), 2, "{head:?}");
    }
}

#[test]
fn a_head_of_twenty_megabytes_is_answered_502_at_once() {
    let backend = Backend::after_request(|peer| {
        peer.send("HTTP/1.1 200 OK\r\n");
        let line = format!("X: {}\r\n", "y".repeat(1000));
        for _ in 0..20_000 {
            if !peer.send(&line) {
                return;
            }
        }
        peer.send("Content-Length: 0\r\n\r\n");
    });
    let server = front(&backend, "");
    let start = Instant::now();
    assert_status(&server, 502, &["exceeds 65536 bytes"]);
    assert!(start.elapsed() < SOON);
    let endless = Backend::after_request(|peer| {
        peer.send("HTTP/1.1 200 OK\r\nX: ");
        while peer.send("y".repeat(1000)) {}
    });
    let server = front(&endless, "");
    assert_status(&server, 502, &["exceeds 65536 bytes"]);
    assert!(server.peak_resident_kib() < 64 << 10, "{} KiB", server.peak_resident_kib());
}

#[test]
fn a_backend_that_hangs_before_its_head_is_answered_504_on_time() {
    for begun in ["", "HTTP/1.1 200 OK\r\nX: y\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
        let backend = Backend::after_request(move |peer| {
            peer.send(begun);
            peer.hang();
        });
        let server = front(&backend, READ_LIMIT);
        let start = Stopwatch::start(&server);
        assert_status(&server, 504, &["proxy-core.read-timeout", &backend.address().to_string()]);
        let (elapsed, took) = (start.elapsed(), start.took());
        assert!(elapsed >= Duration::from_millis(500), "{begun:?}: {elapsed:?}");
        assert!(took < Duration::from_secs(2), "{begun:?}: {took:?}");
    }
}

#[test]
fn a_backend_that_hangs_in_its_body_is_cut_on_time() {
    let backend = Backend::after_request(|peer| {
        // Nearly as long as the patience with which its head was waited for.
        std::thread::sleep(Duration::from_millis(180));
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        peer.hang();
    });
    let server = front(&backend, READ_LIMIT);
    let mut client = server.connect();
    let start = Stopwatch::start(&server);
    ask(&mut client, "1.1");
    assert_eq!(client.response_head().status, 200);
    assert_eq!(client.read_exact(5).expect("the beginning"), b"hello");
    client.expect_end();
    assert!(start.elapsed() >= Duration::from_millis(650), "{:?}", start.elapsed());
    assert!(start.took() < Duration::from_millis(2200), "{:?}", start.took());
    server.await_log("proxy-core.read-timeout");
}

#[test]
fn a_slow_body_has_its_whole_limit_for_each_piece() {
    let backend = Backend::after_request(|peer| {
        std::thread::sleep(Duration::from_millis(150));
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        std::thread::sleep(Duration::from_millis(400));
        peer.drip("hello", 1, Duration::from_millis(400));
    });
    // Longer than each, by enough for a machine that is busy; shorter than all of them.
    let server = front(&backend, "proxy-core.read-timeout = \"1500ms\"");
    assert_eq!(server.get("/x").text(), "hello");
}

#[test]
fn a_backend_that_speaks_another_protocol_is_named() {
    for (greeting, message) in [
        (&b"\x15\x03\x01\0\x02\x02\x46"[..], "the backend speaks TLS"),
        (b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64", "the backend speaks HTTP/2"),
    ] {
        let backend = Backend::after_request(move |peer| {
            peer.send(greeting);
        });
        assert_status(&front(&backend, ""), 502, &[message]);
    }
}
