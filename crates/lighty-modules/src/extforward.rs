//! `mod_extforward`: takes the client's address from the header fields of trusted proxies.
//!
//! `X-Forwarded-For` and `Forwarded` are read from right to left, up to the first address that is
//! not a trusted proxy. That address becomes the client's address for conditions, logs, limits and
//! backends. If a proxy hides its client's address, the client never gets the proxy's address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{
    CompileCtx, Config, Directive, Kind, Reject, Scope, Strings, Value, parse_bool,
};
use lighty_core::module::{Hooks, Module, Needs, Step, Traits};
use lighty_core::settings::cidr::Cidr;
use lighty_core::{Exchange, Extension, Fault, Settings, extension_slot, module_settings};
use lighty_http::forwarded::{
    Element, ForwardedOrigin, WalkEnd, by_forwarded, by_x_forwarded_for, element_from_right, walk,
};
use lighty_http::{Fields, Known, host};
use lighty_io::transport::Peer;

/// Placeholder for the address of a client that a proxy hides. No host has this address.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct ExtforwardSettings {
    forwarders: Arc<Forwarders>,
    headers: Strings,
    params: ForwardedParams,
    hap_proxy: bool,
    hap_proxy_verify: bool,
}

#[derive(Clone, Debug, Default)]
struct Forwarders {
    everybody: bool,
    /// Networks in configuration order. The first one that contains an address decides.
    nets: Vec<(Cidr, bool)>,
}

/// Which parts of `Forwarded` count, besides `for`.
#[derive(Clone, Copy, Debug, Default)]
struct ForwardedParams {
    host: bool,
    proto: bool,
    remote_user: bool,
}

impl Default for ExtforwardSettings {
    fn default() -> Self {
        Self {
            forwarders: Arc::default(),
            headers: [Arc::from("X-Forwarded-For"), Arc::from("Forwarded-For")].into(),
            params: ForwardedParams { host: false, proto: true, remote_user: false },
            hap_proxy: false,
            hap_proxy_verify: false,
        }
    }
}
module_settings!(ExtforwardSettings);

impl ExtforwardSettings {
    /// True if connections begin with a PROXY protocol header.
    pub fn expects_header(&self) -> bool {
        self.hap_proxy
    }

    /// True if a client certificate in a PROXY protocol header authenticates the user.
    pub fn takes_certificates(&self) -> bool {
        self.hap_proxy_verify
    }

    /// True if this peer is trusted to report its client's address.
    pub fn trusts(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Inet(address) => self.forwarders.trusts(address.ip()),
            Peer::Unix => self.forwarders.everybody,
        }
    }
}

impl Forwarders {
    fn trusts(&self, address: IpAddr) -> bool {
        let listed = self.nets.iter().find(|(net, _)| net.contains(address));
        listed.map_or(self.everybody, |(_, trusted)| *trusted)
    }

    /// True if an address that a trusted proxy reports is a trusted proxy, too. `all` applies only
    /// to direct peers: otherwise any address that a client writes into the field would be trusted.
    fn lists(&self, address: IpAddr) -> bool {
        self.nets.iter().find(|(net, _)| net.contains(address)).is_some_and(|(_, trusted)| *trusted)
    }
}

/// The module.
pub struct Extforward;

fn own(s: &mut Settings) -> &mut ExtforwardSettings {
    s.module_mut()
}

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_extforward").since("1.4")
}

/// Connections may begin with a PROXY protocol header.
const HAP_PROXY: &str = "extforward.hap-PROXY";

/// Set after the client's address was taken from the fields of trusted proxies, if they report one.
#[derive(Clone, Copy, Default)]
struct ClientKnown(bool);

impl Extension for ClientKnown {
    extension_slot!();

    fn inherited(&self) -> Option<Self> {
        Some(*self)
    }
}

impl Module for Extforward {
    fn name(&self) -> &'static str {
        "mod_extforward"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { raw_url: true, ..Hooks::default() },
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn needs(&self, config: &Config<Settings>) -> Needs {
        Needs { proxy_header: config.is_set(HAP_PROXY), ..Needs::default() }
    }

    fn directives() -> Vec<Directive<Settings>> {
        let mut rows = fields();
        rows.extend(preface());
        rows
    }

    fn raw_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        // A restarted request already has the client's address.
        if std::mem::replace(&mut ex.ext_mut::<ClientKnown>().0, true) {
            return Step::Next;
        }
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<ExtforwardSettings>();
        if !own.trusts(&ex.request.peer) {
            return Step::Next;
        }
        let Some((header, origin)) = find_origin(ex, own) else {
            // The proxy names no client: its own address stands for one.
            ex.request.proxy_ip = ex.request.neighbor_ip();
            return Step::Next;
        };
        if !matches!(origin.end, WalkEnd::Client | WalkEnd::Exhausted | WalkEnd::Hidden) {
            ex.fail_saying(Fault::ForwarderIllegible, header);
            return Step::Answered;
        }
        take_origin(ex, &origin);
        match Known::from_bytes(header.as_bytes()) == Some(Known::Forwarded) {
            true => take_element(ex, own.params, origin.hops),
            false => take_proto(ex),
        }
        ex.resolve_settings();
        Step::Next
    }
}

