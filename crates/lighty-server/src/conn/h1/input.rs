//! Reads request heads and bodies from the client through one buffer.

use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use lighty_buf::{ReadBuf, ReadBufPool};
use lighty_core::settings::limits;
use lighty_core::{BodyFault, BodySource, Client, Fault};
use lighty_http::{Fields, Status, Version};
use lighty_io::clock::Clock;
use lighty_io::transport::{Peer, PeerClose, Stream};
use lighty_wire::http1::chunked::ChunkedDecoder;
use lighty_wire::http1::response::{CONTINUE, encode_head};
use lighty_wire::http1::{BodyFraming, RequestHead};

use crate::worker::conn_table::{ConnEntry, StreamEntry};

/// Initial buffer size; a typical request fits.
const BUFFER_BYTES: usize = 4096;

/// Body bytes passed to a handler at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Memory for the input of a worker's connections.
#[derive(Clone)]
pub(crate) struct InputMemory {
    /// For heads.
    heads: ReadBufPool,
    /// For bodies: with the buffer of a head, each megabyte would take 256 reads.
    bodies: ReadBufPool,
}

impl InputMemory {
    /// Keeps the buffers of at most so many heads, and of so many bodies.
    pub(crate) fn new(heads_max: usize, bodies_max: usize) -> Self {
        Self {
            heads: ReadBufPool::new(BUFFER_BYTES, heads_max),
            bodies: ReadBufPool::new(PIECE_BYTES, bodies_max),
        }
    }

    /// Takes the memory of a buffer that has no bytes.
    fn take_back(&self, buffer: &mut ReadBuf) {
        self.heads.take_back(buffer);
        self.bodies.take_back(buffer);
    }
}

/// The reading half of a connection.
pub(super) struct Input {
    clock: Clock,
    stream: Option<Rc<Stream>>,
    entry: Option<Rc<ConnEntry>>,
    buffer: ReadBuf,
    memory: InputMemory,
    body: BodyState,
    /// The client may withhold its body. Independent of `takes_interim`: it still does once its
    /// response has begun.
    continue_owed: bool,
    /// Interim responses may be sent: the client understands them, and its response has not begun.
    takes_interim: bool,
    /// Bytes of interim responses that the socket did not accept; they precede the response.
    unsent: Vec<u8>,
    limit_bytes: u64,
    taken_bytes: u64,
    /// Bytes read since the connection became busy; for counters.
    pub(super) received: u64,
    /// Trailers of a completed chunked body.
    trailers: Option<Fields>,
    /// Detects that the client has gone.
    gone: Option<Gone>,
}

#[derive(Default)]
enum BodyState {
    #[default]
    None,
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
    Broken,
}

/// Result of [`Input::take_piece`].
enum TakenPiece {
    /// More must be read first.
    NeedsInput,
    /// The body is complete.
    End,
    Piece(Bytes),
}

impl Input {
    /// Creates an input for any connection of the worker with this clock and memory.
    pub(super) fn new(clock: Clock, memory: InputMemory) -> Self {
        Self {
            clock,
            stream: None,
            entry: None,
            buffer: ReadBuf::default(),
            memory,
            body: BodyState::None,
            continue_owed: false,
            takes_interim: false,
            unsent: Vec::new(),
            limit_bytes: 0,
            taken_bytes: 0,
            received: 0,
            trailers: None,
            gone: None,
        }
    }

    /// Attaches to a connection that has become readable.
    #[inline(always)]
    pub(super) fn attach(&mut self, stream: &Rc<Stream>, entry: &Rc<ConnEntry>) {
        debug_assert!(self.stream.is_none() && self.entry.is_none(), "of another connection");
        debug_assert!(self.gone.is_none() && self.unsent.is_empty(), "of another connection");
        self.stream = Some(Rc::clone(stream));
        self.entry = Some(Rc::clone(entry));
        self.body = BodyState::None;
        self.buffer.clear();
        self.received = 0;
    }

    /// Takes bytes that have been read from the connection already.
    pub(super) fn take_early(&mut self, early: &[u8]) {
        self.buffer.push(early, BUFFER_BYTES);
        self.received += early.len() as u64;
    }

    /// Detaches from the connection and frees oversized buffers.
    #[inline(always)]
    pub(super) fn detach(&mut self) {
        self.gone = None;
        self.unsent.clear();
        self.stream = None;
        self.entry = None;
        self.buffer.recycle(limits::KEPT_BUFFER_BYTES_MAX);
        self.memory.bodies.take_back(&mut self.buffer);
    }

    /// Returns the state of the connection's only stream, which the sweep checks for timeouts.
    fn entry(&self) -> Option<&StreamEntry> {
        stream_of(&self.entry)
    }

    /// Returns the bytes received and not yet consumed.
    pub(super) fn pending(&self) -> &[u8] {
        self.buffer.pending()
    }

