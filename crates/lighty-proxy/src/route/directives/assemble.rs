//! Assembles routes from parts: once for each variant of the settings.

use std::sync::Arc;

use lighty_config::{Pairs, Reject, Strings};
use lighty_core::settings::CoreSettings;

use super::balancer::Balancing;
use super::family::Family;
use super::host::{ConfiguredHost, HostRules};
use super::parts::{CoreBackend, CoreParts, FamilyServer, ProxyParts, TlsParts, UpstreamParts};
use super::place::BackendLocation;
use super::tls;
use crate::route::rules::{RequestRules, ResponseRules, Route, Routes, Takes};
use crate::upstream::protocol::{ProtocolName, ProtocolOptions};
use crate::upstream::spec::{
    BackendAddress, BackendSpec, BalancerSpec, CheckKind, CheckSpec, FastcgiRole, HealthSpec,
    Protocol, TimeoutSpec, UpstreamSpec, idle_ms_of,
};

/// A conflict between several directives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    /// The directive to blame.
    pub(super) directive: &'static str,
    /// Rest of the sentence that begins with the directive's name.
    pub(super) message: String,
    pub(super) help: String,
}

/// Returns the routes of a variant of the settings.
pub(crate) fn routes(parts: &ProxyParts, settings: &CoreSettings) -> Routes {
    let flaw = flaws(parts).into_iter().next();
    let flaw = flaw.map(|flaw| Arc::from(format!("{} {}", flaw.directive, flaw.message)));
    let servers = Family::ALL.into_iter().flat_map(|family| of_family(parts, family, settings));
    Routes::new(of_core(parts, settings), servers.collect(), flaw)
}

/// Returns a route to one HTTP address, with the settings in `parts` for such backends.
///
/// # Errors
/// The address is invalid.
pub(crate) fn to_address(
    parts: &ProxyParts,
    settings: &CoreSettings,
    address: &str,
) -> Result<Arc<Route>, Reject> {
    let refused = |why: &str| Reject::new(format!("{address} {why}"));
    let place = BackendLocation::parse(address).map_err(|reject| refused(&reject.message))?;
    let mut parts = parts.clone();
    parts.core.backends = [CoreBackend { text: address.into(), place, is_tls: false }].into();
    parts.core.protocol = Some(ProtocolName::Http);
    parts.core.check_local = false;
    of_core(&parts, settings).ok_or_else(|| refused("is no backend"))
}

/// Message about backends without a protocol.
pub(super) const NO_PROTOCOL: &str = "are set without proxy-core.protocol: what do they speak?";

/// Returns the errors, the worst first.
pub(super) fn flaws(parts: &ProxyParts) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    if !parts.core.backends.is_empty() && parts.core.protocol.is_none() {
        flaws.push(Flaw {
            directive: "proxy-core.backends",
            message: NO_PROTOCOL.into(),
            help: format!(
                "add proxy-core.protocol = \"http\" (or {})",
                ProtocolName::NAMES[1..]
                    .iter()
                    .map(|word| format!("\"{word}\""))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        });
    }
    flaws.extend(tls_flaws(parts));
    let is_shared = parts.core.protocol == Some(ProtocolName::Http2);
    if is_shared && !parts.core.backends.is_empty() && parts.shared.proxy_protocol.is_some() {
        flaws.push(Flaw {
            directive: "proxy-core.proxy-protocol",
            message: "names one client for a connection, and those of proxy-core.protocol = \
                      \"h2\" carry requests of many"
                .into(),
            help: "leave it out, or speak \"http\" with these backends".into(),
        });
    }
    let Some(check) = &parts.shared.health.check else { return flaws };
    for (directive, protocol) in spoken(parts) {
        let fits = match check.kind {
            CheckKind::Tcp => true,
            CheckKind::Http { .. } | CheckKind::Http2 { .. } => {
                matches!(protocol, Protocol::Http { .. } | Protocol::Http2 { .. })
            }
            CheckKind::Grpc { .. } => matches!(protocol, Protocol::Http2 { .. }),
            CheckKind::Fastcgi { .. } => matches!(protocol, Protocol::Fastcgi { .. }),
            CheckKind::Ajp13 => matches!(protocol, Protocol::Ajp13 { .. }),
        };
        if !fits {
            flaws.push(Flaw {
                directive: "proxy-core.check",
                message: format!(
                    "asks in a protocol that the backends of {directive} do not speak"
                ),
                help: "write \"type\" => \"tcp\", or the type of their protocol".into(),
            });
        }
    }
    flaws
}

