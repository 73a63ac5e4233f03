//! Warns of directives that redirect clients to TLS, or obtain certificates, if no listener speaks
//! TLS.

use lighty_config::{Config, Diagnostic, Level, Span};
use lighty_core::Settings;

/// Directives of setups in which another program in front of the server terminates TLS.
const ELSEWHERE: [&str; 2] = ["extforward.forwarder", "server.https-redirect-port"];

/// Returns the warnings. To be called only if no listener speaks TLS.
pub(super) fn look(config: &Config<Settings>) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    if let Some(span) = enabled(config, "acme.activate") {
        let message = "acme.activate gets certificates for TLS, and no listener speaks it: \
                     ssl.engine = \"enable\" is missing";
        found.push(warning(span, message));
    }
    let is_elsewhere = ELSEWHERE.iter().any(|name| config.assigned(name).next().is_some());
    if let Some(span) = enabled(config, "server.https-redirect").filter(|_| !is_elsewhere) {
        let message = "server.https-redirect sends clients to port 443, and no listener speaks TLS: \
                     ssl.engine = \"enable\" is missing, or extforward.forwarder, where a proxy \
                     speaks it";
        found.push(warning(span, message));
    }
    found
}

/// Returns the place where a switch is on.
fn enabled(config: &Config<Settings>, name: &str) -> Option<Span> {
    let mut given = config.assigned(name);
    given.find(|given| given.value.as_bool() == Some(true)).map(|given| given.span)
}

fn warning(span: Span, message: &str) -> Diagnostic {
    Diagnostic::new(Level::Warning, "tls", span, message)
}
