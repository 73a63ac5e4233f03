//! Where requests go, and how they and their responses are changed.

use std::sync::Arc;

use lighty_config::{BytePattern, Strings, Undecided};

use crate::upstream::spec::{FastcgiRole, Protocol, UpstreamSpec};

pub use lighty_core::settings::StreamBody;

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Routes {
    /// `proxy-core.*`: every request that meets these conditions goes there.
    pub core: Option<Arc<Route>>,
    /// `fastcgi.server` and its like: by extension or prefix, in the order in which the modules
    /// are asked (fastcgi, scgi, ajp13, proxy, sockproxy, wstunnel), then as written.
    pub servers: Vec<Arc<Route>>,
    /// Why the configuration of these conditions cannot work. Most errors are found when the
    /// configuration is checked. One that only a combination of conditions causes is found here,
    /// and its requests get a 500.
    pub flaw: Option<Arc<str>>,
    /// True if some only authorize requests.
    pub(crate) authorize: bool,
}

impl Routes {
    pub(super) const NONE: Routes =
        Routes { core: None, servers: Vec::new(), flaw: None, authorize: false };

    pub(crate) fn new(
        core: Option<Arc<Route>>,
        servers: Vec<Arc<Route>>,
        flaw: Option<Arc<str>>,
    ) -> Self {
        let authorize = servers.iter().chain(&core).any(|route| route.is_authorizer());
        Self { core, servers, flaw, authorize }
    }

    /// All routes, in order of evaluation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.servers.iter().chain(&self.core)
    }

    /// True if some route may take a request before its file is looked up.
    pub(crate) fn take_unseen(&self) -> bool {
        self.flaw.is_some() || self.iter().any(|route| !route.check_local)
    }

    /// True if there is no route.
    pub fn is_empty(&self) -> bool {
        self.core.is_none() && self.servers.is_empty() && self.flaw.is_none()
    }
}

/// Which requests go to an upstream, and how they are changed on the way.
#[derive(Clone, Debug)]
pub struct Route {
    /// The requests that it takes.
    pub takes: Takes,
    /// The backends that answer them.
    pub upstream: Arc<UpstreamSpec>,
    /// True if the path must lead to a local file first (`check-local`).
    pub check_local: bool,
    /// How a request is changed on the way to the backend.
    pub request: RequestRules,
    /// How its response is changed on the way back.
    pub response: ResponseRules,
    /// Rank in the backlog, 0 first (`proxy-core.backlog-class`).
    pub class: u8,
    /// Whether each step is logged (`proxy-core.debug`, `fastcgi.debug` and its like).
    pub debug: bool,
    /// The server speaks WebSocket with the client (`wstunnel.server`); other requests are left to
    /// others.
    pub websocket: Option<Arc<WebsocketRules>>,
}

impl Route {
    /// True if its backends only authorize requests.
    pub fn is_authorizer(&self) -> bool {
        matches!(self.upstream.protocol, Protocol::Fastcgi { role: FastcgiRole::Authorizer })
    }
}

