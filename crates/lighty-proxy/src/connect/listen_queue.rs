//! Estimates the listen queue of a backend from the client side.
//!
//! A backend that serves one connection per process (PHP, preforking servers, most FastCGI
//! programs) leaves every further connection in its listen queue. The kernel completes their
//! handshakes: they look connected, but data sent on them waits. Each idle connection that we keep
//! occupies a process. If idle connections occupied them all, a request on a new connection would
//! wait until one of them timed out. An event-driven backend accepts every connection at once, and
//! to close an idle one gains nothing there.
//!
//! A response on a connection proves that a process has accepted it and, since the queue is served
//! in order, all connections that were complete before this one was begun. The connections without
//! such a proof are the *line*. A backend shows that it is limited when the line stands still while
//! connections are idle, or while others get response after response. Then the number of accepted
//! connections is its [limit](ListenQueue::limit): beyond it requests wait for a connection to come
//! free, and a free connection is closed for each one in the line. The limit is raised now and
//! then, and faster the more often that succeeds.
//!
//! There is one queue per target, shared by all upstreams and workers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::connect::Target;
use tokio::sync::Notify;

/// Minimum milliseconds for which the line has to stand still before the backend counts as limited.
/// If responses are further apart than this, keeping connections gains nothing.
const DOUBT_MS: u64 = 2;

/// Maximum of this time, if responses take longer, or if the time turned out to be too short: on a
/// busy machine an event-driven backend may get no processor time for as long.
const DOUBT_MS_MAX: u64 = 100;

/// Maximum pause between two checks of a line that stands still, in milliseconds.
const LOOK_MS_MAX: u64 = 1_000;

/// Responses per open connection that show that a standing line is not just slow: a backend that
/// serves all connections in turn gives each the same share.
const PASSED_MAX: u64 = 2;

/// Pause in milliseconds before the limit is raised; doubles each time that failed.
const PAUSE_MS_MIN: u64 = 1_000;

/// The longest such pause, in milliseconds.
const PAUSE_MS_MAX: u64 = 64_000;

/// The limit of a backend that shows none.
const UNLIMITED: u32 = u32::MAX;

/// Over a network, a connection certainly precedes another in the queue only if it was complete
/// this many milliseconds before the other was begun: the last segment of its handshake may get
/// lost.
const NETWORK_MS: u64 = 1_000;

/// Notifies every worker to close idle connections.
static SURPLUS: Notify = Notify::const_new();

/// Waits until some queue has idle connections to close.
pub(crate) fn surplus() -> tokio::sync::futures::Notified<'static> {
    SURPLUS.notified()
}

/// A backend's listen queue.
pub(crate) struct ListenQueue {
    /// True if connections enter the queue in the order in which they are complete on this side.
    is_local: bool,
    /// Idle connections, of all workers.
    idle: AtomicU32,
    /// The lowest number of idle connections since the last check of the line.
    idle_low: AtomicU32,
    /// Connections that may not have been accepted yet; lets the common case skip the lock.
    waiting: AtomicU32,
    /// Idle connections to close.
    surplus: AtomicU32,
    /// Connections that the backend is believed to accept at once; [`UNLIMITED`] by default.
    limit: AtomicU32,
    /// Connections that may be opened beyond the limit, because none has come free for a while.
    overflow: AtomicU32,
    /// Connections that came free after a response so far.
    freed: AtomicU32,
    line: Mutex<Line>,
}

struct Line {
    /// Sequence number of the last event.
    last: u64,
    /// Connections that may be waiting, in the order in which they were begun.
    entries: VecDeque<LineEntry>,
    /// Connections that are open or being opened.
    open: u32,
    /// Open connections with a response: each occupies a process.
    held: u32,
    /// Lower bound of the number of processes.
    proven: u32,
    /// Held connections that were closed while others waited: the processes have accepted as many
    /// of the first in line.
    given: u32,
    /// Responses while others waited.
    passed: u64,
    /// The line at the last check, while it is watched.
    doubt: Option<Doubt>,
    /// Time for which it has to stand still, in milliseconds.
    doubt_ms: u64,
    /// Mean time to the first byte of a response.
    mean_us: u32,
    raise: Raise,
}

/// The line at its last check.
#[derive(Clone, Copy)]
struct Doubt {
    /// Its [first](Line::first) connection.
    first: u64,
    /// [`Line::passed`] when that connection became the first.
    passed: u64,
    /// Pause until the next check.
    pause_ms: u64,
}

