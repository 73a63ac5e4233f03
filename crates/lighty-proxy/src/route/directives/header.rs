//! `proxy.header`, `proxy.forwarded` and `proxy.replace-http-host` of 1.4.

use std::sync::Arc;

use lighty_config::{CompileCtx, Kind, Pairs, Reject, Value, parse_bool, parse_map, parse_strings};
use lighty_core::Settings;
use lighty_core::settings::Directive;

use super::of;
use super::parts::HeaderRules;
use super::rules::forwarded;
use super::values::{keyed, unknown_key, within};

pub(super) fn rows() -> Vec<Directive> {
    let rows = [
        Directive::parsed("proxy.header", Kind::Array, header, |s: &mut Settings, rules| {
            of(s).header.header = Arc::clone(rules);
        })
        .default("()")
        .doc(HEADER_DOC)
        .example(
            "proxy.header = ( \"map-urlpath\" => ( \"/app/\" => \"/\" ), \"upgrade\" => \"enable\" )",
        ),
        Directive::parsed("proxy.forwarded", Kind::Array, forwarded, |s: &mut Settings, rules| {
            of(s).header.forwarded = rules.clone();
        })
        .default("()")
        .doc("Like `proxy-core.forwarded`, for the hosts of `proxy.server`.")
        .example("proxy.forwarded = ( \"for\" => 1, \"proto\" => 1 )"),
        Directive::bool("proxy.replace-http-host", |s, on| of(s).header.replace_http_host = on)
            .default("disable")
            .doc(
                "Sends a host of `proxy.server` its own name as `Host`, in place of the client's: \
                 the name before the list (`\"www.internal\" => ( \"host\" => … )`). Without a \
                 name, hosts with `https://` get their `host`, and others the client's `Host`.",
            )
            .example("proxy.replace-http-host = \"enable\""),
    ];
    rows.into_iter().map(|row| row.since("1.4").module("mod_proxy")).collect()
}

const HEADER_DOC: &str = "\
What is changed in requests to hosts of `proxy.server`, and in their responses:

| key | value | meaning |
|---|---|---|
| `map-urlpath` | `( \"/front\" => \"/back\" )` | beginnings of a URL's path, by whole segments: `/front` is not one of `/frontier`; the other way round in `Location` and `Set-Cookie` of responses. The first that fits counts. Let both end with a slash, or neither; an empty one is read as `/`. A path with `..` that comes of it is answered 400 |
| `map-urlpath-resp-host-include`, `map-urlpath-resp-host-exclude` | list of hosts | hosts in `Location` for which that is done, not done; without the first: the client's, the backend's, those of `map-host-response` |
| `map-host-request` | `( \"front\" => \"back\" )` | the host in requests to the backend; `\"-\"` as a key is any host that the client asked for, as a value it stays |
| `map-host-response` | `( \"back\" => \"front\" )` | hosts in `Location` and `Set-Cookie`; `\"-\"` as a value is the host that the client asked for |
| `https-remap` | `\"enable\"` | `https` is sent as `http`, and the other way round in responses |
| `upgrade` | `\"enable\"` | clients may ask for another protocol (WebSocket) |
| `connect` | `\"enable\"` | CONNECT is passed on |
| `force-http10` | `\"enable\"` | backends are spoken to in HTTP/1.0, without keep-alive |
| `trailers` | `\"enable\"` | fields after a request's body are passed on |";

const KEYS: &[&str] = &[
    "map-urlpath",
    "map-urlpath-resp-host-include",
    "map-urlpath-resp-host-exclude",
    "map-host-request",
    "map-host-response",
    "https-remap",
    "upgrade",
    "connect",
    "force-http10",
    "trailers",
];

fn header(value: &Value, ctx: &CompileCtx) -> Result<Arc<HeaderRules>, Reject> {
    let mut rules = HeaderRules::default();
    for (key, item) in keyed(value, "write `( \"map-urlpath\" => ( \"/a\" => \"/b\" ) )`")? {
        let on = || within(key, item, parse_bool);
        match &**key {
            "map-urlpath" => {
                rules.map_urlpath = Some(within(key, item, |value| paths(value, ctx))?)
            }
            "map-urlpath-resp-host-include" => {
                rules.map_urlpath_hosts = Some(within(key, item, parse_strings)?);
            }
            "map-urlpath-resp-host-exclude" => {
                rules.map_urlpath_hosts_not = Some(within(key, item, parse_strings)?);
            }
            "map-host-request" => rules.map_host_request = Some(within(key, item, hosts)?),
            "map-host-response" => rules.map_host_response = Some(within(key, item, hosts)?),
            "https-remap" => rules.https_remap = on()?,
            "upgrade" => rules.upgrade = on()?,
            "connect" => rules.connect = on()?,
            "force-http10" => rules.force_http10 = on()?,
            "trailers" => rules.trailers = on()?,
            _ => return Err(unknown_key(key, KEYS)),
        }
    }
    Ok(Arc::new(rules))
}

/// Reads pairs of path prefixes.
fn paths(value: &Value, ctx: &CompileCtx) -> Result<Pairs, Reject> {
    let pairs = checked(value, "paths that begin with \"/\"", |text| {
        text.is_empty() || text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic())
    })?;
    for ((from, to), (_, item)) in pairs.iter().zip(value.as_list().unwrap_or_default()) {
        if from.ends_with('/') != to.ends_with('/') {
            let text = format!("maps \"{from}\" to \"{to}\", of which only one ends with a slash");
            let help = "let both end with a slash, or neither";
            ctx.warn(Reject::new(text).help(help).at(item.span));
        }
    }
    // An empty side means the root.
    let or_slash = |text: &Arc<str>| if text.is_empty() { "/".into() } else { Arc::clone(text) };
    Ok(pairs.iter().map(|(from, to)| (or_slash(from), or_slash(to))).collect())
}

/// Reads pairs of hosts, with optional ports, or `-`.
fn hosts(value: &Value) -> Result<Pairs, Reject> {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    checked(value, "hosts", |text| !text.is_empty() && text.bytes().all(known))
}

/// Reads pairs and checks every key and every value.
fn checked(value: &Value, what: &str, good: impl Fn(&str) -> bool) -> Result<Pairs, Reject> {
    let pairs = parse_map(value)?;
    let places = value.as_list().unwrap_or_default();
    for ((from, to), (key, item)) in pairs.iter().zip(places) {
        let refuse = |text: &str| Reject::new(format!("must map {what}, which \"{text}\" is not"));
        if !good(from) {
            return Err(refuse(from).at(key.as_ref().map_or(item.span, |key| key.span)));
        }
        if !good(to) {
            return Err(refuse(to).at(item.span));
        }
    }
    Ok(pairs)
}
