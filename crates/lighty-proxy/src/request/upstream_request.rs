//! The request as sent to a backend, changed by the route's rules.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};

use lighty_config::Undecided;
use lighty_core::{Exchange, Fault, FaultReport};
use lighty_http::forwarded::{NewElement, Node, NodeName, push_element};
use lighty_http::hop_by_hop::{end_to_end, is_essential};
use lighty_http::{Fields, Known, uri};
use lighty_io::connect::Target;
use lighty_wire::http1::BodyFraming;

use crate::request::script::ScriptPath;
use crate::response::mapping::{Mapping, has_dot_segment, mapped};
use crate::route::rules::{ForwardedRules, RewriteRule, RewriteTarget, Route};
use crate::upstream::address::AddressSpec;

/// Returns the host for backends: the configuration's, or the client's.
fn upstream_host(ex: &Exchange) -> &[u8] {
    let set = ex.request.fields.get(Known::Host).filter(|_| ex.request.sets_host);
    set.unwrap_or(&ex.request.authority)
}

/// A request on its way to a backend.
pub(crate) struct UpstreamRequest<'a> {
    pub ex: &'a Exchange,
    pub rewritten: &'a RewrittenHead,
    /// Framing of the body.
    pub framing: BodyFraming,
    /// The client's upgrade is forwarded.
    pub upgrade: bool,
    /// The connection is kept alive.
    pub keep_alive: bool,
    pub force_http10: bool,
    /// Lines of the response head must end with CR LF.
    pub strict_lines: bool,
}

impl UpstreamRequest<'_> {
    /// Returns the address that the client connected to.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.ex.client.as_ref().and_then(|client| client.borrow().local_ip())
    }

    /// Returns the client's own end-to-end fields, except replaced ones.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (Option<Known>, &[u8], &[u8])> {
        let replaced = self.rewritten;
        end_to_end(&self.ex.request.fields)
            .filter(|(known, name, _)| !replaced.replaces(*known, name))
    }
}

/// The parts of a request that differ from the client's. Reusable.
#[derive(Default)]
pub(crate) struct RewrittenHead {
    /// Path and query, percent-encoded.
    pub target: Vec<u8>,
    /// Bytes removed from `REQUEST_URI` (`strip-request-uri`).
    uri_stripped: usize,
    /// The fields withheld from the program were counted: once, whatever the number of attempts.
    pub counted_colliding: Cell<bool>,
    pub host: Vec<u8>,
    /// Added fields. The client's fields of the same names are left out.
    pub extra: Fields,
    /// The script, for backends with a CGI-like protocol.
    pub script: ScriptPath,
}

impl RewrittenHead {
    /// Returns the target's path and its query, without the question mark.
    pub(crate) fn split_target(&self) -> (&[u8], Option<&[u8]>) {
        match self.target.iter().position(|byte| *byte == b'?') {
            Some(at) => (&self.target[..at], Some(&self.target[at + 1..])),
            None => (&self.target, None),
        }
    }

