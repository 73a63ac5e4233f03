//! Traces and request ids: trusted sources, ids in backends and logs, and slow collectors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, Port, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::wait_until;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn tracing(backend: &Backend) -> Setup {
    lighty!()
        .file("a.txt", "hello\n")
        .config("tracing.activate = \"enable\"")
        .config("tracing.request-id = \"X-Request-Id\"")
        .config("$HTTP[\"url\"] =^ \"/app/\" {\n  proxy-core.protocol = \"http\"")
        .config(&format!("  proxy-core.backends = ( \"{}\" )\n}}", backend.name()))
}

/// Values of a header field in the last request to the backend.
fn seen(backend: &Backend, name: &str) -> Vec<String> {
    let received = backend.requests();
    let last = received.last().expect("a request");
    last.all(name).map(str::to_owned).collect()
}

#[test]
fn a_stranger_does_not_join_a_trace() {
    let backend = Backend::answering("app");
    let server = tracing(&backend).start();
    let lines = format!(
        "traceparent: {PARENT}\r\ntracestate: a=b\r\nx-request-id: forged\r\nX_Request_Id: too\r\n"
    );
    let response = server.get_with("/app/", &lines);
    let parent = seen(&backend, "traceparent");
    assert_eq!(parent.len(), 1, "{parent:?}");
    assert!(parent[0].starts_with("00-") && parent[0].len() == PARENT.len(), "{parent:?}");
    assert!(!parent[0].contains("0af7651916cd43dd8448eb211c80319c"), "{parent:?}");
    assert!(seen(&backend, "tracestate").is_empty());
    let id = seen(&backend, "x-request-id");
    assert_eq!(id, [response.field("X-Request-Id").expect("an id")]);
    assert!(id[0].len() == 36 && id[0].as_bytes()[14] == b'7', "a UUID of version 7: {id:?}");
    assert_ne!(server.get("/a.txt").field("X-Request-Id"), Some(&*id[0]));
}

#[test]
fn a_trusted_peer_is_believed() {
    let backend = Backend::answering("app");
    let server = tracing(&backend)
        .config("tracing.trusted-peers = ( \"127.0.0.0/8\" )")
        .config("accesslog.filename = \"@DIR@/access.log\"")
        .config("accesslog.format = \"%{request-id}x %{trace-id}x %{span-id}x\"")
        .start();
    let lines =
        format!("traceparent: {PARENT}\r\ntracestate: a=b\r\nX-Request-Id: from-afar.1\r\n");
    let response = server.get_with("/app/", &lines);
    assert_eq!(response.field("X-Request-Id"), Some("from-afar.1"));
    let parent = seen(&backend, "traceparent").remove(0);
    let span = parent.strip_prefix("00-0af7651916cd43dd8448eb211c80319c-").expect("the trace");
    let span = span.strip_suffix("-01").expect("sampled");
    assert_ne!(span, "b7ad6b7169203331", "a span of its own");
    assert_eq!(seen(&backend, "tracestate"), ["a=b"]);
    let begin = "from-afar.1 0af7651916cd43dd8448eb211c80319c ";
    let log = server.directory().join("access.log");
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(wait_until(PATIENCE, || logged().ends_with('\n')));
    let of_request = logged().trim_end().strip_prefix(begin).expect("the trace").to_owned();
    assert!(of_request.len() == 16 && of_request != span, "the call has a span of its own");
}

#[test]
fn malformed_trace_fields_of_a_trusted_peer_are_ignored() {
    let backend = Backend::answering("app");
    let server = tracing(&backend).config("tracing.trusted-peers = ( \"all\" )").start();
    let long = "i".repeat(129);
    for (parents, id) in [
        (vec![PARENT, PARENT], "two words"),
        (vec!["00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"], "quo\"ted"),
        (vec!["garbage"], &*long),
    ] {
        let mut lines: String =
            parents.iter().map(|parent| format!("traceparent: {parent}\r\n")).collect();
        lines += &format!("tracestate: a=b\r\nX-Request-Id: {id}\r\n");
        let response = server.get_with("/app/", &lines);
        assert_eq!(response.status, 200);
        let parent = seen(&backend, "traceparent");
        assert_eq!(parent.len(), 1);
        assert!(!parent[0].contains("b7ad6b7169203331"), "{parent:?}");
        assert!(seen(&backend, "tracestate").is_empty());
        assert_eq!(response.field("X-Request-Id").map(str::len), Some(36), "not {id}");
    }
    let id = "i".repeat(128);
    let response = server.get_with("/app/", &format!("X-Request-Id: {id}\r\n"));
    assert_eq!(response.field("X-Request-Id"), Some(&*id), "the longest");
}

