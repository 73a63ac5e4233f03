//! One address of a backend: its connections, health and statistics. Shared by all workers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lighty_io::connect::Target;

use crate::health::passive::Health;
use crate::listen_queue::ListenQueue;
use crate::spec::HealthSpec;

/// Unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressId(u64);

impl AddressId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The configuration of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSpec {
    /// Its name in logs and statistics.
    pub text: Arc<str>,
    /// The backend's name in the configuration, if any.
    pub label: Option<Arc<str>>,
    pub target: Target,
    /// Share of requests, 0 to 1000; 0 drains it.
    pub weight: u32,
    /// Used only while no other is up.
    pub backup: bool,
    /// Maximum number of connections, busy and idle, over all workers.
    pub connections_max: u32,
    /// The Host of requests to it, in place of the client's.
    pub http_host: Option<Arc<str>>,
}

/// An address in use.
pub struct Address {
    pub id: AddressId,
    pub spec: AddressSpec,
    /// Hash of the text: the same in every process.
    pub name_hash: u64,
    pub health: Health,
    /// The listen queue of its processes.
    pub(crate) queue: Arc<ListenQueue>,
    /// Connections open or being opened, of all workers.
    open: AtomicU32,
    /// Of these, the idle ones.
    idle: AtomicU32,
    first_byte_us: AtomicU32,
    /// When it last answered; monotonic milliseconds.
    answered_ms: AtomicU64,
    pub requests: AtomicU64,
    pub failed: AtomicU64,
    /// Why it last went down.
    trouble: Mutex<Option<Arc<str>>>,
}

/// The latest sample has a weight of 1/8.
const EWMA_SHIFT: u32 = 3;

impl Address {
    /// Creates an address without history.
    pub fn new(spec: AddressSpec, health: &HealthSpec) -> Self {
        Self {
            id: AddressId::next(),
            name_hash: crate::balance::name_hash(spec.text.as_bytes()),
            queue: ListenQueue::at(&spec.target),
            spec,
            health: Health::new(health),
            open: AtomicU32::new(0),
            idle: AtomicU32::new(0),
            first_byte_us: AtomicU32::new(0),
            answered_ms: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            trouble: Mutex::new(None),
        }
    }

    /// Records why it went down; `None` after a come-back.
    pub(crate) fn set_trouble(&self, words: Option<&str>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = words.map(Arc::from);
    }

    /// Why it is down, or went down last.
    pub(crate) fn trouble(&self) -> Option<Arc<str>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests under way.
    pub fn busy(&self) -> u32 {
        self.open().saturating_sub(self.idle())
    }

    /// Connections open or being opened.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Idle connections of all workers.
    pub fn idle(&self) -> u32 {
        self.idle.load(Ordering::Relaxed)
    }

    /// Mean time to the first byte of a response in microseconds; 0 = unknown.
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

    /// True if it has answered any request since this time.
    pub(crate) fn has_answered_since(&self, ms: u64) -> bool {
        self.answered_ms.load(Ordering::Relaxed) > ms
    }

    /// True if another connection may be opened.
    pub fn has_room(&self) -> bool {
        self.open() < self.spec.connections_max
    }

    /// Takes a permit for one of the connections, if there is one.
    pub(crate) fn try_open(&self) -> bool {
        let limit = self.spec.connections_max;
        let more = |open: u32| (open < limit).then(|| open + 1);
        self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// Returns a permit.
    pub(crate) fn closed(&self) {
        let before = self.open.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0);
    }

    /// Records that a connection becomes idle.
    pub(crate) fn rests(&self) {
        self.idle.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that a connection leaves its pool, to be used or closed.
    pub(crate) fn wakes(&self) {
        let before = self.idle.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(connections_max: u32) -> Address {
        let target = Target::Tcp("127.0.0.1:80".parse().expect("an address"));
        let spec = AddressSpec {
            text: "127.0.0.1:80".into(),
            label: None,
            target,
            weight: 1,
            backup: false,
            http_host: None,
            connections_max,
        };
        Address::new(spec, &HealthSpec::default())
    }

    #[test]
    fn no_more_connections_than_the_limit() {
        let address = address(2);
        assert!(address.try_open() && address.try_open());
        assert!(!address.try_open() && !address.has_room());
        address.closed();
        assert!(address.try_open());
    }

    #[test]
    fn idle_connections_are_not_busy() {
        let address = address(4);
        assert!(address.try_open() && address.try_open());
        address.rests();
        assert_eq!((address.open(), address.idle(), address.busy()), (2, 1, 1));
        address.wakes();
        assert_eq!(address.busy(), 2);
    }

    #[test]
    fn the_mean_follows_what_is_seen() {
        let address = address(1);
        address.saw_first_byte(8_000);
        assert_eq!(address.first_byte_us(), 8_000);
        for _ in 0..100 {
            address.saw_first_byte(80_000);
        }
        assert!((70_000..=80_000).contains(&address.first_byte_us()));
        address.saw_first_byte(u64::MAX);
        assert!(address.first_byte_us() > 80_000);
    }
}
