//! Benchmark of HTTP/2 requests without a socket: this crate's machine against the `h2` crate, fed
//! the same bytes. `cargo run --release --example http2_spike -- ours|h2 ROUNDS`; under `valgrind
//! --tool=callgrind`, the difference of two numbers of rounds is the cost in instructions.
//!
//! Measured in `docs/decisions/0022-own-http2.md`. A round is 16 requests in one read, and 16
//! responses of 44 bytes with seven fields.

#[path = "../../lighty-testkit/shared/counting.rs"]
mod counting;

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use h2::server::Connection as H2Connection;
use http::{HeaderValue, header};
use lighty_http::{Fields, Known, Status};
use lighty_wire::http2::{Connection, Event, Limits, RequestParts};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const STREAMS: u32 = 16;
const BODY: &[u8] = b"<html><body>It works as it should.</body>.\r\n";

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const ETAG: &str = "\"4226351417\"";

/// A client's bytes. Its heads are in indexed form, ready to be repeated with another stream id.
struct SpikeClient {
    conn: Connection,
    block: Vec<u8>,
    next_id: u32,
    bytes: Vec<u8>,
}

impl SpikeClient {
    fn new() -> Self {
        let conn = Connection::client(Limits::default(), 0);
        Self { conn, block: Vec::new(), next_id: 1, bytes: Vec::new() }
    }

    /// Preface, settings, and the request that fills the tables.
    fn first(&mut self) -> &[u8] {
        let mut all = Vec::new();
        for _ in 0..2 {
            let parts = RequestParts {
                method: b"GET",
                scheme: b"http",
                authority: b"127.0.0.1:8080",
                path: b"/",
                protocol: None,
            };
            let mut fields = Fields::new();
            fields.push_known(Known::UserAgent, "h2load nghttp2/1.52.0");
            self.block.clear();
            self.conn.open(&parts, &fields, true).expect("a stream");
            self.conn.poll_output(&mut self.block);
            all.extend_from_slice(&self.block);
        }
        // The last block written is a frame of indexed fields.
        self.next_id = 5;
        self.bytes = all;
        // Acknowledges the server's settings, and opens the window for all later responses.
        self.bytes.extend_from_slice(&[0, 0, 0, 4, 1, 0, 0, 0, 0]);
        &self.bytes
    }

    /// The requests of the next round.
    fn round(&mut self) -> &[u8] {
        self.bytes.clear();
        let credit = STREAMS * BODY.len() as u32;
        self.bytes.extend_from_slice(&[0, 0, 4, 8, 0, 0, 0, 0, 0]);
        self.bytes.extend_from_slice(&credit.to_be_bytes());
        for _ in 0..STREAMS {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&self.block);
            self.bytes[start + 5..start + 9].copy_from_slice(&self.next_id.to_be_bytes());
            self.next_id += 2;
        }
        &self.bytes
    }
}

trait SpikeServer {
    /// Handles input and returns the number of output bytes.
    fn turn(&mut self, input: &[u8]) -> usize;
}

struct Ours {
    conn: Connection,
    fields: Fields,
    output: Vec<u8>,
    paths: usize,
}

impl SpikeServer for Ours {
    fn turn(&mut self, input: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let handled = self.conn.handle_input(&input[at..], 0).expect("no fault");
            at += handled.consumed;
            let Some(event) = handled.event else { break };
            let Event::Request { stream, .. } = event else { panic!("{event:?}") };
            self.paths += self.conn.head().path().len();
            self.fields.clear();
            self.fields.push_known(Known::Server, "lighty/0.1");
            self.fields.push_known(Known::Date, DATE);
            self.fields.push_known(Known::ContentType, "text/html");
            self.fields.push_known(Known::AcceptRanges, "bytes");
            self.fields.push_known(Known::ETag, ETAG);
            self.fields.push_known(Known::LastModified, DATE);
            self.fields.push_known(Known::ContentLength, "44");
            self.conn.send_head(stream, Status::OK, &self.fields, false).expect("a head");
            self.conn.queue_data(stream, BODY.len() as u64, true).expect("content");
        }
        self.output.clear();
        while let Some(frame) = self.conn.poll_data(usize::MAX, 0, &mut self.output) {
            self.output.extend_from_slice(&BODY[..frame.len]);
            if frame.ends {
                self.conn.release(frame.stream);
            }
        }
        self.output.len()
    }
}

