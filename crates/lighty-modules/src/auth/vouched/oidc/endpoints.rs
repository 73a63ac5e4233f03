//! The URLs of each provider on this server: `callback`, `login`, `logout`, `backchannel`.

use std::rc::Rc;
use std::sync::Arc;

use lighty_core::module::Step;
use lighty_core::{Exchange, Settings};
use lighty_http::{Known, Method, Status};

use super::responses::parameter;
use super::settings::{OidcSettings, SignInProvider};
use super::{sign_in, sign_out};

/// An endpoint of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Callback,
    Login,
    Logout,
    Backchannel,
}

/// A request for an endpoint.
pub(in crate::auth) struct EndpointRequest {
    settings: Rc<Settings>,
    provider: Arc<SignInProvider>,
    endpoint: Endpoint,
}

/// The endpoint that a request is for.
pub(in crate::auth::vouched) fn find(ex: &Exchange) -> Option<EndpointRequest> {
    let own = ex.settings.module::<OidcSettings>();
    if ex.state.error_status.is_some() {
        return None;
    }
    let rest = ex.request.path.strip_prefix(own.path.as_bytes())?;
    own.providers.iter().find_map(|provider| {
        let rest = rest.strip_prefix(provider.name().as_bytes())?.strip_prefix(b"/")?;
        let endpoint = match rest {
            b"callback" => Endpoint::Callback,
            b"login" => Endpoint::Login,
            b"logout" => Endpoint::Logout,
            b"backchannel" => Endpoint::Backchannel,
            _ => return None,
        };
        let (settings, provider) = (Rc::clone(&ex.settings), Arc::clone(provider));
        Some(EndpointRequest { settings, provider, endpoint })
    })
}

/// Responds to a request for an endpoint.
pub(in crate::auth::vouched) fn serve(ex: &mut Exchange, request: EndpointRequest) -> Step<'_> {
    let EndpointRequest { settings, provider, endpoint } = request;
    if ex.rehearse(|_| format!("{endpoint:?} of the provider {:?}", provider.name())) {
        return Step::Answered;
    }
    let (is_permitted, allowed) = match (endpoint, ex.request.method) {
        (Endpoint::Backchannel, method) => (method == Some(Method::Post), "POST"),
        (Endpoint::Logout, method) => {
            (matches!(method, Some(Method::Get | Method::Post)), "GET, POST")
        }
        (Endpoint::Callback | Endpoint::Login, method) => (method == Some(Method::Get), "GET"),
    };
    if !is_permitted {
        ex.fail_status(Status::METHOD_NOT_ALLOWED);
        ex.response.fields.set(Known::Allow, allowed);
        return Step::Answered;
    }
    Step::Wait(Box::pin(respond(ex, settings, provider, endpoint)))
}

async fn respond(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    provider: Arc<SignInProvider>,
    endpoint: Endpoint,
) -> Step<'static> {
    match endpoint {
        Endpoint::Callback => sign_in::complete(ex, settings, provider).await,
        Endpoint::Login => {
            let target = parameter(ex.request.query(), "to").unwrap_or_default();
            sign_in::begin(ex, settings, provider, Some(target)).await
        }
        Endpoint::Logout => sign_out::sign_out(ex, settings, provider).await,
        Endpoint::Backchannel => sign_out::end_by_provider(ex, settings, provider).await,
    }
}
