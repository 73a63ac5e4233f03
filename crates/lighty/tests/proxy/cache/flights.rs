//! Requests that wait for one fetch.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::response::Response;
use lighty_testkit::wait_until;

use super::{FRESH, caching};

const SOON: Duration = Duration::from_secs(30);

/// Sends a request on each of so many connections.
fn ask(server: &lighty_testkit::server::Server, count: usize, target: &str) -> Vec<Client> {
    let ask_one = |_| {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        client
    };
    (0..count).map(ask_one).collect()
}

/// A backend that answers once a gate is open.
fn gated(fields: &'static str) -> (Backend, Arc<Barrier>) {
    let gate = Arc::new(Barrier::new(2));
    let own = Arc::clone(&gate);
    let count = AtomicU32::new(0);
    let backend = Backend::replying(move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        if number == 1 {
            own.wait();
        }
        answer("200 OK", fields, &format!("answer {number}"))
    });
    (backend, gate)
}

#[test]
fn one_request_fetches_for_all() {
    let (backend, gate) = gated(FRESH);
    let server = caching(&backend, "server.max-worker := 2");
    let mut clients = ask(&server, 200, "/");
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    gate.wait();
    for client in &mut clients {
        let page = client.response();
        assert_eq!((page.status, page.text()), (200, "answer 1"));
    }
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn response_that_is_not_stored_releases_those_that_wait() {
    let (backend, gate) = gated("Cache-Control: no-store\r\n");
    let server = caching(&backend, "");
    let mut clients = ask(&server, 10, "/");
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    gate.wait();
    let mut texts: Vec<String> =
        clients.iter_mut().map(|client| client.response().text().to_owned()).collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 10, "each has its own: {texts:?}");
    // The next ones do not wait for each other at all.
    assert!(
        server.get("/").field("Cache-Status").is_some_and(|text| text.ends_with("detail=pass"))
    );
}

#[test]
fn client_that_leaves_harms_no_other() {
    let (backend, gate) = gated(FRESH);
    let server = caching(&backend, "");
    let first = ask(&server, 1, "/");
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    let mut others = ask(&server, 3, "/");
    first.into_iter().for_each(Client::reset);
    // The reset is known once a request behind it has been served.
    assert_eq!(server.get("/other").status, 200);
    gate.wait();
    for client in &mut others {
        assert_eq!(client.response().text(), "answer 1");
    }
    assert_eq!(backend.requests_for("/").len(), 1);
}

#[test]
fn dead_backend_is_asked_twice_for_all() {
    let lives = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&lives);
    let backend = Backend::after_request(move |peer| match its.load(Ordering::SeqCst) {
        true => drop(peer.answer("back")),
        false => peer.reset(),
    });
    let server = caching(&backend, "");
    let mut clients = ask(&server, 50, "/");
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.response().status).collect();
    assert!(statuses.iter().all(|status| *status == 502), "{statuses:?}");
    let requests = backend.requests().len();
    assert!(requests < 10, "{requests} requests");
    lives.store(true, Ordering::SeqCst);
    assert!(wait_until(SOON, || server.get("/").text() == "back"), "it holds no longer");
}

#[test]
fn silent_backend_is_asked_by_one_after_the_other() {
    let backend = Backend::after_request(|peer| {
        if peer.number() == 0 {
            peer.hang();
        } else {
            peer.answer("late");
        }
    });
    let server = caching(&backend, "cache.lock-timeout = \"1s\"");
    let _first = ask(&server, 1, "/");
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    let mut others = ask(&server, 2, "/");
    let texts: Vec<String> =
        others.iter_mut().map(|client| client.response().text().to_owned()).collect();
    assert_eq!(texts, ["late", "late"]);
}

