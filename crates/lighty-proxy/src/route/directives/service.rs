//! Routes to services that other modules ask, such as `auth.forward`.

use std::sync::Arc;

use lighty_config::Reject;
use lighty_core::settings::services::ServiceSpec;

use super::assemble::shared_spec;
use super::parts::{ProxyParts, TlsParts};
use super::place::BackendLocation;
use super::tls;
use crate::route::rules::{ForwardedRules, RequestRules, ResponseRules, Route, Takes};
use crate::upstream::protocol::ProtocolName;
use crate::upstream::spec::BackendSpec;

/// Returns the route to a service, with the limits and the TLS settings in `parts`.
///
/// # Errors
/// An address is invalid.
pub(crate) fn of_service(parts: &ProxyParts, service: &ServiceSpec) -> Result<Arc<Route>, Reject> {
    let speaks = ProtocolName::Http;
    // The server's name in `proxy-core.tls-server-name` is that of other backends.
    let mut tls = TlsParts { server_name: service.server_name.clone(), ..parts.shared.tls.clone() };
    if let Some(file) = &service.ca_file {
        (tls.ca_file, tls.is_verified) = (Some(Arc::clone(file)), true);
    }
    let backends = service.addresses.iter().map(|text| backend(text, speaks, &tls));
    let backends = backends.collect::<Result<Vec<_>, Reject>>()?;
    let mut spec = shared_spec(&parts.shared, speaks.with(&parts.shared.protocols));
    spec.name = Arc::clone(&service.name);
    spec.backends = backends;
    spec.timeouts.connect_ms = spec.timeouts.connect_ms.min(service.timeout_ms);
    // A silent service fails before the time for its verdict is over, so that its health knows.
    let step_ms = service.timeout_ms - service.timeout_ms / 10;
    (spec.timeouts.read_ms, spec.timeouts.write_ms) = (step_ms, step_ms);
    spec.backlog.wait_ms = spec.backlog.wait_ms.min(service.timeout_ms);
    // Checks and PROXY headers are set for the backends of requests.
    (spec.health.check, spec.proxy_protocol) = (None, None);
    Ok(Arc::new(Route {
        takes: Takes::All,
        yields_to: Vec::new(),
        upstream: Arc::new(spec),
        check_local: false,
        request: RequestRules {
            forwarded: ForwardedRules { x_forwarded: false, ..ForwardedRules::default() },
            ..RequestRules::default()
        },
        response: ResponseRules { strict_lines: parts.shared.strict_lines, ..Default::default() },
        class: 0,
        debug: parts.core.debug,
        websocket: None,
    }))
}

fn backend(text: &Arc<str>, speaks: ProtocolName, tls: &TlsParts) -> Result<BackendSpec, Reject> {
    let (place, is_tls) = BackendLocation::parse_url(text)?;
    let port = if is_tls { tls::PORT } else { speaks.port() };
    let options = match is_tls {
        true => Some(tls.options(&place, speaks).ok_or_else(|| nameless(text))?),
        false => None,
    };
    Ok(BackendSpec {
        address: place.address(Some(port)).ok_or_else(|| nameless(text))?,
        weight: 1,
        max_connections: None,
        backup: false,
        spawn: None,
        http_host: None,
        tls: options,
        label: None,
        text: Arc::clone(text),
    })
}

fn nameless(text: &str) -> Reject {
    Reject::new(format!("has \"{text}\": nothing says which name its certificate is for"))
}