    /// Consumes `count` bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.buffer.consume(count);
    }

    /// Returns the buffer's memory, unless it has bytes: the request waits for its response.
    pub(super) fn spare_memory(&mut self) {
        self.memory.take_back(&mut self.buffer);
    }

    /// Reads more bytes after the pending ones; 0 at end of file. The buffer grows up to `most`
    /// bytes.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<std::io::Result<usize>> {
        self.memory.heads.lend(&mut self.buffer);
        let Some(room) = self.buffer.room(BUFFER_BYTES, most) else {
            return Poll::Ready(Err(std::io::ErrorKind::OutOfMemory.into()));
        };
        let Some(stream) = &self.stream else { return Poll::Ready(Ok(0)) };
        match stream.poll_read(cx, room) {
            Poll::Pending => {
                self.memory.take_back(&mut self.buffer);
                Poll::Pending
            }
            Poll::Ready(read) => {
                let count = read?;
                self.buffer.filled(count);
                self.received += count as u64;
                Poll::Ready(Ok(count))
            }
        }
    }

    /// Prepares to read the body of the request with this head.
    pub(super) fn begin_body(&mut self, head: &RequestHead, limit_bytes: u64) {
        debug_assert!(!self.is_body_unread(), "the last request is not read to its end");
        self.body = match head.framing {
            BodyFraming::None => BodyState::None,
            BodyFraming::Length(length) => BodyState::Length(length),
            BodyFraming::Chunked => BodyState::Chunked(Box::default()),
        };
        self.trailers = None;
        self.continue_owed = head.expect_continue;
        self.takes_interim = head.version == Version::Http11;
        self.limit_bytes = limit_bytes;
        self.taken_bytes = 0;
    }

    /// True if part of an interim response is still to be sent.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Puts the unsent remainder of interim responses before `out`.
    #[cold]
    pub(super) fn prepend_unsent(&mut self, out: &mut Vec<u8>) {
        out.splice(..0, self.unsent.drain(..));
    }

    /// True if part of the body has not been read yet.
    pub(super) fn is_body_unread(&self) -> bool {
        !matches!(self.body, BodyState::None | BodyState::Length(0))
    }

    /// True if the rest of the body may be short enough to drop. The length of a chunked body is
    /// unknown, so it may be.
    pub(super) fn may_be_dropped(&self) -> bool {
        match self.body {
            BodyState::None => true,
            BodyState::Length(left) => left <= limits::DRAIN_BYTES_MAX,
            BodyState::Chunked(_) => true,
            BodyState::Broken => false,
        }
    }

    /// Takes the bytes after the request, for a connection that switches protocols.
    pub(super) fn take_pending(&mut self) -> Bytes {
        let pending = Bytes::copy_from_slice(self.pending());
        self.consume(pending.len());
        pending
    }

    /// True if the client still waits for `100 Continue`; it may never send its body.
    pub(super) fn owes_continue(&self) -> bool {
        self.continue_owed
    }

    /// Marks the response as begun: interim responses would get into it.
    pub(super) fn begin_response(&mut self) {
        self.takes_interim = false;
    }

    /// Sends `100 Continue` when a handler first reads the body, unless part of the body has
    /// already arrived, or the response has begun (RFC 9110 section 10.1.1).
    fn send_continue(&mut self) {
        if std::mem::take(&mut self.continue_owed)
            && self.takes_interim
            && self.taken_bytes == 0
            && self.buffer.is_empty()
            && let Some(stream) = &self.stream
        {
            send_interim(stream, &mut self.unsent, CONTINUE);
        }
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyFault>> {
        debug_assert!(self.buffer.is_empty(), "{} bytes are not taken", self.pending().len());
        self.send_continue();
        if let Some(entry) = self.entry() {
            entry.wait_for_body(&self.clock);
        }
        self.memory.take_back(&mut self.buffer);
        self.memory.bodies.lend(&mut self.buffer);
        let count = match ready!(self.poll_fill(cx, PIECE_BYTES)) {
            Ok(count) => count,
            Err(_) => return Poll::Ready(Err(BodyFault::Disconnected)),
        };
        if let Some(entry) = self.entry() {
            entry.progress.set(entry.progress.get() + count as u64);
        }
        if count > 0 {
            return Poll::Ready(Ok(()));
        }
        let fault = match self.entry().and_then(StreamEntry::cut) {
            Some(Fault::ReadTimeout) => BodyFault::ReadTimeout,
            Some(Fault::ReadRate) => BodyFault::ReadRate,
            _ => BodyFault::Disconnected,
        };
        Poll::Ready(Err(fault))
    }

    /// Counts body bytes against the limit. `announced` is the rest of the current chunk.
    fn account(&mut self, bytes: u64, announced: u64) -> Result<(), BodyFault> {
        self.taken_bytes += bytes;
        if self.limit_bytes > 0 && self.taken_bytes.saturating_add(announced) > self.limit_bytes {
            return Err(BodyFault::TooLarge);
        }
        Ok(())
    }

    /// Takes a piece of the body from the pending bytes.
    fn take_piece(&mut self) -> Result<TakenPiece, BodyFault> {
        let pending = self.buffer.pending();
        match &mut self.body {
            BodyState::None => Ok(TakenPiece::End),
            BodyState::Length(0) => {
                self.body = BodyState::None;
                Ok(TakenPiece::End)
            }
            BodyState::Broken => Err(BodyFault::Disconnected),
            _ if pending.is_empty() => Ok(TakenPiece::NeedsInput),
            BodyState::Length(left) => {
                let count = pending.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                let piece = Bytes::copy_from_slice(&pending[..count]);
                self.consume(count);
                self.account(count as u64, 0)?;
                Ok(TakenPiece::Piece(piece))
            }
            BodyState::Chunked(_) => self.take_chunked(),
        }
    }

    fn take_chunked(&mut self) -> Result<TakenPiece, BodyFault> {
        let BodyState::Chunked(decoder) = &mut self.body else { return Ok(TakenPiece::End) };
        let pending = self.buffer.pending();
        let step = decoder.feed(pending).map_err(|fault| BodyFault::Malformed(fault.message()))?;
        let piece = Bytes::copy_from_slice(&pending[step.data]);
        let announced = decoder.announced();
        if step.done {
            let trailers = decoder.take_trailers();
            self.trailers = (!trailers.is_empty()).then_some(trailers);
            self.body = BodyState::None;
        }
        self.consume(step.consumed);
        self.account(piece.len() as u64, announced)?;
        Ok(match step.done {
            _ if !piece.is_empty() => TakenPiece::Piece(piece),
            true => TakenPiece::End,
            false => TakenPiece::NeedsInput,
        })
    }
}

