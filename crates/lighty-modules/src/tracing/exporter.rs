//! The thread that sends spans to a collector.
//!
//! Workers hand their records over without waiting. Records that do not fit into the queue are
//! dropped and counted. The thread starts with the first record. It ends once no worker uses its
//! collector any more, after it has sent the rest of the queue.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use lighty_core::Level;
use lighty_core::log::{About, Log};
use lighty_core::machine::random::Random;
use lighty_core::machine::status_board::Statistics;
use lighty_fetch::Fetcher;
use lighty_http::date;
use lighty_io::clock::Clock;
use lighty_io::clock::deadline::Deadline;
use lighty_io::entropy::random_bytes;
use lighty_io::threads;

use super::otlp;
use super::partial_success::PartialSuccess;
use super::settings::CollectorOptions;
use super::span_record::SpanRecord;

/// Records per request to the collector.
const BATCH_LENGTH: usize = 256;

/// Maximum time for which a record waits for others.
const BATCH_PATIENCE: Duration = Duration::from_secs(1);

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

/// A worker's handle to the thread.
pub(super) struct Exporter {
    options: Arc<CollectorOptions>,
    queue: SyncSender<SpanRecord>,
    counts: Arc<SpanCounts>,
    /// Dropping it ends the thread's pause.
    _alive: mpsc::Sender<Infallible>,
}

impl Exporter {
    /// Returns true if the exporter uses this collector with these options.
    pub(super) fn serves(&self, options: &Arc<CollectorOptions>) -> bool {
        Arc::ptr_eq(&self.options, options) || self.options == *options
    }

    /// Queues the record; drops and counts it if the queue is full.
    pub(super) fn offer(&self, record: SpanRecord) {
        let spans = record.spans();
        if self.queue.try_send(record).is_err() {
            self.counts.dropped.fetch_add(spans, Ordering::Relaxed);
        }
    }
}

/// The exporters of all workers, and their counters. Clones share them.
#[derive(Clone, Default)]
pub struct Exporters(Arc<ExportersState>);

#[derive(Default)]
struct ExportersState {
    known: Mutex<Vec<Weak<Exporter>>>,
    counts: Arc<SpanCounts>,
    running: Arc<Running>,
}

/// Counts of exported and dropped spans, and of failures.
#[derive(Default)]
struct SpanCounts {
    exported: AtomicU64,
    dropped: AtomicU64,
    /// Failed requests to collectors.
    failures: AtomicU64,
}

/// Number of running threads.
#[derive(Default)]
struct Running {
    threads: Mutex<usize>,
    ended: Condvar,
}

