//! Users that others vouch for, in a build without them: there are none.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Config, Directive};
use lighty_core::module::Step;
use lighty_core::{Exchange, Settings};

use crate::auth::require::Rule;
use crate::auth::{Auth, ProviderProbe};

/// Faults of settings; none.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenFaults {
    /// Never.
    pub lacks_keys: bool,
    /// Never.
    pub is_unbound: bool,
    /// Never.
    pub has_idle_secret: bool,
    /// Never.
    pub lacks_provider: bool,
}

/// Finds no faults.
#[must_use]
pub fn token_faults(_: &Settings) -> TokenFaults {
    TokenFaults::default()
}

/// There are no providers.
#[must_use]
pub fn provider_probes(_: &Settings) -> Vec<(String, ProviderProbe)> {
    Vec::new()
}

/// Always false.
pub(super) fn sets_fields(_: &Settings) -> bool {
    false
}

/// Returns no directives.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    Vec::new()
}

/// Reads nothing.
#[must_use]
pub fn read_key_files(_: &Config<Settings>) -> Vec<String> {
    Vec::new()
}

/// Fetches nothing.
///
/// # Errors
/// None.
pub fn fetch_keys() -> std::io::Result<()> {
    Ok(())
}

/// A request for an endpoint; there are none.
pub(super) enum EndpointRequest {}

/// There are no endpoints.
pub(super) fn find_endpoint(_: &Exchange) -> Option<EndpointRequest> {
    None
}

/// Serves nothing.
pub(super) fn serve(_: &mut Exchange, request: EndpointRequest) -> Step<'_> {
    match request {}
}

/// Always false.
pub(super) fn has_providers(_: &Settings) -> bool {
    false
}

/// Removes nothing.
pub(super) fn clean(_: &mut Exchange) {}

/// A claim that no request makes.
pub(super) enum VouchedClaim {}

/// Leaves the decision to passwords.
pub(super) fn claim(_: &Exchange, _: &Rc<Settings>, _: &Arc<Rule>) -> Option<VouchedClaim> {
    None
}

/// Decides nothing.
pub(super) fn check<'a>(
    _: &'a Auth,
    _: &'a mut Exchange,
    _: Rc<Settings>,
    _: Arc<Rule>,
    claim: VouchedClaim,
) -> Step<'a> {
    match claim {}
}
