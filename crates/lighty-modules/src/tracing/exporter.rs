//! The thread that sends spans to a collector.
//!
//! Workers hand their records over without waiting. Records that do not fit into the queue are
//! dropped and counted. The thread starts with the first record. It ends once no worker uses its
//! collector any more, after it has sent the rest of the queue.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use lighty_core::Level;
use lighty_core::log::{About, Log};
use lighty_core::machine::status_board::Statistics;
use lighty_io::clock::Clock;
use lighty_io::clock::deadline::Deadline;
use lighty_io::threads;

use super::access_exporter::AccessExporter;
use super::batch::{count_taken, next_batch};
use super::delivery::{Delivery, Destination, ExportCounts};
use super::otlp;
use super::settings::{CollectorOptions, TelemetryOptions};
use super::span_record::SpanRecord;

/// A worker's handle to the thread.
pub(super) struct Exporter {
    options: Arc<CollectorOptions>,
    queue: SyncSender<SpanRecord>,
    counts: Arc<ExportCounts>,
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
    access_logs: Mutex<Vec<Weak<AccessExporter>>>,
    counts: Arc<ExportCounts>,
    running: Arc<Running>,
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
        let destination = Destination {
            url: Arc::clone(&options.url),
            fields: Arc::clone(&options.fields),
            directive: "tracing.collector",
        };
        let sender = Sender {
            options: Arc::clone(options),
            counts: Arc::clone(&counts),
            delivery: Delivery::new(destination, &counts, log, ended),
        };
        self.start("traces", log, move || sender.work(&records));
        let options = Arc::clone(options);
        let exporter = Arc::new(Exporter { options, queue, counts, _alive: alive });
        known.push(Arc::downgrade(&exporter));
        exporter
    }

    /// Like [`of`](Self::of), for the access log.
    pub(super) fn access_log(&self, options: TelemetryOptions, log: &Log) -> Arc<AccessExporter> {
        let mut known = self.0.access_logs.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|exporter| exporter.strong_count() > 0);
        let mut found = known.iter().filter_map(Weak::upgrade);
        if let Some(exporter) = found.find(|exporter| exporter.options == options) {
            return exporter;
        }
        let (exporter, work) = AccessExporter::new(options, self.counts(), log);
        self.start("access log records", log, work);
        let exporter = Arc::new(exporter);
        known.push(Arc::downgrade(&exporter));
        exporter
    }

    /// Starts a thread that [`finish`](Self::finish) waits for. Without a thread, all data is
    /// dropped and counted.
    pub(super) fn start(&self, name: &str, log: &Log, work: impl FnOnce() + Send + 'static) {
        let guard = ThreadGuard::new(&self.0.running);
        let started = threads::start(name, None, move || {
            let _guard = guard;
            work();
        });
        if let Err(error) = started {
            let now_s = Clock::start().unix_s();
            log.line(Level::Error, now_s, &format!("{name}: {error}"), About::default());
        }
    }

    /// The counts of all exports.
    pub(super) fn counts(&self) -> &Arc<ExportCounts> {
        &self.0.counts
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
    fn collect(&self, _: &mut Vec<(String, String)>) {}

    fn count(&self, counters: &mut Vec<(String, u64)>) {
        let counts = &self.0.counts;
        for (name, count) in [
            ("tracing.access-logs-dropped", &counts.access_dropped),
            ("tracing.access-logs-exported", &counts.access_exported),
            ("tracing.exported", &counts.exported),
            ("tracing.dropped", &counts.dropped),
            ("tracing.failures", &counts.failures),
            ("tracing.logs-dropped", &counts.logs_dropped),
            ("tracing.logs-exported", &counts.logs_exported),
            ("tracing.metrics-dropped", &counts.metrics_dropped),
            ("tracing.metrics-exported", &counts.metrics_exported),
        ] {
            counters.push((name.to_owned(), count.load(Ordering::Relaxed)));
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
    counts: Arc<ExportCounts>,
    delivery: Delivery,
}

impl Sender {
    fn work(mut self, records: &Receiver<SpanRecord>) {
        while let Some(batch) = next_batch(records, &mut self.delivery) {
            self.send(&batch);
        }
    }

    fn send(&mut self, batch: &[SpanRecord]) {
        let count = batch.iter().map(SpanRecord::spans).sum();
        match self.delivery.deliver(&otlp::request(batch, &self.options)) {
            Some(answer) => {
                let taken = count_taken(count, "spans", &answer, &mut self.delivery);
                self.counts.exported.fetch_add(taken, Ordering::Relaxed);
                self.counts.dropped.fetch_add(count - taken, Ordering::Relaxed);
            }
            None => drop(self.counts.dropped.fetch_add(count, Ordering::Relaxed)),
        }
    }
}