/// What `wstunnel.*` says beside the hosts.
#[derive(Clone, Debug, Default)]
pub struct WebsocketRules {
    /// The backend's bytes are sent as binary frames, whatever subprotocol the client offers.
    pub is_binary: bool,
    /// Origins that may connect; empty: all.
    pub origins: Strings,
    /// Seconds between pings; 0: none.
    pub ping_s: u32,
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

/// How requests are changed for a backend.
#[derive(Clone, Debug, Default)]
pub struct RequestRules {
    /// The document root that CGI-like backends are told of, where it is not ours (`docroot`).
    pub docroot: Option<Arc<str>>,
    /// Removed from the front of the URL's path for the backend (`strip-request-uri`).
    pub strip_request_uri: Option<Arc<str>>,
    /// True if HTTP backends get path and query as the client sent them
    /// (`proxy-core.forward-path`).
    pub as_received: bool,
    /// Prefix that the URL's path is mapped from and to (`map-urlpath`), in order.
    pub map_urlpath: Arc<[(Arc<str>, Arc<str>)]>,
    /// Hosts that the backend is told of in place of the client's (`map-host-request`): `-` keeps.
    pub map_host: Arc<[(Arc<str>, Arc<str>)]>,
    /// The host that the backend is told of is [`crate::upstream::spec::BackendSpec::http_host`].
    pub replace_host: bool,
    /// `https` and `http` are exchanged in what the backend is told of the scheme, where the
    /// client's side differs (`https-remap`).
    pub https_remap: bool,
    /// Whether CONNECT is passed on (`connect`).
    pub connect: bool,
    /// Whether a request's trailers are passed on (`trailers`).
    pub trailers: bool,
    /// True if a client's half-close is propagated to the backend (`tcp-fin-propagate`).
    pub fin_propagate: bool,
    /// Which elements `Forwarded` is given, and whether `X-Forwarded-*` go with it.
    pub forwarded: ForwardedRules,
    /// `/` is a script's path, and all of the URL's path is path info
    /// (`fix-root-scriptname`).
    pub fix_root_scriptname: bool,
    /// `SCRIPT_FILENAME` is made the way of broken back ends (`broken-scriptfilename`).
    pub broken_scriptfilename: bool,
    /// True if a client may request an upgrade (`upgrade`).
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
    /// `for`: the client's address.
    pub for_: bool,
    /// `by`: the address of the server that the client reached.
    pub by: bool,
    /// `host`: the Host that the client asked for.
    pub host: bool,
    /// `proto`: the scheme of the client's request.
    pub proto: bool,
    /// `remote_user`, an extension of lighttpd: the user who has been authenticated.
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

/// How a backend's response is treated.
#[derive(Clone, Debug, Default)]
pub struct ResponseRules {
    /// Directories beneath which a backend may name files to send (`allow-x-sendfile` with
    /// `x-sendfile-docroot`): `None` = it may name none; an empty list = the document root.
    pub sendfile_roots: Option<Arc<[Arc<str>]>>,
    /// Whether the lines of an HTTP backend's head must end with CR LF.
    pub strict_lines: bool,
    /// Whether X-Rewrite-URI, X-Rewrite-Host and X-Rewrite-Backend are obeyed.
    pub allow_x_rewrite: bool,
    /// `proxy-core.rewrite-response`, in the order written.
    pub rewrite: Arc<[RewriteRule]>,
    /// Hosts of the backend that Location and Set-Cookie name, and what the client is told
    /// (`map-host-response`).
    pub map_host: Arc<[(Arc<str>, Arc<str>)]>,
    /// `map-urlpath` the other way round, for Location and Set-Cookie.
    pub map_urlpath: Arc<[(Arc<str>, Arc<str>)]>,
    /// Hosts to which `map_urlpath` is limited, if any (`map-urlpath-resp-host-include`).
    pub map_urlpath_hosts: Arc<[Arc<str>]>,
    /// Hosts to which it does not apply (`map-urlpath-resp-host-exclude`).
    pub map_urlpath_hosts_not: Arc<[Arc<str>]>,
    /// True if lighty's error pages replace the backend's (`server.error-intercept`).
    pub intercept_errors: bool,
    /// How the response's body is passed on (`server.stream-response-body`).
    pub stream: StreamBody,
}

/// One rule of `proxy-core.rewrite-request` or `-response`. Of several with one target, the first
/// that matches counts.
#[derive(Clone, Debug)]
pub struct RewriteRule {
    /// The part of a request or response that it changes.
    pub target: RewriteTarget,
    /// What a value has to match.
    pub pattern: BytePattern,
    /// The parts of the new value, in order.
    pub replacement: Arc<[Piece]>,
}

/// A part of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text that is taken over as it is.
    Text(Box<str>),
    /// What a group of the pattern matched.
    Group(usize),
}

impl RewriteRule {
    /// The new value, if the pattern matches.
    fn apply(&self, value: &[u8]) -> Result<Option<Vec<u8>>, Undecided> {
        let Some(groups) = self.pattern.groups(value)? else { return Ok(None) };
        let mut rewritten = Vec::new();
        for piece in self.replacement.iter() {
            rewritten.extend_from_slice(match piece {
                Piece::Text(text) => text.as_bytes(),
                Piece::Group(n) => groups.get(*n).unwrap_or_default(),
            });
        }
        Ok(Some(rewritten))
    }

    /// The value after the first matching rule.
    ///
    /// # Errors
    /// A pattern ran into its limit.
    pub fn first<'r>(
        rules: impl IntoIterator<Item = &'r RewriteRule>,
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, Undecided> {
        let mut rules = rules.into_iter().map(|rule| rule.apply(value));
        rules.find(|applied| !matches!(applied, Ok(None))).unwrap_or(Ok(None))
    }
}

/// What a rewrite rule changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewriteTarget {
    /// The field of this name, in whatever case.
    Field(Arc<str>),
    /// `_uri`: the request's path and query.
    Uri,
    /// `_docroot`: the variable DOCUMENT_ROOT.
    Docroot,
    /// `_pathinfo`: the variable PATH_INFO (RFC 3875 section 4.1.5), from the URL's path.
    PathInfo,
    /// `_scriptname`: the variable SCRIPT_NAME (RFC 3875 section 4.1.13), from the URL's path.
    ScriptName,
}
