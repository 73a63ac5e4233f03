//! Traffic over TLS: files by every way of sending, uploads, tunnels, and their ends.

use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::content::pattern;
use lighty_testkit::http2::Http2;
use lighty_testkit::real::websocket::WebSocketServer;
use lighty_testkit::websocket::{Opcode, WebSocket};
use rustix::process::Signal;

use super::{curl, get, site, start};

const BYTES: usize = 3_000_001;

#[test]
fn every_network_backend_sends_files() {
    let content = pattern(7, BYTES);
    for backend in [
        "auto",
        "io-uring",
        "linux-sendfile",
        "writev",
        "write",
        "linux-aio-sendfile",
        "posix-aio",
        "gthread-aio",
        "gthread-sendfile",
    ] {
        let (authority, setup) = site(&format!("server.network-backend = \"{backend}\""));
        let server = setup.file("big", &content).start();
        for client in [authority.client(), authority.client().with_tls12()] {
            let mut client = client.connect(server.address(), "a.test");
            for (range, part) in
                [("", &content[..]), ("Range: bytes=100000-299999\r\n", &content[100_000..300_000])]
            {
                client.send(format!("GET /big HTTP/1.1\r\nHost: a.test\r\n{range}\r\n"));
                let response = client.response();
                assert!(response.body == part, "{backend}: {} bytes", response.body.len());
            }
            assert_eq!(get(&mut client), "hello\n");
        }
        let size = "%{size_download} %{http_version}";
        let url = "https://a.test:@PORT@/big";
        let printed = curl(&authority, &server, &["-o", "/dev/null", "-w", size, url]);
        assert_eq!(printed, format!("{BYTES} 2"), "{backend}");
    }
}

