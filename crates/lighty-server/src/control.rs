//! The control socket of a running server: JSON over HTTP/1.1 on a unix socket, for `lighty ctl`.
//!
//! The main thread serves it, so it answers while a worker hangs, and names that worker. `message`
//! reads requests and writes responses, `route` is the table of paths, `views` has the bodies of
//! responses. `connections` lists and ends connections, `bad_messages` lists malformed messages,
//! `reports` makes whole documents, `limits` and `bans` concern clients, `cache` stored responses,
//! `diagnosis` changes the error log for a time, `backends` the use of backends, and `kept` keeps
//! such orders on the disk. `drain_self` ends readiness, `maintenance` closes routes. `socket_path`
//! is the place of the socket, `client` is the other end.

mod backends;
mod bad_messages;
mod bans;
mod cache;
pub mod client;
mod connections;
mod diagnosis;
mod drain_self;
mod fault;
pub(crate) mod kept;
mod limits;
mod maintenance;
mod message;
mod reports;
mod route;
pub(crate) mod socket_path;
mod views;

#[cfg(test)]
#[allow(unreachable_pub, reason = "the fuzz crate shares this file and needs the function public")]
#[path = "../../../fuzz/src/control_request.rs"]
mod control_request;

use std::path::PathBuf;
use std::sync::Arc;

use lighty_core::log::{About, Level, Log};
use lighty_http::Status;
use lighty_io::clock::Clock;
use lighty_io::process::control::CallerProcess;
use lighty_io::process::control::access::ControlRight;
use lighty_io::process::signals::Signal;
use lighty_modules::health::Readiness;
use lighty_modules::status::StatusDocument;
use lighty_proxy::upstream::registry::Registry;
use serde::Serialize;
use tokio::sync::watch;

pub(crate) use fault::ControlFault;
use kept::KeptOrders;
pub use lighty_io::process::control::path_beside as socket_beside;
use message::ControlRequest;
pub(crate) use message::is_complete;
use route::{Change, Query, Verb};
pub use route::{ROUTES, Route};
pub use socket_path::socket_of;

use crate::reload::{Plan, Reloader};
use crate::report::config_figures::ConfigFigures;
use crate::succession::UpgradeFault;

/// Maximum bytes of a request's body in the error log.
const NOTED_BYTES_MAX: usize = 200;

/// State that requests read and change, also while a reload is under way.
pub(crate) struct ControlledServer {
    plans: watch::Receiver<Arc<Plan>>,
    upstreams: Arc<Registry>,
    kept: Arc<KeptOrders>,
    figures: Arc<ConfigFigures>,
    log: Log,
    /// Earlier configurations that requests under way use: number, and seconds since their end.
    old_generations: Vec<(u64, i64)>,
}

impl ControlledServer {
    pub(crate) fn of(reloader: &Reloader) -> Self {
        Self {
            plans: reloader.plans.subscribe(),
            upstreams: Arc::clone(&reloader.upstreams),
            kept: Arc::clone(&reloader.kept),
            figures: Arc::clone(&reloader.figures),
            log: reloader.log.clone(),
            old_generations: reloader
                .leftovers
                .old
                .iter()
                .map(|old| (old.number, old.age_s()))
                .collect(),
        }
    }

    fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plans.borrow())
    }

    fn readiness(&self) -> Readiness {
        self.plans.borrow().shared.states.of("mod_health")
    }
}

/// Work that a request asks of the main loop.
pub(crate) enum ControlWork {
    /// Send this response.
    Respond(Vec<u8>),
    /// Read the configuration again, and send the outcome.
    Reload(ReloadKind),
    /// Let a process of this program, or of the present one, take this one's place.
    Upgrade(Option<PathBuf>),
    /// Send this response, then act as at a signal.
    Signal(Vec<u8>, Signal),
}

/// Extent of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReloadKind {
    Reload,
    /// Only the differences, and the reasons for a refusal.
    DryRun,
}

/// Body of a response to a change.
#[derive(Serialize)]
struct ChangeDone {
    message: String,
}

#[derive(Serialize)]
struct Failed {
    error: String,
    /// Kind of a refused reload.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
}

/// Decides about a caller's request, and performs it unless that is work for the main loop.
pub(crate) async fn serve(
    server: &ControlledServer,
    request: &[u8],
    caller: CallerProcess,
) -> ControlWork {
    let begun = begin(server, request, caller).await;
    begun.unwrap_or_else(|fault| ControlWork::Respond(refuse(&fault)))
}

