//! `lighty cert`: certificates that the server obtains by itself.

use std::io::Write as _;

use lighty_admin::certificates::{self, Reason};
use lighty_config::Config;
use lighty_core::Settings;

use crate::cli::Cert;
use crate::failure::CommandFailure;

/// Shows certificates, or has them renewed or revoked.
pub(crate) fn run(config: &Config<Settings>, what: &Cert) -> Result<(), CommandFailure> {
    let output = match what {
        Cert::List => certificates::list(config).map_err(CommandFailure::of)?,
        Cert::Show { name } => certificates::show(config, name).map_err(CommandFailure::of)?,
        Cert::Renew { names } => {
            let renewed = names.iter().map(|name| Ok(certificates::renew(config, name)? + "\n"));
            renewed
                .collect::<Result<_, certificates::CertificateError>>()
                .map_err(CommandFailure::of)?
        }
        Cert::Revoke { name, reason } => {
            let reason = Reason::parse(reason).unwrap_or_default();
            certificates::revoke(config, name, reason).map_err(CommandFailure::of)? + "\n"
        }
        Cert::Rollover => certificates::roll_over(config).map_err(CommandFailure::of)?,
    };
    std::io::stdout().write_all(output.as_bytes())?;
    Ok(())
}
