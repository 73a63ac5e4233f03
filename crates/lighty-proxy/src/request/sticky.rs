//! The cookie by which a client stays with its backend.

use lighty_core::Exchange;
use lighty_http::Known;
use lighty_http::fields::trim;

use crate::upstream::address::Address;
use crate::upstream::balance;
use crate::upstream::spec::BalancerSpec;

/// Returns the name's hash of the backend in the client's cookie.
pub(crate) fn named(ex: &Exchange, spec: &BalancerSpec) -> Option<u64> {
    let cookie = spec.cookie.as_ref()?;
    let pairs = ex.request.fields.get_all(Known::Cookie).flat_map(|v| v.split(|b| *b == b';'));
    pairs
        .filter_map(|pair| pair.iter().position(|b| *b == b'=').map(|at| pair.split_at(at)))
        .find(|(name, _)| trim(name) == cookie.as_bytes())
        .and_then(|(_, value)| balance::parse_cookie_value(trim(&value[1..])))
}

/// Sets the cookie with the client's backend, unless the client has it already.
pub(crate) fn set_cookie(ex: &mut Exchange, spec: &BalancerSpec, chosen: &Address) {
    let Some(cookie) = &spec.cookie else { return };
    if named(ex, spec) == Some(chosen.name_hash) {
        return;
    }
    let value = balance::cookie_value(chosen.name_hash);
    let secure = if ex.request.scheme == "https" { "; Secure" } else { "" };
    let line = format!("{cookie}={value}; Path=/; HttpOnly; SameSite=Lax{secure}");
    ex.response.fields.push_known(Known::SetCookie, line);
}
