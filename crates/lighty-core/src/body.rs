//! Bodies: what an answer carries, and how a handler reads what the client sends.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use lighty_buf::{Chunk, ChunkQueue};
use lighty_http::Fields;
use lighty_io::file::OpenFile;
use lighty_io::stat_cache::Entry;
use lighty_io::transport::Stream;

use crate::fault::Fault;

/// The body of an answer. One enum, matched where it is sent: a file range reaches the network
/// backend without a byte passing through code that does not change it.
#[derive(Default)]
pub enum Body {
    /// No body; `Content-Length: 0` where the status allows one.
    #[default]
    Empty,
    /// Bytes in memory.
    Memory(Bytes),
    /// All bytes of a small file, which the stat cache keeps: nothing is counted but a pointer.
    Cached(Rc<Entry>),
    /// `length` bytes of a file from `offset`.
    File { file: Rc<OpenFile>, offset: u64, length: u64 },
    /// Memory and file ranges in a row, length known (multipart ranges).
    Chunks(ChunkQueue<Rc<OpenFile>>),
    /// A source that yields chunks over time; its length may be unknown.
    Stream(Box<dyn BodyStream>),
}

impl Body {
    /// Length in bytes where it is known beforehand.
    pub fn known_length(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Memory(bytes) => Some(bytes.len() as u64),
            Body::Cached(entry) => Some(entry.small().map_or(0, |bytes| bytes.len() as u64)),
            Body::File { length, .. } => Some(*length),
            Body::Chunks(queue) => Some(queue.len_bytes()),
            Body::Stream(stream) => stream.known_length(),
        }
    }
}

/// A body that is produced while it is sent. Polled only when the client has room: a slow client
/// stops its source, and no more than one chunk lies between them.
pub trait BodyStream {
    /// The next chunk; `None` at the proper end. An error cuts the answer short: it never ends
    /// cleanly towards the client.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Chunk<Rc<OpenFile>>>>>;

    /// Polled while the client has no room: passes on what the same client still sends. A client
    /// that sends its whole body before it reads would wait for ever otherwise. Produces nothing of
    /// the response. Returns `false` once the source takes no more of the request: what is left of it
    /// is dropped then. A source with another one behind it passes the call on.
    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> bool;

    /// Total length in bytes, where the source knows it.
    fn known_length(&self) -> Option<u64> {
        None
    }

    /// Fields that follow the body, once it has ended (RFC 9110 section 6.5). They reach a client
    /// that said `TE: trailers` and is answered in chunks.
    fn trailers(&self) -> Option<&Fields> {
        None
    }

    /// The fault behind the error that ended the body, for the log.
    fn fault(&self) -> Option<(Fault, String)> {
        None
    }
}

/// The body of an answer to HEAD whose length is not known before it is made. It is never sent.
pub struct UnknownLength;

impl BodyStream for UnknownLength {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Chunk<Rc<OpenFile>>>>> {
        Poll::Ready(None)
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

/// What takes a client's connection over once a 101 is out: from then on bytes mean nothing to
/// HTTP (RFC 9110 section 7.8).
pub trait Tunnel {
    /// Carries bytes both ways until both ends are done or one is lost; returns how many went to
    /// the client. `early` is what the client sent right behind its request.
    fn run(
        self: Box<Self>,
        client: Rc<Stream>,
        early: Bytes,
    ) -> Pin<Box<dyn Future<Output = io::Result<u64>>>>;
}

/// The way from a handler to the client besides the answer: for interim answers, and to learn that
/// nobody waits any more.
pub trait ClientLink {
    /// Sends a whole interim answer (1xx) if the socket takes it now; a client that is slow misses
    /// it, as it may (RFC 9110 section 15.2).
    fn send_interim(&mut self, head: &[u8]);

    /// Ready once the client is gone for good; a client that only closed its sending half still
    /// waits for its answer.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Fault>;

    /// The address that the client connected to; none for a unix socket.
    fn local_ip(&self) -> Option<IpAddr>;

    /// Nothing is waited for from the client at the moment, though its body has not ended: its
    /// time limits rest.
    fn rests(&mut self);
}

/// Why a request body could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFault {
    /// The client closed or reset the connection before the announced end.
    Disconnected,
    /// The framing is wrong (RFC 9112 section 7.1); the connection is closed.
    Malformed(&'static str),
    /// `server.max-request-size` was exceeded.
    TooLarge,
    /// It was stored and cannot be read again.
    Lost,
    /// `server.max-read-idle` ran out.
    ReadTimeout,
    /// Slower than `server.min-read-rate`.
    ReadRate,
}

/// Where a connection's codec delivers a request's body.
pub trait BodySource {
    /// The next piece of the body, decoded; `None` after the last one. Reads from the client only
    /// when asked: not asking is back-pressure.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>>;

    /// Takes the fields that came behind the body, of those that may (RFC 9110 section 6.5.1), once
    /// it has ended.
    fn take_trailers(&mut self) -> Option<Fields> {
        None
    }
}

/// How much of a request's body has come, for others to see while it comes: also for other workers.
#[derive(Debug, Default)]
pub struct BodyMeter(AtomicU64);

impl BodyMeter {
    /// Bytes received so far, without the framing.
    pub fn received(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a request, as a handler sees it.
#[derive(Default)]
pub struct RequestBody {
    source: Option<Rc<RefCell<dyn BodySource>>>,
    announced: Option<u64>,
    received: u64,
    ended: bool,
    pushed_back: VecDeque<Bytes>,
    meter: Option<Arc<BodyMeter>>,
}

impl RequestBody {
    /// A body that is still with the client. `announced` is its Content-Length; `None` = chunked.
    pub fn incoming(source: Rc<RefCell<dyn BodySource>>, announced: Option<u64>) -> Self {
        Self { source: Some(source), announced, ..Self::default() }
    }

    /// Whether the request has a body at all.
    pub fn exists(&self) -> bool {
        self.source.is_some()
    }

    /// The Content-Length that the client announced.
    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Bytes received so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Has its bytes counted for others, from now on and whoever reads them.
    pub fn measure(&mut self, meter: Arc<BodyMeter>) {
        self.meter = Some(meter);
    }

    /// Takes the fields behind the body, once it has ended.
    pub fn take_trailers(&mut self) -> Option<Fields> {
        self.source.as_ref()?.borrow_mut().take_trailers()
    }

    /// Gives a piece back to be read again, before what follows it.
    pub fn push_back(&mut self, piece: Bytes) {
        self.pushed_back.push_front(piece);
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyFault>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polling form of [`RequestBody::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        if let Some(piece) = self.pushed_back.pop_front() {
            return Poll::Ready(Some(Ok(piece)));
        }
        let Some(source) = self.source.as_ref().filter(|_| !self.ended) else {
            return Poll::Ready(None);
        };
        let piece = std::task::ready!(source.borrow_mut().poll_piece(cx));
        match &piece {
            Some(Ok(bytes)) => self.count(bytes.len() as u64),
            Some(Err(_)) | None => self.ended = true,
        }
        Poll::Ready(piece)
    }

    fn count(&mut self, bytes: u64) {
        self.received += bytes;
        if let Some(meter) = &self.meter {
            meter.0.store(self.received, Ordering::Relaxed);
        }
    }
}
