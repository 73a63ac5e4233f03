//! Metrics and the error log by OTLP: collectors that take, refuse, or never respond.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, Port, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup, write_file};
use lighty_testkit::wait_until;
use rustix::process::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

type Requests = Arc<Mutex<Vec<Value>>>;

/// A collector that responds with `status`, and the requests that it received at `path`.
fn collector(path: &'static str, status: &'static str) -> (Backend, Requests) {
    let taken = Requests::default();
    let sent = Arc::clone(&taken);
    let backend = Backend::replying(move |received| {
        assert_eq!(received.line(), format!("POST {path} HTTP/1.1"));
        assert_eq!(received.field("content-type"), Some("application/json"));
        assert_eq!(received.field("x-key"), Some("secret"));
        let request: Value = serde_json::from_slice(&received.body).expect("JSON");
        sent.lock().expect("no panic").push(request);
        answer(status, "", "{}")
    });
    (backend, taken)
}

fn site(lines: &str) -> Setup {
    lighty!()
        .file("a.txt", "hello\n")
        .config("tracing.collector-headers = ( \"X-Key\" => \"secret\" )")
        .config("tracing.service-name = \"front\"\nstatus.statistics-url = \"/counters\"")
        .config(lines)
}

fn counter(server: &Server, name: &str) -> usize {
    let response = server.get("/counters");
    let counters = response.text();
    let line = counters.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{name} in {counters}"))
}

fn text<'a>(attributes: &'a Value, name: &str) -> Option<&'a str> {
    let all = attributes.as_array()?;
    let found = all.iter().find(|attribute| attribute["key"] == name)?;
    found["value"]["stringValue"].as_str()
}

/// A metric of the latest request.
fn metric(taken: &Requests, name: &str) -> Option<Value> {
    let taken = taken.lock().expect("no panic");
    let resource = taken.last()?["resourceMetrics"][0].clone();
    assert_eq!(text(&resource["resource"]["attributes"], "service.name"), Some("front"));
    let metrics = resource["scopeMetrics"][0]["metrics"].as_array()?.clone();
    metrics.into_iter().find(|metric| metric["name"] == name)
}

#[test]
fn metrics_are_sent_once_in_an_interval() {
    let (backend, taken) = collector("/v1/metrics", "200 OK");
    let lines = format!(
        "tracing.metrics-collector = \"http://{}\"\ntracing.metrics-interval = 1",
        backend.name()
    );
    let mut server = site(&lines).start();
    assert_eq!(server.get("/a.txt").status, 200);
    let durations = || metric(&taken, "http.server.request.duration");
    assert!(wait_until(PATIENCE, || durations().is_some()), "{}", server.log());
    let durations = durations().expect("a metric");
    let points = durations["histogram"]["dataPoints"].as_array().expect("points").clone();
    let of_file =
        |point: &&Value| text(&point["attributes"], "http.route") == Some("mod_staticfile");
    let point = points.iter().find(of_file).expect("a point");
    assert_eq!(text(&point["attributes"], "http.request.method"), Some("GET"));
    assert!(point["count"].as_str().is_some_and(|count| count != "0"), "{point}");
    let workers = metric(&taken, "lighty_worker_requests").expect("a counter");
    assert_eq!(workers["sum"]["isMonotonic"], true);
    let count = || taken.lock().expect("no panic").len();
    let before = count();
    assert!(wait_until(PATIENCE, || count() > before + 1), "{before}");
    assert!(counter(&server, "tracing.metrics-exported") > 0);
    server.stop();
}

/// Records of the error log with a text.
fn records(taken: &Requests, message: &str) -> Vec<Value> {
    let taken = taken.lock().expect("no panic");
    let scopes = taken.iter().map(|request| &request["resourceLogs"][0]["scopeLogs"][0]);
    let all = scopes.flat_map(|scope| scope["logRecords"].as_array().expect("records").clone());
    let is_it = |record: &Value| {
        record["body"]["stringValue"].as_str().is_some_and(|text| text.contains(message))
    };
    all.filter(is_it).collect()
}

#[test]
fn lines_of_the_error_log_are_sent_with_their_context() {
    let (backend, taken) = collector("/v1/logs", "200 OK");
    let lines = format!(
        "tracing.logs-collector = \"http://{}\"\ndebug.log-file-not-found = \"enable\"",
        backend.name()
    );
    let mut server = site(&lines).start();
    assert_eq!(server.get("/missing?key=hidden").status, 404);
    let found = || records(&taken, "no such file").pop();
    assert!(wait_until(PATIENCE, || found().is_some()), "{}", server.log());
    let record = found().expect("a record");
    let attributes = &record["attributes"];
    assert_eq!((&record["severityNumber"], &record["severityText"]), (&10.into(), &"INFO2".into()));
    assert_eq!(text(attributes, "client.address"), Some("127.0.0.1"));
    assert_eq!(text(attributes, "url.path"), Some("/missing"));
    assert_eq!(text(attributes, "http.request.method"), Some("GET"));
    assert!(text(attributes, "lighty.request_id").is_some(), "{record}");
    assert!(!record.to_string().contains("hidden"), "a query may hold secrets: {record}");
    assert!(server.log().contains("/missing?key=hidden"), "the log has the line, too");
    // The last lines are sent at the end.
    server.signal(Signal::INT);
    assert!(wait_until(PATIENCE, || !records(&taken, "graceful stop").is_empty()));
    server.stop();
}

/// Attributes of the access log record of a path.
fn access_record(taken: &Requests, path: &str) -> Option<Value> {
    let is_it = |record: &Value| text(&record["attributes"], "url.path") == Some(path);
    records(taken, "").into_iter().find(is_it)
}

