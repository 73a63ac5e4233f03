//! Limits of time, requests and memory that hold under any load.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;

use super::{FRESH, caching};

const SOON: Duration = Duration::from_secs(30);

/// Time in which waiting requests are released, in a test build on a busy machine. A release build
/// needs a hundredth.
const RELEASE_MAX: Duration = Duration::from_secs(3);

/// The time at which a backend answered its first request.
type Answered = Arc<Mutex<Option<Instant>>>;

/// A backend that holds its first answer until the gate is open.
fn gated(fields: &'static str) -> (Backend, Arc<Barrier>, Answered) {
    let (gate, answered) = (Arc::new(Barrier::new(2)), Answered::default());
    let (own_gate, own_answered) = (Arc::clone(&gate), Arc::clone(&answered));
    let count = AtomicU32::new(0);
    let backend = Backend::replying(move |seen| {
        if seen.target() == "/" && count.fetch_add(1, Ordering::Relaxed) == 0 {
            own_gate.wait();
            *own_answered.lock().expect("a lock") = Some(Instant::now());
        }
        answer("200 OK", fields, "page")
    });
    (backend, gate, answered)
}

/// So many connections with a request that the server has received: one behind them is answered.
fn waiting(server: &Server, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for _ in 0..3 {
        assert_eq!(server.get("/marker").status, 200);
    }
    clients
}

#[test]
fn thousand_misses_at_once_make_one_request() {
    let (backend, gate, answered) = gated(FRESH);
    let server = caching(&backend, "server.max-connections := 2000");
    let mut clients = waiting(&server, 1000);
    assert_eq!(backend.requests_for("/").len(), 1);
    gate.wait();
    let _ = clients.last_mut().expect("a client").response();
    let took = answered.lock().expect("a lock").expect("an answer").elapsed();
    clients.truncate(999);
    for client in &mut clients {
        let page = client.response();
        assert_eq!((page.status, page.text()), (200, "page"));
    }
    println!("1,000 misses: the one that came last has its response after {took:?}");
    assert!(took < RELEASE_MAX, "{took:?}");
    assert_eq!(backend.requests_for("/").len(), 1);
}

#[test]
fn response_that_is_not_stored_releases_all_at_once() {
    let (backend, gate, answered) = gated("Cache-Control: no-store\r\n");
    let server = caching(&backend, "");
    let mut clients = waiting(&server, 100);
    gate.wait();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    let answered = answered.lock().expect("a lock").expect("an answer");
    let seen = backend.requests_for("/");
    assert_eq!(seen.len(), 100);
    let last = seen.iter().filter_map(|seen| seen.at).max().expect("a request");
    let took = last.saturating_duration_since(answered);
    println!("100 misses that are not stored: the last is sent after {took:?}");
    assert!(took < RELEASE_MAX, "{took:?}");
}

#[test]
fn dead_backend_is_fetched_from_twice_for_all_that_wait() {
    let gate = Arc::new(Barrier::new(2));
    let own = Arc::clone(&gate);
    let backend = Backend::after_request(move |peer| {
        if peer.number() == 0 {
            own.wait();
        }
        peer.reset();
    });
    let server = caching(&backend, "proxy-core.status-header = \"enable\"");
    let mut clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    // A status of the server itself, behind all the requests.
    for _ in 0..3 {
        assert_eq!(server.get_with("/", "Cache-Control: only-if-cached\r\n").status, 504);
    }
    gate.wait();
    let mut fields: Vec<Option<String>> = Vec::new();
    for client in &mut clients {
        let page = client.response();
        assert_eq!(page.status, 502);
        fields.push(page.field("Proxy-Status").map(str::to_owned));
    }
    // Requests that wait have the fault of the one that fetches.
    fields.dedup();
    assert_eq!(fields, [Some("lighty; error=connection_terminated".to_owned())]);
    let (requests, connections) = (backend.requests().len(), backend.opened());
    println!(
        "a dead backend gets {requests} requests for 200 clients, on {connections} connections"
    );
    assert_eq!((requests, connections), (2, 2));
    // The fetch is held back for a second: a request that comes then has it, too.
    let page = server.get("/");
    assert_eq!(page.field("Proxy-Status"), Some("lighty; error=connection_terminated"));
}

