//! State that the loop of a connection shares with its streams: the codec (`machine`), content that
//! waits to be sent, and content that was received.
//!
//! [`H2Shared`] has methods of three kinds. H2Input, called by the loop: `begin`, `receive`,
//! `receive_trailers`, `lose`, `lose_all` and `end_input` pass on the client's frames;
//! `stop_lingering` takes the time. Commands of a stream's tasks: `send_head`, `push`,
//! `send_trailers`, `discard`, `reset` and, as the last one, `end`; the `poll_` methods wait, one
//! task for each of room, content and reset. Output: `fill` appends frames of all streams, releases
//! the streams that are complete, and wakes the tasks that may go on. Timers: `lingers_until_ms`
//! returns the time of the next `stop_lingering`.
//!
//! The state of a stream is a [`StreamState`](super::stream_state::StreamState). A command on a
//! stream that was reset fails with `ConnectionReset`. No task calls any after `end`.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use lighty_core::settings::limits;
use lighty_http::{Fields, Status};
use lighty_io::clock::Clock;
use lighty_io::transport::Stream;
use lighty_wire::http1::trailer;
use lighty_wire::http2::frame::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES};
use lighty_wire::http2::{Connection, DataFrame, ErrorCode, SendFault, StreamKey};

use super::lingering::Lingering;
use super::stream_buffers::{H2StreamBuffers, SendWait};
use super::stream_state::{StreamAction, StreamEvent, StreamRecv, StreamSend};
use super::turns::{Look, Turns};
use crate::worker::conn_table::StreamEntry;

/// Limit on the queued content of all streams, in bytes. A stream without any may always add
/// [`STREAM_BYTES_MIN`], so that an urgent response does not wait for others.
const QUEUED_BYTES_MAX: usize = 256 * 1024;

const STREAM_BYTES_MIN: usize = 16 * 1024;

/// Interim responses are dropped while so many bytes wait to be written.
const INTERIM_BYTES_MAX: usize = 64 * 1024;

/// A stream of a connection.
#[derive(Clone)]
pub(super) struct StreamRef {
    pub(super) shared: Rc<RefCell<H2Shared>>,
    pub(super) key: StreamKey,
}

/// The machine of one connection, and its streams.
pub(super) struct H2Shared {
    pub machine: Connection,
    pub stream: Rc<Stream>,
    /// By the codec's slots.
    buffers: Vec<H2StreamBuffers>,
    /// Content of all streams that waits to be written.
    queued_bytes: usize,
    /// Streams with a task that waits to send.
    waiting: Vec<StreamKey>,
    /// Streams to be released with the next write.
    over: Vec<StreamKey>,
    wait: Box<ConnectionWait>,
}

/// State of the connection's own task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ConnectionTask {
    /// It runs or was woken, and will write all changes.
    #[default]
    Runs,
    /// It has to be woken when output, a window or a timer changes: bodies are also read by tasks
    /// outside it, such as the one that reads a response ahead.
    Waits,
}

/// Wait state of a connection. Boxed, so that a connection fits into the allocator's block.
#[derive(Default)]
struct ConnectionWait {
    turns: Turns,
    lingering: Lingering,
    /// Wakes the connection's own task, which alone reads and writes.
    waker: Option<Waker>,
    task: ConnectionTask,
    /// The client sends nothing more.
    has_input_ended: bool,
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl H2Shared {
    pub(super) fn new(machine: Connection, stream: Rc<Stream>) -> Self {
        Self {
            machine,
            stream,
            buffers: Vec::new(),
            queued_bytes: 0,
            waiting: Vec::new(),
            over: Vec::new(),
            wait: Box::default(),
        }
    }

    /// Registers that the connection's task runs and will write all changes.
    pub(super) fn begin_poll(&mut self) {
        self.wait.task = ConnectionTask::Runs;
    }

    /// Registers that the connection's task waits. Each change now wakes `waker`.
    pub(super) fn end_poll(&mut self, waker: &Waker) {
        if !self.wait.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.wait.waker = Some(waker.clone());
        }
        self.wait.task = ConnectionTask::Waits;
    }

