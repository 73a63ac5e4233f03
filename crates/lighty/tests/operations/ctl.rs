//! `lighty ctl`, and its socket asked by other clients.

mod access;
mod backends;
mod cache;
mod connections;
mod diagnosis;
mod reloads;
mod reports;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use lighty_testkit::backend::Backend;
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup, binary};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

fn site() -> Setup {
    lighty!().file("a", "x").config("server.pid-file = \"@DIR@/lighty.pid\"")
}

/// Two backends of one upstream.
fn balanced(one: &Backend, other: &Backend) -> Server {
    site()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\", \"{}\" )", one.name(), other.name()))
        .start()
}

/// `lighty ctl ARGUMENTS`: exit status, standard output and error output.
pub(crate) fn ctl(server: &Server, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
        .arg("ctl")
        .args(arguments)
        .arg("--pid-file")
        .arg(server.directory().join("lighty.pid"))
        .output()
        .expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn done(server: &Server, arguments: &[&str]) -> String {
    let (status, out, err) = ctl(server, arguments);
    assert_eq!((status, err.as_str()), (0, ""), "{arguments:?}: {out}\n{}", server.log());
    out
}

fn json(server: &Server, verb: &str) -> Value {
    serde_json::from_str(&done(server, &[verb, "--format", "json"])).expect("JSON")
}

/// Sends bytes to the socket. Returns the status and the body of the response.
fn raw(server: &Server, request: &str) -> (u16, String) {
    let socket = server.directory().join("lighty.pid.ctl");
    let mut stream = UnixStream::connect(socket).expect("connected");
    stream.write_all(request.as_bytes()).expect("written");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a response");
    let status = reply[9..12].parse().expect("a status");
    (status, reply.split_once("\r\n\r\n").expect("a head").1.to_owned())
}

#[test]
fn status_names_version_generation_and_workers() {
    let server = site().config("server.max-worker = 2").start();
    assert_eq!(server.get("/a").status, 200);
    let status = json(&server, "status");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&status["generation"], &status["last_reload_succeeded"]),
        (&0.into(), &true.into())
    );
    assert_eq!(status["workers"].as_array().expect("workers").len(), 2);
    assert_eq!(status["hanging_workers"], Value::Array(vec![]));
    assert!(done(&server, &["status"]).starts_with('{'), "standard output is no terminal");
    let text = done(&server, &["status", "--format", "text"]);
    assert!(text.contains("generation: 0\n") && text.contains("hanging_workers: none\n"), "{text}");
    assert!(done(&server, &["reload"]).starts_with("reloaded: generation 1"));
    assert_eq!(json(&server, "status")["generation"], 1);
}

fn rows(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let text = done(server, &[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&text).expect("a list")
}

/// A server with one backend of an upstream, and a state directory.
fn keeping(backend: &Backend) -> Setup {
    let setup = site();
    std::fs::create_dir(setup.directory().join("state")).expect("a directory");
    setup
        .config("server.state-dir = \"@DIR@/state\"")
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
}

/// The names of the members of an object, sorted.
fn members(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> =
        value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}