async fn begin(
    server: &ControlledServer,
    request: &[u8],
    caller: CallerProcess,
) -> Result<ControlWork, ControlFault> {
    let request = message::parse(request)?;
    let verb = route::find(&request)?;
    // A dry run runs the commands that the configuration includes.
    let is_change = matches!(verb, Verb::Change(_) | Verb::Query(Query::DryRun));
    if is_change && caller.right < ControlRight::Change {
        return Err(ControlFault::ReadOnly);
    }
    let work = match verb {
        Verb::Query(Query::DryRun) => return Ok(ControlWork::Reload(ReloadKind::DryRun)),
        Verb::Query(query) => {
            return answer(server, query, &request).await.map(ControlWork::Respond);
        }
        Verb::Change(Change::Reload) => ControlWork::Reload(ReloadKind::Reload),
        Verb::Change(Change::Upgrade) => upgrade(&request, caller)?,
        Verb::Change(Change::ReopenLogs) => {
            ControlWork::Signal(done("the logs are opened again"), Signal::ReopenLogs)
        }
        Verb::Change(Change::Stop) => stop(&request)?,
        Verb::Change(Change::DrainSelf) => {
            let message = drain_self::change(&server.readiness(), &request.body)?;
            ControlWork::Respond(done(message))
        }
        Verb::Change(Change::Maintenance) => {
            let plan = server.plan();
            let closed = plan.shared.states.of("mod_maintenance");
            let message = maintenance::change(&closed, &plan.config, &request.body)?;
            ControlWork::Respond(done(&message))
        }
        Verb::Change(Change::Kill) => made(connections::kill(server, &request).await?),
        Verb::Change(Change::LogLevel) => made(diagnosis::log_level(server, &request)?),
        Verb::Change(Change::Trace) => made(diagnosis::trace(server, &request).await?),
        Verb::Change(Change::ClearLimits) => made(limits::clear(server, &request)?),
        Verb::Change(Change::Ban) => made(bans::ban(server, &request).await?),
        Verb::Change(Change::Unban) => made(bans::unban(server, &request)?),
        Verb::Change(Change::PurgeCache) => made(cache::purge(server, &request)?),
        Verb::Change(Change::Forget) => made(backends::forget(server, &request).await?),
        Verb::Change(Change::Backend(change)) => {
            let changed = backends::change(server, change, &request.body).await?;
            ControlWork::Respond(message::response(Status::OK, &changed))
        }
    };
    note(server, &request, caller);
    Ok(work)
}

/// Writes a change into the error log, with its author.
fn note(server: &ControlledServer, request: &ControlRequest, caller: CallerProcess) {
    // A page would fill the log.
    let shown = &request.body[..request.body.len().min(NOTED_BYTES_MAX)];
    let body = String::from_utf8_lossy(shown);
    let CallerProcess { uid, pid, .. } = caller;
    let text = format!("control: {} {} by user {uid}, process {pid}", request.path, body.trim());
    server.log.line(Level::Notice, Clock::start().unix_s(), &text, About::default());
}

async fn answer(
    server: &ControlledServer,
    query: Query,
    request: &ControlRequest,
) -> Result<Vec<u8>, ControlFault> {
    Ok(match query {
        Query::Index => message::response(Status::OK, &views::index()),
        Query::Status => message::response(Status::OK, &views::status(server).await),
        Query::Backends => message::response(Status::OK, &views::backends(server)),
        Query::Connections => {
            message::response(Status::OK, &connections::list(server, request).await?)
        }
        Query::Certificates => message::response(Status::OK, &views::certificates(server)),
        // Work for the main loop.
        Query::DryRun => return Err(ControlFault::Busy),
        Query::Errors => message::response(Status::OK, &bad_messages::list(server).await),
        Query::Limits => message::response(Status::OK, &limits::list(server, request)?),
        Query::Bans => message::response(Status::OK, &bans::list(server)),
        Query::Cache => message::response(Status::OK, &cache::list(server)),
        Query::Metrics => {
            message::text(&reports::status_document(server, StatusDocument::Metrics).await?)
        }
        Query::Timings => message::response(Status::OK, &reports::timings(server, request).await?),
        Query::Top => message::json(&reports::status_document(server, StatusDocument::Json).await?),
        Query::Configuration => {
            message::response(Status::OK, &reports::configuration(server).await?)
        }
        Query::Explain => {
            message::response(Status::OK, &reports::explanation(server, request).await?)
        }
        Query::Dump => message::response(Status::OK, &reports::dump(server, request).await?),
    })
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct StopBody {
    #[serde(default)]
    now: bool,
}

fn stop(request: &ControlRequest) -> Result<ControlWork, ControlFault> {
    let body: StopBody = route::read_body(&request.body)?;
    Ok(match body.now {
        true => ControlWork::Signal(done("the server stops"), Signal::Stop),
        false => ControlWork::Signal(
            done("the server stops once the responses under way are finished"),
            Signal::GracefulStop,
        ),
    })
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct UpgradeBody {
    #[serde(default)]
    binary: Option<PathBuf>,
}

fn upgrade(request: &ControlRequest, caller: CallerProcess) -> Result<ControlWork, ControlFault> {
    let body: UpgradeBody = route::read_body(&request.body)?;
    match &body.binary {
        Some(path) if !path.is_absolute() => return Err(ControlFault::RelativeBinary),
        Some(_) if !caller.is_owner() => return Err(ControlFault::ForeignBinary),
        _ => {}
    }
    Ok(ControlWork::Upgrade(body.binary))
}

/// The response to the caller of an upgrade.
pub(crate) fn upgraded(outcome: Result<String, UpgradeFault>) -> Vec<u8> {
    match outcome {
        Ok(message) => done(&message),
        Err(why) => refuse(&ControlFault::Upgrade(why.to_string())),
    }
}

/// Reads the configuration again. Returns the response to the caller.
pub(crate) async fn reload(reloader: &mut Reloader, kind: ReloadKind) -> Vec<u8> {
    if kind == ReloadKind::DryRun {
        return message::response(Status::OK, &reloader.dry_run().await);
    }
    match reloader.reload().await {
        Ok(message) => self::done(&message),
        Err(why) => refuse(&ControlFault::Reload(why)),
    }
}

/// A response to a change that was made.
fn done(message: &str) -> Vec<u8> {
    message::response(Status::OK, &ChangeDone { message: message.to_owned() })
}

/// The response to a change that was made here.
fn made(change: ChangeDone) -> ControlWork {
    ControlWork::Respond(message::response(Status::OK, &change))
}

/// A response to a refused request.
pub(crate) fn refuse(fault: &ControlFault) -> Vec<u8> {
    message::response(fault.status(), &Failed { error: fault.to_string(), kind: fault.kind() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_fuzzer_keep_the_promises_of_the_parser() {
        lighty_testkit::fuzz::replay("control_request", control_request::control_request);
    }
}
