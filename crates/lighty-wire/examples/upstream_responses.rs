//! Measures the time to parse typical response heads of backends, and to write the head of a
//! request to one: `cargo run --release --example upstream_responses`.

use std::hint::black_box;
use std::time::Instant;

use lighty_http::Method;
use lighty_http::uri::ParseOpts;
use lighty_wire::http1::{
    Head, Http1Limits, RequestHead, RequestLine, ResponseHead, ResponseLimits,
    encode_request_fields, parse_request, parse_response,
};

/// A small file, as common servers send it.
const SMALL: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/plain\r\nContent-Length: 44\r\n\
    Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: keep-alive\r\n\
    ETag: \"36af5b84-2c\"\r\nAccept-Ranges: bytes\r\n\r\n";

/// The minimum that a hand-written backend sends.
const BARE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n";

/// A page of an application.
const APPLICATION: &[u8] = b"HTTP/1.1 200 OK\r\nServer: gunicorn\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nTransfer-Encoding: chunked\r\n\
    Content-Type: text/html; charset=utf-8\r\nX-Frame-Options: DENY\r\n\
    X-Content-Type-Options: nosniff\r\nReferrer-Policy: same-origin\r\n\
    Cross-Origin-Opener-Policy: same-origin\r\nVary: Cookie, Accept-Language\r\n\
    Content-Language: en\r\nContent-Security-Policy: default-src 'self'; img-src * data:; \
    script-src 'self' 'nonce-0123456789abcdef'; style-src 'self' 'unsafe-inline'\r\n\
    Set-Cookie: csrftoken=0123456789abcdef0123456789abcdef; expires=Sun, 05 Nov 1995 08:49:37 GMT; \
    Max-Age=31449600; Path=/; SameSite=Lax\r\nCache-Control: private, no-cache\r\n\r\n";

const CURL: &[u8] = b"GET /a/b.css?v=12 HTTP/1.1\r\nHost: www.example.org\r\n\
    User-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";

/// Rounds are short, and the fastest one counts: on a busy machine some rounds are undisturbed.
const ROUNDS: u32 = 500;
const HEADS: u32 = 2000;

fn main() {
    let rounds = std::env::args().nth(1).map_or(ROUNDS, |text| text.parse().expect("a number"));
    for (name, head) in [("bare", BARE), ("small", SMALL), ("application", APPLICATION)] {
        let mut out = ResponseHead::new();
        best(name, rounds, head.len(), || parse(head, &mut out));
    }
    let mut request = RequestHead::new();
    parse_request(CURL, &Http1Limits::default(), &ParseOpts::default(), &mut request)
        .expect("legal");
    let mut wire = Vec::new();
    best("request to a backend", rounds, CURL.len(), || encode(&request, &mut wire));
}

fn parse(head: &[u8], out: &mut ResponseHead) {
    let limits = ResponseLimits::default();
    let result = parse_response(black_box(head), Some(Method::Get), &limits, out);
    assert_eq!(result, Ok(Head::Complete { consumed: head.len() }));
    black_box(out);
}

fn encode(request: &RequestHead, wire: &mut Vec<u8>) {
    wire.clear();
    let line = RequestLine {
        method: request.method_raw(),
        target: &request.target,
        version: request.version,
        host: request.host(),
        framing: request.framing,
    };
    encode_request_fields(&line, black_box(&request.fields), wire).expect("legal");
    black_box(wire);
}

/// Prints the nanoseconds for one head, averaged over the best round.
fn best(name: &str, rounds: u32, len: usize, mut run: impl FnMut()) {
    let mut round = || {
        let start = Instant::now();
        (0..HEADS).for_each(|_| run());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(HEADS)
    };
    let best = (0..rounds).map(|_| round()).fold(f64::MAX, f64::min);
    println!("{name:20} {len:5} bytes {best:7.1} ns");
}
