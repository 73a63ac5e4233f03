//! What the engine of one worker has done.

use std::cell::Cell;

use crate::clock::Stopwatch;

/// Counts since start, and gauges. Times are summed in microseconds, over operations that had to
/// wait; what was answered from the kernel's caches costs no time.
#[derive(Debug, Default)]
pub struct FileCounters {
    /// Opens that were asked for.
    pub opens: Cell<u64>,
    /// Stats that were asked for.
    pub stats: Cell<u64>,
    /// Opens and stats that were answered from the kernel's caches at once.
    pub lookups_cached: Cell<u64>,
    /// Reads (and warmings) that went through the engine.
    pub async_reads: Cell<u64>,
    /// Reads done at once because the data were in memory.
    pub sync_reads: Cell<u64>,
    /// Bytes read, either way.
    pub bytes: Cell<u64>,
    /// Time spent waiting for opens.
    pub open_wait_us: Cell<u64>,
    /// Time spent waiting for stats.
    pub stat_wait_us: Cell<u64>,
    /// Time spent waiting for reads.
    pub read_wait_us: Cell<u64>,
    /// Operations under way, waiting ones included.
    pub in_flight: Cell<u64>,
    /// Operations that wait for a place in the ring.
    pub queued: Cell<u64>,
}

pub(super) fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get().wrapping_add(n));
}

/// Adds the time from its making to its end to a counter, also when the wait is given up.
pub(super) struct Wait<'a> {
    since: Stopwatch,
    counter: &'a Cell<u64>,
}

impl<'a> Wait<'a> {
    pub(super) fn start(counter: &'a Cell<u64>) -> Wait<'a> {
        Wait { since: Stopwatch::start(), counter }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        add(self.counter, self.since.us());
    }
}
