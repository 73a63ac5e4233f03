//! What came of the load.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::iterators::IterationValue;

use super::felt::Sorted;
use super::intervals::Intervals;

/// The longest time that is told apart, an hour, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// Significant digits of times.
const DIGITS: u8 = 3;

/// Why there is no response, or not the one that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// Nobody listens.
    Refused,
    /// No connection for another reason.
    Connect,
    /// The handshake of TLS failed.
    Handshake,
    /// The connection ended before a response began.
    Closed,
    /// It ended within a response.
    Short,
    /// It was reset.
    Reset,
    /// The server has reset the stream of the request, or refused it several times.
    Stream,
    /// The response took too long.
    Timeout,
    /// What came is not HTTP.
    Protocol,
    /// The status is not the expected one.
    Status,
    /// The body has another length than expected.
    Length,
    /// The body has other content than before.
    Checksum,
}

impl Failure {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Refused => "connections refused",
            Self::Connect => "connections failed",
            Self::Handshake => "handshakes failed",
            Self::Closed => "connections closed before a response",
            Self::Short => "responses cut short",
            Self::Reset => "connections reset",
            Self::Stream => "streams reset",
            Self::Timeout => "responses timed out",
            Self::Protocol => "responses that are not HTTP",
            Self::Status => "unexpected statuses",
            Self::Length => "unexpected lengths",
            Self::Checksum => "unexpected contents",
        }
    }

    /// True if a response came, although not the right one.
    pub fn has_response(self) -> bool {
        matches!(self, Self::Status | Self::Length | Self::Checksum)
    }
}

/// Times of one kind, in microseconds.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let bounded = Histogram::new_with_bounds(1, LONGEST_US, DIGITS);
        // The bounds are valid; without them it grows as it must.
        let any = || Histogram::new(DIGITS).unwrap_or_else(|_| unreachable!("three digits"));
        Self(bounded.unwrap_or_else(|_| any()))
    }
}

impl Times {
    /// Adds one.
    pub(super) fn record(&mut self, us: u64) {
        self.0.saturating_record(us.max(1));
    }

    /// Adds what a time is at least; 0: nothing is known of it.
    pub(super) fn record_bound(&mut self, us: u64) {
        self.0.saturating_record(us);
    }

    fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// The mean; 0 of nothing.
    pub fn mean_us(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.mean() }
    }

    /// The longest; 0 of nothing.
    pub fn max_us(&self) -> u64 {
        self.0.max()
    }

    /// The shortest; 0 of nothing.
    pub fn min_us(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.min() }
    }
}

impl Sorted for Times {
    fn count(&self) -> u64 {
        self.0.len()
    }

    fn quantile_us(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64
    }

    fn reached_us(&self, share: f64) -> f64 {
        self.quantile_us(share)
    }

    fn sum_us(&self, least_us: f64) -> f64 {
        let sum = |one: IterationValue<u64>| {
            (one.value_iterated_to() as f64).max(least_us) * one.count_at_value() as f64
        };
        self.0.iter_recorded().map(sum).sum()
    }
}

/// What came of the load, of one thread or all.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Responses, as expected or not.
    pub responses: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Bytes received, heads included.
    pub bytes: u64,
    /// Connections made.
    pub connections: u64,
    /// The most that were in use at a time.
    pub parallel: usize,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Why the first connection broke that did.
    pub trouble: Option<String>,
    /// What went wrong.
    pub failures: BTreeMap<Failure, u64>,
    /// Times of connecting.
    pub connect: Times,
    /// Times from the request to the first byte of its response.
    pub first_byte: Times,
    /// Times from when a request was due to the end of its response, of those as expected.
    pub total: Times,
    /// For how long requests that failed, or were not sent, had waited since they were due.
    pub lost: Times,
    /// Requests that were due at a fixed rate, and for which no connection was free.
    pub unsent: u64,
    /// The run in equal parts.
    pub intervals: Intervals,
    /// How long it took.
    pub took: Duration,
}

impl Tally {
    /// Notes a request that failed after it had waited for so long. It belongs to a time after the
    /// start: that of its response, or where there is none, that at which it was due, as the time
    /// limit may be up long after the run.
    pub(super) fn fail(&mut self, failure: Failure, since_start_us: u64, waited_us: u64) {
        *self.failures.entry(failure).or_default() += 1;
        // Where nobody listens there is nothing that a client would wait for.
        let waited_us = if failure == Failure::Refused { 0 } else { waited_us };
        self.lost.record_bound(waited_us);
        self.intervals.at(since_start_us).fail(waited_us, failure.has_response());
    }

    /// Notes a request that was due so long after the start and was not sent.
    pub(super) fn omit(&mut self, since_start_us: u64, waited_us: u64) {
        self.unsent += 1;
        self.lost.record_bound(waited_us);
        self.intervals.at(since_start_us).fail(waited_us, false);
    }

    /// Notes a response as expected that ended so long after the start.
    pub(super) fn end(&mut self, since_start_us: u64, took_us: u64) {
        self.intervals.at(since_start_us).end(took_us);
        self.total.record(took_us);
    }

    /// Adds another thread's.
    pub(super) fn merge(&mut self, other: &Self) {
        self.responses += other.responses;
        self.body_bytes += other.body_bytes;
        self.bytes += other.bytes;
        self.connections += other.connections;
        self.parallel += other.parallel;
        self.unsent += other.unsent;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        self.connect.merge(&other.connect);
        self.first_byte.merge(&other.first_byte);
        self.total.merge(&other.total);
        self.lost.merge(&other.lost);
        self.intervals.merge(&other.intervals);
        self.took = self.took.max(other.took);
    }

    /// Responses a second.
    pub fn per_s(&self) -> f64 {
        self.responses as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Failures of all kinds.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let mut one = Tally { responses: 2, parallel: 1, ..Tally::default() };
        one.end(10_000, 100);
        one.end(450_000, 300);
        one.fail(Failure::Reset, 0, 5);
        let mut two = Tally { responses: 2, parallel: 2, ..Tally::default() };
        two.end(210_000, 1_000_000);
        two.fail(Failure::Status, 210_000, 7);
        two.omit(450_000, 9);
        one.merge(&two);
        assert_eq!((one.responses, one.parallel, one.failed(), one.unsent), (4, 3, 2, 1));
        let parts = one.intervals.parts().iter();
        let counts: Vec<_> = parts.map(|part| (part.responses, part.failed)).collect();
        assert_eq!(counts, [(1, 1), (2, 1), (1, 1)]);
        assert_eq!((one.total.count(), one.total.min_us(), one.lost.count()), (3, 100, 3));
        assert!((999_000..1_002_000).contains(&one.total.max_us()));
    }
}