    /// Wakes the connection's task, unless it runs or was woken before.
    fn wake_connection(&mut self) {
        if std::mem::take(&mut self.wait.task) == ConnectionTask::Waits
            && let Some(waker) = &self.wait.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Opens windows by the bytes consumed. Small credits wait in the machine and need no write.
    fn credit(&mut self, key: StreamKey, bytes: usize) {
        let before = self.machine.output_bytes();
        self.machine.credit(key, bytes);
        if self.machine.output_bytes() > before {
            let H2Shared { buffers, wait, .. } = self;
            let known = buffers.get_mut(key.slot()).filter(|buffers| buffers.key == Some(key));
            known.into_iter().for_each(|buffers| wait.turns.open_window(&mut buffers.turns));
        }
        if self.machine.output_bytes() > 0 {
            self.wake_connection();
        }
    }

    /// Adds a stream; `ends` if its request has no content.
    pub(super) fn begin(&mut self, key: StreamKey, ends: bool) {
        if self.buffers.len() <= key.slot() {
            self.buffers.resize_with(key.slot() + 1, H2StreamBuffers::default);
        }
        self.buffers[key.slot()].begin(key, ends);
    }

    /// Frees the memory of streams, if there are none.
    pub(super) fn release_buffers(&mut self) {
        self.machine.release_buffers();
        if self.machine.streams_alive() == 0 {
            debug_assert_eq!(self.queued_bytes, 0, "content of no stream");
            debug_assert!(self.waiting.is_empty() && self.over.is_empty(), "{:?}", self.over);
            debug_assert_eq!(self.wait.lingering.until_ms(), None, "no stream lingers");
            (self.buffers, self.waiting, self.over) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    fn buffers(&mut self, key: StreamKey) -> Option<&mut H2StreamBuffers> {
        self.buffers.get_mut(key.slot()).filter(|buffers| buffers.key == Some(key))
    }

    /// Returns the stream's buffers, or an error if it was reset.
    fn live(&mut self, key: StreamKey) -> io::Result<&mut H2StreamBuffers> {
        self.buffers(key).filter(|buffers| buffers.state.is_live()).ok_or_else(gone)
    }

    /// Counts the bytes sent of the stream in `entry` from now on.
    pub(super) fn count_progress(&mut self, key: StreamKey, entry: &Rc<StreamEntry>) {
        if let Some(buffers) = self.buffers(key) {
            buffers.progress = Some(Rc::clone(entry));
        }
    }

    /// Wakes the tasks that read the request bodies of these slots, if the sweep has ended their
    /// wait. The sweep wakes a stream's own task only. Where a response is read ahead, another task
    /// reads the request's body, and would notice with the next bytes.
    pub(super) fn wake_cut_readers(&mut self, slots: &[u32]) {
        for &slot in slots {
            let Some(buffers) = self.buffers.get_mut(slot as usize) else { continue };
            let is_cut = |entry: &Rc<StreamEntry>| entry.cut().is_some();
            if buffers.reader.is_some() && buffers.progress.as_ref().is_some_and(is_cut) {
                buffers.reader.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Sends a head and returns its length in bytes.
    pub(super) fn send_head(
        &mut self,
        key: StreamKey,
        status: Status,
        fields: &Fields,
        ends: bool,
    ) -> Result<u64, SendFault> {
        self.live(key).map_err(|_| SendFault::Gone)?;
        let before = self.machine.output_bytes();
        self.machine.send_head(key, status, fields, ends)?;
        self.wake_connection();
        Ok((self.machine.output_bytes() - before) as u64)
    }

    /// Sends an interim response, if there is room for it.
    pub(super) fn send_interim(&mut self, key: StreamKey, status: Status, fields: &Fields) {
        if self.machine.output_bytes() < INTERIM_BYTES_MAX {
            // An interim response may be lost: the client does not need it.
            let _ = self.send_head(key, status, fields, false);
        }
    }

    /// Returns the bytes of content that the stream may add.
    pub(super) fn room(&mut self, key: StreamKey) -> usize {
        let queued = self.queued_bytes;
        let Ok(buffers) = self.live(key) else { return 0 };
        let own = buffers.content_bytes();
        let allowed = match QUEUED_BYTES_MAX.saturating_sub(queued) {
            0 => STREAM_BYTES_MIN.saturating_sub(own),
            left => left.max(STREAM_BYTES_MIN.saturating_sub(own)),
        };
        self.machine.room(key).min(allowed)
    }

    /// True if the client's windows have no room yet for content of a stream that is alive.
    pub(super) fn lacks_window(&mut self, key: StreamKey) -> bool {
        self.live(key).is_ok() && self.machine.room(key) == 0 && !self.wait.has_input_ended
    }

    /// True if the windows have no room for more content of the stream, and never will. Content
    /// that is queued may still have one.
    pub(super) fn has_last_window(&mut self, key: StreamKey) -> bool {
        self.wait.has_input_ended && self.machine.room(key) == 0 && self.unsent(key) == 0
    }

    /// Adds content, within [`room`](Self::room); `ends` if it is the last.
    pub(super) fn push(&mut self, key: StreamKey, bytes: Bytes, ends: bool) -> io::Result<()> {
        self.live(key)?;
        let length = bytes.len();
        self.machine.queue_data(key, length as u64, ends).map_err(|_| gone())?;
        if length > 0 {
            self.queued_bytes += length;
            self.live(key)?.push(bytes);
        }
        self.wake_connection();
        Ok(())
    }

    pub(super) fn send_trailers(&mut self, key: StreamKey, fields: &Fields) -> io::Result<()> {
        self.live(key)?;
        match self.machine.send_trailers(key, fields) {
            Ok(()) => {
                self.wake_connection();
                Ok(())
            }
            // The backend sent an invalid field, but the content is complete.
            Err(SendFault::Name | SendFault::Value) => self.push(key, Bytes::new(), true),
            Err(_) => Err(gone()),
        }
    }

    /// Returns the bytes of the stream's content that were added and are not written yet.
    pub(super) fn unsent(&mut self, key: StreamKey) -> usize {
        self.buffers(key).map_or(0, |buffers| buffers.content_bytes())
    }

    /// Returns the bytes of the stream's content that were added and that the client does not get.
    pub(super) fn never_sent(&mut self, key: StreamKey) -> usize {
        self.buffers(key).map_or(0, |buffers| buffers.content_bytes() + buffers.lost_bytes)
    }

    /// Returns true if content waits whose exchange has ended.
    pub(super) fn has_draining(&self) -> bool {
        self.queued_bytes > 0
            && self.buffers.iter().any(|buffers| buffers.state.send == StreamSend::Draining)
    }

    /// Waits until there is room for content. Returns the room in bytes.
    pub(super) fn poll_room(
        &mut self,
        key: StreamKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match self.room(key) {
            0 if self.has_last_window(key) => Poll::Ready(Err(gone())),
            0 => self.wait_to_send(key, SendWait::Room, cx),
            room => Poll::Ready(Ok(room)),
        }
    }

    /// Waits until all content is taken.
    pub(super) fn poll_drained(
        &mut self,
        key: StreamKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self.live(key) {
            Ok(buffers) if buffers.content_bytes() == 0 => Poll::Ready(Ok(())),
            _ => self.wait_to_send(key, SendWait::Drained, cx),
        }
    }

    fn wait_to_send<T>(
        &mut self,
        key: StreamKey,
        wait: SendWait,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let buffers = match self.live(key) {
            Ok(buffers) => buffers,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let is_new = buffers.sender.is_none();
        buffers.sender = Some((wait, cx.waker().clone()));
        debug_assert_ne!(is_new, self.waiting.contains(&key), "{key:?} of {:?}", self.waiting);
        if is_new {
            self.waiting.push(key);
        }
        Poll::Pending
    }

    /// Wakes the tasks that can go on sending.
    pub(super) fn wake_senders(&mut self) {
        let mut nth = 0;
        while let Some(&key) = self.waiting.get(nth) {
            let buffers = self.buffers(key);
            let wait = buffers.and_then(|buffers| Some((buffers.sender.as_ref()?.0, buffers)));
            let may_go_on = match wait {
                None => true,
                Some((SendWait::Drained, buffers)) => buffers.content_bytes() == 0,
                Some((SendWait::Room, _)) => self.room(key) > 0 || self.has_last_window(key),
            };
            if !may_go_on {
                nth += 1;
                continue;
            }
            self.waiting.swap_remove(nth);
            if let Some((_, waker)) = self.buffers(key).and_then(|b| b.sender.take()) {
                waker.wake();
            }
        }
    }

    /// Adds received content; `ends` if it is the last.
    pub(super) fn receive(&mut self, key: StreamKey, bytes: &[u8], ends: bool) {
        let Some(buffers) = self.buffers(key) else { return };
        let event = if ends { StreamEvent::LastContent } else { StreamEvent::Content };
        let action = buffers.state.handle(event);
        if action == StreamAction::Keep {
            buffers.received.extend_from_slice(bytes);
            if let Some(reader) = buffers.reader.take() {
                reader.wake();
            }
            return;
        }
        buffers.dropped += bytes.len() as u64;
        if action == StreamAction::DropThenRelease {
            self.over.push(key);
        }
        self.credit(key, bytes.len());
    }

    /// The trailers in the machine's head end the content.
    pub(super) fn receive_trailers(&mut self, key: StreamKey) {
        let mut permitted = Fields::new();
        for (known, name, value) in self.machine.head().fields.iter_known() {
            if trailer::is_allowed(name) {
                permitted.push_looked_up(known, name, value);
            }
        }
        if let Some(buffers) = self.buffers(key) {
            debug_assert!(buffers.trailers.is_none(), "{key:?}: trailers come once");
            buffers.trailers = (!permitted.is_empty()).then(|| Box::new(permitted));
        }
        self.receive(key, &[], true);
    }

    /// Takes the received content; `None` at the end. Waits if there is none.
    pub(super) fn poll_received(
        &mut self,
        key: StreamKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        let Ok(buffers) = self.live(key) else { return Poll::Ready(Err(gone())) };
        if !buffers.received.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut buffers.received));
            self.credit(key, bytes.len());
            return Poll::Ready(Ok(Some(bytes)));
        }
        if buffers.state.recv == StreamRecv::Ended {
            return Poll::Ready(Ok(None));
        }
        buffers.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns true if content has arrived that was not read.
    pub(super) fn has_content(&self, key: StreamKey) -> bool {
        self.buffers.get(key.slot()).is_some_and(|buffers| !buffers.received.is_empty())
    }

    /// Ready once content has arrived, or the stream has ended.
    pub(super) fn poll_readable(
        &mut self,
        key: StreamKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Ok(buffers) = self.live(key) else { return Poll::Ready(Err(gone())) };
        if buffers.has_input() {
            return Poll::Ready(Ok(()));
        }
        buffers.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads received content into `buffer`; 0 at the end. The window opens by the bytes taken.
    pub(super) fn poll_read(
        &mut self,
        key: StreamKey,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_readable(key, cx))?;
        let buffers = self.live(key)?;
        let count = buffers.received.len().min(buffer.len());
        buffer[..count].copy_from_slice(&buffers.received[..count]);
        buffers.received.drain(..count);
        self.credit(key, count);
        Poll::Ready(Ok(count))
    }

    /// Returns true if content has arrived, or the stream has ended.
    pub(super) fn has_received(&mut self, key: StreamKey) -> bool {
        self.buffers(key).is_none_or(|buffers| buffers.has_input())
    }

    /// Drops all content received from now on.
    pub(super) fn discard(&mut self, key: StreamKey) {
        let Some(buffers) = self.buffers(key) else { return };
        buffers.state.handle(StreamEvent::Discard);
        let dropped = std::mem::take(&mut buffers.received).len();
        self.credit(key, dropped);
    }

    pub(super) fn take_trailers(&mut self, key: StreamKey) -> Option<Fields> {
        self.buffers(key)?.trailers.take().map(|trailers| *trailers)
    }

    /// Ready once the stream was reset or the connection is lost.
    pub(super) fn poll_gone(&mut self, key: StreamKey, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(buffers) = self.live(key) else { return Poll::Ready(()) };
        buffers.watcher = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Handles a stream that the machine no longer has: the client has reset it, or broken a rule.
    pub(super) fn lose(&mut self, key: StreamKey) {
        let Some(buffers) = self.buffers(key) else { return };
        let dropped = buffers.drop_content();
        let action = buffers.state.handle(StreamEvent::Lose);
        self.queued_bytes -= dropped;
        match action {
            StreamAction::QueueRelease => self.over.push(key),
            StreamAction::StopLingering => {
                self.wait.lingering.remove(key);
                self.over.push(key);
            }
            _ => {}
        }
    }

    /// Handles the end of the client's input: streams with incomplete requests are lost. Returns
    /// whether any others are left.
    pub(super) fn end_input(&mut self) -> bool {
        debug_assert!(!self.wait.has_input_ended, "input ends once");
        self.wait.has_input_ended = true;
        self.machine.end_input();
        let mut has_whole_request = false;
        for nth in 0..self.buffers.len() {
            let buffers = &mut self.buffers[nth];
            match buffers.key.filter(|_| !buffers.state.is_lost()) {
                Some(_) if buffers.state.recv == StreamRecv::Ended => {
                    has_whole_request = true;
                    buffers.watcher.take().into_iter().for_each(Waker::wake);
                }
                Some(key) => {
                    // The codec must not announce content that is dropped here. A whole response is
                    // valid (RFC 9113 section 8.1).
                    let is_whole = buffers.state.has_sent_response();
                    let code = if is_whole { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL };
                    self.machine.reset(key, code);
                    self.lose(key);
                }
                None => {}
            }
        }
        has_whole_request
    }

    /// Returns true if the client sends nothing more.
    pub(super) fn has_input_ended(&self) -> bool {
        self.wait.has_input_ended
    }

    /// Like [`lose`](Self::lose), for all streams.
    pub(super) fn lose_all(&mut self) {
        for nth in 0..self.buffers.len() {
            let buffers = &self.buffers[nth];
            if let Some(key) = buffers.key.filter(|_| !buffers.state.is_lost()) {
                self.lose(key);
            }
        }
    }

    /// Resets a stream.
    pub(super) fn reset(&mut self, key: StreamKey, code: ErrorCode) {
        self.machine.reset(key, code);
        self.lose(key);
        self.wake_connection();
    }

    /// Ends the exchange of the stream; the stream is released when its content is written.
    pub(super) fn end(&mut self, key: StreamKey) {
        let H2Shared { buffers, wait, .. } = self;
        let known = buffers.get_mut(key.slot()).filter(|buffers| buffers.key == Some(key));
        let Some(buffers) = known else { return };
        let unread = buffers.end();
        wait.turns.moved(&mut buffers.turns);
        let event = match buffers.content_bytes() {
            0 => StreamEvent::Finish,
            _ => StreamEvent::FinishQueued,
        };
        if buffers.state.handle(event) == StreamAction::QueueRelease {
            self.over.push(key);
        }
        self.credit(key, unread);
        self.wake_connection();
    }

    /// Collects frames of all streams to write: as much content as fits into `write_bytes`, but at
    /// least one frame.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, write_bytes: usize, now_ms: u64) {
        self.wait.turns.begin_write(now_ms);
        while let Some(frame) = self.machine.poll_data(FRAME_BYTES_MAX, now_ms, out) {
            self.take_content(frame, out);
            if out.len() + FRAME_HEAD_BYTES + FRAME_BYTES_MAX > write_bytes {
                break;
            }
        }
        if self.wait.has_input_ended {
            self.lose_stuck();
        }
        self.release(now_ms);
        self.machine.poll_output(out);
        self.wake_senders();
        #[cfg(debug_assertions)]
        self.check();
    }

    /// Checks the counts and queues of a debug build between two turns.
    #[cfg(debug_assertions)]
    fn check(&self) {
        self.buffers.iter().for_each(H2StreamBuffers::check);
        let of = |figure: fn(&H2StreamBuffers) -> usize| self.buffers.iter().map(figure).sum();
        let (queued, senders, lingering): (usize, usize, usize) = (
            of(H2StreamBuffers::content_bytes),
            of(|buffers| usize::from(buffers.sender.is_some())),
            of(|buffers| usize::from(buffers.state.is_lingering())),
        );
        debug_assert_eq!(self.queued_bytes, queued, "content of all streams");
        debug_assert_eq!(self.waiting.len(), senders, "{:?}", self.waiting);
        debug_assert_eq!(self.wait.lingering.len(), lingering, "lingering streams");
        debug_assert!(self.over.is_empty(), "{:?} were not released", self.over);
        let streams = self.buffers.iter().filter(|buffers| buffers.key.is_some()).count();
        debug_assert_eq!(self.machine.streams_alive() as usize, streams, "streams of the codec");
    }

    /// Resets the streams with content that a half-closed client has no window for: it opens none
    /// any more.
    fn lose_stuck(&mut self) {
        for nth in 0..self.buffers.len() {
            let buffers = &self.buffers[nth];
            let is_due = buffers.content_bytes() > 0;
            if let Some(key) = buffers.key.filter(|_| is_due)
                && !self.machine.has_window(key)
            {
                self.reset(key, ErrorCode::CANCEL);
            }
        }
    }

    /// Registers that the socket has accepted `bytes` of a write. Once a second, excuses the
    /// streams that wait for their turn from their timers, and resets stuck streams that have no
    /// task. Returns whether the write has content.
    pub(super) fn accept(&mut self, bytes: usize, look: Look, clock: &Clock) -> bool {
        let turns = &mut self.wait.turns;
        let has_content = turns.accept(bytes);
        if !has_content || !turns.is_look_due(look.now_ms) {
            return has_content;
        }
        let has_window = |key| self.machine.has_own_window(key);
        let stuck = turns.look(look, &mut self.buffers, clock, has_window);
        for key in stuck {
            self.reset(key, ErrorCode::CANCEL);
        }
        has_content
    }

    /// Releases the ended streams. A stream lingers while its client still sends, so that a few
    /// bytes in flight do not cause a reset.
    fn release(&mut self, now_ms: u64) {
        while let Some(key) = self.over.pop() {
            let Some(buffers) = self.buffers(key) else { continue };
            let event = match buffers.dropped {
                ..=limits::DRAIN_BYTES_MAX => StreamEvent::Release,
                _ => StreamEvent::ReleaseExcess,
            };
            match buffers.state.handle(event) {
                StreamAction::Linger => self.wait.lingering.push(key, now_ms),
                StreamAction::Free => self.free(key),
                StreamAction::FreeLingering => {
                    self.wait.lingering.remove(key);
                    self.free(key);
                }
                _ => {}
            }
        }
    }

    fn free(&mut self, key: StreamKey) {
        if let Some(buffers) = self.buffers(key) {
            buffers.free();
        }
        self.machine.release(key);
    }

    /// Returns the time of the next call to [`stop_lingering`](Self::stop_lingering).
    pub(super) fn lingers_until_ms(&self) -> Option<u64> {
        self.wait.lingering.until_ms()
    }

    /// Resets the lingering streams that clients have sent on for too long.
    pub(super) fn stop_lingering(&mut self, now_ms: u64) {
        while let Some(key) = self.wait.lingering.pop_overdue(now_ms) {
            debug_assert!(self.buffers(key).is_some(), "{key:?} was released");
            if let Some(buffers) = self.buffers(key) {
                buffers.state.handle(StreamEvent::LingerOver);
            }
            self.free(key);
        }
    }

    /// Appends a frame's content after the frame header.
    fn take_content(&mut self, frame: DataFrame, out: &mut Vec<u8>) {
        let buffers = &mut self.buffers[frame.stream.slot()];
        debug_assert_eq!(buffers.key, Some(frame.stream), "a frame of a stream that is released");
        buffers.take_content(frame.len, out);
        self.wait.turns.collect(&mut buffers.turns, frame.len);
        self.queued_bytes -= frame.len;
        if let Some(entry) = &buffers.progress {
            entry.progress.set(entry.progress.get() + frame.len as u64);
        }
        if buffers.content_bytes() == 0
            && buffers.state.handle(StreamEvent::Written) == StreamAction::QueueRelease
        {
            self.over.push(frame.stream);
        }
    }
}

#[cfg(test)]
mod tests;
