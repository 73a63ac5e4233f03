//! Sign-ins: the redirection to a provider, and the browser's return with a code.

use std::rc::Rc;
use std::sync::Arc;

use lighty_core::module::Step;
use lighty_core::{Exchange, Fault, Settings};
use lighty_http::Fields;
use lighty_identity::local_target::is_local;
use lighty_identity::provider_spec::ProviderError;
use lighty_identity::session::{PendingSignIn, SIGN_IN_S, Session};
use lighty_identity::token::TokenError;

use super::cookies::CookieJar;
use super::responses::{origin, parameter, redirect, redirect_uri, refuse};
use super::settings::SignInProvider;
use crate::auth::broken;
use crate::auth::vouched::clock::now;

/// Redirects a browser to the provider. It returns to `target`, or to the requested URL.
pub(super) async fn begin(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    provider: Arc<SignInProvider>,
    target: Option<String>,
) -> Step<'static> {
    let target = target.unwrap_or_else(|| String::from_utf8_lossy(&ex.request.target_raw).into());
    let target = if is_local(target.as_bytes()) { target } else { "/".to_owned() };
    let gone = ex.client_gone();
    let endpoints = tokio::select! {
        biased;
        endpoints = provider.provider.endpoints(now(ex).mono_ms) => endpoints,
        fault = gone => {
            ex.fail(fault);
            return Step::Answered;
        }
    };
    let endpoints = match endpoints {
        Ok(endpoints) => endpoints,
        Err(error) => return fail(ex, &provider, &error, &Fields::default()),
    };
    let begun = PendingSignIn::begin(&target, ex.machine.clock.unix_s()).and_then(|pending| {
        let cookies = CookieJar::of(ex, &settings, &provider)?.set_sign_in(&pending)?;
        Ok((pending, cookies))
    });
    match begun {
        Ok((pending, cookies)) => {
            let back = redirect_uri(ex, &settings, &provider);
            let url = endpoints.sign_in_url(&pending, provider.provider.spec(), &back);
            redirect(ex, &url, &cookies)
        }
        Err(error) => {
            ex.fail_reporting(&broken(error.to_string()));
            Step::Answered
        }
    }
}

/// Completes a sign-in: the provider has led the browser back.
pub(super) async fn complete(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    provider: Arc<SignInProvider>,
) -> Step<'static> {
    let jar = match CookieJar::of(ex, &settings, &provider) {
        Ok(jar) => jar,
        Err(error) => {
            ex.fail_reporting(&broken(error.to_string()));
            return Step::Answered;
        }
    };
    let none = Fields::default();
    let query = ex.request.query().to_vec();
    let now = now(ex);
    let pending = parameter(&query, "state").and_then(|state| jar.sign_in(&state));
    let Some(pending) = pending else {
        return refuse(ex, Fault::SignInState, "no cookie of it", &none);
    };
    let mut cookies = Fields::default();
    jar.clear_sign_in(&mut cookies, &pending.state);
    if !pending.is_current(now.unix_s) {
        return refuse(ex, Fault::SignInState, "it has taken too long", &cookies);
    }
    if !provider.provider.used.add(&pending.state, now.unix_s, now.unix_s + SIGN_IN_S) {
        return refuse(ex, Fault::SignInState, "it has been completed already", &cookies);
    }
    // RFC 9207: the response of another provider.
    let issuer = &provider.provider.spec().issuer;
    if parameter(&query, "iss").is_some_and(|given| !issuer.is_empty() && given != *issuer) {
        return refuse(ex, Fault::SignInState, "another provider responds", &cookies);
    }
    if let Some(error) = parameter(&query, "error") {
        let error: String = error.chars().filter(char::is_ascii_graphic).take(64).collect();
        return refuse(ex, Fault::SignInDenied, &format!("the provider says {error}"), &cookies);
    }
    let Some(code) = parameter(&query, "code").filter(|code| !code.is_empty()) else {
        return refuse(ex, Fault::SignInState, "there is no code", &cookies);
    };
    let back = redirect_uri(ex, &settings, &provider);
    let gone = ex.client_gone();
    let session = tokio::select! {
        biased;
        session = provider.provider.redeem(&pending, &code, &back, now) => session,
        fault = gone => {
            ex.fail(fault);
            return Step::Answered;
        }
    };
    match session {
        Ok(session) => finish(ex, &jar, &pending, session, cookies),
        Err(error) => fail(ex, &provider, &error, &cookies),
    }
}

/// Starts the session of the user that the provider names.
fn finish(
    ex: &mut Exchange,
    jar: &CookieJar,
    pending: &PendingSignIn,
    mut session: Session,
    mut cookies: Fields,
) -> Step<'static> {
    let provider = jar.provider();
    let user = session.claims.field_value(&provider.user_claim).filter(|user| !user.is_empty());
    let Some(user) = user else {
        let detail = format!("the provider names no {:?}", provider.user_claim);
        return refuse(ex, Fault::SignInDenied, &detail, &cookies);
    };
    session.user = user;
    session.ends_s = session.began_s + provider.session_s;
    session.claims.remove_protocol();
    match jar.set_session(&session) {
        Ok(own) => cookies.append(&own),
        Err(error) => {
            return refuse(ex, Fault::SignInProvider, &error.to_string(), &cookies);
        }
    }
    ex.machine.counters.auth_sign_ins.add(1);
    let location = format!("{}{}", origin(ex), pending.target);
    redirect(ex, &location, &cookies)
}

/// Responds to a failure of the provider.
fn fail(
    ex: &mut Exchange,
    provider: &SignInProvider,
    error: &ProviderError,
    cookies: &Fields,
) -> Step<'static> {
    let fault = match error {
        ProviderError::Token(TokenError::NoKeys) => Fault::SignInProvider,
        ProviderError::Token(_) => Fault::SignInDenied,
        ProviderError::OtherSignIn | ProviderError::Refused(_) => Fault::SignInState,
        _ => Fault::SignInProvider,
    };
    refuse(ex, fault, &format!("{}: {error}", provider.name()), cookies)
}
