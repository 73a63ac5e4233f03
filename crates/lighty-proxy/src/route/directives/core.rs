//! `proxy-core.*`: the backends, their protocol and their balancer.

use std::sync::Arc;

use lighty_config::{CompileCtx, Kind, Reject, Strings, Value, parse_strings};
use lighty_core::Settings;
use lighty_core::settings::Directive;

use super::balancer::{self, Balancing, cookie_name};
use super::of;
use super::parts::{CoreBackend, Weights};
use super::place::BackendLocation;
use super::values::{WEIGHT_MAX, keyed, number, optional, within};
use crate::upstream::protocol::ProtocolName;
use crate::upstream::spec::{HashKey, ProxyProtocol};

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = routes();
    rows.extend(choice());
    rows.extend(protocols());
    rows
}

fn routes() -> Vec<Directive> {
    vec![
        Directive::parsed("proxy-core.backends", Kind::List, backends, |s: &mut Settings, list| {
            of(s).core.backends = Arc::clone(list);
        })
        .default("()")
        .since("1.5")
        .doc(
            "Backends that answer the requests to which this applies; an empty list switches the \
             proxy off again. A backend is `host`, `host:port`, `ip`, `ip:port`, `[v6]:port`, \
             `unix:/path`, `unix:@abstract`, or `srv:_service._proto.name` for a name whose SRV \
             records bring ports, weights and priorities. The prefix `https://` enables TLS, with \
             port 443 by default. Names are resolved again when their records expire; a name that \
             cannot be resolved does not prevent the start. Without a port: 80 for http, 80 for \
             h2, 9000 for fastcgi, 4000 for scgi, 3031 for uwsgi, 8009 for ajp13.",
        )
        .example(
            "proxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"10.0.0.1:8080\", \"10.0.0.2:8080\", \"unix:/run/app.sock\" )",
        ),
        Directive::choice("proxy-core.protocol", ProtocolName::NAMES, |s, index| {
            of(s).core.protocol = Some(ProtocolName::nth(index));
        })
        .default_prose("not set: `proxy-core.backends` needs it")
        .since("1.5")
        .doc(
            "Protocol of the backends. `http` is HTTP/1.1 with kept connections; `h2` is HTTP/2 \
             with many requests on a connection, chosen by ALPN with `https://` and by prior \
             knowledge without, for gRPC too; `fastcgi` for PHP-FPM and its like; `scgi` and \
             `uwsgi` for uWSGI; `ajp13` for Tomcat.",
        )
        .example("proxy-core.protocol = \"fastcgi\""),
        Directive::bool("proxy-core.split-hostnames", |s, on| of(s).shared.split_hostnames = on)
            .default("enable")
            .since("1.5")
            .doc(
                "Balances each address that a name resolves to by itself. Disabled, a name is one \
                 backend, reached at the first address that accepts a connection.",
            )
            .example("proxy-core.split-hostnames = \"disable\""),
        Directive::bool("proxy-core.check-local", |s, on| of(s).core.check_local = on)
            .default("disable")
            .since("1.5")
            .doc(
                "Sends a request to a backend only if its path leads to a file beneath the \
                 document root; else it is answered 404 here.",
            )
            .example("proxy-core.check-local = \"enable\""),
        debug(),
    ]
}

fn debug() -> Directive {
    Directive::int("proxy-core.debug", 0..=65_535, |s, level| of(s).core.debug = level > 0)
        .default("0")
        .since("1.5")
        .doc("Logs each step of a request's way to its backend, where it is not 0.")
        .example("proxy-core.debug = 1")
}

fn choice() -> Vec<Directive> {
    vec![
        Directive::parsed("proxy-core.balancer", Kind::Choice(balancer::names()), |value, _| {
            Balancing::parse(value)
        }, |s: &mut Settings, word| of(s).core.balancer = word.clone())
        .default("round-robin")
        .since("1.5")
        .doc(balancer::doc())
        .example("proxy-core.balancer = \"sqf\""),
        Directive::parsed("proxy-core.weights", Kind::Array, weights, |s: &mut Settings, list| {
            of(s).core.weights = Arc::clone(list);
        })
        .default("()")
        .since("lighty 0.1")
        .doc(
            "Relative weights of the backends, 1 by default; 0 drains a backend: it completes its \
             requests and gets no new ones. Backends are named as in `proxy-core.backends`.",
        )
        .example(
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"big:80\", \"small:80\" )\n\
             proxy-core.weights = ( \"big:80\" => 3 )",
        ),
        Directive::strings("proxy-core.backup", |s, list| of(s).core.backup = list)
            .default("()")
            .since("lighty 0.1")
            .doc("Backends that are used only while no other one is up.")
            .example(
                "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"app:80\", \"sorry:80\" )\n\
                 proxy-core.backup = ( \"sorry:80\" )",
            ),
        Directive::parsed("proxy-core.sticky-cookie", Kind::String, |value, _| match value.as_str() {
            Some("") => Ok(None),
            _ => lighty_config::parse_string(value).and_then(|name| cookie_name(&name)).map(Some),
        }, |s: &mut Settings, name| of(s).shared.sticky_cookie = name.clone())
        .default("")
        .since("lighty 0.1")
        .doc(
            "Cookie that keeps a client with the backend that answered it first, as long as that \
             one is up; `proxy-core.balancer` chooses for clients that have none. Applies to \
             `fastcgi.server` and its like as well.",
        )
        .example("proxy-core.sticky-cookie = \"backend\""),
        Directive::choice("proxy-core.hash-key", &["url", "client"], |s, index| {
            of(s).shared.balancing.hash_key = if index == 0 { HashKey::Url } else { HashKey::Client };
        })
        .default("url")
        .since("lighty 0.1")
        .doc("Key of `bounded-hash`: the URL with its host, or the client's address.")
        .example("proxy-core.hash-key = \"client\""),
        Directive::int("proxy-core.hash-load", 101..=10_000, |s, v| {
            of(s).shared.balancing.load_percent = v as u32;
        })
        .default("125")
        .since("lighty 0.1")
        .doc("Percent of the mean load that `bounded-hash` gives a backend before it goes on to the next.")
        .example("proxy-core.hash-load = 150"),
    ]
}