#[test]
fn silent_backend_gets_two_requests_for_all_that_wait() {
    for lock_timeout in ["1s", "1min"] {
        let backend = Backend::after_request(|peer| _ = peer.hang());
        let more = format!(
            "cache.lock-timeout = \"{lock_timeout}\"\nproxy-core.read-timeout = \"3s\"\n\
             proxy-core.status-header = \"enable\""
        );
        let server = caching(&backend, &more);
        let mut clients: Vec<Client> = (0..100).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        for client in &mut clients {
            let page = client.response();
            let field = page.field("Proxy-Status");
            assert_eq!((page.status, field), (504, Some("lighty; error=connection_read_timeout")));
        }
        let (requests, connections) = (backend.requests().len(), backend.opened());
        println!("a silent backend gets {requests} requests, on {connections} connections");
        assert!(requests <= 2 && connections <= 2, "{lock_timeout}: {requests} {connections}");
    }
}

/// Sends many requests on one connection, a hundred at a time.
fn flood(server: &Server, count: usize, request: impl Fn(usize) -> String) {
    let mut client = server.connect();
    for first in (0..count).step_by(100) {
        let requests: String = (first..first + 100).map(&request).collect();
        client.send(requests);
        (0..100).for_each(|_| drop(client.response()));
    }
}

fn get(target: &str, lines: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")
}

fn purge(tag: &str) -> String {
    format!("POST /purge?tag={tag} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn floods_stay_within_the_budget_and_a_tenth() {
    const BUDGET_KIB: u64 = 2048;
    // The store's own test counts allocations. This is for the server's buffers for large heads.
    const SERVER_KIB: u64 = 256;
    let backend = Backend::replying(|seen| {
        let tags: Vec<String> = (0..60).map(|n| format!("{}-{n}", seen.target())).collect();
        let body = "x".repeat(2000);
        match seen.target().as_bytes()[1] {
            b'v' => answer("200 OK", &format!("{FRESH}Vary: X-Flood\r\n"), &body),
            b't' => answer("200 OK", &format!("{FRESH}Cache-Tag: {}\r\n", tags.join(",")), &body),
            b'm' => answer("200 OK", "Cache-Control: no-store\r\n", "page"),
            b'e' => answer("200 OK", &format!("{FRESH}X-Fill: {}\r\n", "x".repeat(3000)), ""),
            _ => answer("200 OK", FRESH, &body),
        }
    });
    let more = "cache.stores := ( \"pages\" => ( \"memory\" => \"2M\" ) )\n\
                server.max-keep-alive-requests := 1000000\ncache.max-variants = 1024\n\
                cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )";
    let server = caching(&backend, more);
    flood(&server, 500, |_| get("/warm", ""));
    flood(&server, 500, |number| get(&format!("/m{}", number % 7), ""));
    flood(&server, 1500, |number| purge(&format!("warm-{number}")));
    let before = server.heap_kib();
    let mut report = String::new();
    let mut flood_with = |name: &str, request: &dyn Fn(usize) -> String| {
        flood(&server, 1500, request);
        let grown = server.heap_kib().saturating_sub(before);
        report.push_str(&format!("{name}: {grown} KiB\n"));
    };
    flood_with("objects", &|number| get(&format!("/o{number}"), ""));
    flood_with("variants", &|number| get("/v", &format!("X-Flood: {number}\r\n")));
    flood_with("variants of many URLs", &|number| {
        get(&format!("/v{}", number % 50), &format!("X-Flood: {number}\r\n"))
    });
    flood_with("tags", &|number| get(&format!("/t{number}"), ""));
    flood_with("fields without a body", &|number| get(&format!("/e{number}"), ""));
    flood_with("marks", &|number| get(&format!("/m{number}"), ""));
    flood_with("purges", &|number| purge(&format!("flood-{number}")));
    println!("{report}");
    let grown = server.heap_kib().saturating_sub(before);
    assert!(grown <= BUDGET_KIB * 11 / 10 + SERVER_KIB, "{report}");
}
