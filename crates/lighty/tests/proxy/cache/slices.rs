//! `cache.slice-size`: ranges of large responses from slices.

mod backends;
mod combinations;
mod renewal;
mod slow_clients;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lighty_testkit::backend::{Backend, RequestSeen, answer};
use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::response::Response;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;

use super::caching;

const SOON: Duration = Duration::from_secs(30);

/// A resource of a backend that sends ranges.
struct Resource {
    version: AtomicU64,
    fields: &'static str,
}

impl Resource {
    fn new(fields: &'static str) -> Arc<Self> {
        Arc::new(Self { version: AtomicU64::new(1), fields })
    }

    fn tag(&self) -> String {
        format!("\"{}\"", self.version.load(Ordering::SeqCst))
    }

    /// The response to a request for `/LENGTH/...`, like that of a file server.
    fn respond(&self, seen: &RequestSeen) -> Vec<u8> {
        let version = self.version.load(Ordering::SeqCst);
        let (tag, total) = (self.tag(), length(seen.target()) as u64);
        let fields = format!("{}ETag: {tag}\r\nAccept-Ranges: bytes\r\n", self.fields);
        if seen.field("If-None-Match").is_some_and(|other| other == tag) {
            return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
        }
        let is_held = seen.field("If-Range").is_none_or(|other| other == tag);
        let range = seen.field("Range").filter(|_| is_held);
        let Some((first, last)) = range.and_then(|range| bounds(range, total)) else {
            return respond("200 OK", &fields, &content(seen.target(), version));
        };
        if first >= total {
            return answer(
                "416 Range Not Satisfiable",
                &format!("Content-Range: bytes */{total}\r\n"),
                "",
            );
        }
        let last = last.min(total - 1);
        let range = format!("{fields}Content-Range: bytes {first}-{last}/{total}\r\n");
        let part = pattern(version * OTHER + first, (last + 1 - first) as usize);
        respond("206 Partial Content", &range, &part)
    }
}

/// The first and the last offset of a range.
fn bounds(range: &str, total: u64) -> Option<(u64, u64)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let end = total.saturating_sub(1);
    match (first, last) {
        ("", count) => Some((total.checked_sub(count.parse().ok()?)?, end)),
        (first, "") => Some((first.parse().ok()?, end)),
        (first, last) => Some((first.parse().ok()?, last.parse().ok()?)),
    }
}

fn respond(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The bodies of two versions differ by this offset in the pattern.
const OTHER: u64 = 1_000_003;

/// The body for `/LENGTH/...`, which differs by version.
fn content(target: &str, version: u64) -> Vec<u8> {
    pattern(version * OTHER, length(target))
}

fn length(target: &str) -> usize {
    target.split('/').nth(1).and_then(|text| text.parse().ok()).expect("a length")
}

fn backend(resource: &Arc<Resource>) -> Backend {
    let own = Arc::clone(resource);
    Backend::replying(move |seen| own.respond(seen))
}

fn slicing(backend: &Backend, more: &str) -> Server {
    let more = format!("cache.slice-size = \"64K\"\nstatus.metrics-url = \"/metrics\"\n{more}");
    caching(backend, &more)
}

const FRESH: &str = "Cache-Control: max-age=600\r\n";

/// Gets a range, which has to be right.
fn get(server: &Server, target: &str, range: &str, first: usize, end: usize) {
    let page = server.get_with(target, &format!("Range: bytes={range}\r\n"));
    let body = content(target, 1);
    assert_eq!(page.status, 206, "{range}");
    let expected = format!("bytes {first}-{}/{}", end - 1, body.len());
    assert_eq!(page.field("Content-Range"), Some(&*expected), "{range}");
    assert_eq!(page.field("Content-Length"), Some(&*(end - first).to_string()), "{range}");
    assert!(page.body == body[first..end], "{range}: other bytes");
}

/// The ranges that the backend was asked for.
fn ranges(backend: &Backend) -> Vec<String> {
    let requests = backend.requests();
    requests.iter().map(|seen| seen.field("Range").unwrap_or("whole").to_owned()).collect()
}

/// The numbers of the slices that the backend was asked for.
fn slices(backend: &Backend) -> Vec<u64> {
    ranges(backend).iter().map(|range| bounds(range, 0).expect("a slice").0 >> 16).collect()
}

fn is_hit(page: &Response) -> bool {
    page.field("Cache-Status").is_some_and(|status| status.starts_with("lighty; hit"))
}

fn head(server: &Server, target: &str, lines: &str) -> Response {
    let mut client = server.connect();
    client.send(format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"));
    client.response_to_head()
}

#[test]
fn ranges_are_served_from_aligned_slices() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "");
    // Three slices and a part, exactly three, one byte more, one slice, one byte.
    for (target, range, first, end, expected) in [
        ("/200000/a", "0-99", 0, 100, &[0][..]),
        ("/200000/b", "70000-70099", 70_000, 70_100, &[1]),
        ("/200000/c", "65535-65536", 65_535, 65_537, &[0, 1]),
        ("/200000/d", "65536-131071", 65_536, 131_072, &[1]),
        ("/200000/e", "1-199999", 1, 200_000, &[0, 1, 2, 3]),
        ("/200000/f", "1-", 1, 200_000, &[0, 1, 2, 3]),
        ("/200000/g", "199999-", 199_999, 200_000, &[3]),
        ("/200000/h", "199990-300000", 199_990, 200_000, &[3]),
        ("/200000/i", "-500", 199_500, 200_000, &[0, 3]),
        ("/200000/j", "-300000", 0, 200_000, &[0, 1, 2, 3]),
        ("/200000/k", "5-9,10-19", 5, 20, &[0]),
        ("/200000/l", "-9223372036854775809", 0, 200_000, &[0, 1, 2, 3]),
        ("/200000/m", "-18446744073709551615", 0, 200_000, &[0, 1, 2, 3]),
        ("/200000/n", "-5,-10", 199_990, 200_000, &[0, 3]),
        ("/196608/a", "1-", 1, 196_608, &[0, 1, 2]),
        ("/196608/b", "-1", 196_607, 196_608, &[0, 2]),
        ("/196609/a", "1-", 1, 196_609, &[0, 1, 2, 3]),
        ("/196609/b", "196608-196608", 196_608, 196_609, &[3]),
        ("/65536/a", "1-", 1, 65_536, &[0]),
        ("/1/a", "0-0", 0, 1, &[0]),
    ] {
        let before = backend.requests().len();
        get(&server, target, range, first, end);
        assert_eq!(slices(&backend)[before..], *expected, "{target} {range}");
        get(&server, target, range, first, end);
        assert_eq!(backend.requests().len(), before + expected.len(), "{target} {range}: stored");
    }
}

