//! Reads from and writes to the connection.

use std::io;
use std::task::{Context, Poll};

use lighty_core::machine::status_board::ConnState;
use lighty_wire::http2::{ConnFault, Event};

use super::leave::CloseEvent;
use super::turns::Look;
use super::write_state::{WriteEvent, WriteState, WriteTimers};
use super::{H2Buffers, H2Conn, READ_BYTES};

/// Unsent bytes beyond which reading stops. Excludes content, which has its own limits.
const UNSENT_BYTES_MAX: usize = 256 * 1024;

/// Bytes of a frame before its payload (RFC 9113 section 4.1). The payload may have credentials.
const FRAME_HEAD_BYTES: usize = 9;

impl H2Conn<'_> {
    /// Takes bytes that have been read from the connection already.
    pub(super) fn take_early(&mut self, early: &[u8]) {
        self.buffers().input.push(early, READ_BYTES);
        self.conn.worker().machine.counters.bytes_in.add(early.len() as u64);
        self.handle();
    }

    fn buffers(&mut self) -> &mut H2Buffers {
        let worker = self.conn.worker();
        self.buffers.get_or_insert_with(|| worker.acquire_h2_buffers())
    }

    /// Returns the number of bytes taken from the machine that the socket has not accepted.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.buffers.as_ref().map_or(0, |buffers| {
            debug_assert!(buffers.sent <= buffers.out.len(), "{}", buffers.sent);
            buffers.out.len() - buffers.sent
        })
    }

    fn has_too_much_unsent(&self) -> bool {
        self.unsent_bytes() + self.shared.borrow().machine.output_bytes() >= UNSENT_BYTES_MAX
    }

    /// Reads once and handles the received bytes.
    pub(super) fn read(&mut self, cx: &mut Context<'_>) -> bool {
        self.lose_if_broken(cx);
        if !self.close.reads() || self.has_too_much_unsent() {
            return false;
        }
        let conn = self.conn;
        if self.buffers.is_none() {
            // Holds no buffer while nothing arrives.
            match conn.stream.poll_readable(cx) {
                Poll::Pending => return false,
                Poll::Ready(_) => {}
            }
        }
        let buffers = self.buffers();
        let Some(room) = buffers.input.room(READ_BYTES, READ_BYTES) else {
            // A frame is shorter, so the machine has left nothing unread that fills it.
            self.lose();
            return true;
        };
        match conn.stream.poll_read(cx, room) {
            Poll::Pending => false,
            Poll::Ready(Ok(count @ 1..)) => {
                self.buffers().input.filled(count);
                self.conn.worker().machine.counters.bytes_in.add(count as u64);
                self.handle();
                true
            }
            Poll::Ready(Ok(0)) => {
                self.half_close();
                true
            }
            Poll::Ready(Err(_)) => {
                self.lose();
                true
            }
        }
    }

    /// Handles the received bytes.
    fn handle(&mut self) {
        let mut has_consumed = false;
        while let Some(buffers) = &mut self.buffers {
            let mut shared = self.shared.borrow_mut();
            let pending = buffers.input.pending();
            let handled = match shared.machine.handle_input(pending, self.now_ms) {
                Ok(handled) => handled,
                Err(fault) => {
                    let frame = &pending[..pending.len().min(FRAME_HEAD_BYTES)];
                    self.conn.keep_malformed_frame(frame, fault.message());
                    buffers.input.clear();
                    drop(shared);
                    return self.fail(fault);
                }
            };
            if let Some(Event::Data { stream, start, len, ends }) = handled.event {
                shared.receive(stream, &pending[start..start + len], ends);
            }
            debug_assert!(handled.consumed <= pending.len(), "{}", handled.consumed);
            buffers.input.consume(handled.consumed);
            has_consumed |= handled.consumed > 0;
            drop(shared);
            match handled.event {
                Some(event) => self.take(event),
                None => break,
            }
        }
        let is_partial = self.buffers.as_ref().is_some_and(|buffers| !buffers.input.is_empty());
        if has_consumed || !is_partial {
            self.partial_since_ms = is_partial.then_some(self.now_ms);
        } else if self.partial_since_ms.is_none() {
            self.partial_since_ms = Some(self.now_ms);
        }
        // Windows may have grown.
        self.shared.borrow_mut().wake_senders();
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Request { stream, ends } => self.begin_stream(stream, ends, false),
            Event::Oversized { stream, ends } => self.begin_stream(stream, ends, true),
            Event::Trailers { stream } => self.shared.borrow_mut().receive_trailers(stream),
            Event::Reset { stream, .. } => self.shared.borrow_mut().lose(stream),
            // Content was received above. The other events concern clients that send requests.
            Event::Data { .. }
            | Event::GoAway { .. }
            | Event::Pong { .. }
            | Event::Response { .. }
            | Event::Interim { .. } => {}
        }
    }

    /// Ends the connection because the client has broken one of its rules or exceeded a limit.
    pub(super) fn fail(&mut self, fault: ConnFault) {
        self.log_fault(fault.message());
        self.close.handle(CloseEvent::Blame);
        self.shared.borrow_mut().lose_all();
    }

    /// Writes once, for all streams.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.close.writes() {
            // Bytes for a lost client are not kept.
            if let Some(buffers) = &mut self.buffers {
                (buffers.sent, buffers.out) = (0, Vec::new());
                let write_bytes = self.pace.write_bytes();
                self.shared.borrow_mut().fill(&mut buffers.out, write_bytes, self.now_ms);
                buffers.out.clear();
            }
            return false;
        }
        let now_ms = self.now_ms;
        if self.unsent_bytes() == 0 && !self.collect() {
            return false;
        }
        let Some(buffers) = &mut self.buffers else { return false };
        let entry = &self.conn.entry.stream;
        match self.conn.stream.try_write(&buffers.out[buffers.sent..]) {
            Ok(count) => {
                buffers.sent += count;
                self.pace.wrote(count);
                let look = Look {
                    now_ms,
                    idle_s: entry.limits().write_idle_s,
                    write_bytes: buffers.out.len(),
                    sent_bytes: buffers.sent,
                };
                let clock = &self.conn.worker().machine.clock;
                let has_content = self.shared.borrow_mut().accept(count, look, clock);
                // Replies to frames are no progress of content that waits for a window.
                if has_content || self.writes == WriteState::Blocked {
                    entry.progress.set(entry.progress.get() + count as u64);
                }
                if self.unsent_bytes() == 0 {
                    self.note_write(WriteEvent::Accepted);
                    return true;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(_) => {
                self.lose();
                return true;
            }
        }
        if self.note_write(WriteEvent::Blocked) != WriteState::Blocked
            && let Some(bytes) = self.pace.block(now_ms)
        {
            self.conn.stream.set_unsent_max(bytes);
        }
        match self.conn.stream.poll_writable(cx) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(_)) => {
                self.lose();
                true
            }
        }
    }

    /// Collects the frames of the next write. Returns false if there are none.
    fn collect(&mut self) -> bool {
        let worker = self.conn.worker();
        let buffers = self.buffers.get_or_insert_with(|| worker.acquire_h2_buffers());
        buffers.out.clear();
        buffers.sent = 0;
        let write_bytes = self.pace.write_bytes();
        self.shared.borrow_mut().fill(&mut buffers.out, write_bytes, self.now_ms);
        if let Some(bytes) = self.pace.begin(buffers.out.len()) {
            self.conn.stream.set_unsent_max(bytes);
        }
        if buffers.out.is_empty() {
            // The client has to open a window for the rest.
            let waits = self.shared.borrow().has_draining();
            self.note_write(if waits { WriteEvent::Waits } else { WriteEvent::Drained });
            if !waits {
                self.conn.entry.stream.progress.set(0);
            }
            return false;
        }
        true
    }

    /// Handles an event of the writes, with its effect on the timers. Returns the previous state.
    ///
    /// The bytes that the socket has accepted before count: it takes more only when the client has
    /// read a part of them.
    pub(super) fn note_write(&mut self, event: WriteEvent) -> WriteState {
        let before = self.writes;
        let Some((next, timers)) = before.next(event) else {
            debug_assert!(false, "{event:?} of writes that are {before:?}");
            return before;
        };
        self.writes = next;
        let entry = &self.conn.entry.stream;
        match timers {
            WriteTimers::Nothing => {}
            WriteTimers::Start => {
                let bytes = entry.progress.get();
                entry.wait_for(ConnState::Write, &self.conn.worker().machine.clock);
                entry.progress.set(bytes);
            }
            WriteTimers::Stop => entry.go_idle(),
        }
        before
    }
}
