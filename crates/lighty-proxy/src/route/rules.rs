//! Routes of requests, and rules that change requests and responses.

use std::sync::Arc;

use lighty_config::{BytePattern, Strings, Undecided};

use crate::upstream::spec::{FastcgiRole, Protocol, UpstreamSpec};

pub use lighty_core::settings::StreamBody;

/// The routes of one variant of the settings.
#[derive(Clone, Debug)]
pub struct Routes {
    /// `proxy-core.*`: takes every request under these conditions.
    pub core: Option<Arc<Route>>,
    /// `fastcgi.server` and similar: by extension or prefix, in the order of the modules (fastcgi,
    /// scgi, ajp13, proxy, sockproxy, wstunnel), then as written.
    pub servers: Vec<Arc<Route>>,
    /// Fault in the configuration of these conditions. Most faults are found when the configuration
    /// is checked. A fault that only a combination of conditions causes is found here, and its
    /// requests get a 500.
    pub flaw: Option<Arc<str>>,
    /// True if some routes only authorize requests.
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

    /// Returns all routes, in order of evaluation.
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

/// A route of requests to an upstream, with the changes on the way.
#[derive(Clone, Debug)]
pub struct Route {
    /// Requests that it takes.
    pub takes: Takes,
    /// Earlier keys of the same directive whose routes need a local file. The first key that fits a
    /// path decides, so the route takes none of theirs before the file is known.
    pub yields_to: Vec<Takes>,
    /// Backends that serve them.
    pub upstream: Arc<UpstreamSpec>,
    /// True if the path must lead to a local file first (`check-local`).
    pub check_local: bool,
    /// Changes to the request.
    pub request: RequestRules,
    /// Changes to the response.
    pub response: ResponseRules,
    /// Rank in the backlog, 0 first (`proxy-core.backlog-class`).
    pub class: u8,
    /// True if each step is logged (`proxy-core.debug`, `fastcgi.debug` and similar).
    pub debug: bool,
    /// The server speaks WebSocket with the client (`wstunnel.server`). The route takes no other
    /// requests.
    pub websocket: Option<Arc<WebsocketRules>>,
}

impl Route {
    /// True if the route may take a request before its file is looked up.
    pub(crate) fn needs_no_file(&self, path: &[u8]) -> bool {
        let ends =
            |suffixes: &[Arc<str>]| suffixes.iter().any(|end| path.ends_with(end.as_bytes()));
        let fits = |takes: &Takes| match takes {
            Takes::All => true,
            Takes::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
            Takes::Suffix(suffixes) => ends(suffixes),
        };
        !self.check_local && !self.yields_to.iter().any(fits)
    }

    /// True if its backends only authorize requests.
    pub fn is_authorizer(&self) -> bool {
        matches!(self.upstream.protocol, Protocol::Fastcgi { role: FastcgiRole::Authorizer })
    }
}

/// Values of `wstunnel.*` other than hosts.
#[derive(Clone, Debug, Default)]
pub struct WebsocketRules {
    /// The backend's bytes are sent as binary frames, whatever subprotocol the client offers.
    pub is_binary: bool,
    /// Origins that may connect; empty: all.
    pub origins: Strings,
    /// Seconds between pings; 0: none.
    pub ping_s: u32,
}

/// Requests that a route matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Every request under its conditions.
    All,
    /// URLs with this prefix (a key that begins with `/`).
    Prefix(Arc<str>),
    /// Physical paths with these endings (all other keys, and `map-extensions`).
    Suffix(Arc<[Arc<str>]>),
}

