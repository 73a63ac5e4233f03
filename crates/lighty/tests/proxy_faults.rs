//! Backends that die, lie, hang or say too much: what the client is told, and when.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, Peer};
use lighty_testkit::client::{Client, End};
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;

const SOON: Duration = Duration::from_secs(5);

/// Time limits that a test can wait for; the tick that judges them takes a tenth of a second.
const READ_LIMIT: &str = "proxy-core.read-timeout = \"600ms\"";

const UPGRADE: &str = "proxy-core.upgrade = \"enable\"";

/// A server in front of a backend.
fn front(backend: &Backend, lines: &str) -> Server {
    let address = backend.address();
    lighty!()
        .config(&format!(
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{address}\" )\n{lines}"
        ))
        .start()
}

/// A backend that reads each request and then does this.
fn after_request(act: impl Fn(&mut Peer) + Send + Sync + 'static) -> Backend {
    Backend::start(move |peer| {
        if peer.request().is_some() {
            act(peer);
        }
    })
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
                let backend = after_request(move |peer| {
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
        let backend = after_request(move |peer| {
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
    let backend = after_request(|peer| {
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
    assert_status(&server, 502, &["proxy-core.max-response-field-size"]);
    assert!(start.elapsed() < SOON);
    let endless = after_request(|peer| {
        peer.send("HTTP/1.1 200 OK\r\nX: ");
        while peer.send("y".repeat(1000)) {}
    });
    let server = front(&endless, "");
    assert_status(&server, 502, &["proxy-core.max-response-field-size"]);
    assert!(server.peak_resident_kib() < 64 << 10, "{} KiB", server.peak_resident_kib());
}

#[test]
fn a_backend_that_hangs_before_its_head_is_answered_504_on_time() {
    for begun in ["", "HTTP/1.1 200 OK\r\nX: y\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
        let backend = after_request(move |peer| {
            peer.send(begun);
            peer.hang();
        });
        let server = front(&backend, READ_LIMIT);
        let start = Instant::now();
        assert_status(&server, 504, &["proxy-core.read-timeout", &backend.address().to_string()]);
        let took = start.elapsed();
        assert!((500..2000).contains(&took.as_millis()), "{begun:?}: {took:?}");
    }
}

#[test]
fn a_backend_that_hangs_in_its_body_is_cut_on_time() {
    let backend = after_request(|peer| {
        // Nearly as long as the patience with which its head was waited for.
        std::thread::sleep(Duration::from_millis(180));
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        peer.hang();
    });
    let server = front(&backend, READ_LIMIT);
    let mut client = server.connect();
    ask(&mut client, "1.1");
    assert_eq!(client.response_head().status, 200);
    assert_eq!(client.read_exact(5).expect("the beginning"), b"hello");
    let start = Instant::now();
    client.expect_end();
    let took = start.elapsed();
    assert!((450..2000).contains(&took.as_millis()), "{took:?}");
    server.await_log("proxy-core.read-timeout");
}

#[test]
fn a_slow_body_has_its_whole_limit_for_each_piece() {
    let backend = after_request(|peer| {
        std::thread::sleep(Duration::from_millis(150));
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        std::thread::sleep(Duration::from_millis(400));
        peer.drip("hello", 1, Duration::from_millis(400));
    });
    let server = front(&backend, READ_LIMIT);
    assert_eq!(server.get("/x").text(), "hello");
}

#[test]
fn a_close_or_reset_before_any_byte_is_answered_502() {
    for reset in [false, true] {
        for begun in ["", "HTTP/1.1 200 OK\r\nX: y\r\n"] {
            let backend = after_request(move |peer| {
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
        let backend = Backend::start(move |peer| {
            while peer.request().is_some() {
                peer.answer("right");
                std::thread::sleep(Duration::from_millis(pause));
                peer.answer("wrong");
            }
        });
        let server = front(&backend, "");
        for _ in 0..10 {
            assert_eq!(server.get("/x").text(), "right", "after {pause} ms");
            std::thread::sleep(Duration::from_millis(40));
        }
    }
}

/// A backend that resets each connection a moment after its first answer.
fn resets_when_idle() -> Backend {
    Backend::start(|peer| {
        if peer.request().is_some() {
            peer.answer("ok");
            std::thread::sleep(Duration::from_millis(20));
            peer.reset();
        }
    })
}

#[test]
fn an_idle_connection_that_was_reset_costs_no_request() {
    let backend = resets_when_idle();
    let server = front(&backend, "");
    for _ in 0..10 {
        assert_eq!(server.get("/x").text(), "ok");
        std::thread::sleep(Duration::from_millis(60));
    }
    for index in 0..10 {
        let mut client = server.connect();
        client.send(format!("POST /{index} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
        assert_eq!(client.response().text(), "ok");
        std::thread::sleep(Duration::from_millis(60));
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
        let start = Instant::now();
        // A client that looks at what it is told between two pieces.
        client.send(&piece);
        client.set_deadline(Duration::from_secs(1));
        let got = client.response();
        assert_eq!((got.status, got.text()), (413, "big"), "reset: {reset}");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
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
    let start = Instant::now();
    let piece = "x".repeat(16 << 10);
    // At most what fits into every buffer on the way, the lingering close included.
    for _ in 0..1024 {
        if client.try_send(&piece).is_err() || start.elapsed() > Duration::from_secs(1) {
            break;
        }
    }
    let got = client.response();
    assert_eq!((got.status, got.text()), (413, "big"));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn a_client_that_closes_its_half_gets_its_answer() {
    let backend = after_request(|peer| {
        std::thread::sleep(Duration::from_millis(500));
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        std::thread::sleep(Duration::from_millis(500));
        peer.send("5\r\nhello\r\n0\r\n\r\n");
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
        let _ = ended.lock().expect("nobody panics").send(Instant::now());
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
            let left = Instant::now();
            client.reset();
            let end = ends.recv_timeout(SOON).unwrap_or_else(|_| panic!("{target}, {wait} ms"));
            assert!(end - left < Duration::from_secs(1), "{target}: {:?}", end - left);
        }
    }
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
fn interim_answers_are_passed_on_but_not_without_end() {
    let backend = Backend::start(|peer| {
        while let Some(asked) = peer.request() {
            let many = if asked.target() == "/flood" { 1_000_000 } else { 3 };
            for _ in 0..many {
                if !peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n") {
                    return;
                }
            }
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            peer.answer("done");
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    ask(&mut client, "1.1");
    let got = client.response();
    assert_eq!((got.text(), &got.interim[..]), ("done", &[103; 3][..]));
    let mut old = server.connect();
    ask(&mut old, "1.0");
    let got = old.response();
    assert_eq!((got.text(), &got.interim[..]), ("done", &[][..]));
    let mut flooded = server.connect();
    flooded.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(flooded.response().status, 502);
    server.await_log("interim answers");
    assert_eq!(server.get("/x").text(), "done");
}

#[test]
fn expect_100_is_answered_by_the_server_and_not_passed_on() {
    let backend = Backend::answering("got it");
    let server = front(&backend, "");
    let mut client = server.connect();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.interim(), 100);
    client.send("hello");
    assert_eq!(client.response().text(), "got it");
    let asked = backend.asked();
    assert_eq!((asked[0].body.as_slice(), asked[0].field("Expect")), (&b"hello"[..], None));
}

#[test]
fn answers_without_bodies_keep_both_connections() {
    let backend = Backend::start(|peer| {
        while let Some(asked) = peer.request() {
            peer.send(match asked.target() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 7\r\n\r\n",
                "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
                "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\n\r\n",
            });
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    for target in ["/204", "/304"] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let got = client.response();
        assert_eq!(format!("/{}", got.status), target);
    }
    for (target, length) in [("/length", Some("7")), ("/chunked", None), ("/neither", None)] {
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let got = client.response_to_head();
        assert_eq!((got.status, got.field("Content-Length")), (200, length), "{target}");
    }
    let mut old = server.connect();
    old.send("HEAD /neither HTTP/1.0\r\n\r\n");
    let got = old.response_to_head();
    assert_eq!((got.field("Content-Length"), got.field("Transfer-Encoding")), (None, None));
    assert_eq!(backend.opened(), 1, "each answer left a connection for the next");
}

#[test]
fn fields_that_the_server_adds_are_not_there_twice() {
    let backend = after_request(|peer| {
        peer.send(
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: them\r\n\
             Connection: close\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok",
        );
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    ask(&mut client, "1.1");
    let got = client.response();
    assert_eq!(got.field("Date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_eq!((got.field("Server"), got.field("Connection")), (Some("them"), None));
    assert_eq!(got.field("Keep-Alive"), None);
}

#[test]
fn trailers_go_both_ways() {
    let backend = Backend::start(|peer| {
        while peer.request().is_some() {
            peer.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\
                 X-Sum: 1\r\nContent-Length: 9\r\n\r\n",
            );
        }
    });
    let server = front(&backend, "proxy-core.trailers = \"enable\"");
    let mut client = server.connect();
    client.send(
        "POST /x HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Digest: 7\r\nHost: evil\r\n\r\n",
    );
    let got = client.response();
    assert_eq!((got.text(), got.trailers.join("\n").as_str()), ("ok", "X-Sum: 1"));
    let asked = backend.asked();
    assert_eq!(asked[0].trailers, ["X-Digest: 7"]);
    assert_eq!(
        (asked[0].field("TE"), asked[0].field("Connection")),
        (Some("trailers"), Some("TE"))
    );
    ask(&mut client, "1.1");
    let got = client.response();
    assert_eq!((got.text(), got.trailers.len()), ("ok", 0), "only who asks gets trailers");
    assert_eq!(backend.opened(), 1);
}

#[test]
fn events_arrive_as_they_are_sent() {
    let (next, turns) = mpsc::channel::<()>();
    let turns = std::sync::Mutex::new(turns);
    let backend = after_request(move |peer| {
        peer.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
        );
        let turns = turns.lock().expect("nobody panics");
        while turns.recv_timeout(SOON).is_ok() {
            if !peer.send("9\r\ndata: 1\n\n\r\n") {
                return;
            }
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    ask(&mut client, "1.1");
    assert_eq!(client.response_head().field("Content-Type"), Some("text/event-stream"));
    for _ in 0..20 {
        let start = Instant::now();
        next.send(()).expect("the backend listens");
        assert_eq!(client.read_exact(14).expect("an event"), b"9\r\ndata: 1\n\n\r\n");
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    }
}

#[test]
fn a_slow_reader_holds_its_backend_back() {
    const PIECE: usize = 64 << 10;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let backend = after_request(move |peer| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        while peer.send(vec![b'x'; PIECE]) {
            count.fetch_add(PIECE, Ordering::SeqCst);
        }
    });
    let server = front(&backend, "");
    let mut client = Client::tcp_with_receive_buffer(server.address(), 16 << 10);
    ask(&mut client, "1.1");
    assert_eq!(client.response_head().status, 200);
    // It stops of itself: what the kernel and the server buffer is bounded.
    let still = || {
        let before = sent.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        sent.load(Ordering::SeqCst) == before
    };
    assert!(wait_until(Duration::from_secs(15), still));
    assert!(sent.load(Ordering::SeqCst) < 64 << 20, "{}", sent.load(Ordering::SeqCst));
    assert!(server.peak_resident_kib() < 64 << 10, "{} KiB", server.peak_resident_kib());
    assert_eq!(client.read_exact(1 << 20).expect("it goes on").len(), 1 << 20);
}

#[test]
fn a_backend_that_reads_nothing_holds_its_client_back_and_is_given_up() {
    let backend = Backend::start(|peer| {
        peer.head();
        std::thread::sleep(Duration::from_millis(2500));
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

/// How much a large transfer moves: 512 MB, or what `LIGHTY_TEST_TRANSFER_MB` says.
fn transfer_bytes() -> u64 {
    let megabytes = std::env::var("LIGHTY_TEST_TRANSFER_MB").ok();
    megabytes.map_or(512, |text| text.parse().expect("megabytes")) << 20
}

#[test]
fn large_bodies_go_both_ways_in_constant_memory() {
    let bytes = transfer_bytes();
    let backend = Backend::start(move |peer| {
        while let Some(asked) = peer.head() {
            let upload: u64 =
                asked.field("Content-Length").map_or(0, |l| l.parse().expect("length"));
            let got = peer.skip(upload);
            if upload > 0 {
                peer.answer(&got.to_string());
                continue;
            }
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n"));
            let piece = vec![b'x'; 256 << 10];
            let mut left = bytes;
            while left > 0 {
                let count = left.min(piece.len() as u64);
                if !peer.send(&piece[..count as usize]) {
                    return;
                }
                left -= count;
            }
        }
    });
    let server = front(&backend, "server.max-request-size = 0");
    let mut client = server.connect();
    ask(&mut client, "1.1");
    assert_eq!(client.response_head().field("Content-Length"), Some(bytes.to_string().as_str()));
    let mut left = bytes;
    while left > 0 {
        let count = left.min(4 << 20);
        client.read_exact(count as usize).expect("the body goes on");
        left -= count;
    }
    client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"));
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..bytes >> 20 {
        client.send(&piece);
    }
    assert_eq!(client.response().text(), bytes.to_string());
    assert!(server.peak_resident_kib() < 64 << 10, "{} KiB", server.peak_resident_kib());
    assert_eq!(backend.opened(), 1);
}

#[test]
fn an_upload_leaves_others_their_turn() {
    let backend = Backend::start(|peer| {
        while let Some(asked) = peer.head() {
            let length = asked.field("Content-Length").map_or(0, |l| l.parse().expect("a length"));
            peer.skip(length);
            peer.answer("ok");
        }
    });
    let server = front(&backend, "server.max-request-size = 0");
    let address = server.address();
    let upload = std::thread::spawn(move || {
        let mut client = Client::tcp(address);
        let piece = vec![b'x'; 1 << 20];
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 268435456\r\n\r\n");
        (0..256).for_each(|_| client.send(&piece));
        assert_eq!(client.response().text(), "ok");
    });
    let mut worst = Duration::ZERO;
    while !upload.is_finished() {
        let start = Instant::now();
        assert_eq!(server.get("/other").text(), "ok");
        worst = worst.max(start.elapsed());
    }
    upload.join().expect("the upload is answered");
    assert!(worst < Duration::from_millis(500), "another request took {worst:?}");
}

#[test]
fn tunnels_carry_both_ways_with_half_closes() {
    let backend = Backend::start(|peer| {
        let Some(asked) = peer.request() else { return };
        assert_eq!(asked.field("Upgrade"), Some("echo"));
        assert_eq!(asked.field("Connection"), Some("upgrade"));
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhi",
        );
        // The client ends its half; the answer is still to come.
        let mut got = Vec::new();
        while let Some(byte) = peer.read_exact(1) {
            got.extend(byte);
        }
        peer.send(got);
    });
    let server = front(&backend, UPGRADE);
    let mut client = server.connect();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly,");
    let head = client.response_head();
    assert_eq!((head.status, head.field("Upgrade")), (101, Some("echo")));
    assert_eq!(client.read_exact(2).expect("what came with the head"), b"hi");
    client.send("late");
    client.half_close();
    assert_eq!(client.read_to_end(), (b"early,late".to_vec(), End::Closed));
    assert!(wait_until(SOON, || backend.open() == 0));
}

#[test]
fn an_idle_tunnel_is_closed_on_time() {
    let (ended, ends) = mpsc::channel();
    let ended = std::sync::Mutex::new(ended);
    let backend = after_request(move |peer| {
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n",
        );
        peer.hang();
        let _ = ended.lock().expect("nobody panics").send(());
    });
    let server = front(&backend, &format!("{UPGRADE}\nproxy-core.tunnel-timeout = 1"));
    let mut client = server.connect();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.response_head().status, 101);
    let start = Instant::now();
    client.expect_end();
    assert!((800..3500).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    ends.recv_timeout(SOON).expect("the backend's side is closed too");
}

#[test]
fn a_tunnel_ends_when_either_side_is_lost() {
    for by_client in [true, false] {
        let backend = after_request(move |peer| {
            peer.send(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: e\r\nConnection: Upgrade\r\n\r\n",
            );
            if by_client {
                peer.hang();
            } else {
                peer.read_exact(1);
                peer.reset();
            }
        });
        let server = front(&backend, UPGRADE);
        let mut client = server.connect();
        client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: e\r\n\r\n");
        assert_eq!(client.response_head().status, 101);
        if by_client {
            client.reset();
        } else {
            client.send("x");
            client.expect_end();
        }
        assert!(wait_until(SOON, || backend.open() == 0), "by the client: {by_client}");
    }
}