/// Collector that responds after `delay`, and the data that it received.
fn collector(status: &'static str, delay: Duration) -> (Backend, Arc<Mutex<Vec<Value>>>) {
    let taken: Arc<Mutex<Vec<Value>>> = Arc::default();
    let sent = Arc::clone(&taken);
    let backend = Backend::replying(move |received| {
        assert_eq!(received.line(), "POST /v1/traces HTTP/1.1");
        assert_eq!(received.field("content-type"), Some("application/json"));
        assert_eq!(received.field("x-key"), Some("secret"));
        let request: Value = serde_json::from_slice(&received.body).expect("JSON");
        std::thread::sleep(delay);
        sent.lock().expect("no panic").push(request);
        answer(status, "", "{}")
    });
    (backend, taken)
}

fn exporting(backend: &Backend, collector: &Backend) -> Setup {
    tracing(backend)
        .config("tracing.sample-ratio = \"1\"")
        .config(&format!("tracing.collector = \"http://{}\"", collector.name()))
        .config("tracing.collector-headers = ( \"X-Key\" => \"secret\" )")
        .config("tracing.service-name = \"front\"")
        .config("status.statistics-url = \"/counters\"")
}

fn spans(taken: &Mutex<Vec<Value>>) -> Vec<Value> {
    let taken = taken.lock().expect("no panic");
    let scopes = taken.iter().map(|request| &request["resourceSpans"][0]["scopeSpans"][0]);
    scopes.flat_map(|scope| scope["spans"].as_array().expect("spans").clone()).collect()
}

fn attribute<'a>(span: &'a Value, name: &str) -> Option<&'a Value> {
    let all = span["attributes"].as_array()?;
    let found = all.iter().find(|attribute| attribute["key"] == name)?;
    found["value"].as_object()?.values().next()
}

fn counter(server: &Server, name: &str) -> usize {
    let response = server.get("/counters");
    let counters = response.text();
    let line = counters.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{name} in {counters}"))
}

#[test]
fn recorded_requests_go_to_the_collector_with_their_stages() {
    let slow = Backend::replying(|_| {
        std::thread::sleep(Duration::from_millis(60));
        answer("200 OK", "", "app")
    });
    let (collector, taken) = collector("200 OK", Duration::ZERO);
    let mut server = exporting(&slow, &collector).start();
    assert_eq!(server.get("/app/page?secret=1").status, 200);
    let name = seen(&slow, "traceparent").remove(0);
    server.stop();
    let spans = spans(&taken);
    let request = spans.iter().find(|span| span["kind"] == 2).expect("a server's span");
    let call = spans.iter().find(|span| span["kind"] == 3).expect("a client's span");
    assert_eq!(name, format!("00-{}-{}-01", text(call, "traceId"), text(call, "spanId")));
    assert_eq!(call["parentSpanId"], request["spanId"]);
    assert!(length(request) >= length(call) && length(call) >= Duration::from_millis(55));
    let (host, port) =
        slow.name().rsplit_once(':').map(|(h, p)| (h.to_owned(), p.to_owned())).expect("a port");
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("server.address", &*host),
        ("server.port", &*port),
        ("network.peer.address", &*host),
        ("network.peer.port", &*port),
        ("network.transport", "tcp"),
        ("network.protocol.name", "http"),
    ] {
        assert_eq!(attribute(call, name), Some(&Value::from(value)), "{name}: {call}");
    }
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("url.path", "/app/page"),
        ("url.scheme", "http"),
        ("lighty.backend", &slow.name()),
        ("network.protocol.version", "1.1"),
    ] {
        assert_eq!(attribute(request, name), Some(&Value::from(value)), "{name}: {request}");
    }
    assert!(!request.to_string().contains("secret"), "{request}");
    let wait = spans.iter().find(|span| span["name"] == "first-byte").expect("the backend's time");
    assert_eq!(wait["parentSpanId"], request["spanId"]);
    assert!(length(wait) >= Duration::from_millis(55), "{wait}");
    assert!(length(request) >= length(wait), "{request}");
    let resource = &taken.lock().expect("no panic")[0]["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name"), Some(&Value::from("front")));
}

