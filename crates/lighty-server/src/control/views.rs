//! The bodies of the control socket's responses.

use lighty_core::log::levels::OrderedModuleLevel;
use lighty_core::machine::status_board::{Report, ReportParts};
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
    /// Seconds since the last reload, whatever its outcome; absent before the first one.
    last_reload_age_s: Option<i64>,
    /// Seconds since the configuration in use took effect.
    generation_age_s: i64,
    /// Reloads since the start, by outcome.
    reloads: u64,
    refused_reloads: u64,
    /// Earlier configurations that requests under way still use.
    old_generations: Vec<OldGenerationView>,
    sandbox: Vec<LayerView>,
    /// Level of the error log, and the seconds until it is the configured one again.
    log_level: &'static str,
    log_level_for_s: Option<i64>,
    /// Levels of single modules by order.
    log_levels: Vec<ModuleLevelView>,
    workers: Vec<WorkerView>,
    /// Workers that gave no report within a second.
    hanging_workers: Vec<usize>,
}

/// Level of a module of the error log by an order.
#[derive(Serialize)]
struct ModuleLevelView {
    module: &'static str,
    level: &'static str,
    /// Seconds until it is the configured one again.
    for_s: i64,
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
    /// Maximum number of connections.
    limit: u32,
    /// True if it was added at run time.
    added: bool,
    /// True if orders for it are kept in `server.state-dir`.
    kept: bool,
    in_use: u32,
    idle: u32,
    requests: u64,
    failed: u64,
    first_byte_us: u32,
    /// Requests that wait for a place at a backend of its upstream.
    waiting: u32,
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
    let now_s = Clock::start().unix_s();
    let (level, until_s) = server.log.level();
    let reloads = server.figures.reloads();
    Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        uptime_s: now_s - plan.shared.started_s,
        ready: not_ready.is_empty(),
        not_ready,
        closed_routes: plan.shared.states.of::<ClosedRoutes>("mod_maintenance").closed(),
        generation: plan.number,
        last_reload_succeeded: reloads.has_last_succeeded,
        last_reload_age_s: reloads.last_s.map(|last_s| now_s - last_s),
        generation_age_s: now_s - reloads.adopted_s,
        reloads: reloads.succeeded,
        refused_reloads: reloads.refused,
        old_generations: old_generations(server, &reports),
        sandbox: sandbox::layers().iter().map(layer).collect(),
        log_level: level.name(),
        log_level_for_s: until_s.map(|until_s| until_s - now_s),
        log_levels: ordered_levels(server, now_s),
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

fn ordered_levels(server: &ControlledServer, now_s: i64) -> Vec<ModuleLevelView> {
    let ordered = server.log.levels().ordered_modules().into_iter();
    ordered
        .map(|OrderedModuleLevel { module, level, until_s }| ModuleLevelView {
            module: module.name(),
            level: level.name(),
            for_s: until_s - now_s,
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
    let kept = &server.kept;
    let views = pools.into_iter().flat_map(|pool| {
        let (upstream, waiting) = (pool.name, pool.waiting);
        pool.backends.into_iter().map(move |backend| BackendView {
            limit: backend.connections_max,
            added: backend.is_added,
            kept: kept.has(&upstream, &backend.address),
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

pub(super) fn certificates(server: &ControlledServer) -> Vec<CertificateView> {
    let now_s = Clock::start().unix_s();
    let view = |(name, expires_s): (String, i64)| CertificateView {
        name,
        expires_s,
        days_left: (expires_s - now_s).div_euclid(DAY_S),
    };
    server.plan().shared.board.certificates().into_iter().map(view).collect()
}
