//! What a backend is asked: the request as the route's rules shape it.

use std::net::{IpAddr, SocketAddr};

use lighty_core::Exchange;
use lighty_http::forwarded::{NewElement, Node, NodeName, push_element};
use lighty_http::hop_by_hop::{end_to_end, is_essential};
use lighty_http::{Fields, Known};
use lighty_wire::http1::BodyFraming;

use crate::mapping::Mapping;
use crate::script::Script;
use crate::settings::{ForwardedRules, RewriteRule, RewriteTarget, Route};

/// A request on its way to a backend.
pub(crate) struct Errand<'a> {
    pub ex: &'a Exchange,
    pub words: &'a Words,
    /// How the body is delimited.
    pub framing: BodyFraming,
    /// The client's wish for another protocol is passed on.
    pub upgrade: bool,
    /// The connection is to carry further requests.
    pub keep_alive: bool,
    pub force_http10: bool,
}

impl Errand<'_> {
    /// The address that the client connected to.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.ex.link.as_ref().and_then(|link| link.borrow().local_ip())
    }

    /// The client's own fields that go further than one hop and are not replaced.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (Option<Known>, &[u8], &[u8])> {
        let replaced = self.words;
        end_to_end(&self.ex.request.fields)
            .filter(|(known, name, _)| !replaced.replaces(*known, name))
    }
}

/// The parts of a request that differ from what the client sent. Reusable.
#[derive(Default)]
pub(crate) struct Words {
    /// Path and query, percent-encoded.
    pub target: Vec<u8>,
    pub host: Vec<u8>,
    /// Fields that are added; the client's of the same names are left out.
    pub extra: Fields,
    /// For backends that speak CGI's language.
    pub script: Script,
}

impl Words {
    /// The target's path and its query, without the question mark.
    pub(crate) fn split_target(&self) -> (&[u8], Option<&[u8]>) {
        match self.target.iter().position(|byte| *byte == b'?') {
            Some(at) => (&self.target[..at], Some(&self.target[at + 1..])),
            None => (&self.target, None),
        }
    }

    /// Forgets the request, keeps the buffers.
    pub(crate) fn clear(&mut self) {
        self.target.clear();
        self.host.clear();
        self.extra.clear();
        self.script.clear();
    }

    /// Takes the request as the route's rules have it, whichever backend it goes to.
    pub(crate) fn take(&mut self, ex: &Exchange, route: &Route) {
        self.clear();
        self.take_target(ex, route);
        self.forward(ex, &route.request.forwarded);
        self.rewrite_fields(ex, route);
        if route.upstream.protocol.is_like_cgi() {
            self.script.take(ex, route);
        }
    }

    /// Takes what depends on the backend: `own` is its own name, where that stands in for the
    /// client's.
    pub(crate) fn take_backend(&mut self, ex: &Exchange, route: &Route, own: Option<&str>) {
        self.host.clear();
        self.take_host(ex, route, own);
        if let Some(host) = first_match(&route.request.rewrite, b"host", &self.host) {
            self.host = host;
        }
        self.take_destination(ex, route);
    }

    fn replaces(&self, known: Option<Known>, name: &[u8]) -> bool {
        match known {
            // Interim answers are given hop by hop, and `Proxy` means nothing but harm to programs
            // that read it from their environment (CVE-2016-5385).
            Some(Known::Expect | Known::Proxy) => true,
            Some(known) => self.extra.contains(known),
            None => self.extra.get_named(name).is_some() || self.is_alias(name),
        }
    }

    /// Whether a name with underscores would be taken for that of a field that means something to
    /// us: programs that find their request's fields in an environment see no difference, so
    /// `X_Forwarded_For` would speak for a proxy and `Content_Length` for the framing.
    fn is_alias(&self, name: &[u8]) -> bool {
        if !name.contains(&b'_') {
            return false;
        }
        let dashed: Vec<u8> = name.iter().map(|b| if *b == b'_' { b'-' } else { *b }).collect();
        let known = Known::from_bytes(&dashed);
        known.is_some() || is_essential(known, &dashed) || self.extra.get_named(&dashed).is_some()
    }

