//! Moves bytes between a client's frames and a backend's connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lighty_core::{Tunnel, TunnelSummary};
use lighty_io::clock::Clock;
use lighty_io::transport::ByteStream;
use lighty_wire::websocket::{
    CLOSE_NORMAL, CLOSE_UNEXPECTED, FrameEvent, FrameReader, Opcode, incomplete_utf8_tail,
    push_close, push_frame, push_head,
};

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
}

impl Tunnel for WebsocketTunnel {
    fn run(
        self: Box<Self>,
        client: Rc<dyn ByteStream>,
        early: Bytes,
    ) -> Pin<Box<dyn Future<Output = io::Result<TunnelSummary>>>> {
        Box::pin(async move {
            let mut pump = Pump::new(self.opcode, self.greeting);
            pump.take_frames(&mut early.to_vec());
            let ends = Ends { near: &*client, far: &*self.connection.stream };
            let mut times = Times::start(&self.clock);
            let ended = loop {
                let look = tokio::time::sleep(Duration::from_millis(LOOK_MS));
                tokio::select! {
                    biased;
                    ended = poll_fn(|cx| pump.poll(cx, &ends)) => break ended,
                    () = look => {}
                }
                let now_ms = self.clock.mono_ms();
                if times.is_over(&mut pump, now_ms, self.idle_ms) {
                    client.shut_down();
                    break Ok(());
                }
                times.ping(&mut pump, now_ms, self.ping_ms);
            };
            if ended.is_err() && !pump.has_ended_far {
                // The backend must not take a part of the client's bytes for all of them.
                ends.far.abort();
            }
            ended.map(|()| TunnelSummary { sent_bytes: pump.sent_bytes, fault: None })
        })
    }
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
    fn is_over(&mut self, pump: &mut Pump, now_ms: u64, idle_ms: u64) -> bool {
        if std::mem::take(&mut pump.is_active) {
            self.active_ms = now_ms;
        }
        if pump.has_sent_close && now_ms - *self.closed_ms.get_or_insert(now_ms) >= CLOSE_WAIT_MS {
            return true;
        }
        idle_ms > 0 && now_ms.saturating_sub(self.active_ms) >= idle_ms
    }

    fn ping(&mut self, pump: &mut Pump, now_ms: u64, ping_ms: u64) {
        if ping_ms > 0 && now_ms.saturating_sub(self.pinged_ms) >= ping_ms && !pump.has_sent_close {
            push_frame(Opcode::Ping, b"ping", &mut pump.to_near.bytes);
            self.pinged_ms = now_ms;
        }
    }
}

/// The two connections: the client's and the backend's.
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

/// The state of a tunnel.
struct Pump {
    reader: FrameReader,
    opcode: Opcode,
    to_far: Outbox,
    to_near: Outbox,
    /// The first bytes of a character that the backend has not completed.
    tail: Vec<u8>,
    /// No more frames of the client are read.
    is_near_over: bool,
    /// The backend has closed, or failed.
    is_far_over: bool,
    has_ended_far: bool,
    has_sent_close: bool,
    sent_bytes: u64,
    /// Bytes were received since this was last checked.
    is_active: bool,
}

impl Pump {
    fn new(opcode: Opcode, greeting: Vec<u8>) -> Self {
        Self {
            reader: FrameReader::default(),
            opcode,
            to_far: Outbox { bytes: greeting, start: 0 },
            to_near: Outbox::default(),
            tail: Vec::new(),
            is_near_over: false,
            is_far_over: false,
            has_ended_far: false,
            has_sent_close: false,
            sent_bytes: 0,
            is_active: false,
        }
    }

    /// Moves bytes both ways. Ready once both sides have ended.
    fn poll(&mut self, cx: &mut Context<'_>, ends: &Ends<'_>) -> Poll<io::Result<()>> {
        for _ in 0..MOVES_MAX {
            let mut has_moved = self.write(cx, ends)?;
            if self.is_over() {
                return Poll::Ready(Ok(()));
            }
            let has_read = self.read_near(cx, ends.near)? | self.read_far(cx, ends.far);
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
        self.is_near_over && self.to_near.is_empty() && (self.has_ended_far || self.is_far_over)
    }

    fn write(&mut self, cx: &mut Context<'_>, ends: &Ends<'_>) -> io::Result<bool> {
        if !self.is_far_over && self.to_far.flush(ends.far, cx).is_err() {
            self.lose_far();
        }
        if self.is_near_over && self.to_far.is_empty() && !self.has_ended_far {
            self.has_ended_far = ends.far.poll_end(cx).is_ready();
        }
        let sent = self.to_near.flush(ends.near, cx)?;
        self.sent_bytes += sent as u64;
        Ok(sent > 0)
    }

    /// Reads the client's frames, as long as the backend takes their payload.
    fn read_near(&mut self, cx: &mut Context<'_>, near: &dyn ByteStream) -> io::Result<bool> {
        let may_read = self.to_far.is_empty() || self.is_far_over;
        // A client that pings and does not read its pongs has to wait.
        if self.is_near_over || !may_read || !self.to_near.is_empty() {
            return Ok(false);
        }
        let mut buffer = [0; READ_BYTES];
        match near.poll_read(cx, &mut buffer)? {
            Poll::Pending => Ok(false),
            Poll::Ready(0) => {
                self.is_near_over = true;
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
        while at < input.len() && !self.is_near_over {
            let (consumed, event) = match self.reader.read(&mut input[at..]) {
                Ok(read) => read,
                Err(fault) => {
                    self.close(fault.close_code());
                    self.is_near_over = true;
                    return;
                }
            };
            match event {
                FrameEvent::More => {}
                FrameEvent::Data(range) if !self.is_far_over => {
                    let payload = &input[at + range.start..at + range.end];
                    self.to_far.bytes.extend_from_slice(payload);
                }
                FrameEvent::Data(_) => {}
                FrameEvent::Ping(payload) if !self.has_sent_close => {
                    push_frame(Opcode::Pong, &payload, &mut self.to_near.bytes);
                }
                FrameEvent::Ping(_) => {}
                FrameEvent::Close(code) => {
                    // RFC 6455 section 5.5.1: the reply repeats the code.
                    self.close(code.unwrap_or(CLOSE_NORMAL));
                    self.is_near_over = true;
                }
            }
            at += consumed;
        }
    }

    /// Reads from the backend, as long as the client takes it.
    fn read_far(&mut self, cx: &mut Context<'_>, far: &dyn ByteStream) -> bool {
        if self.is_far_over || self.has_sent_close || !self.to_near.is_empty() {
            return false;
        }
        let mut buffer = [0; READ_BYTES];
        match far.poll_read(cx, &mut buffer) {
            Poll::Pending => false,
            Poll::Ready(Ok(0)) => {
                self.is_far_over = true;
                self.close(CLOSE_NORMAL);
                true
            }
            Poll::Ready(Ok(bytes)) => {
                self.push_message(&buffer[..bytes]);
                true
            }
            Poll::Ready(Err(_)) => {
                self.lose_far();
                true
            }
        }
    }

    fn push_message(&mut self, bytes: &[u8]) {
        debug_assert!(!self.has_sent_close, "content after the close");
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

    #[cold]
    fn lose_far(&mut self) {
        self.is_far_over = true;
        self.to_far = Outbox::default();
        self.close(CLOSE_UNEXPECTED);
    }

    fn close(&mut self, code: u16) {
        if !std::mem::replace(&mut self.has_sent_close, true) {
            push_close(code, &mut self.to_near.bytes);
        }
    }
}
