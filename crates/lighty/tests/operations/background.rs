//! Running in the background, and exiting after a time without requests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lighty_testkit::client::Client;
use lighty_testkit::server::{STOP_DEADLINE, Setup, binary};
use lighty_testkit::{lighty, wait_until};
use rustix::process::{Pid, Signal, kill_process};

const PID_FILE: &str = "server.pid-file = \"@DIR@/lighty.pid\"";

/// Listens on a Unix socket, because its path is known before the start.
fn site() -> Setup {
    lighty!()
        .without_listener()
        .file("a", "x")
        .config("server.bind = \"@DIR@/web.sock\"")
        .config(PID_FILE)
}

/// Runs the program under a name of its own and waits for the end of its output.
fn run_as(setup: &Setup, name: &str, arguments: &[&str]) -> Output {
    let link = setup.directory().join(name);
    let _ = fs::remove_file(&link);
    symlink(binary(env!("CARGO_BIN_EXE_lighty")), &link).expect("a link");
    let config = setup.write_config();
    Command::new(&link)
        .args(arguments)
        .arg("-f")
        .arg(&config)
        .stdin(Stdio::null())
        .output()
        .expect("it runs")
}

/// A server that is no child of this process. Dropped, it is stopped.
struct Daemon {
    pid: Pid,
    socket: PathBuf,
    pid_file: PathBuf,
}

impl Daemon {
    /// Reads the pid file of the started server.
    fn of(setup: &Setup) -> Self {
        let pid_file = setup.directory().join("lighty.pid");
        let text = fs::read_to_string(&pid_file).expect("a pid file when the starter has ended");
        let pid = text.trim().parse().ok().and_then(Pid::from_raw).expect("a process id");
        Self { pid, socket: setup.directory().join("web.sock"), pid_file }
    }

    fn get(&self, target: &str) -> String {
        let mut client = Client::unix(&self.socket);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        client.response().text().to_owned()
    }

    fn has_ended(&self) -> bool {
        rustix::process::test_kill_process(self.pid).is_err()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(self.pid, Signal::TERM);
        let is_over = wait_until(STOP_DEADLINE, || self.has_ended());
        assert!(is_over || std::thread::panicking(), "it does not end");
        assert!(!self.pid_file.exists() || std::thread::panicking(), "the pid file stays");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn lighttpd_by_name_serves_in_the_background() {
    let log = "server.errorlog = \"@DIR@/error.log\"\naccesslog.filename = \"|cat > @DIR@/access\"";
    for (name, arguments) in [("lighttpd", &[][..]), ("lighty", &["--background"])] {
        let setup = site().config(log);
        let output = run_as(&setup, name, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
        let daemon = Daemon::of(&setup);
        assert_eq!(daemon.get("/a"), "x", "it serves when the starter has ended");
        let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid.as_raw_nonzero()));
        let stat = stat.expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split(' ').collect();
        assert_ne!(fields[4], daemon.pid.as_raw_nonzero().to_string(), "it leads no session");
        assert_eq!(fields[5], "0", "it has no terminal");
    }
}

#[test]
fn start_that_fails_in_the_background_is_told_to_the_caller() {
    let setup = site().config("server.errorlog = \"@DIR@/none/error.log\"");
    let output = run_as(&setup, "lighttpd", &[]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(printed.contains("server.errorlog") && printed.contains("none/error.log"), "{printed}");
    assert!(!setup.directory().join("lighty.pid").exists());
    let setup = site().config("server.nonsense");
    let output = run_as(&setup, "lighttpd", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("server.nonsense"), "{}", text(&output.stderr));
}

#[test]
fn server_in_the_background_without_an_error_log_says_so() {
    let setup = site();
    let output = run_as(&setup, "lighttpd", &[]);
    assert!(output.status.success());
    let printed = text(&output.stderr);
    assert!(
        printed.contains("is serving") && printed.contains("messages are discarded"),
        "{printed}"
    );
    assert_eq!(Daemon::of(&setup).get("/a"), "x");
}

#[test]
fn second_server_in_the_background_names_the_first() {
    let setup = site().config("server.errorlog = \"@DIR@/error.log\"");
    assert!(run_as(&setup, "lighttpd", &[]).status.success());
    let first = Daemon::of(&setup);
    let output = run_as(&setup, "lighttpd", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("web.sock"), "{}", text(&output.stderr));
    assert_eq!(first.get("/a"), "x");
}

#[test]
fn other_uses_of_lighttpd_stay_in_the_foreground() {
    let setup = site();
    for (arguments, expected) in [(&["-t"][..], "Syntax OK"), (&["-p"], "server.document-root")] {
        let output = run_as(&setup, "lighttpd", arguments);
        assert!(output.status.success() && text(&output.stdout).contains(expected));
    }
    let output = run_as(&setup, "lighty", &["-D", "--background"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = run_as(&setup, "lighty", &["-i", "-1"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

/// Same behaviour as lighttpd.
#[test]
fn idle_time_of_zero_is_none() {
    let server = lighty!().file("a", "x").argument("-i").argument("0").start();
    assert_eq!(server.get("/a").text(), "x");
    assert!(!server.log().contains("graceful stop"), "{}", server.log());
}

#[test]
fn idle_server_ends_after_its_time_and_a_busy_one_goes_on() {
    let begun = Instant::now();
    let mut server = lighty!().file("a", "x").argument("-i").argument("5").start();
    while begun.elapsed() < Duration::from_secs(7) {
        assert_eq!(server.get("/a").text(), "x", "requests keep it running");
        std::thread::sleep(Duration::from_millis(100));
    }
    let (status, took) = server.await_exit(Duration::from_secs(30));
    assert!(status.success(), "{status}");
    assert!(took >= Duration::from_millis(4_500), "{took:?}");
    server.await_log("graceful stop");
}
