//! All connections of a worker, as seen by the sweep and the limits.
//!
//! No timer is armed per request. A connection records what it waits for and since when, and the
//! sweep ends overdue waits once a second. It does so with `shutdown` on the socket: the
//! connection's task wakes, finds the reason in its entry, and responds or closes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use lighty_core::Fault;
use lighty_core::stage::{Stage, Stages};
use lighty_core::status_board::ConnState;
use lighty_core::throttle::Bucket;
use lighty_io::clock::Clock;
use lighty_io::transport::{Kick, KickHow};

use crate::worker::Worker;

/// Limits of the current state: seconds or bytes per second, 0 = none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    pub idle_s: u32,
    pub head_s: u32,
    pub read_idle_s: u32,
    pub write_idle_s: u32,
    pub half_closed_idle_s: u32,
    pub min_read_rate: u32,
    pub min_write_rate: u32,
    /// Log the end of an idle connection (`debug.log-timeouts`).
    pub log_idle: bool,
}

/// Grace period during a stop for a connection without a request, in seconds rounded up.
const LAST_CHANCE_S: u32 = 2;

/// Time during which a new connection is reaped last, in seconds rounded up.
const NEWCOMER_S: u32 = 2;

/// Time during which a partial head is not reaped, in seconds rounded up.
const HALF_HEAD_S: u32 = 2;

/// Seconds before a minimum rate is enforced, since a stream may start slowly.
const RATE_GRACE_S: u32 = 10;

/// The seconds that the sweep counts in.
pub(crate) fn sweep_s(clock: &Clock) -> u32 {
    (clock.mono_ms() / 1000) as u32
}

/// One connection's entry.
pub struct ConnEntry {
    kick: Kick,
    state: Cell<ConnState>,
    since_s: Cell<u32>,
    limits: Cell<Limits>,
    /// Settings variant that the limits come from.
    variant: Cell<Option<u64>>,
    /// Bytes moved since the current wait began; updated by the connection and by senders.
    pub progress: Rc<Cell<u64>>,
    seen_progress: Cell<u64>,
    seen_s: Cell<u32>,
    kicked: Cell<Option<Fault>>,
    closing: Cell<bool>,
    /// No request has arrived on it yet.
    fresh: Cell<bool>,
    /// Bucket for `connection.kbytes-per-second`, created by the first throttled response.
    bucket: RefCell<Option<Arc<Bucket>>>,
    /// Position in the order in which connections became idle.
    idle_order: Cell<u64>,
    index: Cell<usize>,
    client: Rc<str>,
    asked: RefCell<Option<Box<Asked>>>,
}

/// A connection's latest request, for the status page.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub method: &'static str,
    pub host: Vec<u8>,
    /// As received.
    pub target: Vec<u8>,
}

impl ConnEntry {
    /// The connection's exchange comes to a stage: sets what the sweep judges, the letter on the
    /// status page, and the stamp.
    #[inline]
    pub fn enter(&self, stage: Stage, stages: &mut Stages, clock: &Clock) {
        stages.enter(stage, clock.mono_us());
        match stage {
            Stage::FirstByte => self.wait_for(ConnState::Head, clock),
            Stage::Head => self.wait_for(ConnState::Handler, clock),
            Stage::FirstByteOut => self.wait_for(ConnState::Write, clock),
            _ => {}
        }
    }

    /// Records what the connection waits for from now on, within a stage or without a request.
    #[inline]
    pub fn wait_for(&self, state: ConnState, clock: &Clock) {
        self.wait_from(state, sweep_s(clock));
    }

    fn wait_from(&self, state: ConnState, now_s: u32) {
        self.state.set(state);
        self.since_s.set(now_s);
        self.progress.set(0);
        self.seen_progress.set(0);
        self.seen_s.set(now_s);
    }

    /// Records a wait for more of the request body.
    pub fn wait_for_body(&self, clock: &Clock) {
        match self.state.get() {
            ConnState::Body | ConnState::Duplex => {}
            // Progress in either direction counts for both.
            ConnState::Write => self.state.set(ConnState::Duplex),
            ConnState::Idle | ConnState::Head | ConnState::Handler => {
                self.wait_for(ConnState::Body, clock)
            }
        }
    }

    /// Ends the wait for the request body.
    pub fn stop_waiting_for_body(&self, clock: &Clock) {
        match self.state.get() {
            ConnState::Body => self.wait_for(ConnState::Handler, clock),
            ConnState::Duplex => self.state.set(ConnState::Write),
            ConnState::Idle | ConnState::Head | ConnState::Handler | ConnState::Write => {}
        }
    }

