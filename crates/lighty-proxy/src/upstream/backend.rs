//! A backend behind an address: its connections, health and statistics. Shared by all workers, and
//! kept by a reload that changes its settings in an upstream.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use lighty_io::connect::Target;
use lighty_io::tls::ClientOptions;
use tokio::sync::Notify;

use crate::connect::listen_queue::ListenQueue;
use crate::upstream::backend_tls::{BackendTls, CurrentMaterials};
use crate::upstream::health::passive::Health;
use crate::upstream::operator::{OperatorState, Orders};
use crate::upstream::preset::Presets;
use crate::upstream::remembered::{Histories, RememberedBackend};
use crate::upstream::spec::{HealthSpec, Protocol, ProxyProtocol, SpawnSpec};

/// Unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressId(u64);

impl AddressId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Identity of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BackendKey {
    /// The name of the upstream, with the conditions around it.
    pub upstream: Arc<str>,
    pub protocol: Protocol,
    pub target: Target,
    /// The program that the server starts there: another program has separate connections.
    pub program: Option<Arc<SpawnSpec>>,
    pub proxy_protocol: Option<ProxyProtocol>,
    pub tls: Option<Arc<ClientOptions>>,
    /// Number of earlier occurrences of the target in the upstream.
    pub repeat: usize,
}

/// The backends in use, each kept while an upstream or a connection holds it.
#[derive(Default)]
pub(crate) struct Backends {
    known: Mutex<HashMap<BackendKey, Weak<Backend>, foldhash::fast::RandomState>>,
    /// Histories from the process before this one.
    pub(crate) histories: Histories,
    /// Certificates for verifying backends with TLS.
    pub(crate) materials: Arc<CurrentMaterials>,
    /// Orders for backends that are not in use yet.
    pub(crate) presets: Presets,
}

impl Backends {
    /// Returns the backend of this identity, with its history if it has one. `text` is its address
    /// in logs.
    pub(crate) fn get(&self, key: BackendKey, text: &str, health: &HealthSpec) -> Arc<Backend> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = known.get(&key).and_then(Weak::upgrade) {
            backend.set_gone(false);
            return backend;
        }
        known.retain(|_, backend| backend.strong_count() > 0);
        let tls = key.tls.as_ref().map(|options| BackendTls::new(options, &self.materials));
        let backend = Arc::new(Backend { tls, ..Backend::new(&key.target, health) });
        self.presets.apply(&key.upstream, text, &backend.orders);
        known.insert(key, Arc::downgrade(&backend));
        backend
    }
}

/// A backend in use.
pub struct Backend {
    pub id: AddressId,
    pub health: Health,
    /// Its TLS state; `None` without TLS.
    pub(crate) tls: Option<BackendTls>,
    /// The listen queue of its processes.
    pub(crate) queue: Arc<ListenQueue>,
    /// Connections open or being opened, of all workers.
    open: AtomicU32,
    /// Of these, the idle ones.
    idle: AtomicU32,
    /// Idle HTTP/2 connections of all workers. They hold no permits.
    idle_carriers: AtomicU32,
    first_byte_us: AtomicU32,
    /// Time of its last response, in monotonic milliseconds.
    answered_ms: AtomicU64,
    pub requests: AtomicU64,
    pub failed: AtomicU64,
    /// Reason for its last failure.
    last_failure: Mutex<Option<Arc<str>>>,
    is_gone: AtomicBool,
    /// Orders of an operator.
    pub(crate) orders: Orders,
    /// Time when it last closed a connection with a request on it, in monotonic milliseconds.
    closed_ms: AtomicU64,
    /// Number of kept connections in a row that it closed before a second request.
    lost_kept: AtomicU32,
    /// It has answered a second request on a kept connection.
    serves_kept: AtomicBool,
    /// Time until which no connection to it is kept, in monotonic milliseconds.
    keeps_none_until_ms: AtomicU64,
    /// Length of that period in milliseconds; doubles each time.
    keeps_none_ms: AtomicU64,
    /// Time until which the silence of a kept connection raises no new suspicion, in monotonic
    /// milliseconds.
    suspected_until_ms: AtomicU64,
    /// Length of that period in milliseconds; doubles each time.
    suspected_ms: AtomicU64,
    /// Time until which the latest suspicion may be judged, in monotonic milliseconds.
    judged_until_ms: AtomicU64,
    /// Its program exits at every start.
    is_broken: AtomicBool,
    /// Signals that it became broken.
    broke: Notify,
}

