//! Metrics, as collectors read them.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use lighty_testkit::backend::{Backend, Port, answer};
use lighty_testkit::client::Client;
use lighty_testkit::peer::ask as ask_once;
use lighty_testkit::real::find;
use lighty_testkit::real::prometheus::Prometheus;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::{lighty, wait_until};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn measured() -> Setup {
    lighty!().file("a.txt", "hello\n").config("status.metrics-url = \"/metrics\"")
}

fn in_front_of(backend: &Backend) -> Setup {
    measured().config(&format!(
        "$HTTP[\"url\"] =^ \"/app/\" {{\n  status.route = \"the \\\"app\\\"\"\n  \
         proxy-core.protocol = \"http\"\n  proxy-core.backends = ( \"{}\" )\n}}",
        backend.name()
    ))
}

fn metrics(server: &Server) -> String {
    let response = server.get("/metrics");
    assert_eq!(response.status, 200);
    let media_type = response.field("Content-Type");
    assert_eq!(media_type, Some("text/plain; version=0.0.4; charset=utf-8"));
    response.text().to_owned()
}

/// The value of a series; `None` if there is none.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Waits for a value: a request is counted when its response is out, which its client may know
/// first.
fn await_value(server: &Server, series: &str, wanted: f64) {
    let is_there = || value(&metrics(server), series) == Some(wanted);
    assert!(wait_until(PATIENCE, is_there), "{series} {wanted} in\n{}", metrics(server));
}

/// Name of the series of requests with this result.
fn series(what: &str, status: &str, route: &str) -> String {
    format!(
        "http_server_request_duration_seconds_{what}{{http_request_method=\"GET\",\
         url_scheme=\"http\",http_response_status_code=\"{status}\",\
         network_protocol_version=\"1.1\",http_route=\"{route}\"}}"
    )
}

