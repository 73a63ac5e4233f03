//! The bodies of the control socket's responses.

use lighty_core::machine::status_board::{ConnectionReport, Report, ReportParts};
use lighty_io::clock::Clock;
use lighty_io::sandbox::{self, Layer};
use lighty_modules::maintenance::ClosedRoutes;
use serde::Serialize;

use super::ControlledServer;
use super::route::ROUTES;

#[derive(Serialize)]
pub(super) struct Path {
    method: &'static str,
    path: &'static str,
    about: &'static str,
}

#[derive(Serialize)]
pub(super) struct Status {
    version: &'static str,
    pid: u32,
    uptime_s: i64,
    /// True if `health.ready-url` says 200.
    ready: bool,
    /// Reasons why it does not.
    not_ready: Vec<&'static str>,
    /// Routes that are closed for maintenance.
    closed_routes: Vec<String>,
    /// 0 for the configuration of the start; one more for each reload.
    generation: u64,
    last_reload_succeeded: bool,
    /// Earlier configurations that requests under way still use.
    old_generations: Vec<OldGenerationView>,
    sandbox: Vec<LayerView>,
    workers: Vec<WorkerView>,
    /// Workers that gave no report within a second.
    hanging_workers: Vec<usize>,
}

/// A layer of the sandbox.
#[derive(Serialize)]
struct LayerView {
    layer: &'static str,
    /// `on`, `partly` or `off`.
    state: &'static str,
    /// Its extent, or the reason why it is off.
    why: String,
}

#[derive(Serialize)]
struct OldGenerationView {
    generation: u64,
    /// Seconds since another configuration took its place.
    age_s: i64,
    /// Number of holders in all workers: requests under way, some more than once.
    holders: usize,
}

#[derive(Serialize)]
struct WorkerView {
    worker: usize,
    requests: u64,
    bytes_in: u64,
    bytes_out: u64,
    connections: u64,
    idle_connections: u64,
    /// Longest time that a task kept the event loop busy lately, in microseconds.
    late_us: u64,
}

#[derive(Serialize)]
pub(super) struct BackendView {
    upstream: String,
    backend: String,
    state: &'static str,
    why: String,
    weight: u32,
    in_use: u32,
    idle: u32,
    requests: u64,
    failed: u64,
    first_byte_us: u32,
    /// Requests that wait for a place at a backend of its upstream.
    waiting: u32,
}

#[derive(Serialize)]
pub(super) struct ConnectionView {
    worker: usize,
    connection: u32,
    client: String,
    state: &'static str,
    for_s: u32,
    protocol: &'static str,
    method: &'static str,
    host: String,
    target: String,
    bytes: u64,
}

#[derive(Serialize)]
pub(super) struct CertificateView {
    name: String,
    /// Wall-clock second of its expiry.
    expires_s: i64,
    days_left: i64,
}

const DAY_S: i64 = 24 * 60 * 60;

pub(super) fn index() -> Vec<Path> {
    let view = |route: &super::Route| Path {
        method: route.method(),
        path: route.path,
        about: route.about,
    };
    ROUTES.iter().map(view).collect()
}

pub(super) async fn status(server: &ControlledServer) -> Status {
    let plan = server.plan();
    let (reports, _) = plan.shared.board.ask(ReportParts::default()).await;
    let has_reported = |worker: &usize| reports.iter().any(|report| report.worker == *worker);
    let not_ready = server.readiness().objections();
    let workers = plan.shared.board.workers();
    let hanging_workers = workers.into_iter().filter(|worker| !has_reported(worker)).collect();
    Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        uptime_s: Clock::start().unix_s() - plan.shared.started_s,
        ready: not_ready.is_empty(),
        not_ready,
        closed_routes: plan.shared.states.of::<ClosedRoutes>("mod_maintenance").closed(),
        generation: plan.number,
        last_reload_succeeded: server.figures.has_succeeded(),
        old_generations: old_generations(server, &reports),
        sandbox: sandbox::layers().iter().map(layer).collect(),
        workers: reports.iter().filter(|one| !one.is_of_ended()).map(worker).collect(),
        hanging_workers,
    }
}

fn old_generations(server: &ControlledServer, reports: &[Report]) -> Vec<OldGenerationView> {
    let holders = |generation: u64| -> usize {
        let all = reports.iter().flat_map(|report| &report.old_generations);
        all.filter(|old| old.number == generation).map(|old| old.holders).sum()
    };
    let old = server.old_generations.iter();
    old.map(|(generation, age_s)| OldGenerationView {
        generation: *generation,
        age_s: *age_s,
        holders: holders(*generation),
    })
    .collect()
}

fn layer(layer: &Layer) -> LayerView {
    LayerView { layer: layer.name, state: layer.word(), why: layer.detail().to_owned() }
}

fn worker(report: &Report) -> WorkerView {
    WorkerView {
        worker: report.worker,
        requests: report.requests,
        bytes_in: report.bytes_in,
        bytes_out: report.bytes_out,
        connections: report.open(),
        idle_connections: report.idle(),
        late_us: report.late_us,
    }
}

pub(super) fn backends(server: &ControlledServer) -> Vec<BackendView> {
    let pools = server.plan().shared.board.pools();
    let views = pools.into_iter().flat_map(|pool| {
        let (upstream, waiting) = (pool.name, pool.waiting);
        pool.backends.into_iter().map(move |backend| BackendView {
            upstream: upstream.clone(),
            backend: backend.address,
            state: backend.state,
            why: backend.why,
            weight: backend.weight,
            in_use: backend.in_use,
            idle: backend.idle,
            requests: backend.requests,
            failed: backend.failed,
            first_byte_us: backend.first_byte_us,
            waiting,
        })
    });
    views.collect()
}

pub(super) async fn connections(server: &ControlledServer) -> Vec<ConnectionView> {
    let plan = server.plan();
    let wanted = ReportParts { connections: true, durations: false };
    let (reports, _) = plan.shared.board.ask(wanted).await;
    let mut views = Vec::new();
    for report in reports {
        let worker = report.worker;
        let rows = report.connections.into_iter().flat_map(ConnectionReport::into_rows);
        views.extend(rows.map(|row| connection(worker, row)));
    }
    views
}

fn connection(worker: usize, row: ConnectionReport) -> ConnectionView {
    ConnectionView {
        worker,
        connection: row.number,
        client: row.client.to_string(),
        state: row.doing.label(),
        for_s: row.for_s,
        protocol: row.protocol,
        method: row.method,
        host: row.host,
        target: row.target,
        bytes: row.bytes,
    }
}

pub(super) fn certificates(server: &ControlledServer) -> Vec<CertificateView> {
    let now_s = Clock::start().unix_s();
    let view = |(name, expires_s): (String, i64)| CertificateView {
        name,
        expires_s,
        days_left: (expires_s - now_s).div_euclid(DAY_S),
    };
    server.plan().shared.board.certificates().into_iter().map(view).collect()
}
