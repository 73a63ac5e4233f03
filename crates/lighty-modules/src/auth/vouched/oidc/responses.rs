//! Parameters of requests for endpoints, and their responses.

use lighty_core::module::Step;
use lighty_core::{Exchange, Fault, Settings};
use lighty_http::uri::{decode_into, query_pairs};
use lighty_http::{Fields, Known, Status};

use super::settings::{OidcSettings, SignInProvider};

/// The value of a parameter of a form or query. `None` if it is missing, occurs twice, or is no
/// text.
pub(super) fn parameter(form: &[u8], name: &str) -> Option<String> {
    let mut found = query_pairs(form).filter(|(own, _)| *own == name.as_bytes());
    let (_, value) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let spaced: Vec<u8> =
        value?.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    let mut decoded = Vec::new();
    decode_into(&spaced, &mut decoded);
    String::from_utf8(decoded).ok()
}

/// Scheme and host of the site, as the client knows them.
pub(super) fn origin(ex: &Exchange) -> String {
    let parts = ex.url_parts();
    let bytes = [parts.scheme, b"://", parts.authority].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The URL to which a provider leads back.
pub(super) fn redirect_uri(
    ex: &Exchange,
    settings: &Settings,
    provider: &SignInProvider,
) -> String {
    let path = &settings.module::<OidcSettings>().path;
    format!("{}{path}{}/callback", origin(ex), provider.name())
}

/// Redirects the browser, and sets its cookies.
pub(super) fn redirect(ex: &mut Exchange, location: &str, cookies: &Fields) -> Step<'static> {
    ex.response.restart(Status::FOUND);
    let fields = &mut ex.response.fields;
    fields.set(Known::Location, location);
    fields.set(Known::CacheControl, "no-store");
    fields.append(cookies);
    ex.response.answered = true;
    Step::Answered
}

/// Refuses a sign-in, and sets the browser's cookies.
pub(super) fn refuse(
    ex: &mut Exchange,
    fault: Fault,
    detail: &str,
    cookies: &Fields,
) -> Step<'static> {
    ex.machine.counters.auth_sign_ins_failed.add(1);
    ex.fail_saying(fault, detail);
    ex.response.fields.set(Known::CacheControl, "no-store");
    ex.response.fields.append(cookies);
    Step::Answered
}
