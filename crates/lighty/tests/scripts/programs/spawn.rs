//! `lighty spawn`: workers are kept alive, pinged and replaced, and no request is lost.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lighty_testkit::client::Client;
use lighty_testkit::process::is_running;
use lighty_testkit::real::{Listen, find};
use lighty_testkit::server::binary;
use lighty_testkit::wait_until;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::front::{
    Front, PATIENCE, await_listening, libfcgi, lighttpd_before, lighty_before, lighty_with,
};

/// A running supervisor.
struct Supervisor {
    child: Child,
    directory: TempDir,
}

impl Supervisor {
    /// Starts one in a directory, with a socket `s` and a pid file `pid` there.
    fn start(directory: TempDir, options: &[&str], command: &[&str]) -> Self {
        let at = |name: &str| directory.path().join(name);
        let log = std::fs::File::create(at("log")).expect("a file");
        let child = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
            .args(["spawn", "--listen"])
            .arg(at("s"))
            .arg("--pid-file")
            .arg(at("pid"))
            .args(options)
            .arg("--")
            .args(command)
            .current_dir(directory.path())
            .env_remove("PHP_FCGI_CHILDREN")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second descriptor"))
            .stderr(log)
            .spawn()
            .expect("it runs");
        let supervisor = Self { child, directory };
        await_listening(&supervisor.socket());
        let has_control = || supervisor.at("pid.ctl").exists();
        assert!(wait_until(PATIENCE, has_control), "{}", supervisor.log());
        supervisor
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.at("s")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.at("log")).unwrap_or_default()
    }

    fn await_log(&self, message: &str) {
        let found = wait_until(PATIENCE, || self.log().contains(message));
        assert!(found, "{message:?} is not in\n{}", self.log());
    }

    /// Runs `--status` or `--restart`; returns its success and its output.
    fn ask(&self, option: &str) -> (bool, String) {
        let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
            .args(["spawn", option])
            .arg(self.at("pid"))
            .output()
            .expect("it runs");
        let printed = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8_lossy(&printed).into_owned())
    }

    /// Process ids of the workers.
    fn workers(&self) -> BTreeSet<i32> {
        let (worked, text) = self.ask("--status");
        assert!(worked, "{text}");
        let after = |line: &str| line.split_once("process ")?.1.split(',').next()?.parse().ok();
        text.lines().filter_map(after).collect()
    }

    fn await_workers(&self, count: usize) -> BTreeSet<i32> {
        let all = || self.workers();
        assert!(wait_until(PATIENCE, || all().len() == count), "{}", self.log());
        all()
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// The exit code after a signal.
    fn stop(&mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Its workers end when it does.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the supervisor wrote:\n{}", self.log());
        }
    }
}

fn is_there(pid: i32) -> bool {
    is_running(pid.unsigned_abs())
}

