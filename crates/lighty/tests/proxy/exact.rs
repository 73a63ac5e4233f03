//! Parts of a message that a proxy must pass on unchanged, and parts that it must repair.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::http2::Http2;
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::wait_until;

/// Backend that responds with the request target.
fn echo() -> Backend {
    Backend::replying(|seen| answer("200 OK", "", seen.target()))
}

fn exact(backend: &Backend) -> Setup {
    lighty!()
        .in_front_of(&backend.name())
        .config("proxy-core.forward-path = \"as-received\"")
        .config("server.errorlog-level = \"info\"")
}

fn target_of(server: &Server, target: &str) -> String {
    let response = server.get(target);
    assert_eq!(response.status, 200, "{target}: {response:?}");
    response.text().to_owned()
}

#[test]
fn a_backend_may_get_path_and_query_as_the_client_sent_them() {
    let backend = echo();
    let server = exact(&backend).start();
    for target in [
        "/a//b",
        "/a%2Fb",
        "/%41",
        "/@scope%2fpkg",
        "/x?x=%7e",
        "/a/b/",
        "/bucket/%C3%A4%20b%2Bc/%2F//x?X-Amz-Signature=a%2Fb&y",
        "/?",
    ] {
        assert_eq!(target_of(&server, target), target);
    }
    // Without a path in the URL the path is the root; the host is not passed on.
    for (target, wanted) in [
        ("http://a?x=%7e", "/?x=%7e"),
        ("http://a:80?x=%7e%2F", "/?x=%7e%2F"),
        ("http://a/?x=%7e", "/?x=%7e"),
        ("http://a/%7e?x=%7e", "/%7e?x=%7e"),
        ("http://a", "/"),
        ("http://a?", "/?"),
    ] {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response().text(), wanted, "{target}");
    }
    let port = backend.address().port();
    let old = lighty!()
        .config(&format!("proxy.server = ( \"\" => (( \"host\" => \"127.0.0.1\", \"port\" => {port} )) )"))
        .config("proxy-core.forward-path = \"as-received\"\nproxy.header = ( \"map-urlpath\" => ( \"/in/\" => \"/out/\" ) )")
        .start();
    assert_eq!(target_of(&old, "/a//%41"), "/a//%41");
    assert_eq!(target_of(&old, "/in/a//%41"), "/out/a//%41");
    // The prefix is only there once the path is decoded.
    assert_eq!(target_of(&old, "/%69n/a//%41"), "/out/a/A");
    let plain = lighty!().in_front_of(&backend.name()).start();
    assert_eq!(target_of(&plain, "/a//%41"), "/a/A");
}

/// Rules apply to the normalized path, so another spelling of it does not evade them.
#[test]
fn a_path_that_is_passed_on_as_it_came_passes_no_rule() {
    let backend = echo();
    let server = exact(&backend)
        .config("$HTTP[\"url\"] =^ \"/secret\" { url.access-deny = ( \"\" ) }")
        .config("url.rewrite-once = ( \"^/old/(.*)\" => \"/new/$1\" )")
        .start();
    for target in ["/secret/x", "//secret/x", "/%73ecret/x", "/a/../secret/x", "/a/%2e%2e/secret"] {
        let response = server.get(target);
        assert_eq!(response.status, 403, "{target}");
    }
    for (target, wanted) in [
        ("/old//%41", "/new/A"),
        ("/x/../y", "/y"),
        ("/x/%2e/y", "/x/y"),
        ("/x%2f..%2fy", "/y"),
        ("/secret/../y", "/y"),
    ] {
        assert_eq!(target_of(&server, target), wanted, "{target}");
    }
}

