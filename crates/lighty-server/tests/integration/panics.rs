//! Effects of panics. A module of this test panics at each point of a request's life; and a whole
//! server, in a process of its own, has its tasks panic one after the other.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::module::{Hooks, Module, ModuleList, Step, Traits};
use lighty_core::{Body, BodyChunk, BodyStream, Exchange, Settings, Tunnel, TunnelSummary};
use lighty_http::Status;
use lighty_io::log_writer::LogTarget;
use lighty_io::threads::panics;
use lighty_io::threads::pool::{PoolLimits, ThreadPool};
use lighty_io::transport::ByteStream;
use lighty_server::boot;
use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::http2::{Http2, INTERNAL_ERROR};

use crate::harness::{RunningWorker, WorkerSetup, config, start_worker};

/// Time limit for each step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Limit on the connections of the first test's worker.
const PLACES: usize = 8;

/// Panics at the point that the path names.
struct Bomb;

impl Module for Bomb {
    fn name(&self) -> &'static str {
        "mod_bomb"
    }

    fn traits(&self) -> Traits {
        Hooks { physical: true, done: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<lighty_config::Directive<Settings>> {
        Vec::new()
    }

    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        match &ex.request.path[..] {
            b"/hook" => panic!("as the test wants it"),
            b"/wait" => return Step::Wait(Box::pin(wait_and_panic())),
            b"/first-piece" => ex.response.body = Body::Stream(Box::new(Pieces(0))),
            b"/second-piece" => ex.response.body = Body::Stream(Box::new(Pieces(1))),
            b"/tunnel" => {
                ex.response.set_text(Status::SWITCHING_PROTOCOLS, "text/plain", "");
                ex.response.tunnel = Some(Box::new(Collapse));
            }
            _ => ex.response.set_text(Status::OK, "text/plain", "well"),
        }
        ex.response.answered = true;
        Step::Answered
    }

    fn done(&self, ex: &Exchange) {
        assert_ne!(ex.request.path, b"/done", "as the test wants it");
    }
}

async fn wait_and_panic() -> Step<'static> {
    tokio::task::yield_now().await;
    panic!("as the test wants it");
}

/// A body of so many pieces, followed by a panic.
struct Pieces(u32);

impl BodyStream for Pieces {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        assert!(self.0 > 0, "as the test wants it");
        self.0 -= 1;
        Poll::Ready(Some(Ok(Chunk::Memory(Bytes::from_static(b"piece")))))
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

struct Collapse;

impl Tunnel for Collapse {
    fn run(
        self: Box<Self>,
        _: Rc<dyn ByteStream>,
        _: Bytes,
    ) -> Pin<Box<dyn Future<Output = io::Result<TunnelSummary>>>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            panic!("as the test wants it");
        })
    }
}

/// Starts a worker with only that module.
fn start(log: &Path) -> RunningWorker {
    let log = LogTarget::parse(log.to_str().expect("text"));
    let setup = WorkerSetup { log, conns_max: PLACES, ..WorkerSetup::default() };
    start_worker(setup, |_| ModuleList::new(vec![Rc::new(Bomb) as Rc<dyn Module>]))
}

fn ask(client: &mut Client, path: &str) {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
}

