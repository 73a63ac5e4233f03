//! Backends that speak HTTP/2: over TLS, and with prior knowledge.

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

/// A backend that announces a window of its own and gives credit once as many bytes as `credits_at`
/// have come. It responds with how many there were.
fn counting(settings: &'static [u8], credits_at: usize) -> Backend {
    Backend::start(move |peer| {
        if peer.read_exact(24).is_none() {
            return;
        }
        peer.send(frame(kind::SETTINGS, 0, 0, settings));
        let mut far = Far { peer, decoder: Decoder::default() };
        let (mut counted, mut uncredited) = (0, 0);
        while let Some(got) = far.frame() {
            match got.kind {
                kind::SETTINGS if got.flags == 0 => far.send(kind::SETTINGS, 1, 0, &[]),
                kind::HEADERS => (counted, uncredited) = (0, 0),
                kind::DATA => {
                    counted += got.payload.len();
                    uncredited += got.payload.len();
                    if got.flags & END_STREAM != 0 {
                        far.respond(got.stream, &counted.to_string());
                    } else if uncredited >= credits_at {
                        let credit = (uncredited as u32).to_be_bytes();
                        far.send(kind::WINDOW_UPDATE, 0, 0, &credit);
                        far.send(kind::WINDOW_UPDATE, 0, got.stream, &credit);
                        uncredited = 0;
                    }
                }
                _ => {}
            }
        }
    })
}

#[test]
fn upload_goes_on_where_the_window_of_the_stream_is_small() {
    // SETTINGS_INITIAL_WINDOW_SIZE of 100, and credit as content comes.
    let backend = counting(&[0, 4, 0, 0, 0, 100], 1);
    let server = front(&backend.name()).start();
    for bytes in [100, 101, 1000] {
        let got = server.post("/", &format!("Content-Length: {bytes}"), &pattern(1, bytes));
        assert_eq!(got, bytes.to_string().into_bytes(), "{}", server.log());
    }
}

#[test]
fn upload_goes_on_where_the_window_of_the_connection_is_used_up() {
    let backend = counting(&[0, 4, 0, 1, 0, 0], 65_535);
    let server = front(&backend.name()).start();
    let body = pattern(1, 65_550);
    let got = server.post("/", "Content-Length: 65550", &body);
    assert_eq!(got, b"65550", "{}", server.log());
}

/// All of the request is at hand, and the backend's window lets none of its content go.
#[test]
fn backend_without_a_window_is_timed_by_the_write_timeout() {
    let backend = counting(&[0, 4, 0, 0, 0, 0], usize::MAX);
    let timeouts = "proxy-core.write-timeout = 1\nproxy-core.read-timeout = 60";
    let server = front(&backend.name()).config(timeouts).start();
    for (bytes, is_chunked) in [(5, false), (300_000, false), (5, true), (300_000, true)] {
        let body = pattern(1, bytes);
        let mut client = server.connect();
        client.set_deadline(PATIENCE);
        if is_chunked {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            client.send(lighty_testkit::content::chunked(&body, 70_000));
        } else {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
            client.send(head);
            client.send(&body);
        }
        assert_eq!(client.response().status, 504, "{bytes}, chunked: {is_chunked}");
    }
    let lines = || server.log().matches("proxy-core.write-timeout ran out").count();
    assert!(wait_until(PATIENCE, || lines() >= 4), "{}", server.log());
    assert_eq!(lines(), 4, "{}", server.log());
}

