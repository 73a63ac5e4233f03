//! More detail in the error log for a time: its level, and traces of single requests.

use std::net::IpAddr;

use lighty_core::log::Level;
use lighty_core::log::levels::LogModule;
use lighty_core::machine::request_watch::{TRACES_MAX, TraceFilter};
use lighty_core::machine::status_board::WorkerOrder;
use lighty_io::clock::Clock;
use serde::Deserialize;

use super::fault::ControlFault;
use super::message::ControlRequest;
use super::route::read_body;
use super::{ChangeDone, ControlledServer};

/// Seconds of an order that names none.
const FOR_S_DEFAULT: u32 = 600;

/// Maximum seconds of an order.
const FOR_S_MAX: u32 = 86_400;

/// Returns the seconds of an order.
///
/// # Errors
/// They are too few or too many.
pub(super) fn seconds(for_s: Option<u32>) -> Result<i64, ControlFault> {
    let for_s = for_s.unwrap_or(FOR_S_DEFAULT);
    match (1..=FOR_S_MAX).contains(&for_s) {
        true => Ok(for_s.into()),
        false => Err(ControlFault::Seconds { max: FOR_S_MAX }),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelBody {
    /// Absent: all modules without a level of their own.
    module: Option<String>,
    /// Absent: the configured level.
    level: Option<String>,
    for_s: Option<u32>,
}

/// Changes the level of the error log, or of one of its modules, for a time.
///
/// # Errors
/// The body is malformed, or names no level or no module.
pub(super) fn log_level(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<ChangeDone, ControlFault> {
    let LevelBody { module, level, for_s } = read_body(&request.body)?;
    let for_s = seconds(for_s)?;
    let module = module.map(|name| LogModule::of_name(&name).ok_or(ControlFault::LogModule(name)));
    let module = module.transpose()?;
    let level = level.map(|name| Level::of_name(&name).ok_or(ControlFault::Level(name)));
    let level = level.transpose()?;
    let order = level.map(|level| (level, Clock::start().unix_s() + for_s));
    let (log, now) = match module {
        None => {
            server.log.order_level(order);
            ("the error log".to_owned(), server.log.level().0)
        }
        Some(module) => {
            let levels = server.log.levels();
            levels.order_module(module, order);
            (format!("module {} of the error log", module.name()), levels.of(module))
        }
    };
    let message = match level {
        None => format!("{log} has its configured level: {}", now.name()),
        Some(level) => format!("{log} has the level {} for {for_s} s", level.name()),
    };
    Ok(ChangeDone { message })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceBody {
    host: Option<String>,
    client: Option<IpAddr>,
    for_s: Option<u32>,
    /// Ends all traces.
    #[serde(default)]
    off: bool,
}

/// Logs the details of matching requests for a time.
///
/// # Errors
/// The body is malformed or names no requests, or there are too many traces.
pub(super) async fn trace(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<ChangeDone, ControlFault> {
    let TraceBody { host, client, for_s, off } = read_body(&request.body)?;
    let for_s = seconds(for_s)?;
    let board = server.plan().shared.board.clone();
    if off {
        board.order(&WorkerOrder::Trace(None)).await;
        return Ok(ChangeDone { message: "no request is traced any more".to_owned() });
    }
    let requests = match (&host, client) {
        (None, None) => {
            return Err(ControlFault::Body("a host or a client is needed".to_owned()));
        }
        (Some(host), None) => format!("for {host}"),
        (None, Some(client)) => format!("of {client}"),
        (Some(host), Some(client)) => format!("of {client} for {host}"),
    };
    let client = client.map(|client| client.to_canonical());
    let filter = TraceFilter { host, client, until_s: Clock::start().unix_s() + for_s };
    match board.order(&WorkerOrder::Trace(Some(filter))).await {
        0 => Err(ControlFault::Traces { max: TRACES_MAX }),
        _ => Ok(ChangeDone {
            message: format!("the error log has the details of requests {requests}, for {for_s} s"),
        }),
    }
}
