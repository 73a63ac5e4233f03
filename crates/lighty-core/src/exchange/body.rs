//! Response bodies, and the request body as a handler reads it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use lighty_buf::{Chunk, ChunkQueue};
use lighty_http::Fields;
use lighty_io::file::OpenFile;
use lighty_io::stat_cache::CacheEntry;

use crate::fault::{BodyFault, FaultReport};

/// A response body. A single enum, matched where it is sent, so that a file range reaches the
/// network backend without passing through intermediate layers.
#[derive(Default)]
pub enum Body {
    /// No body; `Content-Length: 0` where the status allows one.
    #[default]
    Empty,
    /// Bytes in memory.
    Memory(Bytes),
    /// The bytes of a small file, shared with the stat cache.
    Cached(Rc<CacheEntry>),
    /// `length` bytes of a file from `offset`.
    File {
        /// The open file.
        file: Rc<OpenFile>,
        /// First byte to send, counted from 0.
        offset: u64,
        /// Bytes to send.
        length: u64,
    },
    /// A sequence of memory and file ranges of known length (multipart ranges).
    Chunks(ChunkQueue<Rc<OpenFile>>),
    /// A source that yields chunks over time; its length may be unknown.
    Stream(Box<dyn BodyStream>),
}

impl Body {
    /// Length in bytes, if known in advance.
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

/// A piece of a response body, or the fault that ends it.
pub type BodyChunk = Result<Chunk<Rc<OpenFile>>, FaultReport>;

/// A body produced while it is sent. Polled only when the client can take more: a slow client
/// applies backpressure to the source, with at most one chunk in between.
pub trait BodyStream {
    /// The next chunk; `None` at the end. A fault truncates the response, which the client can
    /// always detect.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>>;

    /// Polled while the client cannot take more, to forward the rest of the request body. Without
    /// this, a client that sends its whole body before reading would wait forever. Produces no
    /// response data. Returns `false` once the source takes no more of the request; the rest is
    /// then dropped. A wrapping source forwards the call.
    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> bool;

    /// Total length in bytes, if the source knows it.
    fn known_length(&self) -> Option<u64> {
        None
    }

    /// Trailers, once the body has ended (RFC 9110 section 6.5). They are sent only to a client
    /// that sent `TE: trailers`, over a protocol and framing that can carry them.
    fn trailers(&self) -> Option<&Fields> {
        None
    }
}

/// A body of unknown length, for responses to HEAD. It is never polled for data.
pub struct UnknownLength;

impl BodyStream for UnknownLength {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        Poll::Ready(None)
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

/// Delivers a request's body from the connection's codec.
pub trait BodySource {
    /// The next decoded piece of the body; `None` after the last. Reads from the client only when
    /// polled, which provides backpressure.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>>;

    /// Takes the permitted trailers (RFC 9110 section 6.5.1) once the body has ended.
    fn take_trailers(&mut self) -> Option<Fields> {
        None
    }
}

/// A request body that is already in memory.
struct Given(Option<Bytes>);

impl BodySource for Given {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

/// Counts the received bytes of a request body while it arrives, readable from other workers.
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
    /// Set once the source has ended: completely, or by a fault.
    ended: Option<Result<(), BodyFault>>,
    /// Pieces that were returned and are read first, the next one last.
    pushed_back: Vec<Bytes>,
    /// Boxed, because few bodies have one and many requests wait.
    oversight: Option<Box<BodyOversight>>,
}

/// Interests of modules in a request body that others read.
#[derive(Default)]
struct BodyOversight {
    meter: Option<Arc<BodyMeter>>,
    refuses_trailer: Option<TrailerFilter>,
}

/// Returns true for the name of a trailer that no handler may see.
pub type TrailerFilter = Box<dyn Fn(&[u8]) -> bool>;

impl RequestBody {
    /// A body not yet received. `announced` is the client's Content-Length, if it sent one.
    pub fn incoming(source: Rc<RefCell<dyn BodySource>>, announced: Option<u64>) -> Self {
        Self { source: Some(source), announced, ..Self::default() }
    }

    /// A body in memory, for a module's own request or in place of the client's body.
    pub fn given(bytes: Bytes) -> Self {
        let announced = Some(bytes.len() as u64);
        Self::incoming(Rc::new(RefCell::new(Given(Some(bytes)))), announced)
    }

    /// True if the request has a body.
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

    /// Counts the bytes received from now on in `meter`, whichever code reads them.
    pub fn measure(&mut self, meter: Arc<BodyMeter>) {
        self.oversight.get_or_insert_default().meter = Some(meter);
    }

    /// Takes the trailers once the body has ended.
    pub fn take_trailers(&mut self) -> Option<Fields> {
        let mut trailers = self.source.as_ref()?.borrow_mut().take_trailers()?;
        let oversight = self.oversight.as_ref();
        if let Some(refuses) = oversight.and_then(|own| own.refuses_trailer.as_ref()) {
            let names = trailers.iter().map(|(name, _)| name).filter(|name| refuses(name));
            let names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
            names.iter().for_each(|name| {
                trailers.remove_named(name);
            });
        }
        Some(trailers)
    }

    /// Removes trailers from the body, for rules about fields that a client must not send. Earlier
    /// rules stay in force.
    pub fn refuse_trailers(&mut self, refuses: TrailerFilter) {
        let filter = &mut self.oversight.get_or_insert_default().refuses_trailer;
        *filter = Some(match filter.take() {
            None => refuses,
            Some(earlier) => Box::new(move |name| earlier(name) || refuses(name)),
        });
    }

    /// Returns a piece, to be read again before the remainder.
    pub fn push_back(&mut self, piece: Bytes) {
        self.pushed_back.push(piece);
    }

    /// The next piece; `None` at the end. A body that a fault has ended returns the fault to each
    /// later reader, so that none takes it for complete.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyFault>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polling form of [`RequestBody::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        if let Some(piece) = self.pushed_back.pop() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if let Some(ended) = self.ended {
            return Poll::Ready(ended.err().map(Err));
        }
        let Some(source) = &self.source else { return Poll::Ready(None) };
        let piece = std::task::ready!(source.borrow_mut().poll_piece(cx));
        match &piece {
            Some(Ok(bytes)) => self.count(bytes.len() as u64),
            Some(Err(fault)) => self.ended = Some(Err(*fault)),
            None => self.ended = Some(Ok(())),
        }
        Poll::Ready(piece)
    }

    fn count(&mut self, bytes: u64) {
        self.received += bytes;
        // Each source ends with the announced length.
        debug_assert!(self.announced.is_none_or(|all| self.received <= all), "{}", self.received);
        if let Some(meter) = self.oversight.as_ref().and_then(|own| own.meter.as_ref()) {
            meter.0.store(self.received, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that fails once, then ends like a complete one.
    struct Broken(bool);

    impl BodySource for Broken {
        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
            let is_broken = std::mem::replace(&mut self.0, false);
            Poll::Ready(is_broken.then_some(Err(BodyFault::Disconnected)))
        }
    }

    #[test]
    fn a_body_that_broke_off_is_complete_for_no_later_reader() {
        let mut body = RequestBody::incoming(Rc::new(RefCell::new(Broken(true))), None);
        body.push_back(Bytes::from_static(b"a"));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert_eq!(body.poll_next(&mut cx), Poll::Ready(Some(Ok(Bytes::from_static(b"a")))));
        for _ in 0..3 {
            assert_eq!(body.poll_next(&mut cx), Poll::Ready(Some(Err(BodyFault::Disconnected))));
        }
    }
}
