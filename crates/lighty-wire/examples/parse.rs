//! Measures the time to parse typical request heads: `cargo run --release --example parse`.

use std::hint::black_box;
use std::time::Instant;

use lighty_http::uri::ParseOpts;
use lighty_wire::http1::{Head, Http1Limits, RequestHead, parse_request};

/// The head that wrk, ab and similar load generators send.
const LOAD_GENERATOR: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const CURL: &[u8] = b"GET /a/b.css?v=12 HTTP/1.1\r\nHost: www.example.org\r\n\
    User-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";

const BROWSER: &[u8] = b"GET /gallery/2024/summer/index.html?page=2&sort=name HTTP/1.1\r\n\
    Host: www.example.org\r\nConnection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"124\", \"Not-A.Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\nUpgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/124.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\n\
    Sec-Fetch-Dest: document\r\nReferer: https://www.example.org/gallery/2024/\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    If-None-Match: \"1234567890\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";

/// Rounds are short, and the fastest one counts: on a busy machine some rounds are undisturbed.
const ROUNDS: u32 = 500;
const REQUESTS: u32 = 2000;

fn main() {
    for (name, head) in [("wrk", LOAD_GENERATOR), ("curl", CURL), ("browser", BROWSER)] {
        let best = (0..ROUNDS).map(|_| round(head)).fold(f64::MAX, f64::min);
        println!("{name:8} {:5} bytes {best:7.1} ns", head.len());
    }
}

/// Nanoseconds for one request, averaged over a round.
fn round(head: &[u8]) -> f64 {
    let (limits, opts) = (Http1Limits::default(), ParseOpts::default());
    let mut out = RequestHead::new();
    let start = Instant::now();
    for _ in 0..REQUESTS {
        let result = parse_request(black_box(head), &limits, &opts, &mut out);
        assert_eq!(result, Ok(Head::Complete { consumed: head.len() }));
        black_box(&out);
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS)
}
