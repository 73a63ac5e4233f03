//! Request smuggling: no client input makes the server and a backend disagree about the end, the
//! owner or the sender of a request. For each known class, compares the requests that the backend
//! saw with the expected ones.

use std::time::Duration;

use lighty_testkit::backend::{Backend, RequestSeen};
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;

/// Request that the attack tries to smuggle.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

fn front(backend: &Backend, lines: &str) -> Server {
    lighty!().in_front_of(&backend.name()).config(lines).start()
}

/// Sends raw bytes and reads all responses until the server closes or is silent; returns their
/// statuses.
fn statuses(server: &Server, bytes: &[u8], answers: usize) -> Vec<u16> {
    let mut client = server.connect();
    // A refusal may come before everything was taken.
    let _ = client.try_send(bytes);
    let mut found = Vec::new();
    while found.len() < answers {
        match client.try_response(false) {
            Ok(response) => {
                found.push(response.status);
                if response.says_close() {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    found
}

fn targets(backend: &Backend) -> Vec<String> {
    backend.requests().iter().map(|received| received.target().to_owned()).collect()
}

/// Each backend's requests have exactly one framing, one host and one request line.
fn assert_sane(received: &RequestSeen) {
    let framings =
        received.all("Content-Length").count() + received.all("Transfer-Encoding").count();
    assert!(framings <= 1, "{}", received.head);
    assert_eq!(received.all("Host").count(), 1, "{}", received.head);
    for line in received.head.split("\r\n").skip(1) {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line:?}"));
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        assert!(!name.is_empty() && name.bytes().all(token), "{line:?}");
        assert!(!value.contains(['\r', '\n', '\0']), "{line:?}");
    }
}

#[test]
fn framings_that_can_be_read_in_two_ways_are_refused() {
    let heads = [
        // CL.TE and TE.CL.
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        // TE.TE: codings and spellings that one reader takes for chunked and another does not.
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        " Transfer-Encoding: chunked",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding: \x0cchunked",
        "Transfer-Encoding: chunk\0ed",
        "Transfer-Encoding: cow",
        "Transfer-Encoding:",
        "X: y\nTransfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "Transfer-Encoding\r\n: chunked",
        "Transfer-Encoding:\r\n chunked",
        // Lengths.
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: 4, 5",
        "Content-Length: +4",
        "Content-Length: -4",
        "Content-Length: 0x4",
        "Content-Length: 4 4",
        "Content-Length: 4.0",
        "Content-Length:",
        "Content-Length : 4",
        "Content-Length: 18446744073709551620",
        "Content-Length: \u{664}",
        "Content-Length: 0\r\nHost: b",
    ];
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    for head in heads {
        let bytes = format!("POST /first HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n0\r\n\r\n{SMUGGLED}");
        let found = statuses(&server, bytes.as_bytes(), 2);
        let refused = matches!(found[..], [400 | 413 | 501]);
        assert!(refused, "{head:?}: {found:?}\n{:?}", targets(&backend));
    }
    assert_eq!(targets(&backend), Vec::<String>::new());
}

#[test]
fn an_old_request_with_a_transfer_encoding_is_refused() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    for keep in ["", "Connection: keep-alive\r\n"] {
        let bytes = format!(
            "POST /first HTTP/1.0\r\nHost: a\r\n{keep}Transfer-Encoding: chunked\r\n\r\n\
             0\r\n\r\n{SMUGGLED}"
        );
        assert!(matches!(statuses(&server, bytes.as_bytes(), 2)[..], [400 | 501]));
    }
    assert_eq!(targets(&backend), Vec::<String>::new());
}

#[test]
fn an_old_request_without_a_length_has_no_body() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    for method in ["GET", "DELETE", "OPTIONS"] {
        let bytes = format!("{method} /first HTTP/1.0\r\nHost: a\r\n\r\n{SMUGGLED}");
        assert_eq!(statuses(&server, bytes.as_bytes(), 2), [200], "{method}");
    }
    let bytes = format!("POST /post HTTP/1.0\r\nHost: a\r\n\r\n{SMUGGLED}");
    let found = statuses(&server, bytes.as_bytes(), 2);
    assert!(matches!(found[..], [200 | 411]), "{found:?}");
    let seen = targets(&backend);
    assert!(!seen.contains(&"/smuggled".to_owned()), "{seen:?}");
    backend.requests().iter().for_each(assert_sane);
}

#[test]
fn chunked_bodies_with_doubtful_framing_are_refused() {
    let bodies = [
        "5;\0\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "5_\r\nhello\r\n0\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5;x\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX\r\n\r\n",
        "5\r\nhello\r\n0\r\n X: y\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
    ];
    let backend = Backend::start(|peer| while peer.head().is_some() {});
    let server = front(&backend, "");
    for body in bodies {
        let bytes = format!(
            "POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{SMUGGLED}"
        );
        assert_eq!(statuses(&server, bytes.as_bytes(), 2), [400], "{body:?}");
    }
    // Bytes sent before the server saw the doubtful byte are on connections that ended with it.
    for heard in backend.heard() {
        let text = String::from_utf8_lossy(&heard);
        assert!(!text.contains("/smuggled"), "{text}");
        assert!(text.matches("HTTP/1.1").count() <= 1, "{text}");
        assert!(!text.contains("0\r\n\r\n"), "a refused body was completed: {text}");
    }
}

#[test]
fn chunked_bodies_are_framed_anew() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    let bytes = "POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n\
                 000005;name=value;x=\"y\"\r\nhello\r\n00\r\nX-Trailer: y\r\n\r\n";
    assert_eq!(statuses(&server, bytes.as_bytes(), 1), [200]);
    let heard = String::from_utf8(backend.heard().concat()).expect("text");
    assert!(
        heard.ends_with("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        "{heard}"
    );
    assert_sane(&backend.requests()[0]);
}

#[test]
fn request_behind_an_upgrade_waits_for_the_response_to_it() {
    for (upgrade, status) in [("enable", 200), ("enable", 426), ("disable", 200)] {
        let backend = Backend::start(move |peer| {
            while let Some(received) = peer.request() {
                // Long enough for a hasty proxy to forward the next request.
                std::thread::sleep(Duration::from_millis(100));
                let status = if received.target() == "/first" { status } else { 200 };
                peer.send(format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok"));
            }
        });
        let server = front(&backend, &format!("proxy-core.upgrade = \"{upgrade}\""));
        let bytes = format!(
            "GET /first HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
             {SMUGGLED}"
        );
        assert_eq!(statuses(&server, bytes.as_bytes(), 2), [status, 200]);
        // The second one is a request of its own, which the server saw as such.
        let received = backend.requests();
        assert_eq!(targets(&backend), ["/first", "/smuggled"]);
        assert!(received[1].all("X-Forwarded-For").next().is_some(), "{}", received[1].head);
        let wished = received[0].field("Upgrade");
        assert_eq!(wished, (upgrade == "enable").then_some("websocket"));
    }
}

#[test]
fn an_upgrade_with_a_body_is_no_upgrade() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "proxy-core.upgrade = \"enable\"");
    for framing in ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]
    {
        let bytes = format!(
            "POST /first HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n{framing}\
             {SMUGGLED}"
        );
        assert_eq!(statuses(&server, bytes.as_bytes(), 2), [200, 200]);
    }
    let received = backend.requests();
    assert!(received.iter().all(|received| received.field("Upgrade").is_none()));
}