    /// Returns `REQUEST_URI` for programs.
    pub(crate) fn request_uri<'a>(&self, ex: &'a Exchange) -> &'a [u8] {
        ex.request.target_raw.get(self.uri_stripped..).unwrap_or_default()
    }

    /// Clears the request, keeps the buffers.
    pub(crate) fn clear(&mut self) {
        self.target.clear();
        self.uri_stripped = 0;
        self.counted_colliding.set(false);
        self.host.clear();
        self.extra.clear();
        self.script.clear();
    }

    /// Applies the route's rules to the request, whichever backend it goes to.
    ///
    /// # Errors
    /// A path made by the rules would lead out of their target: the access rules of the requested
    /// URL do not cover that place. Or a pattern ran into its limit.
    pub(crate) fn take(&mut self, ex: &Exchange, route: &Route) -> Result<(), FaultReport> {
        self.clear();
        self.take_target(ex, route)?;
        check_destination(ex, route)?;
        self.forward(ex, &route.request.forwarded);
        self.join_cookies(&ex.request.fields);
        self.rewrite_fields(ex, route)?;
        if route.upstream.protocol.is_like_cgi() {
            self.script.take(ex, route)?;
        }
        Ok(())
    }

    /// Adds the parts that depend on the backend's address.
    ///
    /// # Errors
    /// A pattern ran into its limit.
    pub(crate) fn take_backend(
        &mut self,
        ex: &Exchange,
        route: &Route,
        backend: &AddressSpec,
    ) -> Result<(), Undecided> {
        self.host.clear();
        self.take_host(ex, route, backend.http_host.as_deref());
        if self.host.is_empty() {
            // An HTTP/1.0 client may omit the host; lighty speaks 1.1 with the backend, which
            // requires it.
            self.host.extend_from_slice(own_name(backend).as_bytes());
        }
        if let Some(host) = first_match(&route.request.rewrite, b"host", &self.host)? {
            self.host = host;
        }
        self.take_destination(ex, route);
        Ok(())
    }

    fn replaces(&self, known: Option<Known>, name: &[u8]) -> bool {
        match known {
            // `Expect` is handled hop by hop, and `Proxy` only harms programs that read it from
            // their environment (CVE-2016-5385).
            Some(Known::Expect | Known::Proxy) => true,
            Some(known) => self.extra.contains(known),
            None => self.extra.get_named(name).is_some() || self.is_alias(name),
        }
    }

    /// Returns true if a name with underscores and the like could pass for a field that matters:
    /// programs that read header fields from their environment cannot tell them apart, so
    /// `X_Forwarded_For` would pass for a proxy's field and `Content_Length` for the framing.
    fn is_alias(&self, name: &[u8]) -> bool {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        if name.iter().all(is_plain) {
            return false;
        }
        let dashed: Vec<u8> = name.iter().map(|b| if is_plain(b) { *b } else { b'-' }).collect();
        let known = Known::from_bytes(&dashed);
        known.is_some() || is_essential(known, &dashed) || self.extra.get_named(&dashed).is_some()
    }

    fn take_target(&mut self, ex: &Exchange, route: &Route) -> Result<(), FaultReport> {
        let rules = &route.request;
        let mut target = match rules.as_received {
            true => as_received(ex, route),
            false => &ex.request.target,
        };
        if let Some(prefix) = &rules.strip_request_uri {
            let prefix = prefix.trim_end_matches('/').as_bytes();
            if route.upstream.protocol.is_like_cgi() {
                let rest = ex.request.target_raw.strip_prefix(prefix);
                let is_whole = rest.is_some_and(|rest| rest.starts_with(b"/"));
                self.uri_stripped = if is_whole { prefix.len() } else { 0 };
            } else if let Some(rest) = target.strip_prefix(prefix)
                && matches!(rest.first(), None | Some(b'/' | b'?'))
            {
                target = rest;
            }
        }
        let mut paths = rules.map_urlpath.iter();
        let by_map = paths.find_map(|(from, to)| mapped(from.as_bytes(), to.as_bytes(), target));
        if target.is_empty() || !(target.starts_with(b"/") || target == b"*") {
            self.target.push(b'/');
        }
        self.target.extend_from_slice(target);
        let is_mapped = by_map.is_some();
        self.target = by_map.unwrap_or_else(|| std::mem::take(&mut self.target));
        let mut of_uri = rules.rewrite.iter().filter(|rule| rule.target == RewriteTarget::Uri);
        let rewritten = RewriteRule::first(&mut of_uri, &self.target)?;
        let rewritten = rewritten.filter(|target| target.starts_with(b"/"));
        let is_changed = is_mapped || rewritten.is_some();
        self.target = rewritten.unwrap_or_else(|| std::mem::take(&mut self.target));
        match is_changed && has_dot_segment(self.split_target().0) {
            true => Err(mapped_out(format!(
                "{} would become {}",
                ex.request.target.escape_ascii(),
                self.target.escape_ascii()
            ))),
            false => Ok(()),
        }
    }

    fn take_host(&mut self, ex: &Exchange, route: &Route, own: Option<&str>) {
        let requested = match own {
            Some(host) => host.as_bytes(),
            None => upstream_host(ex),
        };
        let named = |from: &str| from == "-" || from.as_bytes().eq_ignore_ascii_case(requested);
        let mapped = route.request.map_host.iter().find(|(from, _)| named(from));
        let sent_host = match mapped {
            Some((_, to)) if &**to != "-" => to.as_bytes(),
            _ => requested,
        };
        self.host.extend_from_slice(sent_host);
    }

    /// Adds the client's address and path: RFC 7239 and its predecessors.
    fn forward(&mut self, ex: &Exchange, rules: &ForwardedRules) {
        let request = &ex.request;
        if rules.x_forwarded {
            // The chain already has a client that a trusted proxy named. A unix-socket client has
            // no address.
            if let Some(client) = request.neighbor_text() {
                let client = client.as_bytes();
                let chain = chained(&request.fields, Known::XForwardedFor, client);
                self.extra.push_known(Known::XForwardedFor, chain.as_deref().unwrap_or(client));
            }
            let host = upstream_host(ex);
            if !host.is_empty() {
                self.extra.push(b"X-Host", host);
                self.extra.push_known(Known::XForwardedHost, host);
            }
            self.extra.push_known(Known::XForwardedProto, request.scheme);
        }
        if let Some(element) = forwarded_element(ex, rules) {
            let chain = chained(&request.fields, Known::Forwarded, &element);
            self.extra.push_known(Known::Forwarded, chain.as_deref().unwrap_or(&element));
        }
    }

    /// An HTTP/1 server expects one `Cookie` (RFC 6265 section 5.4), and many read only one.
    fn join_cookies(&mut self, fields: &Fields) {
        if fields.get_all(Known::Cookie).nth(1).is_some() {
            self.extra.push_known(Known::Cookie, fields.joined(b"Cookie"));
        }
    }

    fn rewrite_fields(&mut self, ex: &Exchange, route: &Route) -> Result<(), Undecided> {
        let mut done: Vec<&[u8]> = Vec::new();
        for rule in route.request.rewrite.iter() {
            let RewriteTarget::Field(name) = &rule.target else { continue };
            let name = name.as_bytes();
            if name.eq_ignore_ascii_case(b"host") || done.contains(&name) {
                continue;
            }
            let value = self.extra.get_named(name).or_else(|| ex.request.fields.get_named(name));
            let rewritten = value.map_or(Ok(None), |value| RewriteRule::first([rule], value))?;
            if let Some(rewritten) = rewritten {
                self.extra.set_named(name, &rewritten);
                done.push(name);
            }
        }
        Ok(())
    }

    /// Maps the target of COPY and MOVE (RFC 4918 section 10.3) to the backend's URLs.
    fn take_destination(&mut self, ex: &Exchange, route: &Route) {
        let Some(destination) = ex.request.fields.get(Known::Destination) else { return };
        let request = &ex.request;
        let is_https = request.scheme == "https";
        let mapping = Mapping::of_request(route, &request.authority, &self.host, is_https);
        if let Some(mapped) = mapping.url(destination) {
            self.extra.set(Known::Destination, mapped);
        }
    }
}