#[test]
fn range_beyond_the_end_is_refused() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "");
    for (target, range, requests) in [
        ("/200000/a", "300000-300099", 1),
        ("/200000/a", "200000-", 2),
        // The slice is there, and tells the length.
        ("/200000/a", "200001-200002", 2),
        ("/65536/a", "65536-", 3),
        ("/0/a", "1-", 4),
        ("/0/a", "0-0", 5),
        // The first slice tells the length.
        ("/100/a", "5-300", 6),
        ("/100/a", "300000-", 6),
    ] {
        let page = server.get_with(target, &format!("Range: bytes={range}\r\n"));
        let length = target.split('/').nth(1).expect("a length");
        if range == "5-300" {
            assert_eq!(page.status, 206);
        } else {
            assert_eq!(page.status, 416, "{target} {range}");
            let expected = format!("bytes */{length}");
            assert_eq!(page.field("Content-Range"), Some(&*expected), "{target} {range}");
        }
        assert_eq!(backend.requests().len(), requests, "{target} {range}");
    }
    // A client with another version gets the whole.
    let lines = "Range: bytes=300000-\r\nIf-Range: \"2\"\r\n";
    for target in ["/100/b", "/100/a"] {
        let page = server.get_with(target, lines);
        assert_eq!((page.status, page.body.len()), (200, 100), "{target}");
    }
    // The backend decides about the end of nothing.
    assert_eq!(server.get_with("/0/b", "Range: bytes=-5\r\n").status, 200);
}

#[test]
fn other_requests_are_served_from_slices_once_the_first_one_is_stored() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "");
    get(&server, "/200000/a", "5-9", 5, 10);
    let page = head(&server, "/200000/a", "");
    assert_eq!((page.status, page.field("Content-Length")), (200, Some("200000")));
    assert_eq!((is_hit(&page), page.field("Content-Range")), (true, None));
    assert_eq!(head(&server, "/200000/a", "Range: bytes=5-9\r\n").status, 200);
    let page = server.get_with("/200000/a", "If-None-Match: \"1\"\r\n");
    assert_eq!((page.status, page.field("ETag")), (304, Some("\"1\"")));
    assert_eq!(slices(&backend), [0]);
    let page = server.get("/200000/a");
    assert_eq!((page.status, page.field("Content-Range")), (200, None));
    assert_eq!(page.field("Cache-Status"), Some("lighty; fwd=partial; stored"));
    assert!(page.body == content("/200000/a", 1));
    assert_eq!(slices(&backend), [0, 1, 2, 3]);
    get(&server, "/200000/a", "0-", 0, 200_000);
    assert!(is_hit(&server.get("/200000/a")));
    assert_eq!(backend.requests().len(), 4);
    // Unknown: the whole is fetched and stored.
    for lines in ["", "Range: bytes=0-\r\n"] {
        assert!(server.get_with("/200000/b", lines).body == content("/200000/b", 1));
    }
    get(&server, "/200000/b", "5-9", 5, 10);
    assert_eq!(ranges(&backend)[4..], ["whole"]);
}