/// The latest sample has a weight of 1/8.
const EWMA_SHIFT: u32 = 3;

/// Lost kept connections in a row after which none is kept, if none has ever served a request.
const LOST_UNPROVEN_MAX: u32 = 2;

/// The same limit if kept connections have served requests: a restart closes several at once.
const LOST_KEPT_MAX: u32 = 16;

/// Shortest and longest period without kept connections, in milliseconds.
const KEEPS_NONE_MS_MIN: u64 = 60_000;
const KEEPS_NONE_MS_MAX: u64 = 3_600_000;

/// Maximum time for judging a suspicion, in milliseconds: twice the time of a response that is not
/// slow, and the inaccuracy of timeouts.
const JUDGED_MS: u64 = 800;

/// Next step of a request on a silent kept connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It moves to a new connection.
    Leaves,
    /// It waits, and decides again after so many milliseconds.
    AsksAgain { after_ms: u64 },
    /// It waits for the response.
    Waits,
}

/// Shortest and longest period after a suspicion without a new one, in milliseconds.
const SUSPECTED_MS_MIN: u64 = 1_000;
const SUSPECTED_MS_MAX: u64 = 3_600_000;

/// Interval at which waiting requests check for a verdict, in milliseconds.
const VERDICT_MS: u64 = 200;

/// Doubles a period, in milliseconds, and returns it.
fn doubled(length_ms: &AtomicU64, min: u64, max: u64) -> u64 {
    let before = length_ms.load(Ordering::Relaxed);
    let length = before.saturating_mul(2).clamp(min, max);
    length_ms.store(length, Ordering::Relaxed);
    length
}

impl Backend {
    /// Creates a backend without history or TLS.
    pub fn new(target: &Target, health: &HealthSpec) -> Self {
        Self {
            id: AddressId::next(),
            queue: ListenQueue::at(target),
            health: Health::new(health),
            tls: None,
            open: AtomicU32::new(0),
            idle: AtomicU32::new(0),
            idle_carriers: AtomicU32::new(0),
            first_byte_us: AtomicU32::new(0),
            answered_ms: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last_failure: Mutex::new(None),
            is_gone: AtomicBool::new(false),
            orders: Orders::default(),
            closed_ms: AtomicU64::new(0),
            lost_kept: AtomicU32::new(0),
            serves_kept: AtomicBool::new(false),
            keeps_none_until_ms: AtomicU64::new(0),
            keeps_none_ms: AtomicU64::new(0),
            suspected_until_ms: AtomicU64::new(0),
            suspected_ms: AtomicU64::new(0),
            judged_until_ms: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            broke: Notify::new(),
        }
    }

    /// Counts an attempt that failed by its fault, whether or not that affects its health.
    pub(crate) fn count_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns its history, without its names.
    pub(crate) fn remember(&self, now_ms: u64) -> RememberedBackend {
        RememberedBackend {
            orders: self.orders.remember(),
            health: self.health.remember(now_ms),
            first_byte_us: self.first_byte_us(),
            requests: self.requests.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            last_failure: self.last_failure().map(|why| (*why).to_owned()),
            ..RememberedBackend::default()
        }
    }

    /// Continues the history of a backend of the process before this one.
    pub(crate) fn recall(&self, history: &RememberedBackend, now_ms: u64) {
        self.orders.recall(&history.orders);
        self.health.recall(&history.health, now_ms);
        self.first_byte_us.store(history.first_byte_us, Ordering::Relaxed);
        self.set_last_error(history.last_failure.as_deref());
    }

    /// Records the reason for its failure; `None` after its return.
    pub(crate) fn set_last_error(&self, message: Option<&str>) {
        let mut last_failure = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        *last_failure = message.map(Arc::from);
    }

    /// Returns the reason for its present or last failure.
    pub(crate) fn last_failure(&self) -> Option<Arc<str>> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of requests in progress.
    pub fn busy(&self) -> u32 {
        self.open().saturating_sub(self.idle())
    }

    /// Returns the number of connections that are open or being opened.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the number of idle connections of all workers.
    pub fn idle(&self) -> u32 {
        self.idle.load(Ordering::Relaxed)
    }

    /// Keeps an idle HTTP/2 connection, unless `most` of them are kept. Returns true if it is kept.
    pub(crate) fn keep_carrier(&self, most: u32) -> bool {
        let one_more = |kept: u32| (kept < most).then_some(kept + 1);
        self.idle_carriers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Records that a kept HTTP/2 connection has a stream again, or ends.
    pub(crate) fn take_carrier(&self) {
        let before = self.idle_carriers.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "no idle connection was counted");
    }

