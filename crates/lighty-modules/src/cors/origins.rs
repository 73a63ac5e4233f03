//! The allowed origins of scripts (RFC 6454, sections 4 and 6.2).

use std::sync::Arc;

use lighty_config::{Reject, Value, parse_strings};

/// A list of origins. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) enum Origins {
    /// No origin: nothing is configured.
    #[default]
    None,
    /// `*`: every origin.
    Any,
    Listed(Arc<[AllowedOrigin]>),
}

/// An origin, or a pattern of origins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AllowedOrigin {
    scheme: Box<str>,
    host: AllowedHost,
    port: Port,
}

#[derive(Debug, PartialEq, Eq)]
enum AllowedHost {
    Is(Box<str>),
    /// Any host below this domain, which begins with a dot.
    Below(Box<str>),
}

#[derive(Debug, PartialEq, Eq)]
enum Port {
    Default,
    Is(u16),
    Any,
}

impl Origins {
    pub(super) fn parse(value: &Value) -> Result<Self, Reject> {
        let texts = parse_strings(value)?;
        if texts.iter().any(|text| &**text == "*") {
            return match texts.len() {
                1 => Ok(Self::Any),
                _ => Err(Reject::new("\"*\" allows every origin: it must stand alone")),
            };
        }
        let origins =
            texts.iter().map(|text| AllowedOrigin::parse(text)).collect::<Result<Arc<[_]>, _>>()?;
        Ok(if origins.is_empty() { Self::None } else { Self::Listed(origins) })
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(super) fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }

    /// True if scripts of this origin, as a browser writes it, are allowed.
    pub(super) fn allow(&self, origin: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::Any => true,
            Self::Listed(origins) => std::str::from_utf8(origin).is_ok_and(|origin| {
                let parts = split(origin);
                parts.is_some_and(|parts| origins.iter().any(|one| one.matches(&parts)))
            }),
        }
    }
}

