//! Places of backends as written: `unix:/path`, `host`, `host:port`, `[v6]:port`,
//! `srv:_http._tcp.name`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use lighty_config::Reject;
use lighty_io::connect::resolve::FINDS_SERVICES;

use crate::upstream::spec::BackendAddress;

/// Limit on the bytes of a unix socket's path: the size of `sun_path` without the last NUL.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// Limit on the bytes of a host name (RFC 1035 section 2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// A backend's address; the port is optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BackendLocation {
    Unix(Arc<str>),
    Ip(IpAddr, Option<u16>),
    Name(Arc<str>, Option<u16>),
    Srv(Arc<str>),
}

const FORMS: &str = "write \"host:port\", \"192.0.2.1:port\", \"[2001:db8::1]:port\", \
                     \"unix:/path\" or \"srv:_service._tcp.name\"";

impl BackendLocation {
    /// Parses any of the forms.
    pub(super) fn parse(text: &str) -> Result<BackendLocation, Reject> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path);
        }
        if let Some(name) = text.strip_prefix("srv:") {
            if !FINDS_SERVICES {
                let text = "names a service: this build has no resolver for services; build with \
                            the feature \"dns\"";
                return Err(Reject::new(text));
            }
            return srv(name);
        }
        if text.starts_with('/') {
            let reject = Reject::new(format!("has \"{text}\", which is no address"));
            return Err(reject.help(format!("write \"unix:{text}\" for a socket")));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let rest = rest.trim_end_matches('/');
            if scheme.eq_ignore_ascii_case("https") {
                let text = format!("has \"{text}\": TLS is not spoken with this one");
                return Err(Reject::new(text).help(
                    "TLS is for the backends of proxy-core.backends that speak \"http\", and of \
                     proxy.server",
                ));
            }
            let reject = Reject::new(format!("has \"{text}\", which is a URL"));
            return Err(reject.help(format!(
                "write \"{rest}\"; proxy-core.protocol sets the protocol (\"{scheme}\")"
            )));
        }
        inet(text)
    }

    /// Parses any of the forms. Returns true with it if it begins with `https://`.
    pub(super) fn parse_url(text: &str) -> Result<(BackendLocation, bool), Reject> {
        match behind_https(text) {
            Some(rest) => Ok((BackendLocation::parse(rest)?, true)),
            None => Ok((BackendLocation::parse(text)?, false)),
        }
    }

    /// Returns the name that the certificate must have; `None` if the place has no name.
    pub(super) fn server_name(&self) -> Option<Arc<str>> {
        match self {
            BackendLocation::Ip(ip, _) => Some(ip.to_string().into()),
            BackendLocation::Name(host, _) => Some(host.trim_end_matches('.').into()),
            BackendLocation::Unix(_) | BackendLocation::Srv(_) => None,
        }
    }

    /// Parses `host` and `port` of 1.4, or a path.
    pub(super) fn of_host(host: &str, port: Option<u16>) -> Result<BackendLocation, Reject> {
        if host.starts_with('/') {
            return unix(host);
        }
        // If `port` is set, the whole of `host` is the address.
        let place = match (host.parse(), port) {
            (Ok(ip), Some(_)) => BackendLocation::Ip(ip, None),
            _ => BackendLocation::parse(host)?,
        };
        match (place, port) {
            (BackendLocation::Ip(ip, None), port) => Ok(BackendLocation::Ip(ip, port)),
            (BackendLocation::Name(name, None), port) => Ok(BackendLocation::Name(name, port)),
            (place, None) => Ok(place),
            (_, Some(_)) => Err(Reject::new("has a port in \"host\" and in \"port\"")),
        }
    }

    /// Returns the address, with `port` as the default port; `None` if there is no port.
    pub(super) fn address(&self, port: Option<u16>) -> Option<BackendAddress> {
        Some(match self {
            BackendLocation::Unix(path) => BackendAddress::Unix(Arc::clone(path)),
            BackendLocation::Srv(name) => BackendAddress::Srv(Arc::clone(name)),
            BackendLocation::Ip(ip, own) => {
                BackendAddress::Inet(SocketAddr::new(*ip, own.or(port)?))
            }
            BackendLocation::Name(host, own) => {
                BackendAddress::Name { host: Arc::clone(host), port: own.or(port)? }
            }
        })
    }
}

/// Returns the text after `https://`, without trailing slashes.
pub(super) fn behind_https(text: &str) -> Option<&str> {
    const SCHEME: &str = "https://";
    let is_https = text.get(..SCHEME.len()).is_some_and(|s| s.eq_ignore_ascii_case(SCHEME));
    is_https.then(|| text[SCHEME.len()..].trim_end_matches('/'))
}

