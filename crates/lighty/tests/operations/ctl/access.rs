//! Callers of the control socket, and the form of their requests.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use lighty_testkit::lighty;
use lighty_testkit::server::binary;
use serde_json::Value;

use super::{ctl, json, raw, site};

/// `lighty ctl ARGUMENTS --socket SOCKET` as another user: exit status and error output.
fn ctl_as(user: (u32, u32), socket: &Path, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
        .arg("ctl")
        .args(arguments)
        .arg("--socket")
        .arg(socket)
        .uid(user.0)
        .gid(user.1)
        .current_dir("/")
        .output()
        .expect("the binary runs");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), err)
}

#[test]
fn groups_may_query_or_change_and_others_may_not() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: not tested");
        return;
    }
    let (reader, admin, other) = ((64001, 64101), (64002, 64102), (64003, 64103));
    let server = lighty!()
        .config("server.control-socket = \"@DIR@/control.sock\"")
        .config("server.control-readers = ( \"64101\" )\nserver.control-admins = ( \"64102\" )")
        .start();
    let directory = server.directory();
    std::fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("permissions");
    let socket = directory.join("control.sock");
    for (user, status, change) in [(reader, 0, 1), (admin, 0, 0), (other, 1, 1)] {
        let (found, err) = ctl_as(user, &socket, &["status"]);
        assert_eq!(found, status, "{user:?}: {err}");
        let (found, err) = ctl_as(user, &socket, &["reopen-logs"]);
        assert_eq!(found, change, "{user:?}: {err}");
    }
    let (_, err) = ctl_as(reader, &socket, &["reopen-logs"]);
    assert!(err.contains("your groups may only query this server"), "{err}");
    server.await_log("by user 64002, process ");
    for change in [&["upgrade"][..], &["reload", "--dry-run"]] {
        let (_, err) = ctl_as(reader, &socket, change);
        assert!(err.contains("your groups may only query this server"), "{err}");
    }
    let (_, err) = ctl_as(admin, &socket, &["upgrade", "--binary", "/bin/true"]);
    assert!(err.contains("only root and the user of the server may name"), "{err}");
}

#[test]
fn control_socket_is_at_its_path_or_left_out() {
    let server = site().config("server.control-socket = \"@DIR@/control.sock\"").start();
    let directory = server.directory();
    assert!(directory.join("control.sock").exists() && !directory.join("lighty.pid.ctl").exists());
    let conf = directory.join("lighty.conf");
    let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
        .args(["ctl", "status", "-f"])
        .arg(&conf)
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    let without = site().config("server.control-socket = \"\"").start();
    let (status, _, err) = ctl(&without, &["status"]);
    assert!(status == 1 && err.contains("no server is running here"), "{err}");
    assert!(!without.log().contains("by signal only"), "{}", without.log());
    let (status, _, err) = site()
        .config("server.control-socket = \"@DIR@/none/control.sock\"")
        .run(&["-D", "-f", "@CONF@"]);
    assert!(status == 1 && err.contains("server.control-socket"), "{err}");
    let (status, _, err) =
        site().config("server.control-readers = ( \"no-such\" )").run(&["-D", "-f", "@CONF@"]);
    assert!(status == 1 && err.contains("there is no group \"no-such\""), "{err}");
}

#[test]
fn socket_speaks_http_and_refuses_pages_of_browsers() {
    let server = site().start();
    let json = "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 200),
        ("GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 404),
        ("GET /reload HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("GET /status HTTP/1.1\r\nHost: example.org\r\n\r\n".to_owned(), 403),
        ("GET /status HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n".to_owned(), 403),
        ("POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}".to_owned(), 415),
        (format!("POST /stop HTTP/1.1\r\nHost: localhost\r\n{}", json.replace("{}", "[]")), 400),
        (
            format!(
                "POST /stop HTTP/1.1\r\nHost: localhost\r\n{}",
                json.replace("2\r\n\r\n{}", "7\r\n\r\n{\"x\":1}")
            ),
            400,
        ),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("nonsense\r\n\r\n".to_owned(), 400),
        (format!("POST /reopen-logs HTTP/1.1\r\nHost: localhost\r\n{json}"), 200),
    ] {
        let (found, body) = raw(&server, &request);
        assert_eq!(found, status, "{request}: {body}");
        assert!(serde_json::from_str::<Value>(&body).is_ok(), "{body}");
    }
    server.await_log("logs were opened again");
    let (status, body) = raw(&server, "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(status == 404 && body.contains("there is no /none"), "{body}");
}

#[test]
fn silent_callers_do_not_keep_others_waiting() {
    let server = site().start();
    let socket = server.directory().join("lighty.pid.ctl");
    let mute: Vec<_> = (0..16).map(|_| UnixStream::connect(&socket).expect("connected")).collect();
    assert_eq!(json(&server, "status")["generation"], 0);
    drop(mute);
}

#[test]
fn floods_of_the_socket_leave_requests_alone() {
    let server = site().start();
    let socket = server.directory().join("lighty.pid.ctl");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for request in [
            &b"\x16\x03\x01garbage\r\n\r\n"[..],
            b"GET /status HTTP/1.1\r\nHost: localhost\r\n",
            b"GET /dump HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ] {
            let (socket, is_over) = (&socket, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Reads no response.
                    let Ok(mut stream) = UnixStream::connect(socket) else { break };
                    let _ = stream.write_all(request);
                }
            });
        }
        for _ in 0..200 {
            assert_eq!(server.get("/a").status, 200);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(json(&server, "status")["generation"], 0);
}