/// Schedule for raising the limit.
struct Raise {
    at_ms: u64,
    pause_ms: u64,
    step: u32,
    /// The limit was raised, and since then has neither been reached nor failed.
    is_open: bool,
}

impl Default for ListenQueue {
    fn default() -> Self {
        Self {
            is_local: false,
            idle: AtomicU32::new(0),
            idle_low: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            surplus: AtomicU32::new(0),
            limit: AtomicU32::new(UNLIMITED),
            overflow: AtomicU32::new(0),
            freed: AtomicU32::new(0),
            line: Mutex::default(),
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Self {
            last: 0,
            entries: VecDeque::new(),
            open: 0,
            held: 0,
            proven: 0,
            given: 0,
            passed: 0,
            doubt: None,
            doubt_ms: DOUBT_MS,
            mean_us: 0,
            raise: Raise { at_ms: 0, pause_ms: PAUSE_MS_MIN, step: 1, is_open: false },
        }
    }
}

/// A connection that may be waiting to be accepted.
struct LineEntry {
    begun: u64,
    /// When its handshake completed: sequence number and time.
    complete: Option<(u64, u64)>,
}

/// Permission for a connection to become idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayIdle {
    Yes,
    /// Permitted while no request waits behind it: the caller spawns [`watch`].
    InDoubt,
    No,
}

impl ListenQueue {
    /// Returns the queue of a target.
    pub(crate) fn at(target: &Target) -> Arc<Self> {
        static KNOWN: LazyLock<Mutex<HashMap<Target, Weak<ListenQueue>>>> =
            LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = known.get(target).and_then(Weak::upgrade) {
            return queue;
        }
        known.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(Self { is_local: is_local(target), ..Self::default() });
        known.insert(target.clone(), Arc::downgrade(&queue));
        queue
    }

    /// Registers a connection about to be opened. Closes idle connections to make room for it if
    /// the backend may have no process for it. If the backend should have one, returns true, and
    /// the caller spawns [`watch`].
    #[cold]
    pub(crate) fn enter(self: &Arc<Self>, now_ms: u64, mean_us: u32) -> (Standing, bool) {
        let mut line = self.lock();
        let begun = line.number();
        line.mean_us = mean_us;
        line.open += 1;
        debug_assert!(line.entries.back().is_none_or(|last| last.begun < begun), "{begun}");
        line.entries.push_back(LineEntry { begun, complete: None });
        self.count(&line);
        // A connection becoming idle at the same time counts itself first and then checks the line:
        // one of the two sees the other.
        let idle = self.idle.load(Ordering::SeqCst);
        let beyond = line.open.saturating_sub(self.known(&line, mean_us));
        let doubts = idle > 0 && beyond == 0 && self.begin_doubt(&mut line);
        if idle > 0 && beyond > 0 {
            self.give_up(idle.min(beyond));
        }
        drop(line);
        let standing = Standing { queue: Arc::clone(self), begun, begun_ms: now_ms, holds: false };
        (standing, doubts)
    }

