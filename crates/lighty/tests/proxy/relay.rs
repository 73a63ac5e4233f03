//! Relayed messages: interim responses, responses without bodies, trailers, streams, large bodies
//! both ways, tunnels.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use lighty_testkit::backend::Backend;
use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::gateway::Gateway;
use lighty_testkit::http2::Http2;
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::wait_until;

const SOON: Duration = Duration::from_secs(30);

const UPGRADE: &str = "proxy-core.upgrade = \"enable\"";

/// A server in front of a backend.
fn front(backend: &Backend, lines: &str) -> Server {
    lighty!().in_front_of(&backend.name()).config(lines).start()
}

fn ask(client: &mut Client, version: &str) {
    client.send(format!("GET /x HTTP/{version}\r\nHost: a\r\n\r\n"));
}

#[test]
fn interim_answers_are_passed_on_but_not_without_end() {
    let backend = Backend::start(|peer| {
        while let Some(seen) = peer.request() {
            let many = if seen.target() == "/flood" { 1_000_000 } else { 3 };
            for _ in 0..many {
                if !peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n") {
                    return;
                }
            }
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            peer.answer("done");
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    ask(&mut client, "1.1");
    let got = client.response();
    assert_eq!((got.text(), &got.interim[..]), ("done", &[103; 3][..]));
    let mut old = server.connect();
    ask(&mut old, "1.0");
    let got = old.response();
    assert_eq!((got.text(), &got.interim[..]), ("done", &[][..]));
    let mut flooded = server.connect();
    flooded.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(flooded.response().status, 502);
    server.await_log("interim responses");
    assert_eq!(server.get("/x").text(), "done");
}

#[test]
fn interim_answers_of_gateways_are_passed_on() {
    const OUTPUT: &str = "Status: 103 Early Hints\r\nLink: </a.css>\r\n\r\nStatus: 100\r\n\r\n\
        HTTP/1.1 103 Early Hints\r\nLink: </b.css>\r\n\r\nStatus: 200 OK\r\nX-A: b\r\n\r\ndone";
    for (gateway, directive) in [
        (Gateway::Fastcgi, "fastcgi.server"),
        (Gateway::Scgi, "scgi.server"),
        (Gateway::Uwsgi, "scgi.protocol = \"uwsgi\"\nscgi.server"),
    ] {
        let backend = gateway.printing(OUTPUT);
        let port = backend.address().port();
        let host = format!("\"host\" => \"127.0.0.1\", \"port\" => {port}");
        let keys = "\"check-local\" => \"disable\"";
        let config = format!("{directive} = ( \"/\" => ( ( {host}, {keys} ) ) )");
        let server = lighty!().config(&config).start();
        let mut client = server.connect();
        ask(&mut client, "1.1");
        let got = client.response();
        assert_eq!((got.text(), &got.interim[..]), ("done", &[103; 2][..]), "{gateway:?}");
        assert_eq!((got.field("X-A"), got.field("Link")), (Some("b"), None));
        let mut old = server.connect();
        ask(&mut old, "1.0");
        let got = old.response();
        assert_eq!((got.text(), &got.interim[..]), ("done", &[][..]), "{gateway:?}");
        let got = Http2::connect(server.address()).get("/x");
        let hints: Vec<_> =
            got.interim.iter().map(|(status, fields)| (*status, &*fields[0].1)).collect();
        assert_eq!(hints, [(103, "</a.css>"), (103, "</b.css>")], "{gateway:?}");
        assert_eq!((got.status, &*got.text()), (200, "done"));
    }
}

#[test]
fn a_response_that_ends_for_want_of_the_request_is_blamed_on_the_client() {
    // The backend has begun its response, and breaks off after the last part of the body.
    let backend = Backend::start(|peer| {
        if peer.head().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
            peer.read_exact(b"3\r\nabc\r\n".len());
        }
    });
    let server = front(&backend, "server.errorlog-level = \"info\"");
    let mut client = server.connect();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(client.response_head().status, 200);
    client.send("3\r\nabc\r\nzz\r\n");
    let (got, _) = client.read_to_end();
    assert_eq!(got, b"5\r\nhello\r\n", "{}", got.escape_ascii());
    server.await_log("POST /x");
    let log = server.log();
    assert!(!log.contains("the backend's response ended early"), "{log}");
    assert!(log.contains("[notice] 127.0.0.1: malformed request body"), "{log}");
    assert_eq!(log.matches("POST /x").count(), 1, "one line, one reason: {log}");
}

#[test]
fn expect_100_is_answered_by_the_server_and_not_passed_on() {
    let backend = Backend::answering("got it");
    let server = front(&backend, "");
    let mut client = server.connect();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.interim(), 100);
    client.send("hello");
    assert_eq!(client.response().text(), "got it");
    let seen = backend.requests();
    assert_eq!((seen[0].body.as_slice(), seen[0].field("Expect")), (&b"hello"[..], None));
}