/// Backend that opens its windows by one byte every 400 ms, `bytes` times. Then it responds if
/// `responds` is set.
fn trickling(bytes: u32, responds: bool) -> Backend {
    Backend::start(move |peer| {
        if peer.read_exact(24).is_none() {
            return;
        }
        peer.send(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        let mut far = Far { peer, decoder: Decoder::default() };
        let Some((stream, _)) = far.request() else { return };
        for _ in 0..bytes {
            std::thread::sleep(Duration::from_millis(400));
            far.send(kind::WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes());
        }
        while let Some(got) = far.frame() {
            if got.kind == kind::DATA && got.flags & END_STREAM != 0 && responds {
                far.respond(stream, "done");
            }
        }
    })
}

#[test]
fn write_timeout_starts_over_with_each_byte_that_the_backend_takes() {
    let backend = trickling(5, true);
    // The read timeout begins when the backend has the request.
    for timeouts in ["write-timeout = 1\nproxy-core.read-timeout = 60", "read-timeout = 1"] {
        let server = front(&backend.name()).config(&format!("proxy-core.{timeouts}")).start();
        let got = server.post("/", "Content-Length: 5", b"hello");
        assert_eq!(got, b"done", "{timeouts}: {}", server.log());
    }
}

#[test]
fn read_timeout_begins_when_the_window_has_opened() {
    let backend = trickling(5, false);
    let timeouts = "proxy-core.write-timeout = 60\nproxy-core.read-timeout = 1";
    let server = front(&backend.name()).config(timeouts).start();
    let watch = std::time::Instant::now();
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 504);
    let took = watch.elapsed();
    assert!(took > Duration::from_secs(3) && took < PATIENCE, "{took:?}");
    server.await_log("proxy-core.read-timeout ran out");
}

/// The same behind the head of a response, which an upload may go on beside.
#[test]
fn write_timeout_holds_behind_the_head_of_a_response() {
    let backend = Backend::start(|peer| {
        if peer.read_exact(24).is_none() {
            return;
        }
        peer.send(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        let mut far = Far { peer, decoder: Decoder::default() };
        let Some((stream, _)) = far.request() else { return };
        far.send(kind::HEADERS, END_HEADERS, stream, &block(&[(":status".into(), "200".into())]));
        while far.frame().is_some() {}
    });
    let timeouts = "proxy-core.write-timeout = 1\nproxy-core.read-timeout = 60";
    let server = front(&backend.name()).config(timeouts).start();
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response_head().status, 200);
    server.await_log("proxy-core.write-timeout");
}

/// Lifetime of the connection to a backend with this behaviour, from the request on.
fn lifetime(config: &str, act: impl Fn(&mut Far<'_>, u32) + Send + Sync + 'static) -> Duration {
    let (tell, reported) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let backend = Backend::start(move |peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let begun = std::time::Instant::now();
        while let Some(got) = far.frame() {
            if got.kind == kind::HEADERS {
                act(&mut far, got.stream);
            }
        }
        let _ = tell.lock().expect("the sender").send(begun.elapsed());
    });
    let server = front(&backend.name()).config(config).start();
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    reported.recv_timeout(2 * PATIENCE).expect("the connection ends")
}

#[test]
fn backend_that_does_not_acknowledge_settings_is_given_up() {
    // `Far` acknowledges no SETTINGS by itself.
    let lived = lifetime("", |far, stream| far.respond(stream, "fine"));
    assert!(lived >= Duration::from_secs(9) && lived < Duration::from_secs(25), "{lived:?}");
}

#[test]
fn backend_that_does_not_end_its_head_is_given_up() {
    let config = "proxy-core.ping-interval = 3600\nproxy-core.read-timeout = 3600";
    let lived = lifetime(config, |far, stream| {
        far.send(kind::SETTINGS, 1, 0, &[]);
        far.send(kind::HEADERS, 0, stream, &block(&[(":status".into(), "200".into())]));
    });
    assert!(lived >= Duration::from_secs(29) && lived < Duration::from_secs(50), "{lived:?}");
}

#[test]
fn idle_connections_are_kept_up_to_the_limit() {
    for (config, connections) in [("proxy-core.max-idle-connections = 0", 3), ("", 1)] {
        let backend = Backend::start(|peer| {
            let Some(mut far) = Far::new(peer) else { return };
            while let Some((stream, _)) = far.request() {
                far.respond(stream, "one");
            }
        });
        let server = front(&backend.name()).config(config).start();
        for nth in 0..3 {
            assert_eq!(server.get("/").text(), "one", "{}", server.log());
            let wanted = if config.is_empty() { 1 } else { 0 };
            assert!(wait_until(PATIENCE, || backend.open() == wanted), "{config} {nth}");
        }
        assert_eq!(backend.opened(), connections, "{config}");
    }
}