#[test]
fn a_span_has_the_clients_path_and_the_operators_route() {
    let backend = Backend::answering("app");
    let (collector, taken) = collector("200 OK", Duration::ZERO);
    let mut server = exporting(&backend, &collector)
        .config("url.rewrite-once = ( \"^/old/\" => \"/a.txt?added=1\" )")
        .config("server.error-handler-404 = \"/a.txt\"")
        .config("$HTTP[\"url\"] =^ \"/app/\" { status.route = \"shop\" }")
        .start();
    for target in ["/old/%7Eone", "/missing?secret=1", "/app/x"] {
        assert_eq!(server.get(target).status, 200, "{target}");
    }
    server.stop();
    let spans = spans(&taken);
    let of = |path: &str| {
        let is_it = |span: &&Value| attribute(span, "url.path") == Some(&Value::from(path));
        spans.iter().find(is_it).unwrap_or_else(|| panic!("{path}: {spans:?}"))
    };
    let (rewritten, missing, shop) = (of("/old/%7Eone"), of("/missing"), of("/app/x"));
    assert_eq!((text(rewritten, "name"), attribute(rewritten, "http.route")), ("GET", None));
    assert_eq!(attribute(rewritten, "lighty.has_query"), None, "the client's has none");
    assert_eq!(attribute(missing, "lighty.has_query"), Some(&Value::from(true)));
    assert_eq!(text(shop, "name"), "GET shop");
    assert_eq!(attribute(shop, "http.route"), Some(&Value::from("shop")));
}

fn text<'a>(span: &'a Value, name: &str) -> &'a str {
    span[name].as_str().unwrap_or_else(|| panic!("{name} in {span}"))
}

fn length(span: &Value) -> Duration {
    let at = |name: &str| text(span, name).parse::<u64>().expect("nanoseconds");
    Duration::from_nanos(at("endTimeUnixNano") - at("startTimeUnixNano"))
}

#[test]
fn spans_are_counted_as_the_collector_counts_them() {
    let backend = Backend::answering("app");
    let got = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&got);
    let collector = Backend::replying(move |received| {
        let text = String::from_utf8_lossy(&received.body);
        count.fetch_add(text.matches("\"spanId\"").count(), Ordering::Relaxed);
        let partial = r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no\nroom"}}"#;
        answer("200 OK", "", partial)
    });
    let server = exporting(&backend, &collector).start();
    for _ in 0..10 {
        assert_eq!(server.get("/app/x").status, 200);
    }
    let figures = || (counter(&server, "tracing.exported"), counter(&server, "tracing.dropped"));
    let is_whole = || {
        let (exported, dropped) = figures();
        exported > 20 && exported + dropped == got.load(Ordering::Relaxed)
    };
    // The requests for the metrics are recorded as well, so the figures grow.
    assert!(wait_until(PATIENCE, is_whole), "{:?} of {got:?}", figures());
    assert!(figures().1 >= 1);
    server.await_log("spans: no\\nroom\n");
    assert_eq!(counter(&server, "tracing.failures"), 0);
}

#[test]
fn a_collector_that_wants_a_pause_gets_it() {
    let backend = Backend::answering("app");
    let received = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&received);
    let collector = Backend::replying(move |_| {
        let mut times = times.lock().expect("no panic");
        times.push(Instant::now());
        match times.len() {
            1 => answer("503 Busy", "Retry-After: 2\r\n", ""),
            _ => answer("200 OK", "", ""),
        }
    });
    let server = exporting(&backend, &collector).start();
    let _ = server.get("/a.txt");
    let count = || received.lock().expect("no panic").len();
    assert!(wait_until(PATIENCE, || count() >= 2));
    let times = received.lock().expect("no panic");
    let pause = times[1] - times[0];
    assert!(pause >= Duration::from_secs(2), "longer than the pause without the field: {pause:?}");
}

#[test]
fn a_pause_ends_with_the_server() {
    let backend = Backend::answering("app");
    let (sent, count) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let taken = Arc::clone(&sent);
    let collector = Backend::replying(move |received| {
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            return answer("429 Too Many Requests", "Retry-After: 3600\r\n", "");
        }
        let text = String::from_utf8_lossy(&received.body);
        taken.fetch_add(text.matches("/a.txt").count(), Ordering::Relaxed);
        answer("200 OK", "", "")
    });
    let mut server = exporting(&backend, &collector).start();
    let _ = server.get("/a.txt");
    assert!(wait_until(PATIENCE, || collector.requests().len() == 1));
    server.stop();
    assert_eq!(sent.load(Ordering::Relaxed), 1, "what was refused at first");
}

