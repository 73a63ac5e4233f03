//! Users that a provider signs in: OpenID Connect, and OAuth 2.0 with a resource that names the
//! user (decision 0045).
//!
//! Reading order: `settings` · `cookies` (sessions and sign-ins of a browser) · `session_check`
//! (requests with and without a session) · `endpoints` (the URLs that a provider leads back to) ·
//! `sign_in` (the beginning and the end of a sign-in) · `sign_out`.

mod cookies;
mod endpoints;
mod responses;
mod session_check;
mod settings;
mod sign_in;
mod sign_out;

pub(super) use cookies::take as take_cookies;
pub(in crate::auth) use endpoints::EndpointRequest;
pub(super) use endpoints::{find as find_endpoint, serve};
pub(super) use session_check::{OidcClaim, check, claim};
pub(super) use settings::{ENDED_FILE, KEY_FILE, OidcSettings, PROVIDERS, directives, key_file};
