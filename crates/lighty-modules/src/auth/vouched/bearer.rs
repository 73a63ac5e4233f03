//! Requests with tokens: verified, admitted, or refused as in RFC 6750.

use std::rc::Rc;
use std::sync::Arc;

use lighty_core::module::Step;
use lighty_core::{Exchange, Fault, FaultReport, Settings};
use lighty_http::Status;
use lighty_identity::claims::Claims;
use lighty_identity::key_source::KeySource;
use lighty_identity::token::{TokenError, VerifiedToken};

use super::attested::{self, AttestedUser, Conclusion, proceed};
use super::clock::now;
use super::settings::VouchedSettings;
use crate::auth::answer::{grant, refuse_scope, refuse_token, shown};
use crate::auth::credentials_error::CredentialsError;
use crate::auth::require::Rule;
use crate::auth::settings::AuthSettings;
use crate::auth::{Auth, broken, failures};

/// Value of AUTH_TYPE, and the scheme in challenges.
const SCHEME: &str = "Bearer";

/// Claim with the groups of a user, for `group=`.
const GROUPS: &str = "groups";

/// A token of a request, and the rule for it.
struct Bearer {
    settings: Rc<Settings>,
    rule: Arc<Rule>,
    token: Arc<[u8]>,
    keys: Arc<KeySource>,
}

impl Bearer {
    fn own(&self) -> &AuthSettings {
        self.settings.module()
    }

    fn vouched(&self) -> &VouchedSettings {
        self.settings.module()
    }
}

/// A request's claim to be that of a token's user.
pub(in crate::auth) enum BearerClaim {
    /// The rule has admitted the request already.
    Admitted,
    /// The request for the page of a refusal.
    Refused(Status),
    Token(Arc<[u8]>),
    Malformed(CredentialsError),
}

/// The request's claim; `None` if it has no token.
pub(super) fn claim(
    ex: &Exchange,
    settings: &Rc<Settings>,
    rule: &Arc<Rule>,
) -> Option<BearerClaim> {
    let own = settings.module::<VouchedSettings>();
    ex.rehearse_step(|| format!("auth.require {:?}: {}", rule.prefix, own.describe()));
    let user = ex.ext::<AttestedUser>();
    if user.is_some_and(|user| user.has_admitted(settings, rule)) {
        return Some(BearerClaim::Admitted);
    }
    if ex.state.error_status.is_some()
        && let Some(status) = user.and_then(|user| user.refused)
    {
        return Some(BearerClaim::Refused(status));
    }
    // The client's token has left the request. One that is there now is meant for a backend.
    if let Some(token) = user.and_then(|user| user.token.clone()) {
        return Some(BearerClaim::Token(token));
    }
    match own.source.find(&ex.request.fields) {
        Ok(token) => token.map(|token| BearerClaim::Token(token.into())),
        Err(error) => Some(BearerClaim::Malformed(error)),
    }
}

/// Decides about a claim.
pub(super) fn check<'a>(
    auth: &'a Auth,
    ex: &'a mut Exchange,
    settings: Rc<Settings>,
    rule: Arc<Rule>,
    claim: BearerClaim,
) -> Step<'a> {
    let token = match claim {
        BearerClaim::Token(token) => token,
        BearerClaim::Admitted => return Step::Next,
        BearerClaim::Refused(status) => {
            ex.fail_status(status);
            return Step::Answered;
        }
        BearerClaim::Malformed(error) => {
            ex.fail_saying(Fault::AuthMalformed, &error.to_string());
            return Step::Answered;
        }
    };
    let own = settings.module::<VouchedSettings>();
    let Some(keys) = own.keys().cloned() else {
        ex.fail_reporting(&broken("auth.backend.jwt.jwks is not set"));
        return Step::Answered;
    };
    if keys.keys().is_none() && ex.rehearse_step(|| "shown as if the token is good".to_owned()) {
        return Step::Next;
    }
    let known = keys.find(&token, &own.policy, now(ex));
    let bearer = Bearer { settings, rule, token, keys };
    match known {
        Ok(Some(verified)) if !needs_group_file(&bearer) => {
            let is_admitted = admits(&bearer, verified.claims(), false);
            match conclude(ex, &bearer, &verified, is_admitted) {
                Conclusion::Admitted => Step::Next,
                Conclusion::OtherSettings => Step::Wait(Box::pin(proceed(ex))),
                Conclusion::Refused => Step::Answered,
            }
        }
        _ => Step::Wait(Box::pin(examine(auth, ex, bearer))),
    }
}

fn needs_group_file(bearer: &Bearer) -> bool {
    bearer.rule.needs_groups() && !bearer.own().plain_groups.is_empty()
}

/// The user's name, if the token has one.
fn name<'t>(bearer: &Bearer, claims: &'t Claims) -> Option<&'t str> {
    let name = claims.text(&bearer.vouched().user_claim)?;
    (!name.is_empty() && !name.chars().any(char::is_control)).then_some(name)
}

