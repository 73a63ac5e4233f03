//! fcgi-stat-accel: behind lighty and lighttpd, on its own socket, over TCP and under spawn-fcgi.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use lighty_testkit::real::{Listen, find};
use lighty_testkit::server::binary;
use lighty_testkit::wait_until;
use rustix::process::{Pid, Signal};

use super::front::{Left, PATIENCE, await_listening, lighttpd_before, lighty_before, link};

/// A running fcgi-stat-accel.
struct Accel(Child);

impl Accel {
    fn start(listen: &str) -> Self {
        let binary = binary(env!("CARGO_BIN_EXE_lighty"));
        let child = Command::new(binary).args(["stat-accel", "--listen", listen]).spawn();
        Self(child.expect("it runs"))
    }

    fn stop(&mut self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("a signal");
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Accel {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Response to Debian's FastCGI client for a file.
fn ask(socket: &Path, file: Option<&Path>) -> Option<String> {
    let client = find(&["cgi-fcgi"])?;
    let mut command = Command::new(client);
    command.args(["-bind", "-connect"]).arg(socket).env_clear().env("REQUEST_METHOD", "GET");
    if let Some(file) = file {
        command.env("SCRIPT_FILENAME", file);
    }
    let output = command.output().expect("it runs");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn files_are_named_and_what_is_none_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("file"), "x").expect("written");
    let mut accel = Accel::start(at("s").to_str().expect("UTF-8"));
    await_listening(&at("s"));
    let Some(found) = ask(&at("s"), Some(&at("file"))) else { return };
    assert_eq!(found, format!("X-LIGHTTPD-send-file: {}\r\n\r\n", at("file").display()));
    let status = |file: Option<PathBuf>| {
        let text = ask(&at("s"), file.as_deref()).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(status(Some(at("missing"))), "Status: 403 Forbidden");
    assert_eq!(status(Some(directory.path().to_owned())), "Status: 403 Forbidden");
    assert_eq!(status(Some("/dev/null".into())), "Status: 403 Forbidden");
    assert_eq!(status(None), "Status: 500 Internal Server Error");
    assert_eq!(accel.stop(Signal::TERM), Some(0));
    assert!(!at("s").exists(), "its socket goes with it");
}

#[test]
fn stat_accel_serves_behind_lighty_and_lighttpd_over_unix_and_tcp() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s");
    let tcp = Listen::free_port();
    let mut running =
        [Accel::start(socket.to_str().expect("UTF-8")), Accel::start(&tcp.address().to_string())];
    await_listening(&socket);
    let is_up = || std::net::TcpStream::connect(tcp.address()).is_ok();
    assert!(wait_until(PATIENCE, is_up));
    let keys = "\"x-sendfile\" => \"enable\"";
    for listen in [Listen::Unix(socket), tcp] {
        let servers = [Some(lighty_before(&listen, keys)), lighttpd_before(&listen, keys)];
        for server in servers.into_iter().flatten() {
            let content = "0123456789".repeat(2_000);
            std::fs::write(server.root("big.txt"), &content).expect("written");
            std::fs::write(server.root("a%20b"), "percent").expect("written");
            for _ in 0..30 {
                let response = server.get("/big.txt");
                assert_eq!(response.status, 200, "{response:?}\n{}", server.log());
                assert!(response.body == content.as_bytes(), "{} bytes", response.body.len());
                assert_eq!(server.get("/a%2520b").text(), "percent");
                assert_eq!(server.get("/none").status, 403, "{}", server.log());
            }
        }
    }
    for accel in &mut running {
        assert_eq!(accel.stop(Signal::USR1), Some(0));
    }
}

#[test]
fn stat_accel_takes_the_socket_of_spawn_fcgi() {
    let directory = tempfile::tempdir().expect("a directory");
    let spawner = link(directory.path(), "spawn-fcgi");
    let program = link(directory.path(), "fcgi-stat-accel");
    let socket = directory.path().join("s");
    let file = directory.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let output = Command::new(spawner)
        .arg("-s")
        .arg(&socket)
        .args(["-C", "1", "-F", "2", "--"])
        .arg(program)
        .output()
        .expect("it runs");
    let _left = Left::from_output(&String::from_utf8_lossy(&output.stdout));
    for _ in 0..20 {
        let Some(found) = ask(&socket, Some(&file)) else { return };
        assert_eq!(found, format!("X-LIGHTTPD-send-file: {}\r\n\r\n", file.display()));
    }
}

#[test]
fn missing_socket_is_reported() {
    let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
        .arg("stat-accel")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("standard input is no listening socket"), "{printed}");
}
