//! `lighty ctl upgrade`: another process takes the server's place.

mod counters;
mod orders;
mod sockets;
mod versions;

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lighty_server::control::client::{CallError, call};
use lighty_testkit::backend::Backend;
use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::process::is_running;
use lighty_testkit::scratch::Scratch;
use lighty_testkit::server::{Server, Setup, binary, write_file};
use lighty_testkit::wait_until;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

fn site() -> Setup {
    lighty!().file("a", "x").config("server.pid-file = \"@DIR@/lighty.pid\"")
}

/// A server that may start any program.
fn unrestricted() -> Setup {
    site().config("server.sandbox = \"off\"")
}

/// A server whose place others take; the last one is ended with it.
pub(crate) struct Line {
    pub(crate) first: Server,
}

impl Line {
    pub(crate) fn start(setup: Setup) -> Self {
        Self { first: setup.start() }
    }

    /// The id in the pid file; 0 without one.
    fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.first.directory().join("lighty.pid"));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// `lighty ctl ARGUMENTS`: exit status, standard output and error output.
    fn ctl(&self, arguments: &[&str]) -> (i32, String, String) {
        crate::ctl::ctl(&self.first, arguments)
    }

    fn done(&self, arguments: &[&str]) -> String {
        let (status, out, err) = self.ctl(arguments);
        assert_eq!((status, err.as_str()), (0, ""), "{arguments:?}: {out}\n{}", self.first.log());
        out
    }

    /// Upgrades. Returns the id of the new process.
    pub(crate) fn upgrade(&self) -> u32 {
        let before = self.pid();
        self.done(&["upgrade"]);
        let after = self.pid();
        assert_ne!(before, after, "{}", self.first.log());
        after
    }

    fn json(&self, verb: &str) -> Value {
        serde_json::from_str(&self.done(&[verb, "--format", "json"])).expect("JSON")
    }

    /// A program for `--binary`: this server, which is killed after a second.
    fn crashing(&self) -> String {
        let lighty = binary(env!("CARGO_BIN_EXE_lighty"));
        let text = "(sleep 1; kill -9 $$) </dev/null & exec";
        self.script("crashing", &format!("{text} '{}' \"$@\"", lighty.display()))
    }

    /// A program for `--binary`.
    fn script(&self, name: &str, text: &str) -> String {
        let path = self.first.directory().join(name);
        write_file(&path, format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a mode");
        path.to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let last = self.pid();
        if last == 0 || last == self.first.pid() {
            return;
        }
        let pid = Pid::from_raw(i32::try_from(last).expect("an id")).expect("an id");
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        let ended = wait_until(PATIENCE, || !is_running(last));
        assert!(ended || std::thread::panicking(), "process {last} does not stop");
    }
}

fn get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