fn admits(bearer: &Bearer, claims: &Claims, is_in_group: bool) -> bool {
    let name = name(bearer, claims).unwrap_or_default();
    is_in_group
        || bearer.rule.admits_attested(
            name.as_bytes(),
            &|group| claims.has(GROUPS, group),
            &|claim, value| claims.has(claim, value),
        )
}

/// Verifies the token where it may wait: for keys, or for a file of groups.
async fn examine(auth: &Auth, ex: &mut Exchange, bearer: Bearer) -> Step<'static> {
    if failures::refuse(ex, bearer.own().failures, &auth.cache.failures) {
        return Step::Answered;
    }
    let gone = ex.client_gone();
    let verified = tokio::select! {
        biased;
        verified = bearer.keys.verify(&bearer.token, &bearer.vouched().policy, now(ex)) => verified,
        fault = gone => {
            ex.fail(fault);
            return Step::Answered;
        }
    };
    let verified = match verified {
        Ok(verified) => verified,
        Err(error) => return refuse(auth, ex, &bearer, error),
    };
    let mut is_in_group = false;
    if needs_group_file(&bearer) {
        let name = name(&bearer, verified.claims()).unwrap_or_default().as_bytes();
        is_in_group = match auth.admits(ex, bearer.own(), &bearer.rule, name).await {
            Ok(admits) => admits,
            Err(report) => {
                ex.fail_reporting(&report);
                return Step::Answered;
            }
        };
    }
    let is_admitted = admits(&bearer, verified.claims(), is_in_group);
    match conclude(ex, &bearer, &verified, is_admitted) {
        Conclusion::Admitted => Step::Next,
        Conclusion::OtherSettings => proceed(ex).await,
        Conclusion::Refused => Step::Answered,
    }
}

/// Admits the request with a verified token, or refuses it.
fn conclude(
    ex: &mut Exchange,
    bearer: &Bearer,
    verified: &VerifiedToken,
    is_admitted: bool,
) -> Conclusion {
    let claims = verified.claims();
    let Some(name) = name(bearer, claims) else {
        let text = format!("the token has no text {:?}", bearer.vouched().user_claim);
        ex.machine.counters.auth_bearer_refused.add(1);
        refuse_token(ex, &bearer.rule, &FaultReport::new(Fault::BadCredentials, text));
        note_refusal(ex);
        return Conclusion::Refused;
    };
    if !is_admitted {
        let text = format!("user {} is not among those required", shown(name.as_bytes()));
        ex.machine.counters.auth_bearer_refused.add(1);
        refuse_scope(ex, &bearer.rule, text);
        note_refusal(ex);
        return Conclusion::Refused;
    }
    ex.machine.counters.auth_bearer_accepted.add(1);
    let own = bearer.vouched();
    let has_left = ex.ext::<AttestedUser>().is_some_and(|user| user.token.is_some());
    if !own.forwards_token && !has_left {
        own.source.remove(&mut ex.request.fields);
    }
    grant(ex, &bearer.rule, name.as_bytes(), SCHEME);
    // Rules about passwords of this realm verify their own users.
    ex.request.auth_realm = None;
    let token = Some(Arc::clone(&bearer.token));
    match attested::adopt(ex, &bearer.rule, token, claims, &own.fields) {
        true => Conclusion::OtherSettings,
        false => Conclusion::Admitted,
    }
}

fn refuse(auth: &Auth, ex: &mut Exchange, bearer: &Bearer, error: TokenError) -> Step<'static> {
    ex.machine.counters.auth_bearer_refused.add(1);
    let text = match error {
        TokenError::NoKeys => {
            // The thread that fetches them has logged the reason.
            ex.fail_hushed(&FaultReport::new(Fault::TokenKeys, bearer.keys.name()));
            note_refusal(ex);
            return Step::Answered;
        }
        error => format!("token: {error}"),
    };
    if ex.state.rehearsal.is_none() && is_forged(error) {
        failures::note(ex, bearer.own().failures, &auth.cache.failures);
    }
    let fault = match error {
        TokenError::Expired => Fault::NotAuthenticated,
        _ => Fault::BadCredentials,
    };
    refuse_token(ex, &bearer.rule, &FaultReport::new(fault, text));
    note_refusal(ex);
    Step::Answered
}

fn note_refusal(ex: &mut Exchange) {
    let status = ex.response.status;
    ex.ext_mut::<AttestedUser>().refused = Some(status);
}

/// True if no issuer has made the token for this server. Tokens that were good once are not counted
/// as guesses, and neither are tokens of keys that may only be unknown here.
fn is_forged(error: TokenError) -> bool {
    !matches!(
        error,
        TokenError::Expired | TokenError::Early(_) | TokenError::UnknownKey | TokenError::NoKeys
    )
}
