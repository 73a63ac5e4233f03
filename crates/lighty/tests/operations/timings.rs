//! Stages of a request's duration: each wait has a name of its own, and the stages add up.

use std::process::Command;
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::http2::Http2;
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup, binary};
use lighty_testkit::wait_until;
use lighty_testkit::websocket::handshake;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// Duration of the slow stage.
const WAIT: Duration = Duration::from_millis(150);

fn logging() -> Setup {
    lighty!()
        .file("a.txt", "hello\n")
        .config("accesslog.filename = \"@DIR@/access.log\"\naccesslog.json = \"enable\"")
        .config("debug.log-timing = \"enable\"")
}

fn in_front_of(backend: &Backend, lines: &str) -> Setup {
    let name = backend.name();
    logging().config(&format!(
        "$HTTP[\"url\"] =^ \"/app/\" {{\n  proxy-core.protocol = \"http\"\n\
         proxy-core.backends = ( \"{name}\" )\n{lines}\n}}"
    ))
}

/// The stages of the request for a target, in microseconds, once it is logged.
fn stages(server: &Server, target: &str) -> Value {
    let file = server.directory().join("access.log");
    let logged = || {
        let log = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.into_iter().find(|line| line["target"] == target)
    };
    assert!(wait_until(PATIENCE, || logged().is_some()), "{}", server.log());
    let line = logged().expect("a line");
    let stages = line["stages_us"].clone();
    let all = stages.as_object().expect("stages");
    // The duration begins with the whole head.
    let before = |name: &str| matches!(name, "accept" | "tls" | "head");
    let within = all.iter().filter(|(name, _)| !before(name));
    let sum: u64 = within.map(|(_, us)| us.as_u64().expect("a number")).sum();
    let duration = line["duration_us"].as_u64().expect("a number");
    // The clock is read once more after the last stage.
    assert!(sum <= duration + 1_000, "{line}");
    stages
}

/// Asserts that one stage took the wait, and all others together less.
fn assert_waited(stages: &Value, name: &str) {
    // On a busy machine part of the wait is over before the server sees that it began.
    let least = u64::try_from(WAIT.as_micros()).expect("short") / 2;
    let took = stages[name].as_u64().unwrap_or(0);
    assert!(took >= least, "{name}: {stages}");
    let all = stages.as_object().expect("stages");
    let longest = all.iter().max_by_key(|(_, us)| us.as_u64()).expect("some");
    assert_eq!(longest.0, name, "{stages}");
}

#[test]
fn a_slow_backend_is_told_from_a_full_one() {
    let slow = Backend::replying(|_| {
        std::thread::sleep(WAIT);
        answer("200 OK", "", "app")
    });
    let server = in_front_of(&slow, "proxy-core.max-pool-size = 1").start();
    assert_eq!(server.get("/app/one").status, 200);
    assert_waited(&stages(&server, "/app/one"), "first-byte");
    // Two requests at once, one of which waits for the other's connection.
    std::thread::scope(|scope| {
        scope.spawn(|| server.get("/app/two"));
        scope.spawn(|| server.get("/app/three"));
    });
    let queued = ["/app/two", "/app/three"]
        .map(|target| stages(&server, target)["queue"].as_u64().unwrap_or(0));
    let least = u64::try_from(WAIT.as_micros()).expect("short") / 2;
    assert!(queued.iter().any(|us| *us >= least), "{queued:?}");
}

#[test]
fn all_tries_count() {
    let slow = Backend::start(|peer| {
        let _ = peer.request();
        std::thread::sleep(WAIT);
        // The first two connections get no response.
        if peer.number() > 1 {
            peer.answer("app");
        }
    });
    let server = in_front_of(&slow, "proxy-core.max-keep-alive-requests = 0").start();
    let _ = server.get("/app/");
    let stages = stages(&server, "/app/");
    let least = u64::try_from(WAIT.as_micros()).expect("short");
    let tries = u64::try_from(slow.opened()).expect("few");
    let took = stages["first-byte"].as_u64().unwrap_or(0);
    assert!(took >= least * 9 / 10 * tries, "{tries} tries: {stages}");
}

#[test]
fn a_body_that_drips_and_a_client_that_does_not_read_are_told_apart() {
    let drips = Backend::start(|peer| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\napp");
            std::thread::sleep(WAIT);
            peer.send("app");
        }
    });
    let server = in_front_of(&drips, "").file("big", vec![b'x'; 32 << 20]).start();
    assert_eq!(server.get("/app/drip").text(), "appapp");
    assert_waited(&stages(&server, "/app/drip"), "body");
    let mut client = Client::tcp_with_receive_buffer(server.address(), 4096);
    client.send("GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    // The client delays.
    std::thread::sleep(WAIT);
    assert_eq!(client.response().body.len(), 32 << 20);
    assert_waited(&stages(&server, "/big"), "send-queued");
}