#[test]
fn reload_with_upgrade_upgrades_only_for_the_sandbox() {
    let line = Line::start(site().config("server.sandbox = \"auto\"").config("# end"));
    let path = line.first.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&path).expect("the configuration");
    let write = |lines: &str| write_file(&path, text.replace("# end", lines));
    let out = line.done(&["reload", "--upgrade", "--format", "json"]);
    let out: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(out["outcome"], "reloaded", "{out}");

    let data = Scratch::new("lighty-data-");
    write_file(&data.path().join("page"), "data");
    let alias = format!("alias.url = ( \"/d/\" => \"{}/\" )", data.path().display());
    write(&alias);
    let first = line.pid();
    let (status, _, err) = line.ctl(&["reload"]);
    assert!(status == 1 && err.contains("\"lighty ctl reload --upgrade\""), "{err}");
    let socket = line.first.directory().join("lighty.pid.ctl");
    let refused = call(&socket, "POST", "/reload", &serde_json::json!({}));
    let Err(CallError::Refused { kind, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(kind.as_deref(), Some("sandbox"));

    // Another reason beside it, which an upgrade would not remove.
    write(&format!("{alias}\nserver.max-fds = 77"));
    let (status, _, err) = line.ctl(&["reload", "--upgrade"]);
    assert!(status == 1 && err.contains("needs a restart: server.max-fds"), "{err}");
    write("server.port = \"x\"");
    let (status, _, err) = line.ctl(&["reload", "--upgrade"]);
    assert!(status == 1 && err.contains("server.port"), "{err}");
    assert_eq!(line.pid(), first, "no upgrade");

    write(&alias);
    let out = line.done(&["reload", "--upgrade"]);
    assert!(out.contains("upgraded instead: process "), "{out}");
    assert_ne!(line.pid(), first);
    let mut client = Client::tcp(line.first.address());
    client.send("GET /d/page HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "data");
    assert!(line.done(&["reload", "--upgrade"]).starts_with("reloaded: generation 1"));
}

#[test]
fn files_and_commands_that_the_sandbox_hides_from_a_reload_come_by_an_upgrade() {
    let data = Scratch::new("lighty-data-");
    let part = data.path().join("part");
    write_file(&part, "setenv.add-response-header = ( \"X-Part\" => \"1\" )");
    for keyword in ["include \"", "include_shell \"cat "] {
        let line = Line::start(site().config("server.sandbox = \"auto\"").config("# end"));
        let path = line.first.directory().join("lighty.conf");
        let text = std::fs::read_to_string(&path).expect("the configuration");
        write_file(&path, text.replace("# end", &format!("{keyword}{}\"", part.display())));
        let out = line.done(&["reload", "--upgrade"]);
        assert!(out.contains("upgraded instead: process "), "{keyword}: {out}");
        let response = get(line.first.address()).expect("a response");
        assert!(response.contains("X-Part: 1"), "{keyword}: {response}");
    }
}

#[test]
fn stop_right_after_an_upgrade_ends_both_processes() {
    for (mode, order) in [("auto", "stop"), ("auto", "INT"), ("auto", "TERM"), ("off", "stop")] {
        let line = Line::start(site().config(&format!("server.sandbox = \"{mode}\"")));
        let old = line.first.pid();
        std::thread::scope(|scope| {
            let upgrading = scope.spawn(|| line.ctl(&["upgrade"]));
            let has_taken_over = || ![0, old].contains(&line.pid());
            assert!(wait_until(PATIENCE, has_taken_over), "{}", line.first.log());
            let new = line.pid();
            match order {
                "stop" => drop(line.done(&["stop"])),
                signal => {
                    let signal = if signal == "INT" { Signal::INT } else { Signal::TERM };
                    let pid = Pid::from_raw(new as i32).expect("a process");
                    rustix::process::kill_process(pid, signal).expect("sent");
                }
            }
            let are_gone = || !is_running(new) && !is_running(old);
            assert!(wait_until(PATIENCE, are_gone), "{mode} {order}: {}", line.first.log());
            let (status, out, err) = upgrading.join().expect("no panic");
            assert_eq!(status, 0, "{mode} {order}: {out}{err}");
        });
        assert!(get(line.first.address()).is_err(), "{mode} {order}");
    }
}

#[test]
fn reload_and_upgrade_that_both_fail_name_both_reasons() {
    let line = Line::start(site().config("server.sandbox = \"auto\"").config("# end"));
    let path = line.first.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&path).expect("the configuration");
    let data = Scratch::new("lighty-data-");
    let log = data.path().join("no/such/directory/access.log");
    let lines = format!("accesslog.filename = \"{}\"", log.display());
    write_file(&path, text.replace("# end", &lines));
    let first = line.pid();
    let (status, _, err) = line.ctl(&["reload", "--upgrade"]);
    assert!(status == 1 && err.contains("reload refused:"), "{err}");
    assert!(err.contains("\nupgrade refused: "), "{err}");
    assert_eq!(line.pid(), first);
    assert_eq!(line.first.get("/a").status, 200);
}

#[test]
fn listeners_pid_file_and_control_socket_change_hands() {
    let mut line = Line::start(site().config("server.max-worker = 2"));
    let first = line.first.pid();
    let mut kept = line.first.connect();
    kept.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(kept.response().status, 200);
    let second = line.upgrade();
    assert!(is_running(second));
    assert_eq!(line.json("status")["pid"], second);
    assert!(get(line.first.address()).expect("a response").starts_with("HTTP/1.1 200"));
    // The old process ends by itself, in order.
    let (status, _) = line.first.await_exit(PATIENCE);
    assert!(status.success(), "{status}");
    assert!(is_running(second));
    assert_eq!(line.pid(), second);
    // The next process can be replaced, too.
    let third = line.upgrade();
    assert!(third != first && wait_until(PATIENCE, || !is_running(second)));
    assert!(line.done(&["reload"]).starts_with("reloaded: generation 1"));
    line.done(&["stop"]);
    assert!(wait_until(PATIENCE, || !is_running(third)));
    let left = |name: &str| line.first.directory().join(name).exists();
    assert!(!left("lighty.pid") && !left("lighty.pid.ctl"));
    assert!(get(line.first.address()).is_err(), "nobody listens");
}

#[test]
fn every_connection_is_served_through_upgrades() {
    let line = Line::start(site().config("server.max-worker = 2"));
    let (address, is_over) = (line.first.address(), AtomicBool::new(false));
    let (served, lost) = (AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    match get(address) {
                        Ok(text) if text.ends_with("\r\n\r\nx") => {
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                        other => lost.lock().expect("a list").push(format!("{other:?}")),
                    }
                }
            });
        }
        line.upgrade();
        line.upgrade();
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(*lost.lock().expect("a list"), Vec::<String>::new(), "{}", line.first.log());
    assert!(served.load(Ordering::Relaxed) > 100);
}