fn kill(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a process");
    // It may have ended meanwhile.
    let _ = rustix::process::kill_process(pid, signal);
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// An application of libfcgi's under a supervisor.
fn supervised(options: &[&str]) -> Option<Supervisor> {
    let directory = tempfile::tempdir().expect("a directory");
    let program = libfcgi(directory.path())?;
    let options = [&["--stop-signal", "USR1"], options].concat();
    let program = path(&program).to_owned();
    Some(Supervisor::start(directory, &options, &[&program]))
}

/// Sends requests over connections that are kept while `work` does something, and returns how many
/// got their response; one that does not fails the test.
fn under_load(front: &Front, target: &str, clients: usize, work: impl FnOnce()) -> usize {
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = Client::tcp(front.address());
                while !over.load(Ordering::Relaxed) {
                    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    let response = client.response();
                    assert_eq!(response.status, 200, "{response:?}\n{}", front.log());
                    served.fetch_add(1, Ordering::Relaxed);
                    if response.says_close() {
                        client = Client::tcp(front.address());
                    }
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    served.into_inner()
}

/// Replaces all workers three times under load.
fn roll(supervisor: &Supervisor, front: &Front, target: &str) {
    let before = supervisor.workers();
    let served = under_load(front, target, 4, || {
        for _ in 0..3 {
            let (worked, text) = supervisor.ask("--restart");
            assert!(worked && text.contains("workers were replaced"), "{text}");
        }
    });
    assert!(served > 0, "nothing was served meanwhile");
    let after = supervisor.workers();
    assert!(after.is_disjoint(&before) && after.len() == before.len(), "{before:?} {after:?}");
    assert!(before.iter().all(|pid| !is_there(*pid)), "{before:?}");
}

#[test]
fn a_rolling_restart_of_php_loses_no_request() {
    let Some(php) = find(&["php-cgi", "php-cgi8.2"]) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let supervisor = Supervisor::start(directory, &["-n", "3"], &[path(&php), "-n"]);
    supervisor.await_workers(3);
    let front = lighty_before(&Listen::Unix(supervisor.socket()), "\"max-connections\" => 3");
    let script = "<?php usleep(20000); echo getmypid();";
    std::fs::write(front.root("a.php"), script).expect("written");
    roll(&supervisor, &front, "/a.php");
}

#[test]
fn a_rolling_restart_of_a_libfcgi_application_loses_no_request() {
    let Some(supervisor) = supervised(&["-n", "2"]) else { return };
    supervisor.await_workers(2);
    let listen = Listen::Unix(supervisor.socket());
    for front in [Some(lighty_before(&listen, "")), lighttpd_before(&listen, "")] {
        let Some(front) = front else { continue };
        roll(&supervisor, &front, "/x?slow");
    }
}

#[test]
fn killed_workers_are_started_again_and_cost_no_request() {
    let Some(supervisor) = supervised(&["-n", "2"]) else { return };
    let first = supervisor.await_workers(2);
    let front = lighty_before(&Listen::Unix(supervisor.socket()), "");
    let served = under_load(&front, "/x", 4, || {
        for pid in &first {
            kill(*pid, Signal::KILL);
            let others = || supervisor.workers();
            let is_back = || others().len() == 2 && !others().contains(pid);
            assert!(wait_until(PATIENCE, is_back), "{}", supervisor.log());
        }
    });
    assert!(served > 0, "nothing was served meanwhile");
    supervisor.await_log("ended: signal 9; started again in 100 ms");
}

#[test]
fn workers_that_end_after_so_many_requests_are_started_again_at_once() {
    let Some(php) = find(&["php-cgi", "php-cgi8.2"]) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let line = ["/usr/bin/env", "PHP_FCGI_MAX_REQUESTS=100", path(&php), "-n"];
    let supervisor = Supervisor::start(directory, &["-n", "2"], &line);
    supervisor.await_workers(2);
    let front = lighty_before(&Listen::Unix(supervisor.socket()), "");
    std::fs::write(front.root("a.php"), "<?php echo 1;").expect("written");
    let ends = || supervisor.log().matches("exit code 0; started again\n").count();
    under_load(&front, "/a.php", 4, || {
        assert!(wait_until(PATIENCE, || ends() >= 10), "{}", supervisor.log());
    });
    assert!(!supervisor.log().contains("started again in 400 ms"), "{}", supervisor.log());
}

#[test]
fn a_program_that_ends_at_once_with_exit_code_0_is_started_less_and_less_often() {
    let directory = tempfile::tempdir().expect("a directory");
    let supervisor = Supervisor::start(directory, &[], &["/bin/sh", "-c", "exit 0"]);
    for pause in ["100", "200", "400", "800"] {
        supervisor.await_log(&format!("ended: exit code 0; started again in {pause} ms"));
    }
}

#[test]
fn a_restart_of_workers_that_do_not_run_says_why_they_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let command = ["/bin/sh", "-c", "exit 3"];
    let supervisor = Supervisor::start(directory, &["-n", "2", "--ping", "none"], &command);
    supervisor.await_log("started again in 800 ms");
    let (worked, text) = supervisor.ask("--restart");
    assert!(!worked && text.contains("given up after 0 of 2"), "{text}");
    assert!(text.contains("ended: exit code 3"), "{text}");
}

#[test]
fn a_program_that_always_ends_is_started_less_and_less_often() {
    let directory = tempfile::tempdir().expect("a directory");
    let supervisor =
        Supervisor::start(directory, &["--ping", "none"], &["/bin/sh", "-c", "exit 3"]);
    for pause in ["100", "200", "400", "800"] {
        supervisor.await_log(&format!("ended: exit code 3; started again in {pause} ms"));
    }
    let text = supervisor.ask("--status").1;
    assert!(text.starts_with("worker 0: "), "{text}");
}

#[test]
fn requests_to_a_program_that_cannot_run_are_refused_soon() {
    for program in ["exit 3", "sleep 1.2; exit 3"] {
        let directory = tempfile::tempdir().expect("a directory");
        let options = ["-n", "2", "--ping", "none"];
        let supervisor = Supervisor::start(directory, &options, &["/bin/sh", "-c", program]);
        let front = lighty_before(&Listen::Unix(supervisor.socket()), "");
        let began = std::time::Instant::now();
        let status = front.get("/").status;
        assert!((502..=503).contains(&status), "{status}\n{}", supervisor.log());
        assert!(began.elapsed() < PATIENCE, "{:?}\n{}", began.elapsed(), supervisor.log());
    }
}

#[test]
fn program_that_cannot_be_started_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let supervisor = Supervisor::start(directory, &[], &["/nonexistent/program"]);
    supervisor.await_log("cannot start /nonexistent/program");
}

