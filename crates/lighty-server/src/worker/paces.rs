//! Measures a worker's request and byte rates.

use std::collections::VecDeque;

use lighty_core::machine::status_board::Pace;

/// Seconds over which rates are measured (lighttpd's Traffic5s).
const PACE_S: usize = 5;

/// Request and byte counts for each of the last seconds.
#[derive(Default)]
pub struct Paces(VecDeque<(u64, u64)>);

impl Paces {
    /// Records the current totals, once a second.
    pub fn note(&mut self, requests: u64, bytes_out: u64) {
        self.0.push_back((requests, bytes_out));
        if self.0.len() > PACE_S + 1 {
            self.0.pop_front();
        }
    }

    /// Returns the counts of the latest second.
    pub fn latest(&self) -> Pace {
        let mut latest = self.0.iter().rev();
        let (Some(last), Some(first)) = (latest.next(), latest.next()) else {
            return Pace::default();
        };
        Pace {
            seconds: 1,
            requests: last.0.wrapping_sub(first.0),
            bytes_out: last.1.wrapping_sub(first.1),
        }
    }

    /// Returns the sums over all recorded seconds.
    pub fn pace(&self) -> Pace {
        let (Some(first), Some(last)) = (self.0.front(), self.0.back()) else {
            return Pace::default();
        };
        Pace {
            seconds: self.0.len() as u64 - 1,
            requests: last.0.wrapping_sub(first.0),
            bytes_out: last.1.wrapping_sub(first.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_that_of_the_latest_seconds() {
        let mut paces = Paces::default();
        assert_eq!(paces.pace(), Pace::default());
        for second in 0..20 {
            paces.note(second * 10, second * 100);
        }
        assert_eq!(paces.pace(), Pace { seconds: 5, requests: 50, bytes_out: 500 });
        assert_eq!(paces.latest(), Pace { seconds: 1, requests: 10, bytes_out: 100 });
    }
}
