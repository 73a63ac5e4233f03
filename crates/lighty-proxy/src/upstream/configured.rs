//! Collects the upstreams of a configuration before the first request.

use std::sync::Arc;

use lighty_config::{Config, Span};
use lighty_core::Settings;
use lighty_io::connect::resolve::ResolveOptions;
use lighty_io::process::program::Program;

use crate::route::directives;
use crate::route::rules::Route;
use crate::route::settings::ProxySettings;
use crate::upstream::protocol::Protocol;
use crate::upstream::spec::UpstreamSpec;

/// An upstream, and its place in the configuration.
#[derive(Clone, Debug)]
pub struct Configured {
    /// The upstream's configuration.
    pub spec: Arc<UpstreamSpec>,
    /// The conditions around it; empty at global level.
    pub place: String,
}

/// Returns every upstream of the global settings and of each condition within its ancestors,
/// without duplicates. An upstream that only a combination of conditions yields is created by its
/// first request.
pub fn upstreams(config: &Config<Settings>) -> Vec<Configured> {
    let mut found: Vec<Configured> = Vec::new();
    for block in directives::blocks_of_ours(config) {
        let settings = directives::settings_at(config, block);
        let routes = ProxySettings::routes(&settings);
        let specs =
            routes.servers.iter().chain(&routes.core).map(|route: &Arc<Route>| &route.upstream);
        for spec in specs {
            if found.iter().all(|known| known.spec != *spec) {
                let place = directives::heads(config, block).join(" in ");
                found.push(Configured { spec: Arc::clone(spec), place });
            }
        }
    }
    for (_, spec) in services(config) {
        if found.iter().all(|known| known.spec != spec) {
            // Its name has its URL, and equal services of several conditions are one.
            found.push(Configured { spec, place: String::new() });
        }
    }
    found
}

/// Returns the services that other modules ask, with the places of their directives.
pub fn services(config: &Config<Settings>) -> Vec<(Span, Arc<UpstreamSpec>)> {
    directives::services(config)
        .into_iter()
        .filter_map(|service| Some((service.span, Arc::clone(&service.route.ok()?.upstream))))
        .collect()
}

/// Returns the programs of all backends that the server starts.
pub fn programs(config: &Config<Settings>) -> Vec<Program> {
    let mut found = Vec::new();
    for Configured { spec, .. } in upstreams(config) {
        let is_fastcgi = matches!(spec.protocol, Protocol::Fastcgi { .. });
        let spawned = spec.backends.iter().filter_map(|backend| backend.spawn.as_ref());
        found.extend(spawned.map(|spawn| spawn.program(is_fastcgi)));
    }
    found
}

/// Returns the DNS options for the names of backends.
pub fn resolve_options(global: &Settings) -> ResolveOptions {
    let resolver_parts = &global.module::<ProxySettings>().parts.resolver;
    ResolveOptions {
        name_servers: resolver_parts.name_servers.to_vec(),
        timeout_ms: resolver_parts.timeout_ms,
        ttl_ms_max: resolver_parts.ttl_ms_max,
        ..ResolveOptions::default()
    }
}