#[test]
fn all_that_wait_for_a_silent_backend_get_the_second_response() {
    let backend = Backend::after_request(|peer| {
        if peer.number() == 0 {
            peer.hang();
        } else {
            peer.answer("late");
        }
    });
    let server = caching(&backend, "cache.lock-timeout = \"1s\"\ncache.valid = ( \"200\" => 600 )");
    let _first = ask(&server, 1, "/");
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    let begun = std::time::Instant::now();
    let mut others = ask(&server, 50, "/");
    for client in &mut others {
        assert_eq!(client.response().text(), "late");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(backend.requests().len(), 2);
}

#[test]
fn body_is_shared_while_it_arrives() {
    let gate = Arc::new(Barrier::new(2));
    let own = Arc::clone(&gate);
    let backend = Backend::after_request(move |peer| {
        peer.send(format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: 10\r\n\r\nhello"));
        own.wait();
        peer.send("world");
    });
    let server = caching(&backend, "");
    let mut clients = ask(&server, 3, "/");
    for client in &mut clients {
        assert_eq!(client.response_head().status, 200);
        assert_eq!(client.read_exact(5).as_deref(), Ok(&b"hello"[..]));
    }
    let late = ask(&server, 1, "/").pop().expect("one");
    gate.wait();
    for client in &mut clients {
        assert_eq!(client.read_exact(5).as_deref(), Ok(&b"world"[..]));
    }
    let whole: Response = { late }.response();
    assert_eq!(whole.text(), "helloworld");
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn broken_body_is_not_stored() {
    let backend = Backend::after_request(|peer| {
        peer.send(format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: 10\r\n\r\nhello"));
        peer.end();
    });
    let server = caching(&backend, "");
    for _ in 0..2 {
        let mut client = ask(&server, 1, "/").pop().expect("one");
        assert_eq!(client.response_head().status, 200);
        assert_eq!(client.read_to_end().0, b"hello");
    }
    assert_eq!(backend.requests().len(), 2);
}

#[test]
fn request_behind_a_change_does_not_join_an_older_fetch() {
    let (backend, gate) = gated(FRESH);
    let server = caching(&backend, "");
    let mut first = ask(&server, 1, "/").pop().expect("one");
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(client.response().status, 200);
    assert_eq!(server.get("/").text(), "answer 3");
    gate.wait();
    assert_eq!(first.response().text(), "answer 1");
    assert_eq!(server.get("/").text(), "answer 3", "the older one is not stored");
}

#[test]
fn body_too_large_to_be_stored_is_whole_even_if_it_arrives_at_once() {
    let body = "x".repeat(70_000);
    let backend = Backend::replying(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\n{FRESH}Transfer-Encoding: chunked\r\n\r\n");
        format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes()
    });
    let more = "cache.stores := ( \"pages\" => ( \"max-object-size\" => \"1K\" ) )";
    let server = caching(&backend, more);
    for _ in 0..4 {
        assert_eq!(server.get("/").text().len(), 70_000);
    }
}

#[test]
fn fetch_of_an_endless_body_ends_with_its_last_client() {
    let backend = Backend::after_request(|peer| {
        peer.send(format!("HTTP/1.1 200 OK\r\n{FRESH}Transfer-Encoding: chunked\r\n\r\n"));
        let piece = "x".repeat(10_000);
        while peer.send(format!("2710\r\n{piece}\r\n")) && !peer.is_stopping() {}
    });
    let more = "cache.stores := ( \"pages\" => ( \"max-object-size\" => \"100K\" ) )";
    let server = caching(&backend, more);
    let mut client = ask(&server, 1, "/").pop().expect("one");
    assert_eq!(client.response_head().status, 200);
    assert!(client.read_exact(200_000).is_ok());
    client.reset();
    assert!(wait_until(SOON, || backend.open() == 0), "{}", backend.open());
}

#[test]
fn early_hints_reach_the_client_that_began_the_fetch() {
    let gate = Arc::new(Barrier::new(2));
    let own = Arc::clone(&gate);
    let backend = Backend::start(move |peer| {
        while let Some(seen) = peer.request() {
            if !peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n") {
                return;
            }
            if seen.target() == "/" {
                own.wait();
            }
            peer.send(answer("200 OK", FRESH, "page"));
        }
    });
    let server = caching(&backend, "");
    let mut first = ask(&server, 1, "/").pop().expect("a client");
    assert_eq!(first.interim(), 103);
    let mut second = ask(&server, 1, "/").pop().expect("a client");
    // The second request waits once a third one has been served.
    assert_eq!(server.get("/other").field("Cache-Status"), Some("lighty; fwd=uri-miss; stored"));
    gate.wait();
    // Neither requests that wait nor hits get any.
    let mut third = ask(&server, 1, "/").pop().expect("a client");
    for client in [&mut first, &mut second, &mut third] {
        let page = client.response();
        assert_eq!((page.text(), page.interim.len()), ("page", 0));
    }
}
