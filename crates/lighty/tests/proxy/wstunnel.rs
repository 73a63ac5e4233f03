//! `wstunnel.server`: WebSockets for backends without WebSocket support, compared with lighttpd.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::content::pattern;
use lighty_testkit::lighty;
use lighty_testkit::peer::LighttpdPeer;
use lighty_testkit::response::Response;
use lighty_testkit::server::Server;
use lighty_testkit::websocket::{Opcode, WebSocket, frame, handshake};

/// A program without WebSocket on a port of its own; each connection has a thread.
fn program(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Echoes its input in `<>`, until it receives `quit`.
fn echo() -> SocketAddr {
    program(|mut stream| {
        let mut bytes = [0; 65_536];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if &bytes[..count] == b"quit" {
                return;
            }
            let reply = [b"<", &bytes[..count], b">"].concat();
            if stream.write_all(&reply).is_err() {
                return;
            }
        }
    })
}

fn config(backend: SocketAddr, lines: &str) -> String {
    format!(
        "wstunnel.server = ( \"/ws\" => (( \"host\" => \"{}\", \"port\" => {} )) )\n{lines}",
        backend.ip(),
        backend.port()
    )
}

fn start(backend: SocketAddr, lines: &str) -> Server {
    lighty!().config(&config(backend, lines)).file("ws", "a file").start()
}

fn open(server: &Server, lines: &str) -> WebSocket {
    WebSocket::open(server.connect(), "/ws", lines)
}

/// The response to a handshake with these fields in place of the usual ones.
fn refused(mut client: Client, request: &str) -> Response {
    client.send(request);
    client.response()
}

/// Frames that a client receives in a conversation: kind and payload, up to the close.
fn conversation(client: Client, lines: &str) -> Vec<(u8, Vec<u8>)> {
    let mut socket = WebSocket::open(client, "/ws", lines);
    let mut seen = Vec::new();
    let mut say = |socket: &mut WebSocket, bytes: Vec<u8>| {
        socket.client.send(bytes);
        let frame = socket.read();
        seen.push((frame.first, frame.payload));
    };
    say(&mut socket, frame(Opcode::Text, true, "grüße".as_bytes()));
    say(&mut socket, frame(Opcode::Binary, true, b"\xff\xfe"));
    say(&mut socket, frame(Opcode::Ping, true, b"there?"));
    let parts = [frame(Opcode::Text, false, b"a"), frame(Opcode::Continuation, true, b"b")];
    say(&mut socket, parts.concat());
    let parts = [
        frame(Opcode::Pong, true, b"unasked"),
        frame(Opcode::Text, true, b""),
        frame(Opcode::Text, true, b"c"),
    ];
    say(&mut socket, parts.concat());
    seen
}

#[test]
fn payload_goes_both_ways_as_with_lighttpd() {
    let backend = echo();
    for lines in ["", "wstunnel.frame-type = \"binary\"", "wstunnel.frame-type = \"text\""] {
        let ours = start(backend, lines);
        let theirs = LighttpdPeer::setup("\"mod_wstunnel\"")
            .map(|setup| LighttpdPeer::start(setup.config(&config(backend, lines))));
        for offered in ["", "binary", "base64", "foo, binary, base64", "foo"] {
            let fields = match offered {
                "" => String::new(),
                offered => format!("Sec-WebSocket-Protocol: {offered}\r\n"),
            };
            let seen = conversation(ours.connect(), &fields);
            let is_binary = lines.contains("binary") || offered.contains("binary");
            let kind = if is_binary { 0x82 } else { 0x81 };
            let expected = [
                (kind, "<grüße>".as_bytes().to_vec()),
                (kind, b"<\xff\xfe>".to_vec()),
                (0x8a, b"there?".to_vec()),
                (kind, b"<ab>".to_vec()),
                (kind, b"<c>".to_vec()),
            ];
            assert_eq!(seen, expected, "{lines} {offered}");
            if let Some(theirs) = &theirs {
                assert_eq!(conversation(theirs.connect(), &fields), expected, "{lines} {offered}");
            }
        }
    }
}

#[test]
fn subprotocol_is_one_that_the_client_offers() {
    let server = start(echo(), "wstunnel.frame-type = \"binary\"");
    for (offered, chosen) in [
        ("", None),
        ("Sec-WebSocket-Protocol: foo\r\n", None),
        ("Sec-WebSocket-Protocol: foo, Base64\r\n", None),
        ("Sec-WebSocket-Protocol: foo\r\nSec-WebSocket-Protocol: binary\r\n", Some("binary")),
    ] {
        let socket = open(&server, offered);
        assert_eq!(socket.response.field("Sec-WebSocket-Protocol"), chosen, "{offered}");
    }
}