fn stream_of(entry: &Option<Rc<ConnEntry>>) -> Option<&StreamEntry> {
    entry.as_ref().map(|entry| &entry.stream)
}

/// Bytes of interim responses that may wait for the socket. Further ones are dropped.
const UNSENT_BYTES_MAX: usize = 16 * 1024;

/// Sends an interim response. Keeps the part that the socket does not accept: a partial response
/// would corrupt the next one.
fn send_interim(stream: &Stream, unsent: &mut Vec<u8>, head: &[u8]) {
    if unsent.len() + head.len() > UNSENT_BYTES_MAX {
        return;
    }
    unsent.extend_from_slice(head);
    // The response will meet the same error.
    let sent = stream.try_write(unsent).unwrap_or(0);
    unsent.drain(..sent);
}

/// Detects that the client has gone, and remembers it.
enum Gone {
    Awaited(Pin<Box<dyn Future<Output = Fault>>>),
    Known(Fault),
}

/// Resolves when the client has gone, or has been half-closed for `half_closed_s` seconds (0: no
/// limit). A runtime error ends the worker and everything that waits on it.
async fn wait_until_gone(stream: Rc<Stream>, half_closed_s: u32) -> Fault {
    if !matches!(stream.peer_close().await, Ok(PeerClose::Half)) {
        return Fault::ClientGone;
    }
    let broken = stream.reset();
    if half_closed_s == 0 {
        let _ = broken.await;
        return Fault::ClientGone;
    }
    match tokio::time::timeout(Duration::from_secs(half_closed_s.into()), broken).await {
        Ok(_) => Fault::ClientGone,
        Err(_) => Fault::HalfClosed,
    }
}

impl Client for Input {
    fn interim(&mut self, status: Status, fields: &Fields) {
        let Some(stream) = self.stream.as_ref().filter(|_| self.takes_interim) else { return };
        let mut head = Vec::new();
        if encode_head(Version::Http11, status, fields, None, &mut head).is_err() {
            return;
        }
        send_interim(stream, &mut self.unsent, &head);
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        let Some(stream) = &self.stream else { return Poll::Ready(Fault::ClientGone) };
        if stream_of(&self.entry).is_some_and(|entry| entry.cut() == Some(Fault::Killed)) {
            return Poll::Ready(Fault::Killed);
        }
        let gone = self.gone.get_or_insert_with(|| {
            let limit_s =
                stream_of(&self.entry).map_or(0, |entry| entry.limits().half_closed_idle_s);
            Gone::Awaited(Box::pin(wait_until_gone(Rc::clone(stream), limit_s)))
        });
        // A page and a program it runs may both poll this.
        if let Gone::Awaited(waiting) = gone {
            *gone = Gone::Known(ready!(waiting.as_mut().poll(cx)));
        }
        match gone {
            Gone::Known(fault) => Poll::Ready(*fault),
            Gone::Awaited(_) => Poll::Pending,
        }
    }

