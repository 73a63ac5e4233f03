//! Distributions of durations, in buckets that need no range to be chosen beforehand.
//!
//! Counts are kept in the buckets of Prometheus' native histograms (schema 3: eight per doubling,
//! so that a quantile is wrong by 9 % at most), and also in a few fixed buckets, which the text
//! formats need. See `docs/decisions/0028`.

use serde::{Deserialize, Serialize};

/// Native buckets per doubling.
const STEPS: i32 = 8;

/// Upper bounds of the native buckets below 1 s, as fractions of their doubling.
const FRACTIONS: [f64; STEPS as usize] = [
    0.5,
    0.545_253_866_332_628_8,
    0.594_603_557_501_360_5,
    0.648_419_777_325_504_8,
    0.707_106_781_186_547_5,
    0.771_105_412_703_970_4,
    0.840_896_415_253_714_4,
    0.917_004_043_204_671_1,
];

/// Upper bounds of the fixed buckets for whole requests, in microseconds, as OpenTelemetry's HTTP
/// conventions recommend.
pub const REQUEST_BOUNDS_US: [u64; 14] = [
    5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000, 750_000, 1_000_000,
    2_500_000, 5_000_000, 7_500_000, 10_000_000,
];

/// Upper bounds of the fixed buckets for parts of requests, which may be short.
pub const STAGE_BOUNDS_US: [u64; 14] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000,
    10_000_000,
];

/// A distribution of durations. Recording allocates only when a duration leaves the range seen so
/// far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    count: u64,
    sum_us: u64,
    /// Index of the first native bucket in `native`.
    first: i32,
    native: Vec<u64>,
    /// Counts of the fixed buckets, not cumulative. Durations beyond the last bound are in none.
    fixed: [u64; REQUEST_BOUNDS_US.len()],
}

impl Histogram {
    /// Adds a duration. `bounds_us` are the bounds of the fixed buckets, the same in each call.
    #[inline]
    pub fn record(&mut self, took_us: u64, bounds_us: &[u64; REQUEST_BOUNDS_US.len()]) {
        // Linear search: most durations are within the first bounds.
        let at = bounds_us.iter().position(|bound_us| took_us <= *bound_us);
        if let Some(fixed) = at.and_then(|at| self.fixed.get_mut(at)) {
            *fixed += 1;
        }
        self.record_native(took_us);
    }

    /// Adds a duration to the native buckets alone.
    #[inline]
    pub fn record_native(&mut self, took_us: u64) {
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(took_us);
        let index = bucket_of(took_us);
        match usize::try_from(index - self.first).ok().and_then(|at| self.native.get_mut(at)) {
            Some(count) => *count += 1,
            None => self.add_outside(index, 1),
        }
    }

    /// Adds to a native bucket outside the current range.
    #[cold]
    fn add_outside(&mut self, index: i32, count: u64) {
        if self.native.is_empty() {
            self.first = index;
        }
        let before = usize::try_from(self.first - index).unwrap_or(0);
        if before > 0 {
            self.native.splice(..0, std::iter::repeat_n(0, before));
            self.first = index;
        }
        let at = usize::try_from(index - self.first).unwrap_or(0);
        if self.native.len() <= at {
            self.native.resize(at + 1, 0);
        }
        self.native[at] = self.native[at].saturating_add(count);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        for (sum, count) in self.fixed.iter_mut().zip(&other.fixed) {
            *sum = sum.saturating_add(*count);
        }
        for (index, count) in other.native().filter(|(_, count)| *count > 0) {
            match usize::try_from(index - self.first).ok().and_then(|at| self.native.get_mut(at)) {
                Some(sum) => *sum = sum.saturating_add(count),
                None => self.add_outside(index, count),
            }
        }
    }

    /// True if it may come from [`record`](Self::record): its buckets are within those of the
    /// shortest and the longest duration.
    pub fn is_plausible(&self) -> bool {
        let range = bucket_of(0)..=bucket_of(u64::MAX);
        let last =
            i32::try_from(self.native.len()).ok().and_then(|len| self.first.checked_add(len));
        self.native.is_empty()
            || range.contains(&self.first) && last.is_some_and(|end| range.contains(&(end - 1)))
    }

    /// Resets all counts and keeps the memory.
    pub fn clear(&mut self) {
        (self.count, self.sum_us) = (0, 0);
        self.native.fill(0);
        self.fixed.fill(0);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the durations in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Cumulative counts of the fixed buckets.
    pub fn fixed(&self) -> [u64; REQUEST_BOUNDS_US.len()] {
        let mut sum = 0;
        self.fixed.map(|count: u64| {
            sum = count.saturating_add(sum);
            sum
        })
    }

    /// Native buckets: index and count, without gaps. The upper bound of bucket `i` is 2^(i/8)
    /// seconds.
    pub fn native(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        (self.first..).zip(self.native.iter().copied())
    }

    /// The quantile `share` in microseconds, interpolated; 0 if there are no durations.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0_u64;
        for (index, count) in self.native() {
            if count > 0 && below.saturating_add(count) >= wanted {
                let (low, high) = (bound_us(index - 1), bound_us(index));
                let within = (wanted - below) as f64 / count as f64;
                return (low + (high - low) * within).round() as u64;
            }
            below = below.saturating_add(count);
        }
        0
    }
}