#[test]
fn a_ratio_of_nothing_records_nothing_but_what_a_trusted_peer_records() {
    let backend = Backend::answering("app");
    let (collector, taken) = collector("200 OK", Duration::ZERO);
    let mut server = exporting(&backend, &collector)
        .config("tracing.trusted-peers = ( \"all\" )")
        .config("$HTTP[\"url\"] =^ \"/\" { tracing.sample-ratio = \"0\" }")
        .start();
    let _ = server.get("/a.txt");
    let _ = server.get_with("/a.txt", &format!("traceparent: {PARENT}\r\n"));
    let _ = server.get_with("/a.txt", &format!("traceparent: {}0\r\n", &PARENT[..54]));
    server.stop();
    let spans = spans(&taken);
    let requests: Vec<_> = spans.iter().filter(|span| span["kind"] == 2).collect();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0]["parentSpanId"], "b7ad6b7169203331");
}

#[test]
fn a_slow_collector_delays_no_request_and_its_queue_has_an_end() {
    let backend = Backend::answering("app");
    let (collector, _) = collector("200 OK", Duration::from_secs(3));
    let server = exporting(&backend, &collector).config("tracing.queue-length = 4").start();
    let _ = server.get("/a.txt");
    assert!(wait_until(PATIENCE, || !collector.requests().is_empty()), "it takes its time now");
    let watch = Stopwatch::start(&server);
    let mut client = server.connect();
    for _ in 0..50 {
        client.send("GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.response().status, 200);
    }
    assert!(watch.took() < Duration::from_secs(3), "{:?}", watch.took());
    assert!(wait_until(PATIENCE, || counter(&server, "tracing.dropped") >= 46));
}

#[test]
fn refusal_by_a_collector_is_logged_once_and_counted() {
    let backend = Backend::answering("app");
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let collector = Backend::replying(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        answer("400 Bad Request", "", "")
    });
    let server = exporting(&backend, &collector).start();
    for round in 1..=2 {
        let _ = server.get("/a.txt");
        assert!(wait_until(PATIENCE, || counter(&server, "tracing.failures") >= round));
    }
    let message = format!("tracing.collector http://{}/v1/traces: status 400", collector.name());
    server.await_log(&message);
    assert_eq!(server.log().matches(&message).count(), 1, "{}", server.log());
    assert!(counter(&server, "tracing.dropped") >= 2);
    assert!(received.load(Ordering::Relaxed) >= 2);
}

#[test]
fn each_try_at_a_backend_is_a_span_of_a_client() {
    let unused = Port::reserve();
    let first = unused.address().to_string();
    let second = Backend::replying(|_| answer("404 Not Found", "", "none"));
    let (collector, taken) = collector("200 OK", Duration::ZERO);
    let mut server = lighty!()
        .config("tracing.activate = \"enable\"\ntracing.sample-ratio = \"1\"")
        .config(&format!("tracing.collector = \"http://{}\"", collector.name()))
        .config("tracing.collector-headers = ( \"X-Key\" => \"secret\" )")
        .config("proxy-core.protocol = \"http\"\nproxy-core.balancer = \"static\"")
        .config(&format!("proxy-core.backends = ( \"{first}\", \"{}\" )", second.name()))
        .start();
    assert_eq!(server.get("/a").status, 404);
    let named = seen(&second, "traceparent").remove(0);
    server.stop();
    let spans = spans(&taken);
    let request = spans.iter().find(|span| span["kind"] == 2).expect("a server's span");
    let calls: Vec<_> = spans.iter().filter(|span| span["kind"] == 3).collect();
    assert_eq!(calls.len(), 2, "{calls:?}");
    for (call, address) in calls.iter().zip([first, second.name()]) {
        assert_eq!(call["parentSpanId"], request["spanId"]);
        assert_eq!(attribute(call, "lighty.backend"), Some(&Value::from(address)));
        assert_eq!(call["status"]["code"], 2, "{call}");
    }
    assert!(named.contains(text(calls[1], "spanId")), "{named} {calls:?}");
    assert_eq!(attribute(calls[0], "error.type"), Some(&Value::from("no connection")));
    assert_eq!(attribute(calls[0], "http.response.status_code"), None);
    assert_eq!(attribute(calls[0], "http.request.resend_count"), None);
    assert_eq!(attribute(calls[1], "http.request.resend_count"), Some(&Value::from("1")));
    assert_eq!(attribute(calls[1], "error.type"), Some(&Value::from("404")));
}

#[test]
fn file_has_no_span_of_a_client() {
    let backend = Backend::answering("app");
    let (collector, taken) = collector("200 OK", Duration::ZERO);
    let mut server = exporting(&backend, &collector).start();
    assert_eq!(server.get("/a.txt").status, 200);
    server.stop();
    let kinds: Vec<_> = spans(&taken).iter().map(|span| span["kind"].clone()).collect();
    assert!(kinds.contains(&Value::from(2)) && !kinds.contains(&Value::from(3)), "{kinds:?}");
}
