//! Request statistics of the last minutes, by second.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Number of seconds kept.
pub const HISTORY_S: usize = 300;

/// Statistics of one second at one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Second {
    /// End of the second, on the wall clock.
    pub at_s: i64,
    /// Requests that ended.
    pub requests: u64,
    /// Responses with a status of 500 or above.
    pub errors: u64,
    /// Responses with a status from 400 to 499.
    pub client_errors: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Connections open at the end of the second.
    pub open: u64,
    /// Median duration in microseconds.
    pub p50_us: u64,
    /// 99th percentile of durations in microseconds.
    pub p99_us: u64,
}

/// The seconds, oldest first.
#[derive(Default)]
pub struct History(VecDeque<Second>);

impl History {
    /// Adds a second and drops the oldest one if there are too many.
    pub fn push(&mut self, second: Second) {
        if self.0.len() >= HISTORY_S {
            self.0.pop_front();
        }
        self.0.push_back(second);
    }

    /// A copy, oldest second first.
    pub fn seconds(&self) -> Vec<Second> {
        self.0.iter().copied().collect()
    }
}

/// Sums the seconds of all workers, oldest first. A percentile is the highest of any worker.
pub fn merged<'a>(workers: impl IntoIterator<Item = &'a [Second]>) -> Vec<Second> {
    let mut all = std::collections::BTreeMap::<i64, Second>::new();
    for second in workers.into_iter().flatten() {
        let sum =
            all.entry(second.at_s).or_insert(Second { at_s: second.at_s, ..Second::default() });
        for (sum, more) in [
            (&mut sum.requests, second.requests),
            (&mut sum.errors, second.errors),
            (&mut sum.client_errors, second.client_errors),
            (&mut sum.bytes_out, second.bytes_out),
            (&mut sum.open, second.open),
        ] {
            *sum = sum.saturating_add(more);
        }
        sum.p50_us = sum.p50_us.max(second.p50_us);
        sum.p99_us = sum.p99_us.max(second.p99_us);
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_workers_add_up() {
        let mut history = History::default();
        for at_s in 0..HISTORY_S as i64 + 5 {
            history.push(Second { at_s, requests: 2, p99_us: 7, ..Second::default() });
        }
        let seconds = history.seconds();
        assert_eq!((seconds.len(), seconds[0].at_s), (HISTORY_S, 5));
        let other = [Second { at_s: 5, requests: 1, p99_us: 9, ..Second::default() }];
        let both = merged([&*seconds, &other]);
        assert_eq!((both.len(), both[0].requests, both[0].p99_us), (HISTORY_S, 3, 9));
        assert_eq!((both[1].requests, both[1].p99_us), (2, 7));
    }
}
