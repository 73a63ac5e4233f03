//! `lighty top`, on a terminal and without one.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::real::find;
use lighty_testkit::server::{Server, binary};
use lighty_testkit::tls::Authority;
use lighty_testkit::{lighty, wait_until};

fn lighty_binary() -> PathBuf {
    binary(env!("CARGO_BIN_EXE_lighty"))
}

const PATIENCE: Duration = Duration::from_secs(60);

fn served(lines: &str) -> (Server, String) {
    let server = lighty!()
        .file("a.txt", "hello\n")
        .config("status.status-url = \"/s\"\nserver.max-worker = 2")
        .config(lines)
        .start();
    let url = format!("http://{}/s", server.address());
    (server, url)
}

fn top(arguments: &[&str]) -> Output {
    let output =
        Command::new(lighty_binary()).arg("top").args(arguments).stdin(Stdio::null()).output();
    output.expect("lighty top")
}

/// Runs `lighty top` on a terminal of 24 lines by 80 columns. Types each key once the words before
/// it are visible. Returns the output.
fn on_terminal(url: &str, typed: &[(&str, &str)]) -> Option<String> {
    let script = find(&["script"])?;
    let lighty = lighty_binary();
    let lighty = lighty.display();
    let line = format!("stty rows 24 cols 80; '{lighty}' top '{url}'; echo \"ended $?\"; stty -a");
    let mut child = Command::new(script)
        .args(["-q", "-e", "-f", "-c", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script");
    let (mut input, mut output) =
        (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let written = Arc::new(Mutex::new(Vec::new()));
    let seen = || String::from_utf8_lossy(&written.lock().expect("no panic")).into_owned();
    let collected = Arc::clone(&written);
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut piece) {
            collected.lock().expect("no panic").extend_from_slice(&piece[..count]);
        }
    });
    for (message, keys) in typed {
        assert!(wait_until(PATIENCE, || seen().contains(message)), "{message}: {}", seen());
        input.write_all(keys.as_bytes()).expect("typed");
    }
    child.wait().expect("its end");
    reader.join().expect("no panic");
    Some(seen())
}

