//! Measures the delay of a worker's clock ticks.

use std::collections::VecDeque;

/// Seconds of history.
const SECONDS: usize = 60;

/// The longest delay in each of the last seconds, in microseconds.
#[derive(Default)]
pub(crate) struct Lateness(VecDeque<u64>);

impl Lateness {
    /// Adds a second's longest delay.
    pub(crate) fn note(&mut self, late_us: u64) {
        if self.0.len() >= SECONDS {
            self.0.pop_front();
        }
        self.0.push_back(late_us);
    }

    /// Returns the longest delay of all seconds.
    pub(crate) fn longest_us(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_remembered_for_a_minute() {
        let mut lateness = Lateness::default();
        lateness.note(7);
        for _ in 1..SECONDS {
            lateness.note(1);
        }
        assert_eq!(lateness.longest_us(), 7);
        lateness.note(1);
        assert_eq!(lateness.longest_us(), 1);
    }
}
