//! Backends that die, lie, hang or say too much: what the client is told, and when.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use lighty_testkit::backend::Backend;
use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::wait_until;

const SOON: Duration = Duration::from_secs(30);

/// Time limits that a test can wait for; the tick that judges them takes a tenth of a second.
const READ_LIMIT: &str = "proxy-core.read-timeout = \"600ms\"";

/// A server in front of a backend.
fn front(backend: &Backend, lines: &str) -> Server {
    lighty!().in_front_of(&backend.name()).config(lines).start()
}

fn ask(client: &mut Client, version: &str) {
    client.send(format!("GET /x HTTP/{version}\r\nHost: a\r\n\r\n"));
}

fn assert_status(server: &Server, status: u16, words: &[&str]) {
    let response = server.get("/x");
    assert_eq!(response.status, status, "{response:?}\n{}", server.log());
    for words in words {
        server.await_log(words);
    }
}

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
                server.await_log("the backend's answer ended early");
                server.await_log(&backend.address().to_string());
            }
        }
    }
}

#[test]
fn a_body_until_close_is_whole_with_a_close_and_cut_with_a_reset() {
    let backend = Backend::start(|peer| {
        let Some(asked) = peer.request() else { return };
        peer.send("HTTP/1.0 200 OK\r\n\r\nhello");
        if asked.target() == "/reset" {
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
        "HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 0\r\n\r\n",
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
        // The address answered, so it is not held against it.
        assert_status(&server, 502, &[]);
        assert_eq!(backend.asked().len(), 2, "{head:?}");
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
    assert_status(&server, 502, &["exceeds 64 KB"]);
    assert!(start.elapsed() < SOON);
    let endless = Backend::after_request(|peer| {
        peer.send("HTTP/1.1 200 OK\r\nX: ");
        while peer.send("y".repeat(1000)) {}
    });
    let server = front(&endless, "");
    assert_status(&server, 502, &["exceeds 64 KB"]);
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

#[test]
fn an_answer_that_nobody_asked_for_reaches_nobody() {
    for pause in [0, 1, 20] {
        let said = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&said);
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
            assert!(wait_until(SOON, || said.load(Ordering::SeqCst) == round));
        }
    }
}

/// A backend that resets each connection a moment after its first answer.
fn resets_when_idle() -> Backend {
    Backend::start(|peer| {
        if peer.request().is_some() {
            peer.answer("ok");
            std::thread::sleep(Duration::from_millis(5));
            peer.reset();
        }
    })
}

/// Whether the kernel has told the server of every reset: a busy machine delivers one late, and a
/// request that is sent until then meets it.
fn has_heard_the_end(backend: &Backend) -> bool {
    const ESTABLISHED: &str = "01";
    let port = format!(":{:04X}", backend.address().port());
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let is_open = |line: &str| {
        let mut columns = line.split_whitespace().skip(2);
        columns.next().is_some_and(|remote| remote.ends_with(&port))
            && columns.next() == Some(ESTABLISHED)
    };
    backend.open() == 0 && !table.lines().any(is_open)
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
    assert_eq!(backend.asked().len(), 20);
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
                    while let Some(asked) = peer.request() {
                        if asked.target() == "/warm" {
                            peer.answer("warm");
                            continue;
                        }
                        if reset {
                            peer.reset();
                        }
                        return;
                    }
                });
                let spare = Backend::start(|peer| peer.answer_all("spare"));
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
                assert_eq!(backend.asked_for("/once").len(), 1, "{reset}, {warm}, {body:.40}");
                assert_eq!(spare.asked().len(), 0, "{reset}, {warm}, {body:.40}");
            }
        }
    }
}

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
        // A client that looks at what it is told between two pieces.
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
            // Bytes that nobody reads make the kernel reset.
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    let start = Stopwatch::start(&server);
    let piece = "x".repeat(16 << 10);
    // At most what fits into every buffer on the way, the lingering close included.
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
fn a_client_that_closes_its_half_gets_its_answer() {
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
        let Some(asked) = peer.request() else { return };
        if asked.target() == "/body" {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        }
        peer.hang();
        let _ = ended.lock().expect("nobody panics").send(());
    });
    let server = front(&backend, "");
    for target in ["/head", "/body"] {
        for wait in [0, 600] {
            let mut client = server.connect();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let before = backend.asked().len();
            if target == "/body" {
                assert_eq!(client.response_head().status, 200);
            }
            assert!(wait_until(SOON, || backend.asked().len() >= before.max(1)));
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
        while let Some(asked) = peer.request() {
            match asked.target() {
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

/// Tells a body and its index from any other.
fn body_of(index: usize) -> String {
    format!("{index:06}").repeat(1 + index % 977)
}

/// A backend that does something wrong with every third answer, and never the same twice running.
fn moody() -> Backend {
    Backend::start(|peer| {
        while let Some(asked) = peer.request() {
            let index: usize = asked.target()[1..].parse().expect("an index");
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
                // In one piece: what comes later, when the connection was given on already, no
                // proxy can tell from an answer.
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
fn nobody_gets_anothers_answer_or_half_of_his_own() {
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
    // Eighteen of 24 kinds are proper answers.
    assert!(whole >= CLIENTS * REQUESTS * 17 / 24, "{whole} whole answers");
    // And no place is lost.
    for index in 0..50 {
        assert_eq!(server.get(&format!("/{}", 24 * index + 1)).status, 200);
    }
}

#[test]
fn a_backend_that_closes_behind_each_answer_costs_no_get_and_doubles_no_post() {
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
        let seen = backend.asked_for(&format!("/{index}")).len();
        assert!(matches!((status, seen), (200, 1) | (502, 0)), "{index}: {status}, {seen} times");
    }
}