#[test]
fn request_for_stored_responses_alone_fetches_nothing() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "");
    get(&server, "/200000/a", "5-70000", 5, 70_001);
    let get = |lines: &str| {
        let lines = format!("{lines}Cache-Control: only-if-cached\r\n");
        server.get_with("/200000/a", &lines).status
    };
    let range = |range: &str| get(&format!("Range: bytes={range}\r\n"));
    assert_eq!((range("5-9"), range("70000-131071"), range("1-131071")), (206, 206, 206));
    assert_eq!((range("1-131072"), range("150000-"), range("-5"), get("")), (504, 504, 504, 504));
    assert_eq!((range("200000-"), backend.requests().len()), (416, 2));
}

#[test]
fn request_for_stored_responses_alone_fetches_nothing_later_either() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(
        &backend,
        "cache.stores := ( \"pages\" => ( \"memory\" => \"64M\" ) )\n\
         cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )",
    );
    get(&server, "/30000000/a", "1-", 1, 30_000_000);
    let requests = backend.requests().len();
    let mut client = Client::tcp_with_receive_buffer(server.address(), 4_096);
    client.send(
        "GET /30000000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\
         Cache-Control: only-if-cached\r\n\r\n",
    );
    assert_eq!(client.response_head().status, 206);
    let mut purging = server.connect();
    purging.send("POST /purge?all HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(purging.response().status, 200);
    let (body, _) = client.read_to_end();
    assert!(body.len() < 29_999_999 && body == content("/30000000/a", 1)[1..=body.len()]);
    assert_eq!(backend.requests().len(), requests);
}

#[test]
fn request_that_forbids_storing_leaves_slices_alone() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "");
    let lines = "Range: bytes=70000-70009\r\nCache-Control: no-store\r\n";
    assert_eq!(server.get_with("/200000/a", lines).status, 206);
    get(&server, "/200000/a", "5-9", 5, 10);
    assert_eq!(ranges(&backend), ["bytes=70000-70009", "bytes=0-65535"]);
}

#[test]
fn digest_of_other_content_is_not_sent() {
    let digests = "Content-Digest: sha-256=:AA==:\r\nContent-MD5: AA==\r\n";
    let fields = format!("{FRESH}Repr-Digest: sha-256=:BB==:\r\n{digests}");
    let backend = backend(&Resource::new(fields.leak()));
    let server = slicing(&backend, "");
    let get = |target: &str, lines: &str| {
        let page = server.get_with(target, lines);
        let count = |name: &str| page.all(name).count();
        (page.status, count("Content-Digest") + count("Content-MD5"), count("Repr-Digest"))
    };
    let range = "Range: bytes=5-9\r\n";
    for target in ["/200000/a", "/200000/b"] {
        if target == "/200000/b" {
            assert_eq!(get(target, ""), (200, 2, 1), "the whole is stored");
        }
        for _ in 0..2 {
            assert_eq!(get(target, range), (206, 0, 1), "{target}");
        }
    }
    assert_eq!(get("/200000/a", ""), (200, 0, 1));
    assert_eq!(get("/200000/b", ""), (200, 2, 1));
}

#[test]
fn condition_of_a_range_is_judged_by_the_cache() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "");
    let get = |condition: &str| {
        server.get_with("/200000/a", &format!("Range: bytes=70000-70009\r\n{condition}\r\n"))
    };
    for (condition, status, bytes) in [
        ("If-Range: \"1\"", 206, 70_000..70_010),
        ("If-Range: \"2\"", 200, 0..200_000),
        ("If-None-Match: \"2\"", 206, 70_000..70_010),
        ("If-None-Match: \"1\"", 304, 0..0),
    ] {
        let page = get(condition);
        assert_eq!(page.status, status, "{condition}");
        assert!(page.body == content("/200000/a", 1)[bytes], "{condition}");
    }
    assert_eq!(slices(&backend), [1, 0, 2, 3]);
}