    /// True if the connection has begun to respond.
    pub fn is_writing(&self) -> bool {
        matches!(self.state.get(), ConnState::Write | ConnState::Duplex)
    }

    /// Sets the limits in force from now on.
    pub fn limit(&self, limits: Limits) {
        self.limits.set(limits);
    }

    /// True if the limits came from another settings variant; records `variant`.
    pub fn is_new_to(&self, variant: u64) -> bool {
        self.variant.replace(Some(variant)) != Some(variant)
    }

    /// The connection's bucket for a rate in KB per second; shared by its requests.
    pub fn bucket(&self, kbytes: u64, now_ms: u64) -> Arc<Bucket> {
        let mut bucket = self.bucket.borrow_mut();
        match &*bucket {
            Some(known) if known.kbytes_per_second() == kbytes => Arc::clone(known),
            _ => Arc::clone(bucket.insert(Arc::new(Bucket::per_second(kbytes, now_ms)))),
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// The client's address.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// When the current wait began, in sweep seconds.
    pub fn since_s(&self) -> u32 {
        self.since_s.get()
    }

    /// Records a request.
    pub fn note(&self, method: &'static str, host: &[u8], target: &[u8]) {
        let mut asked = self.asked.borrow_mut();
        let asked = asked.get_or_insert_default();
        asked.method = method;
        asked.host.clear();
        asked.host.extend_from_slice(host);
        asked.target.clear();
        asked.target.extend_from_slice(target);
    }

    /// The latest recorded request.
    pub fn asked(&self) -> Option<Asked> {
        self.asked.borrow().as_deref().cloned()
    }

    /// What the connection waits for.
    pub fn state(&self) -> ConnState {
        self.state.get()
    }

    /// Why the sweep ended the connection, if it did.
    pub fn kicked(&self) -> Option<Fault> {
        self.kicked.get()
    }

    /// Records that a request has arrived.
    pub fn mark_request_received(&self) {
        self.fresh.set(false);
    }

    /// Makes the current request, if any, the last one before a stop. A fresh connection gets a
    /// short grace period, because its client is about to send a request.
    pub fn close_soon(&self, now_s: u32) {
        self.closing.set(true);
        if self.state.get() != ConnState::Idle {
            return;
        }
        if self.fresh.get() {
            // The grace period starts now, whatever the connection's age.
            self.since_s.set(now_s);
            self.limits.set(Limits { idle_s: LAST_CHANCE_S, ..self.limits.get() });
        } else {
            // Bytes already received are still read and answered.
            self.kick.kick(KickHow::Read);
        }
    }

    /// True if the connection must close once idle (stop, reaping).
    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// True if the connection was just accepted and has sent no request yet.
    fn is_newcomer(&self, now_s: u32) -> bool {
        self.fresh.get() && now_s.saturating_sub(self.since_s.get()) < NEWCOMER_S
    }

    /// True if the rest of the head is overdue enough to make room for others.
    fn is_slow(&self, now_s: u32) -> bool {
        self.state.get() == ConnState::Head
            && self.kicked.get().is_none()
            && now_s.saturating_sub(self.since_s.get()) >= HALF_HEAD_S
    }

    /// The limit exceeded at `now_s`, if any.
    fn overdue(&self, now_s: u32) -> Option<Fault> {
        let limits = self.limits.get();
        let waited = now_s.saturating_sub(self.since_s.get());
        let over = |limit: u32| limit > 0 && waited >= limit;
        match self.state.get() {
            ConnState::Handler => None,
            ConnState::Idle => over(limits.idle_s).then_some(Fault::ClientGone),
            ConnState::Head => over(limits.head_s).then_some(Fault::HeadTimeout),
            ConnState::Body => self
                .stalled(now_s, limits.read_idle_s, Fault::ReadTimeout)
                .or_else(|| self.too_slow(waited, limits.min_read_rate, Fault::ReadRate)),
            ConnState::Write => self
                .stalled(now_s, limits.write_idle_s, Fault::WriteTimeout)
                .or_else(|| self.too_slow(waited, limits.min_write_rate, Fault::WriteRate)),
            ConnState::Duplex => self
                .stalled(now_s, limits.write_idle_s, Fault::WriteTimeout)
                .or_else(|| self.too_slow(waited, limits.min_read_rate, Fault::ReadRate))
                .or_else(|| self.too_slow(waited, limits.min_write_rate, Fault::WriteRate)),
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

    fn too_slow(&self, waited_s: u32, rate: u32, fault: Fault) -> Option<Fault> {
        let wanted = u64::from(rate) * u64::from(waited_s);
        (rate > 0 && waited_s >= RATE_GRACE_S && self.progress.get() < wanted).then_some(fault)
    }

    /// Ends the wait. Reads return end of file; for a write fault, writes fail.
    fn kick_out(&self, fault: Fault) {
        if self.kicked.replace(Some(fault)).is_some() {
            self.kick.kick(KickHow::Both);
            return;
        }
        match fault {
            Fault::HeadTimeout | Fault::ReadTimeout | Fault::ReadRate => {
                _ = self.kick.kick(KickHow::Read)
            }
            _ => _ = self.kick.kick(KickHow::Both),
        }
    }
}

/// A connection's place in its worker's table, released on drop however the connection ends.
pub(crate) struct Presence {
    entry: Rc<ConnEntry>,
    worker: Rc<Worker>,
}

impl Presence {
    /// Wraps an entry just added to the table.
    pub(crate) fn new(entry: Rc<ConnEntry>, worker: &Rc<Worker>) -> Self {
        Self { entry, worker: Rc::clone(worker) }
    }

    /// The worker whose table it is.
    pub(crate) fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }
}

impl std::ops::Deref for Presence {
    type Target = Rc<ConnEntry>;

    fn deref(&self) -> &Rc<ConnEntry> {
        &self.entry
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.worker.leave(&self.entry);
    }
}

/// The table of a worker's connections.
#[derive(Default)]
pub struct ConnTable {
    table: RefCell<Vec<Option<Rc<ConnEntry>>>>,
    free: RefCell<Vec<usize>>,
    open: Cell<usize>,
    idle_order: Cell<u64>,
}

impl ConnTable {
    /// Adds a connection.
    pub fn enter(&self, kick: Kick, client: Rc<str>, now_s: u32) -> Rc<ConnEntry> {
        let entry = Rc::new(ConnEntry {
            kick,
            state: Cell::new(ConnState::Idle),
            since_s: Cell::new(now_s),
            limits: Cell::new(Limits::default()),
            variant: Cell::new(None),
            progress: Rc::new(Cell::new(0)),
            seen_progress: Cell::new(0),
            seen_s: Cell::new(now_s),
            kicked: Cell::new(None),
            closing: Cell::new(false),
            fresh: Cell::new(true),
            bucket: RefCell::default(),
            idle_order: Cell::new(self.next_idle_order()),
            index: Cell::new(0),
            client,
            asked: RefCell::default(),
        });
        let mut table = self.table.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            table.push(None);
            table.len() - 1
        });
        entry.index.set(index);
        table[index] = Some(Rc::clone(&entry));
        self.open.set(self.open.get() + 1);
        entry
    }

    /// Removes a connection.
    pub fn leave(&self, entry: &ConnEntry) {
        let index = entry.index.get();
        self.table.borrow_mut()[index] = None;
        self.free.borrow_mut().push(index);
        self.open.set(self.open.get() - 1);
    }

    /// Marks a connection as waiting for a request.
    pub fn wait_idle(&self, entry: &ConnEntry, now_s: u32) {
        entry.idle_order.set(self.next_idle_order());
        entry.wait_from(ConnState::Idle, now_s);
    }

    fn next_idle_order(&self) -> u64 {
        self.idle_order.replace(self.idle_order.get() + 1)
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Number of open connections that wait for a request.
    pub fn idle(&self) -> usize {
        let table = self.table.borrow();
        table.iter().flatten().filter(|s| s.state.get() == ConnState::Idle).count()
    }

    /// Calls `see` with each open connection.
    pub fn for_each(&self, see: impl FnMut(&ConnEntry)) {
        self.table.borrow().iter().flatten().map(|entry| &**entry).for_each(see);
    }

    /// Once a second, ends connections whose wait exceeds its limit, calling `report` for each.
    pub fn sweep(&self, now_s: u32, mut report: impl FnMut(ConnState, Fault)) {
        for entry in self.table.borrow().iter().flatten() {
            if let Some(fault) = entry.overdue(now_s) {
                report(entry.state.get(), fault);
                entry.kick_out(fault);
            }
        }
    }

    /// Closes up to `count` idle connections, the longest idle first and newcomers last. Returns
    /// how many were told to close.
    pub fn reap(&self, count: usize, now_s: u32) -> usize {
        let table = self.table.borrow();
        let mut idle: Vec<&Rc<ConnEntry>> = table
            .iter()
            .flatten()
            .filter(|s| s.state.get() == ConnState::Idle && !s.closing.get())
            .collect();
        if idle.is_empty() {
            return self.reap_half_heads(count, now_s);
        }
        let count = count.min(idle.len());
        if count < idle.len() {
            let order = |s: &&Rc<ConnEntry>| (s.is_newcomer(now_s), s.idle_order.get());
            idle.select_nth_unstable_by_key(count - 1, order);
        }
        for entry in &idle[..count] {
            entry.closing.set(true);
            entry.kick.kick(KickHow::Both);
        }
        count
    }

    /// Reaps connections slow to finish a head, the longest waiting first. They get a 408.
    fn reap_half_heads(&self, count: usize, now_s: u32) -> usize {
        let table = self.table.borrow();
        let mut slow: Vec<&Rc<ConnEntry>> =
            table.iter().flatten().filter(|s| s.is_slow(now_s)).collect();
        let count = count.min(slow.len());
        slow.sort_unstable_by_key(|entry| entry.since_s.get());
        slow[..count].iter().for_each(|entry| entry.kick_out(Fault::HeadTimeout));
        count
    }

    /// Graceful stop: idle connections close now, the others after their response.
    pub fn close_when_idle(&self, now_s: u32) {
        self.for_each(|entry| entry.close_soon(now_s));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lighty_io::transport::Stream;
    use tokio::net::UnixStream;

    #[test]
    fn who_has_not_asked_yet_has_a_whole_second_from_the_stop_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            let (one, _other) = UnixStream::pair().expect("a pair");
            let conns = ConnTable::default();
            let silent = conns.enter(Stream::from(one).kick_handle(), "".into(), 10);
            conns.close_when_idle(15);
            assert_eq!(silent.overdue(16), None);
            assert_eq!(silent.overdue(17), Some(Fault::ClientGone));
        });
    }