/// Scheme, host and port of an origin; `None` if it has another form.
fn split(origin: &str) -> Option<(&str, &str, Option<u16>)> {
    let (scheme, rest) = origin.split_once("://")?;
    // The colons of an IPv6 address are within brackets.
    let colon = rest.rfind(':').filter(|at| !rest[*at..].contains(']'));
    let (host, port) = match colon {
        Some(at) => (&rest[..at], Some(rest[at + 1..].parse().ok()?)),
        None => (rest, None),
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[:]".contains(&byte);
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_valid = !scheme.is_empty()
        && scheme.bytes().all(is_scheme)
        && !host.is_empty()
        && host.bytes().all(is_host);
    is_valid.then_some((scheme, host, port))
}

impl AllowedOrigin {
    fn parse(text: &str) -> Result<Self, Reject> {
        if text.eq_ignore_ascii_case("null") {
            let text = "\"null\" is the origin of every sandboxed page and local file";
            return Err(Reject::new(text).help("serve the page from an origin of its own"));
        }
        let form = "write scheme, host and port: \"https://app.example.com\", \
                    \"https://*.example.com\", \"http://localhost:*\"";
        let reject = |detail: &str| Reject::new(format!("{text:?} {detail}")).help(form);
        let (without_port, port) = match text.strip_suffix(":*") {
            Some(text) => (text, Port::Any),
            None => (text, Port::Default),
        };
        let (plain, below) = match without_port.split_once("://*.") {
            Some((scheme, domain)) => (format!("{scheme}://{domain}"), true),
            None => (without_port.to_owned(), false),
        };
        if plain.split_once("://").is_some_and(|(_, rest)| rest.contains('/')) {
            return Err(reject("has a path, and an origin has none"));
        }
        let (scheme, host, number) = split(&plain).ok_or_else(|| reject("is not an origin"))?;
        let (scheme, host) = (scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
        if below && !host.contains('.') && host != "localhost" {
            return Err(reject("allows a whole top-level domain"));
        }
        let port = match number.filter(|number| Some(*number) != default_port(&scheme)) {
            Some(number) if port == Port::Default => Port::Is(number),
            Some(_) => return Err(reject("is not an origin")),
            None => port,
        };
        let host = match below {
            true => AllowedHost::Below(format!(".{host}").into()),
            false => AllowedHost::Is(host.into()),
        };
        Ok(Self { scheme: scheme.into(), host, port })
    }

    fn matches(&self, (scheme, host, port): &(&str, &str, Option<u16>)) -> bool {
        let is_host = match &self.host {
            AllowedHost::Is(own) => own.eq_ignore_ascii_case(host),
            AllowedHost::Below(domain) => {
                let at = host.len().checked_sub(domain.len()).filter(|at| *at > 0);
                at.and_then(|at| host.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(domain))
            }
        };
        let is_port = match self.port {
            Port::Any => true,
            Port::Is(number) => *port == Some(number),
            Port::Default => port.is_none() || *port == default_port(&self.scheme),
        };
        is_host && is_port && self.scheme.eq_ignore_ascii_case(scheme)
    }
}

/// The default port of a scheme.
fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Origins {
        Origins::Listed([AllowedOrigin::parse(text).expect("an origin")].into())
    }

    #[test]
    fn an_origin_matches_itself_alone() {
        for (configured, requested, is_allowed) in [
            ("https://a.test", "https://a.test", true),
            ("https://a.test:443", "https://a.test", true),
            ("https://a.test", "https://a.test:443", true),
            ("HTTPS://A.test", "https://a.TEST", true),
            ("https://a.test", "http://a.test", false),
            ("https://a.test", "https://a.test:8443", false),
            ("https://a.test", "https://a.test.evil.test", false),
            ("https://a.test", "https://evil-a.test", false),
            ("https://a.test", "https://a.test/", false),
            ("https://a.test", "https://a.test@evil.test", false),
            ("https://a.test", "https://a.test, https://b.test", false),
            ("https://a.test", "https://sub.a.test", false),
            ("https://a.test", "null", false),
            ("https://a.test", "", false),
            ("http://[::1]:8080", "http://[::1]:8080", true),
            ("http://[::1]:8080", "http://[::1]", false),
            ("capacitor://localhost", "capacitor://localhost", true),
        ] {
            assert_eq!(listed(configured).allow(requested.as_bytes()), is_allowed, "{requested}");
        }
    }

    #[test]
    fn a_pattern_matches_whole_labels_and_ports() {
        for (configured, requested, is_allowed) in [
            ("https://*.a.test", "https://x.a.test", true),
            ("https://*.a.test", "https://x.y.a.test", true),
            ("https://*.a.test", "https://a.test", false),
            ("https://*.a.test", "https://.a.test", false),
            ("https://*.a.test", "https://evila.test", false),
            ("https://*.a.test", "https://x.a.test.evil.test", false),
            ("https://*.a.test", "https://evil.test/.a.test", false),
            ("https://*.a.test", "https://evil.test?.a.test", false),
            ("https://*.a.test", "https://evil.test#.a.test", false),
            ("https://*.a.test:8443", "https://x.a.test:8443", true),
            ("https://*.a.test:8443", "https://x.a.test", false),
            ("http://localhost:*", "http://localhost:5173", true),
            ("http://localhost:*", "http://localhost", true),
            ("http://localhost:*", "http://localhost:5173.evil.test", false),
        ] {
            let allowed = listed(configured).allow(requested.as_bytes());
            assert_eq!(allowed, is_allowed, "{configured}: {requested}");
        }
    }

    #[test]
    fn origins_that_allow_too_much_are_refused() {
        for (text, detail) in [
            ("null", "sandboxed"),
            ("https://*.test", "whole top-level domain"),
            ("https://a.test/", "has a path"),
            ("a.test", "is not an origin"),
            ("https://", "is not an origin"),
            ("https://a*b.test", "is not an origin"),
            ("*.a.test", "is not an origin"),
            ("https://a.test:80:*", "is not an origin"),
            ("https://a.test:99999", "is not an origin"),
        ] {
            let reject = AllowedOrigin::parse(text).expect_err(text);
            assert!(reject.message.contains(detail), "{text}: {}", reject.message);
        }
    }
}