#[test]
fn a_request_that_panics_costs_its_connection_and_no_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("error.log");
    let server = start(&log);
    for _ in 0..=PLACES {
        for path in ["/hook", "/wait"] {
            let mut client = Client::tcp(server.address);
            ask(&mut client, path);
            assert_eq!(client.response().status, 500, "{path}");
            client.expect_end();
        }
        for path in ["/first-piece", "/second-piece", "/tunnel"] {
            let mut client = Client::tcp(server.address);
            ask(&mut client, path);
            let (came, _) = client.read_to_end();
            // The last chunk must be missing: the response is cut.
            assert!(!came.ends_with(b"0\r\n\r\n"), "{path}: {}", came.escape_ascii());
        }
        let mut client = Client::tcp(server.address);
        ask(&mut client, "/done");
        client.read_to_end();
    }
    let mut client = Client::tcp(server.address);
    for _ in 0..2 {
        ask(&mut client, "/");
        assert_eq!(client.response().body, b"well");
    }
    drop(client);
    assert_eq!(server.stop(PATIENCE), Ok(0), "the stop is orderly");
    let names_the_request = |line: &str| {
        line.contains("127.0.0.1: internal error: ")
            && line.contains("as the test wants it")
            && line.contains("request: \"GET /wait\"")
    };
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&log).expect("a log").lines().any(names_the_request) {
        assert!(Instant::now() < deadline, "{}", std::fs::read_to_string(&log).expect("a log"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stream_that_panics_costs_no_other_stream() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(&directory.path().join("error.log"));
    let mut client = Http2::connect(server.address);
    for _ in 0..=PLACES {
        for path in ["/hook", "/wait"] {
            assert_eq!(client.get(path).status, 500, "{path}");
        }
        for path in ["/first-piece", "/second-piece"] {
            let got = client.get(path);
            assert_eq!((got.has_ended, got.reset), (false, Some(INTERNAL_ERROR)), "{path}");
        }
        assert_eq!(client.get("/").text(), "well");
    }
    assert!(client.goaways.is_empty());
    drop(client);
    assert_eq!(server.stop(PATIENCE), Ok(0), "the stop is orderly");
}

/// Variable with the drills of the server in [`the_server_of_a_drill`], as `place=times`.
const DRILLS: &str = "LIGHTY_TEST_DRILLS";
const CONFIG: &str = "LIGHTY_TEST_CONFIG";

/// Not a test, but the server process of the tests below.
#[test]
fn the_server_of_a_drill() {
    let Ok(text) = std::env::var(CONFIG) else { return };
    for drill in std::env::var(DRILLS).expect("drills").split(',').filter(|text| !text.is_empty()) {
        let (place, times) = drill.split_once('=').expect("place=times");
        panics::drill(place, times.parse().expect("a number"));
    }
    if let Some(sign) = std::env::var_os(NO_THREADS) {
        std::thread::spawn(move || take_threads_away(Path::new(&sign)));
    }
    let outcome = boot::run(config(Vec::new(), &text), boot::Options::default());
    std::process::exit(if outcome.is_ok() { 0 } else { 3 });
}

/// Variable with the path of a file: once it exists, the pool takes no more jobs, as if no thread
/// could be started.
const NO_THREADS: &str = "LIGHTY_TEST_NO_THREADS";

fn take_threads_away(sign: &Path) {
    while !sign.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pool = ThreadPool::global();
    pool.set_limits(PoolLimits { queued_jobs_max: 0, ..pool.limits() });
    std::fs::remove_file(sign).expect("it is there");
}

/// A server in a process of its own.
struct Drilled {
    child: Child,
    directory: tempfile::TempDir,
    address: SocketAddr,
}

impl Drilled {
    fn start(drills: &str, settings: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("a.txt"), "well").expect("written");
        let root = directory.path().display();
        let text = format!(
            "server.document-root = \"{root}\"\nserver.bind = \"127.0.0.1\"\nserver.port = 0\n\
             server.errorlog = \"{root}/error.log\"\nstatus.statistics-url = \"/statistics\"\n\
             {}",
            settings.replace("ROOT", &root.to_string())
        );
        let child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "panics::the_server_of_a_drill", "--nocapture"])
            .envs([(DRILLS, drills), (CONFIG, &text)])
            .env(NO_THREADS, directory.path().join("no-threads"))
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, directory, address: any };
        server.wait_for("it serves", |log| log.contains(" is serving "));
        let log = server.log();
        let from = log.find("http://").expect("an address") + "http://".len();
        let port = log[from..].split(['/', ',']).next().expect("an address");
        server.address = port.parse().expect("an address");
        server
    }

    fn log(&self) -> String {
        let log = std::fs::read(self.directory.path().join("error.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn wait_for(&mut self, what: &str, is_so: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(&self.log()) {
            let ended = self.child.try_wait().expect("a child");
            assert_eq!(ended, None, "it ended: {}", self.log());
            assert!(Instant::now() < deadline, "never: {what}; the log: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut client = Client::try_tcp(self.address).ok()?;
        client
            .try_send(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
            .ok()?;
        let response = client.try_response(false).ok()?;
        Some((response.status, String::from_utf8_lossy(&response.body).into_owned()))
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Drilled {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that writes to its error output and then waits until it is ended.
const PROGRAM: &str = "#!/bin/sh\necho begun >&2\nwhile :; do sleep 0.1; echo lives >&2; done\n";

const EVERY_TASK: &str = "server.max-worker = 1
$HTTP[\"url\"] =~ \"^/p/\" {
    proxy-core.protocol = \"http\"
    proxy-core.backends = ( \"localhost:1\" )
    proxy-core.check = ( \"type\" => \"tcp\", \"interval\" => 1 )
}
$HTTP[\"url\"] =~ \"^/f/\" {
    fastcgi.server = ( \"/f/\" => (( \"socket\" => \"ROOT/f.sock\", \"bin-path\" => \"ROOT/program\",
        \"min-procs\" => 1, \"max-procs\" => 2, \"check-local\" => \"disable\" )) )
}
";

/// Tasks that restart by themselves, and the action that brings each to its panic.
const KEPT: &[&str] = &[
    "clock",
    "file engine",
    "health check",
    "names",
    "process",
    "processes",
    "alarms",
    "proxy sweep",
    "resolver",
    "sweep",
    "words of a process",
];

#[test]
fn tasks_that_others_depend_on_begin_again() {
    let drills: Vec<String> = KEPT.iter().map(|place| format!("{place}=2")).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("program");
    std::fs::write(&program, PROGRAM).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("a program");
    let settings = EVERY_TASK.replace("ROOT/program", &program.display().to_string());
    let mut server = Drilled::start(&drills.join(","), &settings);
    let deadline = Instant::now() + PATIENCE;
    let has_begun_again = |log: &str, place: &str| {
        log.matches(&format!("task \"{place}\" begins again after a panic")).count() >= 2
    };
    // The proxy's tasks start with the first proxied request, the engine's turns with a file.
    while let Some(late) = KEPT.iter().find(|place| !has_begun_again(&server.log(), place)) {
        let log = server.log();
        assert!(Instant::now() < deadline, "\"{late}\" does not panic, or does not go on: {log}");
        let _ = (server.get("/p/"), server.get("/a.txt"), server.get("/missing"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.get("/a.txt"), Some((200, "well".to_owned())));
    let (_, figures) = server.get("/statistics").expect("a response");
    let panics = format!("server.panics: {}", 2 * KEPT.len());
    assert!(figures.contains(&panics), "{panics} in {figures}");
    server.signal("-INT");
    assert_eq!(server.end(), Some(0), "the stop is orderly");
    let log = server.log();
    assert!(log.contains("panicked at ") && log.contains("as a drill wants it: sweep"), "{log}");
    assert!(log.contains(" panics since the start"), "{log}");
}

#[test]
fn connections_are_still_accepted_after_panics() {
    let mut server = Drilled::start("accept=4,load=1,log=1,desk=1", "server.max-worker = 1\n");
    for _ in 0..4 {
        assert_eq!(server.get("/a.txt"), None, "its accept panics");
    }
    assert_eq!(server.get("/missing").expect("a response").0, 500, "its load panics");
    assert_eq!(server.get("/missing").expect("a response").0, 404);
    assert_eq!(server.get("/a.txt"), Some((200, "well".to_owned())));
    let (_, missing) = server.get("/statistics").expect("a response");
    assert!(missing.contains("server.panics: 7"), "{missing}");
    let (_, figures) = server.get("/statistics").expect("a response");
    assert!(figures.contains("server.connections.open: 1"), "{figures}");
    server.signal("-INT");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_server_that_cannot_accept_ends_with_an_error() {
    let mut server = Drilled::start("accept=5", "server.max-worker = 1\n");
    while server.child.try_wait().expect("a child").is_none() {
        let _ = server.get("/a.txt");
    }
    assert_eq!(server.end(), Some(3));
    assert!(server.log().contains("no listener accepts connections any more"), "{}", server.log());
}

#[test]
fn a_worker_that_is_lost_ends_the_process_with_an_error_once_the_others_have_answered() {
    let settings = "server.max-worker = 2\nserver.max-worker-restarts = 0\n";
    let mut server = Drilled::start("worker=1", settings);
    server.signal("-HUP");
    assert_eq!(server.end(), Some(3));
    let log = server.log();
    assert!(log.contains("has ended by a panic: stopping"), "{log}");
    assert!(log.contains("is not replaced: 0 restarts of workers within a minute"), "{log}");
    assert!(log.contains("as a drill wants it: worker") && log.contains("stopped"), "{log}");
}

/// Has one of two workers panic, and returns how many of some connections survive.
fn survivors(server: &mut Drilled) -> usize {
    let mut clients: Vec<_> = (0..32).map(|_| Client::tcp(server.address)).collect();
    for client in &mut clients {
        ask(client, "/a.txt");
        assert_eq!(client.response().body, b"well");
    }
    server.signal("-HUP");
    server.wait_for("a successor", |log| log.contains("another one takes its place"));
    let is_answered = |client: &mut Client| {
        let request = "GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";
        client.try_send(request).is_ok() && client.try_response(false).is_ok()
    };
    clients.iter_mut().map(is_answered).filter(|is_answered| *is_answered).count()
}

#[test]
fn a_worker_that_panics_is_replaced_and_the_others_keep_their_connections() {
    let mut server = Drilled::start("worker=1", "server.max-worker = 2\n");
    let survivors = survivors(&mut server);
    assert!((1..32).contains(&survivors), "{survivors} of 32 connections are left");
    // All sockets of the group are accepted from: none of these waits for the lost worker.
    for _ in 0..32 {
        assert_eq!(server.get("/a.txt"), Some((200, "well".to_owned())));
    }
    server.signal("-HUP");
    server.wait_for("logs", |log| log.contains("logs were opened again"));
    server.signal("-INT");
    assert_eq!(server.end(), Some(0), "the stop is orderly: {}", server.log());
    assert_eq!(server.log().matches("another one takes its place").count(), 1);
}

#[test]
fn the_only_worker_is_replaced_as_well() {
    let mut server = Drilled::start("worker=2", "server.max-worker = 1\n");
    let restarts = |log: &str| log.matches("another one takes its place").count();
    for count in 1..=2 {
        server.signal("-HUP");
        server.wait_for("a successor", |log| restarts(log) == count);
    }
    assert_eq!(server.get("/a.txt"), Some((200, "well".to_owned())));
    server.signal("-INT");
    assert_eq!(server.end(), Some(0), "the stop is orderly: {}", server.log());
    assert!(!server.log().contains("no listener accepts"), "{}", server.log());
}

#[test]
fn workers_that_panic_again_and_again_end_the_process() {
    let mut server = Drilled::start("worker=100", "server.max-worker = 2\n");
    // Each signal costs both workers, and the third one is too much.
    for count in [2, 4] {
        server.signal("-HUP");
        server.wait_for("successors", |log| {
            log.matches("another one takes its place").count() == count
        });
    }
    server.signal("-HUP");
    assert_eq!(server.end(), Some(3));
    let log = server.log();
    assert_eq!(log.matches("another one takes its place").count(), 5, "{log}");
    assert!(log.contains("5 restarts of workers within a minute are the limit"), "{log}");
}

#[test]
fn the_first_panic_of_a_place_is_logged_with_its_backtrace() {
    let mut server = Drilled::start("sweep=2", "server.max-worker = 1\n");
    server.wait_for("two panics", |log| {
        log.matches("task \"sweep\" begins again after a panic").count() == 2
            && log.contains("backtrace of 'worker-0': ")
    });
    server.signal("-INT");
    assert_eq!(server.end(), Some(0));
    let log = server.log();
    let frames = log.matches("panics::panic_if_drilled").count();
    assert_eq!(frames, 1, "{log}");
    let mut trace = log.lines().filter(|line| line.contains("backtrace of 'worker-0': "));
    assert!(trace.any(|line| line.contains("src/worker.rs:")), "{log}");
}

#[test]
fn a_raw_tunnel_that_panics_gives_its_place_up() {
    let settings = "server.max-worker = 1\nserver.max-connections = 2\n\
                    sockproxy.server = ( \"\" => (( \"host\" => \"127.0.0.1\", \"port\" => 1 )) )\n";
    let mut server = Drilled::start("raw tunnel=6", settings);
    for _ in 0..8 {
        let mut client = Client::tcp(server.address);
        client.read_to_end();
    }
    server.signal("-INT");
    assert_eq!(server.end(), Some(0), "the stop is orderly");
    assert_eq!(server.log().matches("as a drill wants it: raw tunnel").count(), 6);
}

/// A backend that serves one connection at a time, like a single PHP process: further ones wait
/// until it is closed.
fn one_process() -> Backend {
    let process = Mutex::new(());
    Backend::start(move |peer| {
        let _busy = process.lock().expect("nobody panics");
        peer.respond_to_all("well");
    })
}

fn proxied(path: &str, backend: &Backend, lines: &str) -> String {
    format!(
        "$HTTP[\"url\"] == \"{path}\" {{\nproxy-core.protocol = \"http\"\n\
         proxy-core.backends = ( \"{}\" )\n{lines}\n}}\n",
        backend.name()
    )
}

/// Checks that the panics were counted and that only the asking connection is open. Stops the
/// server and returns its log.
fn counts_and_stops(server: &mut Drilled, panics: usize) -> String {
    let (_, figures) = server.get("/statistics").expect("a response");
    for figure in [format!("server.panics: {panics}"), "server.connections.open: 1".to_owned()] {
        assert!(figures.contains(&figure), "{figure} in {figures}");
    }
    server.signal("-INT");
    assert_eq!(server.end(), Some(0), "the stop is orderly");
    server.log()
}

/// Two upstreams have the same backend: a request of one waits in the listen queue behind an idle
/// connection of the other, until the task that panics here closes the idle connection.
#[test]
fn a_request_behind_a_connection_that_rests_is_answered_despite_a_panic() {
    const PANICS: usize = 3;
    let backend = one_process();
    let settings = format!(
        "server.max-worker = 1\n{}{}",
        proxied("/a", &backend, "proxy-core.max-pool-size = 1"),
        proxied("/b", &backend, "proxy-core.max-pool-size = 2")
    );
    let mut server = Drilled::start(&format!("proxy surplus={PANICS}"), &settings);
    for path in ["/a", "/b"].iter().cycle().take(PANICS + 2) {
        assert_eq!(server.get(path), Some((200, "well".to_owned())), "{path}");
    }
    assert_eq!(backend.opened(), PANICS + 2, "none took the other's connection");
    let log = counts_and_stops(&mut server, PANICS);
    let begun = "task \"proxy surplus\" begins again after a panic";
    assert_eq!(log.matches(begun).count(), PANICS, "{log}");
}

/// Returns all bytes of the response. Repeats the request while a killed program has not exited yet
/// and still occupies its slot (503).
fn request_when_free(server: &Drilled, path: &str) -> Vec<u8> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = Client::tcp(server.address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
        let (came, _) = client.read_to_end();
        if !came.starts_with(b"HTTP/1.1 503 ") {
            return came;
        }
        assert!(Instant::now() < deadline, "{path}: {}", server.log());
    }
}

#[test]
fn a_panic_while_a_response_is_read_ahead_costs_that_response_alone() {
    const PANICS: usize = 6;
    // Longer than a pipe or a socket holds: a complete response is not read ahead.
    let body = "well ".repeat(1_000_000);
    let long = body.clone();
    let backend = Backend::replying(move |_| answer("200 OK", "", &long));
    let settings = format!(
        "server.max-worker = 1\nserver.stream-response-body = 0\n\
         cgi.assign = ( \".cgi\" => \"/bin/sh\" )\ncgi.max-processes = 1\n{}",
        proxied("/proxied", &backend, "proxy-core.max-pool-size = 1")
    );
    let mut server = Drilled::start(&format!("spool={PANICS}"), &settings);
    let file = |name: &str| server.directory.path().join(name);
    let program = format!("printf 'X-A: b\\n\\n'; exec cat {}", file("body").display());
    std::fs::write(file("body"), &body).expect("written");
    std::fs::write(file("a.cgi"), program).expect("written");
    for path in ["/a.cgi", "/proxied"] {
        for _ in 0..PANICS / 2 {
            let came = request_when_free(&server, path);
            assert!(came.len() < body.len(), "{path}: {} bytes", came.len());
        }
    }
    for path in ["/a.cgi", "/proxied"] {
        let came = request_when_free(&server, path);
        assert!(came.starts_with(b"HTTP/1.1 200 ") && came.len() > body.len(), "{path}");
    }
    let log = counts_and_stops(&mut server, PANICS);
    for message in ["as a drill wants it: spool", "reading a response ahead broke off"] {
        assert_eq!(log.matches(message).count(), PANICS, "{message} in {log}");
    }
}

#[test]
fn lookups_get_503_and_files_are_served_without_threads() {
    let settings = "server.max-worker = 1\nuserdir.path = \"public_html\"\n\
                    server.stat-cache-engine = \"inotify\"\n";
    let mut server = Drilled::start("", settings);
    let sign = server.directory.path().join("no-threads");
    assert_eq!(server.get("/a.txt"), Some((200, "well".to_owned())));
    std::fs::write(&sign, "").expect("written");
    let deadline = Instant::now() + PATIENCE;
    while sign.exists() {
        assert!(Instant::now() < deadline, "threads are still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    for user in ["root", "root", "nobody"] {
        assert_eq!(server.get(&format!("/~{user}/x")).expect("a response").0, 503, "{user}");
    }
    assert_eq!(server.get("/a.txt"), Some((200, "well".to_owned())));
    // Look-ups outside the event loop: no request may wait forever, twice.
    for _ in 0..2 {
        assert!([404, 503].contains(&server.get("/missing").expect("a response").0));
    }
    server.wait_for("it says why", |log| log.contains("no thread or process can be had"));
    server.signal("-INT");
    assert_eq!(server.end(), Some(0), "the stop is orderly");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