    /// Counts a connection as idle, if it may become idle. `mean_us` is the mean time to the first
    /// byte of a response.
    pub(crate) fn become_idle(&self, mean_us: u32) -> MayIdle {
        self.idle.fetch_add(1, Ordering::SeqCst);
        self.freed.fetch_add(1, Ordering::Relaxed);
        if self.overflow.load(Ordering::Relaxed) > 0 {
            self.overflow.store(0, Ordering::Relaxed);
        }
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return MayIdle::Yes;
        }
        let rest = self.may_idle(mean_us);
        if rest == MayIdle::No {
            self.leave_idle();
        }
        rest
    }

    /// Records that a connection leaves its pool, to be used or closed.
    pub(crate) fn leave_idle(&self) {
        let before = self.idle.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.idle_low.fetch_min(before - 1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn may_idle(&self, mean_us: u32) -> MayIdle {
        let mut line = self.lock();
        line.passed += 1;
        line.mean_us = mean_us;
        if line.entries.is_empty() {
            return MayIdle::Yes;
        }
        if line.open > self.known(&line, mean_us) && line.given < line.len() {
            return MayIdle::No;
        }
        if self.begin_doubt(&mut line) { MayIdle::InDoubt } else { MayIdle::Yes }
    }

    /// Returns the number of connections that may be open beside idle ones before the line has
    /// shown anything: up to the limit, if the backend has shown one. Otherwise any number, unless
    /// no response is expected within [`DOUBT_MS`]: with a mean of `mean_us`, each open connection
    /// yields one in that time.
    fn known(&self, line: &Line, mean_us: u32) -> u32 {
        let limit = self.limit.load(Ordering::Relaxed);
        let gap_us = u64::from(mean_us) / u64::from(line.open.max(1));
        match limit {
            UNLIMITED if gap_us > DOUBT_MS * 1000 => line.proven,
            limit => limit,
        }
    }

    /// Returns the number of connections that may be open at once.
    pub(crate) fn limit(&self) -> u32 {
        let limit = self.limit.load(Ordering::Relaxed);
        limit.saturating_add(self.overflow.load(Ordering::Relaxed))
    }

    /// Returns the number of connections that came free after a response; wraps around.
    pub(crate) fn freed(&self) -> u32 {
        self.freed.load(Ordering::Relaxed)
    }

    /// True if the backend has shown a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != UNLIMITED
    }

    /// Raises the limit if it is due. Returns true if it was raised.
    pub(crate) fn raise(&self, now_ms: u64) -> bool {
        let mut line = self.lock();
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == UNLIMITED || line.raise.is_open || now_ms < line.raise.at_ms {
            return false;
        }
        line.raise.is_open = true;
        self.limit.store(limit.saturating_add(line.raise.step), Ordering::Relaxed);
        true
    }

    /// Permits more connections beyond the limit, at most `room`, until one comes free. Returns
    /// their number.
    pub(crate) fn overflow(&self, room: u32) -> u32 {
        let before = self.overflow.load(Ordering::Relaxed);
        let more = before.max(1).min(room);
        self.overflow.store(before.saturating_add(more), Ordering::Relaxed);
        more
    }

    /// True if idle connections must be closed.
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus.load(Ordering::Acquire) > 0
    }

    /// Claims the closing of one idle connection. Returns false if none is left to close.
    pub(crate) fn claim_surplus(&self) -> bool {
        let less = |surplus: u32| surplus.checked_sub(1);
        self.surplus.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok()
    }

    /// Closes all idle connections.
    pub(crate) fn end_idle(&self) {
        let idle = self.idle.load(Ordering::SeqCst);
        if idle > 0 {
            self.give_up(idle);
        }
    }

    fn give_up(&self, count: u32) {
        self.surplus.fetch_max(count, Ordering::AcqRel);
        SURPLUS.notify_waiters();
    }

    fn count(&self, line: &Line) {
        #[cfg(debug_assertions)]
        line.check();
        self.waiting.store(line.len(), Ordering::SeqCst);
        if line.entries.is_empty() {
            self.surplus.store(0, Ordering::Release);
        }
    }

    /// Starts to watch the line. Returns true if no watcher runs yet.
    fn begin_doubt(&self, line: &mut Line) -> bool {
        let begins = line.doubt.is_none();
        if begins {
            self.idle_low.store(self.idle.load(Ordering::SeqCst), Ordering::Relaxed);
            line.doubt = Some(line.looked_at());
        }
        begins
    }

    /// Checks whether the line moves, and closes idle connections if not. Returns the pause until
    /// the next check in milliseconds; `None` if nothing is left to watch.
    fn look(&self, now_ms: u64) -> Option<u64> {
        let mut line = self.lock();
        let doubt = line.doubt.take()?;
        if line.entries.is_empty() {
            return None;
        }
        let idle = self.idle.load(Ordering::SeqCst);
        let idle_low = self.idle_low.swap(idle, Ordering::Relaxed);
        let mut next = line.looked_at();
        if next.first > 0 && next.first == doubt.first {
            next.passed = doubt.passed;
            next.pause_ms = (doubt.pause_ms * 2).min(LOOK_MS_MAX);
            let passed = line.passed - doubt.passed;
            if idle_low > 0 || passed > PASSED_MAX * u64::from(line.open) {
                next.passed = line.passed;
                self.saw_limit(&mut line, now_ms);
                if idle > 0 {
                    self.give_up(idle.min(line.len()));
                }
            }
        }
        line.doubt = Some(next);
        Some(next.pause_ms)
    }

    /// Handles a line that stood still: the backend accepts no more connections than the ones with
    /// a response.
    fn saw_limit(&self, line: &mut Line, now_ms: u64) {
        line.given = 0;
        line.proven = line.held;
        let has_failed = std::mem::take(&mut line.raise.is_open);
        if has_failed {
            line.raise.pause_ms = (line.raise.pause_ms * 2).min(PAUSE_MS_MAX);
        }
        line.raise.step = 1;
        line.raise.at_ms = now_ms.saturating_add(line.raise.pause_ms);
        self.limit.store(line.held.max(1), Ordering::Relaxed);
    }

    /// Handles an accepted connection.
    fn saw_accepted(&self, line: &mut Line) {
        line.held += 1;
        line.proven = line.proven.max(line.held);
        if line.raise.is_open && line.held >= self.limit.load(Ordering::Relaxed) {
            // It was not a limit, or is no longer one.
            line.raise = Raise {
                at_ms: 0,
                pause_ms: PAUSE_MS_MIN,
                step: line.raise.step.saturating_mul(2),
                is_open: false,
            };
            line.doubt_ms = (line.doubt_ms * 2).min(DOUBT_MS_MAX);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // No code panics while it holds the lock.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Checks the counts of a debug build.
    #[cfg(debug_assertions)]
    fn check(&self) {
        let len = self.len();
        debug_assert!(self.held + len <= self.open, "{} {len} {}", self.held, self.open);
        debug_assert!(self.given <= len, "{} of {len}", self.given);
        debug_assert!(self.proven >= self.held, "{} {}", self.proven, self.held);
    }

    /// Returns the first connection in line; 0 if it is empty. Connections still being opened do
    /// not count.
    fn first(&self) -> u64 {
        let first = self.entries.iter().find(|waiting| waiting.complete.is_some());
        first.map_or(0, |waiting| waiting.begun)
    }

    fn find(&self, begun: u64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&begun, |waiting| waiting.begun)
    }

    fn looked_at(&self) -> Doubt {
        // An event-driven backend responds to the first within about that time.
        let mean_ms = u64::from(self.mean_us) / 1_000;
        let pause_ms = mean_ms.clamp(self.doubt_ms, DOUBT_MS_MAX);
        Doubt { first: self.first(), passed: self.passed, pause_ms }
    }
}

