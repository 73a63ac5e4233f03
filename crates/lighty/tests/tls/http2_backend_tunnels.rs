//! WebSockets and other tunnels to backends that speak HTTP/2: extended CONNECT (RFC 8441), for
//! clients that use it themselves and for clients that upgrade.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use lighty_testkit::content::pattern;
use lighty_testkit::http2::{CANCEL, Http2};
use lighty_testkit::lighty;
use lighty_testkit::real::websocket::WebSocketServer;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::tls::Authority;
use lighty_testkit::websocket::{Opcode, WebSocket, handshake};

const PATIENCE: Duration = Duration::from_secs(30);

/// Server with HTTP/2 backends and upgrades enabled.
fn front(setup: Setup, backend: &str) -> Setup {
    setup
        .config("proxy-core.protocol = \"h2\"\nproxy-core.upgrade = \"enable\"")
        .config(&format!("proxy-core.backends = ( \"{backend}\" )\nproxy-core.hold-time = 0"))
}

/// Events that a backend saw: a request's head, or the end of the client's direction of a tunnel.
#[derive(Debug)]
enum TunnelEvent {
    Head(Box<http::request::Parts>),
    End(Result<Vec<u8>, Option<Reason>>),
}

/// A backend over hyper's HTTP/2, on one connection after the other.
struct Http2Backend {
    address: SocketAddr,
    seen: Receiver<TunnelEvent>,
}

impl Http2Backend {
    fn start(announces: bool) -> Self {
        let (tell, seen) = channel();
        let (reported, address) = channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
                let listener = listener.expect("a port");
                reported.send(listener.local_addr().expect("its address")).expect("a test");
                while let Ok((socket, _)) = listener.accept().await {
                    serve(socket, announces, &tell).await;
                }
            });
        });
        Self { address: address.recv().expect("an address"), seen }
    }

    fn name(&self) -> String {
        self.address.to_string()
    }

    fn head(&self) -> http::request::Parts {
        match self.seen.recv_timeout(PATIENCE).expect("a request") {
            TunnelEvent::Head(head) => *head,
            end @ TunnelEvent::End(_) => panic!("{end:?}"),
        }
    }

    fn end(&self) -> Result<Vec<u8>, Option<Reason>> {
        match self.seen.recv_timeout(PATIENCE).expect("the end") {
            TunnelEvent::End(end) => end,
            head @ TunnelEvent::Head(_) => panic!("{head:?}"),
        }
    }
}