/// The native bucket of a duration: the first whose upper bound in seconds reaches it.
#[inline]
fn bucket_of(took_us: u64) -> i32 {
    match usize::try_from(took_us).ok().and_then(|us| SHORT.get(us)) {
        Some(bucket) => i32::from(*bucket),
        None => work_bucket_out(took_us),
    }
}

/// The native buckets of durations below 256 us, which most spans have: a table look-up instead of
/// a division.
const SHORT: [i16; 256] = {
    let mut buckets = [0; 256];
    let mut took_us = 0;
    while took_us < buckets.len() {
        buckets[took_us] = work_bucket_out(took_us as u64) as i16;
        took_us += 1;
    }
    buckets
};

const fn work_bucket_out(took_us: u64) -> i32 {
    const EXPONENT_BITS: u64 = 0x7FF << 52;
    let seconds = if took_us == 0 { 1e-6 } else { took_us as f64 / 1e6 };
    let bits = seconds.to_bits();
    let exponent = ((bits & EXPONENT_BITS) >> 52) as i32 - 1022;
    let fraction = f64::from_bits(bits & !EXPONENT_BITS | 1022 << 52);
    let mut step = 0;
    while step < FRACTIONS.len() && FRACTIONS[step] < fraction {
        step += 1;
    }
    step as i32 + (exponent - 1) * STEPS
}

fn bound_us(index: i32) -> f64 {
    f64::powf(2.0, f64::from(index) / f64::from(STEPS)) * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations_us: impl IntoIterator<Item = u64>) -> Histogram {
        let mut all = Histogram::default();
        durations_us.into_iter().for_each(|us| all.record(us, &REQUEST_BOUNDS_US));
        all
    }

    #[test]
    fn each_duration_is_within_the_bounds_of_its_bucket() {
        for shift in 0..44 {
            for step in [0, 1, 3] {
                let us = (1_u64 << shift) + step * ((1_u64 << shift) / 7);
                let index = bucket_of(us);
                let margin = 1.0 + 1e-9;
                assert!(us as f64 <= bound_us(index) * margin, "{us}");
                assert!(us as f64 * margin > bound_us(index - 1), "{us}");
            }
        }
        // A duration on a bound belongs to the bucket below it.
        assert_eq!((bucket_of(1_000_000), bucket_of(1_000_001), bucket_of(500_000)), (0, 1, -8));
        assert_eq!(bucket_of(0), bucket_of(1));
        // The bounds around 256 us, where the look-up table ends: 244.1, 266.2 and 290.3.
        assert_eq!([244, 245, 255, 256, 266, 267].map(bucket_of), [-96, -95, -95, -95, -95, -94]);
    }

    #[test]
    fn fixed_buckets_count_those_below_and_on_their_bound() {
        let all = of([0, 5_000, 5_001, 10_000_000, 10_000_001]);
        assert_eq!(all.fixed()[..3], [2, 3, 3]);
        assert_eq!(all.fixed()[13], 4);
        assert_eq!((all.count(), all.sum_us()), (5, 20_010_002));
        assert_eq!(all.native().map(|(_, count)| count).sum::<u64>(), 5);
    }

    #[test]
    fn quantiles_are_wrong_by_a_bucket_at_most() {
        let all = of(1..=10_000);
        for (share, wanted) in [(0.5, 5_000.0), (0.9, 9_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let found = all.quantile_us(share) as f64;
            assert!((found / wanted - 1.0).abs() < 0.09, "{share}: {found}");
        }
        assert_eq!(Histogram::default().quantile_us(0.5), 0);
    }

    #[test]
    fn merged_histograms_equal_one_that_recorded_everything() {
        let (low, high) = ([3, 90, 5_000], [1, 70_000, 20_000_000]);
        let mut sum = of(high);
        sum.merge(&of(low));
        let both = of(high.into_iter().chain(low));
        let filled = |one: &Histogram| one.native().filter(|(_, n)| *n > 0).collect::<Vec<_>>();
        assert_eq!(filled(&sum), filled(&both));
        assert_eq!((sum.fixed(), sum.count(), sum.sum_us()), (both.fixed(), 6, both.sum_us()));
        sum.clear();
        assert_eq!((sum.count(), filled(&sum)), (0, Vec::new()));
    }
}
