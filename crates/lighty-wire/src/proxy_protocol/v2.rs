//! Version 2: twelve bytes of signature, four of command, family and length, addresses, extensions.
//! Section 2.2.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::tlv::{self, Extensions};
use super::{
    Command, EncodeFault, Endpoints, Header, Parsed, ProxyFault, Transport, Version, same_family,
};

/// Bytes before addresses and extensions.
pub const PREFIX_BYTES: usize = 16;

/// Bytes of a unix socket's name, padding included.
pub const UNIX_PATH_BYTES: usize = 108;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

const INET_BYTES: usize = 2 * (4 + 2);
const INET6_BYTES: usize = 2 * (16 + 2);
const UNIX_BYTES: usize = 2 * UNIX_PATH_BYTES;

pub(super) fn parse(buf: &[u8], bytes_max: usize) -> Result<Parsed<'_>, ProxyFault> {
    let common = SIGNATURE.len().min(buf.len());
    if buf[..common] != SIGNATURE[..common] {
        return Err(ProxyFault::Signature);
    }
    let Some(command) = buf.get(12).map(|&byte| parse_command(byte)).transpose()? else {
        return Ok(Parsed::Partial);
    };
    // "discard the protocol block including the family which is ignored"
    let family = match buf.get(13) {
        None => return Ok(Parsed::Partial),
        Some(_) if command == Command::Local => AddressFamily::Unspecified,
        Some(&byte) => parse_family(byte)?,
    };
    let Some(&[high, low]) = buf.get(14..PREFIX_BYTES).and_then(|len| len.first_chunk()) else {
        return Ok(Parsed::Partial);
    };
    let consumed = PREFIX_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if consumed > bytes_max {
        return Err(ProxyFault::TooLong);
    }
    let Some(bytes) = buf.get(..consumed) else { return Ok(Parsed::Partial) };
    let header = Header { command, ..parse_block(family, bytes, command)? };
    Ok(Parsed::Complete { consumed, header })
}

fn parse_command(byte: u8) -> Result<Command, ProxyFault> {
    match byte {
        0x20 => Ok(Command::Local),
        0x21 => Ok(Command::Proxy),
        0x22..=0x2F => Err(ProxyFault::Command),
        _ => Err(ProxyFault::Version),
    }
}

#[derive(Clone, Copy)]
enum AddressFamily {
    Unspecified,
    Inet(Transport),
    Inet6(Transport),
    Unix(Transport),
}

/// Parses family and transport. Unassigned values "must be rejected as invalid by receivers"; an
/// unspecified half makes the whole unspecified.
fn parse_family(byte: u8) -> Result<AddressFamily, ProxyFault> {
    let transport = match byte & 0x0F {
        0 => None,
        1 => Some(Transport::Stream),
        2 => Some(Transport::Datagram),
        _ => return Err(ProxyFault::Family),
    };
    let family = match byte >> 4 {
        0 => None,
        1 => transport.map(AddressFamily::Inet),
        2 => transport.map(AddressFamily::Inet6),
        3 => transport.map(AddressFamily::Unix),
        _ => return Err(ProxyFault::Family),
    };
    Ok(family.unwrap_or(AddressFamily::Unspecified))
}

/// Parses the addresses and extensions of a complete header.
fn parse_block(
    family: AddressFamily,
    bytes: &[u8],
    command: Command,
) -> Result<Header<'_>, ProxyFault> {
    let block = &bytes[PREFIX_BYTES..];
    let (transport, endpoints, len) = match family {
        AddressFamily::Unspecified => {
            let extensions = unspecified_extensions(bytes, command)?;
            return Ok(Header { extensions, ..Header::default() });
        }
        AddressFamily::Inet(transport) => (transport, inet(block), INET_BYTES),
        AddressFamily::Inet6(transport) => (transport, inet6(block), INET6_BYTES),
        AddressFamily::Unix(transport) => (transport, unix(block), UNIX_BYTES),
    };
    let endpoints = endpoints.ok_or(ProxyFault::AddressesMissing)?;
    let extensions = tlv::parse(bytes, PREFIX_BYTES + len)?;
    Ok(Header { version: Version::V2, transport, endpoints, extensions, ..Header::default() })
}

