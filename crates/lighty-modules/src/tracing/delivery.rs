//! Requests to a collector: posted, tried again where that may help, or dropped. One thread for
//! each kind of data owns a [`Delivery`].

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use lighty_config::Pairs;
use lighty_core::Level;
use lighty_core::log::{About, Log};
use lighty_core::machine::random::Random;
use lighty_fetch::Fetcher;
use lighty_http::date;
use lighty_io::clock::Clock;
use lighty_io::entropy::random_bytes;

/// Timeout of a request to a collector.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pauses before a batch is sent again, if the error is temporary.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// Upper limit of the pause that a collector may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Maximum random increase of a pause, so that servers do not all come back at once.
const JITTER_PERCENT: u32 = 20;

/// Seconds between two log messages about a failing collector.
const WARNING_INTERVAL_S: i64 = 60;

/// Counts of exported and dropped data, and of failures.
#[derive(Default)]
pub(super) struct ExportCounts {
    /// Spans.
    pub(super) exported: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// Lines of the error log.
    pub(super) logs_exported: AtomicU64,
    pub(super) logs_dropped: AtomicU64,
    /// Finished requests, for the access log.
    pub(super) access_exported: AtomicU64,
    pub(super) access_dropped: AtomicU64,
    /// Requests with all metrics.
    pub(super) metrics_exported: AtomicU64,
    pub(super) metrics_dropped: AtomicU64,
    /// Failed requests to collectors.
    pub(super) failures: AtomicU64,
}

/// A collector's address for one kind of data.
#[derive(Clone)]
pub(super) struct Destination {
    pub(super) url: Arc<str>,
    /// Fields of the requests.
    pub(super) fields: Pairs,
    /// The directive that names it, for messages.
    pub(super) directive: &'static str,
}

pub(super) struct Delivery {
    destination: Destination,
    counts: Arc<ExportCounts>,
    log: Log,
    warned_s: Option<i64>,
    /// Disconnects when the collector is not used any more.
    ended: Receiver<Infallible>,
    /// The server is stopping: no time for further tries.
    is_ending: bool,
    random: Random,
    /// Made on the thread, because it reads the system's authorities.
    fetcher: Option<Fetcher>,
}

/// A rejected request.
struct Refused {
    message: String,
    /// The minimum pause before another try; `None` if a retry would not help.
    pause: Option<Duration>,
}

impl Delivery {
    pub(super) fn new(
        destination: Destination,
        counts: &Arc<ExportCounts>,
        log: &Log,
        ended: Receiver<Infallible>,
    ) -> Self {
        Self {
            destination,
            counts: Arc::clone(counts),
            log: log.clone(),
            warned_s: None,
            ended,
            is_ending: false,
            random: Random::new(u64::from_le_bytes(random_bytes().unwrap_or_default())),
            fetcher: None,
        }
    }

    /// Sends data without pauses from now on.
    pub(super) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Waits, or until the collector is not used any more. Returns true then.
    pub(super) fn wait(&mut self, pause: Duration) -> bool {
        let waited = self.ended.recv_timeout(pause);
        self.is_ending |= !matches!(waited, Err(RecvTimeoutError::Timeout));
        self.is_ending
    }

    /// Sends a body, with retries after pauses if that may help. There are no pauses once the
    /// thread is ending; a pause that is cut short is followed by a last try. Returns the response,
    /// or `None` if the body is dropped.
    pub(super) fn deliver(&mut self, body: &[u8]) -> Option<Bytes> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let refused = match self.post(body) {
                Ok(answer) => return Some(answer),
                Err(refused) => refused,
            };
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            self.warn(&refused.message);
            let pause = refused.pause.filter(|_| !self.is_ending)?;
            let pause = pauses.next()?.max(pause);
            let percent = self.random.next() % (u64::from(JITTER_PERCENT) + 1);
            self.wait(pause + pause * percent as u32 / 100);
        }
    }

    fn fetcher(&mut self) -> Fetcher {
        Fetcher::for_url(&self.destination.url).unwrap_or_else(|error| {
            self.warn(&error.to_string());
            Fetcher::in_the_clear()
        })
    }

    /// Posts a body; returns the body of a successful response.
    fn post(&mut self, body: &[u8]) -> Result<Bytes, Refused> {
        let refused = |message, pause| Refused { message, pause };
        let mut request =
            Request::post(&*self.destination.url).header(CONTENT_TYPE, "application/json");
        for (name, value) in self.destination.fields.iter() {
            request = request.header(&**name, &**value);
        }
        let request = request.body(body).map_err(|error| refused(error.to_string(), None))?;
        let fetcher = self.fetcher.take().unwrap_or_else(|| self.fetcher());
        let response = fetcher.fetch(&request, PATIENCE);
        self.fetcher = Some(fetcher);
        let response =
            response.map_err(|error| refused(error.to_string(), Some(Duration::ZERO)))?;
        // OTLP 1.x, section "Failures": these errors may be retried.
        let status = response.status().as_u16();
        match response.status().is_success() {
            true => Ok(response.into_body()),
            false => {
                let is_passing = matches!(status, 429 | 502 | 503 | 504);
                let retry_s = || retry_after(response.headers(), Clock::start().unix_s());
                Err(refused(format!("status {status}"), is_passing.then(retry_s)))
            }
        }
    }

    pub(super) fn warn(&mut self, why: &str) {
        let now_s = Clock::start().unix_s();
        if self.warned_s.is_none_or(|warned_s| now_s.saturating_sub(warned_s) >= WARNING_INTERVAL_S)
        {
            self.warned_s = Some(now_s);
            // A password must not appear in logs.
            let url = lighty_fetch::without_credentials(&self.destination.url);
            let text = format!("{} {url}: {why}", self.destination.directive);
            self.log.line(Level::Warning, now_s, &text, About::default());
        }
    }
}

/// Returns the pause requested by a response (RFC 9110 section 10.2.3), limited to [`PAUSE_MAX`].
fn retry_after(fields: &HeaderMap, now_s: i64) -> Duration {
    let value = fields.get(RETRY_AFTER).map_or(&b""[..], |value| value.as_bytes()).trim_ascii();
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let seconds = match std::str::from_utf8(value) {
        // A number that overflows exceeds the limit as well.
        Ok(digits) if is_number => digits.parse().unwrap_or(u64::MAX),
        _ => date::parse(value).map_or(0, |at_s| at_s.saturating_sub(now_s).max(0).unsigned_abs()),
    };
    Duration::from_secs(seconds).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_says_how_long_it_wants_to_be_left_alone() {
        let now_s = 784_111_777;
        for (value, wanted_s) in [
            ("0", 0),
            ("7", 7),
            ("30", 30),
            ("31", 30),
            ("99999999999999999999", 30),
            ("Sun, 06 Nov 1994 08:49:42 GMT", 5),
            ("Sun, 06 Nov 1994 08:49:30 GMT", 0),
            ("Sun, 06 Nov 1994 09:49:37 GMT", 30),
            ("-1", 0),
            ("soon", 0),
            ("", 0),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(RETRY_AFTER, value.parse().expect("a value"));
            assert_eq!(retry_after(&fields, now_s), Duration::from_secs(wanted_s), "{value}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now_s), Duration::ZERO);
    }
}
