//! A worker's report to the board, see [`lighty_core::machine::status_board`].

pub(crate) mod config_figures;
pub(crate) mod counts;
mod upstreams;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use lighty_core::machine::status_board::{
    ConnectionReport, DETAILED_CONNECTIONS_MAX, Report, ReportParts, Statistics, StatusBoard,
};
use lighty_io::clock;
use lighty_io::log_writer;
use lighty_io::threads::{panic_log, panics};
use lighty_modules::cache::CacheStores;
use lighty_modules::magnet::Accounts;
use lighty_modules::tracing::Exporters;
use lighty_proxy::upstream::registry::Registry;

use crate::listen::info::ListenerInfo;
use crate::modules::States;
use crate::report::upstreams::UpstreamFigures;
use crate::worker::Worker;
use crate::worker::conn_table::{ConnEntry, Doing, RequestSummary};

/// Creates the board of a process, with the figures that belong to no worker.
pub(crate) fn board(upstreams: &Arc<Registry>, states: &States) -> StatusBoard {
    let board = StatusBoard::default();
    board.add(Arc::new(UpstreamFigures(Arc::clone(upstreams))));
    board.add(Arc::new(Mishaps));
    board.add(Arc::new(states.of::<Accounts>("mod_magnet")));
    board.add(Arc::new(states.of::<Exporters>("mod_tracing")));
    board.add(Arc::new(states.of::<CacheStores>("mod_cache")));
    board
}

/// Counters of panics in this process, and of lines that its logs have lost.
struct Mishaps;

impl Statistics for Mishaps {
    fn collect(&self, _: &mut Vec<(String, String)>) {}

    fn count(&self, counters: &mut Vec<(String, u64)>) {
        counters.push(("server.panics".to_owned(), panic_log::count()));
        counters.push(("server.log-lines-lost".to_owned(), log_writer::lost_lines()));
    }
}

/// Returns all figures, and the requested parts of the report.
pub(crate) fn report(
    index: usize,
    worker: &Worker,
    listeners: &[Rc<ListenerInfo>],
    wanted: ReportParts,
) -> Report {
    panics::point("desk");
    let counters = &worker.machine.counters;
    let engine = worker.machine.engine.report();
    let mut report = Report {
        worker: index,
        requests: counters.requests.get(),
        bytes_in: counters.bytes_in.get(),
        bytes_out: counters.bytes_out.get(),
        pace: worker.paces.borrow().pace(),
        engine: (engine.name.to_owned(), engine.why.clone()),
        network_backend: worker.global().server.network_backend.to_string(),
        figures: figures(worker),
        cpu_us: clock::thread_cpu_us(),
        listeners: listeners.iter().map(|one| one.report()).collect(),
        old_generations: worker.old_generations(),
        traces: worker.machine.watch.traces(),
        late_us: worker.lateness.borrow().longest_us(),
        ..Report::default()
    };
    if wanted.durations {
        report.durations = worker.machine.metrics.snapshot();
        report.exemplars = worker.machine.metrics.exemplars();
        report.hosts = worker.machine.metrics.hosts();
        report.history = worker.machine.metrics.history();
    }
    if wanted.bad_messages {
        report.bad_messages = worker.machine.bad_messages.list();
    }
    count_connections(worker, &mut report, wanted.connections);
    report
}

/// Counts connections and streams, and reports them if `are_wanted`.
fn count_connections(worker: &Worker, report: &mut Report, are_wanted: bool) {
    let now_s = worker.now_s();
    let room = if are_wanted { DETAILED_CONNECTIONS_MAX } else { 0 };
    let mut streams_listed = 0;
    worker.conns.for_each(|entry| {
        let doing = entry.doing();
        report.doing[doing.state.place()] += 1;
        let mut streams = Vec::new();
        let serial = worker.conns.serial(entry);
        entry.for_each_stream(|stream, doing, summary| {
            report.streams[doing.state.place()] += 1;
            match streams_listed < room {
                true => {
                    let own = connection(entry, doing, summary, now_s);
                    streams.push(ConnectionReport { serial, stream, ..own });
                }
                false => report.unlisted += 1,
            }
            streams_listed += 1;
        });
        match report.connections.len() < room {
            true => {
                let own = connection(entry, doing, entry.summary().as_ref(), now_s);
                report.connections.push(ConnectionReport { serial, streams, ..own });
            }
            false => report.unlisted += 1,
        }
    });
}

