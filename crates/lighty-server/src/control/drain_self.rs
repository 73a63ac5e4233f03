//! `lighty ctl drain-self`: takes the server out of the rotation of load balancers. The readiness
//! URL says 503, and nothing else changes.

use lighty_modules::health::{Readiness, Unready};
use serde::Deserialize;

use super::fault::ControlFault;
use super::route::read_body;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainBody {
    on: bool,
}

/// Performs the change. Returns a message for the caller.
///
/// # Errors
/// The body is not `{"on": BOOL}`.
pub(super) fn change(readiness: &Readiness, body: &[u8]) -> Result<&'static str, ControlFault> {
    let DrainBody { on } = read_body(body)?;
    readiness.set(Unready::Drained, on);
    Ok(match on {
        true => "the readiness URL says 503",
        false => "the readiness URL says 200 again, unless there is another reason against it",
    })
}
