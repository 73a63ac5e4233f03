//! Backends that refuse, die, restart or do not accept: the cost for a request.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, FullListener, Peer, Port};
use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::stopwatch::Stopwatch;

fn front(backends: &[SocketAddr], lines: &str) -> Server {
    let list: Vec<String> = backends.iter().map(|address| format!("\"{address}\"")).collect();
    lighty!()
        .config(&format!(
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( {} )\n{lines}",
            list.join(", ")
        ))
        .start()
}

/// Clients that send requests on connections of their own until they are stopped.
struct SteadyLoad {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
    outcome: Arc<Mutex<LoadOutcome>>,
}

#[derive(Default)]
struct LoadOutcome {
    wrong: Vec<String>,
    took: Vec<Duration>,
}

impl SteadyLoad {
    fn start(address: SocketAddr, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicUsize::new(0));
        let outcome = Arc::new(Mutex::new(LoadOutcome::default()));
        let clients = (0..clients)
            .map(|_| {
                let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
                let outcome = Arc::clone(&outcome);
                std::thread::spawn(move || ask_until(address, &stop, &done, &outcome))
            })
            .collect();
        Self { stop, done, clients, outcome }
    }

    /// Waits for `answers` more responses.
    fn await_more(&self, answers: usize) {
        let before = self.done.load(Ordering::SeqCst);
        let more = || self.done.load(Ordering::SeqCst) >= before + answers;
        assert!(lighty_testkit::wait_until(Duration::from_secs(30), more));
    }

    /// Takes the sorted durations of the responses so far, and begins anew.
    fn take_times(&self) -> Vec<Duration> {
        let mut took = std::mem::take(&mut self.outcome.lock().expect("nobody panics").took);
        took.sort();
        took
    }

    /// Stops the load; returns the errors and the sorted durations of the responses.
    fn finish(self) -> (Vec<String>, Vec<Duration>) {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.join().expect("a client");
        }
        let mut outcome = self.outcome.lock().expect("nobody panics");
        outcome.took.sort();
        (std::mem::take(&mut outcome.wrong), std::mem::take(&mut outcome.took))
    }

    /// Stops the load, and asserts that every request got a response. Returns the sorted durations.
    fn finish_without_error(self, server: &Server) -> Vec<Duration> {
        let (wrong, took) = self.finish();
        if let Some(first) = wrong.first() {
            panic!("{} of {}: {first:?}\n{}", wrong.len(), took.len(), server.log());
        }
        took
    }
}

/// The 99th percentile of sorted durations.
fn late(took: &[Duration]) -> Duration {
    took[took.len() * 99 / 100]
}