fn number<'a>(record: &'a Value, name: &str) -> Option<&'a str> {
    let all = record["attributes"].as_array()?;
    let found = all.iter().find(|attribute| attribute["key"] == name)?;
    found["value"]["intValue"].as_str()
}

#[test]
fn finished_requests_are_sent_as_log_records() {
    let (backend, taken) = collector("/v1/logs", "200 OK");
    let lines = format!(
        "tracing.access-logs-collector = \"http://{}\"\ntracing.activate = \"enable\"\n\
         accesslog.filename = \"@DIR@/access.log\"\n\
         $HTTP[\"url\"] == \"/counters\" {{ tracing.access-logs = \"disable\" }}",
        backend.name()
    );
    let mut server = site(&lines).start();
    let mut client = server.connect();
    client
        .send("GET /a.txt?key=hidden HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: x/1\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(server.get("/missing").status, 404);
    let found = |path: &str| access_record(&taken, path);
    assert!(wait_until(PATIENCE, || found("/missing").is_some()), "{}", server.log());
    let record = found("/a.txt").expect("a record");
    for (name, value) in [
        ("http.request.method", "GET"),
        ("server.address", "www.example.org"),
        ("client.address", "127.0.0.1"),
        ("user_agent.original", "x/1"),
        ("network.protocol.version", "1.1"),
        ("url.scheme", "http"),
    ] {
        assert_eq!(text(&record["attributes"], name), Some(value), "{record}");
    }
    assert_eq!(number(&record, "http.response.status_code"), Some("200"));
    assert_eq!(number(&record, "http.response.body.size"), Some("6"));
    assert_eq!(record["traceId"].as_str().map(str::len), Some(32), "{record}");
    assert!(!record.to_string().contains("hidden"), "a query may hold secrets: {record}");
    assert_eq!(number(&found("/missing").expect("it"), "http.response.status_code"), Some("404"));
    assert!(wait_until(PATIENCE, || counter(&server, "tracing.access-logs-exported") == 2));
    assert!(found("/counters").is_none(), "left out");
    let log = server.directory().join("access.log");
    let has_lines = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("/missing"));
    assert!(wait_until(PATIENCE, has_lines), "the file has the lines, too");
    // The last records are sent at the end.
    assert_eq!(server.get("/last").status, 404);
    server.stop();
    assert!(found("/last").is_some());
}

#[test]
fn collector_of_access_logs_that_fails_changes_nothing_for_clients() {
    let (refusing, _) = collector("/v1/logs", "400 Bad Request");
    let slow = Backend::start(|peer| _ = peer.hang());
    let dead = Port::reserve();
    let addresses = [refusing.name(), slow.name(), dead.address().to_string()];
    for (address, is_refused) in addresses.iter().zip([true, false, false]) {
        let lines = format!(
            "tracing.access-logs-collector = \"http://{address}\"\ntracing.queue-length = 5\n\
             $HTTP[\"url\"] == \"/counters\" {{ tracing.access-logs = \"disable\" }}"
        );
        let mut server = site(&lines).start();
        let start = Instant::now();
        let mut client = server.connect();
        for _ in 0..300 {
            client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().text(), "hello\n");
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{address}: {:?}", start.elapsed());
        let dropped = || counter(&server, "tracing.access-logs-dropped");
        let wanted = if is_refused { 300 } else { 300 - 5 - 256 };
        assert!(wait_until(PATIENCE, || dropped() >= wanted), "{address}: {}", dropped());
        assert_eq!(counter(&server, "tracing.access-logs-exported"), 0);
        if is_refused {
            server.await_log("tracing.access-logs-collector http://");
        }
        let stopping = Instant::now();
        server.stop();
        assert!(stopping.elapsed() < Duration::from_secs(25), "{:?}", stopping.elapsed());
    }
}

#[test]
fn collector_that_refuses_or_is_gone_delays_nothing() {
    let (refusing, taken) = collector("/v1/logs", "400 Bad Request");
    let dead = Port::reserve();
    let lines = format!(
        "tracing.logs-collector = \"http://{}\"\ndebug.log-file-not-found = \"enable\"\n\
         tracing.metrics-collector = \"http://{}\"\ntracing.metrics-interval = 1\n\
         tracing.queue-length = 5\nserver.errorlog-max-repeats = 0",
        refusing.name(),
        dead.address()
    );
    let mut server = site(&lines).start();
    let start = Instant::now();
    for _ in 0..100 {
        assert_eq!(server.get("/missing").status, 404);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(wait_until(PATIENCE, || counter(&server, "tracing.logs-dropped") >= 95));
    assert_eq!(counter(&server, "tracing.logs-exported"), 0);
    assert!(!taken.lock().expect("no panic").is_empty());
    assert!(wait_until(PATIENCE, || counter(&server, "tracing.metrics-dropped") > 0));
    server.await_log("tracing.logs-collector http://");
    server.await_log("tracing.metrics-collector http://");
    let stopping = Instant::now();
    server.stop();
    assert!(stopping.elapsed() < Duration::from_secs(15), "{:?}", stopping.elapsed());
}

#[test]
fn reload_begins_and_ends_exports() {
    let (backend, taken) = collector("/v1/logs", "200 OK");
    let mut server = site("server.errorlog-level = \"notice\"").start();
    let config = server.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&config).expect("read");
    let with = format!("{text}\ntracing.logs-collector = \"http://{}\"\n", backend.name());
    for (text, generation) in [(&with, 1), (&text, 2)] {
        write_file(&config, text);
        server.signal(Signal::USR1);
        server.await_log(&format!("reloaded: generation {generation}"));
    }
    assert!(wait_until(PATIENCE, || !records(&taken, "reloaded: generation 1").is_empty()));
    server.stop();
    assert!(records(&taken, "reloaded: generation 2").is_empty());
    assert!(records(&taken, "graceful stop").is_empty());
}
