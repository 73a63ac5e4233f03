//! State shared by the connections of a thread: requests, schedule and results.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use lighty_http::{Fields, Method};
use lighty_io::transport::Stream;

use super::LoadProgress;
use super::dial::Dial;
use super::options::LoadTestOptions;
use super::pace::Pace;
use super::received::{Received, judge};
use super::tally::{LoadFailure, Tally};
use super::watch::Watches;

/// State shared by the connections of a thread.
pub(super) struct SharedLoad {
    pub(super) options: LoadTestOptions,
    dial: Dial,
    /// Each URL's encoded HTTP/1.1 request.
    pub(super) requests: Vec<Bytes>,
    /// Each URL's HTTP/2 fields.
    pub(super) fields: Vec<Fields>,
    pub(super) method: Option<Method>,
    pub(super) progress: LoadProgress,
    pub(super) pace: Pace,
    pub(super) watches: Watches,
    tally: RefCell<Tally>,
    /// End of the last response.
    last_us: Cell<u64>,
    /// Number of connections in use.
    busy: Cell<usize>,
    /// Length and checksum of the first response for each URL.
    first: RefCell<Vec<Option<(u64, u64)>>>,
    chance: RefCell<fastrand::Rng>,
    counted_from_us: u64,
}

/// Outcome of a request: the received data, and the time of sending.
pub(super) type RequestOutcome = Result<(Received, u64), LoadFailure>;

impl SharedLoad {
    pub(super) fn new(
        options: LoadTestOptions,
        dial: Dial,
        pace: Pace,
        progress: LoadProgress,
        seed: u64,
    ) -> Self {
        Self {
            requests: options.requests(),
            fields: options.http2_fields(),
            method: Method::from_bytes(options.method.as_bytes()),
            first: RefCell::new(vec![None; options.urls.len()]),
            options,
            dial,
            progress,
            counted_from_us: pace.counted_from_us(),
            pace,
            watches: Watches::default(),
            tally: RefCell::default(),
            last_us: Cell::new(0),
            busy: Cell::new(0),
            chance: RefCell::new(fastrand::Rng::with_seed(seed)),
        }
    }

    pub(super) fn now_us(&self) -> u64 {
        self.pace.clock().precise_us()
    }

    /// Counts a connection as in use while the result lives.
    pub(super) fn busy(&self) -> Busy<'_> {
        let busy = self.busy.get() + 1;
        self.busy.set(busy);
        let mut tally = self.tally.borrow_mut();
        tally.parallel = tally.parallel.max(busy);
        Busy(&self.busy)
    }

    /// Opens a connection and records the time.
    pub(super) async fn open(&self) -> Result<Stream, LoadFailure> {
        let began_us = self.now_us();
        let stream = self.dial.open().await?;
        let mut tally = self.tally.borrow_mut();
        tally.connections += 1;
        tally.connect.record(self.now_us() - began_us);
        Ok(stream)
    }

    /// Summarises the run. It covers the time in which requests began, and lasts until the last
    /// response after it. A later time-out does not extend it, which would lower the rate.
    pub(super) fn sum_up(&self) -> Tally {
        let began_until_us = self.now_us().min(self.pace.end_us());
        let ended_us = self.last_us.get().max(began_until_us);
        let mut tally = self.tally.take();
        for due_us in self.pace.unsent_due_us() {
            tally.omit(due_us - self.counted_from_us, began_until_us.saturating_sub(due_us));
        }
        tally.took = Duration::from_micros(ended_us.saturating_sub(self.counted_from_us));
        tally
    }

    /// Counts bytes received at a time.
    pub(super) fn count_bytes(&self, count: usize, now_us: u64) {
        if now_us >= self.counted_from_us {
            self.tally.borrow_mut().bytes += count as u64;
        }
    }

    /// Records the reason of a broken connection.
    pub(super) fn note(&self, message: &str) {
        self.dial.first_error.note(message.to_owned());
    }

    /// Counts the outcome of a request for URL `at` that was due at `due_us`.
    pub(super) fn count(&self, at: usize, due_us: u64, outcome: RequestOutcome) {
        if due_us < self.counted_from_us {
            return;
        }
        let mut tally = self.tally.borrow_mut();
        let now_us = self.now_us();
        let took_us = now_us.saturating_sub(due_us);
        let (received, sent_us) = match outcome {
            Ok(outcome) => outcome,
            Err(failure) => {
                self.progress.count_failure();
                return tally.fail(failure, due_us - self.counted_from_us, took_us);
            }
        };
        self.progress.count_response();
        self.last_us.set(now_us);
        tally.responses += 1;
        tally.bytes += received.bytes;
        tally.body_bytes += received.body_bytes;
        *tally.statuses.entry(received.status).or_default() += 1;
        tally.first_byte.record(received.first_byte_us.saturating_sub(sent_us));
        let since_start_us = now_us.saturating_sub(self.counted_from_us);
        let first = &mut self.first.borrow_mut()[at];
        match judge(&received, &self.options.expected, first) {
            None => tally.end(since_start_us, took_us),
            Some(failure) => {
                self.progress.count_failure();
                tally.fail(failure, since_start_us, took_us);
            }
        }
    }

    /// A random URL.
    pub(super) fn choose(&self) -> usize {
        self.chance.borrow_mut().usize(..self.options.urls.len())
    }
}

/// Guard of a connection in use.
pub(super) struct Busy<'a>(&'a Cell<usize>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