/// Refuses a `Destination` that the path rules map outside of their target.
fn check_destination(ex: &Exchange, route: &Route) -> Result<(), FaultReport> {
    if route.request.map_urlpath.is_empty() {
        return Ok(());
    }
    let Some(destination) = ex.request.fields.get(Known::Destination) else { return Ok(()) };
    let host = &ex.request.authority;
    let mapping = Mapping::of_request(route, host, host, ex.request.scheme == "https");
    match mapping.url(destination) {
        Some(url) if has_dot_segment(crate::response::mapping::path_of(&url)) => {
            let (from, to) = (destination.escape_ascii(), url.escape_ascii());
            Err(mapped_out(format!("Destination {from} would become {to}")))
        }
        _ => Ok(()),
    }
}

/// Returns path and query as the client sent them, unless they have been rewritten, or a backend
/// may interpret them differently from the access checks.
fn as_received<'a>(ex: &'a Exchange, route: &Route) -> &'a [u8] {
    let (target, raw) = (&ex.request.target[..], &ex.request.target_raw[..]);
    let path_end = raw.iter().position(|byte| *byte == b'?').unwrap_or(raw.len());
    let is_plain = raw.starts_with(b"/") && raw.iter().all(|b| b.is_ascii_graphic() && *b != b'#');
    let mut normalised = Vec::new();
    let is_it = is_plain
        && !has_hidden_dots(&raw[..path_end])
        && uri::normalise(raw, &ex.settings.server.parse, &mut normalised).is_ok()
        && normalised == target;
    let rules = &route.request;
    let is_mapped = |path: &[u8]| {
        let mut pairs = rules.map_urlpath.iter();
        pairs.position(|(from, to)| mapped(from.as_bytes(), to.as_bytes(), path).is_some())
    };
    let is_stripped = |path: &[u8]| {
        let prefix = rules.strip_request_uri.as_ref();
        prefix.is_some_and(|prefix| path.starts_with(prefix.trim_end_matches('/').as_bytes()))
    };
    let is_alike =
        || is_mapped(raw) == is_mapped(target) && is_stripped(raw) == is_stripped(target);
    if is_it && is_alike() { raw } else { target }
}

