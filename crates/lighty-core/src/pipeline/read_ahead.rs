//! Reads a response ahead of its client, into memory and then to disk, so that a slow client does
//! not occupy the backend or program.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_http::Fields;
use lighty_io::file::OpenFile;
use lighty_io::spool::{Spool, SpoolOptions};
use lighty_io::threads::panics;
use lighty_io::threads::pool::ThreadPool;
use tokio::task::AbortHandle;

use crate::exchange::Exchange;
use crate::exchange::body::{Body, BodyChunk, BodyStream};
use crate::fault::{Fault, FaultReport};
use crate::log::{About, Level, Log};
use crate::settings::{Settings, StreamBody};

/// Maximum bytes of a body held in memory; the rest goes to disk.
pub const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// Spool directories for bodies (`server.upload-dirs`), and the limit on bytes of one body held
/// there.
#[must_use]
pub fn options(settings: &Settings, held_bytes_max: u64) -> Rc<SpoolOptions> {
    let dirs = settings.server.upload_dirs.iter().map(|dir| PathBuf::from(&**dir)).collect();
    Rc::new(SpoolOptions { dirs, held_bytes_max })
}

/// A body that may be read ahead of its client.
pub trait Ahead: BodyStream {
    /// Name of the source in the log line about a full spool.
    const WAITER: &'static str;

    /// The next piece, in memory; `None` at the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FaultReport>>>;

    /// True while the source still takes request data.
    fn takes_request(&self) -> bool;
}

/// Bytes of a file passed on as one piece.
const PIECE_BYTES: u64 = 1024 * 1024;

/// A response body read ahead of its client. When the spool is full, the source waits for the
/// client, as it would without read-ahead.
pub struct SpooledResponse {
    buffer: Rc<RefCell<SpoolBuffer>>,
    filling: AbortHandle,
    length: Option<u64>,
    trailers: Option<Fields>,
}

/// The buffer between a backend and its client. Data is read from memory first, then from disk. New
/// data goes to memory only while the disk part is empty.
struct SpoolBuffer {
    memory: VecDeque<Bytes>,
    memory_bytes: usize,
    /// Taken out while it is being written to.
    disk: Option<Spool>,
    /// Bytes of the disk part handed to the sender.
    taken_bytes: u64,
    end: Option<End>,
    /// The source still takes request data.
    takes_request: bool,
    reader: Option<Waker>,
    filler: Option<Waker>,
}

/// Part of a response that is read ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Only while the source takes request data.
    Request,
}

/// End of the backend's response.
enum End {
    Whole(Option<Fields>),
    Cut(FaultReport),
}

impl SpooledResponse {
    /// The body of a response, read ahead completely if `stream` requires it. Otherwise it is read
    /// ahead only while its source takes request data: a client that sends its whole body before
    /// reading would deadlock with a source that waits for its response to be read.
    pub fn body(ex: &Exchange, source: impl Ahead + 'static, stream: StreamBody) -> Body {
        let extent = match stream {
            StreamBody::Spool => Extent::Whole,
            _ if source.takes_request() => Extent::Request,
            _ => return Body::Stream(Box::new(source)),
        };
        Body::Stream(Box::new(Self::start(ex, source, extent)))
    }

    fn start(ex: &Exchange, source: impl Ahead + 'static, extent: Extent) -> Self {
        let length = source.known_length();
        let options = options(&ex.settings, ex.settings.core.spool_bytes_max);
        let disk = Spool::new(options, ThreadPool::global().clone());
        let buffer = Rc::new(RefCell::new(SpoolBuffer::new(disk, source.takes_request())));
        let filler = Filler {
            source,
            extent,
            buffer: Rc::clone(&buffer),
            log: ex.machine.log.clone(),
            clock: ex.machine.clock.clone(),
            has_logged_failure: false,
            has_ended: false,
        };
        let filling = tokio::task::spawn_local(filler.run()).abort_handle();
        Self { buffer, filling, length, trailers: None }
    }
}

impl Drop for SpooledResponse {
    fn drop(&mut self) {
        self.filling.abort();
    }
}

impl BodyStream for SpooledResponse {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        let mut buffer = self.buffer.borrow_mut();
        buffer.give_back();
        if let Some(chunk) = ready!(buffer.poll_take(cx)) {
            return Poll::Ready(Some(Ok(chunk)));
        }
        match buffer.end.take() {
            Some(End::Cut(report)) => Poll::Ready(Some(Err(report))),
            Some(End::Whole(trailers)) => {
                self.trailers = trailers;
                Poll::Ready(None)
            }
            None => Poll::Ready(None),
        }
    }

    // The read-ahead task forwards the request body.
    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> bool {
        let mut buffer = self.buffer.borrow_mut();
        if buffer.takes_request {
            buffer.reader = Some(cx.waker().clone());
        }
        buffer.takes_request
    }

    fn known_length(&self) -> Option<u64> {
        self.length
    }

    fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }
}

impl SpoolBuffer {
    fn new(disk: Spool, takes_request: bool) -> Self {
        Self {
            memory: VecDeque::new(),
            memory_bytes: 0,
            disk: Some(disk),
            taken_bytes: 0,
            end: None,
            takes_request,
            reader: None,
            filler: None,
        }
    }

