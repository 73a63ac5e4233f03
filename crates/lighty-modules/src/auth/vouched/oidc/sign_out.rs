//! The end of sessions: by the user, or by the provider.

use std::rc::Rc;
use std::sync::Arc;

use lighty_core::module::Step;
use lighty_core::{Exchange, Fault, Level, Settings};
use lighty_http::uri::encode_component;
use lighty_http::{Fields, Known, Status};
use lighty_identity::provider::SessionEnd;
use lighty_identity::session::Session;

use super::cookies::CookieJar;
use super::responses::{origin, parameter, redirect, refuse};
use super::settings::{OidcSettings, SignInProvider};
use crate::auth::broken;
use crate::auth::vouched::clock::now;

/// Maximum size of a provider's request in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// Ends the browser's session here, and leads it to the provider to end it there (OpenID Connect
/// RP-Initiated Logout 1.0).
pub(super) async fn sign_out(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    provider: Arc<SignInProvider>,
) -> Step<'static> {
    // An image of another site must not sign users out.
    let site = ex.request.fields.get_named(b"Sec-Fetch-Site");
    if site.is_some_and(|site| site == b"cross-site") {
        return refuse(ex, Fault::SignInDenied, "another site signs out", &Fields::default());
    }
    let jar = match CookieJar::of(ex, &settings, &provider) {
        Ok(jar) => jar,
        Err(error) => {
            ex.fail_reporting(&broken(error.to_string()));
            return Step::Answered;
        }
    };
    let now = now(ex);
    let session = jar.session();
    let mut cookies = Fields::default();
    jar.clear_session(&mut cookies);
    let file = settings.module::<OidcSettings>().ended_file.as_ref();
    let is_noted = |session: &Session| {
        let names = [session.own_name()];
        file.is_some_and(|file| provider.provider.is_noted(&names, session.began_s, file))
    };
    // Nothing is written for a cookie that is worthless already: it may be sent again and again.
    let ending = session.as_ref().filter(|one| one.ends_s > now.unix_s && !is_noted(one));
    if let Some(session) = ending {
        // A copy of the cookie is worthless as well.
        let name = session.own_name();
        let end = SessionEnd { name, now_s: now.unix_s, until_s: session.ends_s };
        if let Err(error) = end_sessions(&settings, &provider, end).await {
            // The user is to leave, and the provider to hear of it, in any case.
            ex.log(Level::Error, &error.to_string());
        }
    }
    let after = format!("{}{}", origin(ex), provider.after_logout);
    // Without its endpoints the session ends here alone.
    let endpoints = provider.provider.endpoints(now.mono_ms).await.ok();
    let page = endpoints.as_ref().and_then(|endpoints| endpoints.end_session());
    let location = match page {
        None => after,
        Some(page) => {
            let token = session.as_ref().and_then(|session| session.id_token.as_deref());
            let mut url = page.as_bytes().to_vec();
            let mut separator = if page.contains('?') { b'&' } else { b'?' };
            let client_id = &provider.provider.spec().client_id;
            for (name, value) in [
                ("client_id", Some(&**client_id)),
                ("post_logout_redirect_uri", Some(&*after)),
                ("id_token_hint", token),
            ] {
                let Some(value) = value else { continue };
                url.push(separator);
                url.extend_from_slice(name.as_bytes());
                url.push(b'=');
                encode_component(value.as_bytes(), &mut url);
                separator = b'&';
            }
            String::from_utf8_lossy(&url).into_owned()
        }
    };
    redirect(ex, &location, &cookies)
}

/// Ends the sessions that the provider names (OpenID Connect Back-Channel Logout 1.0).
pub(super) async fn end_by_provider(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    provider: Arc<SignInProvider>,
) -> Step<'static> {
    let mut body = Vec::new();
    while let Some(piece) = ex.body.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(fault) => {
                ex.fail(Fault::of_body(fault));
                return Step::Answered;
            }
        };
        body.extend_from_slice(&piece);
        if body.len() > BODY_BYTES_MAX {
            ex.fail(Fault::RequestTooLarge);
            return Step::Answered;
        }
    }
    let none = Fields::default();
    let Some(token) = parameter(&body, "logout_token") else {
        return refuse(ex, Fault::SignInState, "there is no logout_token", &none);
    };
    let named = provider.provider.named_sessions(&token, now(ex)).await;
    let end = match named {
        Ok(end) => end,
        Err(error) => {
            let detail = format!("{}: logout: {error}", provider.name());
            return refuse(ex, Fault::SignInState, &detail, &none);
        }
    };
    if let Err(error) = end_sessions(&settings, &provider, end).await {
        // The provider may repeat its request.
        ex.fail_reporting(&broken(error.to_string()));
        return Step::Answered;
    }
    ex.response.restart(Status::OK);
    ex.response.fields.set(Known::CacheControl, "no-store");
    ex.response.answered = true;
    Step::Answered
}

/// Ends sessions, also for processes to come.
pub(super) async fn end_sessions(
    settings: &Settings,
    provider: &SignInProvider,
    end: SessionEnd,
) -> std::io::Result<()> {
    let file = settings.module::<OidcSettings>().ended_file.as_ref();
    provider.provider.end(end, file).await
}