#[test]
fn tunnel_and_slow_download_outlive_the_upgrade() {
    let echo = Backend::start(|peer| {
        if peer.head().is_none() {
            return;
        }
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        );
        while let Some(bytes) = peer.read_exact(4) {
            peer.send(bytes);
        }
    });
    let line = Line::start(
        site()
            .file("large", vec![b'l'; 8 << 20])
            .config("$HTTP[\"url\"] == \"/ws\" {\nproxy-core.upgrade = \"enable\"\nproxy-core.protocol = \"http\"")
            .config(&format!("proxy-core.backends = ( \"{}\" )\n}}", echo.name())),
    );
    let mut tunnel = line.first.connect();
    tunnel.send(
        "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    assert_eq!(tunnel.response_head().status, 101);
    let mut download = TcpStream::connect(line.first.address()).expect("connected");
    download
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut first = [0; 1024];
    download.read_exact(&mut first).expect("the first part");
    line.upgrade();
    tunnel.send("ping");
    assert_eq!(tunnel.read_exact(4).expect("an echo"), b"ping");
    let mut rest = Vec::new();
    download.read_to_end(&mut rest).expect("the rest");
    assert_eq!(rest.iter().filter(|byte| **byte == b'l').count() + count(&first), 8 << 20);
}

fn count(first: &[u8]) -> usize {
    let body = first.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    first.len() - body
}

/// Programs that do not become a server, and a part of the message about them.
#[test]
fn failing_successor_changes_nothing() {
    let line = Line::start(unrestricted().config("server.upgrade-timeout = 1"));
    let (pid, before) = (line.first.pid(), line.first.descriptors());
    let not_executable = line.script("not-executable", "");
    std::fs::set_permissions(&not_executable, PermissionsExt::from_mode(0o644)).expect("a mode");
    for (binary, expected) in [
        (line.script("exits", "echo 'no library' >&2; exit 3"), "no library"),
        (line.script("hangs", "exec sleep 60"), "not ready within 1 seconds"),
        (line.script("killed", "kill -9 $$"), "signal 9"),
        (line.script("garbage", "printf '\\0\\0\\0\\2\\0\\0\\0\\0{}' >&0; sleep 60"), "language"),
        (not_executable, "cannot be started: Permission denied"),
        ("/nonexistent/lighty".to_owned(), "cannot be started: No such file"),
        ("lighty".to_owned(), "absolute path"),
    ] {
        let (status, out, err) = line.ctl(&["upgrade", "--binary", &binary]);
        assert!(status == 1 && out.is_empty() && err.contains(expected), "{binary}: {err}");
        assert!(get(line.first.address()).expect("a response").starts_with("HTTP/1.1 200"));
        assert_eq!((line.pid(), &line.json("status")["pid"]), (pid, &pid.into()));
    }
    // A configuration that the new process refuses, with its diagnostics.
    let config = line.first.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&config).expect("a configuration");
    write_file(&config, format!("{text}\nserver.port = \"x\"\n"));
    let (status, _, err) = line.ctl(&["upgrade"]);
    assert!(status == 1 && err.contains("server.port"), "{err}");
    write_file(&config, text);
    let is_as_before = || line.first.descriptors() <= before;
    assert!(wait_until(PATIENCE, is_as_before), "{} descriptors", line.first.descriptors());
    line.upgrade();
}

