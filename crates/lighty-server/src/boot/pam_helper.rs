//! The helper for `auth.backend = "pam"`, which needs the initial privileges.

use lighty_config::Config;
use lighty_core::Settings;
use lighty_io::process::{pam, privileges};
use lighty_modules::auth::pam_services;

use super::error::BootError;
use super::takeover::Takeover;

/// Starts the helper if the configuration uses PAM. A process that has fewer privileges than the
/// one before it goes on with that one's helper.
pub(super) fn begin(
    config: &Config<Settings>,
    takeover: Option<&mut Takeover>,
) -> Result<(), BootError> {
    let handed = takeover.and_then(Takeover::pam);
    if pam_services(config).is_empty() {
        return Ok(());
    }
    match handed.filter(|_| !privileges::is_root()) {
        Some(helper) => pam::adopt(helper),
        None => {
            let failed = |error| BootError::Step("the helper for PAM".to_owned(), error);
            pam::begin().map_err(failed)?;
        }
    }
    Ok(())
}
