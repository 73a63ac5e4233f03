//! Users that others vouch for: issuers of tokens, and providers that sign users in.
//!
//! Reading order: `settings` · `token_source` (tokens of requests) · `bearer` (their verdict) ·
//! `attested` and `claim_fields` (the user, and fields with claims for handlers) ·
//! `oidc`.

mod attested;
mod bearer;
mod claim_fields;
mod clock;
mod oidc;
mod settings;
mod token_source;

use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_config::{Config, Directive, Need, NeedKind};
use lighty_core::exchange::verified_identity::VerifiedIdentity;
use lighty_core::module::Step;
use lighty_core::{Exchange, Settings};
use lighty_http::Known;
use lighty_identity::ended_file::EndedFile;
use lighty_identity::key_source::KeySource;
use lighty_identity::provider::{check_authorities, secret_file, start_all};
use lighty_identity::remote_keys;

use crate::auth::require::Rule;
use crate::auth::settings::AuthSettings;
use crate::auth::{Auth, ProviderProbe};
use claim_fields::ClaimFieldLists;
use oidc::OidcSettings;
use settings::{CA_FILE, JWKS, SECRET_FILE, VouchedSettings};

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
    for given in config.assigned(oidc::PROVIDERS) {
        let need = Need { key: "client-secret-file", kind: NeedKind::Read };
        for path in need.texts(&given.value) {
            let read = secret_file(Path::new(path)).read();
            faults.extend(read.err().map(|error| format!("{}: {error}", oidc::PROVIDERS)));
        }
    }
    faults.extend(authority_faults(config));
    announce_issuers(config);
    let key_files = config.assigned(oidc::KEY_FILE).filter_map(|given| given.value.as_str());
    for path in key_files.filter(|path| !path.is_empty()) {
        let read = oidc::key_file(path).read();
        faults.extend(read.err().map(|error| format!("{}: {error}", oidc::KEY_FILE)));
    }
    let ended_files = config.assigned(oidc::ENDED_FILE).filter_map(|given| given.value.as_str());
    for path in ended_files.filter(|path| !path.is_empty()) {
        let file = EndedFile::at(Path::new(path));
        let read = file.check_directory().and_then(|()| file.read());
        faults.extend(read.err().map(|error| format!("{}: {error}", oidc::ENDED_FILE)));
    }
    faults
}

/// Has the keys of issuers in conditions fetched from the start, and not first when a request meets
/// the condition. Where authorities are configured, the condition decides which ones.
fn announce_issuers(config: &Config<Settings>) {
    static ANNOUNCED: Mutex<Vec<KeySource>> = Mutex::new(Vec::new());
    let mut announced = Vec::new();
    if config.assigned(CA_FILE).next().is_none() {
        let given = config.assigned(JWKS).filter_map(|given| given.value.as_str());
        let urls = given.filter(|text| text.contains("://"));
        announced.extend(urls.filter_map(|url| KeySource::url(url, None).ok()));
    }
    *ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner) = announced;
}

/// Faults of the files with authorities that vouch for issuers and providers. Blocks.
fn authority_faults(config: &Config<Settings>) -> Vec<String> {
    let mut faults = Vec::new();
    for (directive, key) in [(CA_FILE, ""), (oidc::PROVIDERS, "ca-file")] {
        let need = Need { key, kind: NeedKind::Read };
        for given in config.assigned(directive) {
            for path in need.texts(&given.value).into_iter().filter(|path| !path.is_empty()) {
                let read = check_authorities(Path::new(path));
                faults.extend(read.err().map(|error| format!("{directive}: {error}")));
            }
        }
    }
    faults
}

/// All rows.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    let mut rows = settings::directives();
    rows.extend(oidc::directives());
    rows
}

pub(super) use oidc::EndpointRequest;

/// The endpoint of a sign-in that the request is for.
pub(super) fn find_endpoint(ex: &Exchange) -> Option<EndpointRequest> {
    oidc::find_endpoint(ex)
}