#[test]
fn requests_that_slices_cannot_serve_go_to_the_backend() {
    let backend = Backend::replying(|seen| {
        let count = seen.all("Range").count();
        answer("200 OK", "Cache-Control: no-store\r\n", &count.to_string())
    });
    let server = slicing(&backend, "");
    for range in
        ["bytes=0-9,200-300", "bytes=-0", "lines=1-2", "bytes=5-4", "bytes=1-2\r\nRange: bytes=3-4"]
    {
        let page = server.get_with("/", &format!("Range: {range}\r\n"));
        assert_eq!(page.status, 200, "{range}");
        let seen = backend.requests().pop().expect("a request");
        let lines: Vec<&str> = seen.all("Range").collect();
        assert_eq!(lines.join("\r\nRange: "), range);
    }
    let page = server.get_with("/", "Range: bytes=1-2\r\nCache-Control: only-if-cached\r\n");
    assert_eq!(page.status, 504);
}

#[test]
fn many_requests_for_a_range_fetch_each_slice_once() {
    let gate = Arc::new(std::sync::Barrier::new(2));
    let (own, resource) = (Arc::clone(&gate), Resource::new(FRESH));
    let backend = Backend::replying(move |seen| {
        if seen.field("Range").is_some_and(|range| range.starts_with("bytes=65536-")) {
            own.wait();
        }
        resource.respond(seen)
    });
    let server = slicing(&backend, "server.max-worker := 2\ncache.lock-timeout = \"1min\"");
    let mut clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = server.connect();
            client.send(
                "GET /200000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=65536-150000\r\n\r\n",
            );
            client
        })
        .collect();
    assert!(wait_until(SOON, || backend.requests().len() == 1));
    gate.wait();
    let body = content("/200000/a", 1);
    for client in &mut clients {
        let page = client.response();
        assert!((page.status, &page.body[..]) == (206, &body[65_536..=150_000]));
    }
    assert_eq!(slices(&backend), [1, 2]);
}

#[test]
fn slices_are_fetched_one_ahead_of_a_slow_client() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "");
    let mut client = Client::tcp_with_receive_buffer(server.address(), 4_096);
    client.send("GET /50000000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n");
    assert_eq!(client.response_head().status, 206);
    // The socket's buffers are full once nothing more is requested.
    let mut requests = 0;
    assert!(wait_until(SOON, || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut requests, backend.requests().len()) == backend.requests().len()
    }));
    assert!((2..300).contains(&requests), "{requests} of 763 slices");
    let body = client.read_exact(10_000_000).expect("a part");
    assert!(body == content("/50000000/a", 1)[1..=10_000_000]);
    client.reset();
    assert!(wait_until(SOON, || figure(&server, "lighty_cache_flights") == 0));
    let requests = backend.requests().len();
    get(&server, "/100/a", "5-9", 5, 10);
    assert_eq!(backend.requests().len(), requests + 1, "nothing more is fetched");
    assert!(requests < 600, "{requests} of 763 slices");
}

/// A figure of the store.
fn figure(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}{{store=\"pages\"")));
    let value = line.and_then(|line| line.rsplit(' ').next()).and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn results(server: &Server, result: &str) -> u64 {
    let text = server.get("/metrics").text().to_owned();
    let start = format!("lighty_cache_requests_total{{store=\"pages\",result=\"{result}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&start)).expect("a line");
    value.parse().expect("a number")
}

#[test]
fn only_requests_without_a_fetch_are_hits() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "");
    let get = |range: &str| {
        let page = server.get_with("/200000/a", &format!("Range: bytes={range}\r\n"));
        page.field("Cache-Status")
            .expect("a status")
            .split("; ttl")
            .next()
            .expect("text")
            .to_owned()
    };
    assert_eq!(get("0-9"), "lighty; fwd=uri-miss; stored");
    assert_eq!(get("10-19"), "lighty; hit");
    assert_eq!(get("10-70000"), "lighty; fwd=partial; stored");
    assert_eq!(get("131072-"), "lighty; fwd=uri-miss; stored");
    assert_eq!(get("1-"), "lighty; hit");
    assert_eq!(get("5-9,100000-100009"), "lighty; fwd=partial; fwd-status=200");
    assert_eq!((results(&server, "hit"), results(&server, "miss")), (2, 3));
    assert_eq!(results(&server, "partial"), 1);
    // 10 bytes, the first slice from its 11th byte on, and all but one.
    assert_eq!(figure(&server, "lighty_cache_saved_bytes_total"), 10 + 65_526 + 199_999);
    assert_eq!(figure(&server, "lighty_cache_fetches_total"), 4);
}