/// Returns true if some backend may find a `.` or `..` segment in an encoded path, for example
/// after an encoded slash or a backslash.
fn has_hidden_dots(path: &[u8]) -> bool {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, behind @ ..] = rest {
        (rest, _) = match rest {
            [b'%', high, low, behind @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                let value = hex(*high).unwrap_or(0) << 4 | hex(*low).unwrap_or(0);
                (behind, decoded.push(value))
            }
            _ => (behind, decoded.push(*byte)),
        };
    }
    let mut segments = decoded.split(|byte| matches!(byte, b'/' | b'\\'));
    segments.any(|segment| matches!(segment, b"." | b".."))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Returns the backend's name in the configuration, as a host.
#[cold]
fn own_name(backend: &AddressSpec) -> Cow<'_, str> {
    let Target::Tcp(address) = &backend.target else { return "localhost".into() };
    // The text after a slash is the address that a name was resolved to.
    let written = backend.text.split('/').next().unwrap_or_default();
    let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    match !written.is_empty() && !written.starts_with("srv:") && written.bytes().all(is_host) {
        true => written.into(),
        false => address.to_string().into(),
    }
}

fn mapped_out(message: String) -> FaultReport {
    FaultReport::new(Fault::MappedOut, message)
}

/// Returns a field's value as changed by the first matching rule.
fn first_match(
    rules: &[RewriteRule],
    name: &[u8],
    value: &[u8],
) -> Result<Option<Vec<u8>>, Undecided> {
    let is_for = |rule: &&RewriteRule| match &rule.target {
        RewriteTarget::Field(field) => field.as_bytes().eq_ignore_ascii_case(name),
        _ => false,
    };
    RewriteRule::first(rules.iter().filter(is_for), value)
}

/// Returns the chain of earlier proxies followed by `last`; `None` without earlier proxies.
fn chained(fields: &Fields, name: Known, last: &[u8]) -> Option<Vec<u8>> {
    let mut chain = Vec::new();
    for value in fields.get_all(name).filter(|value| !value.is_empty()) {
        chain.extend_from_slice(value);
        chain.extend_from_slice(b", ");
    }
    (!chain.is_empty()).then(|| {
        chain.extend_from_slice(last);
        chain
    })
}

fn forwarded_element(ex: &Exchange, rules: &ForwardedRules) -> Option<Vec<u8>> {
    if !(rules.for_ || rules.by || rules.host || rules.proto) {
        return None;
    }
    let request = &ex.request;
    let unknown = Node { name: NodeName::Unknown, port: None };
    // A wildcard listener does not show the client's destination address.
    let listener = request.local_socket.parse::<SocketAddr>().ok();
    let listener = listener.filter(|at| !at.ip().is_unspecified());
    let element = NewElement {
        for_node: rules.for_.then(|| request.neighbor_ip().map_or(unknown, Node::from_ip)),
        by: rules.by.then(|| listener.map_or(unknown, |at| Node::from_ip(at.ip()))),
        host: (rules.host && !request.authority.is_empty()).then_some(&*request.authority),
        proto: rules.proto.then_some(request.scheme.as_bytes()),
    };
    let mut written = Vec::new();
    // A request with a host that cannot be written was refused earlier.
    push_element(&element, &mut written).ok()?;
    (!written.is_empty()).then_some(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_called_as_the_configuration_calls_it() {
        let spec = |text: &str, target: Target| AddressSpec {
            text: text.into(),
            label: None,
            target,
            program: None,
            weight: 1,
            backup: false,
            connections_max: 1,
            http_host: None,
            tls: None,
        };
        let tcp = || Target::Tcp("10.0.0.1:80".parse().expect("an address"));
        let socket = || Target::unix(std::path::Path::new("/run/app.sock"));
        for (text, target, wanted) in [
            ("10.0.0.1:80", tcp(), "10.0.0.1:80"),
            ("app.internal:80/10.0.0.1:80", tcp(), "app.internal:80"),
            ("app.internal", tcp(), "app.internal"),
            ("srv:_http._tcp.internal/10.0.0.1:80", tcp(), "10.0.0.1:80"),
            ("[::1]:80", tcp(), "[::1]:80"),
            ("", tcp(), "10.0.0.1:80"),
            ("unix:/run/app.sock", socket(), "localhost"),
        ] {
            assert_eq!(own_name(&spec(text, target)), wanted, "{text}");
        }
    }
}