    fn local_ip(&self) -> Option<IpAddr> {
        match self.stream.as_ref()?.local().ok()? {
            Peer::Inet(address) => Some(address.ip().to_canonical()),
            Peer::Unix => None,
        }
    }

    fn pause_body_timer(&mut self) {
        if let Some(entry) = self.entry() {
            entry.stop_waiting_for_body(&self.clock);
        }
    }

    fn cancel(&mut self) {
        // An orderly close would look like a complete body.
        if let Some(stream) = &self.stream {
            stream.reset_on_close();
        }
    }
}

impl BodySource for Input {
    fn take_trailers(&mut self) -> Option<Fields> {
        self.trailers.take()
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        loop {
            match self.take_piece() {
                Err(fault) => {
                    self.body = BodyState::Broken;
                    return Poll::Ready(Some(Err(fault)));
                }
                Ok(TakenPiece::End) => {
                    self.pause_body_timer();
                    return Poll::Ready(None);
                }
                Ok(TakenPiece::Piece(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(TakenPiece::NeedsInput) => {}
            }
            if let Err(fault) = ready!(self.poll_more(cx)) {
                self.body = BodyState::Broken;
                return Poll::Ready(Some(Err(fault)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::net::UnixStream;

    use super::*;
    use crate::worker::conn_table::{ConnTable, sweep_s};
    use lighty_core::machine::status_board::ConnState;
    use lighty_io::transport::memory;

    #[tokio::test]
    async fn a_body_is_waited_for_from_the_moment_it_is_asked_for() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let stream = Rc::new(Stream::from_unix(ours));
        let clock = Clock::manual(0);
        let mut input = Input::new(clock.clone(), InputMemory::new(1, 1));
        let begun_s = sweep_s(&clock);
        let conn = ConnTable::default().enter(stream.shutdown_handle(), "".into(), begun_s);
        let entry = &conn.stream;
        input.attach(&stream, &conn);
        let mut head = RequestHead::default();
        head.framing = BodyFraming::Length(5);
        input.begin_body(&head, 0);
        entry.wait_for(ConnState::Handler, &clock);
        // The handler first waits elsewhere, and only later reads the body.
        clock.advance(Duration::from_secs(100));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(input.poll_piece(&mut cx).is_pending());
        assert_eq!((entry.state(), entry.since_s()), (ConnState::Body, begun_s + 100));
    }

    #[tokio::test]
    async fn bodies_are_read_in_large_pieces_and_their_buffers_are_given_back() {
        const BYTES: usize = 48 * 1024;
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let stream = Rc::new(Stream::from_unix(ours));
        let memory = InputMemory::new(1, 1);
        let mut input = Input::new(Clock::manual(0), memory.clone());
        let conn = ConnTable::default().enter(stream.shutdown_handle(), "".into(), 0);
        input.attach(&stream, &conn);
        let mut head = RequestHead::default();
        head.framing = BodyFraming::Length(BYTES as u64);
        input.begin_body(&head, 0);
        theirs.writable().await.expect("room");
        assert_eq!(theirs.try_write(&[b'a'; BYTES]).expect("written"), BYTES);
        let piece = std::future::poll_fn(|cx| input.poll_piece(cx)).await;
        assert_eq!(piece.expect("a piece").expect("no fault").len(), BYTES);
        input.detach();
        let mut next = ReadBuf::default();
        memory.bodies.lend(&mut next);
        assert_eq!(next.room(1, 1).map(|room| room.len()), Some(PIECE_BYTES));
    }

    #[tokio::test]
    async fn unsent_rest_of_an_interim_response_precedes_the_response() {
        let (ours, theirs) =
            memory::pair(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], 1).into(), 30);
        let stream = Rc::new(Stream::from_memory(ours));
        let mut input = Input::new(Clock::manual(0), InputMemory::new(1, 1));
        let conn = ConnTable::default().enter(stream.shutdown_handle(), "".into(), 0);
        input.attach(&stream, &conn);
        let mut head = RequestHead::default();
        (head.version, head.framing) = (Version::Http11, BodyFraming::None);
        input.begin_body(&head, 0);
        let mut fields = Fields::default();
        fields.push(b"Link", b"</style.css>");
        input.interim(Status::new(103).expect("a status"), &fields);
        assert!(input.has_unsent());
        let mut buffer = [0; 30];
        assert_eq!(theirs.read(&mut buffer).await.expect("its beginning"), 30);
        let mut out = b"HTTP/1.1 200 OK".to_vec();
        input.prepend_unsent(&mut out);
        let heard = [&buffer[..], &out].concat();
        let wanted = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\nHTTP/1.1 200 OK";
        assert_eq!(String::from_utf8_lossy(&heard), wanted);
        assert!(!input.has_unsent());
    }
}
