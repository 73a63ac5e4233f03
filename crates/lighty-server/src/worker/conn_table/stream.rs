//! A stream of requests as the sweep sees it.

use std::cell::Cell;

use lighty_core::Fault;
use lighty_core::machine::status_board::ConnState;
use lighty_io::clock::Clock;
use lighty_io::transport::ShutdownHow;

use super::wait_s;

/// Limits while a request is served: seconds or bytes per second, 0 = none.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamLimits {
    pub read_idle_s: u32,
    pub write_idle_s: u32,
    pub half_closed_idle_s: u32,
    pub min_read_rate: u32,
    pub min_write_rate: u32,
}

/// Seconds by which the bytes of other streams may be counted late: they are counted once a second,
/// with the next write, and the seconds of the sweep are rounded.
const EXCUSE_LAG_S: u32 = 3;

/// Seconds before a minimum rate is enforced, since a stream may start slowly.
pub(super) const RATE_GRACE_S: u32 = 10;

/// A stream's entry: the condition that it waits for, the start of the wait and its progress.
/// HTTP/1, which serves one request after the other, has one stream for all of a connection's
/// requests. In a connection of several streams, the connection's own entry covers its own writes.
pub struct StreamEntry {
    state: Cell<ConnState>,
    since_s: Cell<u32>,
    limits: Cell<StreamLimits>,
    /// Settings variant that the limits come from, plus one; 0 before the first request.
    variant: Cell<u64>,
    /// Bytes moved since the current wait began; updated by the connection and by senders.
    pub progress: Cell<u64>,
    /// Bytes that the client took of other streams while this one waited for its turn.
    others_bytes: Cell<u64>,
    seen_progress: Cell<u64>,
    seen_s: Cell<u32>,
    cut: Cell<Option<Fault>>,
    /// Length of a paused wait for the request body, and the bytes received during the wait.
    paused: Cell<(u32, u64)>,
}

impl StreamEntry {
    /// Creates a stream without a request.
    pub fn new() -> Self {
        Self {
            state: Cell::new(ConnState::Idle),
            since_s: Cell::new(0),
            limits: Cell::new(StreamLimits::default()),
            variant: Cell::new(0),
            progress: Cell::new(0),
            others_bytes: Cell::new(0),
            seen_progress: Cell::new(0),
            seen_s: Cell::new(0),
            cut: Cell::new(None),
            paused: Cell::new((0, 0)),
        }
    }

    /// Records the condition that the request waits for from now on.
    #[inline]
    pub fn wait_for(&self, state: ConnState, clock: &Clock) {
        self.wait_from(state, wait_s(clock));
    }

    #[inline]
    pub(super) fn wait_from(&self, state: ConnState, now_s: u32) {
        self.state.set(state);
        self.since_s.set(now_s);
        self.progress.set(0);
        self.others_bytes.set(0);
        self.seen_progress.set(0);
        self.seen_s.set(now_s);
        self.paused.set((0, 0));
    }

    /// Restarts the idle timer, and counts `bytes` that the client has taken of other streams since
    /// `since_ms` for the minimum rates: at most as many as these demand for that time.
    pub fn excuse(&self, bytes: u64, since_ms: u64, clock: &Clock) {
        let since_ms = since_ms.max(u64::from(self.since_s.get()) * 1000);
        let limits = self.limits.get();
        let rate = match self.state.get() {
            ConnState::Body => limits.min_read_rate,
            ConnState::Write => limits.min_write_rate,
            _ => limits.min_read_rate.max(limits.min_write_rate),
        };
        let span_ms = clock.mono_ms().saturating_sub(since_ms);
        let demanded = (u64::from(rate) * span_ms).div_ceil(1000);
        self.others_bytes.set(self.others_bytes.get() + bytes.min(demanded));
        self.seen_progress.set(self.progress.get());
        self.seen_s.set(wait_s(clock));
    }

    /// Records that no request is being served.
    #[inline]
    pub fn go_idle(&self) {
        self.state.set(ConnState::Idle);
    }

    /// Records a wait for more of the request body. A paused wait continues: a handler that takes a
    /// body in small parts must not excuse a client that is too slow.
    pub fn wait_for_body(&self, clock: &Clock) {
        match self.state.get() {
            ConnState::Body | ConnState::Duplex => {}
            // Progress in either direction counts for both.
            ConnState::Write => self.state.set(ConnState::Duplex),
            ConnState::Idle | ConnState::Head | ConnState::Handler => {
                let (waited_s, progress) = self.paused.get();
                self.wait_for(ConnState::Body, clock);
                self.since_s.set(self.since_s.get().saturating_sub(waited_s));
                self.progress.set(progress);
                self.seen_progress.set(progress);
            }
        }
    }

