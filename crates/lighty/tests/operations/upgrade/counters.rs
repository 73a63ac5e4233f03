//! Counters of metrics and of the status page over upgrades.

use std::collections::{BTreeMap, BTreeSet};

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
        for (target, served) in ["/a", "/app/x", "/missing"].into_iter().zip(&served) {
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
            });
        }
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
        let (last, count) = scrapes.join().expect("no counter fell");
        assert!(count > 10);
        let [_, of_app, _] = served.each_ref().map(|one| one.load(Ordering::Relaxed));
        let served: usize = served.iter().map(|one| one.load(Ordering::Relaxed)).sum();
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
        assert_eq!(all["lighty_requests_total"], (served + scrapes - 1) as f64);
        let sum = |name: &str| -> f64 {
            all.iter().filter(|(series, _)| series.starts_with(name)).map(|(_, sum)| sum).sum()
        };
        assert_eq!(sum("http_server_request_duration_seconds_count"), all["lighty_requests_total"]);
        assert_eq!(sum("lighty_worker_requests_total"), all["lighty_requests_total"]);
        assert_eq!(sum("lighty_upstream_requests_total"), of_app as f64);
        assert_eq!(sum("lighty_backend_requests_total"), backend.requests().len() as f64);
    });
}
