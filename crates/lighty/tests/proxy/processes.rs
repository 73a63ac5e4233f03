//! Backends that serve one connection per process: no request waits for a process that is held by
//! an idle connection of lighty.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};

/// Time limit of a hung test; idle connections are kept for half of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads in place of processes: each accepts a connection and serves it to its end before it
/// accepts another one.
struct Preforked {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    state: Arc<PreforkedState>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct PreforkedState {
    stopping: AtomicBool,
    accepted: AtomicUsize,
    /// Targets in the order of their requests, each with its connection's number.
    requests: Mutex<Vec<(usize, String)>>,
    sockets: Mutex<Vec<TcpStream>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Preforked {
    /// Starts this number of processes; a response takes `takes`.
    fn start(processes: usize, takes: Duration) -> Self {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").expect("a port"));
        let state = Arc::new(PreforkedState::default());
        let process = |_| {
            let (listener, state) = (Arc::clone(&listener), Arc::clone(&state));
            std::thread::spawn(move || process(&listener, &state, takes))
        };
        let threads = (0..processes).map(process).collect();
        let address = listener.local_addr().expect("its address");
        Self { address, listener, state, threads }
    }

    fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }

    fn requests(&self) -> Vec<(usize, String)> {
        lock(&self.state.requests).clone()
    }

    fn front(&self, workers: usize) -> Setup {
        lighty!()
            .config(&format!("server.max-worker = {workers}"))
            .config("proxy-core.protocol = \"http\"")
            .config(&format!("proxy-core.backends = ( \"{}\" )", self.address))
    }
}

impl Drop for Preforked {
    fn drop(&mut self) {
        self.state.stopping.store(true, Ordering::SeqCst);
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        lock(&self.state.sockets).iter().for_each(|socket| {
            let _ = socket.shutdown(Shutdown::Both);
        });
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn process(listener: &TcpListener, state: &PreforkedState, takes: Duration) {
    while let Ok((mut socket, _)) = listener.accept() {
        if state.stopping.load(Ordering::SeqCst) {
            return;
        }
        let number = state.accepted.fetch_add(1, Ordering::SeqCst);
        socket.set_nodelay(true).expect("TCP_NODELAY");
        lock(&state.sockets).push(socket.try_clone().expect("a descriptor"));
        while let Some(target) = read_target(&mut socket) {
            lock(&state.requests).push((number, target));
            std::thread::sleep(takes);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            if socket.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
        // The copy would keep it open.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

fn read_target(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut buffer) {
            Ok(count @ 1..) => head.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    }
    String::from_utf8_lossy(&head).split(' ').nth(1).map(str::to_owned)
}

/// Concurrent clients, each with `each` requests in succession; returns the total duration.
fn burst(server: &Server, clients: usize, each: usize) -> Duration {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                let mut connection = server.connect();
                for round in 0..each {
                    let request = format!("GET /{client}/{round} HTTP/1.1\r\nHost: a\r\n\r\n");
                    connection.send(request);
                    assert_eq!(connection.response().status, 200, "{}", server.log());
                }
            });
        }
    });
    began.elapsed()
}

/// The kernel distributes connections among the workers; with many, each worker gets some.
#[test]
fn one_process_serves_the_requests_of_all_workers_one_after_another() {
    let backend = Preforked::start(1, Duration::ZERO);
    let server = backend.front(4).start();
    let began = Instant::now();
    for number in 0..60 {
        assert_eq!(server.get(&format!("/{number}")).status, 200, "{}", server.log());
    }
    let order: Vec<String> = backend.requests().into_iter().map(|(_, target)| target).collect();
    assert_eq!(order, (0..60).map(|number| format!("/{number}")).collect::<Vec<_>>());
    assert!(backend.accepted() > 1, "only one worker was asked");
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
}

#[test]
fn a_burst_waits_for_no_connection_that_rests() {
    for (processes, workers) in [(1, 1), (1, 4), (2, 1), (2, 4), (8, 1), (8, 4)] {
        let backend = Preforked::start(processes, Duration::from_millis(20));
        let server = backend.front(workers).start();
        // The state after one burst must not harm the next.
        for _ in 0..3 {
            let took = burst(&server, processes * 4, 3);
            assert!(took < PATIENCE / 4, "{processes} processes, {workers} workers: {took:?}");
        }
    }
}

/// Two upstreams of one backend share the knowledge about their connections.
#[test]
fn a_backend_that_two_upstreams_share_is_given_up_by_one_for_the_other() {
    let backend = Preforked::start(1, Duration::ZERO);
    let block = "$HTTP[\"url\"] =~ \"^/other\" { proxy-core.backlog-timeout = 7 }";
    let server = backend.front(1).config(block).start();
    let began = Instant::now();
    for number in 0..10 {
        assert_eq!(server.get(&format!("/{number}")).status, 200, "{}", server.log());
        assert_eq!(server.get(&format!("/other/{number}")).status, 200, "{}", server.log());
    }
    assert_eq!(backend.accepted(), 20);
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
}

/// A check needs a further connection; it would find a backend down that an idle connection holds.
#[test]
fn a_check_waits_for_no_connection_that_rests() {
    let backend = Preforked::start(1, Duration::ZERO);
    let check = "proxy-core.check = ( \"type\" => \"http\", \"uri\" => \"/check\", \
                 \"interval\" => \"100ms\", \"timeout\" => \"20s\", \"fall\" => 1 )";
    let server = backend.front(1).config(check).start();
    let checks = || backend.requests().iter().filter(|(_, target)| target == "/check").count();
    let began = Instant::now();
    for round in 1..5 {
        assert_eq!(server.get("/").status, 200, "{}", server.log());
        let before = checks();
        assert!(lighty_testkit::wait_until(PATIENCE / 4, || checks() > before), "round {round}");
    }
    assert!(!server.log().contains("is down"), "{}", server.log());
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
}

/// With fewer processes than clients, requests wait for a kept connection instead of opening their
/// own.
#[test]
fn requests_beyond_the_processes_share_their_connections() {
    for workers in [1, 2] {
        let backend = Preforked::start(4, Duration::ZERO);
        let server = backend.front(workers).config("proxy-core.max-pool-size = 64").start();
        let is_shared = || {
            let before = backend.accepted();
            burst(&server, 24, 50);
            backend.accepted() - before <= 24 * 50 / 10
        };
        let until = Instant::now() + PATIENCE;
        while !is_shared() {
            assert!(Instant::now() < until, "{workers}: {} connections", backend.accepted());
        }
    }
}

/// Connections are not given up without need: with a process for each, they are kept.
#[test]
fn connections_are_kept_where_there_are_processes_enough() {
    let backend = Preforked::start(8, Duration::ZERO);
    let server = backend.front(1).start();
    // On a loaded machine it may take some rounds until it is known how many there are.
    let is_kept = || {
        let before = backend.accepted();
        burst(&server, 4, 50);
        backend.accepted() - before <= 20
    };
    let until = Instant::now() + PATIENCE;
    while !is_kept() {
        assert!(Instant::now() < until, "{} connections", backend.accepted());
    }
}