fn fields() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::parsed("extforward.forwarder", Kind::Map, parse_forwarders, |s, v| {
            own(s).forwarders = Arc::clone(v);
        }))
        .default("()")
        .doc(
            "Trusted proxies: addresses, networks, or `all` for every other peer, each with \
             `trust` or another value; the first matching entry decides. Unix sockets match `all`. \
             `all` applies to the direct peer only: in a list of proxies, an address without an \
             entry of its own is the client.",
        )
        .example("extforward.forwarder = ( \"10.0.0.0/8\" => \"trust\", \"::1\" => \"trust\" )"),
        row(Directive::strings("extforward.headers", |s, v| {
            // An empty list selects the default, as in lighttpd.
            own(s).headers = if v.is_empty() { ExtforwardSettings::default().headers } else { v };
        }))
        .default("( \"X-Forwarded-For\", \"Forwarded-For\" )")
        .doc(
            "Fields in which trusted proxies name their client; the first that a request has is \
             read: `Forwarded` (RFC 7239), or a list of addresses to which each proxy adds, or one \
             address. With one of those, `X-Forwarded-Proto` says whether the client came by \
             https. A client hidden by its proxy is `0.0.0.0`, and `unknown` in logs; an invalid \
             field is answered 400.",
        )
        .example("extforward.headers = ( \"Forwarded\" )"),
        row(Directive::parsed("extforward.params", Kind::Map, parse_params, |s, v| {
            own(s).params = *v;
        }))
        .default("( \"proto\" => \"enable\" )")
        .doc(
            "Parts of `Forwarded` that count: `proto`, `host` (as the client requested it), \
             `remote_user` (see `auth.extern-authn`). `for` always does; `by` is accepted and \
             changes nothing.",
        )
        .example("extforward.params = ( \"host\" => \"enable\", \"proto\" => \"enable\" )"),
    ]
}

fn preface() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::bool(HAP_PROXY, |s, on| own(s).hap_proxy = on))
            .scope(Scope::Socket)
            .default("disable")
            .doc(
                "Connections begin with a header of the PROXY protocol, version 1 or 2, that tells \
                 the client's address. A connection is closed if `extforward.forwarder` does not \
                 trust its peer, if the header is missing or longer than 4096 bytes, or if it does \
                 not arrive within `server.max-head-time`.",
            )
            .example(
                "$SERVER[\"socket\"] == \":8080\" {\n    extforward.hap-PROXY = \"enable\"\n}",
            ),
        row(Directive::bool("extforward.hap-PROXY-ssl-client-verify", |s, on| {
            own(s).hap_proxy_verify = on;
        }))
        .scope(Scope::Socket)
        .default("disable")
        .doc(
            "Whether a verified certificate of the client, of which a header of the PROXY protocol \
             tells, makes its common name the user (see `auth.extern-authn`).",
        )
        .example("extforward.hap-PROXY-ssl-client-verify = \"enable\""),
    ]
}

fn parse_forwarders(value: &Value, ctx: &CompileCtx) -> Result<Arc<Forwarders>, Reject> {
    let form = "write `( \"10.0.0.0/8\" => \"trust\" )`";
    let pairs = value.as_pairs().ok_or_else(|| Reject::new("must be a map").help(form))?;
    let mut forwarders = Forwarders::default();
    for (name, item) in pairs {
        let trusted = item.value.as_str() == Some("trust");
        if name == "all" {
            forwarders.everybody = trusted;
            continue;
        }
        let net = Cidr::parse(name).ok_or_else(|| {
            let text = format!("\"{name}\" is neither an address nor a network");
            Reject::new(text).help("names are not looked up").at(item.span)
        });
        // Names are ignored, as in lighttpd, where a name never equals an address.
        forwarders.nets.extend(ctx.or_skip(net).map(|net| (net, trusted)));
    }
    Ok(Arc::new(forwarders))
}

fn parse_params(value: &Value, _: &CompileCtx) -> Result<ForwardedParams, Reject> {
    let form = "write `( \"host\" => \"enable\" )`";
    let pairs = value.as_pairs().ok_or_else(|| Reject::new("must be a map").help(form))?;
    let mut params = ForwardedParams::default();
    for (name, item) in pairs {
        let on = parse_bool(&item.value).map_err(|reject| reject.at(item.span))?;
        match name {
            "host" => params.host = on,
            "proto" => params.proto = on,
            "remote_user" => params.remote_user = on,
            "for" | "by" => {}
            other => {
                let known = ["for", "by", "host", "proto", "remote_user"];
                let reject = Reject::new(format!("has an unknown part \"{other}\"")).at(item.span);
                return Err(reject.did_you_mean(other, known));
            }
        }
    }
    Ok(params)
}