/// Returns the errors in the TLS settings.
fn tls_flaws(parts: &ProxyParts) -> Vec<Flaw> {
    let (core, tls) = (&parts.core, &parts.shared.tls);
    let mut flaws = Vec::new();
    let mut flaw = |directive, message: String, help: &str| {
        flaws.push(Flaw { directive, message, help: help.to_owned() });
    };
    let is_http = |speaks| matches!(speaks, ProtocolName::Http | ProtocolName::Http2);
    let speaks_other = core.protocol.is_some_and(|speaks| !is_http(speaks));
    if let Some(backend) = core.backends.iter().find(|b| b.is_tls && speaks_other) {
        let message = format!(
            "is neither \"http\" nor \"h2\", which alone are spoken over TLS, as \"{}\" is to be",
            backend.text
        );
        flaw("proxy-core.protocol", message, "write the address without \"https://\"");
    }
    let hosts = parts.families[Family::Proxy.index()].servers.iter().flat_map(|s| &s.hosts);
    let hosts = hosts.map(|host| (Family::Proxy.server(), &host.text, &host.place, host.is_tls));
    let backends =
        core.backends.iter().map(|b| ("proxy-core.backends", &b.text, &b.place, b.is_tls));
    let mut all = backends.chain(hosts).filter(|(_, _, _, is_tls)| *is_tls);
    if let Some((directive, text, ..)) = all.find(|(_, _, place, _)| !tls.names(place)) {
        let message = format!("has \"{text}\": nothing says which name its certificate is for");
        flaw(directive, message, "set proxy-core.tls-server-name");
    }
    if tls.key.is_some() && tls.cert.is_none() {
        let message = "is set without proxy-core.tls-cert".to_owned();
        flaw("proxy-core.tls-key", message, "name the certificate that the key belongs to");
    }
    flaws
}

/// Returns warnings: combinations that work, but are most likely mistakes.
pub(super) fn doubts(parts: &ProxyParts) -> Vec<Flaw> {
    let mut doubts = Vec::new();
    let speaks = parts.core.protocol.filter(|_| !parts.core.backends.is_empty());
    let is_http = |speaks| matches!(speaks, ProtocolName::Http | ProtocolName::Http2);
    if parts.core.upgrade && speaks.is_some_and(|speaks| !is_http(speaks)) {
        doubts.push(Flaw {
            directive: "proxy-core.upgrade",
            message: "has no effect: only proxy-core.protocol = \"http\" or \"h2\" can carry an \
                      upgrade"
                .into(),
            help: "leave it out, or speak \"http\" with these backends".into(),
        });
    }
    let other = |protocol: &Protocol| !(protocol.is_http() || *protocol == Protocol::Raw);
    let deaf = spoken(parts).into_iter().find(|(_, protocol)| other(protocol));
    if let (Some(_), Some((directive, _))) = (parts.shared.proxy_protocol, deaf) {
        doubts.push(Flaw {
            directive: "proxy-core.proxy-protocol",
            message: format!(
                "is sent to the backends of {directive}: few programs that speak their protocol \
                 understand it"
            ),
            help: "set it in a condition that has only backends of \"http\" or sockproxy.server"
                .into(),
        });
    }
    doubts
}

/// Returns the protocol of each kind of configured backend.
fn spoken(parts: &ProxyParts) -> Vec<(&'static str, Protocol)> {
    let core = parts.core.protocol.filter(|_| !parts.core.backends.is_empty());
    let core = core.map(|speaks| ("proxy-core.backends", speaks.with(&parts.shared.protocols)));
    let families =
        Family::ALL.into_iter().filter(|f| !parts.families[f.index()].servers.is_empty());
    let families = families
        .map(|family| (family.server(), family_protocol(family, parts, &HostRules::default()).0));
    core.into_iter().chain(families).collect()
}