    /// Returns the mean time to the first byte of a response in microseconds; 0 = unknown.
    pub fn first_byte_us(&self) -> u32 {
        self.first_byte_us.load(Ordering::Relaxed)
    }

    /// Records the time to a response's first byte.
    pub fn saw_first_byte(&self, after_us: u64) {
        let sample = u32::try_from(after_us).unwrap_or(u32::MAX).max(1);
        let before = self.first_byte_us();
        let mean = match before {
            0 => sample,
            // Two workers may overwrite each other's sample: it is a mean, not a count.
            _ => before - (before >> EWMA_SHIFT) + (sample >> EWMA_SHIFT),
        };
        self.first_byte_us.store(mean.max(1), Ordering::Relaxed);
    }

    /// Records a response.
    pub(crate) fn answered(&self, now_ms: u64) {
        self.answered_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Returns true if it has responded to a request since this time.
    pub(crate) fn has_responded_since(&self, ms: u64) -> bool {
        self.answered_ms.load(Ordering::Relaxed) > ms
    }

    /// Records that it closed a connection in place of a response.
    pub(crate) fn saw_close(&self, now_ms: u64) {
        self.closed_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Records a response to a request on a kept connection.
    pub(crate) fn served_kept(&self) {
        self.lost_kept.store(0, Ordering::Relaxed);
        self.serves_kept.store(true, Ordering::Relaxed);
    }

    /// Returns true if it has responded to a second request on a connection.
    pub(crate) fn serves_kept(&self) -> bool {
        self.serves_kept.load(Ordering::Relaxed)
    }

    /// Records that it closed a kept connection before a second request. Some programs close each
    /// connection after its response, whatever the request says; a request that cannot be resent
    /// must not meet such a close.
    pub(crate) fn lost_kept(&self, now_ms: u64) {
        let most = if self.serves_kept() { LOST_KEPT_MAX } else { LOST_UNPROVEN_MAX };
        if self.lost_kept.fetch_add(1, Ordering::Relaxed) + 1 >= most {
            self.lost_kept.store(0, Ordering::Relaxed);
            self.serves_kept.store(false, Ordering::Relaxed);
            self.keep_none_for_a_while(now_ms);
        }
    }

    /// Keeps no connection for a minute, then for twice as long each time, up to an hour.
    pub(crate) fn keep_none_for_a_while(&self, now_ms: u64) {
        let length = doubled(&self.keeps_none_ms, KEEPS_NONE_MS_MIN, KEEPS_NONE_MS_MAX);
        self.keeps_none_until_ms.store(now_ms + length, Ordering::Relaxed);
        // A confirmed suspicion does not delay the next one.
        self.suspected_until_ms.store(0, Ordering::Relaxed);
    }

    /// Records that the processes behind kept connections are busy after their responses.
    #[cold]
    pub(crate) fn leave_busy(&self, now_ms: u64) {
        self.keep_none_for_a_while(now_ms);
        self.queue.end_idle();
    }

    /// Decides about a request on a silent kept connection. If it moves to a new connection and the
    /// script is only slow, the script runs twice. So only one request does that at a time: the
    /// next one a second later at first, and an hour later in the end. The others wait for the
    /// verdict.
    pub(crate) fn hear_silence(&self, now_ms: u64) -> Silence {
        if self.keeps_none(now_ms) {
            return Silence::Leaves;
        }
        let until_ms = self.suspected_until_ms.load(Ordering::Relaxed);
        if now_ms < until_ms {
            let is_judged = now_ms < self.judged_until_ms.load(Ordering::Relaxed);
            let after_ms = if is_judged { VERDICT_MS } else { until_ms - now_ms };
            return Silence::AsksAgain { after_ms };
        }
        let claimed = self.suspected_until_ms.compare_exchange(
            until_ms,
            now_ms + JUDGED_MS,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if claimed.is_err() {
            return Silence::AsksAgain { after_ms: VERDICT_MS };
        }
        self.judged_until_ms.store(now_ms + JUDGED_MS, Ordering::Relaxed);
        let length = doubled(&self.suspected_ms, SUSPECTED_MS_MIN, SUSPECTED_MS_MAX);
        self.suspected_until_ms.store(now_ms + length, Ordering::Relaxed);
        Silence::Leaves
    }

    /// Returns true if no connection to it is kept now.
    pub(crate) fn keeps_none(&self, now_ms: u64) -> bool {
        now_ms < self.keeps_none_until_ms.load(Ordering::Relaxed)
    }

    /// Returns true if it has accepted a request since this time, whatever the result.
    pub(crate) fn has_taken_since(&self, ms: u64) -> bool {
        self.has_responded_since(ms) || self.closed_ms.load(Ordering::Relaxed) > ms
    }

    /// Returns true if its program exits at every start: it gets no requests then.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Sets whether its program exits at every start.
    pub(crate) fn set_broken(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::Release);
        if is_broken {
            self.broke.notify_waiters();
        }
    }

    /// Resolves once its program exits at every start.
    pub(crate) async fn broken(&self) {
        let mut broke = std::pin::pin!(self.broke.notified());
        broke.as_mut().enable();
        if !self.is_broken() {
            broke.await;
        }
    }

    /// The use that an operator has ordered.
    pub fn operator_state(&self) -> OperatorState {
        self.orders.state()
    }

    /// Returns true if no upstream uses it any more: connections to it are not kept.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    pub(crate) fn set_gone(&self, is_gone: bool) {
        self.is_gone.store(is_gone, Ordering::Relaxed);
    }

    /// Takes a permit for one of at most `connections_max` connections, if there is one.
    pub(crate) fn try_open(&self, connections_max: u32) -> bool {
        let more = |open: u32| (open < connections_max).then(|| open + 1);
        self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// Returns a permit.
    pub(crate) fn closed(&self) {
        let before = self.open.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0);
    }

    /// Records that a connection becomes idle.
    pub(crate) fn become_idle(&self) {
        self.idle.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that a connection leaves its pool, to be used or closed.
    pub(crate) fn leave_idle(&self) {
        let before = self.idle.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend() -> Backend {
        let target = Target::Tcp("127.0.0.1:80".parse().expect("an address"));
        Backend::new(&target, &HealthSpec::default())
    }

    #[test]
    fn backend_that_closes_kept_connections_has_none_for_a_while() {
        let backend = backend();
        backend.lost_kept(1_000);
        assert!(!backend.keeps_none(1_000), "one may be chance");
        backend.lost_kept(1_000);
        assert!(backend.keeps_none(60_999) && !backend.keeps_none(61_000));
        backend.keep_none_for_a_while(100_000);
        assert!(backend.keeps_none(219_999) && !backend.keeps_none(220_000), "twice as long");
    }

    #[test]
    fn restart_of_a_backend_that_serves_kept_connections_changes_nothing() {
        let backend = backend();
        backend.served_kept();
        (0..LOST_KEPT_MAX - 1).for_each(|_| backend.lost_kept(1_000));
        assert!(!backend.keeps_none(1_000));
        backend.served_kept();
        backend.lost_kept(2_000);
        assert!(!backend.keeps_none(2_000));
    }

    #[test]
    fn one_request_at_a_time_leaves_a_silent_connection() {
        let backend = backend();
        assert_eq!(backend.hear_silence(1_000), Silence::Leaves);
        let again = |after_ms| Silence::AsksAgain { after_ms };
        assert_eq!(backend.hear_silence(1_000), again(VERDICT_MS));
        assert_eq!(backend.hear_silence(1_000 + JUDGED_MS - 1), again(VERDICT_MS));
        assert_eq!(backend.hear_silence(1_000 + JUDGED_MS), again(1_000 - JUDGED_MS), "wrong");
        assert_eq!(backend.hear_silence(2_000), Silence::Leaves);
        assert_eq!(backend.hear_silence(3_000), again(1_000), "twice as long");
        backend.leave_busy(3_500);
        assert_eq!(backend.hear_silence(3_500), Silence::Leaves, "it was right");
        assert_eq!(backend.hear_silence(3_501), Silence::Leaves, "for all of them");
    }

    #[test]
    fn wrong_suspicions_become_rare_up_to_a_limit() {
        let backend = backend();
        let mut now_ms = 0;
        for doubling in 0..20 {
            assert_eq!(backend.hear_silence(now_ms), Silence::Leaves);
            let length_ms = SUSPECTED_MS_MAX.min(SUSPECTED_MS_MIN << doubling);
            now_ms += length_ms;
            let again = Silence::AsksAgain { after_ms: 1 };
            let early = backend.hear_silence(now_ms - 1);
            assert_eq!(early, again, "{doubling}");
        }
    }
}