/// Names of metrics that are there.
fn names(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

#[test]
fn every_fault_of_a_backend_is_counted_as_its_failure() {
    let backend = Backend::start(|peer| {
        let Some(seen) = peer.request() else { return };
        match seen.target() {
            "/app/well" => drop(peer.answer("app")),
            "/app/garbage" => drop(peer.send("no HTTP\r\n\r\n")),
            "/app/cut" => drop(peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")),
            "/app/silent" => drop(peer.hang()),
            _ => {}
        }
    });
    let server = in_front_of(&backend).config("proxy-core.read-timeout = \"300ms\"").start();
    let series = format!(
        "lighty_backend_failures_total{{upstream=\"proxy-core.backends in \
         $HTTP[\\\"url\\\"] =^ \\\"/app/\\\"\",backend=\"{}\"}}",
        backend.name()
    );
    assert_eq!(server.get("/app/well").status, 200);
    await_value(&server, &series, 0.0);
    for (target, status) in [("garbage", 502), ("silent", 504), ("closes", 502)] {
        assert_eq!(server.get(&format!("/app/{target}")).status, status, "{target}");
        // Each connection is one try.
        let tries = backend.opened() - 1;
        await_value(&server, &series, tries as f64);
    }
    let mut client = server.connect();
    client.send("GET /app/cut HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_to_end();
    await_value(&server, &series, (backend.opened() - 1) as f64);
}

#[test]
fn requests_are_counted_by_what_answers_them() {
    let backend = Backend::replying(|_| answer("503 No", "", "x"));
    let server = in_front_of(&backend).config("server.max-worker = 3").start();
    for _ in 0..30 {
        assert_eq!(server.get("/a.txt").status, 200);
    }
    assert_eq!(server.get("/app/x").status, 503);
    assert_eq!(server.get("/nothing").status, 404);
    await_value(&server, &series("count", "200", "mod_staticfile"), 30.0);
    await_value(&server, &series("count", "503", "the \\\"app\\\""), 1.0);
    let text = metrics(&server);
    assert_eq!(value(&text, &series("count", "404", "mod_staticfile")), Some(1.0), "{text}");
    let sum = value(&text, &series("sum", "200", "mod_staticfile")).expect("a sum");
    assert!(sum > 0.0 && sum < 30.0, "{sum}");
    let labels = format!(
        "{{upstream=\"proxy-core.backends in $HTTP[\\\"url\\\"] =^ \\\"/app/\\\"\",\
         backend=\"{}\"}}",
        backend.name()
    );
    for (name, wanted) in [
        ("lighty_backend_requests_total", 1.0),
        ("lighty_backend_first_byte_seconds_count", 1.0),
        ("lighty_backend_active_requests", 0.0),
    ] {
        assert_eq!(value(&text, &format!("{name}{labels}")), Some(wanted), "{name}\n{text}");
    }
    assert_eq!(value(&text, "lighty_config_generation"), Some(0.0));
    assert_eq!(value(&text, "lighty_config_last_reload_successful"), Some(1.0));
    assert!(value(&text, "process_resident_memory_bytes") > Some(1e6));
    assert!(value(&text, "process_open_fds") > Some(5.0));
    assert_eq!(text.matches("\nlighty_worker_requests_total{").count(), 3);
}

#[test]
fn failures_count_for_the_module_that_took_the_request_on() {
    let backend = Backend::answering("app");
    let gone = Port::reserve();
    let proxy = |address: &str| {
        format!("proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{address}\" )\n")
    };
    let server = measured()
        .file("no.cgi", "x")
        .file("oops.html", "x")
        .config("url.access-deny = ( \"~\" )")
        .config("cgi.assign = ( \".cgi\" => \"/no/such/program\" )")
        .config(&format!(
            "$HTTP[\"url\"] =^ \"/gone/\" {{ {} }}",
            proxy(&gone.address().to_string())
        ))
        .config(&format!("$HTTP[\"url\"] =^ \"/app/\" {{ {} }}", proxy(&backend.name())))
        .config(
            "$HTTP[\"url\"] =^ \"/gone/kept\" { server.error-handler = \"/oops.html\" }\n\
             $HTTP[\"url\"] =^ \"/fallback/\" { server.error-handler-404 = \"/app/x\" }",
        )
        .start();
    for (target, status, route) in [
        ("/nothing", "404", "mod_staticfile"),
        ("/nothing.cgi", "404", "mod_cgi"),
        ("/no.cgi", "500", "mod_cgi"),
        ("/gone/x", "503", "mod_proxy_core"),
        ("/a.txt~", "403", "none"),
        ("/fallback/x", "200", "mod_proxy_core"),
    ] {
        assert_eq!(server.get(target).status.to_string(), status, "{target}");
        await_value(&server, &series("count", status, route), 1.0);
    }
    assert_eq!(server.get("/gone/kept").text(), "x", "the page of the error");
    await_value(&server, &series("count", "503", "mod_proxy_core"), 2.0);
}

#[test]
fn the_checker_of_prometheus_finds_nothing() {
    let Some(promtool) = find(&["promtool"]) else { return };
    let backend = Backend::answering("x");
    let server = in_front_of(&backend).start();
    for target in ["/a.txt", "/app/x", "/none"] {
        let _ = server.get(target);
    }
    let mut command = Command::new(promtool);
    let command = command.args(["check", "metrics"]).stdin(Stdio::piped());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("promtool");
    child.stdin.take().expect("a pipe").write_all(metrics(&server).as_bytes()).expect("written");
    let output = child.wait_with_output().expect("its output");
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && printed.is_empty(), "{}", String::from_utf8_lossy(&printed));
}

#[test]
fn collectors_choose_the_format() {
    let server = measured().config("deflate.mimetypes = ( \"text/plain\" )").start();
    let open = server.get_with("/metrics", "Accept: application/openmetrics-text\r\n");
    let media_type = open.field("Content-Type").expect("a type");
    assert!(media_type.starts_with("application/openmetrics-text; version=1.0.0"), "{media_type}");
    assert!(open.text().ends_with("\n# EOF\n"));
    assert!(open.text().contains("# TYPE lighty_requests counter\n"), "{}", open.text());
    assert_eq!(open.field("Cache-Control"), Some("no-store"));
    let native = server.get_with("/metrics", "Accept: application/vnd.google.protobuf\r\n");
    assert!(native.field("Content-Type").is_some_and(|one| one.ends_with("encoding=delimited")));
    let packed = server.get_with("/metrics", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.field("Content-Encoding"), Some("gzip"));
    let post = server.connect();
    let post = ask_once(post, "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(post.status, 404);
}

#[test]
fn recorded_traces_are_examples_of_durations() {
    let backend = Backend::answering("x");
    let server = in_front_of(&backend)
        .config("tracing.activate = \"enable\"\ntracing.sample-ratio = \"0\"")
        .config("$HTTP[\"url\"] =^ \"/app/\" { tracing.sample-ratio = \"1\" }")
        .start();
    for target in ["/a.txt", "/app/x", "/a.txt", "/app/y"] {
        assert_eq!(server.get(target).status, 200);
    }
    await_requests(&server, 4.0);
    let seen = backend.requests_for("/app/y");
    let trace_id = seen[0].field("traceparent").and_then(|text| text.get(3..35)).expect("a trace");
    let open = server.get_with("/metrics", "Accept: application/openmetrics-text\r\n");
    let examples: Vec<_> = open.text().lines().filter(|line| line.contains(" # ")).collect();
    let is_ours = |line: &&&str| line.contains(&format!(" # {{trace_id=\"{trace_id}\"}} 0."));
    assert!(examples.iter().any(|line| is_ours(&line)), "{trace_id}: {examples:?}");
    assert!(examples.iter().all(|line| line.contains("http_route=\"the ")), "{examples:?}");
    assert!(!metrics(&server).contains(trace_id), "the older format has none");
    let native = server.get_with("/metrics", "Accept: application/vnd.google.protobuf\r\n");
    let holds = native.body.windows(trace_id.len()).any(|bytes| bytes == trace_id.as_bytes());
    assert!(holds, "the protocol buffers have it");
}

#[test]
fn connections_are_counted_by_listener() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("lighty.sock");
    let path = socket.to_str().expect("UTF-8");
    let server = measured()
        .config(&format!("server.max-worker = 2\n$SERVER[\"socket\"] == \"{path}\" {{ }}"))
        .start();
    let here = format!("{{listener=\"{}\"}}", server.address());
    let other = format!("{{listener=\"{path}\"}}");
    let open = |labels: &str| format!("lighty_listener_open_connections{labels}");
    let held: Vec<_> = (0..3).map(|_| UnixStream::connect(&socket).expect("connected")).collect();
    await_value(&server, &open(&other), 3.0);
    assert!(value(&metrics(&server), &open(&here)) >= Some(1.0));
    drop(held);
    await_value(&server, &open(&other), 0.0);
    await_value(&server, &format!("lighty_listener_connections_total{other}"), 3.0);
}

#[test]
fn client_text_creates_no_series() {
    let server =
        measured().config("server.max-worker = 2\nserver.max-keep-alive-requests = 100000").start();
    let series = || metrics(&server).lines().filter(|line| !line.starts_with('#')).count();
    let ask = |number: usize, client: Option<&mut Client>| {
        // A request with an unknown method ends its connection.
        let unknown = format!("M{number} /a.txt HTTP/1.1\r\nHost: h{number}.test\r\n\r\n");
        let known = format!("GET /a.txt?{number} HTTP/1.1\r\nHost: h{number}.test\r\n\r\n");
        match client {
            None => assert_eq!(ask_once(server.connect(), &unknown).status, 501),
            Some(client) => {
                client.send(known);
                assert_eq!(client.response().status, 200);
            }
        }
    };
    let mut client = server.connect();
    (0..10).for_each(|number| ask(number, None));
    (0..10).for_each(|number| ask(number, Some(&mut client)));
    await_requests(&server, 20.0);
    let before = series();
    (10..200).for_each(|number| ask(number, None));
    (10..3_000).for_each(|number| ask(number, Some(&mut client)));
    await_requests(&server, 3_200.0);
    // A stage that took no time before may have taken some now, and has buckets.
    assert!(series() < before + 200, "{before} {}", series());
    let text = metrics(&server);
    assert!(text.contains("http_request_method=\"_OTHER\""), "{text}");
    assert!(!text.contains("h77.test") && !text.contains("M77"), "{text}");
}

/// Waits until `least` requests were counted, without the requests for the metrics.
fn await_requests(server: &Server, least: f64) {
    let counted = || {
        let text = metrics(server);
        let count = "http_server_request_duration_seconds_count{";
        let lines = text.lines().filter(|line| line.starts_with(count));
        let others = lines.filter(|line| !line.contains("mod_status"));
        others.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    assert!(wait_until(PATIENCE, || counted() >= least), "{least}: {}", counted());
}

#[test]
fn outcomes_of_reloads_show() {
    let mut server = measured()
        .config("status.status-url = \"/status\"")
        .config("server.pid-file = \"@DIR@/pid\"")
        .start();
    let shown = |name: &str| value(&metrics(&server), &format!("lighty_config_{name}"));
    let (success, attempt) =
        ("last_reload_success_timestamp_seconds", "last_reload_timestamp_seconds");
    let started = shown(success).expect("the time of the start");
    assert!(started > 1.7e9);
    assert_eq!(shown(attempt), Some(started));
    assert_eq!(shown("reloads_total{outcome=\"refused\"}"), Some(0.0));
    let page = || server.get("/status").text().to_owned();
    assert!(page().contains("never reloaded"), "{}", page());

    let config = server.directory().join("lighty.conf");
    let good = std::fs::read_to_string(&config).expect("the configuration");
    std::fs::write(&config, format!("{good}\n$HTTP[\n")).expect("written");
    // The refusal is in another second than the start.
    let now = || SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    assert!(wait_until(PATIENCE, || now() >= started + 1.0));
    server.signal(rustix::process::Signal::USR1);
    await_value(&server, "lighty_config_last_reload_successful", 0.0);
    assert_eq!(shown("reloads_total{outcome=\"refused\"}"), Some(1.0));
    assert_eq!(shown("generation"), Some(0.0));
    assert_eq!(shown(success), Some(started), "a refusal is no success");
    let refused = shown(attempt).expect("the time of the refusal");
    assert!(refused > started, "{refused} {started}");
    assert!(page().contains("last reload refused"), "{}", page());

    std::fs::write(&config, good).expect("written");
    server.signal(rustix::process::Signal::USR1);
    await_value(&server, "lighty_config_last_reload_successful", 1.0);
    assert_eq!(shown("generation"), Some(1.0));
    assert_eq!(shown("reloads_total{outcome=\"success\"}"), Some(1.0));
    assert!(shown(success) >= Some(refused));
    await_value(&server, "lighty_config_old_generations", 0.0);
    assert!(page().contains("generation 1"), "{}", page());
    server.stop();
}

#[test]
fn earlier_configuration_counts_while_a_request_uses_it() {
    let backend = Backend::start(|peer| {
        let Some(seen) = peer.request() else { return };
        if seen.target() == "/app/slow" {
            peer.hang();
        }
    });
    let server = in_front_of(&backend).config("server.pid-file = \"@DIR@/pid\"").start();
    let mut client = server.connect();
    client.send("GET /app/slow HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wait_until(PATIENCE, || backend.opened() == 1));
    server.signal(rustix::process::Signal::USR1);
    await_value(&server, "lighty_config_generation", 1.0);
    await_value(&server, "lighty_config_old_generations", 1.0);
    drop(client);
    await_value(&server, "lighty_config_old_generations", 0.0);
}

#[test]
fn prometheus_collects_and_knows_how_long_requests_took() {
    let slow = Backend::replying(|_| {
        std::thread::sleep(Duration::from_millis(60));
        answer("200 OK", "", "x")
    });
    let host = "$HTTP[\"host\"] == \"localhost\" { server.tag = \"local\" }";
    let server = in_front_of(&slow).config(host).start();
    let native = Prometheus::collecting(&server, "/metrics", true);
    let (Some(native), Some(text)) = (native, Prometheus::collecting(&server, "/metrics", false))
    else {
        return;
    };
    for collector in [&native, &text] {
        assert_eq!(collector.await_number("sum(up{job=\"lighty\"})"), 1.0);
    }
    for _ in 0..20 {
        assert_eq!(server.get("/app/x").status, 200);
    }
    let count = "http_server_request_duration_seconds_count{http_route=~\".*app.*\"}";
    assert!(wait_until(PATIENCE, || text.await_number(count) == 20.0));
    let fixed = "histogram_quantile(0.5, http_server_request_duration_seconds_bucket{\
                 http_route=~\".*app.*\"})";
    let found_s = text.await_number(fixed);
    assert!((0.05..0.25).contains(&found_s), "{found_s}");
    let own = "http_server_request_duration_seconds{http_route=~\".*app.*\"}";
    let counted = || native.await_number(&format!("histogram_count({own})")) == 20.0;
    assert!(wait_until(PATIENCE, counted));
    let found_s = native.await_number(&format!("histogram_quantile(0.5, {own})"));
    assert!((0.055..0.2).contains(&found_s), "{found_s}");
    for query in dashboard_queries() {
        let _ = text.query(&query);
    }
}

/// The queries of the dashboard, for all instances and a minute.
fn dashboard_queries() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/lighty.json");
    let json = std::fs::read_to_string(file).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&json).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let queries: Vec<String> = targets
        .map(|target| {
            let query = target["expr"].as_str().expect("a query");
            query.replace("$__rate_interval", "1m").replace("$instance", ".*")
        })
        .collect();
    assert!(queries.len() > 30, "{}", queries.len());
    queries
}

/// Names and labels in a query.
fn tokens(query: &str) -> Vec<&str> {
    query.split(|one: char| !one.is_ascii_alphanumeric() && one != '_').collect()
}

/// Labels of the metrics with these names.
fn labels<'t>(text: &'t str, known: &[&str]) -> BTreeSet<&'t str> {
    let series = text.lines().filter_map(|line| line.split_once('{'));
    let of_known = series.filter(|(name, _)| known.contains(name));
    let pairs = of_known.flat_map(|(_, rest)| rest.split("\",").flat_map(|one| one.split("=\"")));
    pairs.collect()
}