/// A single-page application beside an API: a prefix routed to a backend needs no file.
#[test]
fn a_rewrite_of_missing_files_leaves_requests_to_backends_alone() {
    let backend = Backend::replying(|seen| answer("200 OK", "", seen.method()));
    let port = backend.address().port();
    let at = format!("\"host\" => \"127.0.0.1\", \"port\" => {port}");
    for (rule, route) in [
        ("url.rewrite-if-not-file", format!("proxy.server = ( \"/api/\" => (( {at} )) )")),
        ("url.rewrite-repeat-if-not-file", format!("proxy.server = ( \"/api/\" => (( {at} )) )")),
        (
            "url.rewrite-if-not-file",
            format!(
                "$HTTP[\"url\"] =^ \"/api/\" {{ proxy-core.protocol = \"http\"\n\
                 proxy-core.backends = ( \"127.0.0.1:{port}\" ) }}"
            ),
        ),
    ] {
        let server = lighty!()
            .file("index.html", "page")
            .config(&format!("{rule} = ( \"^/(?!index)\" => \"/index.html\" )\n{route}"))
            .start();
        assert_eq!(server.get("/api/x").text(), "GET", "{route}");
        assert_eq!(server.get("/elsewhere").text(), "page", "{route}");
        let mut client = server.connect();
        client.send("POST /api/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(client.response().text(), "POST", "{route}");
    }
}

#[test]
fn space_before_a_colon_is_removed() {
    let backend = Backend::replying(|_| {
        b"HTTP/1.1 200 OK\r\nx-correlation-id : abc\r\nContent-Length \t: 2\r\n\r\nok".to_vec()
    });
    let server = lighty!().in_front_of(&backend.name()).start();
    let response = server.get("/");
    assert_eq!((response.status, response.text()), (200, "ok"), "{}", server.log());
    assert_eq!(response.field("x-correlation-id"), Some("abc"));
}

#[test]
fn an_upgrade_that_is_required_is_named() {
    let backend = Backend::replying(|_| {
        answer("426 Upgrade Required", "Upgrade: websocket\r\nConnection: Upgrade\r\n", "")
    });
    for upgrade in ["enable", "disable"] {
        let server = lighty!()
            .in_front_of(&backend.name())
            .config(&format!("proxy-core.upgrade = \"{upgrade}\""))
            .start();
        let response = server.get("/");
        assert_eq!(response.status, 426);
        assert_eq!(response.field("Upgrade"), Some("websocket"));
        let connection = response.field("Connection").unwrap_or_default().to_ascii_lowercase();
        assert!(connection.contains("upgrade"), "{response:?}");
    }
}

#[test]
fn upgrade_that_a_program_requires_is_named() {
    let program = "printf 'Status: 426 Upgrade Required\\nUpgrade: websocket\\n\\nno'\n";
    let server = lighty!()
        .file("up.cgi", program)
        .config("cgi.assign = ( \".cgi\" => \"/bin/sh\" )")
        .start();
    let response = server.get("/up.cgi");
    assert_eq!((response.status, response.text()), (426, "no"), "{}", server.log());
    assert_eq!(response.all("Upgrade").collect::<Vec<_>>(), ["websocket"]);
    let connection = response.field("Connection").unwrap_or_default().to_ascii_lowercase();
    assert!(connection.contains("upgrade"), "{response:?}");
    // RFC 9113 section 8.2.2 has no such field.
    let answer = Http2::connect(server.address()).get("/up.cgi");
    assert_eq!((answer.status, answer.field("upgrade")), (426, None));
}

/// The JDK's client announces a body of no bytes with each request for a WebSocket.
#[test]
fn an_upgrade_with_a_body_of_no_bytes_is_passed_on() {
    let backend = Backend::replying(|seen| match seen.field("Upgrade") {
        Some(protocol) => format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: {protocol}\r\nConnection: upgrade\r\n\r\n"
        )
        .into_bytes(),
        None => answer("200 OK", "", "none"),
    });
    let server = lighty!()
        .in_front_of(&backend.name())
        .config("proxy-core.upgrade = \"enable\"\nserver.errorlog-level = \"info\"")
        .start();
    let head = "Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    let mut client = server.connect();
    client.send(format!("GET /ws HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n"));
    assert_eq!(client.response_head().status, 101, "{}", server.log());
    let mut client = server.connect();
    client.send(format!("POST /ws HTTP/1.1\r\n{head}Content-Length: 1\r\n\r\nx"));
    assert_eq!(client.response().status, 200, "{}", server.log());
    server.await_log("its request has a body");
}

/// An application that flushes each byte: the proxy merges its chunks.
#[test]
fn tiny_chunks_of_a_backend_are_joined() {
    const BYTES: usize = 100_000;
    let backend = Backend::start(|peer| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let chunks = "1\r\na\r\n".repeat(BYTES);
            if !peer.send(format!("{chunks}0\r\n\r\n")) {
                return;
            }
        }
    });
    let server = lighty!().in_front_of(&backend.name()).start();
    let mut client = TcpStream::connect(server.address()).expect("a connection");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut response = Vec::new();
    client.read_to_end(&mut response).expect("all of it");
    let content = response.iter().filter(|byte| **byte == b'a').count();
    assert!(content >= BYTES, "{content} bytes");
    assert!(response.len() < BYTES + BYTES / 4, "{} bytes were sent", response.len());
}

/// Neither compression nor spooling holds back responses that must stream.
#[test]
fn a_response_may_ask_to_be_passed_on_as_it_comes() {
    for field in ["X-Accel-Buffering: no", "Incremental: ?1"] {
        let backend = Backend::start(move |peer| {
            if peer.request().is_none() {
                return;
            }
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{field}\r\n\
                 Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
            ));
            peer.hang();
        });
        let server = lighty!()
            .in_front_of(&backend.name())
            .config("deflate.mimetypes = ( \"text/\" )\ndeflate.allowed-encodings = ( \"gzip\" )")
            .config("server.stream-response-body = 0")
            .start();
        let mut client = TcpStream::connect(server.address()).expect("a connection");
        client.set_read_timeout(Some(Duration::from_millis(100))).expect("a time limit");
        let head = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
        client.write_all(head.as_bytes()).expect("sent");
        let mut response = Vec::new();
        let comes = || {
            let mut buffer = [0; 4096];
            let count = client.read(&mut buffer).unwrap_or(0);
            response.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&response);
            // A chunk of the compressed beginning.
            text.contains("gzip") && text.split_once("\r\n\r\n").is_some_and(|(_, b)| b.len() > 20)
        };
        assert!(wait_until(Duration::from_secs(30), comes), "{field}: nothing comes");
    }
}
