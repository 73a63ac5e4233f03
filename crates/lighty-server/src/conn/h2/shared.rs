//! State that the loop of a connection shares with its streams: the machine, content that waits to
//! be sent, and content that was received.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use lighty_core::settings::limits;
use lighty_http::{Fields, Status};
use lighty_io::transport::Stream;
use lighty_wire::http1::trailer;
use lighty_wire::http2::frame::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES};
use lighty_wire::http2::{Connection, DataFrame, ErrorCode, SendFault, StreamKey};

use super::lingering::Lingering;
use crate::conn_table::StreamEntry;

/// Limit on the queued content of all streams, in bytes. A stream without any may always add
/// [`STREAM_BYTES_MIN`], so that an urgent response does not wait for others.
const QUEUED_BYTES_MAX: usize = 256 * 1024;

const STREAM_BYTES_MIN: usize = 16 * 1024;

/// Interim responses are dropped while so many bytes wait to be written.
const INTERIM_BYTES_MAX: usize = 64 * 1024;

/// A stream of a connection.
#[derive(Clone)]
pub(super) struct StreamRef {
    pub(super) shared: Rc<RefCell<Shared>>,
    pub(super) key: StreamKey,
}

/// The machine of one connection, and its streams.
pub(super) struct Shared {
    pub machine: Connection,
    pub stream: Rc<Stream>,
    slots: Vec<Slot>,
    /// Content of all streams that waits to be written.
    queued_bytes: usize,
    /// Streams with a task that waits to send.
    waiting: Vec<StreamKey>,
    /// Streams to be released when their content is written.
    over: Vec<StreamKey>,
    rest: Box<ConnectionRest>,
}

/// Wait state of a connection. Boxed, so that a connection fits into the allocator's block.
#[derive(Default)]
struct ConnectionRest {
    lingering: Lingering,
    /// Wakes the connection's own task, which alone reads and writes.
    connection: Option<Waker>,
    /// The connection's task waits and has to be woken when output, a window or a timer changes:
    /// bodies are also read by tasks outside it, such as the one that reads a response ahead.
    is_resting: bool,
    /// The client sends nothing more.
    has_input_ended: bool,
}

/// Condition that a sending task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendWait {
    Room,
    /// The machine has taken all its content.
    Drained,
}

/// A stream's content between the machine and the stream's task.
#[derive(Default)]
struct Slot {
    key: Option<StreamKey>,
    content: VecDeque<Bytes>,
    content_bytes: usize,
    received: Vec<u8>,
    has_ended: bool,
    /// Received content is dropped.
    discards: bool,
    is_reset: bool,
    /// Its exchange has ended.
    is_answered: bool,
    /// Bytes dropped since then.
    dropped: u64,
    /// Its response is complete, and its client still sends.
    lingers: bool,
    /// Trailers of the request. Boxed, because few requests have some.
    trailers: Option<Box<Fields>>,
    sender: Option<(SendWait, Waker)>,
    reader: Option<Waker>,
    watcher: Option<Waker>,
    /// Counts the bytes sent.
    progress: Option<Rc<StreamEntry>>,
}

impl Slot {
    fn begin(&mut self, key: StreamKey, ends: bool) {
        self.key = Some(key);
        self.has_ended = ends;
        self.received.clear();
        (self.discards, self.is_reset, self.is_answered) = (false, false, false);
        (self.dropped, self.lingers) = (0, false);
        self.trailers = None;
    }