/// Returns the name of the field that reports the client, and the origin found in it.
fn find_origin<'a>(
    ex: &Exchange,
    own: &'a ExtforwardSettings,
) -> Option<(&'a str, ForwardedOrigin)> {
    let fields = &ex.request.fields;
    let header = own.headers.iter().find(|name| fields.get_named(name.as_bytes()).is_some())?;
    let peer = match ex.request.peer {
        Peer::Inet(address) => address.ip(),
        Peer::Unix => NOBODY,
    };
    // The peer is already trusted, and a unix socket has no address to look up.
    let mut first = true;
    let trusted = |address| std::mem::take(&mut first) || own.forwarders.lists(address);
    let origin = match Known::from_bytes(header.as_bytes()) {
        Some(Known::Forwarded) => by_forwarded(peer, fields, trusted),
        Some(Known::XForwardedFor) => by_x_forwarded_for(peer, fields, trusted),
        _ => by_other(peer, fields, header, trusted),
    };
    // A field without entries counts as missing.
    (origin.hops > 0 || origin.end != WalkEnd::Exhausted).then_some((&**header, origin))
}

/// Evaluates a field with another name and the syntax of `X-Forwarded-For`.
fn by_other(
    peer: IpAddr,
    fields: &Fields,
    name: &str,
    trusted: impl FnMut(IpAddr) -> bool,
) -> ForwardedOrigin {
    let mut same = Fields::default();
    for (known, value) in fields.iter() {
        if known.eq_ignore_ascii_case(name.as_bytes()) {
            same.push_known(Known::XForwardedFor, value);
        }
    }
    if same.is_empty() {
        return walk::walk(peer, std::iter::empty(), trusted);
    }
    by_x_forwarded_for(peer, &same, trusted)
}

fn take_origin(ex: &mut Exchange, origin: &ForwardedOrigin) {
    let (address, text) = match origin.end {
        WalkEnd::Hidden => (NOBODY, "unknown".to_owned()),
        _ => (origin.addr, origin.addr.to_string()),
    };
    ex.request.proxy_ip = ex.request.neighbor_ip();
    ex.request.peer = Peer::Inet(SocketAddr::new(address, origin.port.unwrap_or(0)));
    ex.request.peer_text = text.into();
}

/// Applies the other parameters that the outermost trusted proxy reports in `Forwarded`.
fn take_element(ex: &mut Exchange, params: ForwardedParams, hops: usize) {
    let Some(nth) = hops.checked_sub(1) else { return };
    let Some(element) = element_from_right(&ex.request.fields, nth) else { return };
    let Element { host, proto, remote_user, .. } = element;
    let text = |value: Option<lighty_http::forwarded::ForwardedValue<'_>>, wanted: bool| {
        value.filter(|_| wanted).map(|value| value.text().into_owned())
    };
    let (host, proto) = (text(host, params.host), text(proto, params.proto));
    let user = text(remote_user, params.remote_user);
    if let Some(proto) = proto {
        take_scheme(ex, &proto);
    }
    if let Some(host) = host {
        take_host(ex, &host);
    }
    if let Some(user) = user {
        ex.environment.set(b"REMOTE_USER", &user);
        ex.request.remote_user = user;
    }
}

fn take_proto(ex: &mut Exchange) {
    let proto = ex.request.fields.get(Known::XForwardedProto).map(<[u8]>::to_vec);
    if let Some(proto) = proto {
        take_scheme(ex, &proto);
    }
}

fn take_scheme(ex: &mut Exchange, proto: &[u8]) {
    ex.request.scheme = match proto {
        _ if proto.eq_ignore_ascii_case(b"https") => "https",
        _ if proto.eq_ignore_ascii_case(b"http") => "http",
        _ => return,
    };
}

/// Sets the host that the client requested, with the same checks as for the `Host` field.
fn take_host(ex: &mut Exchange, value: &[u8]) {
    let opts = &ex.settings.server.parse;
    let authority = host::normalized_authority(value, ex.request.scheme, opts);
    let Ok(authority) = authority else { return };
    ex.request.fields.set(Known::Host, &authority);
    ex.request.authority = authority;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_that_fits_decides() {
        let net = |text| Cidr::parse(text).expect(text);
        let forwarders = Forwarders {
            everybody: true,
            nets: vec![(net("10.0.0.1"), false), (net("10.0.0.0/8"), true), (net("::1"), false)],
        };
        let trusts = |text: &str| forwarders.trusts(text.parse().expect("an address"));
        assert!(!trusts("10.0.0.1") && trusts("10.0.0.2") && !trusts("::1") && trusts("::2"));
        let nobody = ExtforwardSettings::default();
        assert!(!nobody.trusts(&Peer::Unix));
    }

    #[test]
    fn fields_of_other_names_are_lists_too() {
        let mut fields = Fields::default();
        fields.push(b"X-Real-Client", b"192.0.2.9, 10.0.0.1");
        let peer = "10.0.0.2".parse().expect("an address");
        let net = Cidr::parse("10.0.0.0/8").expect("a network");
        let origin = by_other(peer, &fields, "x-real-client", |ip| net.contains(ip));
        assert_eq!(
            (origin.addr.to_string(), origin.end),
            ("192.0.2.9".to_owned(), WalkEnd::Client)
        );
        let origin = by_other(peer, &fields, "other", |ip| net.contains(ip));
        assert_eq!((origin.hops, origin.end), (0, WalkEnd::Exhausted));
    }
}