fn of_core(parts: &ProxyParts, settings: &CoreSettings) -> Option<Arc<Route>> {
    let core = &parts.core;
    let speaks = core.protocol.filter(|_| !core.backends.is_empty())?;
    let protocol = speaks.with(&parts.shared.protocols);
    let speaks_http = protocol.is_http();
    let mut shared = shared_spec(&parts.shared, protocol);
    if speaks == ProtocolName::Http2 {
        shared.health.check = shared.health.check.map(CheckSpec::over_http2);
    }
    let upstream = UpstreamSpec {
        name: "proxy-core.backends".into(),
        balancer: balancer(&core.balancer, &parts.shared),
        backends: core_backends(core, speaks, &parts.shared.tls),
        proxy_protocol: parts.shared.proxy_protocol.filter(|_| speaks != ProtocolName::Http2),
        ..shared
    };
    Some(Arc::new(Route {
        takes: Takes::All,
        yields_to: Vec::new(),
        upstream: Arc::new(upstream),
        check_local: core.check_local,
        request: RequestRules {
            forwarded: core.forwarded.clone(),
            upgrade: core.upgrade,
            trailers: core.trailers,
            as_received: parts.shared.as_received && speaks_http,
            rewrite: Arc::clone(&core.rewrite_request),
            stream: settings.stream_request_body,
            ..RequestRules::default()
        },
        response: ResponseRules {
            sendfile_roots: core.allow_x_sendfile.then(|| Arc::clone(&core.x_sendfile_docroot)),
            allow_x_rewrite: core.allow_x_rewrite,
            rewrite: Arc::clone(&core.rewrite_response),
            ..response_rules(parts, settings)
        },
        class: parts.shared.class,
        debug: core.debug,
        websocket: None,
    }))
}

fn balancer(balancing: &Balancing, shared: &UpstreamParts) -> BalancerSpec {
    balancing.spec(shared.balancing, shared.sticky_cookie.as_ref())
}

fn core_backends(core: &CoreParts, speaks: ProtocolName, tls: &TlsParts) -> Vec<BackendSpec> {
    let spec = |backend: &super::parts::CoreBackend| {
        let text = Arc::clone(&backend.text);
        let weight = core.weights.iter().find(|(name, _)| *name == text);
        let port = if backend.is_tls { tls::PORT } else { speaks.port() };
        let options = match backend.is_tls {
            true => Some(tls.options(&backend.place, speaks)?),
            false => None,
        };
        Some(BackendSpec {
            address: backend.place.address(Some(port))?,
            weight: weight.map_or(1, |(_, weight)| *weight),
            max_connections: None,
            backup: core.backup.contains(&text),
            spawn: None,
            http_host: None,
            tls: options,
            label: None,
            text,
        })
    };
    core.backends.iter().filter_map(spec).collect()
}

/// Returns the common part of all upstreams of these settings; callers fill in the rest.
pub(super) fn shared_spec(shared: &UpstreamParts, protocol: Protocol) -> UpstreamSpec {
    let mut pool = shared.pool.clone();
    pool.idle_max = shared.idle_max.map_or(pool.size_max, |most| most.min(pool.size_max));
    pool.idle_ms = shared.idle_ms.unwrap_or_else(|| idle_ms_of(&protocol));
    UpstreamSpec {
        name: "".into(),
        protocol,
        balancer: Default::default(),
        backends: Vec::new(),
        pool,
        backlog: shared.backlog.clone(),
        timeouts: shared.timeouts,
        health: health(shared, None),
        split_hostnames: shared.split_hostnames,
        proxy_protocol: shared.proxy_protocol,
    }
}

fn health(shared: &UpstreamParts, disable_ms: Option<u64>) -> HealthSpec {
    let mut health = shared.health.clone();
    health.disable_ms = disable_ms.unwrap_or(health.disable_ms);
    health.disable_ms_max = health.disable_ms_max.max(health.disable_ms);
    health
}

fn response_rules(parts: &ProxyParts, settings: &CoreSettings) -> ResponseRules {
    ResponseRules {
        strict_lines: parts.shared.strict_lines,
        intercept_errors: settings.error_intercept,
        stream: settings.stream_response_body,
        ..ResponseRules::default()
    }
}

