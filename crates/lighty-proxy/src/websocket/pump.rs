//! Moves bytes between a client's frames and a backend's connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lighty_core::{Tunnel, TunnelRoute, TunnelSummary};
use lighty_io::clock::Clock;
use lighty_io::transport::ByteStream;
use lighty_wire::websocket::{
    CLOSE_GOING_AWAY, CLOSE_NORMAL, CLOSE_UNEXPECTED, FrameEvent, FrameReader, Opcode,
    incomplete_utf8_tail, push_close, push_frame, push_head,
};
use tokio::sync::Notify;

use super::pump_state::{CloseFrame, PumpAction, PumpEvent, PumpState};
use crate::connect::pool::Connection;

/// Bytes read at a time, on the stack: an idle tunnel holds no buffer.
const READ_BYTES: usize = 16 << 10;

/// Reads and writes before yielding to the rest of the worker.
const MOVES_MAX: usize = 16;

/// Interval at which pings and the idle limit are checked.
const LOOK_MS: u64 = 1_000;

/// Time limit for a client's reply to a close.
const CLOSE_WAIT_MS: u64 = 5_000;

/// A tunnel to a client that speaks WebSocket.
pub(super) struct WebsocketTunnel {
    pub(super) connection: Rc<Connection>,
    /// Bytes sent to the backend first.
    pub(super) greeting: Vec<u8>,
    /// Frame type for the backend's bytes.
    pub(super) opcode: Opcode,
    /// Milliseconds between pings; 0: none.
    pub(super) ping_ms: u64,
    /// Milliseconds without a byte after which the tunnel ends; 0: no limit.
    pub(super) idle_ms: u64,
    pub(super) clock: Clock,
    pub(super) route: Option<Rc<dyn TunnelRoute>>,
    /// Asks for a close.
    pub(super) closer: Rc<Notify>,
}

impl Tunnel for WebsocketTunnel {
    fn route(&self) -> Option<Rc<dyn TunnelRoute>> {
        self.route.clone()
    }

    fn run(
        self: Box<Self>,
        client: Rc<dyn ByteStream>,
        early: Bytes,
    ) -> Pin<Box<dyn Future<Output = io::Result<TunnelSummary>>>> {
        Box::pin(async move {
            let ends = Ends { near: &*client, far: &*self.connection.stream };
            let mut pump = Pump::new(ends, self.opcode, self.greeting);
            pump.take_frames(&mut early.to_vec());
            let limits = PumpLimits { idle_ms: self.idle_ms, ping_ms: self.ping_ms };
            pump.run(&self.clock, limits, &self.closer).await?;
            Ok(TunnelSummary { sent_bytes: pump.sent_bytes, fault: None })
        })
    }
}

/// Limits of a tunnel in milliseconds; 0: none.
#[derive(Clone, Copy)]
struct PumpLimits {
    idle_ms: u64,
    ping_ms: u64,
}

/// Times of the last events, in monotonic milliseconds.
struct Times {
    active_ms: u64,
    pinged_ms: u64,
    closed_ms: Option<u64>,
}

impl Times {
    fn start(clock: &Clock) -> Self {
        let now_ms = clock.mono_ms();
        Self { active_ms: now_ms, pinged_ms: now_ms, closed_ms: None }
    }

    /// Returns true if neither side has sent anything for too long, or a client does not reply to a
    /// close.
    fn is_over(&mut self, pump: &mut Pump<'_>, now_ms: u64, idle_ms: u64) -> bool {
        if std::mem::take(&mut pump.is_active) {
            self.active_ms = now_ms;
        }
        if pump.state.close_frame().is_some()
            && now_ms - *self.closed_ms.get_or_insert(now_ms) >= CLOSE_WAIT_MS
        {
            return true;
        }
        idle_ms > 0 && now_ms.saturating_sub(self.active_ms) >= idle_ms
    }

    fn ping(&mut self, pump: &mut Pump<'_>, now_ms: u64, ping_ms: u64) {
        let is_due = ping_ms > 0 && now_ms.saturating_sub(self.pinged_ms) >= ping_ms;
        if is_due && pump.state.close_frame().is_none() {
            push_frame(Opcode::Ping, b"ping", &mut pump.to_near.bytes);
            self.pinged_ms = now_ms;
        }
    }
}