    fn take_target(&mut self, ex: &Exchange, route: &Route) {
        let rules = &route.request;
        let mut target = &ex.request.target[..];
        if let Some(prefix) = &rules.strip_request_uri
            && let Some(rest) = target.strip_prefix(prefix.trim_end_matches('/').as_bytes())
            && matches!(rest.first(), None | Some(b'/' | b'?'))
        {
            target = rest;
        }
        let mapped = rules.map_urlpath.iter().find_map(|(from, to)| {
            target.strip_prefix(from.as_bytes()).map(|rest| (to.as_bytes(), rest))
        });
        if let Some((to, rest)) = mapped {
            self.target.extend_from_slice(to);
            target = rest;
        }
        if self.target.is_empty() && !target.starts_with(b"/") && target != b"*" {
            self.target.push(b'/');
        }
        self.target.extend_from_slice(target);
        let mut of_uri = rules.rewrite.iter().filter(|rule| rule.target == RewriteTarget::Uri);
        let rewritten = of_uri.find_map(|rule| rule.apply(&self.target));
        if let Some(rewritten) = rewritten.filter(|target| target.starts_with(b"/")) {
            self.target = rewritten;
        }
    }

    fn take_host(&mut self, ex: &Exchange, route: &Route, own: Option<&str>) {
        let asked = match own {
            Some(host) => host.as_bytes(),
            None => &ex.request.authority,
        };
        let named = |from: &str| from == "-" || from.as_bytes().eq_ignore_ascii_case(asked);
        let mapped = route.request.map_host.iter().find(|(from, _)| named(from));
        let told = match mapped {
            Some((_, to)) if &**to != "-" => to.as_bytes(),
            _ => asked,
        };
        self.host.extend_from_slice(told);
    }

    /// Who asked, by which way: RFC 7239 and what came before it.
    fn forward(&mut self, ex: &Exchange, rules: &ForwardedRules) {
        let request = &ex.request;
        if rules.x_forwarded {
            let client = request.peer_text.as_bytes();
            if !client.is_empty() {
                let chain = chained(&request.fields, Known::XForwardedFor, client);
                self.extra.push_known(Known::XForwardedFor, chain.as_deref().unwrap_or(client));
            }
            if !request.authority.is_empty() {
                self.extra.push(b"X-Host", &request.authority);
                self.extra.push_known(Known::XForwardedHost, &request.authority);
            }
            self.extra.push_known(Known::XForwardedProto, request.scheme);
        }
        if let Some(element) = forwarded_element(ex, rules) {
            let chain = chained(&request.fields, Known::Forwarded, &element);
            self.extra.push_known(Known::Forwarded, chain.as_deref().unwrap_or(&element));
        }
    }

    fn rewrite_fields(&mut self, ex: &Exchange, route: &Route) {
        let mut done: Vec<&[u8]> = Vec::new();
        for rule in route.request.rewrite.iter() {
            let RewriteTarget::Field(name) = &rule.target else { continue };
            let name = name.as_bytes();
            if name.eq_ignore_ascii_case(b"host") || done.contains(&name) {
                continue;
            }
            let value = self.extra.get_named(name).or_else(|| ex.request.fields.get_named(name));
            if let Some(rewritten) = value.and_then(|value| rule.apply(value)) {
                self.extra.set_named(name, &rewritten);
                done.push(name);
            }
        }
    }

    /// Where a resource is to be copied or moved to (RFC 4918 section 10.3), in the backend's words.
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

/// What the first rule that matches makes of a field's value.
fn first_match(rules: &[RewriteRule], name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let is_for = |rule: &&RewriteRule| match &rule.target {
        RewriteTarget::Field(field) => field.as_bytes().eq_ignore_ascii_case(name),
        _ => false,
    };
    rules.iter().filter(is_for).find_map(|rule| rule.apply(value))
}

/// What earlier proxies said, and then `last`; `None` where they said nothing.
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
    // One on every address does not tell on which of them the client came.
    let listener = request.local_socket.parse::<SocketAddr>().ok();
    let listener = listener.filter(|at| !at.ip().is_unspecified());
    let element = NewElement {
        for_node: rules.for_.then(|| request.remote_ip().map_or(unknown, Node::from_ip)),
        by: rules.by.then(|| listener.map_or(unknown, |at| Node::from_ip(at.ip()))),
        host: (rules.host && !request.authority.is_empty()).then_some(&*request.authority),
        proto: rules.proto.then_some(request.scheme.as_bytes()),
    };
    let mut written = Vec::new();
    // A host that cannot be written was refused with its request.
    push_element(&element, &mut written).ok()?;
    (!written.is_empty()).then_some(written)
}
