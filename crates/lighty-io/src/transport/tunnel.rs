//! A tunnel relays bytes between two byte streams until both have ended.
//!
//! The end of one direction is passed on as a half-close while the other continues, and a reset as
//! a reset, so that a part of a stream does not look like all of it. A side that takes no more
//! bytes is still read to its end. A waiting direction holds no buffer, so an idle tunnel costs
//! only the two streams and its future. [`Tunnel::run_while_active`] ends an idle tunnel.
//! [`Tunnel::run`] has no time limit; a watcher of [`TunnelMeter::active_ms`] may shut its ends
//! down.

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
    /// The side whose connection ends with a reset, since the other one failed before its end.
    pub cut: Cell<Option<Side>>,
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
    /// True if the far side failed before its end, so that the near side gets a reset.
    pub is_near_cut: bool,
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
    /// unless its stream was complete. If the tunnel is dropped before its end, each side for which
    /// it holds bytes is reset.
    pub async fn run(
        self,
        buffers: &BufPool,
        clock: &Clock,
        meter: &TunnelMeter,
    ) -> Result<(), TunnelError> {
        let mut to_far = Direction::new(Side::Near, self.near, self.far, self.early_near);
        let mut to_near = Direction::new(Side::Far, self.far, self.near, self.early_far);
        // A side that has ended is not read again; only its reset still matters.
        let mut near_reset = self.near.reset();
        let mut far_reset = self.far.reset();
        let turn = Turn { buffers, clock, meter };
        meter.active_ms.set(clock.mono_ms());
        let ended = poll_fn(|cx| {
            to_far.check_source(&to_near);
            let far = to_far.poll(cx, &turn, &meter.to_far_bytes)?;
            to_near.check_source(&to_far);
            let near = to_near.poll(cx, &turn, &meter.to_near_bytes)?;
            meter.half_closed.set(match (far, near) {
                (Poll::Ready(()), Poll::Ready(())) => return Poll::Ready(Ok(())),
                (Poll::Ready(()), Poll::Pending) => Some(Side::Near),
                (Poll::Pending, Poll::Ready(())) => Some(Side::Far),
                (Poll::Pending, Poll::Pending) => None,
            });
            if let Some(error) = to_far.take_loss(&to_near).or_else(|| to_near.take_loss(&to_far)) {
                return Poll::Ready(Err(error));
            }
            if to_far.has_source_ended() && near_reset.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(reset(Side::Near)));
            }
            if to_near.has_source_ended() && far_reset.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(reset(Side::Far)));
            }
            Poll::Pending
        })
        .await;
        meter.cut.set(match ended.as_ref().map_err(|error| error.side) {
            Err(Side::Near) => to_far.break_off(),
            Err(Side::Far) => to_near.break_off(),
            Ok(()) => None,
        });
        to_far.finish();
        to_near.finish();
        ended
    }

    /// Like [`Self::run`], but shuts both connections down once no bytes have moved for `idle_ms`
    /// milliseconds (0: no limit). A broken tunnel counts as ended, because both sides already
    /// know.
    ///
    /// The bytes of an idle tunnel have no known frames, so silence may well be their end: as with
    /// HAProxy and nginx, a side that has received everything sees the end of its stream. A side
    /// for which bytes are held gets a reset.
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
        let is_near_cut = meter.cut.get() == Some(Side::Near);
        TunnelEnd { was_idle, is_near_cut, to_near_bytes: meter.to_near_bytes.get() }
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
    /// The source was reset, and a failed write to it has taken the error: its end is none.
    is_source_reset: bool,
}

// A direction (`State`); it begins with `WriteEarly` if there are early bytes:
//
//                   peer gone
//     Write, WriteEarly ----> Lost
//       ^    |
//       |    v
//       Read ---------> End ---------> Done
//              end           passed on

/// Progress of a direction.
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
    /// The receiver takes no more bytes. The rest of its own bytes is passed on before the tunnel
    /// ends.
    Lost(TunnelError),
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
        Direction { from_side, from, to, state, is_source_reset: false }
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
            match self.state {
                State::Done => return Poll::Ready(Ok(())),
                // The other direction wakes the task.
                State::Lost(_) => return Poll::Pending,
                State::Read | State::WriteEarly(_) | State::Write { .. } | State::End => {}
            }
            let bytes = match ready!(self.poll_flush(cx)) {
                Ok(bytes) => bytes,
                Err(error) => return self.lose(error),
            };
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
            0 if self.is_source_reset => return Poll::Ready(Err(reset(self.from_side))),
            0 => State::End,
            end => State::Write { buffer, start: 0, end },
        };
        Poll::Ready(Ok(()))
    }

    /// Writes as many bytes as the other side accepts, at least one, and returns their number.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let to = self.to;
        let pending = match &mut self.state {
            State::WriteEarly(bytes) => &bytes[..],
            State::Write { buffer, start, end } => &buffer.bytes()[*start..*end],
            State::Read | State::End | State::Done | State::Lost(_) => return Poll::Ready(Ok(0)),
        };
        let offered = pending.len();
        debug_assert!(offered > 0, "a buffer without bytes");
        let written = ready!(to.poll_write(cx, pending))?;
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
            State::Read | State::End | State::Done | State::Lost(_) => false,
        };
        if empty {
            self.state = State::Read;
        }
    }

    /// Handles an error of the receiver. One that is gone may have sent bytes before that, which
    /// the other direction passes on.
    fn lose(&mut self, error: io::Error) -> Poll<Result<(), TunnelError>> {
        let kind = error.kind();
        let error = TunnelError { side: self.to_side(), error };
        if matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
            self.state = State::Lost(error);
            return Poll::Pending;
        }
        Poll::Ready(Err(error))
    }

    /// Learns from the direction towards the source that the source was reset. The write that
    /// failed has taken the error from the socket, which then reports an end to its reader. The end
    /// of a source that was closed in order, and refuses bytes (`BrokenPipe`), is one.
    fn check_source(&mut self, towards: &Direction<'_>) {
        if let State::Lost(failure) = &towards.state {
            self.is_source_reset = failure.error.kind() == io::ErrorKind::ConnectionReset;
        }
    }

    /// Takes the receiver's failure once `back`, the other direction, moves nothing any more.
    fn take_loss(&mut self, back: &Direction<'_>) -> Option<TunnelError> {
        let is_due = matches!(self.state, State::Lost(_));
        if !is_due || !matches!(back.state, State::Done | State::Lost(_)) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Done) {
            State::Lost(error) => Some(error),
            _ => None,
        }
    }

    /// True if the source has ended. The end may still have to be passed on.
    fn has_source_ended(&self) -> bool {
        matches!(self.state, State::End | State::Done)
    }

    /// Resets the receiver of a stream that will not be completed. Returns the receiver's side if
    /// that was necessary.
    fn break_off(&self) -> Option<Side> {
        if matches!(self.state, State::Done) {
            return None;
        }
        self.to.abort();
        Some(self.to_side())
    }

    /// Drops the rest, of which the receiver knows.
    fn finish(&mut self) {
        self.state = State::Done;
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

impl Drop for Direction<'_> {
    /// A limit or a stop may drop a tunnel at any time. Its receiver must not take the bytes that
    /// it has for all of them.
    fn drop(&mut self) {
        if matches!(self.state, State::WriteEarly(_) | State::Write { .. } | State::End) {
            self.to.abort();
        }
    }
}

#[cfg(test)]
#[path = "tunnel_tests.rs"]
mod tests;