/// The two connections: the client's and the backend's.
#[derive(Clone, Copy)]
struct Ends<'a> {
    near: &'a dyn ByteStream,
    far: &'a dyn ByteStream,
}

/// Bytes to be written.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    start: usize,
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Writes as much as the stream accepts now. Returns the number of bytes; 0 if it accepts none.
    fn flush(&mut self, to: &dyn ByteStream, cx: &mut Context<'_>) -> io::Result<usize> {
        let mut written = 0;
        while !self.is_empty() {
            match to.poll_write(cx, &self.bytes[self.start..])? {
                Poll::Ready(bytes) => {
                    self.start += bytes;
                    written += bytes;
                }
                Poll::Pending => return Ok(written),
            }
        }
        *self = Self::default();
        Ok(written)
    }
}

/// A tunnel's bytes.
struct Pump<'a> {
    ends: Ends<'a>,
    reader: FrameReader,
    opcode: Opcode,
    to_far: Outbox,
    to_near: Outbox,
    /// The first bytes of a character that the backend has not completed.
    tail: Vec<u8>,
    state: PumpState,
    sent_bytes: u64,
    /// Bytes were received since this was last checked.
    is_active: bool,
}

impl<'a> Pump<'a> {
    fn new(ends: Ends<'a>, opcode: Opcode, greeting: Vec<u8>) -> Self {
        Self {
            ends,
            reader: FrameReader::default(),
            opcode,
            to_far: Outbox { bytes: greeting, start: 0 },
            to_near: Outbox::default(),
            tail: Vec::new(),
            state: PumpState::Open,
            sent_bytes: 0,
            is_active: false,
        }
    }

    /// Moves bytes both ways until both sides have ended, a limit ends the tunnel, or `closer` has
    /// it close.
    ///
    /// # Errors
    /// The client is lost.
    async fn run(&mut self, clock: &Clock, limits: PumpLimits, closer: &Notify) -> io::Result<()> {
        let mut times = Times::start(clock);
        loop {
            let look = tokio::time::sleep(Duration::from_millis(LOOK_MS));
            tokio::select! {
                biased;
                ended = poll_fn(|cx| self.poll(cx)) => return ended,
                () = closer.notified() => self.go_away(),
                () = look => {}
            }
            let now_ms = clock.mono_ms();
            if times.is_over(self, now_ms, limits.idle_ms) {
                self.cut();
                self.ends.near.shut_down();
                return Ok(());
            }
            times.ping(self, now_ms, limits.ping_ms);
        }
    }

    /// Sends the client a close frame behind the payload before it, and passes nothing more on.
    fn go_away(&mut self) {
        // Other states have a close frame, or nothing is left to be sent.
        if matches!(self.state, PumpState::Open | PumpState::Ending(None)) {
            if !self.to_far.is_empty() {
                self.ends.far.abort();
            }
            self.handle(PumpEvent::BackendEnd, CLOSE_GOING_AWAY);
        }
    }

    /// Makes the ends of incomplete streams resets. The backend must not take a part of the
    /// client's bytes for all of them. A client that has the close frame has everything (RFC 6455
    /// section 7.1.1) and sees an end, any other one would take a cut message for a whole one.
    fn cut(&self) {
        if !self.state.is_input_over() {
            self.ends.far.abort();
        }
        if !self.is_over() && self.state.close_frame() != Some(CloseFrame::Written) {
            self.ends.near.abort();
        }
    }

