//! Counters of one worker's file engine.

use std::cell::Cell;

use crate::clock::Stopwatch;

/// Counts since start, and gauges. Times are sums in microseconds over operations that had to wait;
/// hits in the kernel's caches count as no time.
#[derive(Debug, Default)]
pub struct FileCounters {
    /// Opens requested.
    pub opens: Cell<u64>,
    /// Stats requested.
    pub stats: Cell<u64>,
    /// Opens and stats served immediately from the kernel's caches.
    pub lookups_cached: Cell<u64>,
    /// Reads (and warmings) that went through the engine.
    pub async_reads: Cell<u64>,
    /// Reads done immediately because the data was in memory.
    pub sync_reads: Cell<u64>,
    /// Bytes read, either way.
    pub bytes: Cell<u64>,
    /// Time spent waiting for opens.
    pub open_wait_us: Cell<u64>,
    /// Time spent waiting for stats.
    pub stat_wait_us: Cell<u64>,
    /// Time spent waiting for reads.
    pub read_wait_us: Cell<u64>,
    /// Operations in progress, waiting ones included.
    pub in_flight: Cell<u64>,
    /// Operations that wait for a place in the ring.
    pub queued: Cell<u64>,
    /// Urgent operations at disks with an order: look-ups, first reads, reads of small files.
    pub urgent: Cell<u64>,
    /// Time that urgent operations took.
    pub urgent_us: Cell<u64>,
    /// Bulk reads at disks with an order.
    pub bulk: Cell<u64>,
    /// Time that bulk reads waited for their turns, or until they were given up.
    pub bulk_wait_us: Cell<u64>,
    /// Bulk reads that began beside urgent operations because they had waited for too long.
    pub bulk_overdue: Cell<u64>,
    /// Bulk reads that were given up while they waited for their turns.
    pub bulk_abandoned: Cell<u64>,
    /// Turns that ended before their operations, which took too long.
    pub turns_expired: Cell<u64>,
    /// Bulk reads that wait for their turns.
    pub bulk_waiting: Cell<u64>,
}

pub(super) fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get().wrapping_add(n));
}

/// Adds the time from its creation to its drop to a counter, also when the wait is abandoned.
pub(super) struct WaitTimer<'a> {
    since: Stopwatch,
    counter: &'a Cell<u64>,
}

impl<'a> WaitTimer<'a> {
    pub(super) fn start(counter: &'a Cell<u64>) -> WaitTimer<'a> {
        WaitTimer { since: Stopwatch::start(), counter }
    }
}

impl Drop for WaitTimer<'_> {
    fn drop(&mut self) {
        add(self.counter, self.since.us());
    }
}
