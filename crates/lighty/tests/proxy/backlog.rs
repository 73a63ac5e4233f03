//! Pools and the backlog: number of connections, waiting requests and their order, and the response
//! when the backlog is full.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::wait_until;
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(30);

fn front(backend: &Backend, lines: &str) -> Server {
    lighty!().in_front_of(&backend.name()).config(lines).start()
}

fn ask(server: &Server, target: &str) -> Client {
    let mut client = server.connect();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

/// Lets requests through one by one.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<usize>, Condvar)>);

impl Gate {
    fn open(&self, count: usize) {
        *self.0.0.lock().expect("nobody panics") += count;
        self.0.1.notify_all();
    }

    /// Waits for a turn; `false` when none comes.
    fn pass(&self) -> bool {
        let turns = self.0.0.lock().expect("nobody panics");
        let waited = self.0.1.wait_timeout_while(turns, SOON * 3, |turns| *turns == 0);
        let (mut turns, timeout) = waited.expect("nobody panics");
        *turns = turns.saturating_sub(1);
        !timeout.timed_out()
    }
}

/// Backend that holds back its responses until a gate opens.
fn gated() -> (Backend, Gate) {
    let gate = Gate::default();
    let inner = gate.clone();
    let backend = Backend::start(move |peer| {
        while let Some(received) = peer.request() {
            if !inner.pass() || !peer.answer(received.target()) {
                return;
            }
        }
    });
    (backend, gate)
}

/// Waits until the backend has received `count` requests.
fn await_requests(backend: &Backend, count: usize) {
    let there = || backend.requests().len() >= count;
    assert!(wait_until(SOON, there), "{} of {count} requests came", backend.requests().len());
}

/// Waits until the backlog holds `count` requests.
fn await_backlogged(server: &Server, count: usize) {
    let message = format!("proxy-core.0.backlogged: {count},");
    let reported = || {
        server.signal(Signal::USR2);
        server.log().contains(&message)
    };
    assert!(wait_until(SOON, reported), "{count} never wait:\n{}", server.log());
}

#[test]
fn the_pool_is_no_larger_than_it_may_be_over_all_workers() {
    const SIZE: usize = 5;
    let backend = Backend::start(|peer| {
        while peer.request().is_some() {
            std::thread::sleep(Duration::from_millis(3));
            peer.answer("ok");
        }
    });
    let lines = format!("proxy-core.max-pool-size = {SIZE}\nserver.max-worker = 4");
    let server = front(&backend, &lines);
    let address = server.address();
    let clients: Vec<_> = (0..24)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::tcp(address);
                for _ in 0..25 {
                    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
                    assert_eq!(client.response().text(), "ok");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("every request is answered");
    }
    assert_eq!(backend.requests().len(), 24 * 25);
    assert!(backend.most_open() <= SIZE, "{} connections at a time", backend.most_open());
}

#[test]
fn connections_are_kept_and_used_again() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    for _ in 0..50 {
        assert_eq!(server.get("/x").text(), "ok");
    }
    assert_eq!(backend.opened(), 1);
}

#[test]
fn a_connection_ends_after_its_requests_its_idle_time_and_where_none_is_kept() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "proxy-core.max-keep-alive-requests = 10");
    for _ in 0..50 {
        assert_eq!(server.get("/x").text(), "ok");
    }
    assert_eq!(backend.opened(), 5);
    let backend = Backend::answering("ok");
    let server = front(&backend, "proxy-core.max-idle-connections = 0");
    for _ in 0..5 {
        assert_eq!(server.get("/x").text(), "ok");
    }
    assert_eq!(backend.opened(), 5);
    let backend = Backend::answering("ok");
    let server = front(&backend, "proxy-core.max-keep-alive-requests = 0");
    assert_eq!(server.get("/x").text(), "ok");
    assert_eq!(backend.requests()[0].field("Connection"), Some("close"));
    let backend = Backend::answering("ok");
    let server = front(&backend, "proxy-core.max-idle-time = 1");
    assert_eq!(server.get("/x").text(), "ok");
    assert_eq!(backend.open(), 1);
    assert!(wait_until(SOON, || backend.open() == 0), "an idle connection stays for ever");
}

#[test]
fn first_come_is_first_served() {
    let (backend, gate) = gated();
    let server = front(&backend, "proxy-core.max-pool-size = 1");
    let mut clients = Vec::new();
    for index in 0..20 {
        clients.push(ask(&server, &format!("/{index}")));
        // So that they arrive in this order.
        match index {
            0 => await_requests(&backend, 1),
            _ => await_backlogged(&server, index),
        }
    }
    gate.open(20);
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.response().text(), format!("/{index}"));
    }
    let seen: Vec<String> = backend.requests().iter().map(|a| a.target().to_owned()).collect();
    let sent: Vec<String> = (0..20).map(|index| format!("/{index}")).collect();
    assert_eq!(seen, sent);
    assert_eq!(backend.most_open(), 1);
}

#[test]
fn a_lower_class_goes_first() {
    let (backend, gate) = gated();
    let lines = "proxy-core.max-pool-size = 1\n\
                 $HTTP[\"url\"] =^ \"/later/\" { proxy-core.backlog-class = 2 }";
    let server = front(&backend, lines);
    let mut clients = vec![ask(&server, "/first")];
    await_requests(&backend, 1);
    for target in ["/later/1", "/later/2", "/now/1", "/now/2"] {
        clients.push(ask(&server, target));
        await_backlogged(&server, clients.len() - 1);
    }
    gate.open(5);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    let seen: Vec<String> = backend.requests().iter().map(|a| a.target().to_owned()).collect();
    assert_eq!(seen, ["/first", "/now/1", "/now/2", "/later/1", "/later/2"]);
}