    /// Marks the stream as lost: nothing is sent or received any more.
    fn lose(&mut self) {
        self.is_reset = true;
        self.content.clear();
        self.content_bytes = 0;
        self.received.clear();
        let sender = self.sender.take().map(|(_, waker)| waker);
        let waiting = [sender, self.reader.take(), self.watcher.take()];
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl Shared {
    pub(super) fn new(machine: Connection, stream: Rc<Stream>) -> Self {
        Self {
            machine,
            stream,
            slots: Vec::new(),
            queued_bytes: 0,
            waiting: Vec::new(),
            over: Vec::new(),
            rest: Box::default(),
        }
    }

    /// Registers that the connection's task runs and will write all changes.
    pub(super) fn begin_poll(&mut self) {
        self.rest.is_resting = false;
    }

    /// Registers that the connection's task waits. Each change now wakes `waker`.
    pub(super) fn end_poll(&mut self, waker: &Waker) {
        if !self.rest.connection.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.rest.connection = Some(waker.clone());
        }
        self.rest.is_resting = true;
    }

    /// Wakes the connection's task, unless it runs or was woken before.
    fn wake_connection(&mut self) {
        if std::mem::take(&mut self.rest.is_resting)
            && let Some(connection) = &self.rest.connection
        {
            connection.wake_by_ref();
        }
    }

    /// Opens windows by the bytes consumed. Small credits wait in the machine and need no write.
    fn credit(&mut self, key: StreamKey, bytes: usize) {
        self.machine.credit(key, bytes);
        if self.machine.output_bytes() > 0 {
            self.wake_connection();
        }
    }

    /// Adds a stream; `ends` if its request has no content.
    pub(super) fn begin(&mut self, key: StreamKey, ends: bool) {
        if self.slots.len() <= key.slot() {
            self.slots.resize_with(key.slot() + 1, Slot::default);
        }
        self.slots[key.slot()].begin(key, ends);
    }

    /// Frees the memory of streams, if there are none.
    pub(super) fn rest(&mut self) {
        self.machine.rest();
        if self.machine.streams_alive() == 0 {
            (self.slots, self.waiting, self.over) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    fn slot(&mut self, key: StreamKey) -> Option<&mut Slot> {
        self.slots.get_mut(key.slot()).filter(|slot| slot.key == Some(key))
    }

    /// Returns the slot, or an error if the stream was reset.
    fn live(&mut self, key: StreamKey) -> io::Result<&mut Slot> {
        self.slot(key).filter(|slot| !slot.is_reset).ok_or_else(gone)
    }

    /// Counts the bytes sent of the stream in `entry` from now on.
    pub(super) fn count_progress(&mut self, key: StreamKey, entry: &Rc<StreamEntry>) {
        if let Some(slot) = self.slot(key) {
            slot.progress = Some(Rc::clone(entry));
        }
    }

    /// Wakes the tasks that read the request bodies of these slots, if the sweep has ended their
    /// wait. The sweep wakes a stream's own task only. Where a response is read ahead, another task
    /// reads the request's body, and would notice with the next bytes.
    pub(super) fn wake_cut_readers(&mut self, slots: &[u32]) {
        for &slot in slots {
            let Some(slot) = self.slots.get_mut(slot as usize) else { continue };
            if slot.reader.is_some() && slot.progress.as_ref().is_some_and(|e| e.cut().is_some()) {
                slot.reader.take().into_iter().for_each(Waker::wake);
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
        let Ok(slot) = self.live(key) else { return 0 };
        let own = slot.content_bytes;
        let allowed = match QUEUED_BYTES_MAX.saturating_sub(queued) {
            0 => STREAM_BYTES_MIN.saturating_sub(own),
            left => left.max(STREAM_BYTES_MIN.saturating_sub(own)),
        };
        self.machine.room(key).min(allowed)
    }

    /// True if the client's windows have no room yet for content of a stream that is alive.
    pub(super) fn lacks_window(&mut self, key: StreamKey) -> bool {
        self.live(key).is_ok() && self.machine.room(key) == 0 && !self.rest.has_input_ended
    }

    /// True if the windows have no room for content of the stream, and never will.
    fn has_last_window(&mut self, key: StreamKey) -> bool {
        self.rest.has_input_ended && self.machine.room(key) == 0
    }

    /// Adds content, within [`room`](Self::room); `ends` if it is the last.
    pub(super) fn push(&mut self, key: StreamKey, bytes: Bytes, ends: bool) -> io::Result<()> {
        self.live(key)?;
        let length = bytes.len();
        self.machine.queue_data(key, length as u64, ends).map_err(|_| gone())?;
        if length > 0 {
            self.queued_bytes += length;
            let slot = self.live(key)?;
            slot.content_bytes += length;
            slot.content.push_back(bytes);
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
        self.slot(key).map_or(0, |slot| slot.content_bytes)
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
            Ok(slot) if slot.content_bytes == 0 => Poll::Ready(Ok(())),
            _ => self.wait_to_send(key, SendWait::Drained, cx),
        }
    }

    fn wait_to_send<T>(
        &mut self,
        key: StreamKey,
        wait: SendWait,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let slot = match self.live(key) {
            Ok(slot) => slot,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let is_new = slot.sender.is_none();
        slot.sender = Some((wait, cx.waker().clone()));
        if is_new {
            self.waiting.push(key);
        }
        Poll::Pending
    }

    /// Wakes the tasks that can go on sending.
    pub(super) fn wake_senders(&mut self) {
        let mut nth = 0;
        while let Some(&key) = self.waiting.get(nth) {
            let wait = self.slot(key).and_then(|slot| Some((slot.sender.as_ref()?.0, slot)));
            let may_go_on = match wait {
                None => true,
                Some((SendWait::Drained, slot)) => slot.content_bytes == 0,
                Some((SendWait::Room, _)) => self.room(key) > 0 || self.has_last_window(key),
            };
            if !may_go_on {
                nth += 1;
                continue;
            }
            self.waiting.swap_remove(nth);
            if let Some((_, waker)) = self.slot(key).and_then(|slot| slot.sender.take()) {
                waker.wake();
            }
        }
    }

    /// Adds received content; `ends` if it is the last.
    pub(super) fn receive(&mut self, key: StreamKey, bytes: &[u8], ends: bool) {
        let Some(slot) = self.slot(key) else { return };
        slot.has_ended |= ends;
        if slot.discards || slot.is_answered || slot.is_reset {
            slot.dropped += bytes.len() as u64;
            if slot.is_answered && slot.content_bytes == 0 {
                self.over.push(key);
            }
            self.credit(key, bytes.len());
            return;
        }
        slot.received.extend_from_slice(bytes);
        if let Some(reader) = slot.reader.take() {
            reader.wake();
        }
    }

    /// The trailers in the machine's head end the content.
    pub(super) fn receive_trailers(&mut self, key: StreamKey) {
        let mut permitted = Fields::new();
        for (known, name, value) in self.machine.head().fields.iter_known() {
            if trailer::is_allowed(name) {
                permitted.push_looked_up(known, name, value);
            }
        }
        if let Some(slot) = self.slot(key) {
            slot.trailers = (!permitted.is_empty()).then(|| Box::new(permitted));
        }
        self.receive(key, &[], true);
    }

    /// Takes the received content; `None` at the end. Waits if there is none.
    pub(super) fn poll_received(
        &mut self,
        key: StreamKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        let Ok(slot) = self.live(key) else { return Poll::Ready(Err(gone())) };
        if !slot.received.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut slot.received));
            self.credit(key, bytes.len());
            return Poll::Ready(Ok(Some(bytes)));
        }
        if slot.has_ended {
            return Poll::Ready(Ok(None));
        }
        slot.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns true if content has arrived that was not read.
    pub(super) fn has_content(&self, key: StreamKey) -> bool {
        self.slots.get(key.slot()).is_some_and(|slot| !slot.received.is_empty())
    }

    /// Ready once content has arrived, or the stream has ended.
    pub(super) fn poll_readable(
        &mut self,
        key: StreamKey,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Ok(slot) = self.live(key) else { return Poll::Ready(Err(gone())) };
        if !slot.received.is_empty() || slot.has_ended {
            return Poll::Ready(Ok(()));
        }
        slot.reader = Some(cx.waker().clone());
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
        let slot = self.live(key)?;
        let count = slot.received.len().min(buffer.len());
        buffer[..count].copy_from_slice(&slot.received[..count]);
        slot.received.drain(..count);
        self.credit(key, count);
        Poll::Ready(Ok(count))
    }

    /// Returns true if content has arrived, or the stream has ended.
    pub(super) fn has_received(&mut self, key: StreamKey) -> bool {
        self.slot(key).is_none_or(|slot| !slot.received.is_empty() || slot.has_ended)
    }

    /// Drops all content received from now on.
    pub(super) fn discard(&mut self, key: StreamKey) {
        let Some(slot) = self.slot(key) else { return };
        slot.discards = true;
        let dropped = slot.received.len();
        slot.received = Vec::new();
        self.credit(key, dropped);
    }

    pub(super) fn take_trailers(&mut self, key: StreamKey) -> Option<Fields> {
        self.slot(key)?.trailers.take().map(|trailers| *trailers)
    }

    /// Ready once the stream was reset or the connection is lost.
    pub(super) fn poll_gone(&mut self, key: StreamKey, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(slot) = self.live(key) else { return Poll::Ready(()) };
        slot.watcher = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Handles a stream that the machine no longer has: the client has reset it, or broken a rule.
    pub(super) fn lose(&mut self, key: StreamKey) {
        let Some(slot) = self.slot(key) else { return };
        let (dropped, is_answered) = (slot.content_bytes, slot.is_answered);
        slot.lose();
        self.queued_bytes -= dropped;
        if is_answered {
            self.over.push(key);
        }
    }

    /// Handles the end of the client's input: streams with incomplete requests are lost. Returns
    /// whether any others are left.
    pub(super) fn end_input(&mut self) -> bool {
        self.rest.has_input_ended = true;
        self.machine.end_input();
        let mut has_whole_request = false;
        for nth in 0..self.slots.len() {
            let slot = &mut self.slots[nth];
            match slot.key.filter(|_| !slot.is_reset) {
                Some(_) if slot.has_ended => {
                    has_whole_request = true;
                    slot.watcher.take().into_iter().for_each(Waker::wake);
                }
                Some(key) => self.lose(key),
                None => {}
            }
        }
        has_whole_request
    }

    /// Returns true if the client sends nothing more.
    pub(super) fn has_input_ended(&self) -> bool {
        self.rest.has_input_ended
    }

    /// Like [`lose`](Self::lose), for all streams.
    pub(super) fn lose_all(&mut self) {
        for nth in 0..self.slots.len() {
            if let Some(key) = self.slots[nth].key.filter(|_| !self.slots[nth].is_reset) {
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
        let Some(slot) = self.slot(key) else { return };
        slot.is_answered = true;
        slot.progress = None;
        (slot.sender, slot.reader, slot.watcher) = (None, None, None);
        let unread = std::mem::take(&mut slot.received).len();
        let is_over = slot.content_bytes == 0;
        self.credit(key, unread);
        if is_over {
            self.over.push(key);
        }
        self.wake_connection();
    }

    /// Collects frames of all streams to write: as much content as fits into `write_bytes`, but at
    /// least one frame.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, write_bytes: usize, now_ms: u64) {
        while let Some(frame) = self.machine.poll_data(FRAME_BYTES_MAX, now_ms, out) {
            self.take_content(frame, out);
            if out.len() + FRAME_HEAD_BYTES + FRAME_BYTES_MAX > write_bytes {
                break;
            }
        }
        self.release(now_ms);
        self.machine.poll_output(out);
        self.wake_senders();
    }

    /// Releases the ended streams. A stream lingers while its client still sends, so that a few
    /// bytes in flight do not cause a reset.
    fn release(&mut self, now_ms: u64) {
        while let Some(key) = self.over.pop() {
            let Some(slot) = self.slot(key) else { continue };
            if !slot.has_ended && !slot.is_reset && slot.dropped <= limits::DRAIN_BYTES_MAX {
                if !std::mem::replace(&mut slot.lingers, true) {
                    self.rest.lingering.push(key, now_ms);
                }
                continue;
            }
            slot.key = None;
            if slot.lingers {
                self.rest.lingering.remove(key);
            }
            self.machine.release(key);
        }
    }

    /// Returns the time of the next call to [`stop_lingering`](Self::stop_lingering).
    pub(super) fn lingers_until_ms(&self) -> Option<u64> {
        self.rest.lingering.until_ms()
    }

    /// Resets the lingering streams that clients have sent on for too long.
    pub(super) fn stop_lingering(&mut self, now_ms: u64) {
        while let Some(key) = self.rest.lingering.pop_overdue(now_ms) {
            if let Some(slot) = self.slot(key) {
                slot.key = None;
            }
            self.machine.release(key);
        }
    }

    /// Appends a frame's content after the frame header.
    fn take_content(&mut self, frame: DataFrame, out: &mut Vec<u8>) {
        let slot = &mut self.slots[frame.stream.slot()];
        let mut left = frame.len;
        while left > 0
            && let Some(front) = slot.content.front_mut()
        {
            let count = left.min(front.len());
            lighty_buf::append(out, &front[..count]);
            front.advance(count);
            if front.is_empty() {
                slot.content.pop_front();
            }
            left -= count;
        }
        debug_assert_eq!(left, 0, "content was announced that is not there");
        slot.content_bytes -= frame.len;
        self.queued_bytes -= frame.len;
        if let Some(entry) = &slot.progress {
            entry.progress.set(entry.progress.get() + frame.len as u64);
        }
        if slot.is_answered && slot.content_bytes == 0 {
            self.over.push(frame.stream);
        }
    }
}