    /// Ends the wait for the request body.
    pub fn stop_waiting_for_body(&self, clock: &Clock) {
        match self.state.get() {
            ConnState::Body => {
                let waited_s = wait_s(clock).saturating_sub(self.since_s.get());
                let progress = self.progress.get() + self.others_bytes.get();
                self.wait_for(ConnState::Handler, clock);
                self.paused.set((waited_s, progress));
            }
            ConnState::Duplex => self.state.set(ConnState::Write),
            ConnState::Idle | ConnState::Head | ConnState::Handler | ConnState::Write => {}
        }
    }

    /// Records that the response waits for its handler. Keeps a wait for the request body, which
    /// another task may read.
    pub fn wait_for_piece(&self, clock: &Clock) {
        let state = if self.is_waiting_for_body() { ConnState::Body } else { ConnState::Handler };
        self.wait_for(state, clock);
    }

    /// Records that the response is written, in addition to a wait for the request body, if any.
    #[inline]
    pub fn write(&self, clock: &Clock) {
        let state = if self.is_waiting_for_body() { ConnState::Duplex } else { ConnState::Write };
        self.wait_for(state, clock);
    }

    /// Returns true while the stream waits for more of the request body.
    #[inline]
    pub fn is_waiting_for_body(&self) -> bool {
        matches!(self.state.get(), ConnState::Body | ConnState::Duplex)
    }

    /// True if the response has begun.
    pub fn is_writing(&self) -> bool {
        matches!(self.state.get(), ConnState::Write | ConnState::Duplex)
    }

    /// Sets the limits in force from now on.
    pub fn limit(&self, limits: StreamLimits) {
        self.limits.set(limits);
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> StreamLimits {
        self.limits.get()
    }

    /// Returns true if the limits came from another settings variant; records `variant`.
    #[inline]
    pub fn is_new_to(&self, variant: u64) -> bool {
        let variant = variant.wrapping_add(1);
        self.variant.replace(variant) != variant
    }

    /// Makes the limits of the next request's settings new, whatever they are.
    pub fn forget_variant(&self) {
        self.variant.set(0);
    }

    /// Returns the condition that the request waits for; [`ConnState::Idle`] without a request.
    pub fn state(&self) -> ConnState {
        self.state.get()
    }

    /// Returns the start of the current wait, in sweep seconds.
    pub fn since_s(&self) -> u32 {
        self.since_s.get()
    }

    /// Returns the reason why the sweep ended the stream's waits, if it did.
    pub fn cut(&self) -> Option<Fault> {
        self.cut.get()
    }

    /// Returns the limit exceeded at `now_s`, if any.
    pub(super) fn overdue(&self, now_s: u32) -> Option<Fault> {
        let limits = self.limits.get();
        let reads = || self.too_slow(now_s, limits.min_read_rate, Fault::ReadRate);
        let writes = || self.too_slow(now_s, limits.min_write_rate, Fault::WriteRate);
        match self.state.get() {
            ConnState::Idle | ConnState::Head | ConnState::Handler => None,
            ConnState::Body => {
                self.stalled(now_s, limits.read_idle_s, Fault::ReadTimeout).or_else(reads)
            }
            ConnState::Write => {
                self.stalled(now_s, limits.write_idle_s, Fault::WriteTimeout).or_else(writes)
            }
            ConnState::Duplex => self
                .stalled(now_s, limits.write_idle_s, Fault::WriteTimeout)
                .or_else(reads)
                .or_else(writes),
        }
    }

    fn stalled(&self, now_s: u32, limit_s: u32, fault: Fault) -> Option<Fault> {
        if self.progress.get() != self.seen_progress.get() {
            self.seen_progress.set(self.progress.get());
            self.seen_s.set(now_s);
            return None;
        }
        (limit_s > 0 && now_s.saturating_sub(self.seen_s.get()) >= limit_s).then_some(fault)
    }

    fn too_slow(&self, now_s: u32, rate: u32, fault: Fault) -> Option<Fault> {
        let waited_s = now_s.saturating_sub(self.since_s.get());
        let others_bytes = self.others_bytes.get();
        let lag_s = if others_bytes > 0 { EXCUSE_LAG_S } else { 0 };
        let wanted = u64::from(rate) * u64::from(waited_s.saturating_sub(lag_s));
        let taken = self.progress.get() + others_bytes;
        (rate > 0 && waited_s >= RATE_GRACE_S && taken < wanted).then_some(fault)
    }

    /// Records the reason for the end of the stream's wait. Returns the directions to shut down:
    /// reads; after a write fault, or if that was not enough, writes as well.
    pub(super) fn cut_for(&self, fault: Fault) -> ShutdownHow {
        let is_first = self.cut.replace(Some(fault)).is_none();
        let is_read = matches!(fault, Fault::ReadTimeout | Fault::ReadRate);
        if is_first && is_read { ShutdownHow::Read } else { ShutdownHow::Both }
    }

    /// Prepares the entry for a stream of another connection.
    pub fn begin_anew(&self) {
        self.state.set(ConnState::Idle);
        self.cut.set(None);
        self.paused.set((0, 0));
    }
}
