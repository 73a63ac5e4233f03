//! Backends that speak HTTP/2: over TLS, and with prior knowledge.

mod grpc_codes;
mod lifetime;
mod resending;
mod windows;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lighty_testkit::backend::{Backend, Peer, RequestSeen, answer};
use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::hpack::Decoder;
use lighty_testkit::http2::{
    CANCEL, END_HEADERS, END_STREAM, Http2, Http2Frame, block, frame, kind,
};
use lighty_testkit::real::nginx::Nginx;
use lighty_testkit::server::{Server, Setup, write_file};
use lighty_testkit::tls::Authority;
use lighty_testkit::{lighty, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

/// Server with HTTP/2 backends.
fn front(backends: &str) -> Setup {
    lighty!()
        .config("proxy-core.protocol = \"h2\"\nproxy-core.hold-time = 0")
        .config(&format!("proxy-core.backends = ( \"{backends}\" )"))
}

/// A server in front of a server that has this backend: HTTP/2 is between the two.
fn chain(backend: &Backend, near: &str, far: &str) -> (Server, Server) {
    let middle = lighty!().in_front_of(&backend.name()).config(far).start();
    let front = front(&middle.address().to_string()).config(near).start();
    (front, middle)
}

#[test]
fn nginx_serves_many_requests_on_a_connection() {
    let setup = lighty!();
    let authority = Authority::new(setup.directory());
    authority.issue("backend.pem", &["127.0.0.1"]);
    let root = setup.directory().to_owned();
    write_file(&root.join("small.txt"), "small\n");
    write_file(&root.join("large.bin"), pattern(0, 5 << 20));
    let pem = authority.path("backend.pem");
    let (ca, pem) = (authority.path("ca.pem"), pem.display());
    let tls = format!("ssl_certificate {pem};\nssl_certificate_key {pem};\n");
    for (how, lines, scheme) in [(" http2", "", ""), (" ssl http2", &*tls, "https://")] {
        let seen = "add_header X-Seen \"$connection $http2\" always;";
        let Some(nginx) = Nginx::start_with(how, &root, &format!("{lines}{seen}")) else { return };
        let server = front(&format!("{scheme}{}", nginx.listen().address()))
            .config(&format!("proxy-core.tls-ca-file = \"{}\"", ca.display()))
            .start();
        let get = |target: &str| {
            let response = server.get(target);
            assert_eq!(response.status, 200, "{how}: {response:?}\n{}", server.log());
            response
        };
        let connections: BTreeSet<String> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..20).map(|_| scope.spawn(|| get("/small.txt"))).collect();
            let seen = |response: lighty_testkit::response::Response| {
                assert_eq!(response.text(), "small\n");
                response.field("X-Seen").expect("a field").to_owned()
            };
            asking.into_iter().map(|one| seen(one.join().expect("a response"))).collect()
        });
        assert!(connections.len() == 1 && connections.iter().all(|c| c.contains(" h2")), "{how}");
        assert!(get("/large.bin").body == pattern(0, 5 << 20), "{how}");
        let part = server.get_with("/large.bin", "Range: bytes=1000000-3000000\r\n");
        assert!(part.status == 206 && part.body == pattern(1_000_000, 2_000_001), "{how}");
        assert_eq!(server.get("/missing").status, 404, "{how}");
        let mut client = server.connect();
        client.send("HEAD /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.response_to_head();
        assert_eq!(head.field("Content-Length"), Some("5242880"), "{how}: {head:?}");
        let tag = get("/small.txt").field("ETag").expect("a tag").to_owned();
        let unchanged = server.get_with("/small.txt", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(unchanged.status, 304, "{how}");
    }
}

fn echo(received: &RequestSeen) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", received.body.len());
    [head.into_bytes(), received.body.clone()].concat()
}

#[test]
fn requests_and_bodies_arrive_as_they_were_sent() {
    let backend = Backend::replying(echo);
    let (front, _middle) = chain(&backend, "", "");
    for bytes in [0, 1, 16_384, 5 << 20] {
        let body = pattern(3, bytes);
        let length = format!("Content-Length: {bytes}\r\nX-Own: a b");
        assert!(front.post("/up?q=%20x", &length, &body) == body, "{bytes}");
        let received = backend.requests().pop().expect("a request");
        assert_eq!(
            (received.line(), received.field("X-Own")),
            ("POST /up?q=%20x HTTP/1.1", Some("a b"))
        );
        assert_eq!(received.field("Host"), Some("a"));
        let mut client = front.connect();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(lighty_testkit::content::chunked(&body, 70_000));
        assert!(client.response().body == body, "{bytes}, chunked");
    }
}

#[test]
fn interim_responses_and_trailers_pass_both_ways() {
    let backend = Backend::start(|peer| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
            peer.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\
                 X-Sum: 7\r\n\r\n",
            );
        }
    });
    let trailers = "proxy-core.trailers = \"enable\"";
    let (front, _middle) = chain(&backend, trailers, trailers);
    let mut client = Http2::connect(front.address());
    let mut fields = client.request_fields("POST", "/");
    fields.push(("te".into(), "trailers".into()));
    let stream = client.open(&fields, false);
    client.send_data(stream, b"up", false);
    let trailer = block(&[("x-digest".into(), "9".into())]);
    client.send_frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &trailer);
    let got = client.answer(stream);
    assert_eq!((got.status, got.text()), (200, "body".into()));
    assert_eq!(got.interim.first().map(|(status, _)| *status), Some(103));
    assert_eq!(got.trailers, [("x-sum".into(), "7".into())]);
    let received = backend.requests().pop().expect("a request");
    assert_eq!(
        (&received.body[..], received.trailers),
        (&b"up"[..], vec!["x-digest: 9".to_owned()])
    );
}

