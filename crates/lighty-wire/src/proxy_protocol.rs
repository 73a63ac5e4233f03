//! The PROXY protocol, versions 1 and 2: identifies the client of a relayed connection.
//!
//! Source: HAProxy's `proxy-protocol.txt`, revision of 2020/03/05. A header appears once, before
//! the first relayed byte. The configuration determines the peers that send one: the document
//! forbids guessing, since any client that may send a header can claim any address.
//!
//! [`parse`] reads either version, [`encode`] writes a [`Header`]. A header that keeps the socket's
//! own addresses (LOCAL, UNKNOWN, an unspecified family) is [`Endpoints::Own`].

mod crc32c;
mod fault;
mod tlv;
mod v1;
mod v2;

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

pub use fault::{EncodeFault, ProxyFault};
pub use tlv::{Extensions, Tls, UNIQUE_ID_BYTES_MAX};
pub use v1::LINE_BYTES_MAX;
pub use v2::{PREFIX_BYTES, UNIX_PATH_BYTES};

/// Default size limit of a version 2 header in bytes. The format allows 65551; addresses take at
/// most 232, and names from a certificate a few hundred more.
pub const V2_BYTES_MAX: usize = 4096;

/// Wire format of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary, with room for extensions.
    #[default]
    V2,
}

/// Origin of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Command {
    /// The proxy itself, for a health check. Only in version 2.
    Local,
    /// A client of the proxy.
    #[default]
    Proxy,
}

/// Transport of the relayed connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP, or a unix stream socket.
    #[default]
    Stream,
    /// UDP, or a unix datagram socket.
    Datagram,
}

/// The two ends of the relayed connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoints<'a> {
    /// Not given: the socket's own addresses apply.
    #[default]
    Own,
    /// Two addresses of one family.
    Inet {
        /// The client.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
    },
    /// Two names of unix sockets, without padding; empty for an unnamed one.
    Unix {
        /// The client.
        source: &'a [u8],
        /// The socket that the client connected to.
        destination: &'a [u8],
    },
}

/// A parsed header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// The wire format.
    pub version: Version,
    /// The origin of the connection.
    pub command: Command,
    /// The transport; `Stream` if unspecified.
    pub transport: Transport,
    /// The endpoints.
    pub endpoints: Endpoints<'a>,
    /// The extensions of version 2.
    pub extensions: Extensions<'a>,
}

/// Progress of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "it lives on the stack, once for each connection")]
pub enum Parsed<'a> {
    /// More bytes are needed. Pass the same bytes again, with more after them.
    Partial,
    /// The header is complete.
    Complete {
        /// Bytes to remove from the front of the buffer. Relayed bytes follow.
        consumed: usize,
        /// The parsed header.
        header: Header<'a>,
    },
}

/// Parses the header at the front of `buf`, which the result borrows. Never asks for more than
/// [`LINE_BYTES_MAX`] or `v2_bytes_max` bytes.
///
/// # Errors
/// [`ProxyFault`], as soon as it is certain. Close the connection.
pub fn parse(buf: &[u8], v2_bytes_max: usize) -> Result<Parsed<'_>, ProxyFault> {
    match buf.first() {
        None => Ok(Parsed::Partial),
        Some(&byte) if byte == v1::PREFIX[0] => v1::parse(buf),
        Some(_) => v2::parse(buf, v2_bytes_max),
    }
}

/// Appends the header in the format of its version. Version 1 has neither LOCAL nor datagrams nor
/// unix sockets: these become `UNKNOWN`.
///
/// Addresses of different families are written as IPv6 addresses, with the IPv4 one mapped.
///
/// # Errors
/// [`EncodeFault`]; `out` is unchanged then.
pub fn encode(header: &Header<'_>, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    match header.version {
        Version::V1 => {
            v1::encode(header, out);
            Ok(())
        }
        Version::V2 => v2::encode(header, out),
    }
}

/// Converts two addresses to one family. Mapped addresses become IPv4 if both can.
fn same_family(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    let (source, destination) = (plain(source), plain(destination));
    if source.is_ipv4() == destination.is_ipv4() {
        return (source, destination);
    }
    let mapped = |end: SocketAddr| match end.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), end.port()),
        IpAddr::V6(_) => end,
    };
    (mapped(source), mapped(destination))
}

#[cfg(test)]
mod tests;