fn is_local(target: &Target) -> bool {
    match target {
        Target::Tcp(address) => address.ip().is_loopback(),
        Target::Unix(_) | Target::Abstract(_) => true,
    }
}

/// Watches a queue for as long as a request waits beside idle connections.
pub(crate) async fn watch(queue: Arc<ListenQueue>, clock: Clock) {
    let begun = queue.lock().doubt;
    let mut pause_ms = begun.map_or(DOUBT_MS, |doubt| doubt.pause_ms);
    loop {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        clock.refresh();
        match queue.look(clock.mono_ms()) {
            Some(next_ms) => pause_ms = next_ms,
            None => return,
        }
    }
}

/// A connection's state at its backend: in the line, or accepted by a process.
pub(crate) struct Standing {
    queue: Arc<ListenQueue>,
    begun: u64,
    begun_ms: u64,
    holds: bool,
}

impl Standing {
    /// Records that the handshake is complete and the connection is in the queue.
    pub(crate) fn complete(&self, now_ms: u64) {
        let mut line = self.queue.lock();
        let number = line.number();
        if let Ok(at) = line.find(self.begun) {
            line.entries[at].complete = Some((number, now_ms));
        }
    }

    /// Records a response: a process holds this connection and has accepted all before it.
    #[inline]
    pub(crate) fn answered(&mut self) {
        if !self.holds {
            self.begin_to_hold();
        }
    }

    /// True if a process is known to hold it.
    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    #[cold]
    fn begin_to_hold(&mut self) {
        self.holds = true;
        let mut line = self.queue.lock();
        let margin_ms = if self.queue.is_local { 0 } else { NETWORK_MS };
        let was_before = |(number, ms): (u64, u64)| {
            number < self.begun && ms.saturating_add(margin_ms) <= self.begun_ms
        };
        let before = line.len();
        line.entries.retain(|waiting| {
            waiting.begun != self.begun && !waiting.complete.is_some_and(was_before)
        });
        let accepted = before - line.len();
        line.given = line.given.saturating_sub(accepted);
        self.queue.saw_accepted(&mut line);
        self.queue.count(&line);
    }
}

/// Drop this before closing the connection: the next connection must not be counted beside it.
impl Drop for Standing {
    fn drop(&mut self) {
        let mut line = self.queue.lock();
        line.open -= 1;
        if self.holds {
            line.held -= 1;
            line.given = (line.given + 1).min(line.len());
        } else if let Ok(at) = line.find(self.begun) {
            line.entries.remove(at);
            line.given = line.given.min(line.len());
            self.queue.count(&line);
        }
    }
}

#[cfg(test)]
#[path = "listen_queue_tests.rs"]
mod tests;