fn connection(
    entry: &ConnEntry,
    doing: Doing,
    summary: Option<&RequestSummary>,
    now_s: u32,
) -> ConnectionReport {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ConnectionReport {
        number: entry.number(),
        serial: 0,
        stream: 0,
        doing: doing.state,
        for_s: now_s.saturating_sub(doing.since_s),
        client: entry.client().into(),
        method: summary.map_or("", |summary| summary.method),
        host: summary.map_or_else(String::new, |summary| text(&summary.host)),
        target: summary.map_or_else(String::new, |summary| text(&summary.target)),
        scheme: summary.map_or("", |summary| summary.scheme),
        protocol: summary.map_or("", |summary| summary.protocol),
        local_port: summary.map_or(0, |summary| summary.local_port),
        remote_port: summary.map_or(0, |summary| summary.remote_port),
        bytes: doing.bytes,
        streams: Vec::new(),
    }
}

fn figures(worker: &Worker) -> Vec<(String, u64)> {
    let counters = &worker.machine.counters;
    let send = worker.sender.counters();
    let engine = worker.machine.engine.counters();
    let cache = worker.machine.stat_cache.counters();
    let cell = |cell: &Cell<u64>| cell.get();
    let figures = [
        ("server.requests", counters.requests.get()),
        ("server.connections", counters.connections.get()),
        ("server.bytes-in", counters.bytes_in.get()),
        ("server.bytes-out", counters.bytes_out.get()),
        ("server.http2-connections", counters.http2_connections.get()),
        ("server.http2-faults", counters.http2_faults.get()),
        ("server.tls-handshakes", counters.tls_handshakes.get()),
        ("server.tls-resumed", counters.tls_resumed.get()),
        ("server.tls-failed", counters.tls_failed.get()),
        ("server.tls-shed", counters.tls_shed.get()),
        ("server.refused", counters.refused.get()),
        ("server.cut", counters.cut.get()),
        ("server.timed-out", counters.timed_out.get()),
        ("server.reaped", counters.reaped.get()),
        ("server.accept-pauses", counters.accept_pauses.get()),
        ("server.fields-withheld", counters.fields_withheld.get()),
        ("server.auth-forward-allowed", counters.auth_forward_allowed.get()),
        ("server.auth-forward-cached", counters.auth_forward_cached.get()),
        ("server.auth-forward-denied", counters.auth_forward_denied.get()),
        ("server.auth-forward-failed", counters.auth_forward_failed.get()),
        ("server.banned-connections", counters.banned.get()),
        ("server.login-failures", counters.login_failures.get()),
        ("server.login-bans", counters.login_bans.get()),
        ("server.login-refusals", counters.login_refusals.get()),
        ("server.auth-bearer-accepted", counters.auth_bearer_accepted.get()),
        ("server.auth-bearer-refused", counters.auth_bearer_refused.get()),
        ("server.auth-sign-ins", counters.auth_sign_ins.get()),
        ("server.auth-sign-ins-failed", counters.auth_sign_ins_failed.get()),
        ("send.async-reads", cell(&send.async_reads)),
        ("send.sync-reads", cell(&send.sync_reads)),
        ("send.bytes", cell(&send.bytes)),
        ("send.sendfile-bytes", cell(&send.sendfile_bytes)),
        ("send.read-wait-us", cell(&send.read_wait_us)),
        ("files.opens", cell(&engine.opens)),
        ("files.stats", cell(&engine.stats)),
        ("files.lookups-cached", cell(&engine.lookups_cached)),
        ("files.async-reads", cell(&engine.async_reads)),
        ("files.sync-reads", cell(&engine.sync_reads)),
        ("files.bytes", cell(&engine.bytes)),
        ("files.open-wait-us", cell(&engine.open_wait_us)),
        ("files.stat-wait-us", cell(&engine.stat_wait_us)),
        ("files.read-wait-us", cell(&engine.read_wait_us)),
        ("files.urgent", cell(&engine.urgent)),
        ("files.urgent-us", cell(&engine.urgent_us)),
        ("files.bulk-reads", cell(&engine.bulk)),
        ("files.bulk-wait-us", cell(&engine.bulk_wait_us)),
        ("files.bulk-overdue", cell(&engine.bulk_overdue)),
        ("files.bulk-abandoned", cell(&engine.bulk_abandoned)),
        ("files.turns-expired", cell(&engine.turns_expired)),
        ("files.bulk-waiting", cell(&engine.bulk_waiting)),
        ("stat-cache.hits", cell(&cache.hits)),
        ("stat-cache.revalidated", cell(&cache.revalidated)),
        ("stat-cache.loads", cell(&cache.loads)),
        ("stat-cache.joined", cell(&cache.joined)),
        ("stat-cache.invalidated", cell(&cache.invalidated)),
        ("stat-cache.evicted", cell(&cache.evicted)),
    ];
    figures.map(|(name, value)| (name.to_owned(), value)).into()
}