impl Exporters {
    /// Returns the exporter for a collector; starts one if none is running.
    pub(super) fn of(&self, options: &Arc<CollectorOptions>, log: &Log) -> Arc<Exporter> {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|exporter| exporter.strong_count() > 0);
        let mut found = known.iter().filter_map(Weak::upgrade);
        if let Some(exporter) = found.find(|exporter| exporter.serves(options)) {
            return exporter;
        }
        let (queue, records) = sync_channel(options.queue_length);
        let (alive, ended) = mpsc::channel();
        let counts = Arc::clone(&self.0.counts);
        let sender = Sender {
            options: Arc::clone(options),
            counts: Arc::clone(&counts),
            log: log.clone(),
            warned_s: None,
            ended,
            is_ending: false,
            random: Random::new(u64::from_le_bytes(random_bytes().unwrap_or_default())),
        };
        let guard = ThreadGuard::new(&self.0.running);
        let started = threads::start("traces", None, move || {
            let _guard = guard;
            sender.work(&records);
        });
        if let Err(error) = started {
            // No thread could be started: every record is dropped and counted.
            let now_s = Clock::start().unix_s();
            log.line(Level::Error, now_s, &format!("traces: {error}"), About::default());
        }
        let options = Arc::clone(options);
        let exporter = Arc::new(Exporter { options, queue, counts, _alive: alive });
        known.push(Arc::downgrade(&exporter));
        exporter
    }

    /// Waits until all threads have sent their queues. Call it when no worker is left.
    pub fn finish(&self, patience: Duration) {
        let deadline = Deadline::after(patience);
        let running = &self.0.running;
        let mut threads = running.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while *threads > 0 && !deadline.is_over() {
            let waited = running.ended.wait_timeout(threads, deadline.left());
            threads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Statistics for Exporters {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        let counts = &self.0.counts;
        for (name, count) in [
            ("tracing.exported", &counts.exported),
            ("tracing.dropped", &counts.dropped),
            ("tracing.failures", &counts.failures),
        ] {
            figures.push((name.to_owned(), count.load(Ordering::Relaxed).to_string()));
        }
    }
}

/// Counts a thread from start to end.
struct ThreadGuard(Arc<Running>);

impl ThreadGuard {
    fn new(running: &Arc<Running>) -> Self {
        *running.threads.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(Arc::clone(running))
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        *self.0.threads.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_all();
    }
}

/// State of the thread.
struct Sender {
    options: Arc<CollectorOptions>,
    counts: Arc<SpanCounts>,
    log: Log,
    warned_s: Option<i64>,
    /// Disconnects when no worker uses the collector any more.
    ended: Receiver<Infallible>,
    /// The server is stopping: no time for further tries.
    is_ending: bool,
    random: Random,
}

/// A rejected batch.
struct Refused {
    message: String,
    /// The minimum pause before another try; `None` if a retry would not help.
    pause: Option<Duration>,
}

impl Sender {
    fn work(mut self, records: &Receiver<SpanRecord>) {
        let fetcher = self.fetcher();
        while let Ok(first) = records.recv() {
            let mut batch = vec![first];
            let deadline = Deadline::after(BATCH_PATIENCE);
            while batch.len() < BATCH_LENGTH {
                match records.recv_timeout(deadline.left()) {
                    Ok(record) => batch.push(record),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        self.is_ending = true;
                        break;
                    }
                }
            }
            self.send(&fetcher, &batch);
        }
    }

    fn fetcher(&mut self) -> Fetcher {
        Fetcher::for_url(&self.options.url).unwrap_or_else(|error| {
            self.warn(&error.to_string());
            Fetcher::in_the_clear()
        })
    }

    /// Sends a batch, with retries after pauses if that may help. There are no pauses once the
    /// thread is ending; a pause that is cut short is followed by a last try.
    fn send(&mut self, fetcher: &Fetcher, batch: &[SpanRecord]) {
        let body = otlp::request(batch, &self.options);
        let count = batch.iter().map(SpanRecord::spans).sum();
        let mut pauses = PAUSES.into_iter();
        loop {
            let refused = match self.post(fetcher, &body) {
                Ok(answer) => return self.count_taken(count, &answer),
                Err(refused) => refused,
            };
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            self.warn(&refused.message);
            let pause = refused.pause.filter(|_| !self.is_ending);
            match pause.and_then(|least| Some(pauses.next()?.max(least))) {
                Some(pause) => self.pause(pause),
                None => {
                    self.counts.dropped.fetch_add(count, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// Waits for the pause plus a random increase, or until the thread must end.
    fn pause(&mut self, pause: Duration) {
        let percent = self.random.next() % (u64::from(JITTER_PERCENT) + 1);
        let jitter = pause * percent as u32 / 100;
        let waited = self.ended.recv_timeout(pause + jitter);
        self.is_ending |= !matches!(waited, Err(RecvTimeoutError::Timeout));
    }

    /// Counts the exported and the rejected spans; logs the reason for a rejection.
    fn count_taken(&mut self, count: u64, answer: &[u8]) {
        let partial = PartialSuccess::of(answer);
        let rejected = partial.rejected.min(count);
        self.counts.exported.fetch_add(count - rejected, Ordering::Relaxed);
        self.counts.dropped.fetch_add(rejected, Ordering::Relaxed);
        if rejected > 0 {
            self.warn(&format!("it rejects {rejected} of {count} spans: {}", partial.message));
        } else if !partial.message.is_empty() {
            self.warn(&format!("it warns: {}", partial.message));
        }
    }

    /// Posts a batch; returns the body of a successful response.
    fn post(&self, fetcher: &Fetcher, body: &[u8]) -> Result<Bytes, Refused> {
        let refused = |message, pause| Refused { message, pause };
        let mut request =
            Request::post(&*self.options.url).header(CONTENT_TYPE, "application/json");
        for (name, value) in self.options.fields.iter() {
            request = request.header(&**name, &**value);
        }
        let request = request.body(body).map_err(|error| refused(error.to_string(), None))?;
        let response = fetcher.fetch(&request, PATIENCE);
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

    fn warn(&mut self, why: &str) {
        let now_s = Clock::start().unix_s();
        if self.warned_s.is_none_or(|warned_s| now_s.saturating_sub(warned_s) >= WARNING_INTERVAL_S)
        {
            self.warned_s = Some(now_s);
            // A password must not appear in logs.
            let url = lighty_fetch::without_credentials(&self.options.url);
            let text = format!("tracing.collector {url}: {why}");
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
