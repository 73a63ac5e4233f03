//! An endpoint of a connection in a proxy's notation: RFC 7239 section 6.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// A name with an optional port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// The endpoint's address or name.
    pub name: NodeName<'a>,
    /// The endpoint's port.
    pub port: Option<NodePort<'a>>,
}

/// Name of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeName<'a> {
    /// An address; IPv4 addresses mapped into IPv6 are converted.
    Ip(IpAddr),
    /// `unknown`: the proxy does not know it.
    Unknown,
    /// `_` and a name by which the proxy hides the address.
    Obfuscated(&'a [u8]),
}

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePort<'a> {
    /// Its number.
    Number(u16),
    /// `_` and a name by which the proxy hides the number.
    Obfuscated(&'a [u8]),
}

impl<'a> Node<'a> {
    /// An address without a port.
    #[must_use]
    pub fn from_ip(ip: IpAddr) -> Self {
        Self { name: NodeName::Ip(ip.to_canonical()), port: None }
    }

    /// Parses the value of `for` or `by`, without quotes. IPv6 addresses have brackets.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (name, port) = match text {
            [b'[', ..] => {
                let end = text.iter().position(|&byte| byte == b']')?;
                (parse_ip::<Ipv6Addr>(&text[1..end])?, &text[end + 1..])
            }
            _ => {
                let end = text.iter().position(|&byte| byte == b':').unwrap_or(text.len());
                (parse_name(&text[..end])?, &text[end..])
            }
        };
        let port = match port {
            [] => None,
            [b':', port @ ..] => Some(parse_port(port)?),
            _ => return None,
        };
        Some(Self { name, port })
    }

    /// Parses a member of `X-Forwarded-For`, which has no specified grammar: like [`Node::parse`],
    /// and IPv6 addresses without brackets.
    #[must_use]
    pub fn parse_lenient(text: &'a [u8]) -> Option<Self> {
        match parse_ip::<Ipv6Addr>(text) {
            Some(name) => Some(Self { name, port: None }),
            None => Self::parse(text),
        }
    }
}

fn parse_name(text: &[u8]) -> Option<NodeName<'_>> {
    if text.eq_ignore_ascii_case(b"unknown") {
        return Some(NodeName::Unknown);
    }
    if is_obfuscated(text) {
        return Some(NodeName::Obfuscated(text));
    }
    parse_ip::<Ipv4Addr>(text)
}

fn parse_ip<'a, A: FromStr + Into<IpAddr>>(text: &[u8]) -> Option<NodeName<'a>> {
    let ip = core::str::from_utf8(text).ok()?.parse::<A>().ok()?;
    Some(NodeName::Ip(ip.into().to_canonical()))
}

/// `1*5DIGIT`, or obfuscated.
fn parse_port(text: &[u8]) -> Option<NodePort<'_>> {
    if is_obfuscated(text) {
        return Some(NodePort::Obfuscated(text));
    }
    if !matches!(text.len(), 1..=5) || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = text.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    u16::try_from(number).ok().map(NodePort::Number)
}

/// `"_" 1*( ALPHA / DIGIT / "." / "_" / "-" )`
pub(super) fn is_obfuscated(text: &[u8]) -> bool {
    let byte_ok = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    matches!(text, [b'_', rest @ ..] if !rest.is_empty() && rest.iter().all(byte_ok))
}