/// A socket in memory; the program is its peer.
#[derive(Default)]
struct Wire {
    input: Vec<u8>,
    at: usize,
    sent: usize,
}

struct Socket(Rc<RefCell<Wire>>);

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut wire = self.0.borrow_mut();
        let len = buf.remaining().min(wire.input.len() - wire.at);
        if len == 0 {
            return Poll::Pending;
        }
        buf.put_slice(&wire.input[wire.at..wire.at + len]);
        wire.at += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.0.borrow_mut().sent += buf.len();
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.0.borrow_mut().sent += len;
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct Theirs {
    wire: Rc<RefCell<Wire>>,
    conn: H2Connection<Socket, Bytes>,
    paths: usize,
}

impl Theirs {
    fn new(first: &[u8]) -> Self {
        let wire = Rc::new(RefCell::new(Wire::default()));
        wire.borrow_mut().input.extend_from_slice(first);
        let handshake = h2::server::Builder::new().handshake(Socket(Rc::clone(&wire)));
        let mut handshake = std::pin::pin!(handshake);
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(conn) = handshake.as_mut().poll(&mut cx) else { panic!("all is there") };
        Self { wire, conn: conn.expect("a connection"), paths: 0 }
    }
}

impl SpikeServer for Theirs {
    fn turn(&mut self, input: &[u8]) -> usize {
        {
            let mut wire = self.wire.borrow_mut();
            let at = std::mem::take(&mut wire.at);
            wire.input.drain(..at);
            wire.input.extend_from_slice(input);
            wire.sent = 0;
        }
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let Poll::Ready(accepted) = self.conn.poll_accept(&mut cx) else { break };
            let (request, mut respond) = accepted.expect("open").expect("no fault");
            self.paths += request.uri().path().len();
            let mut response = http::Response::new(());
            let fields = response.headers_mut();
            fields.reserve(7);
            fields.insert(header::SERVER, HeaderValue::from_static("lighty/0.1"));
            let value = |text: &str| HeaderValue::from_str(text).expect("a value");
            fields.insert(header::DATE, value(DATE));
            fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
            fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            fields.insert(header::ETAG, value(ETAG));
            fields.insert(header::LAST_MODIFIED, value(DATE));
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from_static("44"));
            let mut stream = respond.send_response(response, false).expect("a head");
            stream.send_data(Bytes::from_static(BODY), true).expect("content");
        }
        self.wire.borrow().sent
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let which = args.next().unwrap_or_default();
    let rounds: u32 = args.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let mut client = SpikeClient::new();
    let first = client.first().to_vec();
    let mut server: Box<dyn SpikeServer> = match which.as_str() {
        "ours" => {
            let conn = Connection::server(Limits { requests_max: 0, ..Limits::default() }, 0);
            Box::new(Ours { conn, fields: Fields::new(), output: Vec::new(), paths: 0 })
        }
        "h2" => Box::new(Theirs::new(&first[..first.len() - 9])),
        _ => panic!("ours or h2?"),
    };
    if which == "ours" {
        server.turn(&first);
    } else {
        server.turn(&first[first.len() - 9..]);
    }
    for _ in 0..100 {
        server.turn(client.round());
    }
    let (before, start) = (counting::own_allocations(), Instant::now());
    let mut sent = 0;
    for _ in 0..rounds {
        sent += server.turn(client.round());
    }
    let requests = f64::from(rounds * STREAMS);
    let ns = start.elapsed().as_secs_f64() * 1e9 / requests;
    let allocations = (counting::own_allocations() - before) as f64 / requests;
    println!(
        "{which}: {ns:.0} ns, {allocations:.2} allocations, {:.1} bytes sent per request",
        sent as f64 / requests
    );
}
