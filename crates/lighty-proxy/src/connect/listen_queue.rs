//! Estimates the listen queue of a backend from the client side.
//!
//! A backend that serves one connection per process (PHP, preforking servers, most FastCGI
//! programs) leaves every further connection in its listen queue. The kernel completes their
//! handshakes: they look connected, but data sent on them waits. Each idle connection that we keep
//! occupies a process. If idle connections occupied them all, a request on a new connection would
//! wait until one of them timed out. So we keep only as many idle connections as the backend is
//! known to have processes for, and close them when a request may be waiting behind them.
//!
//! A response on a connection proves that a process has accepted it and, since the queue is served
//! in order, all connections that were complete before this one was begun. The backend has at least
//! as many processes as it ever held connections at once.
//!
//! There is one queue per target, shared by all upstreams and workers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::connect::Target;
use tokio::sync::Notify;

/// Milliseconds in which a request that waits beside idle connections must make progress. If
/// responses are further apart than this, keeping connections gains nothing.
const DOUBT_MS: u64 = 2;

/// Pause in milliseconds after a doubt that proved right; doubles each time.
const PAUSE_MS_MIN: u64 = 1_000;

/// The longest such pause, in milliseconds.
const PAUSE_MS_MAX: u64 = 64_000;

/// Over a network, a connection is certainly before another one in the queue only if it was
/// complete this many milliseconds before the other was begun: the last segment of its handshake
/// may get lost.
const NETWORK_MS: u64 = 1_000;

/// Tells every worker to close idle connections.
static SURPLUS: Notify = Notify::const_new();

/// Waits until some queue has idle connections to close.
pub(crate) fn surplus() -> tokio::sync::futures::Notified<'static> {
    SURPLUS.notified()
}

/// A backend's listen queue.
#[derive(Default)]
pub(crate) struct ListenQueue {
    /// True if connections enter the queue in the order in which they are complete on this side.
    is_local: bool,
    /// Idle connections, of all workers.
    idle: AtomicU32,
    /// Connections that may not have been accepted yet; lets the common case skip the lock.
    waiting: AtomicU32,
    /// Idle connections to close.
    surplus: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sequence number of the last event.
    last: u64,
    /// Connections that may be waiting, in the order in which they were begun.
    line: VecDeque<Waiting>,
    /// Connections that are open or being opened.
    open: u32,
    /// Of these, those with a response: each occupies a process.
    held: u32,
    /// Lower bound of the number of processes.
    proven: u32,
    /// While a request waits beside idle connections: the [first](State::first) in line at the last
    /// check.
    doubt: Option<u64>,
    /// When more connections than known processes may be kept for a moment, to learn.
    learn_at_ms: u64,
    pause_ms: u64,
}

/// A connection that may be waiting to be accepted.
struct Waiting {
    begun: u64,
    /// When its handshake completed: sequence number and time.
    complete: Option<(u64, u64)>,
}

/// Whether a connection may become idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayIdle {
    Yes,
    /// While no request waits behind it: the caller spawns [`watch`].
    InDoubt,
    No,
}

impl ListenQueue {
    /// The queue of a target.
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

    /// Registers a connection about to be opened. Idle connections are closed to make room for it,
    /// unless there is a process for each. In that case it returns `true`, and the caller spawns
    /// [`watch`].
    #[cold]
    pub(crate) fn enter(self: &Arc<Self>, now_ms: u64) -> (Standing, bool) {
        let mut state = self.lock();
        let begun = state.number();
        state.open += 1;
        state.line.push_back(Waiting { begun, complete: None });
        self.count(&state);
        // A connection becoming idle at the same time counts itself first and then looks at the
        // line: one of the two sees the other.
        let idle = self.idle.load(Ordering::SeqCst);
        let beyond = state.open.saturating_sub(state.proven);
        let doubts = idle > 0 && beyond == 0 && state.begin_doubt();
        if idle > 0 && beyond > 0 {
            self.give_up(idle.min(beyond));
        }
        drop(state);
        let standing = Standing { queue: Arc::clone(self), begun, begun_ms: now_ms, holds: false };
        (standing, doubts)
    }

