//! The PROXY protocol, versions 1 and 2: the client at the other end of a relayed connection.
//!
//! Source: HAProxy's `proxy-protocol.txt`, revision of 2020/03/05. A header appears once, before
//! the first relayed byte. Whether one is expected, and from which peer, is configured: the
//! document forbids guessing, since any client that may send one can claim any address.
//!
//! [`parse`] reads either version, [`encode`] writes what a [`Header`] says. A header that keeps
//! the socket's own addresses (LOCAL, UNKNOWN, an unspecified family) is [`Endpoints::Own`].

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

/// Default size limit of a version 2 header in bytes. The format allows 65551; addresses take 232
/// at most, and a certificate's names a few hundred more.
pub const V2_BYTES_MAX: usize = 4096;

/// Which form a header has on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary, with room for extensions.
    #[default]
    V2,
}

/// On whose behalf the connection was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Command {
    /// On the proxy's own: a health check. In version 2 only.
    Local,
    /// On another node's.
    #[default]
    Proxy,
}

/// How the relayed connection carries bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP, or a stream socket of the file system.
    #[default]
    Stream,
    /// UDP, or a datagram socket of the file system.
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
        /// What the client connected to.
        destination: SocketAddr,
    },
    /// Two names of local sockets, without padding; empty for an unnamed one.
    Unix {
        /// The client.
        source: &'a [u8],
        /// What the client connected to.
        destination: &'a [u8],
    },
}

/// A parsed header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its form.
    pub version: Version,
    /// Whose connection it is.
    pub command: Command,
    /// What it carries; `Stream` where that is not told.
    pub transport: Transport,
    /// The ends.
    pub endpoints: Endpoints<'a>,
    /// What version 2 adds.
    pub extensions: Extensions<'a>,
}

/// How far a header has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "it lives on the stack, once for each connection")]
pub enum Parsed<'a> {
    /// More bytes are needed. Hand the same bytes in again, with more behind them.
    Partial,
    /// The header is complete.
    Complete {
        /// Bytes to take off the front of the buffer; what is relayed follows.
        consumed: usize,
        /// What they say.
        header: Header<'a>,
    },
}

/// Reads the header at the front of `buf`, which keeps what it refers to. No more than
/// [`LINE_BYTES_MAX`] or `v2_bytes_max` bytes are ever waited for.
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

/// Appends the header, in the form that its version names. Version 1 has neither LOCAL nor
/// datagrams nor local sockets: these become `UNKNOWN`.
///
/// Addresses of two families go out as two IPv6 addresses, the IPv4 one mapped.
///
/// # Errors
/// [`EncodeFault`]; `out` is as before then.
pub fn encode(header: &Header<'_>, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    match header.version {
        Version::V1 => {
            v1::encode(header, out);
            Ok(())
        }
        Version::V2 => v2::encode(header, out),
    }
}

/// Brings two addresses into one family; mapped ones become plain where both can.
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