async fn serve(socket: tokio::net::TcpStream, announces: bool, tell: &Sender<TunnelEvent>) {
    let mut builder = h2::server::Builder::new();
    if announces {
        builder.enable_connect_protocol();
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    let mut answering = Vec::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        answering.push(tokio::spawn(answer(request, respond, tell.clone())));
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    tell: Sender<TunnelEvent>,
) {
    let (head, mut body) = request.into_parts();
    let (path, is_connect) = (head.uri.path().to_owned(), head.method == http::Method::CONNECT);
    tell.send(TunnelEvent::Head(Box::new(head))).expect("a test");
    let response = |status: u16| Response::builder().status(status).header("x-own", "1").body(());
    if !is_connect || path == "/refused" {
        let status = if is_connect { 403 } else { 200 };
        let sent = respond.send_response(response(status).expect("a head"), false);
        let text = Bytes::from_static(b"no tunnel");
        sent.expect("a stream").send_data(text, true).expect("a stream");
    } else {
        let sent = respond.send_response(response(200).expect("a head"), path == "/deaf");
        let mut sent = sent.expect("a stream");
        if path == "/early" {
            sent.send_data("early".into(), true).expect("a stream");
        }
        let mut heard = Vec::new();
        let end = loop {
            match body.data().await {
                None => break Ok(heard),
                Some(Err(error)) => break Err(error.reason()),
                Some(Ok(piece)) => {
                    let _ = body.flow_control().release_capacity(piece.len());
                    if path == "/reset" {
                        return sent.send_reset(Reason::CANCEL);
                    }
                    if path == "/echo" {
                        let _ = sent.send_data(piece, false);
                    } else {
                        heard.extend(piece);
                    }
                }
            }
        };
        if path == "/echo" {
            let _ = sent.send_data(Bytes::new(), true);
        }
        // The test may be over.
        let _ = tell.send(TunnelEvent::End(end));
    }
}

fn connect_to(client: &mut Http2, protocol: &str, target: &str) -> u32 {
    let mut fields = client.request_fields("CONNECT", target);
    fields.insert(1, (":protocol".to_owned(), protocol.to_owned()));
    fields.push(("sec-websocket-version".to_owned(), "13".to_owned()));
    client.open(&fields, false)
}

/// Messages of many sizes and a close, over HTTP/1.1.
fn converse(mut socket: WebSocket) {
    for length in [0, 1, 125, 126, 65_536, 3 << 20] {
        let payload = pattern(3, length);
        socket.send(Opcode::Binary, &payload);
        let echo = socket.read();
        assert!(echo.is(Opcode::Binary) && echo.payload == payload, "{length}");
    }
    socket.send(Opcode::Text, b"close 4001");
    assert_eq!(socket.read().close_code(), Some(4001));
}

#[test]
fn websockets_pass_between_the_versions_of_http() {
    let Some(backend) = WebSocketServer::start() else { return };
    // The first server speaks HTTP/2 to the second, which upgrades to the real backend.
    let far = lighty!()
        .config("proxy-core.protocol = \"http\"\nproxy-core.upgrade = \"enable\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.listen().backend()))
        .start();
    let near = front(lighty!(), &far.address().to_string()).start();
    let socket = WebSocket::open(near.connect(), "/chat?x", "Sec-WebSocket-Protocol: echo\r\n");
    assert_eq!(socket.response.field("Sec-WebSocket-Protocol"), Some("echo"));
    converse(socket);
    let mut client = Http2::connect(near.address());
    let stream = connect_to(&mut client, "websocket", "/chat");
    let head = client.head(stream);
    assert_eq!((head.status, head.has_ended), (200, false), "{head:?}\n{}", near.log());
    for name in ["upgrade", "connection", "sec-websocket-accept"] {
        assert_eq!(head.field(name), None, "{name}");
    }
    let text = lighty_testkit::websocket::frame(Opcode::Text, true, b"a word");
    client.send_data(stream, &text, false);
    let got = client.read_until(stream, |answer| answer.body.len() >= 8);
    assert_eq!(got.body, b"\x81\x06a word");
}

#[test]
fn websockets_pass_over_tls() {
    let Some(backend) = WebSocketServer::start() else { return };
    let setup = lighty!();
    let authority = Authority::new(setup.directory());
    authority.issue("pair.pem", &["127.0.0.1"]);
    let far = setup
        .config("proxy-core.protocol = \"http\"\nproxy-core.upgrade = \"enable\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.listen().backend()))
        .config(&format!(
            "ssl.engine = \"enable\"\nssl.pemfile = \"{}\"",
            authority.path("pair.pem").display()
        ))
        .start();
    let near = front(lighty!(), &format!("https://{}", far.address()))
        .config(&format!("proxy-core.tls-ca-file = \"{}\"", authority.path("ca.pem").display()))
        .start();
    converse(WebSocket::open(near.connect(), "/chat", ""));
}

#[test]
fn an_upgrade_goes_on_as_an_extended_connect() {
    let backend = Http2Backend::start(true);
    let server = front(lighty!(), &backend.name()).start();
    let mut socket = WebSocket::open(server.connect(), "/echo?q", "X-More: 2\r\n");
    let head = backend.head();
    assert_eq!(head.method, http::Method::CONNECT);
    assert_eq!(head.extensions.get::<Protocol>().map(Protocol::as_str), Some("websocket"));
    assert_eq!(head.uri.to_string(), "http://localhost/echo?q");
    assert_eq!(head.headers["sec-websocket-version"], "13");
    assert_eq!(head.headers["x-more"], "2");
    for name in ["sec-websocket-key", "upgrade", "connection", "content-length"] {
        assert!(!head.headers.contains_key(name), "{name}");
    }
    assert_eq!(socket.response.field("X-Own"), Some("1"));
    // The echo returns the sent bytes, to the last one.
    let sent = pattern(5, 2 << 20);
    let reading = socket.client.try_send(&sent).is_ok();
    assert!(reading && socket.client.read_exact(sent.len()).expect("all of it") == sent);
    socket.client.half_close();
    socket.expect_end();
    assert_eq!(backend.end(), Ok(Vec::new()));
}

#[test]
fn each_direction_ends_by_itself() {
    let backend = Http2Backend::start(true);
    let server = front(lighty!(), &backend.name()).start();
    let mut client = Http2::connect(server.address());
    // The backend ends first, with its head or after some bytes, and still receives the remaining
    // input.
    for (target, output) in [("/early", "early"), ("/deaf", "")] {
        let stream = connect_to(&mut client, "lines", target);
        assert_eq!(
            backend.head().extensions.get::<Protocol>().map(Protocol::as_str),
            Some("lines")
        );
        let got = client.answer(stream);
        assert_eq!(
            (got.status, got.text().as_str(), got.has_ended),
            (200, output, true),
            "{target}"
        );
        let late = pattern(9, 200_000);
        client.send_data(stream, &late, true);
        assert!(backend.end() == Ok(late), "{target}");
    }
}

#[test]
fn tunnel_reset_at_one_end_ends_at_the_other() {
    let backend = Http2Backend::start(true);
    let server = front(lighty!(), &backend.name()).start();
    let mut client = Http2::connect(server.address());
    let stream = connect_to(&mut client, "lines", "/echo");
    backend.head();
    assert_eq!(client.head(stream).status, 200);
    client.reset(stream, CANCEL);
    assert_eq!(backend.end(), Err(Some(Reason::CANCEL)));
    let stream = connect_to(&mut client, "lines", "/reset");
    backend.head();
    client.send_data(stream, b"enough", false);
    let got = client.read_until(stream, |got| got.has_ended || got.reset.is_some());
    assert_eq!((got.status, got.text().as_str(), got.reset), (200, "", Some(CANCEL)));
    server.await_log("the backend's response ended early: the tunnel was reset");
    let mut one = server.connect();
    one.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(one.response().text(), "no tunnel", "the connection goes on: {}", server.log());
}

/// Non-upgrade response to an upgrade request.
fn refused(server: &Server, target: &str) -> (u16, String) {
    let mut client = server.connect();
    client.send(handshake(target, ""));
    let response = client.response();
    // The connection is for requests still.
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "no tunnel");
    (response.status, response.text().to_owned())
}

#[test]
fn a_backend_that_refuses_is_heard() {
    let backend = Http2Backend::start(true);
    let server = front(lighty!(), &backend.name()).start();
    assert_eq!(refused(&server, "/refused"), (403, "no tunnel".to_owned()));
    let mut client = Http2::connect(server.address());
    let stream = connect_to(&mut client, "websocket", "/refused");
    let got = client.answer(stream);
    assert_eq!((got.status, got.text().as_str()), (403, "no tunnel"));
    // A choice of protocols is not for one stream: the wish is not passed on.
    let mut client = server.connect();
    let two = "GET /two HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: a, b\r\n\r\n";
    client.send(two);
    let response = client.response();
    assert_eq!((response.status, response.text()), (200, "no tunnel"));
}

#[test]
fn a_backend_that_takes_no_extended_connect_gets_none() {
    let backend = Http2Backend::start(false);
    let server = front(lighty!(), &backend.name()).start();
    assert_eq!(refused(&server, "/chat"), (200, "no tunnel".to_owned()));
    assert_eq!(backend.head().method, http::Method::GET);
    server.await_log("does not take extended CONNECT (RFC 8441)");
    let mut client = Http2::connect(server.address());
    let stream = connect_to(&mut client, "websocket", "/chat");
    assert_eq!(client.answer(stream).status, 501);
    // With upgrades disabled no extended CONNECT is sent.
    let backend = Http2Backend::start(true);
    let server = front(lighty!(), &backend.name())
        .config("$HTTP[\"url\"] == \"/chat\" { proxy-core.upgrade = \"disable\" }")
        .start();
    assert_eq!(refused(&server, "/chat"), (200, "no tunnel".to_owned()));
    assert_eq!(backend.head().method, http::Method::GET);
    server.await_log("proxy-core.upgrade is off here");
}