    /// Frees the disk space of data handed out earlier, which has been sent by now.
    fn give_back(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.release(self.taken_bytes);
        }
    }

    /// The next piece; `None` at the end.
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Option<Chunk<Rc<OpenFile>>>> {
        let taken = self.take();
        if taken.is_none() && self.end.is_none() {
            self.reader = Some(cx.waker().clone());
        }
        // The filler may be waiting for room.
        self.filler.take().into_iter().for_each(Waker::wake);
        match taken {
            None if self.end.is_none() => Poll::Pending,
            taken => Poll::Ready(taken),
        }
    }

    fn take(&mut self) -> Option<Chunk<Rc<OpenFile>>> {
        if let Some(bytes) = self.memory.pop_front() {
            self.memory_bytes -= bytes.len();
            let is_counted = !self.memory.is_empty() || self.memory_bytes == 0;
            debug_assert!(is_counted, "{} bytes of no piece", self.memory_bytes);
            return Some(Chunk::Memory(bytes));
        }
        let range = self.disk.as_mut()?.take(PIECE_BYTES)?;
        self.taken_bytes += range.length;
        Some(Chunk::File(range))
    }

    fn is_disk_empty(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.available_bytes() == 0)
    }

    fn push(&mut self, bytes: Bytes) {
        debug_assert!(self.is_disk_empty(), "bytes on disk come first");
        self.memory_bytes += bytes.len();
        self.memory.push_back(bytes);
        let is_within = self.memory_bytes <= MEMORY_BYTES_MAX || self.memory.len() == 1;
        debug_assert!(is_within, "{} bytes in memory", self.memory_bytes);
        self.wake_reader();
    }

    /// Records whether the source still takes request data.
    fn note_request(&mut self, is_taken: bool) {
        if std::mem::replace(&mut self.takes_request, is_taken) != is_taken {
            self.wake_reader();
        }
    }

    fn wake_reader(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Ready once the buffer is empty.
    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.memory.is_empty() && self.is_disk_empty() {
            return Poll::Ready(());
        }
        self.filler = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Fills the buffer from the source.
struct Filler<S> {
    source: S,
    extent: Extent,
    buffer: Rc<RefCell<SpoolBuffer>>,
    log: Log,
    clock: lighty_io::clock::Clock,
    has_logged_failure: bool,
    has_ended: bool,
}

impl<S> Drop for Filler<S> {
    /// Wakes the reader, which must not wait for a dropped filler.
    fn drop(&mut self) {
        let mut buffer = self.buffer.borrow_mut();
        buffer.note_request(false);
        if buffer.end.is_none() && !self.has_ended {
            let reason = "reading a response ahead broke off";
            buffer.end = Some(End::Cut(FaultReport::new(Fault::Internal, reason)));
            buffer.wake_reader();
        }
    }
}

impl<S: Ahead> Filler<S> {
    async fn run(mut self) {
        let end = loop {
            panics::point("spool");
            if self.extent == Extent::Request && !self.source.takes_request() {
                std::future::poll_fn(|cx| self.poll_empty(cx)).await;
            }
            match std::future::poll_fn(|cx| self.poll_piece(cx)).await {
                Some(Ok(bytes)) => self.store(bytes).await,
                Some(Err(report)) => break End::Cut(report),
                None => break End::Whole(self.source.trailers().cloned()),
            }
        };
        self.has_ended = true;
        let mut buffer = self.buffer.borrow_mut();
        buffer.end = Some(end);
        buffer.wake_reader();
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FaultReport>>> {
        let piece = self.source.poll_piece(cx);
        self.buffer.borrow_mut().note_request(self.source.takes_request());
        piece
    }

    /// Ready once the buffer is empty; forwards request data meanwhile.
    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_taken = self.source.poll_meanwhile(cx);
        let mut buffer = self.buffer.borrow_mut();
        buffer.note_request(is_taken);
        buffer.poll_empty(cx)
    }

    async fn store(&mut self, mut bytes: Bytes) {
        let disk = {
            let mut buffer = self.buffer.borrow_mut();
            let has_room = buffer.memory_bytes + bytes.len() <= MEMORY_BYTES_MAX;
            if buffer.is_disk_empty() && (has_room || buffer.memory.is_empty()) {
                return buffer.push(bytes);
            }
            buffer.disk.take()
        };
        let Some(mut disk) = disk else { return };
        let stored = disk.append(&mut bytes).await;
        {
            let mut buffer = self.buffer.borrow_mut();
            buffer.disk = Some(disk);
            buffer.wake_reader();
        }
        if let Err(error) = stored {
            self.log_failure(&error.to_string());
            // Until the buffer is empty, nothing more is read from the backend.
            std::future::poll_fn(|cx| self.poll_empty(cx)).await;
            self.buffer.borrow_mut().push(bytes);
        }
    }

    fn log_failure(&mut self, reason: &str) {
        if std::mem::replace(&mut self.has_logged_failure, true) {
            return;
        }
        let message = format!("{} waits for its client: {reason} (server.upload-dirs)", S::WAITER);
        let about = About::default();
        self.log.line(Level::Warning, self.clock.unix_s(), &message, about);
    }
}
