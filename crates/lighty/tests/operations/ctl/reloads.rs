//! Reloads and stops by the control socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use lighty_testkit::server::Server;
use lighty_testkit::wait_until;
use serde_json::Value;

use super::{PATIENCE, ctl, done, json, site};

#[test]
fn refused_reload_exits_with_its_diagnostics() {
    let server = site().start();
    let before = json(&server, "status");
    assert_eq!(
        (&before["last_reload_age_s"], &before["refused_reloads"]),
        (&Value::Null, &0.into()),
        "{before}"
    );
    lighty_testkit::server::write_file(
        &server.directory().join("lighty.conf"),
        "server.port = \"x\"\n",
    );
    let (status, out, err) = ctl(&server, &["reload"]);
    assert!(status == 1 && out.is_empty() && err.contains("server.port"), "{err}");
    let after = json(&server, "status");
    assert_eq!(
        (&after["last_reload_succeeded"], &after["refused_reloads"], &after["reloads"]),
        (&false.into(), &1.into(), &0.into()),
        "{after}"
    );
    assert!(after["last_reload_age_s"].as_i64() <= after["generation_age_s"].as_i64(), "{after}");
    assert!(after["last_reload_age_s"].is_i64(), "{after}");
}

/// A command at the start, so that the sandbox permits others at a reload.
const RUNS_COMMANDS: &str = "include_shell \"true\"";

#[test]
fn reload_that_hangs_keeps_nobody_waiting() {
    let server = site().config(RUNS_COMMANDS).start();
    let conf = server.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&conf).expect("the configuration");
    let begun = server.directory().join("begun");
    let hang = format!("{text}\ninclude_shell \"touch {}; sleep 600\"\n", begun.display());
    lighty_testkit::server::write_file(&conf, hang);
    std::thread::scope(|scope| {
        let reload = || ctl(&server, &["reload"]);
        let reloading = scope.spawn(reload);
        assert!(wait_until(PATIENCE, || begun.exists()), "the command does not run");
        assert_eq!(json(&server, "status")["generation"], 0);
        let waiting = scope.spawn(reload);
        done(&server, &["reopen-logs"]);
        server.await_log("logs were opened again");
        let (status, _, err) = ctl(&server, &["reload", "--dry-run"]);
        assert!(status == 1 && err.contains("a reload or an upgrade is under way"), "{err}");
        done(&server, &["stop", "--now"]);
        for call in [reloading, waiting] {
            let (status, _, err) = call.join().expect("no panic");
            assert!(status == 1 && !err.is_empty(), "{err}");
        }
    });
}

#[test]
fn stop_finishes_responses_and_stop_now_does_not_wait() {
    for now in [false, true] {
        let server = site().start();
        let out = if now { done(&server, &["stop", "--now"]) } else { done(&server, &["stop"]) };
        assert!(out.starts_with("the server stops"), "{out}");
        let socket = server.directory().join("lighty.pid.ctl");
        assert!(wait_until(PATIENCE, || !socket.exists()), "{}", server.log());
        let (status, _, err) = ctl(&server, &["status"]);
        assert!(status == 1 && err.contains("no server is running here"), "{err}");
    }
}

/// A caller of the socket that has sent a request, and the part of its response so far.
struct PendingCall(UnixStream, Vec<u8>);

impl PendingCall {
    fn reload(server: &Server) -> Self {
        let socket = server.directory().join("lighty.pid.ctl");
        let mut stream = UnixStream::connect(socket).expect("connected");
        let request = "POST /reload HTTP/1.1\r\nHost: localhost\r\n\
                       Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(request.as_bytes()).expect("written");
        stream.set_nonblocking(true).expect("set");
        Self(stream, Vec::new())
    }

    fn has_response(&mut self) -> bool {
        let mut piece = [0; 1024];
        while let Ok(count @ 1..) = self.0.read(&mut piece) {
            self.1.extend_from_slice(&piece[..count]);
        }
        !self.1.is_empty()
    }
}

#[test]
fn callers_that_wait_for_a_reload_are_limited() {
    const WAITING_MAX: usize = 16;
    let server = site().config(RUNS_COMMANDS).start();
    let conf = server.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&conf).expect("the configuration");
    let begun = server.directory().join("begun");
    let hang = format!("{text}\ninclude_shell \"touch {}; sleep 600\"\n", begun.display());
    lighty_testkit::server::write_file(&conf, hang);
    let mut first = PendingCall::reload(&server);
    assert!(wait_until(PATIENCE, || begun.exists()), "the command does not run");
    let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| PendingCall::reload(&server)).collect();
    // Served after them, and they wait.
    assert_eq!(json(&server, "status")["generation"], 0);
    assert!(waiting.iter_mut().all(|call| !call.has_response()));
    waiting.push(PendingCall::reload(&server));
    let mut refused =
        || waiting.iter_mut().filter_map(|call| call.has_response().then_some(&*call.1)).count();
    assert!(wait_until(PATIENCE, || refused() == 1), "one more than {WAITING_MAX}");
    assert_eq!(json(&server, "status")["generation"], 0);
    assert_eq!(refused(), 1);
    let refused = waiting.iter().find(|call| !call.1.is_empty()).expect("it");
    let reply = String::from_utf8_lossy(&refused.1);
    assert!(
        reply.starts_with("HTTP/1.1 503 ") && reply.contains("a reload or an upgrade is under way"),
        "{reply}"
    );
    assert!(!first.has_response());
    done(&server, &["stop", "--now"]);
    let mut all = || first.has_response() && waiting.iter_mut().all(PendingCall::has_response);
    assert!(wait_until(PATIENCE, &mut all));
}
