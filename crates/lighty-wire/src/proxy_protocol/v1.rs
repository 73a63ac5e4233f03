//! Version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443` and CR LF. Section 2.1.

use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use super::{Endpoints, Header, Parsed, ProxyFault, Transport, Version, same_family};

/// Maximum bytes of a line, its end included, that a sender may write.
pub const LINE_BYTES_MAX: usize = 107;

/// The beginning of every line.
pub(super) const PREFIX: &[u8] = b"PROXY ";

pub(super) fn parse(buf: &[u8]) -> Result<Parsed<'_>, ProxyFault> {
    let common = PREFIX.len().min(buf.len());
    if buf[..common] != PREFIX[..common] {
        return Err(ProxyFault::Signature);
    }
    let Some(line) = find_line(buf)? else { return Ok(Parsed::Partial) };
    let endpoints = parse_endpoints(&line[PREFIX.len()..])?;
    let header = Header { version: Version::V1, endpoints, ..Header::default() };
    Ok(Parsed::Complete { consumed: line.len() + 2, header })
}

/// The complete line, without its end. "The receiver must not tolerate a single CR or LF character
/// to end the line when a complete CRLF sequence is expected."
fn find_line(buf: &[u8]) -> Result<Option<&[u8]>, ProxyFault> {
    let window = &buf[..buf.len().min(LINE_BYTES_MAX)];
    let end = window.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    match end.map(|at| (at, window[at], window.get(at + 1))) {
        Some((at, b'\r', Some(b'\n'))) => Ok(Some(&buf[..at])),
        Some((_, b'\r', None)) if window.len() < LINE_BYTES_MAX => Ok(None),
        Some((_, b'\r', None)) => Err(ProxyFault::LineTooLong),
        Some(_) => Err(ProxyFault::LineEnd),
        None if window.len() < LINE_BYTES_MAX => Ok(None),
        None => Err(ProxyFault::LineTooLong),
    }
}

fn parse_endpoints(tokens: &[u8]) -> Result<Endpoints<'static>, ProxyFault> {
    let mut tokens = tokens.split(|&byte| byte == b' ');
    match tokens.next() {
        Some(b"TCP4") => parse_inet::<Ipv4Addr>(tokens),
        Some(b"TCP6") => parse_inet::<Ipv6Addr>(tokens),
        // "the receiver must ignore anything presented before the CRLF is found"
        Some(b"UNKNOWN") => Ok(Endpoints::Own),
        _ => Err(ProxyFault::Family),
    }
}

fn parse_inet<'a, A: FromStr + Into<IpAddr>>(
    mut tokens: impl Iterator<Item = &'a [u8]>,
) -> Result<Endpoints<'static>, ProxyFault> {
    let mut word = || tokens.next().unwrap_or_default();
    let (source, destination) = (parse_ip::<A>(word())?, parse_ip::<A>(word())?);
    let (source_port, destination_port) = (parse_port(word())?, parse_port(word())?);
    if tokens.next().is_some() {
        return Err(ProxyFault::Port);
    }
    Ok(Endpoints::Inet {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
    })
}

fn parse_ip<A: FromStr + Into<IpAddr>>(word: &[u8]) -> Result<IpAddr, ProxyFault> {
    let text = core::str::from_utf8(word).map_err(|_| ProxyFault::Address)?;
    text.parse::<A>().map(Into::into).map_err(|_| ProxyFault::Address)
}

/// Parses a port. "Heading zeroes are not permitted in front of numbers".
fn parse_port(word: &[u8]) -> Result<u16, ProxyFault> {
    let digits_ok = matches!(word.len(), 1..=5) && word.iter().all(u8::is_ascii_digit);
    if !digits_ok || (word.len() > 1 && word[0] == b'0') {
        return Err(ProxyFault::Port);
    }
    let number = word.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    u16::try_from(number).map_err(|_| ProxyFault::Port)
}

pub(super) fn encode(header: &Header<'_>, out: &mut Vec<u8>) {
    let Endpoints::Inet { source, destination } = header.endpoints else {
        return out.extend_from_slice(b"PROXY UNKNOWN\r\n");
    };
    if header.transport != Transport::Stream || header.command != super::Command::Proxy {
        return out.extend_from_slice(b"PROXY UNKNOWN\r\n");
    }
    let (source, destination) = same_family(source, destination);
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), destination.ip());
    let (from_port, to_port) = (source.port(), destination.port());
    // Writing to a vector cannot fail.
    let _ = write!(LineWriter(out), "PROXY {family} {from} {to} {from_port} {to_port}\r\n");
}

/// Formats into a byte buffer without another allocation.
struct LineWriter<'a>(&'a mut Vec<u8>);

impl Write for LineWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