#[test]
fn a_tunnel_of_http_2_is_never_asked_for() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "proxy-core.upgrade = \"enable\"");
    for protocol in ["h2c", "H2C", "websocket, h2c"] {
        let bytes = format!(
            "GET /first HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             Upgrade: {protocol}\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n"
        );
        assert_eq!(statuses(&server, bytes.as_bytes(), 1), [200]);
    }
    let received = backend.requests();
    assert!(received.iter().all(|received| received.field("Upgrade").is_none()));
    assert!(received.iter().all(|received| received.field("HTTP2-Settings").is_none()));
}

#[test]
fn a_connect_does_not_reach_a_backend() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    let bytes = format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n{SMUGGLED}");
    let found = statuses(&server, bytes.as_bytes(), 2);
    assert!(found.first().is_some_and(|status| *status >= 400), "{found:?}");
    assert!(!targets(&backend).contains(&"a:80".to_owned()));
    assert!(!targets(&backend).contains(&"/smuggled".to_owned()));
}

/// Backend that responds to the head alone, keeps its connection, and takes the body for a request.
fn deaf_to_bodies() -> Backend {
    Backend::start(|peer| {
        while let Some(received) = peer.head() {
            peer.answer(received.target());
        }
    })
}

#[test]
fn a_body_that_comes_after_the_response_is_not_the_next_request() {
    let backend = deaf_to_bodies();
    let server = front(&backend, "");
    let length = SMUGGLED.len();
    for (framing, body) in [
        (format!("Content-Length: {length}"), SMUGGLED.to_owned()),
        ("Transfer-Encoding: chunked".to_owned(), format!("{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n")),
        ("Content-Length: 1000000".to_owned(), SMUGGLED.to_owned()),
    ] {
        let mut client = server.connect();
        client.send(format!("POST /first HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        assert_eq!(client.response().text(), "/first");
        let _ = client.try_send(body);
        for _ in 0..3 {
            assert_eq!(server.get("/next").text(), "/next", "another's response came");
        }
    }
    assert!(!targets(&backend).contains(&"/smuggled".to_owned()));
}

#[test]
fn a_body_of_a_get_is_not_the_next_request() {
    let backend = deaf_to_bodies();
    let server = front(&backend, "");
    let length = SMUGGLED.len();
    for method in ["GET", "HEAD", "OPTIONS"] {
        for framing in [
            format!("Content-Length: {length}\r\n\r\n{SMUGGLED}"),
            format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        ] {
            let mut client = server.connect();
            client.send(format!("{method} /first HTTP/1.1\r\nHost: a\r\n{framing}"));
            match method {
                "OPTIONS" => assert_eq!(client.response().text(), "/first"),
                _ => assert_eq!(client.try_response(method == "HEAD").map(|r| r.status), Ok(400)),
            }
            for _ in 0..3 {
                assert_eq!(server.get("/next").text(), "/next", "another's response came");
            }
        }
    }
}

#[test]
fn a_request_that_breaks_off_is_not_completed_by_the_next() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    for framing in
        ["Content-Length: 100\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhel"]
    {
        let mut client = server.connect();
        client.send(format!("PUT /first HTTP/1.1\r\nHost: a\r\n{framing}"));
        assert!(wait_until(Duration::from_secs(30), || !backend.requests_for("/first").is_empty()));
        client.reset();
        assert_eq!(server.get("/next").status, 200);
    }
    let heard = backend.heard();
    for connection in heard.iter().filter(|c| c.starts_with(b"PUT")) {
        let text = String::from_utf8_lossy(connection);
        assert_eq!(text.matches("HTTP/1.1").count(), 1, "{text}");
    }
}

#[test]
fn names_with_underscores_do_not_speak_for_others() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    let lines = "X_Forwarded_For: 6.6.6.6\r\nX_Forwarded-Proto: https\r\nContent_Length: 7\r\n\
                 Transfer_Encoding: chunked\r\nHost_: x\r\nX_Real_IP: 6.6.6.6\r\n\
                 Proxy_Connection: y\r\nAuthorization_: z\r\nX_Own: stays\r\n\
                 X_Forwarded_Ssl: on\r\nForwarded_: q\r\nContent_Type: text/x\r\n";
    assert_eq!(server.get_with("/x", lines).status, 200);
    let received = &backend.requests()[0];
    assert_sane(received);
    let names: Vec<&str> = received
        .head
        .split("\r\n")
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
        .filter(|name| name.contains('_'))
        .collect();
    assert_eq!(names, ["Host_", "Authorization_", "X_Own", "Forwarded_"]);
    assert_eq!(received.field("X-Forwarded-For"), Some("127.0.0.1"));
    assert_eq!(received.field("X-Forwarded-Proto"), Some("http"));
}

