//! `cache.slice-size`: ranges of large responses from slices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lighty_testkit::backend::{Backend, RequestSeen, answer};
use lighty_testkit::content::pattern;
use lighty_testkit::server::Server;

use super::caching;

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
        let body = content(seen.target(), version);
        let (tag, total) = (self.tag(), body.len() as u64);
        let fields = format!("{}ETag: {tag}\r\nAccept-Ranges: bytes\r\n", self.fields);
        if seen.field("If-None-Match").is_some_and(|other| other == tag) {
            return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
        }
        let is_held = seen.field("If-Range").is_none_or(|other| other == tag);
        let Some((first, last)) = seen.field("Range").filter(|_| is_held).map(bounds) else {
            return respond("200 OK", &fields, &body);
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
        respond("206 Partial Content", &range, &body[first as usize..=last as usize])
    }
}

fn bounds(range: &str) -> (u64, u64) {
    let (first, last) =
        range.strip_prefix("bytes=").and_then(|spec| spec.split_once('-')).expect("a range");
    (first.parse().expect("a number"), last.parse().expect("a number"))
}

fn respond(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The body for `/LENGTH/...`, which differs by version.
fn content(target: &str, version: u64) -> Vec<u8> {
    let length = target.split('/').nth(1).and_then(|text| text.parse().ok()).expect("a length");
    pattern(version * 1_000_003, length)
}

fn backend(resource: &Arc<Resource>) -> Backend {
    let own = Arc::clone(resource);
    Backend::replying(move |seen| own.respond(seen))
}

fn slicing(backend: &Backend, more: &str) -> Server {
    caching(backend, &format!("cache.slice-size = \"64K\"\n{more}"))
}

const FRESH: &str = "Cache-Control: max-age=600\r\n";

/// Gets a range, which has to be right.
fn get(server: &Server, target: &str, range: &str, first: usize, end: usize) {
    let page = server.get_with(target, &format!("Range: bytes={range}\r\n"));
    let body = content(target, 1);
    assert_eq!(page.status, 206, "{range}: {}", page.text());
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

#[test]
fn range_is_served_from_its_slices() {
    let resource = Resource::new(FRESH);
    let backend = backend(&resource);
    let server = slicing(&backend, "");
    get(&server, "/200000/a", "70000-70099", 70_000, 70_100);
    assert_eq!(ranges(&backend), ["bytes=65536-131071"]);
    get(&server, "/200000/a", "80000-80099", 80_000, 80_100);
    assert_eq!(ranges(&backend).len(), 1, "stored");
}