    /// Counts a connection as idle, unless it may not be. `mean_us` is the mean time to the first
    /// byte of a response.
    pub(crate) fn become_idle(&self, now_ms: u64, mean_us: u32) -> MayIdle {
        self.idle.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return MayIdle::Yes;
        }
        let rest = self.may_idle(now_ms, mean_us);
        if rest == MayIdle::No {
            self.leave_idle();
        }
        rest
    }

    /// Records that a connection leaves its pool, to be used or closed.
    pub(crate) fn leave_idle(&self) {
        let before = self.idle.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0);
    }

    #[cold]
    fn may_idle(&self, now_ms: u64, mean_us: u32) -> MayIdle {
        let mut state = self.lock();
        if state.line.is_empty() {
            return MayIdle::Yes;
        }
        if state.open > state.proven && !state.may_learn(now_ms, mean_us) {
            return MayIdle::No;
        }
        if state.begin_doubt() { MayIdle::InDoubt } else { MayIdle::Yes }
    }

    /// True if idle connections must be closed.
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus.load(Ordering::Acquire) > 0
    }

    /// Claims the closing of one idle connection; `false` if none is left to close.
    pub(crate) fn claim_surplus(&self) -> bool {
        let less = |surplus: u32| surplus.checked_sub(1);
        self.surplus.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok()
    }

    fn give_up(&self, count: u32) {
        self.surplus.fetch_max(count, Ordering::AcqRel);
        SURPLUS.notify_waiters();
    }

    fn count(&self, state: &State) {
        self.waiting.store(state.line.len() as u32, Ordering::SeqCst);
        if state.line.is_empty() {
            self.surplus.store(0, Ordering::Release);
        }
    }

    /// Checks whether the line moves, and closes all idle connections if not. `false`: nothing is
    /// left to watch.
    fn look(&self, now_ms: u64) -> bool {
        let mut state = self.lock();
        let first = state.first();
        let stands_still = first > 0 && state.doubt == Some(first);
        let goes_on = !state.line.is_empty() && !stands_still;
        state.doubt = goes_on.then_some(first);
        if !stands_still {
            return goes_on;
        }
        state.proven = state.held;
        state.learn_at_ms = now_ms.saturating_add(state.pause_ms.max(PAUSE_MS_MIN));
        state.pause_ms = (state.pause_ms * 2).clamp(PAUSE_MS_MIN * 2, PAUSE_MS_MAX);
        let idle = self.idle.load(Ordering::SeqCst);
        if idle > 0 {
            self.give_up(idle);
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The first in line. Connections still being opened do not count; 0: the line is empty.
    fn first(&self) -> u64 {
        let first = self.line.iter().find(|waiting| waiting.complete.is_some());
        first.map_or(0, |waiting| waiting.begun)
    }

    fn find(&self, begun: u64) -> Result<usize, usize> {
        self.line.binary_search_by_key(&begun, |waiting| waiting.begun)
    }

    /// Starts a doubt; `true` if no watcher runs yet.
    fn begin_doubt(&mut self) -> bool {
        let begins = self.doubt.is_none();
        if begins {
            self.doubt = Some(self.first());
        }
        begins
    }

    /// True if a connection may be kept idle to see whether others get responses beside it. This is
    /// pointless if no response is expected within [`DOUBT_MS`]: with a mean of `mean_us`, each
    /// open connection yields one in that time.
    fn may_learn(&self, now_ms: u64, mean_us: u32) -> bool {
        let gap_us = u64::from(mean_us) / u64::from(self.open.max(1));
        now_ms >= self.learn_at_ms && gap_us <= DOUBT_MS * 1000
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
    loop {
        tokio::time::sleep(Duration::from_millis(DOUBT_MS)).await;
        clock.refresh();
        if !queue.look(clock.mono_ms()) {
            return;
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
        let mut state = self.queue.lock();
        let number = state.number();
        if let Ok(at) = state.find(self.begun) {
            state.line[at].complete = Some((number, now_ms));
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
        let mut state = self.queue.lock();
        let margin_ms = if self.queue.is_local { 0 } else { NETWORK_MS };
        let was_before = |(number, ms): (u64, u64)| {
            number < self.begun && ms.saturating_add(margin_ms) <= self.begun_ms
        };
        state.line.retain(|waiting| {
            waiting.begun != self.begun && !waiting.complete.is_some_and(was_before)
        });
        state.held += 1;
        if state.held > state.proven {
            state.proven = state.held;
            state.pause_ms = PAUSE_MS_MIN;
        }
        self.queue.count(&state);
    }
}

/// Drop this before closing the connection: the next connection must not be counted beside it.
impl Drop for Standing {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.open -= 1;
        if self.holds {
            state.held -= 1;
        } else if let Ok(at) = state.find(self.begun) {
            state.line.remove(at);
            self.queue.count(&state);
        }
    }
}

#[cfg(test)]
#[path = "listen_queue_tests.rs"]
mod tests;
