//! Counters of metrics and of the status page over upgrades.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use lighty_testkit::backend::answer;

use super::*;

fn measured() -> Setup {
    site().config("server.max-worker = 2").config("status.metrics-url = \"/metrics\"")
}

/// Values of all counters, and of the sums of histograms, by series.
pub(super) fn counters(line: &Line) -> BTreeMap<String, f64> {
    let response = line.first.get("/metrics");
    assert_eq!(response.status, 200, "{}", line.first.log());
    let text = response.text();
    let mut kinds = BTreeSet::new();
    for described in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = described.split_once(' ').expect("a kind");
        match kind {
            "counter" => _ = kinds.insert(name.to_owned()),
            "histogram" => {
                kinds.extend(["_count", "_sum", "_bucket"].map(|part| format!("{name}{part}")));
            }
            _ => {}
        }
    }
    let value = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let name = series.split('{').next()?;
        Some((series.to_owned(), value.parse().ok()?)).filter(|_| kinds.contains(name))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(value).collect()
}

/// Checks that no counter has fallen or vanished.
pub(super) fn assert_no_fall(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
    log: &str,
) {
    for (series, value) in before {
        let now = after.get(series).unwrap_or_else(|| panic!("{series} has vanished\n{log}"));
        assert!(now >= value, "{series} falls from {value} to {now}\n{log}");
    }
}