    /// Moves bytes both ways. Ready once both sides have ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..MOVES_MAX {
            let mut has_moved = self.write(cx)?;
            if self.is_over() {
                return Poll::Ready(Ok(()));
            }
            let has_read = self.read_near(cx)? | self.read_far(cx);
            // Sent bytes do not count: a ping would keep its own tunnel alive.
            self.is_active |= has_read;
            has_moved |= has_read;
            if !has_moved {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_over(&self) -> bool {
        self.state.is_input_over() && self.to_near.is_empty()
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let Ends { near, far } = self.ends;
        if self.state.has_taker() && self.to_far.flush(far, cx).is_err() {
            self.handle(PumpEvent::BackendLost, CLOSE_UNEXPECTED);
        }
        let is_ending = matches!(self.state, PumpState::Ending(_)) && self.to_far.is_empty();
        if is_ending && far.poll_end(cx).is_ready() {
            self.handle(PumpEvent::EndPassed, CLOSE_NORMAL);
        }
        let sent = self.to_near.flush(near, cx)?;
        if self.to_near.is_empty() && self.state.close_frame() == Some(CloseFrame::Queued) {
            self.handle(PumpEvent::CloseWritten, CLOSE_NORMAL);
        }
        self.sent_bytes += sent as u64;
        Ok(sent > 0)
    }

    /// Reads the client's frames, as long as the backend takes their payload.
    fn read_near(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        // A client that pings and does not read its pongs has to wait.
        let may_read = self.to_far.is_empty() && self.to_near.is_empty();
        if !self.state.has_client_frames() || !may_read {
            return Ok(false);
        }
        let mut buffer = [0; READ_BYTES];
        match self.ends.near.poll_read(cx, &mut buffer)? {
            Poll::Pending => Ok(false),
            Poll::Ready(0) => {
                self.handle(PumpEvent::ClientEnd, CLOSE_NORMAL);
                Ok(true)
            }
            Poll::Ready(bytes) => {
                self.take_frames(&mut buffer[..bytes]);
                Ok(true)
            }
        }
    }

    fn take_frames(&mut self, input: &mut [u8]) {
        let mut at = 0;
        while at < input.len() && self.state.has_client_frames() {
            let (consumed, event) = match self.reader.read(&mut input[at..]) {
                Ok(read) => read,
                Err(fault) => {
                    return self.handle(PumpEvent::ClientClose, fault.close_code());
                }
            };
            match event {
                FrameEvent::More => {}
                FrameEvent::Data(range) if self.state.has_taker() => {
                    let payload = &input[at + range.start..at + range.end];
                    self.to_far.bytes.extend_from_slice(payload);
                }
                FrameEvent::Data(_) => {}
                FrameEvent::Ping(payload) if self.state.close_frame().is_none() => {
                    push_frame(Opcode::Pong, &payload, &mut self.to_near.bytes);
                }
                FrameEvent::Ping(_) => {}
                FrameEvent::Close(code) => {
                    // RFC 6455 section 5.5.1: the reply repeats the code.
                    self.handle(PumpEvent::ClientClose, code.unwrap_or(CLOSE_NORMAL));
                }
            }
            at += consumed;
        }
    }

    /// Reads from the backend, as long as the client takes it.
    fn read_far(&mut self, cx: &mut Context<'_>) -> bool {
        if self.state.close_frame().is_some() || !self.to_near.is_empty() {
            return false;
        }
        let mut buffer = [0; READ_BYTES];
        match self.ends.far.poll_read(cx, &mut buffer) {
            Poll::Pending => false,
            Poll::Ready(Ok(0)) => {
                self.handle(PumpEvent::BackendEnd, CLOSE_NORMAL);
                true
            }
            Poll::Ready(Ok(bytes)) => {
                self.push_message(&buffer[..bytes]);
                true
            }
            Poll::Ready(Err(_)) => {
                self.handle(PumpEvent::BackendLost, CLOSE_UNEXPECTED);
                true
            }
        }
    }

    fn push_message(&mut self, bytes: &[u8]) {
        debug_assert!(self.state.close_frame().is_none(), "content after the close");
        let mut end = bytes.len();
        if self.opcode == Opcode::Text {
            // A character that does not end within the kept bytes is examined together with the new
            // ones.
            let whole = [&self.tail[..], bytes].concat();
            end = bytes.len().saturating_sub(incomplete_utf8_tail(&whole));
        }
        let length = self.tail.len() + end;
        if end > 0 {
            push_head(self.opcode, length, &mut self.to_near.bytes);
            self.to_near.bytes.append(&mut self.tail);
            self.to_near.bytes.extend_from_slice(&bytes[..end]);
        }
        self.tail.extend_from_slice(&bytes[end..]);
        debug_assert!(self.tail.len() <= 3, "{:?} begins no character", self.tail);
    }

    /// Handles an event. A close frame that it causes has this code.
    fn handle(&mut self, event: PumpEvent, code: u16) {
        let action = self.state.handle(event);
        if matches!(action, PumpAction::Drop | PumpAction::DropAndClose) {
            self.to_far = Outbox::default();
        }
        if matches!(action, PumpAction::Close | PumpAction::DropAndClose) {
            push_close(code, &mut self.to_near.bytes);
        }
    }
}

impl Drop for Pump<'_> {
    /// A stop may drop a tunnel at any time.
    fn drop(&mut self) {
        self.cut();
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
