//! `lighty ctl`, and its socket asked by other clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use lighty_testkit::backend::Backend;
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup, binary};
use lighty_testkit::wait_until;
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
fn ctl(server: &Server, arguments: &[&str]) -> (i32, String, String) {
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
    let text = done(&server, &["status"]);
    assert!(text.contains("generation: 0\n") && text.contains("hanging_workers: none\n"), "{text}");
    assert!(done(&server, &["reload"]).starts_with("reloaded: generation 1"));
    assert_eq!(json(&server, "status")["generation"], 1);
}

#[test]
fn refused_reload_exits_with_its_diagnostics() {
    let server = site().start();
    lighty_testkit::server::write_file(
        &server.directory().join("lighty.conf"),
        "server.port = \"x\"\n",
    );
    let (status, out, err) = ctl(&server, &["reload"]);
    assert!(status == 1 && out.is_empty() && err.contains("server.port"), "{err}");
    assert_eq!(json(&server, "status")["last_reload_succeeded"], false);
}

#[test]
fn drained_backend_gets_no_new_requests_and_keeps_the_present_one() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let server = balanced(&one, &other);
    let gets = |count: usize| -> Vec<String> {
        (0..count).map(|_| server.get("/").text().to_owned()).collect()
    };
    let drain = done(&server, &["drain", &one.name(), "--wait", "20"]);
    assert!(drain.ends_with(&format!("{} is set to drain\n", one.name())), "{drain}");
    assert!(gets(6).iter().all(|text| text == "other"));
    let state = |name: &str| {
        let backends = json(&server, "backends");
        let rows = backends.as_array().expect("rows").clone();
        let row = rows.into_iter().find(|row| row["backend"] == name).expect("a row");
        row["state"].as_str().expect("a state").to_owned()
    };
    assert_eq!((state(&one.name()), state(&other.name())), ("drained".into(), "up".into()));
    // Orders outlive a reload.
    done(&server, &["reload"]);
    assert!(gets(6).iter().all(|text| text == "other"));
    done(&server, &["maintenance", &other.name()]);
    assert_eq!((server.get("/").status, state(&other.name())), (503, "maintenance".into()));
    done(&server, &["ready", &one.name()]);
    done(&server, &["ready", &other.name()]);
    let texts = gets(12);
    assert!(texts.iter().any(|text| text == "one") && texts.iter().any(|text| text == "other"));
    server.await_log("control: /backends/drain");
}

#[test]
fn drain_by_name_waits_for_the_request_under_way() {
    let backend = Backend::start(|peer| {
        let _ = peer.head();
        peer.hang();
    });
    let server = site()
        .config(&format!(
            "proxy.server = ( \"\" => ( \"slow\" => ( \"host\" => \"127.0.0.1\", \"port\" => {} ) ) )",
            backend.address().port()
        ))
        .start();
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wait_until(PATIENCE, || json(&server, "backends")[0]["in_use"] == 1));
    let (status, _, err) = ctl(&server, &["drain", "slow", "--wait", "1"]);
    assert!(
        status == 1 && err.contains("requests under way at ") && err.ends_with(": 1\n"),
        "{err}"
    );
    drop(client);
    done(&server, &["drain", "slow", "--wait", "30"]);
}

#[test]
fn ordered_weight_holds_until_the_configuration_has_another() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let server = balanced(&one, &other);
    let out = done(&server, &["weight", &one.name(), "0"]);
    assert!(out.ends_with("has weight 0\n"), "{out}");
    assert!((0..6).all(|_| server.get("/").text() == "other"));
    done(&server, &["reload"]);
    assert_eq!(json(&server, "backends")[0]["weight"], 0);
    let conf = server.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&conf).expect("the configuration");
    let weights = format!("{text}\nproxy-core.weights = ( \"{}\" => 3 )\n", one.name());
    lighty_testkit::server::write_file(&conf, weights);
    done(&server, &["reload"]);
    assert_eq!(json(&server, "backends")[0]["weight"], 3);
    done(&server, &["weight", &one.name(), "5"]);
    assert!(done(&server, &["weight", &one.name()]).ends_with("has weight 3\n"));
}

#[test]
fn wrong_backends_and_weights_are_refused() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let server = balanced(&one, &other);
    for (arguments, reason) in [
        (&["drain", "nobody:1"][..], "no backend is named nobody:1"),
        (&["weight", &one.name(), "1001"], "a weight is 0 to 1000"),
        (&["drain", &one.name(), "--upstream", "x"], "no backend is named"),
    ] {
        let (status, out, err) = ctl(&server, arguments);
        assert!(status == 1 && out.is_empty() && err.contains(reason), "{arguments:?}: {err}");
    }
    done(&server, &["weight", &one.name(), "1000"]);
    let twice = site()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!(
            "$HTTP[\"url\"] =^ \"/b\" {{ proxy-core.backends = ( \"{0}\" ) }}\n\
             $HTTP[\"url\"] =^ \"/c\" {{ proxy-core.backends = ( \"{0}\" )
             proxy-core.max-pool-size = 9 }}",
            one.name()
        ))
        .start();
    let (status, _, err) = ctl(&twice, &["drain", &one.name()]);
    assert!(status == 1 && err.contains("several upstreams have a backend"), "{err}");
    let upstream = json(&twice, "backends")[1]["upstream"].as_str().expect("a name").to_owned();
    done(&twice, &["drain", &one.name(), "--upstream", &upstream]);
    assert_eq!((twice.get("/b").status, twice.get("/c").status), (200, 503));
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
fn connections_show_their_requests_if_the_status_page_does() {
    let backend = Backend::start(|peer| {
        let _ = peer.head();
        peer.hang();
    });
    let server = site()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
        .config("status.status-url = \"/status\"")
        .start();
    let mut client = server.connect();
    client.send("GET /slow?x=1 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let row = || {
        let rows = json(&server, "connections");
        rows.as_array().expect("rows").iter().find(|row| row["target"] == "/slow?x=1").cloned()
    };
    assert!(wait_until(PATIENCE, || row().is_some()), "{}", server.log());
    let row = row().expect("a row");
    assert_eq!((&row["method"], &row["host"]), (&"GET".into(), &"a.example".into()));
}

#[test]
fn reload_that_hangs_keeps_nobody_waiting() {
    let server = site().start();
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
        assert!(status == 1 && err.contains("no server with this pid file is running"), "{err}");
    }
}