/// Extensions of a header with an unspecified family. The length of its addresses is unknown: bytes
/// that do not parse as extensions from the start are taken for addresses and skipped, as are all
/// bytes of a LOCAL header.
fn unspecified_extensions(bytes: &[u8], command: Command) -> Result<Extensions<'_>, ProxyFault> {
    match tlv::parse(bytes, PREFIX_BYTES) {
        _ if command == Command::Local => Ok(Extensions::default()),
        Err(ProxyFault::Checksum) => Err(ProxyFault::Checksum),
        other => Ok(other.unwrap_or_default()),
    }
}

fn inet(block: &[u8]) -> Option<Endpoints<'static>> {
    let (source, rest) = block.split_first_chunk::<4>()?;
    let (destination, rest) = rest.split_first_chunk::<4>()?;
    ends((*source).into(), (*destination).into(), rest)
}

fn inet6(block: &[u8]) -> Option<Endpoints<'static>> {
    let (source, rest) = block.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    ends((*source).into(), (*destination).into(), rest)
}

fn ends(source: IpAddr, destination: IpAddr, ports: &[u8]) -> Option<Endpoints<'static>> {
    let &[a, b, c, d] = ports.first_chunk()?;
    Some(Endpoints::Inet {
        source: SocketAddr::new(source, u16::from_be_bytes([a, b])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
    })
}

fn unix(block: &[u8]) -> Option<Endpoints<'_>> {
    let (source, rest) = block.split_at_checked(UNIX_PATH_BYTES)?;
    let destination = rest.get(..UNIX_PATH_BYTES)?;
    Some(Endpoints::Unix { source: unpadded(source), destination: unpadded(destination) })
}

/// Removes the padding. A path ends at its first NUL. An abstract name begins with NUL, so only
/// trailing NULs are known to be padding.
fn unpadded(path: &[u8]) -> &[u8] {
    let is_abstract = path.first() == Some(&0);
    let len = match is_abstract {
        true => path.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1),
        false => path.iter().position(|&byte| byte == 0).unwrap_or(path.len()),
    };
    &path[..len]
}

pub(super) fn encode(header: &Header<'_>, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    let start = out.len();
    push(header, start, out).inspect_err(|_| out.truncate(start))
}

fn push(header: &Header<'_>, start: usize, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    out.extend_from_slice(SIGNATURE);
    out.push(if header.command == Command::Local { 0x20 } else { 0x21 });
    out.extend_from_slice(&[0; 3]);
    if header.command == Command::Proxy {
        out[start + 13] = push_endpoints(header, out)?;
        tlv::push(&header.extensions, out)?;
    }
    let len = u16::try_from(out.len() - start - PREFIX_BYTES).map_err(|_| EncodeFault::TooLong)?;
    out[start + 14..start + PREFIX_BYTES].copy_from_slice(&len.to_be_bytes());
    if header.command == Command::Proxy && header.extensions.checksum {
        tlv::push_checksum(start, out);
    }
    Ok(())
}

/// Appends the addresses and returns the byte for family and transport.
fn push_endpoints(header: &Header<'_>, out: &mut Vec<u8>) -> Result<u8, EncodeFault> {
    let family = match header.endpoints {
        Endpoints::Own => return Ok(0),
        Endpoints::Inet { source, destination } => push_inet(source, destination, out),
        Endpoints::Unix { source, destination } => {
            push_path(source, out)?;
            push_path(destination, out)?;
            0x30
        }
    };
    Ok(family | if header.transport == Transport::Stream { 1 } else { 2 })
}

fn push_inet(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) -> u8 {
    let (source, destination) = same_family(source, destination);
    for end in [source, destination] {
        match end.ip() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
    if source.is_ipv4() { 0x10 } else { 0x20 }
}

fn push_path(path: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    let padding = UNIX_PATH_BYTES.checked_sub(path.len()).ok_or(EncodeFault::PathTooLong)?;
    out.extend_from_slice(path);
    out.resize(out.len() + padding, 0);
    Ok(())
}
