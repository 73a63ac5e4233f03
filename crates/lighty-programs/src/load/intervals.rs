//! The run in equal parts: number of responses and distribution of their times.
//!
//! Times are counted in buckets, eight per octave. A run of any length has a bounded number of
//! parts: their length doubles when there are too many.

use std::ops::AddAssign;
use std::time::Duration;

use super::felt::{Figure, Sorted, mean, quantile};

/// The initial length of parts, in microseconds.
const LENGTH_US: u64 = 200_000;

/// Number of parts beyond which their length doubles.
const PARTS_MAX: usize = 1500;

/// Buckets per octave, as a power of two.
const OCTAVE_BITS: u32 = 3;

/// Distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread(Vec<u64>);

impl Spread {
    pub(super) fn note(&mut self, us: u64) {
        self.add(bucket(us), 1);
    }

    fn add(&mut self, bucket: usize, count: u64) {
        if self.0.len() <= bucket {
            self.0.resize(bucket + 1, 0);
        }
        self.0[bucket] += count;
    }

    /// Adds a pair from [`Spread::pairs`].
    pub(super) fn add_pair(&mut self, lowest_us: u64, count: u64) {
        self.add(bucket(lowest_us), count);
    }

    /// The lowest time of each non-empty bucket, and its count.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        let held = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        held.map(|(bucket, count)| (lowest_us(bucket), *count))
    }

    /// The bucket that contains this quantile, and the fraction of the bucket below it.
    fn find(&self, share: f64) -> (usize, f64) {
        let wanted = share * self.count() as f64;
        let (mut below, mut found) = (0.0, (0, 0.0));
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= wanted {
                return (bucket, (wanted - below) / count);
            }
            below += count;
            found = (bucket, 1.0);
        }
        found
    }
}

impl Sorted for Spread {
    fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Assumes that times are evenly distributed within a bucket.
    fn quantile_us(&self, share: f64) -> f64 {
        let (bucket, within) = self.find(share);
        let (from, to) = (lowest_us(bucket) as f64, lowest_us(bucket + 1) as f64);
        from + (to - from) * within
    }

    fn reached_us(&self, share: f64) -> f64 {
        lowest_us(self.find(share).0) as f64
    }

    fn sum_us(&self, least_us: f64) -> f64 {
        let sum = |(lowest_us, count): (u64, u64)| (lowest_us as f64).max(least_us) * count as f64;
        self.pairs().map(sum).sum()
    }
}

impl AddAssign<&Self> for Spread {
    fn add_assign(&mut self, other: &Self) {
        for (bucket, count) in other.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(bucket, *count);
        }
    }
}

fn bucket(us: u64) -> usize {
    let octave = us.checked_ilog2().unwrap_or(0).saturating_sub(OCTAVE_BITS);
    ((u64::from(octave) << OCTAVE_BITS) + (us >> octave)) as usize
}

/// The lowest time of a bucket.
fn lowest_us(bucket: usize) -> u64 {
    let octave = (bucket >> OCTAVE_BITS).saturating_sub(1);
    let within = bucket - (octave << OCTAVE_BITS);
    (within as u64) << octave
}

/// A part of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Responses that ended in it, expected or not.
    pub responses: u64,
    /// The sum of the expected responses' times, in microseconds.
    pub sum_us: u64,
    /// Distribution of these times.
    pub(super) spread: Spread,
    /// Requests that failed, or were not sent.
    pub failed: u64,
    /// Distribution of the times for which these had waited.
    pub(super) lost: Spread,
}

impl Interval {
    /// Records an expected response.
    pub(super) fn end(&mut self, took_us: u64) {
        self.responses += 1;
        self.sum_us += took_us;
        self.spread.note(took_us);
    }

    /// Records a request that failed, or was not sent.
    pub(super) fn fail(&mut self, waited_us: u64, has_response: bool) {
        self.responses += u64::from(has_response);
        self.failed += 1;
        self.lost.note(waited_us);
    }

    /// The quantile `share` of its requests.
    pub(super) fn quantile(&self, share: f64) -> Option<Figure> {
        quantile(&self.spread, &self.lost, share)
    }

    /// The mean of its requests.
    pub(super) fn mean(&self) -> Option<Figure> {
        mean(self.sum_us as f64, &self.spread, &self.lost)
    }

