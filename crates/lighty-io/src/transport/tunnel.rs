//! A tunnel relays bytes between two byte streams until both have ended.
//!
//! The end of one direction is passed on as a half-close while the other continues, and a reset as
//! a reset, so that a part of a stream does not look like all of it. A waiting direction holds no
//! buffer, so an idle tunnel costs only the two streams and its future.
//! [`Tunnel::run_while_active`] ends an idle tunnel. [`Tunnel::run`] has no time limit; a watcher
//! of [`TunnelMeter::active_ms`] may shut its ends down.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lighty_buf::{BufPool, PooledBuf};

use super::ByteStream;
use crate::clock::Clock;

/// Bytes that one direction moves before yielding to the rest of the worker.
const TURN_BYTES_MAX: usize = 256 << 10;

/// Size of the fallback buffer of a direction when the pool is empty. There are at most two per
/// tunnel, and each tunnel is a connection.
const SPARE_BYTES: usize = 4_096;

/// Interval of the idle check in milliseconds, by which a tunnel may exceed its limit.
const LOOK_MS: u64 = 1_000;

/// One of a tunnel's two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first one.
    Near,
    /// The second one.
    Far,
}

/// A tunnel's progress, for its watchers.
#[derive(Debug, Default)]
pub struct TunnelMeter {
    /// Bytes sent from the near to the far side.
    pub to_far_bytes: Cell<u64>,
    /// Bytes sent from the far to the near side.
    pub to_near_bytes: Cell<u64>,
    /// When bytes last moved, as a `mono_ms` stamp of the clock.
    pub active_ms: Cell<u64>,
    /// The side that ended first, while the other continues.
    pub half_closed: Cell<Option<Side>>,
}

/// Error of a tunnel.
#[derive(Debug, thiserror::Error)]
#[error("{side:?} side of the tunnel: {error}")]
pub struct TunnelError {
    /// The connection that failed.
    pub side: Side,
    /// The error it reported.
    #[source]
    pub error: io::Error,
}

/// Result of a tunnel with an idle limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelEnd {
    /// True if the idle limit expired and both connections were shut down; false if they ended or
    /// broke by themselves.
    pub was_idle: bool,
    /// Bytes sent from the far to the near side.
    pub to_near_bytes: u64,
}

/// The two ends of a tunnel, and the bytes read from each before it started.
#[derive(Debug)]
pub struct Tunnel<'a> {
    /// The near end.
    pub near: &'a dyn ByteStream,
    /// The far end.
    pub far: &'a dyn ByteStream,
    /// Bytes of the near side not yet sent to the far side.
    pub early_near: Bytes,
    /// Bytes of the far side not yet sent to the near side.
    pub early_far: Bytes,
}

impl Tunnel<'_> {
    /// Relays bytes both ways until both sides have ended their streams. Both connections stay open
    /// with their write sides closed.
    ///
    /// # Errors
    /// The first failure of either side. The other side is then reset when its connection closes,
    /// unless its stream was complete.
    pub async fn run(
        self,
        buffers: &BufPool,
        clock: &Clock,
        meter: &TunnelMeter,
    ) -> Result<(), TunnelError> {
        let mut to_far = Direction::new(Side::Near, self.near, self.far, self.early_near);
        let mut to_near = Direction::new(Side::Far, self.far, self.near, self.early_far);
        // A side whose end was passed on is not read again; only its reset still matters.
        let mut near_reset = self.near.reset();
        let mut far_reset = self.far.reset();
        let turn = Turn { buffers, clock, meter };
        meter.active_ms.set(clock.mono_ms());
        let ended = poll_fn(|cx| {
            let far = to_far.poll(cx, &turn, &meter.to_far_bytes)?;
            let near = to_near.poll(cx, &turn, &meter.to_near_bytes)?;
            meter.half_closed.set(match (far, near) {
                (Poll::Ready(()), Poll::Ready(())) => return Poll::Ready(Ok(())),
                (Poll::Ready(()), Poll::Pending) => Some(Side::Near),
                (Poll::Pending, Poll::Ready(())) => Some(Side::Far),
                (Poll::Pending, Poll::Pending) => None,
            });
            if far.is_ready() && near_reset.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(reset(Side::Near)));
            }
            if near.is_ready() && far_reset.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(reset(Side::Far)));
            }
            Poll::Pending
        })
        .await;
        match ended.as_ref().map_err(|error| error.side) {
            Err(Side::Near) => to_far.break_off(),
            Err(Side::Far) => to_near.break_off(),
            Ok(()) => {}
        }
        ended
    }

    /// Like [`Self::run`], but shuts both connections down once no bytes have moved for `idle_ms`
    /// milliseconds (0: no limit). A broken tunnel counts as ended, because both sides already
    /// know.
    pub async fn run_while_active(
        self,
        buffers: &BufPool,
        clock: &Clock,
        idle_ms: u64,
    ) -> TunnelEnd {
        let meter = TunnelMeter::default();
        let (near, far) = (self.near, self.far);
        meter.active_ms.set(clock.mono_ms());
        let was_idle = tokio::select! {
            biased;
            _ = self.run(buffers, clock, &meter) => false,
            () = idle(&meter, clock, idle_ms) => true,
        };
        if was_idle {
            near.shut_down();
            far.shut_down();
        }
        TunnelEnd { was_idle, to_near_bytes: meter.to_near_bytes.get() }
    }
}