#[test]
fn no_counter_falls_under_load_and_none_misses_a_request() {
    let backend = Backend::answering("app");
    let line = Line::start(measured().config(&format!(
        "$HTTP[\"url\"] =^ \"/app/\" {{\n  status.route = \"app\"\n  \
         proxy-core.protocol = \"http\"\n  proxy-core.backends = ( \"{}\" )\n}}\n\
         $HTTP[\"host\"] == \"a\" {{ status.route = \"host a\" }}",
        backend.name()
    )));
    let started = || line.json("status")["uptime_s"].as_i64().expect("seconds");
    let (served, is_over) = ([0; 3].map(AtomicUsize::new), AtomicBool::new(false));
    let address = line.first.address();
    std::thread::scope(|scope| {
        let targets = ["/a", "/app/x", "/missing"].into_iter().zip(&served);
        let clients = targets.map(|(target, served)| {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mut client = Client::tcp(address);
                    for _ in 0..5 {
                        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
                        let response = client.response();
                        served.fetch_add(1, Ordering::Relaxed);
                        if response.field("Connection") == Some("close") {
                            break;
                        }
                    }
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        let scrapes = scope.spawn(|| {
            let (mut last, mut count) = (BTreeMap::new(), 0_usize);
            while !is_over.load(Ordering::Relaxed) {
                let now = counters(&line);
                assert_no_fall(&last, &now, &line.first.log());
                (last, count) = (now, count + 1);
            }
            (last, count)
        });
        let before_s = started();
        line.upgrade();
        line.upgrade();
        assert!(started() >= before_s + 10, "two probations of five seconds");
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("no request was lost"));
        let (last, count) = scrapes.join().expect("no counter fell");
        assert!(count > 10);
        let by_target = served.each_ref().map(|one| one.load(Ordering::Relaxed));
        let (served, of_app): (usize, _) = (by_target.iter().sum(), by_target[1]);
        // A request is counted when its response is out.
        let mut scrapes = count;
        let mut all = last.clone();
        let is_whole = || {
            all = counters(&line);
            scrapes += 1;
            all["lighty_requests_total"] >= (served + scrapes - 1) as f64
        };
        assert!(wait_until(PATIENCE, is_whole), "{all:?}");
        assert_no_fall(&last, &all, &line.first.log());
        let expected = (served + scrapes - 1) as f64;
        assert_eq!(all["lighty_requests_total"], expected, "{by_target:?}, {scrapes}: {all:#?}");
        let sum = |name: &str| -> f64 {
            all.iter().filter(|(series, _)| series.starts_with(name)).map(|(_, sum)| sum).sum()
        };
        assert_eq!(sum("http_server_request_duration_seconds_count"), all["lighty_requests_total"]);
        assert_eq!(sum("lighty_worker_requests_total"), all["lighty_requests_total"]);
        assert_eq!(sum("lighty_upstream_requests_total"), of_app as f64, "{all:#?}");
        assert_eq!(sum("lighty_backend_requests_total"), backend.requests().len() as f64);
    });
}

/// A site with a file that does not fit into the buffers of a connection.
fn with_a_large_file() -> Setup {
    measured().file("large", vec![b'l'; LARGE_BYTES])
}

const LARGE_BYTES: usize = 16 << 20;

/// Begins to download the large file, and reads no more than its head.
fn slow_download(line: &Line) -> TcpStream {
    let mut download = TcpStream::connect(line.first.address()).expect("connected");
    download
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("sent");
    download.read_exact(&mut [0; 1024]).expect("the first part");
    download
}

#[test]
fn process_that_drains_through_two_upgrades_is_counted() {
    let mut line = Line::start(with_a_large_file());
    let mut download = slow_download(&line);
    let second = line.upgrade();
    line.upgrade();
    let before = counters(&line);
    assert!(before["lighty_sent_bytes_total"] < LARGE_BYTES as f64);
    assert!(is_running(second), "the counters of the first process pass through the second");
    std::io::copy(&mut download, &mut std::io::sink()).expect("the rest");
    let (status, _) = line.first.await_exit(PATIENCE);
    assert!(status.success(), "{status}");
    assert!(wait_until(PATIENCE, || !is_running(second)));
    let sent = || counters(&line)["lighty_sent_bytes_total"];
    assert!(wait_until(PATIENCE, || sent() >= LARGE_BYTES as f64), "{}", sent());
    let after = counters(&line);
    assert_no_fall(&before, &after, &line.first.log());
    // The download, which is one request, has ended.
    let downloads = "http_server_request_duration_seconds_count{http_request_method=\"GET\",\
                     url_scheme=\"http\",http_response_status_code=\"200\",\
                     network_protocol_version=\"1.1\",http_route=\"mod_staticfile\"}";
    assert_eq!((before.get(downloads), after.get(downloads)), (None, Some(&1.0)));
}

#[test]
fn killed_process_leaves_the_counters_that_it_had() {
    let mut line = Line::start(with_a_large_file());
    let _download = slow_download(&line);
    line.upgrade();
    let before = counters(&line);
    line.first.kill();
    assert_no_fall(&before, &counters(&line), &line.first.log());
    line.upgrade();
    assert_no_fall(&before, &counters(&line), &line.first.log());
}

#[test]
fn exported_metrics_do_not_fall_either() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&sent);
    let collector = Backend::replying(move |request| {
        let request: Value = serde_json::from_slice(&request.body).expect("JSON");
        let metrics = &request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let mut all = metrics.as_array().expect("metrics").iter();
        let found = all.find(|metric| metric["name"] == "lighty_requests").expect("a counter");
        let point = &found["sum"]["dataPoints"][0];
        let text = |name: &str| point[name].as_str().expect("a number").to_owned();
        let requests = point["asDouble"].as_f64().expect("a number");
        received.lock().expect("no panic").push((text("startTimeUnixNano"), requests));
        answer("200 OK", "", "{}")
    });
    let line = Line::start(with_a_large_file().config(&format!(
        "tracing.metrics-collector = \"http://{}\"\ntracing.metrics-interval = 1",
        collector.name()
    )));
    let _download = slow_download(&line);
    (0..50).for_each(|_| assert_eq!(line.first.get("/a").status, 200));
    let count = || sent.lock().expect("no panic").len();
    let await_two = |after: usize| wait_until(PATIENCE, || count() >= after + 2);
    assert!(await_two(0), "{}", line.first.log());
    line.upgrade();
    (0..50).for_each(|_| assert_eq!(line.first.get("/a").status, 200));
    // If the old process went on, it would send its own.
    (0..2).for_each(|_| assert!(await_two(count()), "{}", line.first.log()));
    let all = sent.lock().expect("no panic").clone();
    assert!(all.iter().all(|(started, _)| *started == all[0].0), "{all:?}");
    assert!(all.is_sorted_by(|(_, one), (_, next)| one <= next), "{all:?}");
    assert!(all.last().is_some_and(|(_, requests)| *requests >= 100.0), "{all:?}");
}