/// Parses a socket's path, or its abstract name after `@`.
pub(super) fn unix(path: &str) -> Result<BackendLocation, Reject> {
    if !path.starts_with(['/', '@']) {
        let reject = Reject::new(format!("has \"{path}\", which is no path of a socket"));
        return Err(reject.help("it begins with \"/\", or with \"@\" for an abstract name"));
    }
    unix_of_host(path)
}

/// Parses 1.4's `socket`, which may also be a path in the working directory.
pub(super) fn unix_of_host(path: &str) -> Result<BackendLocation, Reject> {
    if matches!(path, "" | "@") || path.contains('\0') {
        let reject = Reject::new(format!("has \"{path}\", which is no path of a socket"));
        return Err(reject.help("write a path, or \"@\" and an abstract name"));
    }
    if path.len() > UNIX_PATH_BYTES_MAX {
        let text = format!("has a socket's path longer than {UNIX_PATH_BYTES_MAX} bytes");
        return Err(Reject::new(text));
    }
    Ok(BackendLocation::Unix(path.into()))
}

fn srv(name: &str) -> Result<BackendLocation, Reject> {
    if is_name(name) && name.starts_with('_') {
        return Ok(BackendLocation::Srv(name.into()));
    }
    let reject = Reject::new(format!("has \"srv:{name}\", which is no name of a service"));
    Err(reject.help("write \"srv:_http._tcp.example.org\""))
}

fn inet(text: &str) -> Result<BackendLocation, Reject> {
    let refuse = || {
        let reject = Reject::new(format!("has \"{text}\", which is no address"));
        match with_port(text) {
            Some((ip, port)) => reject.help(format!("write \"[{ip}]:{port}\"")),
            None => reject.help(FORMS),
        }
    };
    if let Ok(ip) = text.parse::<IpAddr>() {
        return match with_port(text) {
            Some((host, port)) => Err(ambiguous(text, host, port)),
            None => Ok(BackendLocation::Ip(ip, None)),
        };
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (ip, rest) = rest.split_once(']').ok_or_else(refuse)?;
        let ip: Ipv6Addr = ip.parse().map_err(|_| refuse())?;
        let port = match rest.strip_prefix(':') {
            Some(digits) => Some(port(digits, text)?),
            None if rest.is_empty() => None,
            None => return Err(refuse()),
        };
        return Ok(BackendLocation::Ip(ip.into(), port));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, digits)) if !host.contains(':') => (host, Some(port(digits, text)?)),
        Some(_) => return Err(refuse()),
        None => (text, None),
    };
    match host.parse::<IpAddr>() {
        Ok(ip) => Ok(BackendLocation::Ip(ip, port)),
        Err(_) if is_name(host) => {
            Ok(BackendLocation::Name(host.to_ascii_lowercase().into(), port))
        }
        Err(_) => Err(refuse()),
    }
}

/// Parses an IPv6 address without brackets, followed by text that may be a port.
fn with_port(text: &str) -> Option<(Ipv6Addr, u16)> {
    let (host, digits) = text.rsplit_once(':')?;
    Some((host.parse().ok()?, port(digits, text).ok()?))
}

fn ambiguous(text: &str, host: Ipv6Addr, port: u16) -> Reject {
    let reject = Reject::new(format!("has \"{text}\", which may be an address or one with a port"));
    reject.help(format!("write \"[{host}]:{port}\", or \"[{text}]\" for the whole as an address"))
}

fn port(digits: &str, text: &str) -> Result<u16, Reject> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse::<u16>() {
        Ok(port) if port > 0 && all_digits => Ok(port),
        _ => Err(Reject::new(format!("has \"{text}\": a port is a number from 1 to 65535"))),
    }
}