#[test]
fn sandbox_permits_the_own_program_alone() {
    let line = Line::start(site().config("server.sandbox = \"auto\""));
    let (status, _, err) = line.ctl(&["upgrade", "--binary", "/bin/true"]);
    assert!(status == 1 && err.contains("server.sandbox"), "{err}");
    // Under the new process's own restrictions, the next one starts as well.
    line.upgrade();
    line.upgrade();
}

#[test]
fn listeners_return_from_a_successor_that_crashes() {
    let line = Line::start(unrestricted().config("server.max-worker = 2"));
    let pid = line.first.pid();
    let crashing = line.crashing();
    let (status, _, err) = line.ctl(&["upgrade", "--binary", &crashing]);
    assert!(status == 1 && err.contains("signal 9") && err.contains("serves again"), "{err}");
    assert_eq!((line.pid(), &line.json("status")["pid"]), (pid, &pid.into()));
    for _ in 0..8 {
        assert!(get(line.first.address()).expect("a response").starts_with("HTTP/1.1 200"));
    }
    line.upgrade();
}

#[test]
fn orders_and_health_of_backends_survive() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let added = Backend::answering("added");
    let dead = "127.0.0.1:1";
    let line = Line::start(
        site().config("proxy-core.protocol = \"http\"\nproxy-core.disable-time = 3600").config(
            &format!(
                "proxy-core.backends = ( \"{}\", \"{}\", \"{dead}\" )\n\
                 server.sandbox-ports = ( {} )",
                one.name(),
                other.name(),
                added.address().port()
            ),
        ),
    );
    line.done(&["drain", &one.name()]);
    line.done(&["weight", &other.name(), "7"]);
    line.done(&["limit", &other.name(), "9"]);
    line.done(&["add", &added.name(), "--to", "proxy-core.backends", "--weight", "0"]);
    for _ in 0..8 {
        assert_eq!(line.first.get("/").text(), "other");
    }
    let rows = || -> Vec<(String, String, u64, u64)> {
        let backends = line.json("backends");
        let row = |row: &Value| {
            let text = |name: &str| row[name].as_str().expect("a text").to_owned();
            let number = |name: &str| row[name].as_u64().expect("a number");
            (text("backend"), text("state"), number("weight"), number("limit"))
        };
        backends.as_array().expect("rows").iter().map(row).collect()
    };
    let before = rows();
    assert!(before.contains(&(dead.to_owned(), "down".to_owned(), 1, 256)), "{before:?}");
    assert_eq!((before[1].2, before[1].3, before.len()), (7, 9, 4), "{before:?}");
    line.upgrade();
    assert_eq!(rows(), before);
    assert!(get(line.first.address()).expect("a response").ends_with("other"));
}

/// Fewer workers accept on all sockets of the old ones, more workers get sockets of their own.
#[test]
fn number_of_workers_may_change() {
    let line = Line::start(site().config("server.max-worker = 4"));
    let config = line.first.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&config).expect("a configuration");
    for workers in [1, 3, 2] {
        let changed =
            text.replace("server.max-worker = 4", &format!("server.max-worker = {workers}"));
        write_file(&config, changed);
        line.upgrade();
        assert_eq!(line.json("status")["workers"].as_array().expect("workers").len(), workers);
        for _ in 0..24 {
            let response = get(line.first.address()).expect("a response");
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        }
    }
}

#[test]
fn unix_listener_keeps_its_path() {
    let line = Line::start(site().config("$SERVER[\"socket\"] == \"@DIR@/web.sock\" { }"));
    let path = line.first.directory().join("web.sock");
    let ask = || {
        let mut stream = UnixStream::connect(&path).expect("connected");
        let request = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response
    };
    let first = line.first.pid();
    let second = line.upgrade();
    assert!(wait_until(PATIENCE, || !is_running(first)), "{}", line.first.log());
    assert!(ask().starts_with("HTTP/1.1 200"));
    line.done(&["stop"]);
    assert!(wait_until(PATIENCE, || !is_running(second)));
    assert!(!path.exists());
}

