//! Counters of one worker. Plain cells: only the worker's own thread writes them; whoever wants a
//! sum over workers asks each for a copy.

use std::cell::Cell;

/// A counter that only its own thread changes.
#[derive(Default, Debug)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// What a worker counts about connections and requests.
#[derive(Default, Debug)]
pub struct Counters {
    /// Connections accepted.
    pub connections: Counter,
    /// Idle connections closed early because `server.max-connections` or descriptors ran out.
    pub reaped: Counter,
    /// Requests answered.
    pub requests: Counter,
    /// Bytes sent to clients, heads included.
    pub bytes_out: Counter,
    /// Bytes received from clients.
    pub bytes_in: Counter,
    /// Requests refused by the codec (400, 414, 431 ...).
    pub refused: Counter,
    /// Answers cut short.
    pub cut: Counter,
    /// Connections ended by a time-out or a minimum rate.
    pub timed_out: Counter,
    /// Times accepting was paused for want of descriptors or connection slots.
    pub accept_pauses: Counter,
    /// Fields of requests that programs were not told of, because their names collide with others'.
    pub fields_withheld: Counter,
    /// When the error log last had a line about them, in seconds of the wall clock.
    pub told_withheld_s: Cell<i64>,
}
