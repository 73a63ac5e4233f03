//! The limits per client of mod_evasive.

use std::net::IpAddr;

use lighty_io::clock::Clock;
use lighty_modules::evasive::{self, LimitReport};
use serde::{Deserialize, Serialize};

use super::fault::ControlFault;
use super::message::ControlRequest;
use super::route::read_body;
use super::{ChangeDone, ControlledServer};

/// A limit of the configuration.
#[derive(Serialize)]
pub(super) struct LimitView {
    directive: &'static str,
    condition: String,
    value: String,
    /// Number of keys, such as addresses, that it counts.
    keys: usize,
    /// Requests under way of the client that was asked for.
    requests: Option<u32>,
    /// Microseconds until this client may send another request.
    wait_us: Option<u64>,
}

/// Lists the limits; `?client=IP` adds the state of a client.
///
/// # Errors
/// The parameter is another one, or no address.
pub(super) fn list(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<Vec<LimitView>, ControlFault> {
    let mut client = None;
    for (name, value) in request.parameters() {
        match (name.as_str(), value.parse::<IpAddr>()) {
            ("client", Ok(ip)) => client = Some(ip),
            _ => return Err(ControlFault::Parameter(name)),
        }
    }
    let now_us = Clock::start().mono_us();
    let reports = evasive::limits(&server.plan().config, client, now_us);
    let view = |report: LimitReport| LimitView {
        directive: report.directive,
        condition: report.condition,
        value: report.value,
        keys: report.keys,
        requests: report.requests,
        wait_us: report.wait_us,
    };
    Ok(reports.into_iter().map(view).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearBody {
    client: IpAddr,
}

/// Forgets the rates of a client.
///
/// # Errors
/// The body is malformed.
pub(super) fn clear(
    server: &ControlledServer,
    request: &ControlRequest,
) -> Result<ChangeDone, ControlFault> {
    let ClearBody { client } = read_body(&request.body)?;
    let count = evasive::clear(&server.plan().config, client);
    Ok(ChangeDone { message: format!("{count} limits have forgotten {client}") })
}
