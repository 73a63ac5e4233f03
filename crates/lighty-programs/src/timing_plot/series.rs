//! Sums of times, in buckets.

use std::collections::BTreeMap;

use super::lines::RequestTimes;

/// Maximum number of buckets; beyond it their width doubles.
const BUCKETS_MAX: usize = 240;

/// Maximum number of stages; the last one collects all further ones.
const STAGES_MAX: usize = 32;

/// Stages that are not part of a request's time.
const OUTSIDE: [&str; 4] = ["accept", "tls", "tunnel", "delay"];

/// Name of the stage that collects all further ones.
const RESTART_PAUSE: &str = "others";

/// The times of many requests.
pub(super) struct Series {
    /// The stages, in order of first occurrence.
    pub(super) stages: Vec<String>,
    /// Width of a bucket in microseconds.
    pub(super) width_us: i64,
    /// Buckets by number; a bucket starts at its number times the width.
    buckets: BTreeMap<i64, Bucket>,
}

/// The requests of a bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bucket {
    pub(super) requests: u64,
    /// Microseconds in each stage, summed over all requests.
    pub(super) sums_us: Vec<u64>,
    /// Longest time of one request.
    pub(super) longest_us: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self { stages: Vec::new(), width_us: 10_000, buckets: BTreeMap::new() }
    }
}

impl Series {
    pub(super) fn add(&mut self, times: &RequestTimes) {
        let number = times.at_us.div_euclid(self.width_us);
        let mut own = Bucket { requests: 1, ..Bucket::default() };
        let within = times.stages.iter().filter(|(name, _)| !OUTSIDE.contains(&name.as_str()));
        for (name, took_us) in within {
            let at = self.stage(name);
            own.sums_us.resize(own.sums_us.len().max(at + 1), 0);
            own.sums_us[at] = own.sums_us[at].saturating_add(*took_us);
            own.longest_us = own.longest_us.saturating_add(*took_us);
        }
        self.buckets.entry(number).or_default().join(&own);
        while self.span() > BUCKETS_MAX as i64 {
            self.widen();
        }
    }

    fn stage(&mut self, name: &str) -> usize {
        let name = if self.stages.len() < STAGES_MAX { name } else { RESTART_PAUSE };
        if let Some(at) = self.stages.iter().position(|known| known == name) {
            return at;
        }
        self.stages.push(name.to_owned());
        self.stages.len() - 1
    }

    /// Number of buckets from the first to the last, including empty ones.
    fn span(&self) -> i64 {
        let first = self.buckets.keys().next().copied().unwrap_or(0);
        self.buckets.keys().next_back().map_or(0, |last| last - first + 1)
    }

    fn widen(&mut self) {
        self.width_us *= 2;
        for (number, bucket) in std::mem::take(&mut self.buckets) {
            self.buckets.entry(number.div_euclid(2)).or_default().join(&bucket);
        }
    }

    /// All buckets from the first to the last, with their start in microseconds since 1970.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (i64, Bucket)> {
        let first = self.buckets.keys().next().copied().unwrap_or(0);
        let numbers = first..first + self.span();
        numbers.map(|number| {
            let bucket = self.buckets.get(&number).cloned().unwrap_or_default();
            (number * self.width_us, bucket)
        })
    }
}

impl Bucket {
    fn join(&mut self, other: &Self) {
        self.requests += other.requests;
        self.longest_us = self.longest_us.max(other.longest_us);
        self.sums_us.resize(self.sums_us.len().max(other.sums_us.len()), 0);
        for (sum_us, more_us) in self.sums_us.iter_mut().zip(&other.sums_us) {
            *sum_us = sum_us.saturating_add(*more_us);
        }
    }

    /// Mean milliseconds of a request in a stage.
    pub(super) fn mean_ms(&self, stage: usize) -> f64 {
        let sum_us = self.sums_us.get(stage).copied().unwrap_or(0);
        sum_us as f64 / 1e3 / self.requests.max(1) as f64
    }
}

/// The waits in lighttpd 1.5's picture, and their stages.
pub(super) const WAITS: [(&str, &[&str]); 3] = [
    ("read-queue-wait", &["file-queued"]),
    ("read-time", &["file-read"]),
    ("write-time", &["send-queued", "write"]),
];

/// Mean milliseconds of a request in several stages.
pub(super) fn mean_of(series: &Series, bucket: &Bucket, names: &[&str]) -> f64 {
    let stages = series.stages.iter().enumerate();
    stages
        .filter(|(_, name)| names.contains(&name.as_str()))
        .map(|(at, _)| bucket.mean_ms(at))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(at_us: i64, stage: &str, took_us: u64) -> RequestTimes {
        RequestTimes { at_us, stages: vec![(stage.to_owned(), took_us)] }
    }

    #[test]
    fn buckets_grow_with_the_log_and_lose_nothing() {
        let mut series = Series::default();
        for second in 0..10_000 {
            series.add(&times(second * 1_000_000, "write", 2_000));
        }
        let all: Vec<_> = series.buckets().collect();
        assert!((BUCKETS_MAX / 2 - 1..=BUCKETS_MAX).contains(&all.len()), "{}", all.len());
        assert_eq!(all.iter().map(|(_, bucket)| bucket.requests).sum::<u64>(), 10_000);
        assert!(all.iter().all(|(_, bucket)| (bucket.mean_ms(0) - 2.0).abs() < 1e-9));
        // The clock was set back by decades.
        series.add(&times(-1_000_000_000_000_000, "write", 1));
        assert!(series.buckets().count() <= BUCKETS_MAX);
    }

    #[test]
    fn too_many_stages_are_one() {
        let mut series = Series::default();
        for nth in 0..100 {
            series.add(&times(0, &"x".repeat(nth + 1), 1));
        }
        assert_eq!(series.stages.len(), STAGES_MAX + 1);
        assert_eq!(series.stages.last().map(String::as_str), Some(RESTART_PAUSE));
    }
}