    /// The share of its requests that failed.
    pub(super) fn failed_share(&self) -> f64 {
        let requests = self.spread.count() + self.lost.count();
        self.failed as f64 / requests.max(1) as f64
    }
}

impl AddAssign<&Self> for Interval {
    fn add_assign(&mut self, other: &Self) {
        self.responses += other.responses;
        self.sum_us += other.sum_us;
        self.spread += &other.spread;
        self.failed += other.failed;
        self.lost += &other.lost;
    }
}

/// The parts of a run.
#[derive(Clone, Debug)]
pub struct Intervals {
    length_us: u64,
    parts: Vec<Interval>,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { length_us: LENGTH_US, parts: Vec::new() }
    }
}

impl Intervals {
    /// Parts of a recorded run; `None` if the length or number is invalid.
    pub(super) fn of(length: Duration, parts: Vec<Interval>) -> Option<Self> {
        let length_us = u64::try_from(length.as_micros()).ok()?;
        let doubled = length_us / LENGTH_US;
        let is_known = length_us % LENGTH_US == 0 && doubled.is_power_of_two();
        (is_known && parts.len() <= PARTS_MAX).then_some(Self { length_us, parts })
    }

    /// Length of the parts.
    pub fn length(&self) -> Duration {
        Duration::from_micros(self.length_us)
    }

    /// The parts in order.
    pub fn parts(&self) -> &[Interval] {
        &self.parts
    }

    /// The part at a time after the start.
    pub(super) fn at(&mut self, since_start_us: u64) -> &mut Interval {
        while since_start_us / self.length_us >= PARTS_MAX as u64 {
            self.widen();
        }
        let at = (since_start_us / self.length_us) as usize;
        if self.parts.len() <= at {
            self.parts.resize_with(at + 1, Interval::default);
        }
        &mut self.parts[at]
    }

    /// Adds another thread's parts.
    pub(super) fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.length_us < other.length_us {
            self.widen();
        }
        while other.length_us < self.length_us {
            other.widen();
        }
        if self.parts.len() < other.parts.len() {
            self.parts.resize_with(other.parts.len(), Interval::default);
        }
        for (sum, one) in self.parts.iter_mut().zip(&other.parts) {
            *sum += one;
        }
    }

    /// Merges the parts in pairs.
    pub(super) fn widen(&mut self) {
        self.length_us *= 2;
        let sum = |pair: &[Interval]| {
            let mut sum = Interval::default();
            pair.iter().for_each(|one| sum += one);
            sum
        };
        self.parts = self.parts.chunks(2).map(sum).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_an_eighth_of_an_octave_wide() {
        for us in (0..5000).chain([1 << 20, (1 << 31) + 12345, u64::MAX]) {
            let (from, to) = (lowest_us(bucket(us)), bucket(us) + 1);
            assert!(from <= us && us - from <= us / 8, "{us}: from {from}");
            assert!(us == u64::MAX || us < lowest_us(to), "{us}: below {}", lowest_us(to));
            assert_eq!(bucket(from), bucket(us));
        }
    }

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut spread = Spread::default();
        (1..=1000).for_each(|us| spread.note(us));
        for share in [0.1, 0.5, 0.9, 0.99, 1.0] {
            let (found, exact) = (spread.quantile_us(share), share * 1000.0);
            assert!((found - exact).abs() < exact / 8.0, "{share}: {found}");
        }
        let mut again = Spread::default();
        spread.pairs().for_each(|(lowest_us, count)| again.add_pair(lowest_us, count));
        assert_eq!(again, spread);
    }

    #[test]
    fn a_long_run_has_wider_parts_and_loses_nothing() {
        let mut long = Intervals::default();
        (0..4000).for_each(|at| long.at(at * LENGTH_US).end(100));
        assert!(
            long.parts().len() <= PARTS_MAX && long.length() > Duration::from_micros(LENGTH_US)
        );
        let mut short = Intervals::default();
        short.at(10).end(7);
        short.merge(&long);
        let sum: u64 = short.parts().iter().map(|part| part.responses).sum();
        assert_eq!((sum, short.length()), (4001, long.length()));
        let mut other = Intervals::default();
        other.at(LENGTH_US).end(1);
        long.merge(&other);
        assert_eq!(long.parts()[0].sum_us, 401);
    }
}
