//! The thread that sends records of finished requests to a collector of logs.
//!
//! As for spans, workers never wait: records that do not fit into the queue are dropped and
//! counted. The thread starts with the first record, and ends once no worker uses its collector any
//! more, after it has sent the rest of the queue.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, SyncSender, sync_channel};

use lighty_core::log::Log;

use super::batch::{count_taken, next_batch};
use super::delivery::{Delivery, Destination, ExportCounts};
use super::otlp_access;
use super::settings::TelemetryOptions;
use super::span_record::SpanRecord;

/// A worker's handle to the thread.
pub(super) struct AccessExporter {
    pub(super) options: TelemetryOptions,
    queue: SyncSender<SpanRecord>,
    counts: Arc<ExportCounts>,
    /// Dropping it ends the thread's pause.
    _alive: mpsc::Sender<Infallible>,
}

impl AccessExporter {
    /// Creates a handle, and the work of its thread.
    pub(super) fn new(
        options: TelemetryOptions,
        counts: &Arc<ExportCounts>,
        log: &Log,
    ) -> (Self, impl FnOnce() + Send + use<>) {
        let (queue, records) = sync_channel(options.queue_length);
        let (alive, ended) = mpsc::channel();
        let destination = Destination {
            url: Arc::clone(&options.url),
            fields: Arc::clone(&options.fields),
            directive: "tracing.access-logs-collector",
        };
        let mut delivery = Delivery::new(destination, counts, log, ended);
        let (service, counts) = (Arc::clone(&options.service), Arc::clone(counts));
        let sent = Arc::clone(&counts);
        let work = move || send(&records, &service, &mut delivery, &sent);
        (Self { options, queue, counts, _alive: alive }, work)
    }

    /// Queues the record; drops and counts it if the queue is full.
    pub(super) fn offer(&self, record: SpanRecord) {
        if self.queue.try_send(record).is_err() {
            self.counts.access_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn send(
    records: &Receiver<SpanRecord>,
    service: &str,
    delivery: &mut Delivery,
    counts: &ExportCounts,
) {
    while let Some(batch) = next_batch(records, delivery) {
        let count = batch.len() as u64;
        let answer = delivery.deliver(&otlp_access::request(&batch, service));
        let taken = answer.map_or(0, |answer| count_taken(count, "records", &answer, delivery));
        counts.access_exported.fetch_add(taken, Ordering::Relaxed);
        counts.access_dropped.fetch_add(count - taken, Ordering::Relaxed);
    }
}
