//! WebSockets behind a service: nothing of the other protocol passes before the verdict.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::http2::Http2;
use lighty_testkit::server::Server;
use lighty_testkit::websocket::{ACCEPT, Opcode, WebSocket, frame, handshake};
use lighty_testkit::{lighty, wait_until};

use super::only;

fn guarded(service: &Backend, backend: &Backend) -> Server {
    lighty!()
        .in_front_of(&backend.name())
        .config("proxy-core.upgrade = \"enable\"")
        .config(&format!(
            "auth.forward = ( \"/\" => ( \"url\" => \"http://{}\", \
             \"response-headers\" => ( \"Remote-User\" ), \"timeout\" => 60 ) )",
            service.name()
        ))
        .start()
}

/// A backend that accepts a WebSocket and repeats what it gets.
fn echo() -> Backend {
    Backend::start(|peer| {
        if peer.head().is_none() {
            return;
        }
        peer.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
        ));
        let sent = frame(Opcode::Text, true, b"early").len();
        if peer.read_exact(sent).is_some() {
            peer.send([&[0x81, 5][..], b"early"].concat());
        }
        peer.hang();
    })
}

#[test]
fn websocket_opens_after_the_verdict() {
    let release = Arc::new(AtomicBool::new(false));
    let held = Arc::clone(&release);
    let service = Backend::replying(move |_| {
        wait_until(Duration::from_secs(60), || held.load(Ordering::SeqCst));
        answer("200 OK", "Remote-User: kim\r\n", "")
    });
    let backend = echo();
    let server = guarded(&service, &backend);
    let mut client = server.connect();
    let mut bytes = handshake("/chat?a", "Remote-User: root\r\nOrigin: http://a\r\n").into_bytes();
    bytes.extend(frame(Opcode::Text, true, b"early"));
    client.send(bytes);
    assert!(wait_until(Duration::from_secs(30), || service.requests().len() == 1));
    assert_eq!(backend.opened(), 0, "the backend hears nothing before the verdict");
    release.store(true, Ordering::SeqCst);
    let mut socket = WebSocket::await_open(client);
    assert_eq!(socket.read().payload, b"early");
    let question = only(service.requests());
    assert_eq!(question.line(), "GET / HTTP/1.1");
    for name in ["Upgrade", "Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Version"] {
        assert_eq!(question.field(name), None, "{name}");
    }
    assert_eq!(question.field("X-Forwarded-Proto"), Some("http"));
    assert_eq!(
        (question.field("X-Forwarded-Uri"), question.field("Origin")),
        (Some("/chat?a"), Some("http://a"))
    );
    let seen = backend.requests().pop().expect("a request");
    assert_eq!(
        (seen.field("Remote-User"), seen.field("Upgrade")),
        (Some("kim"), Some("websocket"))
    );
}

#[test]
fn refused_websocket_ends_its_connection() {
    for status in ["401 Unauthorized", "302 Found", "500 No"] {
        let service = Backend::replying(move |_| answer(status, "", ""));
        let backend = Backend::answering("page");
        let server = guarded(&service, &backend);
        let mut client = server.connect();
        let mut bytes = handshake("/chat", "").into_bytes();
        // The early bytes of the other protocol look like a request.
        bytes.extend(b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        client.send(bytes);
        let refusal = client.response();
        assert!(refusal.status >= 300, "{refusal:?}");
        assert!(refusal.says_close(), "{status}");
        let (rest, _) = client.read_to_end();
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
        assert!(backend.requests().is_empty());
        assert_eq!(service.requests().len(), 1);
    }
}

#[test]
fn websocket_over_http2_opens_after_the_verdict() {
    let service = Backend::replying(|seen| match seen.field("X-Forwarded-Uri") {
        Some("/chat") => answer("200 OK", "Remote-User: kim\r\n", ""),
        _ => answer("403 Forbidden", "", "no"),
    });
    let backend = echo();
    let server = guarded(&service, &backend);
    let mut client = Http2::connect(server.address());
    let open = |client: &mut Http2, target: &str| {
        let mut fields = client.request_fields("CONNECT", target);
        fields.insert(1, (":protocol".to_owned(), "websocket".to_owned()));
        fields.push(("sec-websocket-version".to_owned(), "13".to_owned()));
        fields.push(("remote-user".to_owned(), "root".to_owned()));
        client.open(&fields, false)
    };
    let stream = open(&mut client, "/other");
    client.send_data(stream, b"early", false);
    assert_eq!(client.head(stream).status, 403);
    assert_eq!(backend.opened(), 0);
    let stream = open(&mut client, "/chat");
    client.send_data(stream, &frame(Opcode::Text, true, b"early"), false);
    assert_eq!(client.head(stream).status, 200);
    let got = client.read_until(stream, |answer| answer.body.len() >= 7);
    assert_eq!(got.body, [&[0x81, 5][..], b"early"].concat());
    let question = service.requests();
    for seen in &question {
        assert_eq!((seen.method(), seen.field("X-Forwarded-Method")), ("GET", Some("GET")));
    }
    assert_eq!(backend.requests().pop().expect("a request").field("Remote-User"), Some("kim"));
}