#[test]
fn a_restart_with_a_broken_program_is_given_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = libfcgi(directory.path()) else { return };
    let script = directory.path().join("start.sh");
    let text = format!("#!/bin/sh\n[ ! -e broken ] || exit 9\nexec {}\n", path(&program));
    std::fs::write(&script, text).expect("written");
    let options = ["-n", "2", "--stop-signal", "USR1"];
    let supervisor = Supervisor::start(directory, &options, &["/bin/sh", path(&script)]);
    let before = supervisor.await_workers(2);
    std::fs::write(supervisor.at("broken"), "").expect("written");
    let (worked, text) = supervisor.ask("--restart");
    assert!(!worked && text.contains("given up after 0 of 2"), "{text}");
    assert!(text.contains("ended: exit code 9"), "{text}");
    assert_eq!(supervisor.workers(), before);
    std::fs::remove_file(supervisor.at("broken")).expect("removed");
    // HUP does the same without waiting.
    supervisor.signal(Signal::HUP);
    supervisor.await_log("2 workers were replaced");
    assert!(supervisor.workers().is_disjoint(&before));
}

#[test]
fn workers_that_hang_are_replaced() {
    let options = ["-n", "2", "--ping-interval", "1", "--ping-timeout", "1"];
    let more = ["--ping-failures", "2", "--grace", "1"];
    let Some(supervisor) = supervised(&[&options[..], &more].concat()) else { return };
    let before = supervisor.await_workers(2);
    let front = lighty_before(&Listen::Unix(supervisor.socket()), "");
    assert_eq!(front.get("/x").status, 200);
    for pid in &before {
        kill(*pid, Signal::STOP);
    }
    supervisor.await_log("no answer within 1 s (limit: --ping-timeout)");
    supervisor.await_log("no worker answers; all workers are replaced");
    let after = || supervisor.workers();
    let is_new = || after().len() == 2 && after().is_disjoint(&before);
    assert!(wait_until(PATIENCE, is_new), "{}", supervisor.log());
    supervisor.await_log("is killed: it did not end within 1 s");
    assert_eq!(front.get("/x").status, 200, "{}", front.log());
}

#[test]
fn a_stop_finishes_the_request_and_leaves_nothing_behind() {
    let Some(mut supervisor) = supervised(&["-n", "2"]) else { return };
    let workers = supervisor.await_workers(2);
    // An idle connection would keep its worker until the front closes it.
    let lines = "proxy-core.max-idle-time = \"100ms\"";
    let front = lighty_with(&Listen::Unix(supervisor.socket()), "", lines);
    let mut client = Client::tcp(front.address());
    client.send("GET /x?slow HTTP/1.1\r\nHost: a\r\n\r\n");
    let is_busy = || supervisor.at("busy").exists();
    assert!(wait_until(PATIENCE, is_busy), "no worker has the request");
    assert_eq!(supervisor.stop(Signal::TERM), Some(0));
    assert_eq!(client.response().status, 200, "{}", front.log());
    assert!(workers.iter().all(|pid| !is_there(*pid)), "{workers:?}");
    for name in ["s", "pid", "pid.ctl"] {
        assert!(!supervisor.at(name).exists(), "{name} is left");
    }
}

#[test]
fn php_with_children_of_its_own_finishes_their_requests() {
    let Some(php) = find(&["php-cgi", "php-cgi8.2"]) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let line = ["/usr/bin/env", "PHP_FCGI_CHILDREN=2", path(&php), "-n"];
    let supervisor = Supervisor::start(directory, &["-n", "1"], &line);
    let first = supervisor.await_workers(1);
    let front = lighty_before(&Listen::Unix(supervisor.socket()), "");
    std::fs::write(front.root("a.php"), "<?php usleep(50000); echo 1;").expect("written");
    let served = under_load(&front, "/a.php", 3, || {
        let (worked, text) = supervisor.ask("--restart");
        assert!(worked, "{text}");
    });
    assert!(served > 0 && supervisor.workers().is_disjoint(&first));
}
