//! HTTP/1 from the client's side: accepted and rejected requests, connection lifetimes, limits at n
//! and n + 1.

use std::path::Path;
use std::time::Duration;

use lighty_testkit::cases::{Case, read_all};
use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::stopwatch::Stopwatch;

fn cases() -> Vec<Case> {
    read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/http"))
}

/// The site that the cases speak of.
fn site() -> Setup {
    lighty!()
        .file("index.html", "root index\n")
        .file("a.txt", "hello\n")
        .file("empty", "")
        .file("ten", "0123456789")
        .file("with space.txt", "space\n")
        .file("dir/index.html", "index\n")
        .file("dir/b.txt", "b in dir\n")
        .config("index-file.names = ( \"index.html\" )")
}

fn run_cases(server: &Server, piece: usize) {
    let mut failures = Vec::new();
    for case in cases() {
        // Thousands of segments of one byte prove no more than hundreds.
        let piece = if case.request.len() > 1500 { piece.max(512) } else { piece };
        if let Err(error) = case.run(server.connect(), piece) {
            failures.push(format!("{} (in pieces of {piece}): {error}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} failed:\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn every_case_is_answered_as_the_corpus_says() {
    let server = site().start();
    run_cases(&server, usize::MAX);
}

#[test]
fn every_case_is_answered_alike_however_it_is_cut() {
    let server = site().start();
    run_cases(&server, 1);
    run_cases(&server, 7);
}

#[test]
fn every_case_is_answered_alike_by_every_backend_and_engine() {
    for backend in ["linux-sendfile", "writev", "io-uring", "gthread-aio"] {
        for engine in ["io-uring", "threads"] {
            let server = site()
                .config(&format!("server.network-backend = \"{backend}\""))
                .config(&format!("server.io-engine = \"{engine}\""))
                .start();
            run_cases(&server, usize::MAX);
        }
    }
}

#[test]
fn a_pipeline_may_be_cut_anywhere() {
    let server = site().start();
    let pipeline = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n\
                     POST /ten HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
                     HEAD /ten HTTP/1.1\r\nHost: a\r\n\r\n\
                     GET /empty HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for cut in 1..pipeline.len() {
        let mut client = server.connect();
        client.send(&pipeline[..cut]);
        client.send(&pipeline[cut..]);
        assert_eq!(client.response().body, b"hello\n", "cut at {cut}");
        assert_eq!(client.response().body, b"0123456789", "cut at {cut}");
        assert_eq!(client.response_to_head().field("Content-Length"), Some("10"));
        assert!(client.response().says_close(), "cut at {cut}");
        client.expect_end();
    }
}

#[test]
fn a_long_pipeline_is_answered_in_order() {
    let server = site().start();
    let mut client = server.connect();
    let mut requests = Vec::new();
    for index in 0..300 {
        let path = if index % 2 == 0 { "/ten" } else { "/a.txt" };
        requests.extend_from_slice(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    }
    client.send(&requests);
    for index in 0..300 {
        let wanted: &[u8] = if index % 2 == 0 { b"0123456789" } else { b"hello\n" };
        assert_eq!(client.response().body, wanted, "answer {index}");
    }
}

#[test]
fn a_half_closed_client_gets_its_response() {
    let server = site().start();
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    client.half_close();
    assert_eq!(client.response().body, b"hello\n");
    assert_eq!(client.expect_end(), ConnectionEnd::Closed);
}

#[test]
fn half_a_request_and_an_end_is_no_request() {
    let server = site().config("server.errorlog-level = \"info\"").start();
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a");
    client.half_close();
    client.expect_end();
    assert_eq!(server.get("/a.txt").status, 200);
}

#[test]
fn resets_at_any_moment_do_no_harm() {
    let server = site().start();
    for cut in [0, 5, 20, 34, 37] {
        let mut client = server.connect();
        client.send(&b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /"[..cut]);
        client.reset();
    }
    assert_eq!(server.get("/a.txt").body, b"hello\n");
}

#[test]
fn continue_is_not_sent_for_an_unread_body() {
    let server = site().start();
    let mut client = server.connect();
    client.send(
        "PUT /a.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
    );
    let response = client.response();
    assert_eq!(response.status, 405);
    assert_eq!(response.interim, [] as [u16; 0], "a refused body is not invited");
    // RFC 9110 section 10.1.1: the client may or may not send the body, so the connection must
    // close.
    assert!(response.says_close());
    client.expect_end();
}

#[test]
fn a_response_reaches_a_client_that_still_sends() {
    let server = site().config("server.max-request-size = 10").start();
    let mut client = server.connect();
    client.send("POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    let response = client.response();
    assert_eq!(response.status, 413);
    assert!(response.says_close());
}

#[test]
fn the_last_response_arrives_though_more_was_asked() {
    const SIZE: usize = 1 << 20;
    let server = site()
        .file("large.bin", vec![b'x'; SIZE])
        .config("server.max-keep-alive-requests = 2")
        .config("server.max-worker = 1")
        .start();
    let get = "GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n";
    let last = "GET /large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for (requested, answered) in [(get.repeat(2000), 2), (format!("{last}{}", get.repeat(2000)), 1)]
    {
        let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
        client.send(requested);
        for _ in 0..answered {
            assert_eq!(client.response().body.len(), SIZE);
        }
        let (rest, end) = client.read_to_end();
        assert_eq!((rest.len(), end), (0, ConnectionEnd::Closed));
    }
}

#[test]
fn request_size_at_its_limit_and_one_above() {
    let server = site().config("server.max-request-size = 1").start();
    let mut client = server.connect();
    client.send("POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n");
    client.send([b'x'; 1024]);
    let response = client.response();
    assert_eq!((response.status, response.says_close()), (200, false));
    client.send("POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.says_close()), (413, true));
}

#[test]
fn configured_sizes_hold_at_n_and_n_plus_1() {
    let server = site()
        .config("server.max-url-length = 64")
        .config("server.max-request-field-size = 256")
        .config("server.max-request-fields = 3")
        .start();
    let status = |request: String| {
        let mut client = server.connect();
        client.send(request);
        client.response().status
    };
    let target = |length: usize| format!("/a.txt?{}", "q".repeat(length - 7));
    assert_eq!(status(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", target(64))), 200);
    assert_eq!(status(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", target(65))), 414);
    // Two lines of 9 and (5 + n) bytes, line ends included.
    let field =
        |n: usize| format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(n));
    assert_eq!(status(field(256 - 9 - 5)), 200);
    assert_eq!(status(field(256 - 9 - 5 + 1)), 431);
    let fields =
        |n: usize| format!("GET /a.txt HTTP/1.1\r\n{}Host: a\r\n\r\n", "X: y\r\n".repeat(n));
    assert_eq!(status(fields(2)), 200);
    assert_eq!(status(fields(3)), 431);
}

#[test]
fn keep_alive_requests_are_counted() {
    let server = site().config("server.max-keep-alive-requests = 3").start();
    let mut client = server.connect();
    for request in 1..=3 {
        client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().says_close(), request == 3, "request {request}");
    }
    client.expect_end();
}

#[test]
fn without_http11_each_response_closes() {
    let server = site().config("server.protocol-http11 = \"disable\"").start();
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.response().says_close());
    client.expect_end();
}

#[test]
fn an_idle_connection_is_closed_after_its_time_and_not_before() {
    let server = site().config("server.max-keep-alive-idle = 2").start();
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = client.response();
    let start = Stopwatch::start(&server);
    client.expect_end();
    let (idle, took) = (start.elapsed(), start.took());
    assert!(idle >= Duration::from_secs(1), "{idle:?}");
    assert!(took < Duration::from_millis(4500), "{took:?}");
}

#[test]
fn a_new_connection_that_says_nothing_is_closed() {
    let server = site().config("server.max-connection-idle = 1").start();
    let mut client = server.connect();
    let start = Stopwatch::start(&server);
    client.expect_end();
    assert!(start.took() < Duration::from_secs(4), "{:?}", start.took());
}

#[test]
fn a_dripped_head_gets_408_and_the_log_names_the_limit() {
    let server =
        site().config("server.max-head-time = 2\nserver.errorlog-level = \"info\"").start();
    let mut client = server.connect();
    client.set_deadline(Duration::from_millis(100));
    let start = Stopwatch::start(&server);
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nX: ");
    let response = loop {
        assert!(start.took() < Duration::from_secs(6), "never shed");
        // Progress does not help: the limit is on the whole head.
        if client.try_send("y").is_err() {
            break client.response();
        }
        if let Ok(response) = client.try_response(false) {
            break response;
        }
    };
    assert_eq!((response.status, response.says_close()), (408, true));
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    server.await_log("server.max-head-time");
}

#[test]
fn two_hundred_dripping_clients_are_shed_and_others_served() {
    let server = site().config("server.max-head-time = 3").start();
    let mut clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    let start = Stopwatch::start(&server);
    for client in &mut clients {
        client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nX: ");
    }
    assert_eq!(server.get("/a.txt").status, 200);
    for client in &mut clients {
        let (answer, _) = client.read_to_end();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408 "));
    }
    assert!(start.took() < Duration::from_secs(8), "{:?}", start.took());
    assert_eq!(server.get("/a.txt").status, 200);
}

#[test]
fn huge_heads_are_refused_early_and_cheaply() {
    let server = site().start();
    assert_eq!(server.get("/a.txt").status, 200);
    let before = server.peak_resident_kib();
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nX: ");
    let mut sent = 0;
    while sent < 8 << 20 && client.try_send([b'y'; 64 * 1024]).is_ok() {
        sent += 64 * 1024;
    }
    let mut many = server.connect();
    many.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n");
    for _ in 0..100 {
        if many.try_send("X: y\r\n".repeat(1000)).is_err() {
            break;
        }
    }
    let grown = server.peak_resident_kib() - before;
    assert!(grown < 4096, "memory grew by {grown} KiB");
    assert_eq!(server.get("/a.txt").status, 200);
}

#[test]
fn answers_carry_date_and_server() {
    let server = site().config("server.tag = \"a test/1\"").start();
    let response = server.get("/a.txt");
    assert_eq!(response.field("Server"), Some("a test/1"));
    let date = response.field("Date").expect("a date");
    assert_eq!(date.len(), 29);
    assert!(date.ends_with(" GMT"), "{date}");
    let silent = site().config("server.tag = \"\"").start();
    assert_eq!(silent.get("/a.txt").field("Server"), None);
}

#[test]
fn each_answer_names_one_server_the_one_that_is_configured_for_it() {
    let server = site()
        .config(
            r#"
            server.tag = "everywhere"
            $HTTP["host"] == "one" { server.tag = "one" }
            $HTTP["host"] == "none" { server.tag = "" }
            "#,
        )
        .start();
    let mut client = server.connect();
    for (host, tag) in
        [("a", Some("everywhere")), ("one", Some("one")), ("none", None), ("a", Some("everywhere"))]
    {
        for head in ["GET /a.txt", "HEAD /a.txt", "GET /missing"] {
            client.send(format!("{head} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let response = match head.starts_with("HEAD") {
                true => client.response_to_head(),
                false => client.response(),
            };
            assert_eq!(response.all("Server").collect::<Vec<_>>(), Vec::from_iter(tag), "{head}");
        }
    }
    let other = site().config("setenv.add-response-header = ( \"Server\" => \"other\" )").start();
    let response = other.get("/a.txt");
    assert_eq!(response.all("Server").collect::<Vec<_>>(), ["other"]);
}

#[test]
fn parse_options_change_what_they_say() {
    let server = site()
        .config(
            "server.http-parseopts = ( \"url-path-2f-reject\" => \"enable\", \
             \"url-path-dotseg-reject\" => \"enable\", \"method-get-body\" => \"enable\" )",
        )
        .start();
    assert_eq!(server.get("/dir%2fb.txt").status, 400);
    let mut client = server.connect();
    client.send("GET /dir/../a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.response().body, b"hello\n");
    client.send("GET /ten HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().body, b"0123456789");
}

#[test]
fn a_client_that_speaks_another_protocol_is_named_now_and_then() {
    let config = "server.max-worker = 1\n\
                  server.feature-flags = ( \"server.h2proto\" => \"disable\" )";
    let server = lighty!().config(config).start();
    for (greeting, message) in [
        (&b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"[..], "the client speaks TLS"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "the client speaks HTTP/2"),
    ] {
        for _ in 0..20 {
            let mut client = server.connect();
            client.send(greeting);
            assert!(client.response().status >= 400);
        }
        server.await_log(message);
        let output = server.log().matches(message).count();
        assert!(output < 20, "{output}\n{}", server.log());
    }
}

#[test]
fn bytes_that_utf8_never_has_are_taken_where_that_is_off() {
    for (config, status) in [
        ("", "400"),
        ("server.http-parseopts = ( \"url-invalid-utf8-reject\" => \"disable\" )", "200"),
    ] {
        let server = lighty!().file("a.txt", "a").config(config).start();
        for target in [&b"/a.txt?\xFF"[..], b"/a.txt?%FF", b"/a.txt?\xC0\x80"] {
            let mut client = server.connect();
            client.send([b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
            assert_eq!(client.response().status.to_string(), status, "{target:?}");
        }
    }
}

#[test]
fn upgrade_to_http2_in_the_clear_is_ignored() {
    let server = lighty!().file("a.txt", "A").config("server.h2c = \"enable\"").start();
    let mut client = server.connect();
    let lines =
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    for _ in 0..2 {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, "A"));
    }
}
