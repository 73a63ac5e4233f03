//! The service, its logs, metrics and traces.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::real::{Listen, Program, find};
use lighty_testkit::server::{Setup, binary, write_file};
use lighty_testkit::wait_until;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::applications::echo;
use super::page::Page;
use super::trial::Recipe;

const HOST: &str = "www.example.org";

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The first block of a page that contains this.
fn block(name: &str, part: &str) -> String {
    let found = Page::read(name).blocks.into_iter().find(|block| block.text.contains(part));
    found.unwrap_or_else(|| panic!("{name} has no {part}")).text
}

#[test]
fn systemd_unit() {
    let trial = Recipe::new("systemd").run();
    let unit = block("systemd", "[Service]");
    let line = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {name}")).replace("/usr/sbin/", "")
    };
    assert_eq!(line("ExecStart"), "lighty -f /etc/lighty/lighty.conf");
    assert_eq!(trial.sh(&line("ExecStartPre")), "Syntax OK\n");
    let reload = format!("{} && echo done", line("ExecReload"));
    assert!(trial.sh(&reload).ends_with("done\n"), "{}", trial.server().log());
    let rights = [line("AmbientCapabilities"), line("CapabilityBoundingSet")];
    assert_eq!(rights, ["CAP_NET_BIND_SERVICE", "CAP_NET_BIND_SERVICE"]);
}

/// A port below 1024, reserved while no socket listens on it.
fn low_port() -> Option<(Socket, SocketAddr)> {
    let held = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    held.set_reuse_address(true).expect("an option");
    let addresses = (600..1024).rev().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let address = addresses.into_iter().find(|address| held.bind(&(*address).into()).is_ok())?;
    Some((held, address))
}

/// Runs with the privileges of the unit: another user, and its only capability.
const AS_UNIT: [&str; 7] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all,+net_bind_service",
    "--ambient-caps=-all,+net_bind_service",
    "--bounding-set=-all,+net_bind_service",
];

#[test]
fn the_unit_s_capability_is_enough_for_a_low_port() {
    let program = binary(env!("CARGO_BIN_EXE_lighty"));
    let runs = Command::new(AS_UNIT[0]).args(&AS_UNIT[1..]).arg(&program).arg("--version").output();
    if !runs.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: another user cannot run {}", program.display());
        return;
    }
    let Some((_held, address)) = low_port() else { panic!("every port below 1024 is taken") };
    let setup = Setup::new(program).without_listener().config(&format!(
        "server.bind = \"{}\"\nserver.port = {}",
        address.ip(),
        address.port()
    ));
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(setup.directory(), open).expect("an open directory");
    let server = setup.through(AS_UNIT).start();
    assert_eq!(server.listening(), [address], "{}", server.log());
    let mut client = Client::tcp(address);
    client.send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 404);
}

#[test]
fn json_logs_with_rotation() {
    let trial = Recipe::new("json-logs").run();
    let access = trial.path("var/log/lighty/access.log");
    // The HUP of the page's script makes the server create the file again.
    assert!(wait_until(PATIENCE, || access.exists()), "{}", trial.server().log());
    assert_eq!(trial.get(HOST, "/after").status, 404);
    let text = || std::fs::read_to_string(&access).unwrap_or_default();
    assert!(wait_until(PATIENCE, || text().ends_with('\n')), "nothing is logged");
    let entry: Value = serde_json::from_str(&text()).expect("one object");
    assert_eq!((&entry["target"], &entry["status"]), (&"/after".into(), &404.into()));
    let error = std::fs::read_to_string(trial.path("var/log/lighty/error.log")).expect("a log");
    for line in error.lines() {
        serde_json::from_str::<Value>(line).expect("an object");
    }
    // The script that logrotate runs.
    let rotation = block("json-logs", "postrotate");
    let (_, script) = rotation.split_once("postrotate\n").expect("a script");
    let (script, _) = script.split_once("endscript").expect("an end");
    std::fs::rename(&access, trial.path("var/log/lighty/access.log.2")).expect("renamed");
    assert_eq!(trial.sh(script), "");
    assert!(wait_until(PATIENCE, || access.exists()), "{}", trial.server().log());
}

#[test]
fn prometheus() {
    let trial = Recipe::new("prometheus").run();
    let Some(program) = find(&["prometheus"]) else { return };
    let directory = Program::directory();
    let config = block("prometheus", "scrape_configs");
    let config = config.replace("127.0.0.1:80", &trial.address().to_string());
    let file = directory.path().join("prometheus.yml");
    write_file(&file, format!("global:\n  scrape_interval: 1s\n{config}"));
    let listen = Listen::free_port();
    let own = directory.path().display().to_string();
    let line = [
        program.display().to_string(),
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={own}/data"),
        format!("--web.listen-address={}", listen.address()),
    ];
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let mut running = Program::start(directory, &line, &[]);
    running.await_listening(&listen);
    let ask = |query: &str| {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut client = Client::tcp(listen.address());
        client.send(format!("GET /api/v1/query?query={encoded} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let response = client.response();
        let value: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        (value["status"] == "success").then(|| value["data"]["result"].clone())
    };
    let has_series = || {
        trial.get(HOST, "/");
        let found = ask("sum(rate(http_server_request_duration_seconds_count[5m]))");
        found.is_some_and(|found| found[0]["value"][1] != Value::Null)
    };
    assert!(wait_until(PATIENCE, has_series), "{}", running.log());
    for page in ["prometheus", "per-host-metrics"] {
        let text = std::fs::read_to_string(super::manual().join(format!("{page}.md")));
        let text = text.expect("a page");
        let rows = text.lines().filter_map(|line| line.strip_suffix("` |")?.split_once("| `"));
        let queries: Vec<&str> = rows.map(|(_, query)| query).collect();
        assert!(queries.len() >= 2, "{queries:?}");
        for query in queries {
            assert!(ask(query).is_some(), "{page}: {query}");
        }
    }
}

#[test]
fn metrics_for_each_host() {
    let trial = Recipe::new("per-host-metrics").run();
    assert_eq!(trial.get(HOST, "/").status, 200);
    assert_eq!(trial.get("other.example.org", "/").status, 200);
    let metrics = trial.get("127.0.0.1", "/metrics").text().to_owned();
    for route in ["www", "shop", "shop-checkout"] {
        assert!(metrics.contains(&format!("http_route=\"{route}\"")), "{route}: {metrics}");
    }
    assert!(!metrics.contains("other.example.org"), "{metrics}");
}

#[test]
fn tracing() {
    let (app, collector) = (echo(), Backend::replying(|_| answer("200 OK", "", "{}")));
    let trial = Recipe::new("tracing")
        .backend("127.0.0.1:3000", app.address())
        .replace("127.0.0.1:4318", collector.address())
        .run();
    let seen = app.requests_for("/checkout/pay").pop().expect("a request");
    let parent = seen.field("traceparent").expect("a trace");
    let trace = parent.split('-').nth(1).expect("its id");
    assert!(parent.ends_with("-01"), "it is recorded: {parent}");
    assert!(seen.field("X-Request-Id").is_some());
    let spans = || {
        collector.requests_for("/v1/traces").iter().any(|seen| {
            let text = String::from_utf8_lossy(&seen.body);
            text.contains(trace) && text.contains("\"front\"") && text.contains("/checkout/pay")
        })
    };
    assert!(wait_until(PATIENCE, spans), "{}", trial.server().log());
}
