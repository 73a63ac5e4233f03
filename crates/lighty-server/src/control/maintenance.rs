//! `lighty ctl maintenance ROUTE on`: closes routes for a while, with a page.

use lighty_config::Config;
use lighty_core::Settings;
use lighty_modules::maintenance::{self, ClosedRoutes};
use serde::Deserialize;

use super::fault::ControlFault;
use super::route::read_body;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaintenanceBody {
    route: String,
    on: bool,
    /// A page in HTML.
    page: Option<String>,
}

/// Performs the change. Returns a message for the caller.
///
/// # Errors
/// The body is malformed, or the configuration names no such route.
pub(super) fn change(
    closed: &ClosedRoutes,
    config: &Config<Settings>,
    body: &[u8],
) -> Result<String, ControlFault> {
    let MaintenanceBody { route, on, page } = read_body(body)?;
    if !on {
        // A reload may have removed the route in the meantime.
        return Ok(match closed.open(&route) {
            true => format!("{route} is open again"),
            false => format!("{route} was not closed"),
        });
    }
    let known = maintenance::routes(config);
    if known.iter().all(|name| **name != *route) {
        let known = known.join(", ");
        return Err(ControlFault::NoRoute { route, known });
    }
    closed.close(&route, page);
    Ok(format!("{route} is closed: its requests get 503"))
}