#[test]
fn no_field_becomes_a_variable_that_means_something_else() {
    let backend = Backend::start(|peer| {
        let mut digits = String::new();
        while let Some(byte) = peer.read_exact(1) {
            if byte == b":" {
                break;
            }
            digits.push(char::from(byte[0]));
        }
        peer.read_exact(digits.parse::<usize>().expect("a netstring") + 1);
        peer.send("Status: 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let address = backend.address();
    let server = lighty!()
        .config(&format!("proxy-core.protocol = \"scgi\"\nproxy-core.backends = ( \"{address}\" )"))
        .start();
    let lines = "Proxy: http://evil/\r\nX_Forwarded_For: 6.6.6.6\r\nContent_Length: 7\r\n\
                 Content_Type: text/x\r\nX-Plain: 1\r\nX_Plain: 2\r\nRemote-User: root\r\n\
                 REMOTE_USER: root\r\nSCGI: 2\r\nHTTPS: on\r\nScript_Name: /x\r\n";
    assert_eq!(server.get_with("/x", lines).status, 200);
    let heard = backend.heard().concat();
    let text = String::from_utf8_lossy(&heard);
    let parts: Vec<&str> = text.split('\0').collect();
    let all = |name: &str| -> Vec<&str> {
        parts.windows(2).filter(|pair| pair[0].ends_with(name)).map(|pair| pair[1]).collect()
    };
    assert_eq!(all("HTTP_PROXY"), Vec::<&str>::new());
    assert!(!parts.contains(&"6.6.6.6"), "{parts:?}");
    assert_eq!(all("CONTENT_LENGTH"), ["0"]);
    assert_eq!(all("HTTP_X_PLAIN"), ["1"]);
    assert!(!all("CONTENT_TYPE").contains(&"text/x"));
    for name in ["REMOTE_USER", "HTTPS", "SCRIPT_NAME"] {
        let bare = parts.windows(2).filter(|pair| pair[0] == name).map(|pair| pair[1]);
        assert!(bare.clone().all(|value| value != "root" && value != "on"), "{name}");
        assert!(bare.count() <= 1, "{name}");
    }
    let scgi: Vec<_> = parts.windows(2).filter(|p| p[0] == "SCGI").map(|p| p[1]).collect();
    assert_eq!(scgi, ["1"]);
}

#[test]
fn the_proxy_field_reaches_no_program() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    assert_eq!(server.get_with("/x", "Proxy: http://evil/\r\nPROXY: y\r\n").status, 200);
    assert_eq!(backend.requests()[0].all("Proxy").count(), 0);
}

#[test]
fn a_connection_line_takes_only_what_is_for_one_hop() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    let lines = "Connection: X-Hop, keep-alive, X-Forwarded-For, X-Forwarded-Proto, Host, Cookie, \
                 Content-Length, Authorization\r\nX-Hop: 1\r\nCookie: a=b\r\n\
                 Authorization: Basic eA==\r\nKeep-Alive: 5\r\nProxy-Connection: close\r\n\
                 X-Forwarded-Host: a\r\nContent-Length: 5\r\n";
    let mut client = server.connect();
    client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\n{lines}\r\nhello"));
    assert_eq!(client.response().status, 200);
    let received = &backend.requests()[0];
    assert_sane(received);
    for gone in ["X-Hop", "Connection", "Keep-Alive", "Proxy-Connection"] {
        assert_eq!(received.field(gone), None, "{}", received.head);
    }
    assert_eq!(received.field("Cookie"), Some("a=b"));
    assert_eq!(received.field("Authorization"), Some("Basic eA=="));
    assert_eq!(received.field("X-Forwarded-For"), Some("127.0.0.1"));
    assert_eq!(received.field("X-Forwarded-Proto"), Some("http"));
    assert_eq!((received.field("Host"), received.body.as_slice()), (Some("a"), &b"hello"[..]));
}

#[test]
fn one_host_is_sent_whatever_the_target_says() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    let mut client = server.connect();
    client.send("GET http://b.example/x?y HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let status = client.response().status;
    if status == 200 {
        let received = &backend.requests()[0];
        assert_sane(received);
        assert_eq!((received.target(), received.field("Host")), ("/x?y", Some("b.example")));
    } else {
        assert_eq!(status, 400);
    }
    for bad in ["a\r\nHost: b", "a, b", "a b", "a/b", "a@b", "", "a\u{1}"] {
        let found =
            statuses(&server, format!("GET /bad HTTP/1.1\r\nHost: {bad}\r\n\r\n").as_bytes(), 1);
        assert!(found == [400] || bad.is_empty(), "{bad:?}: {found:?}");
    }
    backend.requests().iter().for_each(assert_sane);
}

#[test]
fn a_target_cannot_end_the_request_line() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    for target in [
        "/a b",
        "/a\tHTTP/1.1",
        "/a\0b",
        "/a\nX: y",
        "/a\rX: y",
        "a",
        "/a#b",
        "//evil/..",
        "/%0d%0aX:%20y",
        "/%00",
        "/a%20HTTP/1.1%0d%0aHost:%20b%0d%0a%0d%0a",
    ] {
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let _ = statuses(&server, bytes.as_bytes(), 1);
    }
    for received in backend.requests() {
        assert_sane(&received);
        let line = received.line();
        assert_eq!(line.split(' ').count(), 3, "{line:?}");
        assert!(line.starts_with("GET /") && line.ends_with(" HTTP/1.1"), "{line:?}");
        assert!(!line.contains(['\0', '\t', '\r', '\n', '#']), "{line:?}");
    }
}

