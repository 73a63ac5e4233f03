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
    source: SourceState,
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

// The source of a response (`SourceState`):
//
//                    Responds
//     TakesRequest <---------> Responds
//        |      TakesRequest    |
//        | End, Cut             | End, Cut
//        +----------+-----------+
//                   v
//              Whole, Cut
//                   |
//                   | taken by the reader
//                   v
//                 Passed

/// State of the source of a response.
#[derive(Debug)]
enum SourceState {
    /// It responds, and still takes request data.
    TakesRequest,
    /// It responds.
    Responds,
    /// The response is complete, with these trailers.
    Whole(Option<Fields>),
    /// The response was cut.
    Cut(FaultReport),
    /// The reader has the end.
    Passed,
}

impl SourceState {
    /// The state of a source that responds.
    const fn open(takes_request: bool) -> Self {
        if takes_request { Self::TakesRequest } else { Self::Responds }
    }

    /// Returns true until the end of the response.
    const fn is_open(&self) -> bool {
        matches!(self, Self::TakesRequest | Self::Responds)
    }

    const fn takes_request(&self) -> bool {
        matches!(self, Self::TakesRequest)
    }

    /// Handles a new state of the source. Returns true if the reader has to learn of it. Nothing
    /// follows the end of the response.
    fn set(&mut self, next: Self) -> bool {
        let is_news =
            self.is_open() && (!next.is_open() || next.takes_request() != self.takes_request());
        if is_news {
            *self = next;
        }
        is_news
    }

    /// Takes the end of the response, once. `None` before it and after it was taken.
    fn take_end(&mut self) -> Option<Result<Option<Fields>, FaultReport>> {
        if self.is_open() {
            return None;
        }
        match std::mem::replace(self, Self::Passed) {
            Self::Whole(trailers) => Some(Ok(trailers)),
            Self::Cut(report) => Some(Err(report)),
            Self::TakesRequest | Self::Responds | Self::Passed => None,
        }
    }
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
        match buffer.source.take_end() {
            Some(Err(report)) => Poll::Ready(Some(Err(report))),
            Some(Ok(trailers)) => {
                self.trailers = trailers;
                Poll::Ready(None)
            }
            None => Poll::Ready(None),
        }
    }

    // The read-ahead task forwards the request body.
    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> bool {
        let mut buffer = self.buffer.borrow_mut();
        let takes_request = buffer.source.takes_request();
        if takes_request {
            buffer.reader = Some(cx.waker().clone());
        }
        takes_request
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
            source: SourceState::open(takes_request),
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
        if taken.is_none() && self.source.is_open() {
            self.reader = Some(cx.waker().clone());
        }
        // The filler may be waiting for room.
        self.filler.take().into_iter().for_each(Waker::wake);
        match taken {
            None if self.source.is_open() => Poll::Pending,
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

    /// Records a new state of the source.
    fn note(&mut self, source: SourceState) {
        if self.source.set(source) {
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
}

impl<S> Drop for Filler<S> {
    /// Wakes the reader, which must not wait for a dropped filler.
    fn drop(&mut self) {
        let reason = "reading a response ahead broke off";
        let cut = SourceState::Cut(FaultReport::new(Fault::Internal, reason));
        self.buffer.borrow_mut().note(cut);
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
                Some(Err(report)) => break SourceState::Cut(report),
                None => break SourceState::Whole(self.source.trailers().cloned()),
            }
        };
        self.buffer.borrow_mut().note(end);
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FaultReport>>> {
        let piece = self.source.poll_piece(cx);
        let source = SourceState::open(self.source.takes_request());
        self.buffer.borrow_mut().note(source);
        piece
    }

    /// Ready once the buffer is empty; forwards request data meanwhile.
    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_taken = self.source.poll_meanwhile(cx);
        let mut buffer = self.buffer.borrow_mut();
        buffer.note(SourceState::open(is_taken));
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

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, matrix};

    use super::*;

    /// A [`SourceState`] without its content.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum SourceKind {
        TakesRequest,
        Responds,
        Whole,
        Cut,
        Passed,
    }

    impl SourceKind {
        fn of(state: &SourceState) -> Self {
            match state {
                SourceState::TakesRequest => Self::TakesRequest,
                SourceState::Responds => Self::Responds,
                SourceState::Whole(_) => Self::Whole,
                SourceState::Cut(_) => Self::Cut,
                SourceState::Passed => Self::Passed,
            }
        }

        fn state(self) -> SourceState {
            match self {
                Self::TakesRequest => SourceState::TakesRequest,
                Self::Responds => SourceState::Responds,
                Self::Whole => SourceState::Whole(None),
                Self::Cut => SourceState::Cut(Fault::Internal.into()),
                Self::Passed => SourceState::Passed,
            }
        }
    }

    #[derive(Clone, Copy)]
    enum SourceEvent {
        Set(SourceKind),
        TakeEnd,
    }

    impl std::fmt::Debug for SourceEvent {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            match self {
                Self::Set(kind) => write!(f, "{kind:?}"),
                Self::TakeEnd => f.write_str("TakeEnd"),
            }
        }
    }

    #[derive(Debug)]
    enum SourceAction {
        Nothing,
        Wake,
        Ends,
    }

    const MATRIX: &str = "
                TakesRequest  Responds  Whole   Cut     TakeEnd
0 TakesRequest  0             1 Wake    2 Wake  3 Wake  0
1 Responds      0 Wake        1         2 Wake  3 Wake  1
2 Whole         2             2         2       2       4 Ends
3 Cut           3             3         3       3       4 Ends
4 Passed        4             4         4       4       4
";

    #[test]
    fn every_event_has_a_defined_effect_on_a_source() {
        use SourceEvent as E;
        use SourceKind as K;
        let events = [
            E::Set(K::TakesRequest),
            E::Set(K::Responds),
            E::Set(K::Whole),
            E::Set(K::Cut),
            E::TakeEnd,
        ];
        let actual = matrix(K::TakesRequest, &events, |kind, event| {
            let mut state = kind.state();
            let action = match event {
                E::Set(next) if state.set(next.state()) => SourceAction::Wake,
                E::TakeEnd if state.take_end().is_some() => SourceAction::Ends,
                E::Set(_) | E::TakeEnd => SourceAction::Nothing,
            };
            Some((K::of(&state), action))
        });
        assert_matrix(&actual, MATRIX);
    }
}