#[test]
fn table_that_cannot_be_shown_is_refused_with_the_reason() {
    let (server, url) = served("");
    let refused = top(&[&url, "--once", "--sort", "size"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{message}");
    assert!(message.contains("no column \"size\": there are route, req/s"), "{message}");
    assert!(top(&[&url, "--once", "--sort", "REQUESTS"]).status.success());
    // A URL without a path is the root's.
    let root = top(&[&format!("http://{}", server.address()), "--once"]);
    let message = String::from_utf8_lossy(&root.stderr).into_owned();
    assert!(message.contains("/?json: status 403"), "{message}");
}

#[test]
fn a_table_is_printed_once() {
    let backend = Backend::answering("x");
    let (server, url) = served(&format!(
        "$HTTP[\"url\"] =^ \"/app/\" {{\n  proxy-core.protocol = \"http\"\n  \
         proxy-core.backends = ( \"{}\" )\n}}",
        backend.name()
    ));
    for target in ["/a.txt", "/a.txt", "/app/x"] {
        assert_eq!(server.get(target).status, 200);
    }
    let routes = top(&[&url, "--once"]);
    let text = String::from_utf8_lossy(&routes.stdout);
    assert!(routes.status.success() && text.contains("mod_staticfile"), "{text}");
    let backends = top(&[&url, "--once", "--view", "backends", "--filter", &backend.name()]);
    let text = String::from_utf8_lossy(&backends.stdout);
    let line = text.lines().find(|line| line.starts_with(&backend.name())).unwrap_or_default();
    let (upstream, figures) = line.split_once(" up ").unwrap_or_default();
    assert!(upstream.contains("\"/app/\""), "{text}");
    let figures: Vec<&str> = figures.split_ascii_whitespace().collect();
    assert_eq!(figures.get(3), Some(&"1"), "{text}");
    let by_upstream = top(&[&url, "--once", "--view", "backends", "--filter", "/app/"]);
    let text = String::from_utf8_lossy(&by_upstream.stdout);
    assert!(text.contains(&backend.name()), "{text}");
    let json = top(&[&url, "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(value["workers"][1]["worker"], 1);
}

#[test]
fn hosts_are_a_table() {
    let (server, url) = served("$HTTP[\"host\"] == \"one.test\" { server.tag = \"one\" }");
    let target = |host: &str, path: &str| {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().status
    };
    let statuses = [target("one.test", "/a.txt"), target("one.test", "/none")];
    assert_eq!(statuses, [200, 404]);
    let figures = || {
        let hosts = top(&[&url, "--once", "--view", "hosts", "--filter", "one.test"]);
        let text = String::from_utf8_lossy(&hosts.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("one.test")).unwrap_or_default();
        line.split_ascii_whitespace().skip(3).take(3).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(wait_until(PATIENCE, || figures() == ["2", "1", "0"]), "{:?}", figures());
}

#[test]
fn a_status_page_over_tls_is_verified_unless_it_is_not_to_be() {
    let directory = tempfile::tempdir().expect("a directory");
    Authority::new(directory.path()).issue("one.pem", &["localhost"]);
    let file = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let pem = format!("ssl.engine = \"enable\"\nssl.pemfile = \"{}\"", file("one.pem"));
    let (server, _) = served(&pem);
    let url = format!("https://localhost:{}/s", server.address().port());
    let (authority, own) = (file("ca.pem"), file("one.pem"));
    for (more, is_trusted) in [
        (&["--cacert", &*authority][..], true),
        (&["--cacert", &*own], true),
        (&["-k"], true),
        (&["--insecure", "--json"], true),
        (&[], false),
    ] {
        let output = top(&[&[&*url, "--once"], more].concat());
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_trusted, "{more:?}: {printed}");
        assert!(is_trusted || printed.contains("certificate"), "{printed}");
    }
    let missing = top(&[&url, "--once", "--cacert", "/nonexistent.pem"]);
    let printed = String::from_utf8_lossy(&missing.stderr);
    assert!(!missing.status.success() && printed.contains("/nonexistent.pem"), "{printed}");
}

#[test]
fn a_status_page_may_want_a_password() {
    let backend = Backend::replying(|received| match received.field("authorization") {
        Some("Basic dTpw") => answer("200 OK", "", r#"{"routes":[]}"#),
        _ => answer("401 Unauthorized", "", "no"),
    });
    let url = |who: &str| format!("http://{who}{}/s", backend.name());
    let allowed = top(&[&url("u:p@"), "--once"]);
    let text = String::from_utf8_lossy(&allowed.stdout);
    assert!(allowed.status.success() && !text.contains("u:p"), "{text}");
    let refused = top(&[&url("u:no@"), "--once"]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(printed.contains("/s?json: status 401") && !printed.contains("u:no"), "{printed}");
}

#[test]
fn wrong_urls_and_options_are_reported() {
    let (server, url) = served("");
    let page = format!("http://{}/a.txt", server.address());
    let none = format!("http://{}/none", server.address());
    for (arguments, message) in [
        (vec![&*page, "--once"], "no status page of lighty"),
        (vec![&*none, "--once"], "404: is status.status-url this path?"),
        (vec!["127.0.0.1", "--once"], "no URL of a server"),
        (vec![&*url], "standard input is no terminal"),
        (vec![&*url, "--interval", "0"], "0 is not in 1..=3600"),
    ] {
        let output = top(&arguments);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(message), "{arguments:?}: {printed}");
    }
}

#[test]
fn a_terminal_is_as_before_when_it_ends() {
    let (server, url) = served("");
    for _ in 0..5 {
        assert_eq!(server.get("/a.txt").status, 200);
    }
    let keys = [("[1 routes]", "3"), ("[3 backends]", "\x1b[C"), ("[4 workers]", "q")];
    let Some(written) = on_terminal(&url, &keys) else { return };
    for message in ["[1 routes]", "[3 backends]", "[4 workers]", "mod_staticfile", "ended 0"] {
        assert!(written.contains(message), "{message} in {written}");
    }
    let (_, behind) = written.rsplit_once("\x1b[?1049l").expect("the screen is left");
    assert!(behind.contains(" icanon ") && behind.contains(" echo "), "{behind}");
    let interrupted = on_terminal(&url, &[("[1 routes]", "\x03")]).expect("as before");
    assert!(interrupted.contains("ended 0") && interrupted.contains(" icanon "), "{interrupted}");
}

#[test]
fn control_socket_serves_in_place_of_a_status_page() {
    let server = lighty!()
        .file("a.txt", "hello\n")
        .config("server.control-socket = \"@DIR@/control.sock\"")
        .start();
    assert_eq!(server.get("/a.txt").status, 200);
    let socket = server.directory().join("control.sock").display().to_string();
    let output = top(&["--socket", &socket, "--once", "--view", "workers", "--interval", "1"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains(&socket), "{output:?}");
    let output = top(&["--socket", "/nonexistent/control.sock", "--once"]);
    assert!(!output.status.success());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.contains("/nonexistent/control.sock"), "{err}");
}
