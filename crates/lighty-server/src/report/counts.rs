//! Writes a worker's counters to the error log, on USR2 and at stop.

use std::cell::Cell;

use lighty_io::clock::Clock;
use lighty_proxy::upstream::registry::Registry;
use lighty_proxy::upstream::stats;

use crate::worker::Worker;

/// Returns a line about panics, if any. Each one is a bug to report.
pub(crate) fn panics() -> Option<String> {
    let count = lighty_io::threads::panic_log::count();
    (count > 0).then(|| format!("{count} panics since the start, see the lines above"))
}

/// Returns a line of counters: requests and connections, then reads of the network backend and the
/// file engine. Bytes, and milliseconds of waiting summed over the connections that waited.
pub(crate) fn line(index: usize, worker: &Worker) -> String {
    format!(
        "worker {index}: {}; {}; {}; {}",
        requests(worker),
        backend(worker),
        engine(worker),
        cache(worker)
    )
}

/// Returns the counters of the process's upstreams, one line of keys and values each.
pub(crate) fn upstreams(registry: &Registry) -> Vec<String> {
    let all = stats::figures(registry, Clock::start().mono_ms());
    if all.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("proxy-core.requests: {}", stats::requests(&all))];
    lines.extend(all.iter().map(|upstream| {
        let pairs: Vec<_> =
            upstream.pairs().map(|(key, value)| format!("{key}: {value}")).collect();
        pairs.join(", ")
    }));
    lines
}

fn requests(worker: &Worker) -> String {
    let c = &worker.machine.counters;
    format!(
        "{} requests on {} connections ({} open), {} bytes in, {} out, {} refused, {} cut, {} \
         timed out, {} reaped, {} pauses in accepting",
        c.requests.get(),
        c.connections.get(),
        worker.conns.open(),
        c.bytes_in.get(),
        c.bytes_out.get(),
        c.refused.get(),
        c.cut.get(),
        c.timed_out.get(),
        c.reaped.get(),
        c.accept_pauses.get(),
    )
}

fn backend(worker: &Worker) -> String {
    let c = worker.sender.counters();
    format!(
        "network backend {}: {} async reads, {} sync reads, {} bytes ({} by sendfile), read wait \
         {} ms",
        worker.global().server.network_backend,
        c.async_reads.get(),
        c.sync_reads.get(),
        c.bytes.get(),
        c.sendfile_bytes.get(),
        ms(&c.read_wait_us),
    )
}

fn engine(worker: &Worker) -> String {
    let engine = &worker.machine.engine;
    let c = engine.counters();
    format!(
        "file engine {}: {} opens, {} stats, {} of them answered from memory, {} async reads, {} \
         sync reads, {} bytes, open wait {} ms, stat wait {} ms, read wait {} ms, {} under way, {} \
         urgent at disks, {} bulk reads, bulk wait {} ms, {} overdue, {} given up, {} turns expired",
        engine.report().name,
        c.opens.get(),
        c.stats.get(),
        c.lookups_cached.get(),
        c.async_reads.get(),
        c.sync_reads.get(),
        c.bytes.get(),
        ms(&c.open_wait_us),
        ms(&c.stat_wait_us),
        ms(&c.read_wait_us),
        c.in_flight.get(),
        c.urgent.get(),
        c.bulk.get(),
        ms(&c.bulk_wait_us),
        c.bulk_overdue.get(),
        c.bulk_abandoned.get(),
        c.turns_expired.get(),
    )
}

fn cache(worker: &Worker) -> String {
    let c = worker.machine.stat_cache.counters();
    format!(
        "stat cache: {} hits, {} looked at again, {} loads, {} joined, {} invalidated, {} evicted",
        c.hits.get(),
        c.revalidated.get(),
        c.loads.get(),
        c.joined.get(),
        c.invalidated.get(),
        c.evicted.get(),
    )
}

fn ms(us: &Cell<u64>) -> u64 {
    us.get() / 1000
}