fn of_family(parts: &ProxyParts, family: Family, settings: &CoreSettings) -> Vec<Arc<Route>> {
    let of = &parts.families[family.index()];
    let mut routes = Vec::with_capacity(of.servers.len());
    let websocket = (family == Family::Wstunnel).then(|| Arc::new(parts.websocket.clone()));
    for server in of.servers.iter().flat_map(by_role) {
        let upstream = Arc::new(upstream(parts, family, &server));
        let rules = server.hosts.first().map(|host| host.rules.clone()).unwrap_or_default();
        let response = family_response(parts, family, &rules, settings);
        let request = family_request(parts, family, rules.clone(), settings);
        let check_local = rules.check_local.unwrap_or(family.checks_local());
        let yields_to = if check_local { Vec::new() } else { local_keys(&routes, &upstream) };
        for takes in taken(&server.key, of.map_extensions.as_ref()) {
            routes.push(Arc::new(Route {
                takes,
                yields_to: yields_to.clone(),
                upstream: Arc::clone(&upstream),
                check_local,
                request: request.clone(),
                response: response.clone(),
                class: parts.shared.class,
                debug: of.debug,
                websocket: websocket.clone(),
            }));
        }
    }
    routes
}

/// Returns the keys of a family's routes with the same role that need a local file.
fn local_keys(before: &[Arc<Route>], upstream: &UpstreamSpec) -> Vec<Takes> {
    let before = before.iter().filter(|route| route.check_local);
    let before = before.filter(|route| route.upstream.protocol == upstream.protocol);
    before.map(|route| route.takes.clone()).collect()
}

/// Splits a key's hosts into authorizers and responders: a request goes to one of each.
fn by_role(server: &FamilyServer) -> Vec<FamilyServer> {
    let of_role = |role: FastcgiRole| {
        let hosts = server.hosts.iter().filter(|host| host.rules.role == role).cloned();
        FamilyServer { key: Arc::clone(&server.key), hosts: hosts.collect() }
    };
    let both = [of_role(FastcgiRole::Authorizer), of_role(FastcgiRole::Responder)];
    both.into_iter().filter(|server| !server.hosts.is_empty()).collect()
}

/// Returns the matches of a key, and of the endings that are mapped to it.
fn taken(key: &Arc<str>, map: Option<&Pairs>) -> Vec<Takes> {
    let mapped = map.iter().flat_map(|pairs| pairs.iter()).filter(|(_, to)| to == key);
    let mapped = mapped.map(|(from, _)| Arc::clone(from));
    if !key.starts_with('/') {
        let endings: Strings = std::iter::once(Arc::clone(key)).chain(mapped).collect();
        return vec![Takes::Suffix(endings)];
    }
    let endings: Strings = mapped.collect();
    let mut takes = vec![Takes::Prefix(Arc::clone(key))];
    takes.extend((!endings.is_empty()).then_some(Takes::Suffix(endings)));
    takes
}

fn upstream(parts: &ProxyParts, family: Family, server: &FamilyServer) -> UpstreamSpec {
    let shared = &parts.shared;
    let default = HostRules::default();
    let rules = server.hosts.first().map_or(&default, |host| &host.rules);
    let (protocol, port) = family_protocol(family, parts, rules);
    let balance =
        parts.families[family.index()].balance.clone().unwrap_or_else(|| Balancing::named("sqf"));
    let base = &shared.timeouts;
    UpstreamSpec {
        name: format!("{} \"{}\"", family.server(), server.key).into(),
        balancer: balancer(&balance, shared),
        backends: server.hosts.iter().filter_map(|host| backend(host, port, parts)).collect(),
        timeouts: TimeoutSpec {
            connect_ms: rules.connect_ms.unwrap_or(base.connect_ms),
            read_ms: rules.read_ms.unwrap_or(base.read_ms),
            write_ms: rules.write_ms.unwrap_or(base.write_ms),
            tunnel_ms: base.tunnel_ms,
        },
        health: health(shared, rules.disable_ms),
        ..shared_spec(shared, protocol)
    }
}