/// Responds to a request for an endpoint.
pub(super) fn serve(ex: &mut Exchange, request: EndpointRequest) -> Step<'_> {
    oidc::serve(ex, request)
}

/// True if providers sign users in under these settings.
pub(super) fn has_providers(settings: &Settings) -> bool {
    !settings.module::<OidcSettings>().providers.is_empty()
}

/// Starts to fetch the keys of all issuers that settings name, and the threads of providers. Call
/// it when threads may start.
///
/// # Errors
/// A thread cannot be started.
pub fn fetch_keys() -> std::io::Result<()> {
    remote_keys::fetch_all()?;
    start_all()
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
    /// A rule signs users in at a provider that is not configured.
    pub lacks_provider: bool,
}

/// Returns the faults of settings, if rules accept tokens.
#[must_use]
pub fn token_faults(settings: &Settings) -> TokenFaults {
    let own = settings.module::<VouchedSettings>();
    let rules = &settings.module::<AuthSettings>().rules;
    let accepts = rules.iter().any(|rule| rule.bearer);
    let providers = settings.module::<OidcSettings>();
    let lacks = |rule: &Arc<Rule>| providers.provider(rule.provider.as_deref()).is_none();
    TokenFaults {
        lacks_keys: accepts && own.keys().is_none(),
        is_unbound: accepts && own.is_unbound(),
        has_idle_secret: own.has_idle_secret(),
        lacks_provider: rules.iter().any(|rule| rule.oidc && lacks(rule)),
    }
}

/// Returns the providers of settings by name, with their probes.
#[must_use]
pub fn provider_probes(settings: &Settings) -> Vec<(String, ProviderProbe)> {
    settings.module::<OidcSettings>().probes()
}

/// True if requests get fields with claims under these settings.
pub(super) fn sets_fields(settings: &Settings) -> bool {
    settings.module::<ClaimFieldLists>().iter().next().is_some() || has_providers(settings)
}

/// Removes the fields that only claims may set, and cookies of sessions, from the client's request.
pub(super) fn clean(ex: &mut Exchange) {
    let has_keys = ex.settings.module::<VouchedSettings>().keys().is_some();
    if has_keys || has_providers(&ex.settings) {
        // The response shares this with subrequests' responses.
        ex.ext_mut::<VerifiedIdentity>();
    }
    oidc::take_cookies(ex);
    attested::clean(ex);
}

/// A request's claim to be that of a user, with a token or a session.
pub(super) enum VouchedClaim {
    Bearer(bearer::BearerClaim),
    Oidc(oidc::OidcClaim),
}

/// The request's claim; `None` if it makes none, so that other methods of the rule decide.
pub(super) fn claim(
    ex: &Exchange,
    settings: &Rc<Settings>,
    rule: &Arc<Rule>,
) -> Option<VouchedClaim> {
    let bearer = if rule.bearer { bearer::claim(ex, settings, rule) } else { None };
    if let Some(claim) = bearer {
        return Some(VouchedClaim::Bearer(claim));
    }
    // Credentials of other methods decide before the absence of a session.
    let has_others = rule.basic || !rule.algorithms.is_empty();
    if !rule.oidc || has_others && ex.request.fields.contains(Known::Authorization) {
        return None;
    }
    oidc::claim(ex, settings, rule).map(VouchedClaim::Oidc)
}

/// Decides about a claim.
pub(super) fn check<'a>(
    auth: &'a Auth,
    ex: &'a mut Exchange,
    settings: Rc<Settings>,
    rule: Arc<Rule>,
    claim: VouchedClaim,
) -> Step<'a> {
    match claim {
        VouchedClaim::Bearer(claim) => bearer::check(auth, ex, settings, rule, claim),
        VouchedClaim::Oidc(claim) => oidc::check(ex, settings, rule, claim),
    }
}