#[test]
fn body_that_is_sent_again_ends_its_stream() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let mut requests = 0;
        while let Some(got) = far.frame() {
            match got.kind {
                kind::SETTINGS if got.flags == 0 => far.send(kind::SETTINGS, 1, 0, &[]),
                kind::HEADERS => requests += 1,
                _ => {}
            }
            let is_request = [kind::HEADERS, kind::DATA].contains(&got.kind);
            if !is_request || got.flags & END_STREAM == 0 {
                continue;
            }
            match requests % 2 {
                0 => far.respond(got.stream, "whole"),
                _ => far.send(kind::RST_STREAM, 0, got.stream, &REFUSED_STREAM),
            }
        }
    });
    let server = front(&backend.name()).config("proxy-core.read-timeout = 5").start();
    for body in ["hi", ""] {
        let length = format!("Content-Length: {}", body.len());
        let text = server.post("/", &length, body.as_bytes());
        assert_eq!(text, b"whole", "{length}: {}", server.log());
        let chunked = lighty_testkit::content::chunked(body.as_bytes(), 1);
        let text = server.post("/", "Transfer-Encoding: chunked", &chunked);
        assert_eq!(text, b"whole", "chunked {body:?}: {}", server.log());
    }
}

/// GOAWAY names a stream below the request's stream; the body was sent already.
#[test]
fn body_that_goaway_refuses_is_sent_again() {
    let backend = Backend::start(|peer| {
        let leaves = peer.number().is_multiple_of(2);
        let Some(mut far) = Far::new(peer) else { return };
        let mut counted = 0;
        while let Some(got) = far.frame() {
            match got.kind {
                kind::SETTINGS if got.flags == 0 => far.send(kind::SETTINGS, 1, 0, &[]),
                kind::DATA => counted += got.payload.len(),
                _ => {}
            }
            let is_request = [kind::HEADERS, kind::DATA].contains(&got.kind);
            if !is_request || got.flags & END_STREAM == 0 {
                continue;
            }
            if leaves {
                far.send(kind::GOAWAY, 0, 0, &[0; 8]);
                return;
            }
            far.respond(got.stream, &format!("whole {counted}"));
            // The next request comes on a connection of its own.
            far.send(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
            return;
        }
    });
    let server = front(&backend.name()).config("proxy-core.read-timeout = 5").start();
    for body in ["hi", ""] {
        let wanted = format!("whole {}", body.len()).into_bytes();
        let length = format!("Content-Length: {}", body.len());
        let text = server.post("/", &length, body.as_bytes());
        assert_eq!(text, wanted, "{length}: {}", server.log());
        let chunked = lighty_testkit::content::chunked(body.as_bytes(), 1);
        let text = server.post("/", "Transfer-Encoding: chunked", &chunked);
        assert_eq!(text, wanted, "chunked {body:?}: {}", server.log());
    }
}

#[test]
fn request_that_the_backend_did_not_process_is_sent_again() {
    let refusing = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let mut has_refused = false;
        while let Some((stream, fields)) = far.request() {
            assert!(fields.contains(&(":scheme".into(), "http".into())), "{fields:?}");
            match std::mem::replace(&mut has_refused, true) {
                true => far.respond(stream, "at last"),
                false => far.send(kind::RST_STREAM, 0, stream, &REFUSED_STREAM),
            }
        }
    });
    let leaving = Backend::start(|peer| {
        let is_first = peer.number() == 0;
        let Some(mut far) = Far::new(peer) else { return };
        let Some((stream, _)) = far.request() else { return };
        if is_first {
            far.send(kind::GOAWAY, 0, 0, &[0; 8]);
        } else {
            far.respond(stream, "at last");
        }
        far.frame();
    });
    for backend in [&refusing, &leaving] {
        let server = front(&backend.name()).start();
        let text = server.post("/", "Content-Length: 2", b"hi");
        assert_eq!(text, b"at last", "{}", server.log());
    }
    assert_eq!((refusing.opened(), leaving.opened()), (1, 2));
}

#[test]
fn request_is_sent_to_a_backend_that_refuses_it_n_times_at_most() {
    /// Resends after refused streams, and further ones after connections without a response.
    const RESENDS_MAX: usize = 4 + 2;
    for refusals in [RESENDS_MAX, RESENDS_MAX + 1] {
        let refused = AtomicUsize::new(0);
        let backend = Backend::start(move |peer| {
            let Some(mut far) = Far::new(peer) else { return };
            while let Some((stream, _)) = far.request() {
                match refused.fetch_add(1, Ordering::SeqCst) < refusals {
                    true => far.send(kind::RST_STREAM, 0, stream, &REFUSED_STREAM),
                    false => far.respond(stream, "at last"),
                }
            }
        });
        let server = front(&backend.name()).start();
        let got = server.get("/");
        if refusals == RESENDS_MAX {
            assert_eq!((got.status, got.text()), (200, "at last"), "{}", server.log());
        } else {
            assert_eq!(got.status, 502, "{}", server.log());
            server.await_log(&format!("backend {}: REFUSED_STREAM", backend.address()));
        }
    }
}

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