#[test]
fn a_client_that_takes_its_time_gets_everything() {
    let (authority, setup) = site("");
    let content = pattern(3, 8 << 20);
    let server = setup.file("big", &content).start();
    let mut client = authority.client().connect(server.address(), "a.test");
    client.send("GET /big HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.response_head().status, 200);
    let mut received = Vec::new();
    while received.len() < content.len() {
        let count = (content.len() - received.len()).min(700_000);
        received.extend(client.read_exact(count).expect("the rest"));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(received == content);
}

#[test]
fn uploads_and_pipelined_requests_arrive() {
    let backend = Backend::replying(|seen| answer("200 OK", "", &seen.body.len().to_string()));
    let (authority, setup) = site("");
    let server = setup.in_front_of(&backend.name()).start();
    let mut client = authority.client().connect(server.address(), "a.test");
    let body = pattern(1, 5 << 20);
    client.send(format!("POST /u HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert_eq!(client.response().text(), body.len().to_string());
    let one = "POST /u HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
    client.send(one.repeat(20));
    assert!((0..20).all(|_| client.response().text() == "2"));
    assert!(backend.requests().iter().all(|seen| seen.field("X-Forwarded-Proto") == Some("https")));
}

#[test]
fn a_websocket_passes() {
    let Some(backend) = WebSocketServer::start() else { return };
    let (authority, setup) = site("proxy-core.upgrade = \"enable\"");
    let server = setup.in_front_of(&backend.listen().backend()).start();
    let client = authority.client().connect(server.address(), "a.test");
    let mut socket = WebSocket::open(client, "/", "");
    for length in [0, 125, 65_536, 2 << 20] {
        let payload = pattern(3, length);
        socket.send(Opcode::Binary, &payload);
        assert!(socket.read().payload == payload, "{length}");
    }
}

#[test]
fn bytes_of_no_protocol_pass() {
    let backend = Backend::start(|peer| {
        while let Some(bytes) = peer.read_exact(4) {
            peer.send(bytes);
        }
    });
    let (authority, setup) = site(&format!(
        "sockproxy.server = ( \"\" => ( ( \"host\" => \"{}\", \"port\" => {} ) ) )",
        backend.address().ip(),
        backend.address().port()
    ));
    let server = setup.start();
    let client = authority.client().with_alpn(&["imap"]);
    let mut client = client.connect(server.address(), "a.test");
    for text in ["ping", "pong"] {
        client.send(text);
        assert_eq!(client.read_exact(4).expect("an echo"), text.as_bytes());
    }
}

#[test]
fn a_response_that_is_cut_does_not_end_as_if_it_was_whole() {
    let backend = Backend::after_request(|peer| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf");
        peer.reset();
    });
    let (authority, setup) = site("");
    let server = setup.in_front_of(&backend.name()).start();
    let mut client = authority.client().connect(server.address(), "a.test");
    client.send("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
    assert_ne!(client.read_to_end().1, ConnectionEnd::Closed);
}

#[test]
fn a_stop_closes_idle_connections_in_order() {
    let (authority, setup) = site("");
    let mut server = setup.start();
    let mut client = authority.client().connect(server.address(), "a.test");
    assert_eq!(get(&mut client), "hello\n");
    server.signal(Signal::INT);
    assert_eq!(client.expect_end(), ConnectionEnd::Closed);
    server.await_exit(Duration::from_secs(30));
}

#[test]
fn the_end_of_an_idle_connection_is_said() {
    let (authority, server) = start(
        "server.max-keep-alive-idle = 1\nserver.max-connection-idle = 1\n\
         server.max-keep-alive-requests = 2",
    );
    for client in [authority.client(), authority.client().with_tls12()] {
        for requests in 0..=2 {
            let mut client = client.connect(server.address(), "a.test");
            (0..requests).for_each(|_| assert_eq!(get(&mut client), "hello\n"));
            assert_eq!(client.expect_end(), ConnectionEnd::Closed, "after {requests} requests");
        }
    }
    let client = authority.client().with_alpn(&["h2"]).connect(server.address(), "a.test");
    let mut http2 = Http2::over(client, "a.test", &[]);
    assert_eq!(http2.get("/a.txt").text(), "hello\n");
    assert_eq!(http2.read_to_end(), ConnectionEnd::Closed);
}

#[test]
fn the_end_is_said_to_who_makes_room() {
    let (authority, server) = start("server.max-connections = 2");
    let connect = || {
        let mut client = authority.client().connect(server.address(), "a.test");
        assert_eq!(get(&mut client), "hello\n");
        client
    };
    let mut clients: Vec<Client> = (0..3).map(|_| connect()).collect();
    assert_eq!(clients[0].expect_end(), ConnectionEnd::Closed);
}

#[test]
fn a_proxy_header_comes_before_the_handshake() {
    use std::io::Write;
    let (authority, setup) = site(
        "extforward.hap-PROXY = \"enable\"\nextforward.forwarder = ( \"127.0.0.1\" => \"trust\" )\n\
         server.modules += ( \"mod_accesslog\" )\naccesslog.filename = \"@DIR@/access.log\"\n\
         accesslog.format = \"%h %{SSL_PROTOCOL}e\"",
    );
    let server = setup.start();
    let mut socket = std::net::TcpStream::connect(server.address()).expect("a connection");
    socket.write_all(b"PROXY TCP4 192.0.2.9 192.0.2.1 40000 443\r\n").expect("sent");
    let config = authority.client().config();
    let stream = lighty_testkit::tls::say_hello_on(&config, socket, "a.test").expect("a hello");
    let stream = lighty_testkit::tls::shake_hands(stream).expect("a handshake");
    assert_eq!(get(&mut Client::over_tls(stream)), "hello\n");
    let path = server.directory().join("access.log");
    let printed = || std::fs::read_to_string(&path).unwrap_or_default();
    let logged = || printed().contains("192.0.2.9 TLSv1.3");
    assert!(lighty_testkit::wait_until(Duration::from_secs(60), logged), "{}", printed());
}

#[test]
fn streams_share_a_connection() {
    let backend = Backend::replying(|seen| answer("200 OK", "", &seen.body.len().to_string()));
    let (authority, setup) = site("");
    let port = backend.address().port();
    let server = setup
        .config(&format!(
            "proxy.server = ( \"/u\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {port} ) ) )"
        ))
        .start();
    let client = authority.client().with_alpn(&["h2"]).connect(server.address(), "a.test");
    let mut http2 = Http2::over(client, "a.test", &[]);
    assert_eq!(http2.get("/a.txt").text(), "hello\n");
    // Less than the window that a connection begins with.
    let body = pattern(1, 60_000);
    assert_eq!(http2.post("/u", &body).text(), body.len().to_string());
    assert_eq!(http2.get("/a.txt").text(), "hello\n");
    assert_eq!(backend.requests()[0].field("X-Forwarded-Proto"), Some("https"));
    server.signal(Signal::INT);
    assert_eq!(http2.read_to_end(), ConnectionEnd::Closed);
}