#[test]
fn answers_without_bodies_keep_both_connections() {
    let backend = Backend::start(|peer| {
        while let Some(seen) = peer.request() {
            peer.send(match seen.target() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 7\r\n\r\n",
                "/length" => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
                "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\n\r\n",
            });
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    for target in ["/204", "/304"] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let got = client.response();
        assert_eq!(format!("/{}", got.status), target);
    }
    for (target, length) in [("/length", Some("7")), ("/chunked", None), ("/neither", None)] {
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let got = client.response_to_head();
        assert_eq!((got.status, got.field("Content-Length")), (200, length), "{target}");
    }
    let mut old = server.connect();
    old.send("HEAD /neither HTTP/1.0\r\n\r\n");
    let got = old.response_to_head();
    assert_eq!((got.field("Content-Length"), got.field("Transfer-Encoding")), (None, None));
    assert_eq!(backend.opened(), 1, "each response left a connection for the next");
}

#[test]
fn fields_that_the_server_adds_are_not_there_twice() {
    let backend = Backend::after_request(|peer| {
        peer.send(
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: them\r\n\
             Connection: close\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok",
        );
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    ask(&mut client, "1.1");
    let got = client.response();
    assert_eq!(got.field("Date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_eq!((got.field("Server"), got.field("Connection")), (Some("them"), None));
    assert_eq!(got.field("Keep-Alive"), None);
}

#[test]
fn trailers_go_both_ways() {
    let backend = Backend::start(|peer| {
        while peer.request().is_some() {
            peer.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\
                 X-Sum: 1\r\nContent-Length: 9\r\n\r\n",
            );
        }
    });
    let server = front(&backend, "proxy-core.trailers = \"enable\"");
    let mut client = server.connect();
    client.send(
        "POST /x HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Digest: 7\r\nHost: evil\r\n\r\n",
    );
    let got = client.response();
    assert_eq!((got.text(), got.trailers.join("\n").as_str()), ("ok", "X-Sum: 1"));
    let seen = backend.requests();
    assert_eq!(seen[0].trailers, ["X-Digest: 7"]);
    assert_eq!((seen[0].field("TE"), seen[0].field("Connection")), (Some("trailers"), Some("TE")));
    ask(&mut client, "1.1");
    let got = client.response();
    assert_eq!((got.text(), got.trailers.len()), ("ok", 0), "only who asks gets trailers");
    assert_eq!(backend.opened(), 1);
}

#[test]
fn events_arrive_as_they_are_sent() {
    let (next, turns) = mpsc::channel::<()>();
    let turns = std::sync::Mutex::new(turns);
    let backend = Backend::after_request(move |peer| {
        peer.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
        );
        let turns = turns.lock().expect("nobody panics");
        while turns.recv_timeout(SOON).is_ok() {
            if !peer.send("9\r\ndata: 1\n\n\r\n") {
                return;
            }
        }
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    ask(&mut client, "1.1");
    assert_eq!(client.response_head().field("Content-Type"), Some("text/event-stream"));
    for _ in 0..20 {
        let start = Stopwatch::start(&server);
        next.send(()).expect("the backend listens");
        assert_eq!(client.read_exact(14).expect("an event"), b"9\r\ndata: 1\n\n\r\n");
        assert!(start.took() < Duration::from_millis(500), "{:?}", start.took());
    }
    // The backend would wait for its next turn, and its end for that.
    drop(next);
}

#[test]
fn a_slow_reader_holds_its_backend_back() {
    const PIECE: usize = 64 << 10;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let backend = Backend::after_request(move |peer| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        while peer.send(vec![b'x'; PIECE]) {
            count.fetch_add(PIECE, Ordering::SeqCst);
        }
    });
    let server = front(&backend, "");
    let mut client = Client::tcp_with_receive_buffer(server.address(), 16 << 10);
    ask(&mut client, "1.1");
    assert_eq!(client.response_head().status, 200);
    // The transfer stalls by itself, because the buffers of the kernel and the server are bounded.
    let still = || {
        let before = sent.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        sent.load(Ordering::SeqCst) == before
    };
    assert!(wait_until(Duration::from_secs(15), still));
    assert!(sent.load(Ordering::SeqCst) < 64 << 20, "{}", sent.load(Ordering::SeqCst));
    assert!(server.peak_resident_kib() < 64 << 10, "{} KiB", server.peak_resident_kib());
    assert_eq!(client.read_exact(1 << 20).expect("it goes on").len(), 1 << 20);
}

/// Size of a large transfer: 512 MB, or `LIGHTY_TEST_TRANSFER_MB`.
fn transfer_bytes() -> u64 {
    let megabytes = std::env::var("LIGHTY_TEST_TRANSFER_MB").ok();
    megabytes.map_or(512, |text| text.parse().expect("megabytes")) << 20
}

#[test]
fn large_bodies_go_both_ways_in_constant_memory() {
    let bytes = transfer_bytes();
    let backend = Backend::start(move |peer| {
        while let Some(seen) = peer.head() {
            let upload: u64 =
                seen.field("Content-Length").map_or(0, |l| l.parse().expect("length"));
            let got = peer.skip(upload);
            if upload > 0 {
                peer.answer(&got.to_string());
                continue;
            }
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n"));
            let piece = vec![b'x'; 256 << 10];
            let mut left = bytes;
            while left > 0 {
                let count = left.min(piece.len() as u64);
                if !peer.send(&piece[..count as usize]) {
                    return;
                }
                left -= count;
            }
        }
    });
    let server = front(&backend, "server.max-request-size = 0");
    let mut client = server.connect();
    ask(&mut client, "1.1");
    assert_eq!(client.response_head().field("Content-Length"), Some(bytes.to_string().as_str()));
    let mut left = bytes;
    while left > 0 {
        let count = left.min(4 << 20);
        client.read_exact(count as usize).expect("the body goes on");
        left -= count;
    }
    client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"));
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..bytes >> 20 {
        client.send(&piece);
    }
    assert_eq!(client.response().text(), bytes.to_string());
    assert!(server.peak_resident_kib() < 64 << 10, "{} KiB", server.peak_resident_kib());
    assert_eq!(backend.opened(), 1);
}

#[test]
fn an_upload_leaves_others_their_turn() {
    let backend = Backend::start(|peer| {
        while let Some(seen) = peer.head() {
            let length = seen.field("Content-Length").map_or(0, |l| l.parse().expect("a length"));
            peer.skip(length);
            peer.answer("ok");
        }
    });
    let server = front(&backend, "server.max-request-size = 0");
    let address = server.address();
    let upload = std::thread::spawn(move || {
        let mut client = Client::tcp(address);
        let piece = vec![b'x'; 1 << 20];
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 268435456\r\n\r\n");
        (0..256).for_each(|_| client.send(&piece));
        assert_eq!(client.response().text(), "ok");
    });
    let mut worst = Duration::ZERO;
    while !upload.is_finished() {
        let start = Stopwatch::start(&server);
        assert_eq!(server.get("/other").text(), "ok");
        worst = worst.max(start.took());
    }
    upload.join().expect("the upload is answered");
    assert!(worst < Duration::from_millis(500), "another request took {worst:?}");
}

#[test]
fn tunnels_carry_both_ways_with_half_closes() {
    let backend = Backend::start(|peer| {
        let Some(seen) = peer.request() else { return };
        assert_eq!(seen.field("Upgrade"), Some("echo"));
        assert_eq!(seen.field("Connection"), Some("upgrade"));
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhi",
        );
        // The client ends its half; the response is still to come.
        let mut got = Vec::new();
        while let Some(byte) = peer.read_exact(1) {
            got.extend(byte);
        }
        peer.send(got);
    });
    let server = front(&backend, UPGRADE);
    let mut client = server.connect();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly,");
    let head = client.response_head();
    assert_eq!((head.status, head.field("Upgrade")), (101, Some("echo")));
    assert_eq!(client.read_exact(2).expect("what came with the head"), b"hi");
    client.send("late");
    client.half_close();
    assert_eq!(client.read_to_end(), (b"early,late".to_vec(), ConnectionEnd::Closed));
    assert!(wait_until(SOON, || backend.open() == 0));
}

#[test]
fn an_idle_tunnel_is_closed_on_time() {
    let (ended, ends) = mpsc::channel();
    let ended = std::sync::Mutex::new(ended);
    let backend = Backend::after_request(move |peer| {
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n",
        );
        peer.hang();
        let _ = ended.lock().expect("nobody panics").send(());
    });
    let server = front(&backend, &format!("{UPGRADE}\nproxy-core.tunnel-timeout = 1"));
    let mut client = server.connect();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.response_head().status, 101);
    let start = Instant::now();
    client.expect_end();
    assert!((800..3500).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    ends.recv_timeout(SOON).expect("the backend's side is closed too");
}

#[test]
fn a_tunnel_ends_when_either_side_is_lost() {
    for by_client in [true, false] {
        let backend = Backend::after_request(move |peer| {
            peer.send(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: e\r\nConnection: Upgrade\r\n\r\n",
            );
            if by_client {
                peer.hang();
            } else {
                peer.read_exact(1);
                peer.reset();
            }
        });
        let server = front(&backend, UPGRADE);
        let mut client = server.connect();
        client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: e\r\n\r\n");
        assert_eq!(client.response_head().status, 101);
        if by_client {
            client.reset();
        } else {
            client.send("x");
            client.expect_end();
        }
        assert!(wait_until(SOON, || backend.open() == 0), "by the client: {by_client}");
    }
}

#[test]
fn a_switch_to_another_protocol_than_the_one_asked_for_is_answered_502() {
    for (agreed, status) in
        [("echo", 101), ("ECHO", 101), ("other", 101), ("echo, h2c", 502), ("h2c", 502), (",", 502)]
    {
        let backend = Backend::after_request(move |peer| {
            peer.send(format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: {agreed}\r\nConnection: Upgrade\r\n\r\n"
            ));
            peer.hang();
        });
        let server = front(&backend, UPGRADE);
        let mut client = server.connect();
        client.send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n");
        client.send("Upgrade: x, other\r\n\r\n");
        let head = client.response_head();
        assert_eq!(head.status, status, "{agreed}: {}", server.log());
    }
}

#[test]
fn a_head_with_bare_line_feeds_is_read_unless_that_is_forbidden() {
    let backend = Backend::after_request(|peer| {
        peer.send("HTTP/1.1 200 OK\nX: y\r\nContent-Length: 5\n\nhello");
    });
    let server = front(&backend, "");
    let got = server.get("/x");
    assert_eq!((got.status, got.text(), got.field("X")), (200, "hello", Some("y")));
    let server = front(&backend, "proxy-core.strict-lines = \"enable\"");
    assert_eq!(server.get("/x").status, 502);
    server.await_log("a line feed without a carriage return ends a line");
}

#[test]
fn ten_thousand_chunks_of_one_byte_pass() {
    const CHUNKS: usize = 10_000;
    let backend = Backend::answering("done");
    let server = front(&backend, "");
    let mut client = server.connect();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("1\r\nx\r\n".repeat(CHUNKS));
    client.send("0\r\n\r\n");
    assert_eq!(client.response().text(), "done");
    assert_eq!(backend.requests()[0].body.len(), CHUNKS);
}

/// Chunk extensions are ignored, and leading zeros carry no value.
#[test]
fn chunks_of_backends_may_have_empty_extensions_and_leading_zeros() {
    let sizes = ["5;", "5 ;", "5; ", "5\t; x = y ", "5;;", "5 ", "000000000000000000005", "05;a=b"];
    let backend = Backend::replying(move |seen| {
        let at: usize = seen.target()[1..].parse().expect("a number");
        let (size, zeros) = (sizes[at], "0".repeat(30));
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{head}{size}\r\nhello\r\n{zeros};\r\n\r\n").into_bytes()
    });
    let server = front(&backend, "");
    let mut client = server.connect();
    for (at, size) in sizes.iter().enumerate() {
        client.send(format!("GET /{at} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, "hello"), "{size:?}");
    }
    assert_eq!(backend.opened(), 1, "their ends are found");
}
