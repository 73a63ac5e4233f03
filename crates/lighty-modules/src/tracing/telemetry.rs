//! Exports of metrics and of the error log to collectors, as OTLP over HTTP in JSON.
//!
//! A thread for each asks for the metrics once in an interval, or takes lines from a bounded queue.
//! Nothing waits for a collector: lines that the queue has no room for are dropped and counted.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, SyncSender, sync_channel};
use std::time::Duration;

use lighty_core::Settings;
use lighty_core::log::Log;
use lighty_core::log::tap::{LogRecord, LogTap};

use super::batch::{count_taken, next_batch};
use super::delivery::{Delivery, Destination, ExportCounts};
use super::exporter::Exporters;
use super::otlp_logs;
use super::partial_success::PartialSuccess;
use super::settings::{TelemetryOptions, TracingSettings};

/// Makes an OTLP request with all metrics, for a service of this name; `None` if that fails. It may
/// block.
pub type MetricsSource = Arc<dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync>;

/// The exports of a process. Dropping it ends them.
#[derive(Default)]
pub struct Telemetry {
    metrics: Option<Export>,
    logs: Option<Export>,
}

/// An export that is under way.
struct Export {
    options: TelemetryOptions,
    /// Dropping it ends the thread's wait.
    _alive: mpsc::Sender<Infallible>,
}

impl Telemetry {
    /// Exports as a configuration says from now on. Exports that it does not change go on.
    pub fn follow(
        &mut self,
        settings: &Settings,
        exporters: &Exporters,
        log: &Log,
        source: MetricsSource,
    ) {
        let own = settings.module::<TracingSettings>();
        let (metrics, logs) = (own.metrics_options(), own.logs_options());
        if self.metrics.as_ref().map(|export| &export.options) != metrics.as_ref() {
            self.metrics = metrics.map(|options| start_metrics(options, exporters, log, source));
        }
        if self.logs.as_ref().map(|export| &export.options) != logs.as_ref() {
            if logs.is_none() {
                log.set_tap(None);
            }
            self.logs = logs.map(|options| start_logs(options, exporters, log));
        }
    }

    /// Ends the export of metrics until [`follow`](Self::follow) is called: another process exports
    /// them, with those of this one.
    pub fn end_metrics(&mut self) {
        self.metrics = None;
    }

    /// Ends all exports; the queue of lines is sent once more.
    pub fn end(&mut self, log: &Log) {
        log.set_tap(None);
        *self = Self::default();
    }
}

fn destination(options: &TelemetryOptions, directive: &'static str) -> Destination {
    let (url, fields) = (Arc::clone(&options.url), Arc::clone(&options.fields));
    Destination { url, fields, directive }
}

fn start_metrics(
    options: TelemetryOptions,
    exporters: &Exporters,
    log: &Log,
    source: MetricsSource,
) -> Export {
    let (alive, ended) = mpsc::channel();
    let destination = destination(&options, "tracing.metrics-collector");
    let counts = Arc::clone(exporters.counts());
    let mut delivery = Delivery::new(destination, &counts, log, ended);
    let service = Arc::clone(&options.service);
    let interval = Duration::from_secs(options.interval_s.into());
    exporters.start("metrics", log, move || {
        while !delivery.wait(interval) {
            let answer = source(&service).and_then(|body| delivery.deliver(&body));
            let count = match &answer {
                Some(_) => &counts.metrics_exported,
                None => &counts.metrics_dropped,
            };
            count.fetch_add(1, Ordering::Relaxed);
            let partial = answer.map(|answer| PartialSuccess::of(&answer)).unwrap_or_default();
            if partial != PartialSuccess::default() {
                let PartialSuccess { rejected, message } = partial;
                delivery.warn(&format!("it rejects {rejected} data points: {message}"));
            }
        }
    });
    Export { options, _alive: alive }
}

/// The queue of lines.
struct LogQueue {
    queue: SyncSender<LogRecord>,
    counts: Arc<ExportCounts>,
}

impl LogTap for LogQueue {
    fn take(&self, record: LogRecord) {
        if self.queue.try_send(record).is_err() {
            self.counts.logs_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn start_logs(options: TelemetryOptions, exporters: &Exporters, log: &Log) -> Export {
    let (alive, ended) = mpsc::channel();
    let (queue, records) = sync_channel(options.queue_length);
    let destination = destination(&options, "tracing.logs-collector");
    let counts = Arc::clone(exporters.counts());
    let mut delivery = Delivery::new(destination, &counts, log, ended);
    let service = Arc::clone(&options.service);
    log.set_tap(Some(Arc::new(LogQueue { queue, counts: Arc::clone(&counts) })));
    exporters.start("log records", log, move || {
        send_logs(&records, &service, &mut delivery, &counts);
    });
    Export { options, _alive: alive }
}

fn send_logs(
    records: &Receiver<LogRecord>,
    service: &str,
    delivery: &mut Delivery,
    counts: &ExportCounts,
) {
    while let Some(batch) = next_batch(records, delivery) {
        let count = batch.len() as u64;
        let answer = delivery.deliver(&otlp_logs::request(&batch, service));
        let taken = answer.map_or(0, |answer| count_taken(count, "lines", &answer, delivery));
        counts.logs_exported.fetch_add(taken, Ordering::Relaxed);
        counts.logs_dropped.fetch_add(count - taken, Ordering::Relaxed);
    }
}
