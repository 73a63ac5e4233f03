//! Writes the PROXY protocol header that opens a connection on behalf of one client.

use std::net::SocketAddr;

use lighty_core::Exchange;
use lighty_io::transport::Peer;
use lighty_wire::proxy_protocol::{self, Command, Endpoints, Header, Version};

use crate::upstream::spec::ProxyProtocol;

/// Appends the header for the request's client. A client without an address is announced as
/// lighty's own connection (LOCAL).
pub(crate) fn push(ex: &Exchange, version: ProxyProtocol, out: &mut Vec<u8>) {
    let listener = ex.request.local_socket.parse::<SocketAddr>().ok();
    push_for(&ex.request.peer, listener, version, out);
}

/// Appends the header for the client connected to `listener`.
pub(crate) fn push_for(
    peer: &Peer,
    listener: Option<SocketAddr>,
    version: ProxyProtocol,
    out: &mut Vec<u8>,
) {
    let ends = match (peer, listener) {
        (Peer::Inet(source), Some(destination)) => Some((*source, destination)),
        _ => None,
    };
    let header = Header {
        version: match version {
            ProxyProtocol::V1 => Version::V1,
            ProxyProtocol::V2 => Version::V2,
        },
        command: if ends.is_some() { Command::Proxy } else { Command::Local },
        endpoints: ends.map_or(Endpoints::Own, |(source, destination)| Endpoints::Inet {
            source,
            destination,
        }),
        ..Header::default()
    };
    // Only extensions can be too long, and the header has none.
    let _ = proxy_protocol::encode(&header, out);
}
