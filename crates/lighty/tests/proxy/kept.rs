//! Kept connections: one per client, to backends that accept all of them and to backends that do
//! not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lighty_testkit::backend::Backend;
use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::real::php::{PhpCgi, PhpFpm};
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

const PATIENCE: Duration = Duration::from_secs(60);

/// Concurrent clients, each with `each` requests in succession.
fn crowd(server: &Server, clients: usize, each: usize, target: &str) {
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = server.connect();
                client.set_deadline(PATIENCE);
                for _ in 0..each {
                    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    let response = client.response();
                    assert_eq!(response.status, 200, "{}", server.log());
                    if response.says_close() {
                        client = server.connect();
                        client.set_deadline(PATIENCE);
                    }
                }
            });
        }
    });
}

fn front(backend: &Backend, pool: usize, workers: usize) -> Server {
    lighty!()
        .in_front_of(&backend.name())
        .config(&format!("proxy-core.max-pool-size = {pool}"))
        .config(&format!("server.max-worker = {workers}"))
        .start()
}

/// On a busy machine the server opens some more connections until it learns how many are accepted.
#[test]
fn a_connection_for_each_client_is_kept_where_all_are_accepted() {
    for (clients, pool, workers) in [(100, 128, 1), (200, 200, 1), (100, 200, 2)] {
        let backend = Backend::answering("ok");
        let server = front(&backend, pool, workers);
        crowd(&server, clients, 5, "/");
        let before = backend.opened();
        crowd(&server, clients, 30, "/");
        let more = backend.opened() - before;
        assert!(
            before <= clients * 3 && more <= clients,
            "{clients} clients: {before} and {more} connections"
        );
    }
}

#[test]
fn clients_wait_for_a_connection_where_the_pool_is_smaller() {
    let backend = Backend::answering("ok");
    let server = front(&backend, 16, 1);
    crowd(&server, 100, 30, "/");
    assert!(backend.opened() <= 100, "{} connections for 3,000 requests", backend.opened());
    assert!(backend.most_open() <= 16, "{} at a time", backend.most_open());
}

/// Also with fewer idle connections than clients: a connection that a request waits for is not
/// closed.
#[test]
fn a_connection_that_a_request_waits_for_is_not_surplus() {
    let backend = Backend::answering("ok");
    let server = lighty!()
        .in_front_of(&backend.name())
        .config("proxy-core.max-pool-size = 8\nproxy-core.max-idle-connections = 1")
        .config("server.max-worker = 1")
        .start();
    crowd(&server, 64, 30, "/");
    assert!(backend.opened() <= 400, "{} connections for 1,920 requests", backend.opened());
}