#[test]
fn a_method_is_passed_on_unchanged_or_not_at_all() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    for method in ["FOO", "get", "GETX", "G\u{e9}T", "GET\0", ""] {
        let bytes = format!("{method} /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let _ = statuses(&server, bytes.as_bytes(), 1);
    }
    let seen: Vec<String> = backend.requests().iter().map(|a| a.method().to_owned()).collect();
    assert!(seen.iter().all(|method| method == "FOO"), "{seen:?}");
}

#[test]
fn pipelined_requests_are_answered_in_order_each_by_its_own_response() {
    let backend = Backend::start(|peer| {
        while let Some(received) = peer.request() {
            peer.answer(&format!("{} {}", received.target(), received.body.len()));
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    let mut bytes = String::new();
    for index in 0..50 {
        match index % 3 {
            0 => bytes += &format!("GET /{index} HTTP/1.1\r\nHost: a\r\n\r\n"),
            1 => {
                bytes += &format!(
                    "POST /{index} HTTP/1.1\r\nHost: a\r\nContent-Length: {index}\r\n\r\n{}",
                    "x".repeat(index)
                );
            }
            _ => {
                bytes += &format!(
                    "PUT /{index} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                     {index:x}\r\n{}\r\n0\r\n\r\n",
                    "x".repeat(index)
                );
            }
        }
    }
    client.send(bytes);
    for index in 0..50 {
        let body = if index % 3 == 0 { 0 } else { index };
        assert_eq!(client.response().text(), format!("/{index} {body}"));
    }
    backend.requests().iter().for_each(assert_sane);
}

#[test]
fn leading_zeros_of_a_chunk_size_hide_no_request() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    let post = |size: &str, last: &str| {
        format!(
            "POST /post HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             {size}\r\nhello\r\n{last}\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n"
        )
    };
    for zeros in [1, 11, 15, 16, 20, 500] {
        let zeros = "0".repeat(zeros);
        let bytes = post(&format!("{zeros}5"), &zeros);
        assert_eq!(statuses(&server, bytes.as_bytes(), 2), [200, 200], "{zeros}");
    }
    assert_eq!(targets(&backend).len(), 12);
    for received in backend.requests_for("/post") {
        assert_eq!(received.body, b"hello");
    }
    let seen = backend.requests().len();
    let too_many = format!("{}5", "0".repeat(1024));
    // A reader that keeps 64 bits takes the last for 5.
    for size in [&*too_many, "10000000000000005", "5;", "5 "] {
        assert_eq!(statuses(&server, post(size, "0").as_bytes(), 2), [400], "{size}");
    }
    let after = &backend.requests()[seen..];
    assert!(after.iter().all(|received| received.target() != "/next"), "{after:?}");
}