#[test]
fn both_directions_flow_at_the_same_time() {
    let backend = Backend::start(|peer| {
        let Some(_) = peer.head() else { return };
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        // Echoes each chunk of five bytes before the next one arrives.
        while let Some(chunk) = peer.read_exact(3 + 5 + 2) {
            peer.send(chunk);
        }
    });
    let (front, _middle) = chain(&backend, "", "");
    let mut client = Http2::connect(front.address());
    let fields = client.request_fields("POST", "/");
    let stream = client.open(&fields, false);
    for nth in 1..=5 {
        client.send_data(stream, b"piece", false);
        let got = client.read_until(stream, |got| got.body.len() >= nth * 5);
        assert_eq!((got.status, got.body.len()), (200, nth * 5), "{nth}: {got:?}");
    }
    // A client's cancellation reaches the backend: its connection ends with the client's stream.
    assert_eq!(backend.open(), 1);
    client.reset(stream, 8);
    assert!(wait_until(PATIENCE, || backend.open() == 0));
}

#[test]
fn more_requests_than_streams_have_more_connections() {
    let backend = Backend::start(|peer| {
        while peer.request().is_some() {
            std::thread::sleep(Duration::from_millis(100));
            peer.answer("done");
        }
    });
    let (front, _middle) = chain(&backend, "", "http2.max-streams = 2");
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..7).map(|_| scope.spawn(|| front.get("/"))).collect();
        for one in asking {
            let response = one.join().expect("a response");
            assert_eq!((response.status, response.text()), (200, "done"), "{}", front.log());
        }
    });
    assert!(!front.log().contains("down"), "{}", front.log());
}

/// A backend's end of a connection, frame by frame.
struct Far<'a> {
    peer: &'a mut Peer,
    decoder: Decoder,
}

impl<'a> Far<'a> {
    fn new(peer: &'a mut Peer) -> Option<Self> {
        peer.read_exact(24)?;
        peer.send(frame(kind::SETTINGS, 0, 0, &[]));
        Some(Self { peer, decoder: Decoder::default() })
    }

    fn frame(&mut self) -> Option<Http2Frame> {
        let head = self.peer.read_exact(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let payload = self.peer.read_exact(length)?;
        Some(Http2Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The stream of the next request, and its fields.
    fn request(&mut self) -> Option<(u32, Vec<(String, String)>)> {
        loop {
            let frame = self.frame()?;
            match frame.kind {
                kind::HEADERS => return Some((frame.stream, self.decoder.decode(&frame.payload))),
                kind::SETTINGS if frame.flags == 0 => {
                    self.peer.send(lighty_testkit::http2::frame(kind::SETTINGS, 1, 0, &[]));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.peer.send(frame(kind, flags, stream, payload));
    }

    fn respond(&mut self, stream: u32, text: &str) {
        let head = block(&[(":status".into(), "200".into())]);
        self.send(kind::HEADERS, END_HEADERS, stream, &head);
        self.send(kind::DATA, END_STREAM, stream, text.as_bytes());
    }
}

const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];

#[test]
fn a_response_that_is_cut_is_not_taken_for_whole() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let Some((stream, fields)) = far.request() else { return };
        let head = block(&[(":status".into(), "200".into())]);
        far.send(kind::HEADERS, END_HEADERS, stream, &head);
        far.send(kind::DATA, 0, stream, b"part");
        if fields.contains(&(":path".into(), "/reset".into())) {
            far.send(kind::RST_STREAM, 0, stream, &[0, 0, 0, 2]);
            far.frame();
        }
    });
    let server = front(&backend.name()).start();
    for target in ["/reset", "/closed"] {
        let mut client = Client::tcp(server.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let got = client.try_response(false);
        assert!(got.is_err(), "{target}: {got:?}");
    }
    server.await_log("the backend's response ended early");
}

#[test]
fn a_backend_that_speaks_something_else_is_named() {
    let http1 = Backend::replying(|_| answer("200 OK", "", "lines"));
    let speaks = |peer: &mut Peer| {
        peer.read_exact(24);
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        peer.hang();
    };
    let clear = Backend::start(speaks);
    let server = front(&clear.name()).start();
    assert_eq!(server.get("/").status, 502);
    server.await_log("HTTP/2: ");
    let setup = lighty!();
    let authority = Authority::new(setup.directory());
    authority.issue("backend.pem", &["127.0.0.1"]);
    let tls = Backend::start_tls(&authority.server("backend.pem"), |peer| {
        peer.respond_to_all("lines");
    });
    let ca = format!("proxy-core.tls-ca-file = \"{}\"", authority.path("ca.pem").display());
    let server = front(&format!("https://{}", tls.name())).config(&ca).start();
    assert_eq!(server.get("/").status, 502);
    server.await_log("it does not speak HTTP/2");
    drop(http1);
}
