//! The separate values of the directives, before routes are assembled.

use std::net::SocketAddr;
use std::sync::Arc;

use lighty_config::{Pairs, Strings};

use super::balancer::Balancing;
use super::family::Family;
use super::host::ConfiguredHost;
use super::place::BackendLocation;
use crate::route::rules::{ForwardedRules, RewriteRule, WebsocketRules};
use crate::upstream::protocol::{ProtocolName, ProtocolOptions};
use crate::upstream::spec::{
    BacklogSpec, BalancerOptions, HealthSpec, PoolSpec, ProxyProtocol, TimeoutSpec,
};

/// Values of all directives of the proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxyParts {
    pub(super) core: CoreParts,
    pub(super) shared: UpstreamParts,
    /// By [`Family::index`].
    pub(super) families: [FamilyParts; Family::ALL.len()],
    pub(super) header: HeaderParts,
    pub(crate) resolver: ResolverParts,
    /// `scgi.protocol = "uwsgi"`.
    pub(super) scgi_is_uwsgi: bool,
    /// `wstunnel.*`, except its hosts.
    pub(super) websocket: WebsocketRules,
}

impl ProxyParts {
    /// True for `proxy-core.status-header`.
    pub(crate) fn adds_status(&self) -> bool {
        self.core.status_field
    }

    /// Returns true if no directive takes requests.
    pub(crate) fn is_idle(&self) -> bool {
        self.core.backends.is_empty() && self.families.iter().all(|f| f.servers.is_empty())
    }

    pub(super) fn family(&mut self, family: Family) -> &mut FamilyParts {
        &mut self.families[family.index()]
    }
}

/// Settings for the look-up of names.
#[derive(Clone, Debug)]
pub(crate) struct ResolverParts {
    pub(crate) name_servers: Arc<[SocketAddr]>,
    pub(crate) timeout_ms: u64,
    pub(crate) ttl_ms_max: u64,
}

impl Default for ResolverParts {
    fn default() -> Self {
        Self { name_servers: Arc::from([]), timeout_ms: 2_000, ttl_ms_max: 3_600_000 }
    }
}

/// Values of a module of 1.4.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyParts {
    pub(super) servers: Arc<[FamilyServer]>,
    pub(super) balance: Option<Balancing>,
    pub(super) map_extensions: Option<Pairs>,
    pub(super) debug: bool,
}

/// A key of `fastcgi.server` and its hosts.
#[derive(Clone, Debug)]
pub(super) struct FamilyServer {
    pub(super) key: Arc<str>,
    pub(super) hosts: Vec<ConfiguredHost>,
}

/// Values of `proxy-core.*` about its own backends.
#[derive(Clone, Debug)]
pub(super) struct CoreParts {
    pub(super) backends: Arc<[CoreBackend]>,
    pub(super) protocol: Option<ProtocolName>,
    pub(super) balancer: Balancing,
    pub(super) weights: Weights,
    pub(super) backup: Strings,
    pub(super) allow_x_sendfile: bool,
    pub(super) x_sendfile_docroot: Strings,
    pub(super) allow_x_rewrite: bool,
    pub(super) rewrite_request: Arc<[RewriteRule]>,
    pub(super) rewrite_response: Arc<[RewriteRule]>,
    pub(super) check_local: bool,
    pub(super) forwarded: ForwardedRules,
    pub(super) upgrade: bool,
    pub(super) trailers: bool,
    pub(super) status_field: bool,
    pub(super) debug: bool,
}

impl Default for CoreParts {
    fn default() -> Self {
        let none: Strings = Arc::from([]);
        Self {
            backends: Arc::from([]),
            protocol: None,
            balancer: Balancing::default(),
            weights: Arc::from([]),
            backup: Arc::clone(&none),
            allow_x_sendfile: false,
            x_sendfile_docroot: none,
            allow_x_rewrite: false,
            rewrite_request: Arc::from([]),
            rewrite_response: Arc::from([]),
            check_local: false,
            forwarded: ForwardedRules::default(),
            upgrade: false,
            trailers: false,
            status_field: false,
            debug: false,
        }
    }
}

/// Shares of backends, by the backends' text.
pub(super) type Weights = Arc<[(Arc<str>, u32)]>;

/// A backend of `proxy-core.backends`.
#[derive(Clone, Debug)]
pub(super) struct CoreBackend {
    pub(super) text: Arc<str>,
    pub(super) place: BackendLocation,
    /// Written with `https://`.
    pub(super) is_tls: bool,
}

/// `proxy-core.tls-*`.
#[derive(Clone, Debug)]
pub(super) struct TlsParts {
    pub(super) server_name: Option<Arc<str>>,
    pub(super) ca_file: Option<Arc<str>>,
    pub(super) is_verified: bool,
    pub(super) cert: Option<Arc<str>>,
    pub(super) key: Option<Arc<str>>,
}

impl Default for TlsParts {
    fn default() -> Self {
        Self { server_name: None, ca_file: None, is_verified: true, cert: None, key: None }
    }
}

/// Values of `proxy-core.*` for every upstream, also for the directives of 1.4.
#[derive(Clone, Debug)]
pub(super) struct UpstreamParts {
    pub(super) pool: PoolSpec,
    pub(super) idle_max: Option<u32>,
    pub(super) idle_ms: Option<u64>,
    pub(super) backlog: BacklogSpec,
    pub(super) timeouts: TimeoutSpec,
    pub(super) health: HealthSpec,
    pub(super) split_hostnames: bool,
    pub(super) proxy_protocol: Option<ProxyProtocol>,
    pub(super) class: u8,
    pub(super) balancing: BalancerOptions,
    pub(super) sticky_cookie: Option<Arc<str>>,
    pub(super) protocols: ProtocolOptions,
    pub(super) strict_lines: bool,
    pub(super) as_received: bool,
    pub(super) tls: TlsParts,
}

impl Default for UpstreamParts {
    fn default() -> Self {
        Self {
            pool: PoolSpec::default(),
            idle_max: None,
            idle_ms: None,
            backlog: BacklogSpec::default(),
            timeouts: TimeoutSpec::default(),
            health: HealthSpec::default(),
            split_hostnames: true,
            proxy_protocol: None,
            class: 0,
            as_received: false,
            balancing: BalancerOptions::default(),
            sticky_cookie: None,
            protocols: ProtocolOptions::default(),
            strict_lines: false,
            tls: TlsParts::default(),
        }
    }
}

/// `proxy.header`, `proxy.forwarded` and `proxy.replace-http-host`.
#[derive(Clone, Debug, Default)]
pub(super) struct HeaderParts {
    pub(super) header: Arc<HeaderRules>,
    pub(super) forwarded: ForwardedRules,
    pub(super) replace_http_host: bool,
}

/// The keys of `proxy.header`.
#[derive(Clone, Debug, Default)]
pub(super) struct HeaderRules {
    pub(super) map_urlpath: Option<Pairs>,
    pub(super) map_urlpath_hosts: Option<Strings>,
    pub(super) map_urlpath_hosts_not: Option<Strings>,
    pub(super) map_host_request: Option<Pairs>,
    pub(super) map_host_response: Option<Pairs>,
    pub(super) https_remap: bool,
    pub(super) upgrade: bool,
    pub(super) connect: bool,
    pub(super) force_http10: bool,
    pub(super) trailers: bool,
}
