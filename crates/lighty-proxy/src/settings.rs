//! What applies to a request that may be proxied.

use std::sync::Arc;

use lighty_core::module_settings;
use regex::bytes::Regex;

use crate::spec::UpstreamSpec;

/// The proxy's settings for one set of conditions.
#[derive(Clone, Debug, Default)]
pub struct ProxySettings {
    /// `proxy-core.*`: every request that meets these conditions goes there.
    pub core: Option<Arc<Route>>,
    /// `fastcgi.server` and its like: by extension or prefix, in the order in which the modules
    /// are asked (fastcgi, scgi, ajp13, proxy, sockproxy), then as written.
    pub servers: Arc<[Arc<Route>]>,
}
module_settings!(ProxySettings);

/// Which requests go to an upstream, and what is done to them on the way.
#[derive(Clone, Debug)]
pub struct Route {
    pub takes: Takes,
    pub upstream: Arc<UpstreamSpec>,
    /// Whether the path must lead to a file of ours first (`check-local`).
    pub check_local: bool,
    pub request: RequestRules,
    pub response: ResponseRules,
    /// Rank in the backlog, 0 first (`proxy-core.backlog-class`).
    pub class: u8,
}

/// What a route matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Whatever the conditions let through.
    All,
    /// URLs that begin with this (a key that begins with `/`).
    Prefix(Arc<str>),
    /// Physical paths that end with this (a key that does not), by `map-extensions` too.
    Suffix(Arc<[Arc<str>]>),
}

/// What a backend is told.
#[derive(Clone, Debug, Default)]
pub struct RequestRules {
    /// The document root that CGI-like backends are told of, where it is not ours (`docroot`).
    pub docroot: Option<Arc<str>>,
    /// Removed from the front of the URL's path for the backend (`strip-request-uri`).
    pub strip_request_uri: Option<Arc<str>>,
    /// Prefix that the URL's path is mapped from and to (`map-urlpath`), in order.
    pub map_urlpath: Arc<[(Arc<str>, Arc<str>)]>,
    /// Hosts that the backend is told of in place of the client's (`map-host-request`): `-` keeps.
    pub map_host: Arc<[(Arc<str>, Arc<str>)]>,
    /// Which elements `Forwarded` is given, and whether `X-Forwarded-*` go with it.
    pub forwarded: ForwardedRules,
    /// `/` is a script's path, and all of the URL's path is path info
    /// (`fix-root-scriptname`).
    pub fix_root_scriptname: bool,
    /// `SCRIPT_FILENAME` is made the way of broken back ends (`broken-scriptfilename`).
    pub broken_scriptfilename: bool,
    /// Whether a client may ask for an upgrade (`upgrade`).
    pub upgrade: bool,
    /// `proxy-core.rewrite-request`, in the order written.
    pub rewrite: Arc<[RewriteRule]>,
    /// How the request's body is passed on (`server.stream-request-body`).
    pub stream: StreamBody,
}

/// Elements of `Forwarded` (RFC 7239 section 5) and their older spellings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedRules {
    /// X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, X-Host.
    pub x_forwarded: bool,
    pub for_: bool,
    pub by: bool,
    pub host: bool,
    pub proto: bool,
    pub remote_user: bool,
}

impl Default for ForwardedRules {
    fn default() -> Self {
        Self {
            x_forwarded: true,
            for_: false,
            by: false,
            host: false,
            proto: false,
            remote_user: false,
        }
    }
}

/// What is believed of a backend's answer.
#[derive(Clone, Debug, Default)]
pub struct ResponseRules {
    /// Directories beneath which a backend may name files to send (`allow-x-sendfile` with
    /// `x-sendfile-docroot`): `None` = it may name none; an empty list = the document root.
    pub sendfile_roots: Option<Arc<[Arc<str>]>>,
    /// Whether X-Rewrite-URI, X-Rewrite-Host and X-Rewrite-Backend are obeyed.
    pub allow_x_rewrite: bool,
    /// `proxy-core.rewrite-response`, in the order written.
    pub rewrite: Arc<[RewriteRule]>,
    /// `map-urlpath` the other way round, for Location and Set-Cookie.
    pub map_host: Arc<[(Arc<str>, Arc<str>)]>,
    /// Whether error pages of ours stand in for the backend's (`server.error-intercept`).
    pub intercept_errors: bool,
    /// How the answer's body is passed on (`server.stream-response-body`).
    pub stream: StreamBody,
}

/// Streaming or spooling of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamBody {
    /// 0: whole, in memory and then in `server.upload-dirs`, before it is passed on.
    Spool,
    /// 1: as it comes.
    #[default]
    Stream,
    /// 2: as it comes, with little buffered.
    StreamSmall,
}

/// One rule of `proxy-core.rewrite-request` or `-response`.
#[derive(Clone, Debug)]
pub struct RewriteRule {
    pub target: RewriteTarget,
    pub pattern: Regex,
    /// With `$0` to `$9` from the pattern.
    pub replacement: Arc<str>,
}

/// What a rewrite rule changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewriteTarget {
    Field(Arc<str>),
    Uri,
    Docroot,
    PathInfo,
    ScriptName,
}
