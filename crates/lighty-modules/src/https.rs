//! `mod_https`: redirects clients from HTTP to HTTPS and sends HSTS.

use lighty_config::Directive;
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::settings::tls::TlsSettings;
use lighty_core::{Exchange, Settings, module_settings};
use lighty_http::{Known, Method, Status, uri};

/// HSTS policy for a year (RFC 6797 section 6.1), without subdomains.
const REMEMBER: &str = "max-age=31536000";

/// The port of https: RFC 9110 section 4.2.2.
const HTTPS_PORT: u16 = 443;

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct HttpsSettings {
    /// `None`: follows `acme.activate`.
    redirect: Option<bool>,
    /// `None`: the default port, which URLs omit.
    port: Option<u16>,
    remember: bool,
}
module_settings!(HttpsSettings);

/// The module.
pub struct Https;

fn redirects(settings: &Settings) -> bool {
    let own = settings.module::<HttpsSettings>();
    own.redirect.unwrap_or_else(|| settings.module::<TlsSettings>().is_managed)
}

impl Module for Https {
    fn name(&self) -> &'static str {
        "mod_https"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { clean_url: true, response_head: true, ..Hooks::default() },
            acts_seldom: true,
            never_refuses_paths: true,
            head_never_waits: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        Hooks {
            clean_url: redirects(settings),
            response_head: settings.module::<HttpsSettings>().remember,
            ..Hooks::default()
        }
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(ex.request.scheme == "http")
    }

    fn directives() -> Vec<Directive<Settings>> {
        let rows = vec![
            Directive::bool("server.https-redirect", |s: &mut Settings, on| {
                s.module_mut::<HttpsSettings>().redirect = Some(on);
            })
            .default_prose("where `acme.activate` is enabled")
            .doc(
                "Redirects plain-HTTP requests to the same URL over TLS, on the port of \
                 `server.https-redirect-port`: with 301, or with 308 for methods other than GET \
                 and HEAD. ACME challenges are answered first. Behind a proxy that terminates TLS, \
                 set `extforward.headers`, or clients are redirected in a loop.",
            )
            .example("server.https-redirect = \"enable\""),
            Directive::int("server.https-redirect-port", 1..=65_535, |s: &mut Settings, port| {
                let port = u16::try_from(port).ok().filter(|port| *port != HTTPS_PORT);
                s.module_mut::<HttpsSettings>().port = port;
            })
            .default("443")
            .doc(
                "Port in the redirects of `server.https-redirect`, as clients reach it; it may \
                 differ from the port of the listener.",
            )
            .example("server.https-redirect-port = 8443"),
            Directive::bool("server.hsts", |s: &mut Settings, on| {
                s.module_mut::<HttpsSettings>().remember = on;
            })
            .default("disable")
            .doc(
                "Sends `Strict-Transport-Security` with responses over TLS: for a year, browsers \
                 use only TLS for this host. They then refuse invalid certificates and never fall \
                 back to plain HTTP.",
            )
            .example("server.hsts = \"enable\""),
        ];
        rows.into_iter().map(|row| row.module("mod_https").since("lighty 0.1")).collect()
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if ex.request.scheme != "http" || ex.state.error_status.is_some() {
            return Step::Next;
        }
        let port = ex.settings.module::<HttpsSettings>().port;
        let target = requested_target(ex);
        let Some(location) = location(&ex.request.authority, port, &target) else {
            return Step::Next;
        };
        let keeps_method = ex.request.method.is_some_and(Method::is_get_or_head);
        let status = match keeps_method {
            true => Status::MOVED_PERMANENTLY,
            false => Status::PERMANENT_REDIRECT,
        };
        ex.response.restart(status);
        ex.response.answered = true;
        ex.response.fields.push_known(Known::Location, location);
        Step::Answered
    }

    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let is_set = ex.response.fields.contains(Known::StrictTransportSecurity);
        if ex.request.scheme == "https" && !is_set {
            ex.response.fields.push_known(Known::StrictTransportSecurity, REMEMBER);
        }
        Step::Next
    }
}

/// Returns the requested path and query in normal form. The URL is the one before rewriting: the
/// redirected request is rewritten again.
fn requested_target(ex: &Exchange) -> Vec<u8> {
    let mut target = Vec::new();
    match uri::normalise(&ex.request.target_raw, &ex.settings.server.parse, &mut target) {
        Ok(_) => target,
        Err(_) => ex.request.target.clone(),
    }
}

/// Returns the same URL with `https`; `None` if the request has no host.
fn location(authority: &[u8], port: Option<u16>, target: &[u8]) -> Option<Vec<u8>> {
    let colon = authority.iter().rposition(|byte| *byte == b':');
    // A colon within brackets belongs to an address.
    let colon = colon.filter(|at| !authority[*at..].contains(&b']'));
    let host = &authority[..colon.unwrap_or(authority.len())];
    if host.is_empty() || !target.starts_with(b"/") {
        return None;
    }
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    Some([b"https://", host, port.as_bytes(), target].concat())
}

#[cfg(test)]
mod tests {
    use super::location;

    #[test]
    fn the_url_stays_but_for_scheme_and_port() {
        for (authority, port, target, wanted) in [
            ("a.test", None, "/", Some("https://a.test/")),
            ("a.test:8080", None, "/x?y=z", Some("https://a.test/x?y=z")),
            ("a.test:8080", Some(8443), "/x", Some("https://a.test:8443/x")),
            ("[::1]:8080", None, "/", Some("https://[::1]/")),
            ("[::1]", Some(1), "/", Some("https://[::1]:1/")),
            ("", None, "/", None),
            ("a.test", None, "*", None),
        ] {
            let made = location(authority.as_bytes(), port, target.as_bytes());
            assert_eq!(made.as_deref(), wanted.map(str::as_bytes), "{authority}");
        }
    }
}