/// Messages between a gRPC client and its server: framed messages, trailers, and errors in a head.
#[test]
fn grpc_passes() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        while let Some((stream, fields)) = far.request() {
            let has = |name: &str, value: &str| fields.contains(&(name.into(), value.into()));
            assert!(has("te", "trailers") && has("grpc-timeout", "5S"), "{fields:?}");
            let mut head = vec![
                (":status".to_owned(), "200".to_owned()),
                ("content-type".to_owned(), "application/grpc".to_owned()),
            ];
            if has(":path", "/greeter/Missing") {
                head.push(("grpc-status".into(), "12".into()));
                let ends = END_HEADERS | END_STREAM;
                far.send(kind::HEADERS, ends, stream, &block(&head));
                continue;
            }
            far.send(kind::HEADERS, END_HEADERS, stream, &block(&head));
            far.send(kind::DATA, 0, stream, b"\0\0\0\0\x02hi");
            let trailers = block(&[("grpc-status".into(), "0".into())]);
            far.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &trailers);
        }
    });
    let server = front(&backend.name()).start();
    let mut client = Http2::connect(server.address());
    let call = |client: &mut Http2, target: &str| {
        let mut fields = client.request_fields("POST", target);
        for (name, value) in
            [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "5S")]
        {
            fields.push((name.into(), value.into()));
        }
        let stream = client.open(&fields, false);
        client.send_data(stream, b"\0\0\0\0\x01x", true);
        client.answer(stream)
    };
    let output = call(&mut client, "/greeter/Hello");
    assert_eq!(
        (output.status, &output.body[..]),
        (200, &b"\0\0\0\0\x02hi"[..]),
        "{}",
        server.log()
    );
    assert_eq!(output.trailers, [("grpc-status".into(), "0".into())]);
    let missing = call(&mut client, "/greeter/Missing");
    assert_eq!((missing.field("grpc-status").as_deref(), missing.body.len()), (Some("12"), 0));
    assert!(missing.has_ended && missing.trailers.is_empty(), "{missing:?}");
    // Responses of the server itself have the form that the client expects.
    drop(backend);
    let gone = call(&mut client, "/greeter/Hello");
    assert_eq!((gone.status, gone.field("grpc-status").as_deref()), (200, Some("14")), "{gone:?}");
    assert_eq!(gone.field("content-type").as_deref(), Some("application/grpc"));
    assert!(gone.has_ended && gone.body.is_empty() && gone.trailers.is_empty(), "{gone:?}");
}

/// The kinds of the frames of interest that come until this many streams are begun.
fn kinds_until(far: &mut Far<'_>, streams: usize, log: &mut Vec<u8>) -> Option<u32> {
    let mut begun = 0;
    loop {
        let frame = far.frame()?;
        match frame.kind {
            kind::SETTINGS if frame.flags == 0 => far.send(kind::SETTINGS, 1, 0, &[]),
            kind::PING => far.send(kind::PING, 1, 0, &frame.payload),
            _ => {}
        }
        if [kind::PING, kind::HEADERS].contains(&frame.kind) {
            log.push(frame.kind);
        }
        begun += usize::from(frame.kind == kind::HEADERS);
        if begun == streams {
            return Some(frame.stream);
        }
    }
}

