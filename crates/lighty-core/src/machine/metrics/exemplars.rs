//! Exemplars: requests with a recorded trace, one for each fixed bucket of a series.

use crate::machine::histogram::REQUEST_BOUNDS_US;

/// The fixed buckets, and one for longer durations.
const BUCKETS: usize = REQUEST_BOUNDS_US.len() + 1;

/// A request with a recorded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Id of the trace.
    pub trace_id: u128,
    /// Duration of the request.
    pub took_us: u64,
    /// End of the request, in microseconds since 1970.
    pub unix_us: u64,
}

/// The latest exemplar of each bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exemplars([Option<Exemplar>; BUCKETS]);

impl Exemplars {
    /// Adds an exemplar; it replaces the previous one of its bucket.
    pub fn note(&mut self, one: Exemplar) {
        let is_within = |bound_us: &u64| one.took_us <= *bound_us;
        self.0[REQUEST_BOUNDS_US.iter().position(is_within).unwrap_or(BUCKETS - 1)] = Some(one);
    }

    /// Merges another worker's exemplars. The later one of each bucket stays.
    pub fn merge(&mut self, other: &Self) {
        for (mine, other) in self.0.iter_mut().zip(&other.0) {
            let when_us = |one: &Option<Exemplar>| one.map_or(0, |one| one.unix_us);
            if when_us(other) > when_us(mine) {
                *mine = *other;
            }
        }
    }

    /// The exemplar of a bucket. The last bucket holds durations beyond all bounds.
    pub fn of(&self, bucket: usize) -> Option<&Exemplar> {
        self.0.get(bucket)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_each_bucket_stays() {
        let one = |trace_id, took_us, unix_us| Exemplar { trace_id, took_us, unix_us };
        let (mut mine, mut other) = (Exemplars::default(), Exemplars::default());
        mine.note(one(1, 5_000, 10));
        mine.note(one(2, 5_001, 20));
        other.note(one(3, 100, 11));
        other.note(one(4, 9_000, 19));
        other.note(one(5, u64::MAX, 1));
        mine.merge(&other);
        let ids = (0..=BUCKETS).map(|at| mine.of(at).map_or(0, |one| one.trace_id));
        let mut wanted = [0; BUCKETS + 1];
        (wanted[0], wanted[1], wanted[BUCKETS - 1]) = (3, 2, 5);
        assert!(ids.eq(wanted));
    }
}
