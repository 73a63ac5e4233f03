//! Requests under a rule: with a session, or without one.

use std::rc::Rc;
use std::sync::Arc;

use lighty_core::exchange::verified_identity::VerifiedIdentity;
use lighty_core::module::Step;
use lighty_core::{Exchange, Fault, Level, Settings};
use lighty_http::Status;
use lighty_http::navigation::is_navigation;
use lighty_identity::ended_file::EndedFile;
use lighty_identity::provider::SessionEnd;
use lighty_identity::session::Session;
use lighty_identity::sign_in::Refreshed;

use super::cookies::CookieJar;
use super::settings::{OidcSettings, SignInProvider};
use super::sign_in;
use super::sign_out::end_sessions;
use crate::auth::answer::{grant, shown};
use crate::auth::broken;
use crate::auth::require::Rule;
use crate::auth::vouched::attested::{self, AttestedUser, Conclusion, proceed};
use crate::auth::vouched::clock::now;

/// Value of AUTH_TYPE.
const SCHEME: &str = "OpenID";

/// A request's claim to be that of a signed-in user.
pub(in crate::auth) enum OidcClaim {
    /// The rule has admitted the request already.
    Admitted,
    /// The request for the page of a refusal.
    Refused(Status),
    Session(Arc<Session>, Arc<SignInProvider>),
    /// A browser without a session.
    SignIn(Arc<SignInProvider>),
    /// There is no such provider, or there are no keys for cookies.
    Broken(String),
}

/// The request's claim; `None` if it has no session and is no navigation.
pub(in crate::auth::vouched) fn claim(
    ex: &Exchange,
    settings: &Rc<Settings>,
    rule: &Arc<Rule>,
) -> Option<OidcClaim> {
    let user = ex.ext::<AttestedUser>();
    if user.is_some_and(|user| user.has_admitted(settings, rule)) {
        return Some(OidcClaim::Admitted);
    }
    if ex.state.error_status.is_some()
        && let Some(status) = user.and_then(|user| user.refused)
    {
        return Some(OidcClaim::Refused(status));
    }
    let own = settings.module::<OidcSettings>();
    let Some(provider) = own.provider(rule.provider.as_deref()) else {
        let name = rule.provider.as_deref().unwrap_or_default();
        return Some(OidcClaim::Broken(format!("auth.backend.oidc has no provider \"{name}\"")));
    };
    ex.rehearse_step(|| {
        format!("auth.require {:?}: {:?} signs users in", rule.prefix, provider.name())
    });
    let jar = match CookieJar::of(ex, settings, provider) {
        Ok(jar) => jar,
        Err(error) => {
            return Some(OidcClaim::Broken(format!("auth.backend.oidc.key-file: {error}")));
        }
    };
    let now_s = ex.machine.clock.unix_s();
    let file = own.ended_file.as_ref();
    let current = jar.session().filter(|session| is_current(session, provider, file, now_s));
    if let Some(session) = current {
        return Some(OidcClaim::Session(session, Arc::clone(provider)));
    }
    let is_page = ex.request.method.is_some_and(lighty_http::Method::is_get_or_head);
    let begins = is_page && !ex.request.upgrade && is_navigation(&ex.request.fields);
    begins.then(|| OidcClaim::SignIn(Arc::clone(provider)))
}

/// True if a session has not ended by time, by the user, or by the provider.
fn is_current(
    session: &Session,
    provider: &SignInProvider,
    file: Option<&EndedFile>,
    now_s: i64,
) -> bool {
    now_s < session.ends_s && !provider.provider.has_ended(&session.names(), session.began_s, file)
}