#[test]
fn stop_during_an_upgrade_ends_the_new_process() {
    let mut line = Line::start(unrestricted());
    let marker = line.first.directory().join("started");
    let hanging = line.script("hangs", &format!("echo $$ > '{}'; exec sleep 60", marker.display()));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| line.ctl(&["upgrade", "--binary", &hanging]));
        let started = || std::fs::read_to_string(&marker).is_ok_and(|text| text.ends_with('\n'));
        assert!(wait_until(PATIENCE, started));
        // Another one, and a reload, have to wait.
        for verb in ["upgrade", "reload"] {
            let (status, _, err) = line.ctl(&[verb]);
            assert!(status == 1 && err.contains("under way"), "{verb}: {err}");
        }
        line.first.signal(Signal::TERM);
        let (status, _, err) = caller.join().expect("an outcome");
        assert!(status == 1 && err.contains("told to stop"), "{err}");
    });
    line.first.await_exit(PATIENCE);
    let pid = std::fs::read_to_string(&marker).expect("an id").trim().parse().expect("an id");
    assert!(wait_until(PATIENCE, || !is_running(pid)), "the new process lives");
}

/// A service manager that only listens.
struct FakeManager {
    socket: UnixDatagram,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl FakeManager {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        Self { socket, path, _directory: directory }
    }

    /// Waits for the first descriptor. Returns it with the name that it has at the manager.
    fn receive_descriptor(&self) -> (OwnedFd, String) {
        loop {
            let (mut bytes, mut space) = ([0; 4096], [MaybeUninit::uninit(); 128]);
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut buffers = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = recvmsg(&self.socket, &mut buffers, &mut control, flags).expect("a message");
            let text = String::from_utf8_lossy(&bytes[..got.bytes]).into_owned();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                    let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
                    let name = name.expect("a name").to_owned();
                    return (descriptors.next().expect("a descriptor"), name);
                }
            }
        }
    }

    /// Waits for a message with this line.
    fn await_line(&self, line: &str) {
        let mut buffer = [0; 4096];
        loop {
            let read = self.socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{line}: {e}"));
            let text = String::from_utf8_lossy(&buffer[..read]);
            if text.lines().any(|one| one == line) {
                return;
            }
        }
    }
}

#[test]
fn service_manager_is_told_of_every_state() {
    let manager = FakeManager::new();
    let notify = manager.path.to_str().expect("UTF-8");
    let mut line = Line::start(site().env("NOTIFY_SOCKET", notify).env("WATCHDOG_USEC", "600000"));
    manager.await_line("FDSTORE=1");
    manager.await_line("READY=1");
    manager.await_line("WATCHDOG=1");
    line.done(&["reload"]);
    manager.await_line("RELOADING=1");
    manager.await_line("READY=1");
    let second = line.upgrade();
    manager.await_line(&format!("MAINPID={second}"));
    line.first.await_exit(PATIENCE);
    manager.await_line("WATCHDOG=1");
    line.done(&["stop"]);
    manager.await_line("STOPPING=1");
    assert!(wait_until(PATIENCE, || !is_running(second)));
}

/// Runs a command with standard input as descriptor 3, announced as an inherited socket.
const ACTIVATE: &str = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$; \
                        export LISTEN_FDS LISTEN_PID; exec \"$0\" \"$@\"";

#[test]
fn connections_wait_for_the_start_after_a_crash() {
    let manager = FakeManager::new();
    let mut first = site().env("NOTIFY_SOCKET", manager.path.to_str().expect("UTF-8")).start();
    let (listener, name) = manager.receive_descriptor();
    first.kill();
    let mut waiting = TcpStream::connect(first.address()).expect("nobody refuses");
    waiting.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let second =
        site().stdin(listener).through(["sh", "-c", ACTIVATE]).env("LISTEN_FDNAMES", &name).start();
    assert_eq!(second.listening(), [first.address()]);
    let mut response = String::new();
    waiting.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}