/// Returns the protocol, and the port for addresses without one.
fn family_protocol(
    family: Family,
    parts: &ProxyParts,
    rules: &HostRules,
) -> (Protocol, Option<u16>) {
    let name = match family {
        Family::Fastcgi => ProtocolName::Fastcgi,
        Family::Scgi if parts.scgi_is_uwsgi => ProtocolName::Uwsgi,
        Family::Scgi => ProtocolName::Scgi,
        Family::Ajp13 => ProtocolName::Ajp13,
        Family::Proxy => ProtocolName::Http,
        Family::Sockproxy | Family::Wstunnel => return (Protocol::Raw, None),
    };
    let shared = &parts.shared.protocols;
    let options = ProtocolOptions {
        role: rules.role,
        force_http10: parts.header.header.force_http10,
        secret: rules.secret.clone().or_else(|| shared.secret.clone()),
        ..shared.clone()
    };
    (name.with(&options), Some(name.port()))
}

fn backend(host: &ConfiguredHost, port: Option<u16>, parts: &ProxyParts) -> Option<BackendSpec> {
    let header = &parts.header;
    let port = if host.is_tls { Some(tls::PORT) } else { port };
    let address = host.place.address(port)?;
    let options = match host.is_tls {
        true => Some(parts.shared.tls.options(&host.place, ProtocolName::Http)?),
        false => None,
    };
    // In lighttpd, a host without a label keeps the client's `Host`; it has no TLS to backends.
    let named = || match &address {
        BackendAddress::Inet(_) | BackendAddress::Name { .. } if host.is_tls => {
            Some(Arc::clone(&host.text))
        }
        _ => None,
    };
    let http_host = header.replace_http_host.then(|| host.label.clone().or_else(named)).flatten();
    let scheme = if host.is_tls { "https://" } else { "" };
    Some(BackendSpec {
        text: match scheme {
            "" => Arc::clone(&host.text),
            scheme => format!("{scheme}{}", host.text).into(),
        },
        tls: options,
        label: host.label.clone(),
        http_host,
        address,
        weight: host.weight,
        max_connections: host.max_connections,
        backup: host.backup,
        spawn: host.spawn.clone(),
    })
}

fn family_request(
    parts: &ProxyParts,
    family: Family,
    rules: HostRules,
    settings: &CoreSettings,
) -> RequestRules {
    let is_http = family == Family::Proxy;
    let header = &parts.header.header;
    let pairs = |pairs: &Option<Pairs>| pairs.clone().filter(|_| is_http).unwrap_or_default();
    RequestRules {
        docroot: rules.docroot,
        as_received: parts.shared.as_received && is_http,
        strip_request_uri: rules.strip_request_uri,
        map_urlpath: pairs(&header.map_urlpath),
        map_host: pairs(&header.map_host_request),
        replace_host: is_http && parts.header.replace_http_host,
        https_remap: is_http && header.https_remap,
        connect: is_http && header.connect,
        trailers: is_http && header.trailers,
        fin_propagate: rules.fin_propagate
            || matches!(family, Family::Sockproxy | Family::Wstunnel),
        forwarded: parts.header.forwarded.clone(),
        fix_root_scriptname: rules.fix_root_scriptname,
        broken_scriptfilename: rules.broken_scriptfilename,
        upgrade: rules.upgrade || (is_http && header.upgrade),
        rewrite: Arc::default(),
        stream: settings.stream_request_body,
    }
}

fn family_response(
    parts: &ProxyParts,
    family: Family,
    rules: &HostRules,
    settings: &CoreSettings,
) -> ResponseRules {
    let header = Some(&parts.header.header).filter(|_| family == Family::Proxy);
    let pairs = |pairs: Option<&Option<Pairs>>| pairs.cloned().flatten().unwrap_or_default();
    let list = |list: Option<&Option<Strings>>| list.cloned().flatten().unwrap_or_default();
    let roots = || rules.sendfile_roots.clone().unwrap_or_default();
    ResponseRules {
        sendfile_roots: rules.sendfile.then(roots),
        map_host: pairs(header.map(|h| &h.map_host_response)),
        map_urlpath: pairs(header.map(|h| &h.map_urlpath)),
        map_urlpath_hosts: list(header.map(|h| &h.map_urlpath_hosts)),
        map_urlpath_hosts_not: list(header.map(|h| &h.map_urlpath_hosts_not)),
        ..response_rules(parts, settings)
    }
}
