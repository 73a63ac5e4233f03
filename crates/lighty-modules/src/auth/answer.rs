//! Answers: the user's name for the request, or a challenge.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "identity")]
use lighty_core::FaultReport;
use lighty_core::exchange::span::Span;
use lighty_core::exchange::verified_identity::VerifiedIdentity;
use lighty_core::module::Step;
use lighty_core::{Exchange, Fault, Level};
use lighty_http::Known;

use super::digest;
use super::nonce::Nonces;
use super::require::Rule;
use super::settings::AuthSettings;

/// Delay of the response to wrong credentials.
const DELAY: Duration = Duration::from_secs(1);

pub(super) fn grant(
    ex: &mut Exchange,
    rule: &Rule,
    name: &[u8],
    scheme: &'static str,
) -> Step<'static> {
    if ex.settings.module::<AuthSettings>().debug {
        ex.log(Level::Notice, &format!("auth.debug: user {} by {scheme}", shown(name)));
    }
    ex.ext_mut::<VerifiedIdentity>().verify();
    ex.request.remote_user.clear();
    ex.request.remote_user.extend_from_slice(name);
    ex.request.auth_realm = Some(Arc::clone(&rule.realm));
    ex.environment.set(b"REMOTE_USER", name);
    ex.environment.set(b"AUTH_TYPE", scheme.as_bytes());
    Step::Next
}

/// Sends a 401 with a challenge for each accepted scheme, best first.
pub(super) fn challenge(
    ex: &mut Exchange,
    rule: &Rule,
    nonces: &Nonces,
    fault: Fault,
    message: &str,
    is_stale: bool,
) {
    if ex.settings.module::<AuthSettings>().debug {
        let message = if message.is_empty() { "no credentials" } else { message };
        ex.log(Level::Notice, &format!("auth.debug: 401: {message}"));
    }
    ex.fail_saying(fault, message);
    offer_passwords(ex, rule, nonces, is_stale);
    if rule.bearer {
        let text = format!("Bearer realm={}", digest::quote(&rule.realm));
        ex.response.fields.push_known(Known::WwwAuthenticate, text);
    }
}

/// Sends a 401 about a token (RFC 6750 section 3), with the fault that the report names.
#[cfg(feature = "identity")]
pub(super) fn refuse_token(ex: &mut Exchange, rule: &Rule, report: &FaultReport) {
    refuse_bearer(ex, rule, report, "invalid_token");
}

/// Sends a 403: the token is good, and its user is not a required one.
#[cfg(feature = "identity")]
pub(super) fn refuse_scope(ex: &mut Exchange, rule: &Rule, message: String) {
    refuse_bearer(ex, rule, &FaultReport::new(Fault::TokenScope, message), "insufficient_scope");
}

#[cfg(feature = "identity")]
fn refuse_bearer(ex: &mut Exchange, rule: &Rule, report: &FaultReport, error: &str) {
    if ex.settings.module::<AuthSettings>().debug {
        ex.log(Level::Notice, &format!("auth.debug: {error}: {}", report.detail));
    }
    ex.fail_reporting(report);
    let realm = digest::quote(&rule.realm);
    let text = format!("Bearer realm={realm}, error=\"{error}\"");
    ex.response.fields.push_known(Known::WwwAuthenticate, text);
}

fn offer_passwords(ex: &mut Exchange, rule: &Rule, nonces: &Nonces, is_stale: bool) {
    let realm = digest::quote(&rule.realm);
    for algorithm in &rule.algorithms {
        let now_s = ex.machine.clock.steady_unix_s();
        let nonce = nonces.make(&rule.nonce_secret, &rule.realm, now_s);
        let opaque = nonces.opaque(&rule.nonce_secret, &rule.realm);
        let mut text = format!(
            "Digest realm={realm}, nonce=\"{nonce}\", opaque=\"{opaque}\", algorithm={}, \
             qop=\"auth\", charset=UTF-8",
            algorithm.name()
        );
        if rule.userhash {
            text.push_str(", userhash=true");
        }
        if is_stale {
            text.push_str(", stale=true");
        }
        ex.response.fields.push_known(Known::WwwAuthenticate, text);
    }
    if rule.basic {
        let text = format!("Basic realm={realm}, charset=\"UTF-8\"");
        ex.response.fields.push_known(Known::WwwAuthenticate, text);
    }
}

/// Formats a user name for the log.
pub(super) fn shown(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}

/// Waits [`DELAY`], unless the client disconnects first.
pub(super) async fn delay(ex: &mut Exchange) {
    let span = ex.begin_span(Span::Delay);
    tokio::select! {
        biased;
        () = tokio::time::sleep(DELAY) => {}
        _ = ex.client_gone() => {}
    }
    ex.begin_span(span);
}
