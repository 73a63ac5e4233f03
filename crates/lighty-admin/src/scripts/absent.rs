//! `scripts` of a build without Lua.

use std::convert::Infallible;
use std::path::Path;

/// Returns `Ok`: configurations that name scripts have been refused.
pub(crate) fn check(_: &Path) -> Result<(), Infallible> {
    Ok(())
}