/// Checks a name: letters, digits, `-`, `_` and dots; not only digits and dots, which would be a
/// mistyped address.
fn is_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(known);
    name.len() <= NAME_BYTES_MAX
        && name.split('.').all(label)
        && !name.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<BackendLocation> {
        BackendLocation::parse(text).ok()
    }

    fn ip(text: &str, port: Option<u16>) -> Option<BackendLocation> {
        text.parse().ok().map(|ip| BackendLocation::Ip(ip, port))
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(parse("127.0.0.1"), ip("127.0.0.1", None));
        assert_eq!(parse("127.0.0.1:1026"), ip("127.0.0.1", Some(1026)));
        assert_eq!(parse("::1"), ip("::1", None));
        assert_eq!(parse("[::1]"), ip("::1", None));
        assert_eq!(parse("[2001:db8::1]:65535"), ip("2001:db8::1", Some(65535)));
        assert_eq!(parse("app1"), Some(BackendLocation::Name("app1".into(), None)));
        assert_eq!(
            parse("App_1.example.org:81"),
            Some(BackendLocation::Name("app_1.example.org".into(), Some(81)))
        );
        assert_eq!(
            parse("unix:/run/php.sock"),
            Some(BackendLocation::Unix("/run/php.sock".into()))
        );
        assert_eq!(parse("unix:@php"), Some(BackendLocation::Unix("@php".into())));
        assert_eq!(
            parse("srv:_http._tcp.a.example"),
            Some(BackendLocation::Srv("_http._tcp.a.example".into()))
        );
    }

    #[test]
    fn malformed_addresses_are_refused() {
        let wrong = [
            "",
            ":80",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a:8x",
            "1.2.3",
            "1.2.3.4.5:80",
            "300.1.1.1",
            "[::1",
            "[::1]80",
            "[::1]:",
            "[1.2.3.4]:80",
            "::1:x",
            "a b",
            "a/b",
            "http://a:80/",
            "/run/a.sock",
            "unix:",
            "unix:a",
            "unix:@",
            "srv:",
            "srv:http",
            "srv:a._tcp",
            "a..b",
        ];
        for text in wrong {
            assert!(parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn an_address_of_ipv6_needs_brackets_where_its_end_may_be_a_port() {
        let help = |text: &str| BackendLocation::parse(text).err().and_then(|reject| reject.help);
        let both = |port: &str, whole: &str| {
            Some(format!("write \"{port}\", or \"{whole}\" for the whole as an address"))
        };
        assert_eq!(help("::1:80"), both("[::1]:80", "[::1:80]"));
        assert_eq!(help("2001:db8::1:8080"), both("[2001:db8::1]:8080", "[2001:db8::1:8080]"));
        let nine = "2001:db8:1:2:3:4:5:6:80";
        assert_eq!(help(nine), Some("write \"[2001:db8:1:2:3:4:5:6]:80\"".into()));
        for text in ["::", "::1", "::80", "2001:db8::1", "1:2:3:4:5:6:7:8", "fe80::1:beef", "::1:0"]
        {
            assert_eq!(parse(text), ip(text, None), "{text}");
        }
        assert_eq!(parse("[::1:80]"), ip("::1:80", None));
        let with_own = BackendLocation::of_host("::1:80", Some(9000)).ok();
        assert_eq!(with_own, ip("::1:80", Some(9000)));
    }

    #[test]
    fn https_is_tls_and_names_what_a_certificate_is_for() {
        let url = |text: &str| BackendLocation::parse_url(text).ok();
        let name = |text: &str| url(text).and_then(|(place, _)| place.server_name());
        assert_eq!(url("a:80"), Some((BackendLocation::Name("a".into(), Some(80)), false)));
        assert_eq!(url("https://a/"), Some((BackendLocation::Name("a".into(), None), true)));
        assert_eq!(url("HTTPS://[::1]:8443").map(|(_, is_tls)| is_tls), Some(true));
        assert_eq!(name("https://App.example.:8443").as_deref(), Some("app.example"));
        assert_eq!(name("https://[::1]:8443").as_deref(), Some("::1"));
        assert_eq!(name("https://unix:/run/a.sock"), None);
        for wrong in ["https://", "https:///", "https://a/b", "https://https://a", "http://a"] {
            assert_eq!(url(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn limits_are_limits() {
        let path = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1));
        assert!(parse(&path(UNIX_PATH_BYTES_MAX)).is_some());
        assert!(parse(&path(UNIX_PATH_BYTES_MAX + 1)).is_none());
        assert!(parse(&"a".repeat(63)).is_some());
        assert!(parse(&"a".repeat(64)).is_none());
        let name = |bytes: usize| "a.".repeat(bytes)[..bytes].replace("..", ".a");
        assert!(parse(&name(NAME_BYTES_MAX)).is_some());
        assert!(parse(&name(NAME_BYTES_MAX + 2)).is_none());
    }

    #[test]
    fn a_port_is_written_once() {
        assert_eq!(
            BackendLocation::of_host("h", Some(1)).ok(),
            Some(BackendLocation::Name("h".into(), Some(1)))
        );
        assert_eq!(
            BackendLocation::of_host("h:1", None).ok(),
            Some(BackendLocation::Name("h".into(), Some(1)))
        );
        assert_eq!(
            BackendLocation::of_host("/s", None).ok(),
            Some(BackendLocation::Unix("/s".into()))
        );
        assert!(BackendLocation::of_host("h:1", Some(1)).is_err());
        assert!(BackendLocation::of_host("unix:/s", Some(1)).is_err());
    }

    #[test]
    fn a_missing_port_is_filled_in_and_a_written_one_stays() {
        let address =
            |text: &str, port| BackendLocation::parse(text).ok().and_then(|p| p.address(port));
        let inet = |text: &str| text.parse().ok().map(BackendAddress::Inet);
        assert_eq!(address("127.0.0.1", Some(9000)), inet("127.0.0.1:9000"));
        assert_eq!(address("127.0.0.1:1", Some(9000)), inet("127.0.0.1:1"));
        assert_eq!(address("127.0.0.1", None), None);
    }
}