#[test]
fn a_backend_that_is_silent_is_asked_whether_it_is_there() {
    let (tell, reported) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let backend = Backend::start(move |peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let mut log = Vec::new();
        let Some(stream) = kinds_until(&mut far, 1, &mut log) else { return };
        // Busy until the first PING arrives.
        while let Some(frame) = far.frame() {
            if frame.kind == kind::PING {
                log.push(kind::PING);
                far.send(kind::PING, 1, 0, &frame.payload);
                break;
            }
        }
        far.respond(stream, "slowly");
        let Some(stream) = kinds_until(&mut far, 1, &mut log) else { return };
        far.respond(stream, "after a rest");
        tell.lock().expect("the sender").send(log).expect("a test");
        peer.hang();
    });
    let interval = Duration::from_millis(200);
    let server = front(&backend.name()).config("proxy-core.ping-interval = \"200ms\"").start();
    assert_eq!(server.get("/").text(), "slowly", "{}", server.log());
    // Longer than the interval, and shorter than the idle timeout.
    std::thread::sleep(2 * interval);
    assert_eq!(server.post("/", "Content-Length: 2", b"hi"), b"after a rest", "{}", server.log());
    let log = reported.recv_timeout(PATIENCE).expect("what came");
    assert_eq!(log[..2], [kind::HEADERS, kind::PING], "while it worked");
    assert_eq!(log[log.len() - 2..], [kind::PING, kind::HEADERS], "before the second request");
    assert_eq!(backend.opened(), 1);
}

/// PING settings for detecting a dead backend.
const PINGS: &str = "proxy-core.ping-interval = \"200ms\"\nproxy-core.ping-timeout = \"2s\"";

const GIVEN_UP: &str = "no reply to PING for 2000 ms, proxy-core.ping-timeout";

/// Backend that cuts off its first connection behind this many responses, plus a head and a part of
/// another one if `begins` is set. Later connections work.
fn vanishing(responses: usize, begins: bool) -> Backend {
    Backend::start(move |peer| {
        let is_first = peer.number() == 0;
        let Some(mut far) = Far::new(peer) else { return };
        let mut answered = 0;
        while let Some((stream, _)) = far.request() {
            if is_first && answered == responses {
                if begins {
                    let head = block(&[(":status".into(), "200".into())]);
                    far.send(kind::HEADERS, END_HEADERS, stream, &head);
                    far.send(kind::DATA, 0, stream, b"part");
                }
                peer.hang();
                return;
            }
            far.respond(stream, "answered");
            answered += 1;
            if is_first && answered == responses {
                peer.hang();
                return;
            }
        }
    })
}

#[test]
fn a_backend_that_is_gone_while_it_works_is_given_up() {
    let backend = vanishing(0, false);
    let server = front(&backend.name()).config(PINGS).start();
    // An idempotent request is retried on another connection.
    assert_eq!(server.get("/").text(), "answered", "{}", server.log());
    assert_eq!(backend.opened(), 2);
    let backend = vanishing(0, false);
    let server = front(&backend.name()).config(PINGS).start();
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(client.response().status, 502, "{}", server.log());
    server.await_log(GIVEN_UP);
    assert_eq!(backend.opened(), 1);
    let backend = vanishing(0, true);
    let server = front(&backend.name()).config(PINGS).start();
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err());
    server.await_log(GIVEN_UP);
}

#[test]
fn no_request_is_lost_to_a_backend_that_went_while_the_connection_rested() {
    let backend = vanishing(1, false);
    let server = front(&backend.name()).config(PINGS).start();
    assert_eq!(server.get("/").text(), "answered");
    std::thread::sleep(Duration::from_millis(400));
    // The backend cannot have seen it: it may be sent again, whatever its method.
    assert_eq!(server.post("/", "Content-Length: 2", b"hi"), b"answered", "{}", server.log());
    assert_eq!(backend.opened(), 2);
}

#[test]
fn a_backend_is_not_asked_where_that_is_not_wanted() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let Some((stream, _)) = far.request() else { return };
        std::thread::sleep(Duration::from_secs(1));
        far.respond(stream, "late");
        // The reply to the PING that was not sent would be lost.
        while let Some(frame) = far.frame() {
            assert_ne!(frame.kind, kind::PING);
        }
    });
    let pings = "proxy-core.ping-interval = 0\nproxy-core.ping-timeout = \"100ms\"";
    let server = front(&backend.name()).config(pings).start();
    assert_eq!(server.get("/").text(), "late", "{}", server.log());
    drop(server);
}

