//! The listen queue of a backend, as far as it can be known from this end.
//!
//! A backend that serves one connection with each of its processes (PHP, preforking servers, most
//! FastCGI programs) leaves every further connection in its listen queue. The kernel accepts those:
//! they look connected, and whatever is sent on them waits. An idle connection that we keep holds a
//! process; were all processes held so, a request on a new connection would wait until one of them
//! had rested long enough. So idle connections are kept as far as the backend is known to have
//! processes, and given up when a request may be waiting behind them.
//!
//! What is known: an answer on a connection says that a process has accepted it, and, since a queue
//! is served in its order, all that were complete before this one was begun. As many connections
//! as were held at once is how many processes there are at least.
//!
//! One queue belongs to one target, whichever upstreams and workers use it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::connect::Target;
use tokio::sync::Notify;

/// Milliseconds in which a request that waits beside idle connections has to get somewhere. Where
/// answers come further apart, nothing is won by keeping connections.
const DOUBT_MS: u64 = 2;

/// How long nothing is tried after a doubt that proved right; doubles each time.
const PAUSE_MS_MIN: u64 = 1_000;

/// The longest such pause.
const PAUSE_MS_MAX: u64 = 64_000;

/// How much earlier a connection over a network is complete than another one is begun, for it to be
/// sure that it is before that in the queue: the last segment of its handshake may get lost.
const NETWORK_MS: u64 = 1_000;

/// Tells every worker that idle connections are to be ended.
static SURPLUS: Notify = Notify::const_new();

/// Waits until some queue has idle connections that are to be ended.
pub(crate) fn surplus() -> tokio::sync::futures::Notified<'static> {
    SURPLUS.notified()
}

/// A backend's listen queue.
#[derive(Default)]
pub(crate) struct ListenQueue {
    /// Whether connections come into the queue in the order in which they are complete here.
    is_local: bool,
    /// Idle connections, of all workers.
    idle: AtomicU32,
    /// Connections of which it is not known whether a process has accepted them: what the common
    /// case looks at without taking the lock.
    waiting: AtomicU32,
    /// Idle connections that are to be ended.
    surplus: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of what happened last.
    last: u64,
    /// Those that may be waiting, in the order in which they were begun.
    line: VecDeque<Waiting>,
    /// Connections there are or that are being made.
    open: u32,
    /// Of them, those on which an answer came: each holds a process.
    held: u32,
    /// Processes there are at least.
    proven: u32,
    /// While a request waits beside idle connections: who was [first](State::first) when it was
    /// looked last.
    doubt: Option<u64>,
    /// When more connections than processes are known may be kept for a moment, to learn.
    learn_at_ms: u64,
    pause_ms: u64,
}

/// A connection that may be waiting to be accepted.
struct Waiting {
    begun: u64,
    /// When it was complete: number and time.
    complete: Option<(u64, u64)>,
}

/// Whether a connection may come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Yes,
    /// As long as nobody waits behind it: [`watch`] is to be spawned.
    InDoubt,
    No,
}

impl ListenQueue {
    /// The queue at a target.
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

    /// A connection is about to be made. Idle ones make room for it, unless there is a process for
    /// each: then `true`, and [`watch`] is to be spawned.
    #[cold]
    pub(crate) fn enter(self: &Arc<Self>, now_ms: u64) -> (Standing, bool) {
        let mut state = self.lock();
        let begun = state.number();
        state.open += 1;
        state.line.push_back(Waiting { begun, complete: None });
        self.count(&state);
        // Whoever comes to rest in this moment counts itself first and looks at the line then: one
        // of the two sees the other.
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

    /// A connection comes to rest, and is counted unless it may not. `mean_us` is how long
    /// an answer takes to begin, in the mean.
    pub(crate) fn rests(&self, now_ms: u64, mean_us: u32) -> Rest {
        self.idle.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return Rest::Yes;
        }
        let rest = self.judge(now_ms, mean_us);
        if rest == Rest::No {
            self.wakes();
        }
        rest
    }

    /// A connection leaves its pool, to be used or closed.
    pub(crate) fn wakes(&self) {
        let before = self.idle.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0);
    }

    #[cold]
    fn judge(&self, now_ms: u64, mean_us: u32) -> Rest {
        let mut state = self.lock();
        if state.line.is_empty() {
            return Rest::Yes;
        }
        if state.open > state.proven && !state.may_learn(now_ms, mean_us) {
            return Rest::No;
        }
        if state.begin_doubt() { Rest::InDoubt } else { Rest::Yes }
    }

    /// Whether idle connections are to be ended.
    pub(crate) fn has_surplus(&self) -> bool {
        self.surplus.load(Ordering::Acquire) > 0
    }

    /// Takes it on to end one idle connection; `false` where none is left to be ended.
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

    /// Looks whether the line moves, and gives up all idle connections where it does not. `false`:
    /// there is nothing more to be watched.
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

    /// Who is first in the line. Those that are still being made are not in it yet; 0: nobody is.
    fn first(&self) -> u64 {
        let first = self.line.iter().find(|waiting| waiting.complete.is_some());
        first.map_or(0, |waiting| waiting.begun)
    }

    fn find(&self, begun: u64) -> Result<usize, usize> {
        self.line.binary_search_by_key(&begun, |waiting| waiting.begun)
    }

    /// `true`: nobody watches yet.
    fn begin_doubt(&mut self) -> bool {
        let begins = self.doubt.is_none();
        if begins {
            self.doubt = Some(self.first());
        }
        begins
    }

    /// Whether a connection may be kept to see if others are answered beside it. In vain where an
    /// answer is not to be expected as long as that is watched: with a mean of `mean_us`, each of
    /// the open ones brings one in that time.
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

/// Watches a queue in which a request waits beside idle connections, for as long as it does.
pub(crate) async fn watch(queue: Arc<ListenQueue>, clock: Clock) {
    loop {
        tokio::time::sleep(Duration::from_millis(DOUBT_MS)).await;
        clock.refresh();
        if !queue.look(clock.mono_ms()) {
            return;
        }
    }
}

/// Where a connection stands with its backend: in the line, or with a process of its own.
pub(crate) struct Standing {
    queue: Arc<ListenQueue>,
    begun: u64,
    begun_ms: u64,
    holds: bool,
}

impl Standing {
    /// The connection is complete, and in the queue.
    pub(crate) fn complete(&self, now_ms: u64) {
        let mut state = self.queue.lock();
        let number = state.number();
        if let Ok(at) = state.find(self.begun) {
            state.line[at].complete = Some((number, now_ms));
        }
    }

    /// An answer came: a process holds this connection, and has accepted all that were before it.
    #[inline]
    pub(crate) fn answered(&mut self) {
        if !self.holds {
            self.begin_to_hold();
        }
    }

    /// Whether a process is known to hold it.
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

/// To be dropped before the connection is closed: who comes next must not be counted beside it.
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