#[test]
fn a_slow_head_is_the_clients_and_a_scripts_sleep_is_the_scripts() {
    let server = logging()
        .config("$HTTP[\"url\"] =^ \"/s\" { magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" ) }")
        .start();
    std::fs::write(server.directory().join("s.lua"), "lighty.sleep(0.15)\nreturn 204\n")
        .expect("a script");
    assert_eq!(server.get("/s").status, 204);
    assert_waited(&stages(&server, "/s"), "script");
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\n");
    std::thread::sleep(WAIT);
    client.send("Host: x\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_waited(&stages(&server, "/a.txt"), "head");
}

#[test]
fn the_line_of_1_5_keeps_its_columns() {
    let server = logging().start();
    let _ = server.get("/a.txt");
    server.await_log("write-start:");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("write-start:")).expect("a line");
    let columns: Vec<&str> = line.split_whitespace().collect();
    let at = |column: usize| columns[column - 1];
    assert_eq!(
        [5, 7, 10, 13].map(at),
        ["write-start:", "read-queue-wait:", "read-time:", "write-time:"]
    );
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let began_s: f64 = at(6).parse().expect("seconds");
    assert!((now_s.expect("after 1970").as_secs_f64() - began_s).abs() < 60.0, "{line}");
    for column in [8, 11, 14] {
        assert!(at(column).parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn a_slow_request_is_told_in_words() {
    let slow = Backend::replying(|_| {
        std::thread::sleep(WAIT);
        answer("200 OK", "", "app")
    });
    let server = in_front_of(&slow, "timing.slow-request = 100").start();
    let _ = server.get("/app/");
    let message = format!("waiting for the first byte of backend {}", slow.name());
    server.await_log(&message);
    let log = server.log();
    let line = log.lines().find(|line| line.contains(&message)).expect("a line");
    assert!(line.contains("[warning]") && line.contains("slow request (200): 1"), "{line}");
    let _ = server.get("/a.txt");
    assert!(!server.log().contains("opening the file"), "{}", server.log());
}

#[test]
fn deliberate_delay_is_no_slow_request() {
    let server = logging()
        .file("../users", "kim:secret\n")
        .config(
            "status.statistics-url = \"/statistics\"\nstatus.metrics-url = \"/metrics\"\n\
             timing.slow-request = 500\nauth.backend = \"plain\"\n\
             auth.backend.plain.userfile = \"@DIR@/users\"\n\
             auth.require = ( \"/a.txt\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )",
        )
        .start();
    // "kim:wrong"
    let refused = server.get_with("/a.txt", "Authorization: Basic a2ltOndyb25n\r\n");
    assert_eq!(refused.status, 401);
    let stages = stages(&server, "/a.txt");
    assert!(stages["delay"].as_u64().is_some_and(|us| us > 500_000), "{stages}");
    assert!(stages["rules"].as_u64().unwrap_or(0) < 500_000, "{stages}");
    let metrics = server.get("/metrics");
    assert!(!metrics.text().contains("stage=\"delay\""), "{}", metrics.text());
    assert!(!server.log().contains("slow request"), "{}", server.log());
}

#[test]
fn the_time_of_a_failed_try_is_not_the_next_backends() {
    let breaks_off = Backend::start(|peer| {
        let _ = peer.request();
        std::thread::sleep(WAIT);
    });
    let well = Backend::replying(|_| answer("200 OK", "", "app"));
    let server = logging()
        .config(&format!(
            "proxy-core.protocol = \"http\"\nproxy-core.balancer = \"static\"\n\
             proxy-core.backends = ( \"{}\", \"{}\" )\ntiming.slow-request = 100",
            breaks_off.name(),
            well.name()
        ))
        .start();
    assert_eq!(server.get("/").text(), "app");
    server.await_log("(2 tries)");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("slow request (200)")).expect("a line");
    let failed = format!("ms in a failed try at backend {}", breaks_off.name());
    assert!(line.contains(&failed), "{line}");
    assert!(!line.contains(&format!("first byte of backend {}", breaks_off.name())), "{line}");
    assert_waited(&stages(&server, "/"), "first-byte");
}

#[test]
fn a_slow_upload_is_the_clients_time() {
    let backend = Backend::replying(|_| answer("200 OK", "", "app"));
    let server = in_front_of(&backend, "timing.slow-request = 100")
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )")
        .file("p.sh", "touch begun; cat > /dev/null; printf 'X: y\\n\\nanswered'")
        .start();
    for target in ["/app/", "/p.sh"] {
        let mut client = server.connect();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"));
        let is_begun = || match target {
            "/app/" => backend.opened() > 0,
            _ => server.root("begun").exists(),
        };
        assert!(wait_until(PATIENCE, is_begun), "{}", server.log());
        // The client delays.
        std::thread::sleep(WAIT);
        client.send("defghij");
        assert_eq!(client.response().status, 200);
        assert_waited(&stages(&server, target), "request-body");
    }
    server.await_log("receiving the request's body");
    let log = std::fs::read_to_string(server.directory().join("access.log")).expect("a log");
    let line = log.lines().find(|line| line.contains("/app/")).expect("a line");
    let line: Value = serde_json::from_str(line).expect("JSON");
    let first_byte_us = line["upstream_first_byte_us"].as_u64().expect("a number");
    assert!(u128::from(first_byte_us) < WAIT.as_micros(), "{line}");
}