#[test]
fn large_messages_arrive_whole_and_slow_readers_lose_nothing() {
    const BYTES: usize = 8 << 20;
    let backend = program(|mut stream| {
        let mut got = vec![0; BYTES];
        if stream.read_exact(&mut got).is_ok() {
            assert_eq!(got, pattern(0, BYTES));
            let _ = stream.write_all(&got);
        }
    });
    let server = start(backend, "wstunnel.frame-type = \"binary\"");
    let mut socket = open(&server, "");
    socket.client.set_deadline(Duration::from_secs(60));
    socket.send(Opcode::Binary, &pattern(0, BYTES));
    let mut got = Vec::new();
    while got.len() < BYTES {
        let frame = socket.read();
        assert!(frame.is(Opcode::Binary), "{:#x}", frame.first);
        got.extend(frame.payload);
    }
    assert!(got == pattern(0, BYTES));
    assert_eq!(socket.read().close_code(), Some(1000), "the program has ended");
}

#[test]
fn text_is_never_cut_within_a_character() {
    let backend = program(|mut stream| {
        stream.set_nodelay(true).expect("set");
        let mut go = [0];
        for byte in "a€𝄞ü".bytes() {
            let _ = stream.write_all(&[byte]);
            // The next byte only after the client has had time for a frame of its own.
            if stream.read_exact(&mut go).is_err() {
                return;
            }
        }
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let server = start(backend, "");
    let mut socket = open(&server, "");
    let mut got = Vec::new();
    while got.len() < "a€𝄞ü".len() {
        socket.send(Opcode::Binary, b"g");
        socket.send(Opcode::Ping, b"");
        loop {
            let frame = socket.read();
            if frame.is(Opcode::Pong) {
                break;
            }
            assert!(std::str::from_utf8(&frame.payload).is_ok(), "{:?}", frame.payload);
            got.extend(frame.payload);
        }
    }
    assert_eq!(got, "a€𝄞ü".as_bytes());
}

#[test]
fn either_side_may_close() {
    let server = start(echo(), "");
    let mut socket = open(&server, "");
    socket.send(Opcode::Close, &[&1001u16.to_be_bytes()[..], b"going"].concat());
    assert_eq!(socket.read().close_code(), Some(1001));
    socket.expect_end();
    let mut socket = open(&server, "");
    socket.send(Opcode::Close, b"");
    assert_eq!(socket.read().close_code(), Some(1000));
    socket.expect_end();
    let mut socket = open(&server, "");
    socket.send(Opcode::Text, b"quit");
    assert_eq!(socket.read().close_code(), Some(1000));
    socket.send(Opcode::Close, &1000u16.to_be_bytes());
    socket.expect_end();
    // A client that does not reply is not waited for without end.
    let mut socket = open(&server, "");
    socket.send(Opcode::Text, b"quit");
    assert_eq!(socket.read().close_code(), Some(1000));
    socket.expect_end();
    // A client that disconnects frees the program.
    let (sender, receiver) = std::sync::mpsc::channel();
    let backend = program(move |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    let server = start(backend, "");
    let mut socket = open(&server, "");
    socket.send(Opcode::Text, b"last words");
    drop(socket);
    let heard = receiver.recv_timeout(Duration::from_secs(20)).expect("the program hears the end");
    assert_eq!(heard, b"last words");
}

#[test]
fn broken_frames_end_the_connection_with_a_code() {
    let server = start(echo(), "");
    let mut reserved = frame(Opcode::Text, true, b"x");
    reserved[0] |= 0x40;
    let mut unknown = frame(Opcode::Text, true, b"x");
    unknown[0] = 0x83;
    let unmasked = vec![0x81, 1, b'x'];
    let continuation = frame(Opcode::Continuation, true, b"x");
    let long_ping = frame(Opcode::Ping, true, &[0; 126]);
    for bytes in [reserved, unknown, unmasked, continuation, long_ping] {
        let mut socket = open(&server, "");
        socket.client.send(&bytes);
        assert_eq!(socket.read().close_code(), Some(1002), "{bytes:x?}");
        socket.expect_end();
    }
}

#[test]
fn clients_are_pinged() {
    let server = start(echo(), "wstunnel.ping-interval = 1");
    let mut socket = open(&server, "");
    for _ in 0..2 {
        let frame = socket.read();
        assert!(frame.is(Opcode::Ping), "{frame:?}");
        socket.send(Opcode::Pong, &frame.payload);
    }
    socket.send(Opcode::Text, b"still here");
    assert_eq!(socket.read().payload, b"<still here>");
}

#[test]
fn idle_tunnel_ends_unless_its_client_replies() {
    let lines = "wstunnel.ping-interval = 1\nproxy-core.tunnel-timeout = 3";
    let server = start(echo(), lines);
    let (mut mute, mut alive) = (open(&server, ""), open(&server, ""));
    for _ in 0..6 {
        let frame = alive.read();
        assert!(frame.is(Opcode::Ping), "{frame:?}");
        alive.send(Opcode::Pong, &frame.payload);
    }
    alive.send(Opcode::Text, b"x");
    loop {
        let frame = alive.read();
        if frame.is(Opcode::Text) {
            assert_eq!(frame.payload, b"<x>");
            break;
        }
    }
    mute.client.set_deadline(Duration::from_secs(20));
    let (rest, _) = mute.client.read_to_end();
    assert!(rest.len() < 6 * 8, "{rest:?}");
}

#[test]
fn idle_limit_amid_a_message_resets_both_sides() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let backend = program(move |mut stream| {
        let mut bytes = Vec::new();
        let end = stream.read_to_end(&mut bytes).map_err(|error| error.kind());
        let _ = sender.send((bytes, end.err()));
    });
    let server = start(backend, "proxy-core.tunnel-timeout = 1");
    let mut socket = open(&server, "");
    let bytes = frame(Opcode::Text, true, b"a message");
    socket.client.send(&bytes[..bytes.len() - 3]);
    assert_eq!(socket.client.read_to_end(), (Vec::new(), ConnectionEnd::Reset));
    let (bytes, end) = receiver.recv_timeout(Duration::from_secs(20)).expect("an end");
    assert_eq!((&*bytes, end), (&b"a mess"[..], Some(ErrorKind::ConnectionReset)));
}

#[test]
fn origins_and_versions_are_checked_as_by_lighttpd() {
    let lines = "wstunnel.origins = ( \"example.org\", \"https://exact.org\" )";
    let backend = echo();
    let ours = start(backend, lines);
    let theirs = LighttpdPeer::setup("\"mod_wstunnel\"")
        .map(|setup| LighttpdPeer::start(setup.config(&config(backend, lines))));
    for (origin, status) in [
        ("Origin: https://www.example.org\r\n", 101),
        ("Origin: https://exact.org\r\n", 101),
        ("Origin: http://example.org\r\n", 403),
        ("Origin: https://evilexample.org\r\n", 403),
        ("Origin: http://exact.org\r\n", 403),
        ("Origin: null\r\n", 403),
        ("", 400),
    ] {
        let ask = |mut client: Client| {
            client.send(handshake("/ws", origin));
            client.response_head().status
        };
        assert_eq!(ask(ours.connect()), status, "{origin}");
        if let Some(theirs) = &theirs {
            assert_eq!(ask(theirs.connect()), status, "{origin}");
        }
    }
    let server = start(backend, "");
    let with = |from: &str, to: &str| handshake("/ws", "").replace(from, to);
    for version in ["7", "0", "14", "x", ""] {
        let request = with("Version: 13", &format!("Version: {version}"));
        let response = refused(server.connect(), &request);
        assert_eq!(response.status, 426, "{version}: {response:?}");
        assert_eq!(response.field("Sec-WebSocket-Version"), Some("13"), "{response:?}");
    }
    let mut client = server.connect();
    client.send(with("Version: 13", "Version: 8"));
    assert_eq!(client.response_head().status, 101);
    for key in ["", "short", "dGhlIHNhbXBsZSBub25jZSEh"] {
        let request = with("Key: dGhlIHNhbXBsZSBub25jZQ==", &format!("Key: {key}"));
        assert_eq!(refused(server.connect(), &request).status, 400, "{key}");
    }
}

#[test]
fn other_requests_are_answered_as_if_it_were_not_there() {
    let server = start(echo(), "");
    assert_eq!(server.get("/ws").text(), "a file");
    assert_eq!(server.get("/other").status, 404);
    let other = handshake("/ws", "").replace("Upgrade: websocket", "Upgrade: other");
    assert_eq!(refused(server.connect(), &other).text(), "a file");
    let post = handshake("/ws", "Content-Length: 0\r\n").replace("GET ", "POST ");
    assert_eq!(refused(server.connect(), &post).text(), "a file");
    assert_eq!(refused(server.connect(), &handshake("/other", "")).status, 404);
    let denied = start(echo(), "$HTTP[\"url\"] =^ \"/ws\" { url.access-deny = ( \"\" ) }");
    assert_eq!(refused(denied.connect(), &handshake("/ws", "")).status, 403);
}

#[test]
fn missing_backend_is_an_error_before_the_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let server = start(address, "");
    let response = refused(server.connect(), &handshake("/ws", ""));
    assert!([502, 503].contains(&response.status), "{response:?}");
    let response = refused(server.connect(), &handshake("/ws", ""));
    assert_eq!(response.status, 503, "{response:?}");
}

#[test]
fn bytes_behind_the_handshake_are_not_lost() {
    let server = start(echo(), "");
    let mut client = server.connect();
    let mut bytes = handshake("/ws", "").into_bytes();
    bytes.extend(frame(Opcode::Text, true, b"early"));
    client.send(&bytes);
    let mut socket = WebSocket::await_open(client);
    assert_eq!(socket.read().payload, b"<early>");
}
