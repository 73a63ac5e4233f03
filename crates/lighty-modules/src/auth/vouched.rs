//! Users that others vouch for: issuers of tokens.
//!
//! Reading order: `settings` · `token_source` (tokens of requests) · `bearer` (their verdict) ·
//! `attested` and `claim_fields` (the user, and fields with claims for handlers).

mod attested;
mod bearer;
mod claim_fields;
mod settings;
mod token_source;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Config;
use lighty_core::module::Step;
use lighty_core::{Exchange, Settings};
use lighty_identity::key_source::KeySource;
use lighty_identity::remote_keys;

use crate::auth::Auth;
use crate::auth::require::Rule;
use crate::auth::settings::AuthSettings;
pub(super) use settings::directives;
use settings::{JWKS, SECRET_FILE, VouchedSettings};

/// Reads the files of keys that a configuration names. Blocks. Returns the faults.
#[must_use]
pub fn read_key_files(config: &Config<Settings>) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, make) in
        [(JWKS, KeySource::file as fn(&Path) -> KeySource), (SECRET_FILE, KeySource::secret_file)]
    {
        let given = config.assigned(name).filter_map(|given| given.value.as_str());
        for path in given.filter(|text| !text.is_empty() && !text.contains("://")) {
            let read = make(Path::new(path)).read();
            faults.extend(read.err().map(|error| format!("{name}: {error}")));
        }
    }
    faults
}

/// Starts to fetch the keys of all issuers that settings name. Call it when threads may start.
///
/// # Errors
/// A thread cannot be started.
pub fn fetch_keys() -> std::io::Result<()> {
    remote_keys::fetch_all()
}

/// Faults of settings that no single directive shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenFaults {
    /// There are no keys for tokens.
    pub lacks_keys: bool,
    /// Tokens are accepted whoever they were made for.
    pub is_unbound: bool,
    /// A secret has no effect, because there is a key set.
    pub has_idle_secret: bool,
}

/// Returns the faults of settings, if rules accept tokens.
#[must_use]
pub fn token_faults(settings: &Settings) -> TokenFaults {
    let own = settings.module::<VouchedSettings>();
    let accepts = settings.module::<AuthSettings>().rules.iter().any(|rule| rule.bearer);
    TokenFaults {
        lacks_keys: accepts && own.keys().is_none(),
        is_unbound: accepts && own.is_unbound(),
        has_idle_secret: own.has_idle_secret(),
    }
}

/// True if requests get fields with claims under these settings.
pub(super) fn sets_fields(settings: &Settings) -> bool {
    !settings.module::<VouchedSettings>().fields.is_empty()
}

/// Removes the fields that only claims may set from the client's request.
pub(super) fn clean(ex: &mut Exchange) {
    attested::clean(ex);
}

/// A request's claim to be that of a user for whom others vouch.
pub(super) type VouchedClaim = bearer::BearerClaim;

/// The request's claim; `None` if it makes none, so that other methods of the rule decide.
pub(super) fn claim(
    ex: &Exchange,
    settings: &Rc<Settings>,
    rule: &Arc<Rule>,
) -> Option<VouchedClaim> {
    if rule.bearer { bearer::claim(ex, settings, rule) } else { None }
}

/// Decides about a claim.
pub(super) fn check<'a>(
    auth: &'a Auth,
    ex: &'a mut Exchange,
    settings: Rc<Settings>,
    rule: Arc<Rule>,
    claim: VouchedClaim,
) -> Step<'a> {
    bearer::check(auth, ex, settings, rule, claim)
}
