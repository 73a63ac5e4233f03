//! WebSockets and other tunnels over HTTP/2: extended CONNECT (RFC 8441).

use std::time::Duration;

use lighty_testkit::backend::Backend;
use lighty_testkit::content::pattern;
use lighty_testkit::http2::{CANCEL, Http2, INITIAL_WINDOW_SIZE};
use lighty_testkit::real::websocket::WebSocketServer;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::websocket::{Opcode, frame};
use lighty_testkit::{lighty, wait_until};

const SOON: Duration = Duration::from_secs(30);

const ENABLE_CONNECT_PROTOCOL: u16 = 8;

fn in_front_of(backend: &str) -> Setup {
    lighty!()
        .file("a.txt", "hello\n")
        .config("proxy-core.protocol = \"http\"\nproxy-core.upgrade = \"enable\"")
        .config(&format!(
            "$HTTP[\"url\"] != \"/a.txt\" {{ proxy-core.backends = ( \"{backend}\" ) }}"
        ))
}

fn connect_to(client: &mut Http2, protocol: &str, target: &str) -> u32 {
    let mut fields = client.request_fields("CONNECT", target);
    fields.insert(1, (":protocol".to_owned(), protocol.to_owned()));
    fields.push(("sec-websocket-version".to_owned(), "13".to_owned()));
    client.open(&fields, false)
}

/// A WebSocket on a stream of its own.
fn open(server: &Server, settings: &[(u16, u32)]) -> (Http2, u32) {
    let mut client = Http2::connect_with(server.address(), settings);
    let stream = connect_to(&mut client, "websocket", "/chat");
    let head = client.head(stream);
    assert_eq!((head.status, head.has_ended), (200, false), "{head:?}\n{}", server.log());
    assert_eq!(client.settings.get(&ENABLE_CONNECT_PROTOCOL), Some(&1));
    for name in ["connection", "upgrade", "sec-websocket-accept", "content-length"] {
        assert_eq!(head.field(name), None, "{name}");
    }
    (client, stream)
}

/// A frame as a server sends it.
fn unmasked(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80 | opcode as u8];
    match payload.len() {
        length @ 0..=125 => bytes.push(length as u8),
        length @ 126..=65_535 => {
            bytes.push(126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}

#[test]
fn messages_of_every_size_come_back() {
    let Some(backend) = WebSocketServer::start() else { return };
    let server = in_front_of(&backend.listen().backend()).start();
    for settings in [&[][..], &[(INITIAL_WINDOW_SIZE, 700)]] {
        let (mut client, stream) = open(&server, settings);
        let mut wanted = Vec::new();
        for length in [0, 1, 125, 126, 60_000] {
            let payload = pattern(3, length);
            client.send_data(stream, &frame(Opcode::Binary, true, &payload), false);
            wanted.extend(unmasked(Opcode::Binary, &payload));
            let got = client.read_until(stream, |answer| answer.body.len() >= wanted.len());
            assert!(got.body == wanted, "{length}: {} of {}", got.body.len(), wanted.len());
        }
        assert_eq!(client.get("/a.txt").text(), "hello\n", "other streams go on");
        client.send_data(stream, &frame(Opcode::Close, true, &1000_u16.to_be_bytes()), true);
        let got = client.answer(stream);
        assert_eq!((got.has_ended, got.reset), (true, None));
        assert_eq!(got.body[wanted.len()..], unmasked(Opcode::Close, &1000_u16.to_be_bytes()));
    }
}

/// Clients send it as they do with every request without content.
#[test]
fn a_content_length_does_not_measure_a_tunnel() {
    let Some(backend) = WebSocketServer::start() else { return };
    let server = in_front_of(&backend.listen().backend()).start();
    for length in ["0", "7"] {
        let mut client = Http2::connect(server.address());
        let mut fields = client.request_fields("CONNECT", "/chat");
        fields.insert(1, (":protocol".to_owned(), "websocket".to_owned()));
        fields.push(("sec-websocket-version".to_owned(), "13".to_owned()));
        fields.push(("content-length".to_owned(), length.to_owned()));
        let stream = client.open(&fields, false);
        assert_eq!(client.head(stream).status, 200, "{}", server.log());
        client.send_data(stream, &frame(Opcode::Text, true, b"hello"), false);
        let wanted = unmasked(Opcode::Text, b"hello");
        let got = client.read_until(stream, |answer| answer.body.len() >= wanted.len());
        assert_eq!((got.body, got.reset), (wanted, None), "{length}");
    }
}

#[test]
fn a_backend_is_asked_as_over_http1_and_is_let_go_with_the_stream() {
    let backend = Backend::start(|peer| {
        let Some(_) = peer.head() else { return };
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\nfirst\n");
        peer.hang();
    });
    let server = in_front_of(&backend.name()).start();
    let mut client = Http2::connect(server.address());
    let stream = connect_to(&mut client, "lines", "/talk?x");
    let got = client.read_until(stream, |answer| answer.body.len() >= 6);
    assert_eq!((got.status, got.text().as_str()), (200, "first\n"));
    let seen = &backend.requests()[0];
    assert_eq!((seen.method(), seen.target()), ("GET", "/talk?x"));
    assert_eq!((seen.field("Upgrade"), seen.field("Connection")), (Some("lines"), Some("upgrade")));
    client.send_data(stream, b"up", false);
    client.reset(stream, CANCEL);
    assert!(wait_until(SOON, || backend.open() == 0), "the backend is let go");
    assert_eq!(client.get("/a.txt").status, 200);
}

#[test]
fn the_end_of_the_backend_ends_the_stream() {
    let backend = Backend::start(|peer| {
        let Some(seen) = peer.head() else { return };
        assert_eq!(seen.field("Sec-WebSocket-Key").map(str::len), Some(24));
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        );
        let heard = peer.read_exact(5).expect("five bytes");
        peer.send(heard);
    });
    let server = in_front_of(&backend.name()).start();
    let mut client = Http2::connect(server.address());
    let stream = connect_to(&mut client, "websocket", "/");
    // Bytes behind the request are not lost.
    client.send_data(stream, b"early", false);
    let got = client.answer(stream);
    assert_eq!((got.text().as_str(), got.has_ended), ("early", true));
}

#[test]
fn content_before_a_backends_reset_is_delivered_as_the_windows_open() {
    let backend = Backend::start(|peer| {
        let Some(_) = peer.head() else { return };
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\n",
        );
        peer.send("hello, all");
        peer.read_exact(2);
        peer.reset();
    });
    let server = in_front_of(&backend.name()).config("server.errorlog-level = \"debug\"").start();
    let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 5)]);
    client.credits = false;
    let stream = connect_to(&mut client, "lines", "/talk");
    let got = client.read_until(stream, |answer| answer.body.len() >= 5);
    assert_eq!((got.status, got.text().as_str()), (200, "hello"));
    client.send_data(stream, b"go", false);
    assert!(wait_until(SOON, || backend.open() == 0), "it has reset the connection");
    client.open_window(stream, 100);
    let got = client.answer(stream);
    assert_eq!((got.text().as_str(), got.reset), ("hello, all", Some(CANCEL)));
    server.await_log("the backend's response ended early: the tunnel was reset");
    assert!(!server.log().contains("client closed the connection"), "{}", server.log());
}