#[test]
fn a_program_that_fails_is_waited_for() {
    let server = logging()
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )")
        .file("fails.sh", "sleep 0.15")
        .start();
    assert_eq!(server.get("/fails.sh").status, 502);
    assert_waited(&stages(&server, "/fails.sh"), "first-byte");
}

#[test]
fn a_tunnel_is_no_part_of_its_request() {
    let backend = Backend::start(|peer| {
        let Some(_) = peer.head() else { return };
        peer.send("HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
        std::thread::sleep(WAIT);
    });
    let server = in_front_of(&backend, "proxy-core.upgrade = \"enable\"")
        .config("timing.slow-request = 100\nstatus.metrics-url = \"/metrics\"")
        .start();
    let mut client = server.connect();
    client.send(handshake("/app/one", ""));
    client.read_to_end();
    // It waits for the client's end as well.
    drop(client);
    let mut client = Http2::connect(server.address());
    let mut fields = client.request_fields("CONNECT", "/app/two");
    fields.insert(1, (":protocol".to_owned(), "websocket".to_owned()));
    let stream = client.open(&fields, false);
    assert_eq!(client.answer(stream).status, 200);
    drop(client);
    for target in ["/app/one", "/app/two"] {
        assert_waited(&stages(&server, target), "tunnel");
    }
    assert!(!server.log().contains("slow request"), "{}", server.log());
    let metrics = server.get("/metrics");
    let sums: Vec<&str> = metrics
        .text()
        .lines()
        .filter(|line| line.starts_with("http_server_request_duration_seconds_sum"))
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    let sums: Vec<f64> = sums.iter().map(|sum| sum.parse().expect("a number")).collect();
    assert!(!sums.is_empty() && sums.iter().all(|sum| *sum < WAIT.as_secs_f64()), "{sums:?}");
}

#[test]
fn a_response_says_where_its_time_went_where_it_may() {
    let slow = Backend::replying(|_| {
        std::thread::sleep(WAIT);
        answer("200 OK", "Server-Timing: db;dur=1\r\n", "app")
    });
    let server = in_front_of(&slow, "timing.server-timing = \"enable\"").start();
    let response = server.get("/app/");
    let all: Vec<&str> = response.all("Server-Timing").collect();
    let [own, last] = all[..] else { panic!("{all:?}") };
    assert_eq!(own, "db;dur=1");
    let found = last.split(", ").find_map(|entry| entry.strip_prefix("first-byte;dur="));
    let took: f64 = found.expect(last).parse().expect("milliseconds");
    assert!(took >= 100.0, "{last}");
    assert_eq!(server.get("/a.txt").field("Server-Timing"), None);
}

#[test]
fn a_log_without_times_leaves_an_older_picture_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let (log, picture) = (path("error.log"), path("timing.svg"));
    let plot = || {
        let arguments = ["timing", "plot", &log, "-o", &picture];
        let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty"))).args(arguments).output();
        output.expect("lighty timing plot")
    };
    let line = "2026-11-24T08:15:00Z [notice] 127.0.0.1: timing write-start: 1795508100.1 \
                read-queue-wait: 0.000 ms read-time: 2.000 ms write-time: 0.210 ms total: 3.000 ms\n";
    std::fs::write(&log, line).expect("written");
    assert!(plot().status.success());
    let drawn = std::fs::read_to_string(&picture).expect("a picture");
    assert!(drawn.starts_with("<svg ") && !drawn.contains("NaN"), "{drawn}");
    std::fs::write(&log, line.replace("1795508100.1", "NaN") + "nothing\n").expect("written");
    let output = plot();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && printed.contains("1 line left out; the first is 1"),
        "{printed}"
    );
    assert!(printed.contains("no request with times in "), "{printed}");
    assert_eq!(std::fs::read_to_string(&picture).expect("a picture"), drawn);
}
