//! The thread that sends spans to a collector.
//!
//! Workers hand their records over without waiting: what finds no room in the queue is dropped and
//! counted. The thread begins with the first record and ends when no worker names its collector
//! any more, with what is left in the queue sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::CONTENT_TYPE;
use lighty_core::Level;
use lighty_core::log::{About, Log};
use lighty_core::machine::status_board::Statistics;
use lighty_fetch::Fetcher;
use lighty_io::clock::Clock;
use lighty_io::clock::deadline::Deadline;
use lighty_io::threads;

use super::otlp;
use super::partial_success::PartialSuccess;
use super::settings::CollectorOptions;
use super::span_record::SpanRecord;

/// Records of one request to the collector.
const BATCH_LENGTH: usize = 256;

/// How long a record may wait for others.
const BATCH_PATIENCE: Duration = Duration::from_secs(1);

/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pauses before a batch is sent again, where the collector may take it later.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// Seconds between two lines about a collector that fails.
const COMPLAINT_S: i64 = 60;

/// A worker's way to the thread.
pub(super) struct Exporter {
    options: Arc<CollectorOptions>,
    queue: SyncSender<SpanRecord>,
    counts: Arc<Counts>,
}

impl Exporter {
    /// True if it sends to this collector in this way.
    pub(super) fn serves(&self, options: &Arc<CollectorOptions>) -> bool {
        Arc::ptr_eq(&self.options, options) || self.options == *options
    }

    /// Sends the record some time, if there is room for it.
    pub(super) fn offer(&self, record: SpanRecord) {
        let spans = record.spans();
        if self.queue.try_send(record).is_err() {
            self.counts.dropped.fetch_add(spans, Ordering::Relaxed);
        }
    }
}

/// The exporters of all workers, and what they did. Clones share them.
#[derive(Clone, Default)]
pub struct Exporters(Arc<Shared>);

#[derive(Default)]
struct Shared {
    known: Mutex<Vec<Weak<Exporter>>>,
    counts: Arc<Counts>,
    running: Arc<Running>,
}

/// Spans of requests whose trace is recorded.
#[derive(Default)]
struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
    /// Requests to collectors that came to nothing.
    failures: AtomicU64,
}

/// How many threads there are.
#[derive(Default)]
struct Running {
    threads: Mutex<usize>,
    ended: Condvar,
}

impl Exporters {
    /// The exporter for a collector, which begins if there is none.
    pub(super) fn of(&self, options: &Arc<CollectorOptions>, log: &Log) -> Arc<Exporter> {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|exporter| exporter.strong_count() > 0);
        let mut found = known.iter().filter_map(Weak::upgrade);
        if let Some(exporter) = found.find(|exporter| exporter.serves(options)) {
            return exporter;
        }
        let (queue, records) = sync_channel(options.queue_length);
        let counts = Arc::clone(&self.0.counts);
        let sender = Sender {
            options: Arc::clone(options),
            counts: Arc::clone(&counts),
            log: log.clone(),
            complained_s: None,
        };
        let guard = ThreadGuard::new(&self.0.running);
        let started = threads::start("traces", None, move || {
            let _guard = guard;
            sender.work(&records);
        });
        if let Err(error) = started {
            // Every record is dropped, and counted.
            let now_s = Clock::start().unix_s();
            log.line(Level::Error, now_s, &format!("traces: {error}"), About::default());
        }
        let exporter = Arc::new(Exporter { options: Arc::clone(options), queue, counts });
        known.push(Arc::downgrade(&exporter));
        exporter
    }

    /// Waits until all threads have sent what they had, once no worker is left.
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

/// Counts a thread while it lives.
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

/// What the thread knows.
struct Sender {
    options: Arc<CollectorOptions>,
    counts: Arc<Counts>,
    log: Log,
    complained_s: Option<i64>,
}

/// Why a batch was not taken.
struct Refused {
    words: String,
    may_be_taken_later: bool,
}

impl Sender {
    fn work(mut self, records: &Receiver<SpanRecord>) {
        let fetcher = self.fetcher();
        let mut is_last = false;
        while !is_last {
            let Ok(first) = records.recv() else { return };
            let mut batch = vec![first];
            let deadline = Deadline::after(BATCH_PATIENCE);
            while batch.len() < BATCH_LENGTH {
                match records.recv_timeout(deadline.left()) {
                    Ok(record) => batch.push(record),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        is_last = true;
                        break;
                    }
                }
            }
            self.send(&fetcher, &batch, is_last);
        }
    }

    fn fetcher(&mut self) -> Fetcher {
        Fetcher::for_url(&self.options.url).unwrap_or_else(|error| {
            self.complain(&error.to_string());
            Fetcher::in_the_clear()
        })
    }

    /// Sends a batch, again after pauses if that may help. At the end there are none.
    fn send(&mut self, fetcher: &Fetcher, batch: &[SpanRecord], is_last: bool) {
        let body = otlp::request(batch, &self.options);
        let count = batch.iter().map(SpanRecord::spans).sum();
        let mut pauses = PAUSES.iter().filter(|_| !is_last);
        loop {
            let refused = match self.post(fetcher, &body) {
                Ok(answer) => return self.count_taken(count, &answer),
                Err(refused) => refused,
            };
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
            self.complain(&refused.words);
            match pauses.next().filter(|_| refused.may_be_taken_later) {
                Some(pause) => std::thread::sleep(*pause),
                None => {
                    self.counts.dropped.fetch_add(count, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// Counts what a collector has taken of so many spans, and says why it has rejected others.
    fn count_taken(&mut self, count: u64, answer: &[u8]) {
        let partial = PartialSuccess::of(answer);
        let rejected = partial.rejected.min(count);
        self.counts.exported.fetch_add(count - rejected, Ordering::Relaxed);
        self.counts.dropped.fetch_add(rejected, Ordering::Relaxed);
        if rejected > 0 {
            self.complain(&format!("it rejects {rejected} of {count} spans: {}", partial.message));
        } else if !partial.message.is_empty() {
            self.complain(&format!("it warns: {}", partial.message));
        }
    }

    /// Returns the body of a response that means success.
    fn post(&self, fetcher: &Fetcher, body: &[u8]) -> Result<Bytes, Refused> {
        let refused = |words, may_be_taken_later| Refused { words, may_be_taken_later };
        let mut request =
            Request::post(&*self.options.url).header(CONTENT_TYPE, "application/json");
        for (name, value) in self.options.fields.iter() {
            request = request.header(&**name, &**value);
        }
        let request = request.body(body).map_err(|error| refused(error.to_string(), false))?;
        let response = fetcher.fetch(&request, PATIENCE);
        let response = response.map_err(|error| refused(error.to_string(), true))?;
        // OTLP 1.x, section "Failures": these may be tried again.
        let status = response.status().as_u16();
        match response.status().is_success() {
            true => Ok(response.into_body()),
            false => {
                Err(refused(format!("status {status}"), matches!(status, 429 | 502 | 503 | 504)))
            }
        }
    }

    fn complain(&mut self, why: &str) {
        let now_s = Clock::start().unix_s();
        if self.complained_s.is_none_or(|said_s| now_s.saturating_sub(said_s) >= COMPLAINT_S) {
            self.complained_s = Some(now_s);
            // A password does not belong into logs.
            let url = lighty_fetch::without_credentials(&self.options.url);
            let text = format!("tracing.collector {url}: {why}");
            self.log.line(Level::Warning, now_s, &text, About::default());
        }
    }
}
