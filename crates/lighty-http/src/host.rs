//! The authority of a request: `Host`, or the authority of an absolute target.

use alloc::vec::Vec;
use core::fmt::Write;
use core::net::{Ipv4Addr, Ipv6Addr};

use memchr::memrchr;

use crate::appender::Appender;
use crate::uri::ParseOpts;

/// The longest host accepted; DNS allows 253 bytes of text.
pub const HOST_BYTES_MAX: usize = 255;

/// An invalid host or port: always 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFault {
    /// Nothing before the port. An `http` URI must have a host: RFC 9110 section 4.2.1.
    Empty,
    /// More than [`HOST_BYTES_MAX`].
    TooLong,
    /// Neither a name nor an address.
    Malformed,
    /// Not a number from 1 to 65535.
    Port,
}

/// Checks `value`, writes the host without its port into `out` (emptied first) and returns the port
/// if one is given.
///
/// `strict` accepts names of letters, digits, `-` and `_` (used in container names, although
/// lighttpd 1.4 refuses it), dotted IPv4 and bracketed IPv6. Otherwise any visible byte is accepted
/// that cannot make it a path or an address. With `host_normalize` the result is lower-case,
/// without a final dot; an IPv6 literal keeps its brackets and gets its shortest spelling.
///
/// # Errors
/// [`HostFault`].
pub fn parse_host(
    value: &[u8],
    opts: &ParseOpts,
    out: &mut Vec<u8>,
) -> Result<Option<u16>, HostFault> {
    out.clear();
    if value.is_empty() {
        return Err(HostFault::Empty);
    }
    if value.len() > HOST_BYTES_MAX + ":65535".len() {
        return Err(HostFault::TooLong);
    }
    let (host, port) = split_port(value)?;
    match host {
        [] => return Err(HostFault::Empty),
        [b'[', inner @ .., b']'] => push_ipv6(inner, opts, out)?,
        _ => push_name(host, opts, out)?,
    }
    Ok(port)
}

/// The authority that conditions, logs and backends see for a `Host` field: the host as
/// [`parse_host`] writes it, and the port unless it is the scheme's default.
///
/// # Errors
/// [`HostFault`].
pub fn normalized_authority(
    value: &[u8],
    scheme: &str,
    opts: &ParseOpts,
) -> Result<Vec<u8>, HostFault> {
    let mut authority = Vec::new();
    if let Some(port) = parse_host(value, opts, &mut authority)? {
        authority.push(b':');
        crate::decimal::push(u64::from(port), &mut authority);
    }
    let kept = without_default_port(&authority, scheme).len();
    authority.truncate(kept);
    Ok(authority)
}

/// The host of an authority, without its port, as a directory name; `None` if there is none, or if
/// it would lead elsewhere: a leading dot, a slash.
#[must_use]
pub fn as_directory(authority: &[u8]) -> Option<&[u8]> {
    let (host, _) = split_port(authority).ok()?;
    let strange = |byte: &u8| matches!(byte, b'/' | b'\\' | 0);
    (!host.is_empty() && host[0] != b'.' && !host.iter().any(strange)).then_some(host)
}

/// The host and the port of a validated authority.
#[must_use]
pub fn parts(authority: &[u8]) -> (&[u8], Option<u16>) {
    split_port(authority).unwrap_or((authority, None))
}

/// An authority without its port if that is the default of its scheme (RFC 3986 section 6.2.3).
#[must_use]
#[inline]
pub fn without_default_port<'a>(authority: &'a [u8], scheme: &str) -> &'a [u8] {
    let (default, last) = if scheme == "https" { (443, b'3') } else { (80, b'0') };
    // Few authorities have a port; the last digit rules most of them out.
    if authority.last() != Some(&last) {
        return authority;
    }
    let (host, port) = parts(authority);
    if port == Some(default) { host } else { authority }
}

fn split_port(value: &[u8]) -> Result<(&[u8], Option<u16>), HostFault> {
    match memrchr(b':', value) {
        Some(at) if value.last() != Some(&b']') => {
            let (host, port) = (&value[..at], &value[at + 1..]);
            Ok((host, parse_port(port)?))
        }
        _ => Ok((value, None)),
    }
}

