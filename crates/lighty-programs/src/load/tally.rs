//! Results of the load.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::iterators::IterationValue;

use super::felt::Sorted;
use super::intervals::Intervals;

/// The longest time that is distinguished, an hour, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// Significant digits of times.
const DIGITS: u8 = 3;

/// Reason why there is no response, or not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadFailure {
    /// Connection refused: no server is listening.
    Refused,
    /// The connection failed for another reason.
    Connect,
    /// The TLS handshake failed.
    Handshake,
    /// The connection ended before a response began.
    Closed,
    /// The connection ended within a response.
    Short,
    /// The connection was reset.
    Reset,
    /// The server reset the stream of the request, or refused it several times.
    Stream,
    /// The response took too long.
    Timeout,
    /// The received bytes are not HTTP.
    Protocol,
    /// The status is not the expected one.
    Status,
    /// The body has another length than expected.
    Length,
    /// The body has other content than before.
    Checksum,
}

impl LoadFailure {
    /// Description for reports.
    pub fn label(self) -> &'static str {
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

    /// True if there was a response, although not the expected one.
    pub fn has_response(self) -> bool {
        matches!(self, Self::Status | Self::Length | Self::Checksum)
    }
}

/// Times of one kind, in microseconds.
#[derive(Clone, Debug)]
pub struct LoadTimes(Histogram<u64>);

impl Default for LoadTimes {
    fn default() -> Self {
        let bounded = Histogram::new_with_bounds(1, LONGEST_US, DIGITS);
        // The bounds are valid; the fallback is unbounded.
        let any = || Histogram::new(DIGITS).unwrap_or_else(|_| unreachable!("three digits"));
        Self(bounded.unwrap_or_else(|_| any()))
    }
}

impl LoadTimes {
    /// Adds a time.
    pub(super) fn record(&mut self, us: u64) {
        self.0.saturating_record(us.max(1));
    }

    /// Adds a lower bound of a time; 0: unknown.
    pub(super) fn record_bound(&mut self, us: u64) {
        self.0.saturating_record(us);
    }

    fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// The mean; 0 without data.
    pub fn mean_us(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.mean() }
    }

    /// The maximum; 0 without data.
    pub fn max_us(&self) -> u64 {
        self.0.max()
    }

    /// The minimum; 0 without data.
    pub fn min_us(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.min() }
    }
}

impl Sorted for LoadTimes {
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

/// Results of one thread or of all.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Responses, expected or not.
    pub responses: u64,
    /// Bytes of the responses' bodies.
    pub body_bytes: u64,
    /// Bytes received, heads included.
    pub bytes: u64,
    /// Connections made.
    pub connections: u64,
    /// Maximum number of connections in use at a time.
    pub parallel: usize,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Reason of the first broken connection.
    pub first_error: Option<String>,
    /// Number of failures by kind.
    pub failures: BTreeMap<LoadFailure, u64>,
    /// Times to connect.
    pub connect: LoadTimes,
    /// Times from sending the request to the first byte of its response.
    pub first_byte: LoadTimes,
    /// Times of expected responses, from the due time of the request to the end of the response.
    pub total: LoadTimes,
    /// Times for which failed or unsent requests had waited since they were due.
    pub lost: LoadTimes,
    /// Requests due at a fixed rate for which no connection was free.
    pub unsent: u64,
    /// The run in equal parts.
    pub intervals: Intervals,
    /// Duration of the run.
    pub took: Duration,
}

impl Tally {
    /// Records a request that failed after it had waited for `waited_us`. It is assigned to the
    /// time of its response, or without one to its due time, as its time limit may expire long
    /// after the run.
    pub(super) fn fail(&mut self, failure: LoadFailure, since_start_us: u64, waited_us: u64) {
        *self.failures.entry(failure).or_default() += 1;
        // A refused connection has no waiting time.
        let waited_us = if failure == LoadFailure::Refused { 0 } else { waited_us };
        self.lost.record_bound(waited_us);
        self.intervals.at(since_start_us).fail(waited_us, failure.has_response());
    }

    /// Records a request that was due at a time after the start and was not sent.
    pub(super) fn omit(&mut self, since_start_us: u64, waited_us: u64) {
        self.unsent += 1;
        self.lost.record_bound(waited_us);
        self.intervals.at(since_start_us).fail(waited_us, false);
    }

    /// Records an expected response that ended at a time after the start.
    pub(super) fn end(&mut self, since_start_us: u64, took_us: u64) {
        self.intervals.at(since_start_us).end(took_us);
        self.total.record(took_us);
    }

    /// Adds another thread's results.
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

    /// Responses per second.
    pub fn per_s(&self) -> f64 {
        self.responses as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Number of failures of all kinds.
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
        one.fail(LoadFailure::Reset, 0, 5);
        let mut two = Tally { responses: 2, parallel: 2, ..Tally::default() };
        two.end(210_000, 1_000_000);
        two.fail(LoadFailure::Status, 210_000, 7);
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