const INTERNAL_ERROR: u32 = 2;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Codes as gRPC libraries understand them: they retry UNAVAILABLE (14).
#[test]
fn codes_of_the_backend_mean_the_same_to_the_client() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        while let Some((stream, fields)) = far.request() {
            let path = fields.iter().find(|(name, _)| name == ":path").map(|(_, path)| path);
            let (place, code) = path.and_then(|path| path[1..].split_once('/')).expect("a code");
            if place == "begun" {
                let head = block(&[(":status".into(), "200".into())]);
                far.send(kind::HEADERS, END_HEADERS, stream, &head);
                far.send(kind::DATA, 0, stream, b"part");
            }
            let code: u32 = code.parse().expect("a code");
            far.send(kind::RST_STREAM, 0, stream, &code.to_be_bytes());
        }
    });
    let server = front(&backend.name()).start();
    let mut client = Http2::connect(server.address());
    let mut ask = |target: &str, content_type: &str| {
        let mut fields = client.request_fields("POST", target);
        fields.push(("content-type".into(), content_type.into()));
        let stream = client.open(&fields, true);
        client.answer(stream)
    };
    for (code, status, grpc, begun) in [
        (0, 502, "13", INTERNAL_ERROR),
        (1, 502, "13", INTERNAL_ERROR),
        (2, 502, "13", INTERNAL_ERROR),
        (7, 502, "14", INTERNAL_ERROR),
        (8, 502, "1", CANCEL),
        (11, 503, "8", ENHANCE_YOUR_CALM),
        (12, 502, "13", INTERNAL_ERROR),
        (13, 502, "13", INTERNAL_ERROR),
    ] {
        assert_eq!(ask(&format!("/new/{code}"), "text/plain").status, status, "{code}");
        let got = ask(&format!("/new/{code}"), "application/grpc");
        assert_eq!(got.field("grpc-status").as_deref(), Some(grpc), "{code}: {got:?}");
        let got = ask(&format!("/begun/{code}"), "application/grpc");
        assert_eq!((got.status, got.reset), (200, Some(begun)), "{code}: {got:?}");
    }
    server.await_log("HTTP_1_1_REQUIRED");
}

/// RFC 9113 section 8.1: the client may stop sending, the response is whole.
#[test]
fn a_response_is_whole_whose_request_is_stopped_behind_it() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        while let Some((stream, _)) = far.request() {
            far.respond(stream, "enough");
            far.send(kind::RST_STREAM, 0, stream, &[0; 4]);
        }
    });
    let server = front(&backend.name()).start();
    let body = vec![b'x'; 1 << 20];
    assert_eq!(server.post("/", &format!("Content-Length: {}", body.len()), &body), b"enough");
    let mut client = Http2::connect(server.address());
    let fields = client.request_fields("POST", "/");
    let stream = client.open(&fields, false);
    client.send_data(stream, &body[..60_000], false);
    let got = client.answer(stream);
    assert_eq!((got.status, got.text().as_str()), (200, "enough"), "{got:?}\n{}", server.log());
    assert!(!server.log().contains("[error]"), "{}", server.log());
}

/// gRPC services cancel calls past their deadline; clients derive the status themselves.
#[test]
fn cancellation_by_the_backend_is_passed_to_the_client() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        while let Some((stream, fields)) = far.request() {
            if fields.contains(&(":path".into(), "/begun".into())) {
                let head = block(&[(":status".into(), "200".into())]);
                far.send(kind::HEADERS, END_HEADERS, stream, &head);
                far.send(kind::DATA, 0, stream, b"part");
            }
            far.send(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
        }
    });
    let server = front(&backend.name()).start();
    let mut client = Http2::connect(server.address());
    for (timeout, status) in [("1n", "4"), ("1H", "1")] {
        let mut fields = client.request_fields("POST", "/");
        for (name, value) in [("content-type", "application/grpc"), ("grpc-timeout", timeout)] {
            fields.push((name.into(), value.into()));
        }
        let stream = client.open(&fields, true);
        let got = client.answer(stream);
        assert_eq!(got.field("grpc-status").as_deref(), Some(status), "{timeout}: {got:?}");
    }
    let fields = client.request_fields("POST", "/");
    let stream = client.open(&fields, true);
    assert_eq!(client.answer(stream).status, 502);
    let fields = client.request_fields("POST", "/begun");
    let stream = client.open(&fields, true);
    let got = client.answer(stream);
    assert_eq!((got.status, got.reset), (200, Some(CANCEL)), "{got:?}");
    assert_eq!(backend.opened(), 1);
    let log = server.log();
    assert!(!log.contains("[error]"), "the backend has made no mistake: {log}");
}
