//! Results in logs, fields and metrics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::response::Response;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;
use serde_json::Value;

use super::{FRESH, caching};

const SOON: Duration = Duration::from_secs(30);

const LOG: &str = "accesslog.filename = \"@DIR@/access.log\"\n\
    accesslog.format = \"%m %U%q %{cache}x %{cache-age}x %{upstream-tries}x\"\n\
    cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )\n\
    status.metrics-url = \"/metrics\"\nstatus.status-url = \"/status\"\n\
    timing.server-timing = \"enable\"";

/// The lines of the access log, once there are so many.
fn log(server: &Server, count: usize) -> Vec<String> {
    let file = server.directory().join("access.log");
    let lines = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(wait_until(SOON, || lines().len() >= count), "{:?}", lines());
    lines()
}

fn post(server: &Server, target: &str) -> Response {
    let mut client = server.connect();
    client.send(format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
    client.response()
}

fn assert_counted(server: &Server) {
    let metrics = server.get("/metrics").text().to_owned();
    for line in [
        "lighty_cache_requests_total{store=\"pages\",result=\"hit\"} 1\n",
        "lighty_cache_requests_total{store=\"pages\",result=\"miss\"} 6\n",
        "lighty_cache_requests_total{store=\"pages\",result=\"purged\"} 1\n",
        "lighty_cache_saved_bytes_total{store=\"pages\"} 16\n",
        "lighty_cache_objects{store=\"pages\"} 5\n",
        "lighty_cache_purge_rules{store=\"pages\"} 1\n",
        "lighty_cache_waiting_requests{store=\"pages\"} 0\n",
        "lighty_cached_request_seconds_count{route=\"mod_cache\",result=\"miss\"} 6\n",
        "lighty_cached_request_seconds_count{route=\"mod_cache\",result=\"hit\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}

#[test]
fn every_result_has_its_word() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&is_broken);
    let backend = Backend::replying(move |seen| {
        let fields = match seen.target() {
            _ if own.load(Ordering::Relaxed) => {
                return answer("503 Service Unavailable", "", "broken");
            }
            "/validated" if seen.field("If-None-Match").is_some() => {
                return b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n".to_vec();
            }
            "/validated" => "Cache-Control: max-age=0\r\nETag: \"1\"\r\n",
            "/expired" => "Cache-Control: max-age=0\r\nETag: \"1\"\r\n",
            "/updated" => "Cache-Control: max-age=0, stale-while-revalidate=600\r\n",
            "/stale" => "Cache-Control: max-age=0, stale-if-error=600\r\n",
            "/passed" => "Cache-Control: no-store\r\n",
            _ => FRESH,
        };
        answer("200 OK", fields, "page")
    });
    let server = caching(&backend, LOG);
    for target in ["/", "/", "/validated", "/validated", "/expired", "/expired", "/updated"] {
        assert_eq!(server.get(target).text(), "page");
    }
    let updating = server.get("/updated");
    assert_eq!(updating.field("Cache-Status"), Some("lighty; hit; ttl=0"));
    let _ = server.get("/stale");
    is_broken.store(true, Ordering::Relaxed);
    assert_eq!(server.get("/stale").text(), "page");
    is_broken.store(false, Ordering::Relaxed);
    let _ = server.get("/passed");
    let passed = server.get("/passed");
    assert_eq!(passed.field("Cache-Status"), Some("lighty; fwd=miss; fwd-status=200; detail=pass"));
    let partial = server.get_with("/part", "Range: bytes=1-2\r\n");
    assert_eq!(partial.field("Cache-Status"), Some("lighty; fwd=partial; fwd-status=200"));
    let posted = post(&server, "/other");
    assert_eq!(posted.field("Cache-Status"), Some("lighty; fwd=method; fwd-status=200"));
    assert_eq!(post(&server, "/purge?url=/").status, 200);
    assert_eq!(server.get("/").field("Cache-Status"), Some("lighty; fwd=miss; stored"));
    let expected = [
        "GET / miss - 1",
        "GET / hit 0 -",
        "GET /validated miss - 1",
        "GET /validated revalidated 0 1",
        "GET /expired miss - 1",
        "GET /expired expired - 1",
        "GET /updated miss - 1",
        "GET /updated updating 0 -",
        "GET /stale miss - 1",
        "GET /stale stale 0 1",
        "GET /passed miss - 1",
        "GET /passed pass - 1",
        "GET /part partial - 1",
        "POST /other bypass - 1",
        "POST /purgeurl=/ - - -",
        "GET / purged - 1",
    ];
    let log = log(&server, expected.len());
    // The clock may tick between a fetch and its use.
    let untimed = |line: &String| {
        let (rest, tries) = line.rsplit_once(' ').expect("five columns");
        let rest = rest.strip_suffix(" 1").map_or(rest.to_owned(), |rest| format!("{rest} 0"));
        format!("{rest} {tries}")
    };
    let log: Vec<String> = log.iter().map(untimed).collect();
    assert_eq!(log, expected);
    assert_counted(&server);
    let page = server.get("/status").text().to_owned();
    assert!(page.contains("<h2>Cache</h2>") && page.contains(">hit 1 ("), "{page}");
    assert!(server.get("/status?json").text().contains("\"cache\":{"));
}

#[test]
fn waits_for_fetches_of_others_are_timed() {
    let gate = Arc::new(Barrier::new(2));
    let own = Arc::clone(&gate);
    let backend = Backend::replying(move |_| {
        own.wait();
        answer("200 OK", FRESH, "page")
    });
    let more = "accesslog.json = \"enable\"\ntiming.server-timing = \"enable\"\n\
                accesslog.filename = \"@DIR@/access.log\"";
    let server = caching(&backend, more);
    let ask = || {
        let mut client = server.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client
    };
    let mut first = ask();
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    let mut second = ask();
    // Time for the second request to arrive and to wait.
    assert!(second.stays_silent(Duration::from_millis(100)));
    gate.wait();
    let timing = first.response().field("Server-Timing").expect("timings").to_owned();
    assert!(timing.contains("first-byte;") && !timing.contains("cache-wait;"), "{timing}");
    let timing = second.response().field("Server-Timing").expect("timings").to_owned();
    assert!(timing.contains("cache-wait;") && !timing.contains("first-byte;"), "{timing}");
    let waits: Vec<(String, u64)> = log(&server, 2)
        .iter()
        .map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let word = line["cache"].as_str().expect("a result").to_owned();
            (word, line["cache_wait_us"].as_u64().expect("a time"))
        })
        .collect();
    for (word, wait_us) in waits {
        assert!(["miss", "coalesced"].contains(&&*word) && wait_us > 50_000, "{word} {wait_us}");
    }
}
