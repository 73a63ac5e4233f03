//! A sender's counters.

use std::cell::Cell;

use crate::clock::Stopwatch;

/// Counts since the start of the worker.
#[derive(Debug, Default)]
pub struct SendCounters {
    /// Reads awaited outside the loop (lighttpd's `async-read`).
    pub async_reads: Cell<u64>,
    /// Reads in the loop, or sends straight from the page cache (`sync-read`).
    pub sync_reads: Cell<u64>,
    /// Bytes of any kind accepted by sockets.
    pub bytes: Cell<u64>,
    /// Bytes sent without passing through a user-space buffer.
    pub sendfile_bytes: Cell<u64>,
    /// Microseconds that connections waited for the disk, in total.
    pub read_wait_us: Cell<u64>,
    /// Part of that time in which no thread was free, in microseconds.
    pub read_queue_us: Cell<u64>,
}

impl SendCounters {
    pub(super) fn sent(&self, bytes: u64) {
        add(&self.bytes, bytes);
    }

    pub(super) fn sendfile(&self, bytes: u64) {
        add(&self.sendfile_bytes, bytes);
    }

    pub(super) fn sync_read(&self) {
        add(&self.sync_reads, 1);
    }

    pub(super) fn waited_for_thread(&self, took_us: u64) {
        add(&self.read_queue_us, took_us);
    }

    pub(super) fn async_read(&self) {
        add(&self.async_reads, 1);
    }

    /// Counts the time until the guard is dropped as waiting.
    pub(super) fn waiting(&self) -> ReadWait<'_> {
        ReadWait { since: Stopwatch::start(), counters: self }
    }
}

pub(super) struct ReadWait<'a> {
    since: Stopwatch,
    counters: &'a SendCounters,
}

impl Drop for ReadWait<'_> {
    fn drop(&mut self) {
        add(&self.counters.read_wait_us, self.since.us());
    }
}

fn add(counter: &Cell<u64>, amount: u64) {
    counter.set(counter.get().wrapping_add(amount));
}