/// An empty port is valid and means the default: RFC 3986 section 3.2.3.
fn parse_port(digits: &[u8]) -> Result<Option<u16>, HostFault> {
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(HostFault::Port);
    }
    let number = digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    match u16::try_from(number) {
        Ok(0) if digits.is_empty() => Ok(None),
        Ok(0) | Err(_) => Err(HostFault::Port),
        Ok(port) => Ok(Some(port)),
    }
}

fn push_ipv6(inner: &[u8], opts: &ParseOpts, out: &mut Vec<u8>) -> Result<(), HostFault> {
    let text = core::str::from_utf8(inner).map_err(|_| HostFault::Malformed)?;
    let address: Ipv6Addr = text.parse().map_err(|_| HostFault::Malformed)?;
    if opts.host_normalize {
        write!(Appender(out), "[{address}]").map_err(|_| HostFault::Malformed)
    } else {
        out.push(b'[');
        out.extend_from_slice(inner);
        out.push(b']');
        Ok(())
    }
}

fn push_name(host: &[u8], opts: &ParseOpts, out: &mut Vec<u8>) -> Result<(), HostFault> {
    let name = host.strip_suffix(b".").unwrap_or(host);
    if name.len() > HOST_BYTES_MAX {
        return Err(HostFault::TooLong);
    }
    let labels_ok = name.split(|&byte| byte == b'.').all(|label| is_label(label, opts.host_strict));
    if !labels_ok || (opts.host_strict && looks_numeric(name) && !is_ipv4(name)) {
        return Err(HostFault::Malformed);
    }
    if opts.host_normalize {
        out.extend(name.iter().map(u8::to_ascii_lowercase));
    } else {
        out.extend_from_slice(host);
    }
    Ok(())
}

/// Never accepts an empty label: `..` must not get into a path built for a virtual host.
fn is_label(label: &[u8], strict: bool) -> bool {
    let byte_ok = |byte: &u8| match strict {
        true => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
        false => !byte.is_ascii_control() && !b" /\\@?#:[]".contains(byte),
    };
    !label.is_empty() && label.iter().all(byte_ok) && !(strict && label[0] == b'-')
}

/// A numeric last label makes it an address (RFC 3986 section 3.2.2; WHATWG URL): `127.1` and
/// `1.2.3.4.5` are not accepted as names.
fn looks_numeric(name: &[u8]) -> bool {
    let last = name.rsplit(|&byte| byte == b'.').next().unwrap_or(name);
    last.iter().all(u8::is_ascii_digit)
}