    #[test]
    fn half_heads_make_room_where_nobody_is_idle_but_not_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            let (one, other) = UnixStream::pair().expect("a pair");
            let (one, other) = (Stream::from(one), Stream::from(other));
            let conns = ConnTable::default();
            let first = conns.enter(one.kick_handle(), "".into(), 10);
            let second = conns.enter(other.kick_handle(), "".into(), 10);
            second.wait_from(ConnState::Head, 11);
            first.wait_from(ConnState::Head, 10);
            assert_eq!(conns.reap(2, 11), 0, "both may still be on their way");
            assert_eq!(conns.reap(2, 12), 1);
            assert_eq!((first.kicked(), second.kicked()), (Some(Fault::HeadTimeout), None));
            first.wait_from(ConnState::Idle, 12);
            assert_eq!(conns.reap(2, 20), 1, "an idle one goes before");
            assert_eq!(second.kicked(), None);
            assert_eq!(conns.reap(2, 20), 1);
            assert_eq!(second.kicked(), Some(Fault::HeadTimeout));
        });
    }

    #[test]
    fn the_longest_idle_make_room_first_and_newcomers_last() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            for (now_s, newcomer_stays) in [(11, true), (12, false)] {
                let (one, other) = UnixStream::pair().expect("a pair");
                let (one, other) = (Stream::from(one), Stream::from(other));
                let conns = ConnTable::default();
                let newcomer = conns.enter(one.kick_handle(), "".into(), 10);
                let asked = conns.enter(other.kick_handle(), "".into(), 10);
                asked.mark_request_received();
                conns.wait_idle(&asked, 10);
                assert_eq!(conns.reap(1, now_s), 1);
                assert_eq!(asked.is_closing(), newcomer_stays);
                assert_eq!(newcomer.is_closing(), !newcomer_stays);
                assert_eq!(conns.reap(2, now_s), 1, "the other one, where nothing else is left");
            }
        });
    }

    #[tokio::test]
    async fn a_client_that_neither_reads_nor_sends_enough_is_cut() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let entry = ConnTable::default().enter(Stream::from(one).kick_handle(), "".into(), 0);
        entry.limit(Limits { write_idle_s: 5, min_read_rate: 100, ..Limits::default() });
        let clock = Clock::manual(0);
        let overdue_after = |seconds: u32, bytes_each: u64| {
            entry.wait_from(ConnState::Write, 0);
            entry.wait_for_body(&clock);
            (1..=seconds).find_map(|now_s| {
                entry.progress.set(entry.progress.get() + bytes_each);
                entry.overdue(now_s).map(|fault| (now_s, fault))
            })
        };
        assert_eq!(overdue_after(60, 0), Some((5, Fault::WriteTimeout)));
        assert_eq!(overdue_after(60, 99), Some((RATE_GRACE_S, Fault::ReadRate)));
        assert_eq!(overdue_after(60, 100), None);
        entry.stop_waiting_for_body(&clock);
        assert_eq!(entry.state(), ConnState::Write, "the limits of writing go on");
    }
}