fn protocols() -> Vec<Directive> {
    vec![
        Directive::parsed(
            "proxy-core.ajp-secret",
            Kind::String,
            optional,
            |s: &mut Settings, text| {
                of(s).shared.protocols.secret = text.clone();
            },
        )
        .default("")
        .since("lighty 0.1")
        .doc(
            "The `secret` of Tomcat's AJP connector. Empty: none is sent. With a wrong secret \
             Tomcat answers every request 403, which cannot be distinguished from a 403 of the \
             application.",
        )
        .example("proxy-core.ajp-secret = \"hush\""),
        Directive::int("proxy-core.ajp-packet-size", 8192..=65_536, |s, v| {
            of(s).shared.protocols.packet_bytes = v as usize;
        })
        .default("8192")
        .since("lighty 0.1")
        .doc(
            "Bytes of an AJP packet, as `packetSize` of Tomcat's connector. A request head has to \
             fit into one; a request that does not is answered 431.",
        )
        .example("proxy-core.ajp-packet-size = 65536"),
        Directive::int("proxy-core.uwsgi-modifier1", 0..=255, |s, v| {
            of(s).shared.protocols.modifier1 = v as u8;
        })
        .default("0")
        .since("lighty 0.1")
        .doc("First modifier of uwsgi packets: 0 for Python, 5 for Perl, 7 for Ruby, 14 for PHP.")
        .example("proxy-core.uwsgi-modifier1 = 14"),
        Directive::choice("proxy-core.proxy-protocol", &["disable", "v1", "v2"], |s, index| {
            of(s).shared.proxy_protocol =
                [None, Some(ProxyProtocol::V1), Some(ProxyProtocol::V2)][index];
        })
        .default("disable")
        .since("lighty 0.1")
        .doc(
            "Opens each connection to a backend with a PROXY protocol header that names the \
             client. Such a connection serves one client only.",
        )
        .example("proxy-core.proxy-protocol = \"v2\""),
    ]
}

fn backends(value: &Value, _: &CompileCtx) -> Result<Arc<[CoreBackend]>, Reject> {
    let list: Strings = parse_strings(value)?;
    let spans = value.as_list().unwrap_or_default();
    let mut backends: Vec<CoreBackend> = Vec::with_capacity(list.len());
    for (at, text) in list.iter().enumerate() {
        let place = |reject: Reject| match spans.get(at) {
            Some((_, item)) => reject.at(item.span),
            None => reject,
        };
        let (address, is_tls) = BackendLocation::parse_url(text).map_err(place)?;
        if backends.iter().any(|other| other.place == address && other.is_tls == is_tls) {
            let twice = format!("has \"{text}\" twice");
            return Err(place(
                Reject::new(twice).help("proxy-core.weights gives it a larger share"),
            ));
        }
        backends.push(CoreBackend { text: Arc::clone(text), place: address, is_tls });
    }
    Ok(backends.into())
}

fn weights(value: &Value, _: &CompileCtx) -> Result<Weights, Reject> {
    let pairs = keyed(value, "write `( \"10.0.0.1:8080\" => 3 )`")?;
    let pair = |(key, item): (&lighty_config::Key, &lighty_config::Spanned<Value>)| {
        let weight = within(key, item, |value| number(value, 0..=WEIGHT_MAX))?;
        Ok((Arc::from(&**key), weight))
    };
    pairs.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_names_every_protocol_and_its_port() {
        let rows = routes();
        let doc = |name| rows.iter().find(|row| row.name == name).expect("a row").doc;
        for (index, word) in ProtocolName::NAMES.iter().enumerate() {
            let port = format!("{} for {word}", ProtocolName::nth(index).port());
            assert!(doc("proxy-core.backends").contains(&port), "{port}");
            assert!(doc("proxy-core.protocol").contains(&format!("`{word}`")), "{word}");
        }
    }
}