fn is_ipv4(name: &[u8]) -> bool {
    core::str::from_utf8(name).is_ok_and(|text| text.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::*;

    fn run(value: &str, opts: &ParseOpts) -> Result<(String, Option<u16>), HostFault> {
        let mut out = Vec::new();
        let port = parse_host(value.as_bytes(), opts, &mut out)?;
        Ok((String::from_utf8(out).expect("ASCII"), port))
    }

    #[test]
    fn a_directory_is_named_by_a_host_alone() {
        assert_eq!(as_directory(b"a.example:80"), Some(&b"a.example"[..]));
        assert_eq!(as_directory(b"[::1]:80"), Some(&b"[::1]"[..]));
        for none in ["", ":80", "..", ".a", "a/b", "../b", "a\\b", "a\0"] {
            assert_eq!(as_directory(none.as_bytes()), None, "{none:?}");
        }
    }

    #[test]
    fn the_port_of_the_scheme_is_taken_off() {
        for (authority, scheme, left) in [
            ("a.example:80", "http", "a.example"),
            ("a.example:443", "https", "a.example"),
            ("[::1]:80", "http", "[::1]"),
            ("a.example:443", "http", "a.example:443"),
            ("a.example:80", "https", "a.example:80"),
            ("a.example:8080", "http", "a.example:8080"),
            ("[::80]", "http", "[::80]"),
            ("", "http", ""),
        ] {
            let found = without_default_port(authority.as_bytes(), scheme);
            assert_eq!(found, left.as_bytes(), "{authority} {scheme}");
        }
    }

    #[test]
    fn authority_has_no_default_port_and_no_final_dot() {
        let opts = ParseOpts::default();
        for (value, scheme, authority) in [
            ("A.b.:80", "http", "a.b"),
            ("a.b:80", "https", "a.b:80"),
            ("a.b:0443", "https", "a.b"),
            ("[::0:1]:8080", "http", "[::1]:8080"),
        ] {
            let read = normalized_authority(value.as_bytes(), scheme, &opts);
            assert_eq!(read.as_deref(), Ok(authority.as_bytes()), "{value}");
        }
        assert!(normalized_authority(b"a/b", "http", &opts).is_err());
    }

    #[test]
    fn hosts_are_normalised() {
        for (value, host, port) in [
            ("A.Example", "a.example", None),
            ("a.", "a", None),
            ("a.:80", "a", Some(80)),
            ("a:", "a", None),
            ("my_service:8080", "my_service", Some(8080)),
            ("x-1.y", "x-1.y", None),
            ("127.0.0.1:1", "127.0.0.1", Some(1)),
            ("[::1]", "[::1]", None),
            ("[0:0::0001]:65535", "[::1]", Some(65535)),
            ("[2001:DB8::A]", "[2001:db8::a]", None),
        ] {
            assert_eq!(run(value, &ParseOpts::default()), Ok((host.into(), port)), "{value}");
        }
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for (value, fault) in [
            ("", HostFault::Empty),
            (":80", HostFault::Empty),
            ("a:0", HostFault::Port),
            ("a:65536", HostFault::Port),
            ("a:+1", HostFault::Port),
            ("a:000080", HostFault::Port),
            ("a:b", HostFault::Port),
            (".", HostFault::Malformed),
            ("..", HostFault::Malformed),
            (".a", HostFault::Malformed),
            ("a..b", HostFault::Malformed),
            ("-a", HostFault::Malformed),
            ("a b", HostFault::Malformed),
            ("a/b", HostFault::Malformed),
            ("u@a", HostFault::Malformed),
            ("a,b", HostFault::Malformed),
            ("ä", HostFault::Malformed),
            ("123", HostFault::Malformed),
            ("127.1", HostFault::Malformed),
            ("a.1", HostFault::Malformed),
            ("1.2.3.4.5", HostFault::Malformed),
            ("[::1", HostFault::Malformed),
            ("[::1]x", HostFault::Port),
            ("[::1%eth0]", HostFault::Malformed),
            ("[]", HostFault::Malformed),
            ("::1", HostFault::Malformed),
        ] {
            assert_eq!(run(value, &ParseOpts::default()), Err(fault), "{value}");
        }
    }

    #[test]
    fn lenient_is_not_careless() {
        let lenient = ParseOpts { host_strict: false, ..ParseOpts::default() };
        assert!(run("-a,b~", &lenient).is_ok() && run("127.1", &lenient).is_ok());
        for value in ["..", "a/b", "a\\b", "a b", "a\0", "u@a", "a..b", "/"] {
            assert_eq!(run(value, &lenient), Err(HostFault::Malformed), "{value}");
        }
        let verbatim = ParseOpts { host_normalize: false, ..ParseOpts::default() };
        assert_eq!(run("A.:80", &verbatim), Ok(("A.".into(), Some(80))));
        assert_eq!(run("[0::1]", &verbatim), Ok(("[0::1]".into(), None)));
    }

    #[test]
    fn the_length_is_bounded() {
        let name = |len: usize| ["a"; 128].join(".").repeat(2)[..len].to_string();
        assert!(run(&name(HOST_BYTES_MAX), &ParseOpts::default()).is_ok());
        let long = std::format!("{}b", name(HOST_BYTES_MAX));
        assert_eq!(run(&long, &ParseOpts::default()), Err(HostFault::TooLong));
        assert_eq!(run(&"a".repeat(400), &ParseOpts::default()), Err(HostFault::TooLong));
    }
}