#[test]
fn the_backlog_holds_its_length_and_not_one_more() {
    const LENGTH: usize = 7;
    let (backend, gate) = gated();
    let lines = format!("proxy-core.max-pool-size = 1\nproxy-core.max-backlog-size = {LENGTH}");
    let server = front(&backend, &lines);
    let mut clients = vec![ask(&server, "/busy")];
    await_requests(&backend, 1);
    for index in 0..LENGTH {
        clients.push(ask(&server, &format!("/{index}")));
    }
    await_backlogged(&server, LENGTH);
    let start = Stopwatch::start(&server);
    let response = ask(&server, "/one-more").response();
    assert_eq!(response.status, 503);
    assert!(response.field("Retry-After").is_some());
    assert!(start.took() < Duration::from_millis(800), "{:?}", start.took());
    server.await_log("proxy-core.max-backlog-size");
    gate.open(LENGTH + 1);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(backend.requests_for("/one-more").len(), 0);
}

#[test]
fn without_a_backlog_a_full_pool_is_a_503() {
    let (backend, gate) = gated();
    let lines = "proxy-core.max-pool-size = 1\nproxy-core.max-backlog-size = 0";
    let server = front(&backend, lines);
    let mut busy = ask(&server, "/busy");
    await_requests(&backend, 1);
    assert_eq!(server.get("/x").status, 503);
    gate.open(2);
    assert_eq!(busy.response().status, 200);
    assert_eq!(server.get("/x").status, 200);
}

/// The first request of the backlog waits for one backend, so a free connection to the other is no
/// help to it.
#[test]
fn request_that_waits_for_one_backend_delays_no_other() {
    let (wanted, gate) = gated();
    let name = wanted.name();
    let free = Backend::replying(move |seen| match seen.target() {
        "/named" => answer("200 OK", &format!("X-Rewrite-Backend: {name}\r\n"), ""),
        _ => answer("200 OK", "", "free"),
    });
    let config = format!(
        "proxy-core.protocol = \"http\"\nproxy-core.allow-x-rewrite = \"enable\"\n\
         proxy-core.max-pool-size = 1\nproxy-core.balancer = \"static\"\n\
         proxy-core.backends = ( \"{}\", \"{}\" )",
        free.name(),
        wanted.name()
    );
    let server = lighty!().config(&config).start();
    let mut busy = ask(&server, "/named");
    await_requests(&wanted, 1);
    let mut waits = ask(&server, "/named");
    await_backlogged(&server, 1);
    let start = Stopwatch::start(&server);
    for _ in 0..3 {
        assert_eq!(server.get("/x").text(), "free");
    }
    assert!(start.took() < SOON, "{:?}", start.took());
    gate.open(2);
    assert_eq!((busy.response().status, waits.response().status), (200, 200));
}

#[test]
fn waiting_ends_on_time() {
    let (backend, gate) = gated();
    let lines = "proxy-core.max-pool-size = 1\nproxy-core.backlog-timeout = \"500ms\"";
    let server = front(&backend, lines);
    let mut busy = ask(&server, "/busy");
    await_requests(&backend, 1);
    let start = Stopwatch::start(&server);
    let response = ask(&server, "/x").response();
    let (elapsed, took) = (start.elapsed(), start.took());
    assert_eq!(response.status, 503);
    assert!(response.field("Retry-After").is_some());
    assert!(elapsed >= Duration::from_millis(450), "{elapsed:?}");
    assert!(took < Duration::from_millis(1200), "{took:?}");
    server.await_log("proxy-core.backlog-timeout");
    gate.open(1);
    assert_eq!(busy.response().status, 200);
}

#[test]
fn client_that_leaves_gives_up_its_place_in_the_queue() {
    let (backend, gate) = gated();
    let lines = "proxy-core.max-pool-size = 1\nproxy-core.max-backlog-size = 2";
    let server = front(&backend, lines);
    let mut busy = ask(&server, "/busy");
    await_requests(&backend, 1);
    for round in 0..20 {
        let waiting = [ask(&server, "/left"), ask(&server, "/left")];
        // Both wait once a third is refused.
        let full = || {
            let mut third = ask(&server, "/third");
            third.set_deadline(Duration::from_millis(100));
            third.try_response(false).is_ok_and(|response| response.status == 503)
        };
        assert!(wait_until(SOON, full), "round {round}");
        waiting.into_iter().for_each(Client::reset);
    }
    gate.open(usize::MAX / 2);
    assert_eq!(busy.response().status, 200);
    let mut last = ask(&server, "/last");
    assert_eq!(last.response().status, 200);
    assert_eq!(backend.requests_for("/left").len(), 0, "nobody waited for these responses");
}

#[test]
fn a_place_that_comes_free_in_one_worker_serves_another() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "proxy-core.max-pool-size = 1\nserver.max-worker = 4");
    let start = Stopwatch::start(&server);
    for _ in 0..100 {
        assert_eq!(server.get("/x").text(), "ok");
    }
    // A waiting request that is not woken checks again only after 100 ms.
    assert!(start.took() < Duration::from_secs(4), "{:?}", start.took());
}