/// Changes to requests for a backend.
#[derive(Clone, Debug, Default)]
pub struct RequestRules {
    /// The document root for CGI-like backends, if it differs from the server's (`docroot`).
    pub docroot: Option<Arc<str>>,
    /// Prefix to remove from the URL's path (`strip-request-uri`).
    pub strip_request_uri: Option<Arc<str>>,
    /// True if HTTP backends get path and query as the client sent them
    /// (`proxy-core.forward-path`).
    pub as_received: bool,
    /// Prefixes of the URL's path and their replacements (`map-urlpath`), in order.
    pub map_urlpath: Arc<[(Arc<str>, Arc<str>)]>,
    /// Hosts for the backend in place of the client's (`map-host-request`); `-` keeps the host.
    pub map_host: Arc<[(Arc<str>, Arc<str>)]>,
    /// The host for the backend is [`crate::upstream::spec::BackendSpec::http_host`].
    pub replace_host: bool,
    /// Exchanges `https` and `http` in the scheme that the backend sees, if the client's side
    /// differs (`https-remap`).
    pub https_remap: bool,
    /// True if CONNECT is forwarded (`connect`).
    pub connect: bool,
    /// True if a request's trailers are forwarded (`trailers`).
    pub trailers: bool,
    /// True if a client's half-close is propagated to the backend (`tcp-fin-propagate`).
    pub fin_propagate: bool,
    /// Elements of `Forwarded`, and whether `X-Forwarded-*` are sent too.
    pub forwarded: ForwardedRules,
    /// The script's path is `/`, and the whole URL path is path info (`fix-root-scriptname`).
    pub fix_root_scriptname: bool,
    /// `SCRIPT_FILENAME` has the form for broken backends (`broken-scriptfilename`).
    pub broken_scriptfilename: bool,
    /// True if a client may request an upgrade (`upgrade`).
    pub upgrade: bool,
    /// `proxy-core.rewrite-request`, in the order written.
    pub rewrite: Arc<[RewriteRule]>,
    /// Buffering of the request's body (`server.stream-request-body`).
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
    /// `host`: the client's `Host`.
    pub host: bool,
    /// `proto`: the scheme of the client's request.
    pub proto: bool,
    /// `remote_user`, an extension of lighttpd: the authenticated user.
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

/// Rules for a backend's response.
#[derive(Clone, Debug, Default)]
pub struct ResponseRules {
    /// Directories below which a backend may name files to send (`allow-x-sendfile` with
    /// `x-sendfile-docroot`): `None` = it may name none; an empty list = the document root.
    pub sendfile_roots: Option<Arc<[Arc<str>]>>,
    /// True if the lines of an HTTP backend's head must end with CR LF.
    pub strict_lines: bool,
    /// True if X-Rewrite-URI, X-Rewrite-Host and X-Rewrite-Backend are honoured.
    pub allow_x_rewrite: bool,
    /// `proxy-core.rewrite-response`, in the order written.
    pub rewrite: Arc<[RewriteRule]>,
    /// Hosts of the backend in Location and Set-Cookie, and their replacements for the client
    /// (`map-host-response`).
    pub map_host: Arc<[(Arc<str>, Arc<str>)]>,
    /// `map-urlpath` in reverse, for Location and Set-Cookie.
    pub map_urlpath: Arc<[(Arc<str>, Arc<str>)]>,
    /// Hosts to which `map_urlpath` is limited, if any (`map-urlpath-resp-host-include`).
    pub map_urlpath_hosts: Arc<[Arc<str>]>,
    /// Hosts to which it does not apply (`map-urlpath-resp-host-exclude`).
    pub map_urlpath_hosts_not: Arc<[Arc<str>]>,
    /// True if lighty's error pages replace the backend's (`server.error-intercept`).
    pub intercept_errors: bool,
    /// Buffering of the response's body (`server.stream-response-body`).
    pub stream: StreamBody,
}

/// A rule of `proxy-core.rewrite-request` or `-response`. Of several for one target, the first that
/// matches counts.
#[derive(Clone, Debug)]
pub struct RewriteRule {
    /// The part of a request or response that it changes.
    pub target: RewriteTarget,
    /// Pattern for the value.
    pub pattern: BytePattern,
    /// The parts of the new value, in order.
    pub replacement: Arc<[ReplacementPiece]>,
}

/// A part of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplacementPiece {
    /// Literal text.
    Text(Box<str>),
    /// Text matched by a group of the pattern.
    Group(usize),
}

impl RewriteRule {
    /// Returns the new value, if the pattern matches.
    fn apply(&self, value: &[u8]) -> Result<Option<Vec<u8>>, Undecided> {
        let Some(groups) = self.pattern.groups(value)? else { return Ok(None) };
        let mut rewritten = Vec::new();
        for piece in self.replacement.iter() {
            rewritten.extend_from_slice(match piece {
                ReplacementPiece::Text(text) => text.as_bytes(),
                ReplacementPiece::Group(n) => groups.get(*n).unwrap_or_default(),
            });
        }
        Ok(Some(rewritten))
    }

    /// Returns the value after the first matching rule.
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

/// The part of a message that a rewrite rule changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewriteTarget {
    /// The field of this name, in any case.
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