/// Requests beyond the processes wait for a connection: they do not each need a new one.
#[test]
fn a_pool_larger_than_php_is_used_as_far_as_php_has_processes() {
    let Some(fpm) = PhpFpm::unix(4) else { return };
    let server = lighty!()
        .config(&format!("fastcgi.server = ( \".php\" => (( {} )) )", fpm.listen().host_keys()))
        .config("proxy-core.max-pool-size = 64\nserver.max-worker = 1")
        .config("server.errorlog-level = \"info\"")
        .file("a.php", "<?php header('X-Pid: ' . getmypid()); echo 'ok';")
        .start();
    let began = Instant::now();
    crowd(&server, 40, 40, "/a.php");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

/// Connections are kept for one second; php-cgi held its port for 30 seconds when they were kept
/// longer. A busy machine takes some seconds to start php-cgi a few times.
const HELD_MAX: Duration = Duration::from_secs(20);

/// php-cgi ends no child that has a connection: while one is kept, its port is held.
#[test]
fn kept_connections_do_not_keep_php_cgi_from_being_restarted() {
    let Some(old) = PhpCgi::tcp(2) else { return };
    let server = lighty!()
        .config(&format!("fastcgi.server = ( \".php\" => (( {} )) )", old.listen().host_keys()))
        .file("a.php", "<?php echo 'ok';")
        .start();
    for _ in 0..4 {
        assert_eq!(server.get("/a.php").text(), "ok", "{}", server.log());
    }
    old.ask_to_end();
    let began = Instant::now();
    let _new = std::iter::repeat_with(|| PhpCgi::at(old.listen(), 2)).find_map(|new| {
        assert!(began.elapsed() < HELD_MAX, "the port is never free");
        new
    });
    assert_eq!(server.get("/a.php").text(), "ok", "{}", server.log());
}

/// No request fails during a restart, or waits for a kept connection.
#[test]
fn a_restart_of_php_cgi_costs_no_request() {
    let Some(old) = PhpCgi::tcp(2) else { return };
    let server = lighty!()
        .config(&format!("fastcgi.server = ( \".php\" => (( {} )) )", old.listen().host_keys()))
        .config("proxy-core.hold-time = 20")
        .file("a.php", "<?php echo 'ok';")
        .start();
    // Requests wait only for backends that have worked before.
    assert_eq!(server.get("/a.php").text(), "ok", "{}", server.log());
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    // Lives until the client has ended.
    let mut new = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::tcp(server.address());
            client.set_deadline(PATIENCE);
            while !over.load(Ordering::Relaxed) {
                client.send("GET /a.php HTTP/1.1\r\nHost: a\r\n\r\n");
                assert_eq!(client.response().status, 200, "{}", server.log());
                served.fetch_add(1, Ordering::Relaxed);
            }
        });
        old.ask_to_end();
        let began = Instant::now();
        new = std::iter::repeat_with(|| PhpCgi::at(old.listen(), 2))
            .take_while(|_| began.elapsed() < Duration::from_secs(10))
            .flatten()
            .next();
        let before = served.load(Ordering::Relaxed);
        let goes_on = || served.load(Ordering::Relaxed) > before + 5;
        let is_served = new.is_some() && lighty_testkit::wait_until(PATIENCE, goes_on);
        over.store(true, Ordering::Relaxed);
        assert!(is_served, "{}", server.log());
    });
}

/// Without a free descriptor the server accepts no client and reaches no backend, but it completes
/// the requests under way. Idle connections make room for others.
#[test]
fn requests_under_way_are_served_without_free_descriptors() {
    let go_on = Arc::new(AtomicBool::new(false));
    let goes_on = Arc::clone(&go_on);
    let backend = Backend::start(move |peer| {
        while let Some(seen) = peer.request() {
            while seen.target() == "/slow" && !goes_on.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            peer.answer("ok");
        }
    });
    let server = front(&backend, 8, 1);
    let mut slow = server.connect();
    slow.set_deadline(PATIENCE);
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wait_until(PATIENCE, || !backend.requests_for("/slow").is_empty()));
    let pid = rustix::process::Pid::from_raw(server.pid().cast_signed());
    let limit = |limit| prlimit(pid, Resource::Nofile, limit).expect("a limit");
    let cut =
        Rlimit { current: Some(server.descriptors() as u64 + 4), ..getrlimit(Resource::Nofile) };
    let (before, begun) = (limit(cut), Instant::now());
    let mut crowd: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    for client in &mut crowd {
        client.set_deadline(PATIENCE);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    server.await_log("accepting pauses");
    go_on.store(true, Ordering::Relaxed);
    assert_eq!(slow.response().text(), "ok", "{}", server.log());
    let cpu = server.cpu_time();
    std::thread::sleep(Duration::from_secs(1));
    let spent = server.cpu_time() - cpu;
    assert!(spent < Duration::from_millis(500), "{spent:?} of processor time in one second");
    let output = server.log().matches("accepting pauses").count() as u64;
    assert!(output <= 2 + begun.elapsed().as_secs() / 10, "{output} times: {}", server.log());
    limit(before);
    for client in &mut crowd {
        let status = client.response().status;
        // Some requests found no descriptor for a backend.
        assert!([200, 502, 503].contains(&status), "{status}: {}", server.log());
    }
    assert_eq!(server.get("/").text(), "ok");
}
