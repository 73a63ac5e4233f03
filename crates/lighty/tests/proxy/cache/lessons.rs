//! Faults that other caches had.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::wait_until;

use super::poisoning::is_hit;
use super::{FRESH, caching, counting};

const SOON: Duration = Duration::from_secs(30);
const PURGE: &str = "cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )";
const POST_PURGE: &str =
    "POST /purge?all HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[test]
fn steady_body_is_fetched_once_however_long_it_takes() {
    let backend = Backend::after_request(|peer| {
        peer.send(format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: 30\r\n\r\n"));
        peer.drip("x".repeat(30), 1, Duration::from_millis(100));
    });
    let server = caching(&backend, "cache.lock-timeout = \"1s\"");
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..10 {
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.response_head().status, 200);
        assert!(client.read_exact(clients.len() + 1).is_ok());
        clients.push(client);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert!(client.read_exact(29 - number).is_ok());
    }
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn purged_response_is_not_served_in_place_of_an_error() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&is_broken);
    let backend = Backend::replying(move |_| match own.load(Ordering::Relaxed) {
        true => answer("503 Service Unavailable", "", "broken"),
        false => answer(
            "200 OK",
            "Cache-Control: max-age=600, stale-if-error=600, stale-while-revalidate=600\r\n",
            "page",
        ),
    });
    let server = caching(&backend, PURGE);
    assert_eq!(server.get("/").status, 200);
    is_broken.store(true, Ordering::Relaxed);
    assert!(is_hit(&server, "/", ""));
    let mut client = server.connect();
    client.send(POST_PURGE);
    assert_eq!(client.response().status, 200);
    assert_eq!(server.get("/").status, 503);
}

#[test]
fn purge_covers_a_fetch_that_is_under_way() {
    let gate = Arc::new(Barrier::new(2));
    let own = Arc::clone(&gate);
    let count = AtomicU32::new(0);
    let backend = Backend::replying(move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        if number == 1 {
            own.wait();
        }
        answer("200 OK", FRESH, &format!("answer {number}"))
    });
    let server = caching(&backend, PURGE);
    let mut first = server.connect();
    first.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    let mut client = server.connect();
    client.send(POST_PURGE);
    assert_eq!(client.response().status, 200);
    gate.wait();
    assert_eq!(first.response().text(), "answer 1");
    assert_eq!(server.get("/").text(), "answer 2");
}

#[test]
fn slow_client_does_not_hold_up_the_fetch() {
    let body = "x".repeat(900_000);
    let backend = Backend::replying(move |_| answer("200 OK", FRESH, &body));
    let server = caching(&backend, "");
    let mut slow = Client::tcp_with_receive_buffer(server.address(), 4096);
    slow.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    assert_eq!(server.get("/").text().len(), 900_000);
    assert!(is_hit(&server, "/", ""));
    assert_eq!(slow.response().text().len(), 900_000);
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn bodies_do_not_mix_under_concurrency() {
    let backend = Backend::replying(|seen| {
        let number: usize = seen.target()[1..].parse().expect("a number");
        answer("200 OK", FRESH, &format!("{number}-").repeat(50 + number * 37))
    });
    let more = "server.max-worker := 2\ncache.stores := ( \"pages\" => ( \"memory\" => \"1M\" ) )";
    let server = caching(&backend, more);
    std::thread::scope(|scope| {
        for thread in 0..6_usize {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect();
                for step in 0..300_usize {
                    let number = (step * (2 * thread + 1) * 7 + thread) % 120;
                    client.send(format!("GET /{number} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
                    let page = client.response();
                    let expected = format!("{number}-").repeat(50 + number * 37);
                    assert!(page.text() == expected, "{number}");
                }
            });
        }
    });
}

#[test]
fn part_of_a_body_is_not_stored_when_its_only_client_leaves() {
    let backend = Backend::after_request(|peer| {
        peer.send(format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: 3000000\r\n\r\nhello"));
        if peer.number() == 0 {
            peer.hang();
        } else {
            peer.send("x".repeat(2_999_995));
        }
    });
    let sizes = "\"memory\" => \"16M\", \"max-object-size\" => \"4M\"";
    let server = caching(&backend, &format!("cache.stores := ( \"pages\" => ( {sizes} ) )"));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.response_head().status, 200);
    assert!(client.read_exact(5).is_ok());
    client.reset();
    assert!(wait_until(SOON, || backend.open() == 0));
    assert_eq!(server.get("/").text().len(), 3_000_000);
    assert!(is_hit(&server, "/", ""));
}

#[test]
fn session_cookies_are_not_replayed() {
    for (more, is_stored) in [("", false), ("cache.set-cookie = \"strip\"", true)] {
        let backend = counting("Cache-Control: max-age=600\r\nSet-Cookie: session=1\r\n");
        let server = caching(&backend, more);
        let _ = server.get("/");
        let page = server.get("/");
        assert_eq!(page.text(), if is_stored { "answer 1" } else { "answer 2" });
        assert_eq!(page.field("Set-Cookie").is_some(), !is_stored, "{more}");
    }
}

#[test]
fn stale_on_arrival_is_validated_by_one_request_a_time() {
    let backend = counting("Cache-Control: max-age=0\r\nETag: \"1\"\r\n");
    let server = caching(&backend, "");
    for number in 1..=5 {
        assert_eq!(server.get("/").status, 200);
        assert_eq!(backend.requests().len(), number);
    }
}

#[test]
fn fields_of_the_backends_connection_are_not_stored() {
    let backend = Backend::replying(|_| {
        let fields = format!("{FRESH}Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=1\r\n");
        format!(
            "HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\n\r\n"
        )
        .into_bytes()
    });
    let server = caching(&backend, "");
    for _ in 0..2 {
        let page = server.get("/");
        assert_eq!(page.text(), "page");
        assert_eq!((page.field("X-Hop"), page.field("Keep-Alive")), (None, None));
    }
    assert_eq!(server.get("/").field("Content-Length"), Some("4"));
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().text(), "page", "to a client that knows no chunks");
}