fn ask_until(
    address: SocketAddr,
    stop: &AtomicBool,
    done: &AtomicUsize,
    outcome: &Mutex<LoadOutcome>,
) {
    let mut client = Client::tcp(address);
    while !stop.load(Ordering::SeqCst) {
        let start = Instant::now();
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let got = client.try_response(false);
        let took = start.elapsed();
        let mut outcome = outcome.lock().expect("nobody panics");
        outcome.took.push(took);
        match got {
            Ok(response) if response.status == 200 && response.body == b"ok" => {
                if response.says_close() {
                    client = Client::tcp(address);
                }
            }
            Ok(response) => outcome.wrong.push(format!("{response:?}")),
            Err(error) => {
                outcome.wrong.push(error);
                client = Client::tcp(address);
            }
        }
        drop(outcome);
        done.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn one_dead_of_two_costs_milliseconds() {
    let dead = Port::reserve();
    let alive = Backend::answering("ok");
    for balancer in ["round-robin", "sqf", "static", "carp"] {
        let server = front(
            &[dead.address(), alive.address()],
            &format!("proxy-core.balancer = \"{balancer}\""),
        );
        for index in 0..40 {
            let start = Stopwatch::start(&server);
            let response = server.get(&format!("/{index}"));
            assert_eq!((response.status, response.text()), (200, "ok"), "{balancer}");
            assert!(start.took() < Duration::from_millis(800), "{:?}", start.took());
        }
        server.await_log(&format!("backend {} is down", dead.address()));
    }
}

/// Limit on the addresses that are tried for a request.
const TRIES_MAX: usize = 16;

#[test]
fn request_is_tried_on_n_addresses_at_most() {
    let alive = Backend::answering("ok");
    let ports: Vec<Port> = (0..TRIES_MAX).map(|_| Port::reserve()).collect();
    let dead: Vec<SocketAddr> = ports.iter().map(Port::address).collect();
    let before = |count: usize| {
        let addresses = [&dead[..count], &[alive.address()]].concat();
        front(&addresses, "proxy-core.balancer = \"static\"")
    };
    let server = before(TRIES_MAX - 1);
    assert_eq!(server.get("/").status, 200, "{}", server.log());
    let server = before(TRIES_MAX);
    assert_eq!(server.get("/").status, 502, "{}", server.log());
    server.await_log(&format!(": backend {}: ", dead[TRIES_MAX - 1]));
    // The addresses that refused are down now.
    assert_eq!(server.get("/").status, 200, "{}", server.log());
}

#[test]
fn with_all_dead_the_response_is_503_at_once() {
    for count in [1, 2, 5] {
        let ports: Vec<Port> = (0..count).map(|_| Port::reserve()).collect();
        let addresses: Vec<SocketAddr> = ports.iter().map(Port::address).collect();
        let server = front(&addresses, "");
        for _ in 0..20 {
            let start = Stopwatch::start(&server);
            let response = server.get("/x");
            assert_eq!(response.status, 503, "{}", server.log());
            assert!(response.field("Retry-After").is_some());
            assert!(start.took() < Duration::from_millis(800), "{:?}", start.took());
        }
        server.await_log("no backend is up");
        server.await_log(&addresses[0].to_string());
        let lines = server.log().matches("no backend is up").count();
        assert!(lines <= 2, "one line for all requests of some seconds\n{}", server.log());
    }
}

#[test]
fn a_post_to_a_dead_backend_goes_to_another() {
    let dead = Port::reserve();
    let alive = Backend::answering("ok");
    let server = front(&[dead.address(), alive.address()], "proxy-core.balancer = \"static\"");
    let mut client = server.connect();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().text(), "ok");
    assert_eq!(alive.requests()[0].body, b"hello");
}

#[test]
fn a_backend_that_does_not_accept_is_passed_over() {
    let full = FullListener::start();
    let alive = Backend::answering("ok");
    let lines = "proxy-core.balancer = \"static\"\nproxy-core.connect-timeout = \"1s\"";
    let server = front(&[full.address(), alive.address()], lines);
    let start = Stopwatch::start(&server);
    assert_eq!(server.get("/x").text(), "ok");
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    assert!(start.took() < Duration::from_secs(4), "{:?}", start.took());
    let start = Stopwatch::start(&server);
    assert_eq!(server.get("/x").text(), "ok");
    assert!(start.took() < Duration::from_millis(800), "it is tried again at once");
    let alone = front(&[full.address()], "proxy-core.connect-timeout = \"1s\"");
    let response = alone.get("/x");
    assert_eq!(response.status, 504, "{}", alone.log());
    alone.await_log("proxy-core.connect-timeout");
    alone.await_log(&full.address().to_string());
}

#[test]
fn a_backend_killed_under_load_loses_nothing() {
    let ports = [Port::reserve(), Port::reserve()];
    let mut backends: Vec<Server> = ports.iter().map(file_server).collect();
    let server = front(&[ports[0].address(), ports[1].address()], "");
    let load = SteadyLoad::start(server.address(), 8);
    load.await_more(400);
    let usual = late(&load.take_times());
    backends[0].kill();
    load.await_more(800);
    // No request had to wait in the backlog, or for anything else but this machine.
    let late = late(&load.finish_without_error(&server));
    let bound = Duration::from_millis(250) + 3 * usual;
    assert!(late < bound, "99 of 100 within {late:?}, before the kill within {usual:?}");
}

#[test]
fn a_restart_under_load_costs_no_error() {
    let port = Port::reserve();
    let mut backend = file_server(&port);
    let server = front(&[port.address()], "");
    let load = SteadyLoad::start(server.address(), 8);
    for round in 0..3 {
        load.await_more(300);
        if round % 2 == 0 {
            backend.kill();
        } else {
            backend.stop();
        }
        std::thread::sleep(Duration::from_millis(300));
        backend = file_server(&port);
    }
    load.await_more(300);
    load.finish_without_error(&server);
}

#[test]
fn a_restart_costs_no_error_without_kept_connections_either() {
    let port = Port::reserve();
    let mut backend = file_server(&port);
    let server = front(&[port.address()], "proxy-core.max-keep-alive-requests = 0");
    let load = SteadyLoad::start(server.address(), 8);
    for _ in 0..2 {
        load.await_more(200);
        backend.kill();
        std::thread::sleep(Duration::from_millis(300));
        backend = file_server(&port);
    }
    load.await_more(200);
    load.finish_without_error(&server);
}

#[test]
fn a_request_that_kills_is_not_sent_for_ever() {
    let deadly = || {
        Backend::start(|peer| {
            while let Some(seen) = peer.request() {
                if seen.target() == "/deadly" {
                    return;
                }
                peer.answer("ok");
            }
        })
    };
    let backends = [deadly(), deadly()];
    for used in [&backends[..1], &backends[..]] {
        let addresses: Vec<SocketAddr> = used.iter().map(Backend::address).collect();
        let server = front(&addresses, "");
        for _ in 0..4 {
            assert_eq!(server.get("/x").text(), "ok");
        }
        let before: usize = used.iter().map(|b| b.requests_for("/deadly").len()).sum();
        let start = Stopwatch::start(&server);
        assert_eq!(server.get("/deadly").status, 502, "{}", server.log());
        assert!(start.took() < Duration::from_secs(1), "{:?}", start.took());
        let after: usize = used.iter().map(|b| b.requests_for("/deadly").len()).sum();
        // One retry on a connection that might have closed by itself, then three real attempts.
        assert!((2..=5).contains(&(after - before)), "{} times", after - before);
    }
}

/// Server process to be killed: lighty with one file.
fn file_server(port: &Port) -> Server {
    lighty!()
        .file("a", "ok")
        .without_listener()
        .config(&format!("server.bind = \"127.0.0.1\"\nserver.port = {}", port.address().port()))
        .start()
}

#[test]
fn a_backend_that_never_worked_is_not_waited_for_and_found_when_it_comes() {
    let port = Port::reserve();
    let server = front(&[port.address()], "proxy-core.disable-time = \"200ms\"");
    assert_eq!(server.get("/x").status, 503);
    let _backend = Backend::start_at(&port, |peer| peer.respond_to_all("ok"));
    let up = || server.get("/x").status == 200;
    assert!(lighty_testkit::wait_until(Duration::from_secs(60), up), "{}", server.log());
    let name = format!("proxy-core.backends: backend {}", port.address());
    server.await_log(&format!("[notice] {name} is up again\n"));
    assert!(server.log().contains(&format!("[error] {name} is down (")), "{}", server.log());
}

#[test]
fn a_held_request_is_answered_503_when_the_hold_is_over() {
    let port = Port::reserve();
    let server = front(&[port.address()], "proxy-core.hold-time = \"500ms\"");
    let mut backend = Backend::start_at(&port, |peer| peer.respond_to_all("ok"));
    assert_eq!(server.get("/x").status, 200);
    backend.kill();
    let start = Stopwatch::start(&server);
    assert_eq!(server.get("/x").status, 503);
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    assert!(start.took() < Duration::from_secs(2), "{:?}", start.took());
    let start = Stopwatch::start(&server);
    assert_eq!(server.get("/x").status, 503);
    assert!(start.took() < Duration::from_millis(300), "{:?}", start.took());
}

#[test]
fn disable_time_grows_with_each_failure() {
    let port = Port::reserve();
    let lines = "proxy-core.disable-time = \"200ms\"\nproxy-core.max-disable-time = \"800ms\"\n\
                 proxy-core.hold-time = 0";
    let server = front(&[port.address()], lines);
    let printed = |ms: u32| {
        let line = format!("for {ms} ms");
        let heard = || {
            let _ = server.get("/x");
            server.log().contains(&line)
        };
        assert!(lighty_testkit::wait_until(Duration::from_secs(60), heard), "{}", server.log());
    };
    [200, 400, 800].into_iter().for_each(printed);
    let lines = |server: &Server| server.log().matches("for 800 ms").count();
    let before = lines(&server);
    let again = || {
        let _ = server.get("/x");
        lines(&server) > before
    };
    assert!(lighty_testkit::wait_until(Duration::from_secs(60), again), "it ends at its maximum");
    assert!(!server.log().contains("for 1600 ms"));
}

#[test]
fn a_backend_that_comes_back_starts_slowly() {
    let port = Port::reserve();
    let steady = Backend::answering("ok");
    let lines = "proxy-core.disable-time = \"200ms\"\nproxy-core.slow-start = 60";
    let server = front(&[port.address(), steady.address()], lines);
    assert_eq!(server.get("/x").status, 200);
    let back = Backend::start_at(&port, |peer| peer.respond_to_all("ok"));
    let found = || {
        assert_eq!(server.get("/x").status, 200);
        !back.requests().is_empty()
    };
    assert!(lighty_testkit::wait_until(Duration::from_secs(60), found));
    let before = (back.requests().len(), steady.requests().len());
    for _ in 0..60 {
        assert_eq!(server.get("/x").status, 200);
    }
    let share = back.requests().len() - before.0;
    assert!(share <= 10, "{share} of 60 in its first moments");
}

#[test]
fn one_bad_url_does_not_take_a_backend_from_everybody() {
    let slow_or = |fault: fn(&mut Peer)| {
        Backend::start(move |peer| {
            while let Some(seen) = peer.request() {
                match seen.target() {
                    "/bad" => return fault(peer),
                    _ => peer.answer("ok"),
                };
            }
        })
    };
    let faults: [fn(&mut Peer); 3] = [
        |peer| {
            peer.hang();
        },
        |peer| {
            peer.send("nonsense\r\n\r\n");
        },
        |peer| {
            std::thread::sleep(Duration::from_millis(200));
            peer.reset();
        },
    ];
    for fault in faults {
        let backend = slow_or(fault);
        let lines = "proxy-core.read-timeout = \"400ms\"\nproxy-core.hold-time = 0";
        let server = front(&[backend.address()], lines);
        assert_eq!(server.get("/x").status, 200);
        let mut bad = server.connect();
        bad.send("GET /bad HTTP/1.1\r\nHost: a\r\n\r\n");
        let bad = std::thread::spawn(move || bad.response().status);
        while !bad.is_finished() {
            assert_eq!(server.get("/x").status, 200, "{}", server.log());
        }
        assert!(matches!(bad.join().expect("a response"), 502 | 504));
        assert!(!server.log().contains("is down"), "{}", server.log());
    }
}

#[test]
fn a_frozen_backend_is_left_alone() {
    let frozen = Backend::start(|peer| {
        peer.hang();
    });
    let alive = Backend::answering("ok");
    let lines = "proxy-core.balancer = \"static\"\nproxy-core.read-timeout = \"300ms\"\n\
                 proxy-core.disable-time = 5";
    let server = front(&[frozen.address(), alive.address()], lines);
    assert_eq!(server.get("/x").status, 504);
    let start = Stopwatch::start(&server);
    for _ in 0..10 {
        assert_eq!(server.get("/x").text(), "ok");
    }
    assert!(start.took() < Duration::from_secs(1));
    server.await_log(&format!("backend {} is down", frozen.address()));
}

#[test]
fn a_backup_serves_only_while_no_other_is_up() {
    let port = Port::reserve();
    let backup = Backend::answering("backup");
    let lines = format!(
        "proxy-core.backup = ( \"{}\" )\nproxy-core.disable-time = \"200ms\"\n\
         proxy-core.hold-time = 0",
        backup.address()
    );
    let server = front(&[port.address(), backup.address()], &lines);
    assert_eq!(server.get("/x").text(), "backup");
    let _main = Backend::start_at(&port, |peer| peer.respond_to_all("main"));
    let back = || server.get("/x").text() == "main";
    assert!(lighty_testkit::wait_until(Duration::from_secs(60), back), "{}", server.log());
    for _ in 0..5 {
        assert_eq!(server.get("/x").text(), "main");
    }
}