#[test]
fn dashboard_has_metrics_and_labels_of_the_server() {
    let backend = Backend::replying(|_| answer("200 OK", "Cache-Control: max-age=600\r\n", "app"));
    let server = in_front_of(&backend)
        .config(
            "cache.stores = ( \"pages\" => ( ) )\ncache.store = \"pages\"\n\
             $HTTP[\"host\"] == \"localhost\" { }",
        )
        .start();
    for target in ["/app/a", "/app/a", "/missing"] {
        let _ = server.get(target);
    }
    let has_cached = |text: &str| names(text).contains("lighty_cached_request_seconds_bucket");
    assert!(wait_until(PATIENCE, || has_cached(&metrics(&server))));
    let text = metrics(&server);
    let known = names(&text);
    for query in dashboard_queries() {
        let ours = ["http_server_", "lighty_", "process_"];
        let is_ours = |token: &&str| ours.iter().any(|front| token.starts_with(front));
        // Exists only with certificates.
        if query.contains("lighty_tls_certificate_expiry_timestamp_seconds") {
            continue;
        }
        let found: Vec<&str> = tokens(&query).into_iter().filter(is_ours).collect();
        assert!(!found.is_empty(), "{query}");
        for name in &found {
            assert!(known.contains(name), "{name} of {query}");
        }
        let labels = labels(&text, &found);
        for by in query.split("by (").skip(1) {
            let by = by.split(')').next().expect("labels");
            for label in by.split(", ") {
                assert!(labels.contains(label), "{label} of {query}");
            }
        }
    }
}