/// Decides about a claim.
pub(in crate::auth::vouched) fn check(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    rule: Arc<Rule>,
    claim: OidcClaim,
) -> Step<'_> {
    match claim {
        OidcClaim::Admitted => Step::Next,
        OidcClaim::Refused(status) => {
            ex.fail_status(status);
            Step::Answered
        }
        OidcClaim::Broken(detail) => {
            ex.fail_reporting(&broken(detail));
            Step::Answered
        }
        OidcClaim::SignIn(provider) => {
            if ex.rehearse_step(|| "shown as if the user has signed in".to_owned()) {
                return Step::Next;
            }
            Step::Wait(Box::pin(sign_in::begin(ex, settings, provider, None)))
        }
        OidcClaim::Session(session, provider) => {
            if session.is_due(ex.machine.clock.unix_s()) && ex.state.rehearsal.is_none() {
                return Step::Wait(Box::pin(refresh(ex, settings, rule, session, provider)));
            }
            match admit(ex, &rule, &session, &provider) {
                Conclusion::Admitted => Step::Next,
                Conclusion::Refused => Step::Answered,
                Conclusion::OtherSettings => Step::Wait(Box::pin(proceed(ex))),
            }
        }
    }
}

/// Refreshes a session at its provider. One that the provider does not refresh goes on until its
/// end.
async fn refresh(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    rule: Arc<Rule>,
    session: Arc<Session>,
    provider: Arc<SignInProvider>,
) -> Step<'static> {
    let gone = ex.client_gone();
    let refreshed = tokio::select! {
        biased;
        refreshed = provider.provider.refresh(&session, now(ex)) => refreshed,
        fault = gone => {
            ex.fail(fault);
            return Step::Answered;
        }
    };
    let session = match refreshed {
        Refreshed::Unchanged => session,
        Refreshed::Renewed(mut renewed) => {
            renewed.claims.remove_protocol();
            let cookies =
                CookieJar::of(ex, &settings, &provider).and_then(|jar| jar.set_session(&renewed));
            match cookies {
                Ok(cookies) => ex.ext_mut::<VerifiedIdentity>().add_cookies(&cookies),
                Err(error) => ex.log(Level::Warning, &error.to_string()),
            }
            Arc::from(renewed)
        }
        Refreshed::Ended => {
            let end = SessionEnd {
                name: session.own_name(),
                now_s: ex.machine.clock.unix_s(),
                until_s: session.ends_s,
            };
            if let Err(error) = end_sessions(&settings, &provider, end).await {
                ex.log(Level::Error, &error.to_string());
            }
            let is_page = ex.request.method.is_some_and(lighty_http::Method::is_get_or_head);
            if is_page && !ex.request.upgrade && is_navigation(&ex.request.fields) {
                return sign_in::begin(ex, settings, provider, None).await;
            }
            ex.fail(Fault::NotAuthenticated);
            return Step::Answered;
        }
    };
    match admit(ex, &rule, &session, &provider) {
        Conclusion::Admitted => Step::Next,
        Conclusion::Refused => Step::Answered,
        Conclusion::OtherSettings => proceed(ex).await,
    }
}

/// Admits a request with a session, or refuses it.
fn admit(
    ex: &mut Exchange,
    rule: &Arc<Rule>,
    session: &Session,
    provider: &SignInProvider,
) -> Conclusion {
    let (name, claims) = (session.user.as_bytes(), &session.claims);
    let is_admitted = rule.admits_attested(
        name,
        &|group| claims.has(&provider.groups_claim, group),
        &|claim, value| claims.has(claim, value),
    );
    if !is_admitted {
        ex.fail_saying(Fault::SignInDenied, &format!("user {}", shown(name)));
        let status = ex.response.status;
        ex.ext_mut::<AttestedUser>().refused = Some(status);
        ex.ext_mut::<VerifiedIdentity>().verify();
        return Conclusion::Refused;
    }
    grant(ex, rule, name, SCHEME);
    // Rules about passwords of this realm verify their own users.
    ex.request.auth_realm = None;
    match attested::adopt(ex, rule, None, claims, &provider.fields) {
        true => Conclusion::OtherSettings,
        false => Conclusion::Admitted,
    }
}