#[test]
fn idle_tunnel_is_reset_and_blames_nobody() {
    let backend = Backend::start(|peer| {
        let Some(_) = peer.head() else { return };
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\n",
        );
        peer.hang();
    });
    let server = in_front_of(&backend.name())
        .config("server.errorlog-level = \"debug\"\nproxy-core.tunnel-timeout = 1")
        .start();
    let mut client = Http2::connect(server.address());
    let stream = connect_to(&mut client, "lines", "/talk");
    let got = client.answer(stream);
    assert_eq!((got.status, got.has_ended, got.reset), (200, false, Some(CANCEL)));
    assert_eq!(client.get("/a.txt").text(), "hello\n");
    assert!(!server.log().contains("client closed the connection"), "{}", server.log());
}

#[test]
fn unaccepted_upgrade_is_answered_with_an_error() {
    let backend = Backend::answering("plain");
    let server = in_front_of(&backend.name())
        .config("$HTTP[\"url\"] =^ \"/off\" { proxy-core.upgrade = \"disable\" }")
        .config("$HTTP[\"url\"] =^ \"/secret\" { url.access-deny = ( \"\" ) }")
        .start();
    let mut client = Http2::connect(server.address());
    for (protocol, target, status) in [
        ("websocket", "/a.txt", 501),
        ("websocket", "/plain", 501),
        ("websocket", "/off", 501),
        ("websocket", "/secret", 403),
        ("two words", "/plain", 400),
        ("", "/plain", 400),
    ] {
        let stream = connect_to(&mut client, protocol, target);
        assert_eq!(client.answer(stream).status, status, "{protocol} {target}");
    }
    assert_eq!(client.get("/a.txt").text(), "hello\n");
}

#[test]
fn a_program_may_accept_an_upgrade() {
    let server = lighty!()
        .file(
            "chat.sh",
            "printf 'Status: 101\\nUpgrade: lines\\n\\n'\n\
             while read line; do echo \"heard $line\"; done\necho bye\n",
        )
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )")
        .config("cgi.upgrade = \"enable\"")
        .start();
    let mut client = Http2::connect(server.address());
    let stream = connect_to(&mut client, "lines", "/chat.sh");
    client.send_data(stream, b"one\n", false);
    let got = client.read_until(stream, |answer| answer.body.len() >= 10);
    assert_eq!((got.status, got.text().as_str()), (200, "heard one\n"));
    client.send_data(stream, b"two\n", true);
    let got = client.answer(stream);
    assert_eq!((got.text().as_str(), got.has_ended), ("heard one\nheard two\nbye\n", true));
}

#[test]
fn a_graceful_stop_waits_for_a_tunnel_no_longer_than_its_limit() {
    let Some(backend) = WebSocketServer::start() else { return };
    let mut server =
        in_front_of(&backend.listen().backend()).config("server.tunnel-stop-timeout = 1").start();
    let (mut client, stream) = open(&server, &[]);
    server.signal(rustix::process::Signal::INT);
    client.send_data(stream, &frame(Opcode::Text, true, b"still"), false);
    let got = client.read_until(stream, |answer| answer.body.len() >= 7);
    assert_eq!(got.body, unmasked(Opcode::Text, b"still"));
    client.read_to_end();
    let (status, _) = server.await_exit(SOON);
    assert!(status.success(), "{status}");
}