/// Resolves when no bytes have moved for `idle_ms`.
async fn idle(meter: &TunnelMeter, clock: &Clock, idle_ms: u64) {
    loop {
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        let idle_for_ms = clock.mono_ms().saturating_sub(meter.active_ms.get());
        if idle_ms > 0 && idle_for_ms >= idle_ms {
            return;
        }
    }
}

fn reset(side: Side) -> TunnelError {
    TunnelError { side, error: io::ErrorKind::ConnectionReset.into() }
}

/// Shared by both directions.
struct Turn<'a> {
    buffers: &'a BufPool,
    clock: &'a Clock,
    meter: &'a TunnelMeter,
}

/// One direction of a tunnel.
struct Direction<'a> {
    from_side: Side,
    from: &'a dyn ByteStream,
    to: &'a dyn ByteStream,
    state: State,
}

enum State {
    /// No bytes are buffered.
    Read,
    /// Bytes read before the tunnel started must be written.
    WriteEarly(Bytes),
    /// Bytes `start..end` of the buffer are to be written.
    Write { buffer: Buffer, start: usize, end: usize },
    /// The end is being passed on.
    End,
    /// The end has been passed on.
    Done,
}

enum Buffer {
    Pooled(PooledBuf),
    Spare(Box<[u8]>),
}

impl Buffer {
    fn take(buffers: &BufPool) -> Buffer {
        match buffers.take() {
            Some(buffer) => Buffer::Pooled(buffer),
            None => Buffer::Spare(vec![0; SPARE_BYTES].into_boxed_slice()),
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Buffer::Pooled(buffer) => buffer,
            Buffer::Spare(buffer) => buffer,
        }
    }
}

impl<'a> Direction<'a> {
    fn new(
        from_side: Side,
        from: &'a dyn ByteStream,
        to: &'a dyn ByteStream,
        early: Bytes,
    ) -> Self {
        let state = if early.is_empty() { State::Read } else { State::WriteEarly(early) };
        Direction { from_side, from, to, state }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        turn: &Turn<'_>,
        moved: &Cell<u64>,
    ) -> Poll<Result<(), TunnelError>> {
        let mut left = TURN_BYTES_MAX;
        loop {
            if let State::Read = self.state {
                ready!(self.poll_fill(cx, turn))?;
            }
            if let State::End = self.state {
                ready!(self.to.poll_end(cx));
                self.state = State::Done;
            }
            if let State::Done = self.state {
                return Poll::Ready(Ok(()));
            }
            let bytes = ready!(self.poll_flush(cx))?;
            moved.set(moved.get() + bytes as u64);
            turn.meter.active_ms.set(turn.clock.mono_ms());
            left = left.saturating_sub(bytes);
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Reads once. Takes a buffer only when data is known to have arrived.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        turn: &Turn<'_>,
    ) -> Poll<Result<(), TunnelError>> {
        ready!(self.from.poll_readable(cx)).map_err(|error| self.read_error(error))?;
        let mut buffer = Buffer::take(turn.buffers);
        let read = ready!(self.from.poll_read(cx, buffer.bytes()));
        self.state = match read.map_err(|error| self.read_error(error))? {
            0 => State::End,
            end => State::Write { buffer, start: 0, end },
        };
        Poll::Ready(Ok(()))
    }

    /// Writes as many bytes as the other side accepts, at least one, and returns their number.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, TunnelError>> {
        let to = self.to;
        let pending = match &mut self.state {
            State::WriteEarly(bytes) => &bytes[..],
            State::Write { buffer, start, end } => &buffer.bytes()[*start..*end],
            State::Read | State::End | State::Done => return Poll::Ready(Ok(0)),
        };
        let offered = pending.len();
        debug_assert!(offered > 0, "a buffer without bytes");
        let written = ready!(to.poll_write(cx, pending))
            .map_err(|error| TunnelError { side: self.to_side(), error })?;
        debug_assert!((1..=offered).contains(&written), "{written} of {offered}");
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, written: usize) {
        let empty = match &mut self.state {
            State::WriteEarly(bytes) => {
                bytes.advance(written);
                bytes.is_empty()
            }
            State::Write { start, end, .. } => {
                *start += written;
                start == end
            }
            State::Read | State::End | State::Done => false,
        };
        if empty {
            self.state = State::Read;
        }
    }

    /// Resets the receiver of a stream that will not be completed.
    fn break_off(&self) {
        if !matches!(self.state, State::Done) {
            self.to.abort();
        }
    }

    fn to_side(&self) -> Side {
        match self.from_side {
            Side::Near => Side::Far,
            Side::Far => Side::Near,
        }
    }

    fn read_error(&self, error: io::Error) -> TunnelError {
        TunnelError { side: self.from_side, error }
    }
}

#[cfg(test)]
#[path = "tunnel_tests.rs"]
mod tests;
