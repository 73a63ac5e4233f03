//! Idle connections to backends, which the backend closes just when a request arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;

fn front(backend: &Backend, lines: &str) -> Server {
    lighty!()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
        .config(lines)
        .start()
}

/// Sends a request with a body of `body_bytes`; returns its status.
fn ask(server: &Server, method: &str, body_bytes: usize) -> u16 {
    let mut client = server.connect();
    // Behind the body of a GET, even an empty one, no connection is kept.
    let length = match method {
        "GET" => String::new(),
        _ => format!("Content-Length: {body_bytes}\r\n"),
    };
    client.send(format!("{method} /a HTTP/1.1\r\nHost: a\r\n{length}\r\n"));
    client.send(vec![b'b'; body_bytes]);
    client.response().status
}

/// Ends of connections on which no request got a response.
#[derive(Default)]
struct Ended {
    /// Before any byte of the request came.
    before: AtomicUsize,
    /// With bytes of it unread.
    behind: AtomicUsize,
}

/// Closes every second connection as soon as it is accepted.
fn ends_every_second() -> (Backend, Arc<Ended>) {
    let ended = Arc::new(Ended::default());
    let counts = Arc::clone(&ended);
    let backend = Backend::start(move |peer| {
        if peer.number() % 2 == 1 {
            return peer.respond_to_all("taken");
        }
        let count = if peer.end() { &counts.behind } else { &counts.before };
        count.fetch_add(1, Ordering::SeqCst);
        peer.hang();
    });
    (backend, ended)
}

/// Each POST is sent on a connection that the backend ends at the same moment. If its bytes were
/// faster, its fate is unknown. Otherwise it must get a response, and is executed once.
#[test]
fn a_post_that_met_the_end_of_its_connection_is_sent_again() {
    let (backend, ended) = ends_every_second();
    let server = front(&backend, "proxy-core.max-keep-alive-requests = 0");
    let (mut taken, mut failed) = (0, 0);
    let until = Instant::now() + Duration::from_secs(60);
    while taken + failed < 60 || ended.before.load(Ordering::SeqCst) < 3 {
        assert!(Instant::now() < until, "no connection ended before its request came");
        match ask(&server, "POST", 5) {
            200 => taken += 1,
            502 => failed += 1,
            status => panic!("{status}: {}", server.log()),
        }
    }
    // The client may have its response before the backend has looked.
    let counted = || ended.before.load(Ordering::SeqCst) + ended.behind.load(Ordering::SeqCst);
    assert!(wait_until(Duration::from_secs(60), || counted() == backend.opened().div_ceil(2)));
    let behind = ended.behind.load(Ordering::SeqCst);
    assert_eq!(failed, behind, "{taken} taken, {}", server.log());
    assert_eq!(backend.requests().len(), taken, "{}", server.log());
}

/// A request with a single try does not use a connection that its backend may be about to close.
/// This does not increase the number of idle connections.
#[test]
fn a_request_with_one_try_takes_no_connection_that_rested_long() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    let mut expected = Vec::new();
    for (method, body_bytes, connection) in [
        ("GET", 0, 0),
        ("POST", 5, 1),
        // A retriable request may use any connection.
        ("PUT", 5, 1),
        // More than is kept for another try.
        ("PUT", 100_000, 2),
        ("GET", 0, 2),
    ] {
        assert_eq!(ask(&server, method, body_bytes), 200, "{}", server.log());
        expected.push(connection);
        assert!(wait_until(Duration::from_secs(60), || backend.open() == 1));
        std::thread::sleep(Duration::from_millis(600));
    }
    let connections: Vec<usize> = backend.requests().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, expected);
}

#[test]
fn a_connection_rests_no_longer_than_its_backend_says() {
    let keeps = |timeout_s: u32| {
        Backend::replying(move |_| {
            answer("200 OK", &format!("Keep-Alive: timeout={timeout_s}, max=9\r\n"), "ok")
        })
    };
    let backend = keeps(0);
    let server = front(&backend, "");
    for connection in 0..3 {
        assert_eq!(server.get("/a").status, 200);
        assert_eq!(backend.requests().last().map(|seen| seen.connection), Some(connection));
    }
    let backend = keeps(1);
    let server = front(&backend, "proxy-core.max-idle-time = 600");
    assert_eq!(server.get("/a").status, 200);
    assert!(wait_until(Duration::from_secs(30), || backend.open() == 0));
}
