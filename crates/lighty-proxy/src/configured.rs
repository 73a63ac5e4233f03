//! The upstreams that a configuration names, before any request has asked for one.

use std::sync::Arc;

use lighty_config::Config;
use lighty_core::Settings;
use lighty_io::resolve::ResolveOptions;

use crate::directives;
use crate::settings::{ProxySettings, Route};
use crate::spec::UpstreamSpec;

/// Every upstream of the global settings and of each condition with those around it, each once.
/// What only several conditions together make comes into being with its first request.
pub fn upstreams(config: &Config<Settings>) -> Vec<Arc<UpstreamSpec>> {
    let mut found: Vec<Arc<UpstreamSpec>> = Vec::new();
    for block in directives::blocks_of_ours(config) {
        let settings = directives::settings_at(config, block);
        let routes = ProxySettings::routes(&settings);
        let specs =
            routes.servers.iter().chain(&routes.core).map(|route: &Arc<Route>| &route.upstream);
        for spec in specs {
            if !found.contains(spec) {
                found.push(Arc::clone(spec));
            }
        }
    }
    found
}

/// How the names of backends are looked up.
pub fn resolve_options(global: &Settings) -> ResolveOptions {
    let asked = &global.module::<ProxySettings>().parts.resolver;
    ResolveOptions {
        name_servers: asked.name_servers.to_vec(),
        timeout_ms: asked.timeout_ms,
        ttl_ms_max: asked.ttl_ms_max,
        ..ResolveOptions::default()
    }
}
