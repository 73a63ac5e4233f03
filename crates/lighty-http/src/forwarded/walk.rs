//! Finds the client from the direct peer through a list of trusted proxies.

use core::net::IpAddr;

use super::list::from_right;
use super::{Element, Node, NodeName, NodePort};
use crate::fields::list_items;
use crate::{Fields, Known};

/// Maximum number of list members inspected. No real request passes that many proxies.
pub const HOPS_MAX: usize = 64;

/// Result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedOrigin {
    /// The last address stated by a trusted proxy.
    pub addr: IpAddr,
    /// Its port, if stated. `None` also if `addr` is the direct peer's.
    pub port: Option<u16>,
    /// Number of members, from the right, written by trusted proxies.
    pub hops: usize,
    /// Reason for the walk's end.
    pub end: WalkEnd,
}

/// Reason for the end of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// `addr` is not trusted, so it is the client's.
    Client,
    /// All addresses in the list are trusted; `addr` is the first of them.
    Exhausted,
    /// A trusted proxy hides its client: `addr` is the proxy's. A caller that grants access by
    /// address must not grant the proxy's access to the client.
    Hidden,
    /// A trusted proxy forwarded a malformed entry: `addr` is the proxy's, with the same caution.
    Malformed,
    /// The list has more than [`HOPS_MAX`] members.
    TooMany,
}

/// A member of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// The client's address.
    From(IpAddr, Option<u16>),
    /// The client is hidden.
    Hidden,
    /// The member is malformed.
    Malformed,
}

impl Hop {
    fn from_node(node: Option<Node<'_>>) -> Self {
        match node {
            Some(Node { name: NodeName::Ip(ip), port: Some(NodePort::Number(port)) }) => {
                Self::From(ip, Some(port))
            }
            Some(Node { name: NodeName::Ip(ip), .. }) => Self::From(ip, None),
            Some(_) => Self::Hidden,
            None => Self::Malformed,
        }
    }
}

/// Goes from `peer`, the direct peer, through `hops`, the nearest first, as long as addresses are
/// `trusted`. The predicate gets mapped IPv4 addresses converted to plain ones.
pub fn walk(
    peer: IpAddr,
    hops: impl Iterator<Item = Hop>,
    mut trusted: impl FnMut(IpAddr) -> bool,
) -> ForwardedOrigin {
    let mut origin =
        ForwardedOrigin { addr: peer.to_canonical(), port: None, hops: 0, end: WalkEnd::Exhausted };
    let mut hops = hops;
    loop {
        if !trusted(origin.addr) {
            return ForwardedOrigin { end: WalkEnd::Client, ..origin };
        }
        if origin.hops == HOPS_MAX {
            return ForwardedOrigin { end: WalkEnd::TooMany, ..origin };
        }
        match hops.next() {
            None => return origin,
            Some(Hop::Malformed) => return ForwardedOrigin { end: WalkEnd::Malformed, ..origin },
            Some(Hop::Hidden) => {
                return ForwardedOrigin { end: WalkEnd::Hidden, hops: origin.hops + 1, ..origin };
            }
            Some(Hop::From(ip, port)) => {
                (origin.addr, origin.port) = (ip.to_canonical(), port);
                origin.hops += 1;
            }
        }
    }
}

/// Walks `X-Forwarded-For`, all lines as one list.
pub fn by_x_forwarded_for(
    peer: IpAddr,
    fields: &Fields,
    trusted: impl FnMut(IpAddr) -> bool,
) -> ForwardedOrigin {
    let members = fields.get_all(Known::XForwardedFor).rev().flat_map(items_from_right);
    walk(peer, members.map(|member| Hop::from_node(Node::parse_lenient(member))), trusted)
}

/// Walks `Forwarded`, all lines as one list. An element without `for` hides its client.
pub fn by_forwarded(
    peer: IpAddr,
    fields: &Fields,
    trusted: impl FnMut(IpAddr) -> bool,
) -> ForwardedOrigin {
    let members = fields.get_all(Known::Forwarded).rev().flat_map(from_right);
    let hops = members.map(|member| match member.ok().and_then(Element::parse) {
        None => Hop::Malformed,
        Some(Element { for_node: None, .. }) => Hop::Hidden,
        Some(Element { for_node: Some(value), .. }) => Hop::from_node(Node::parse(&value.text())),
    });
    walk(peer, hops, trusted)
}

/// Like [`list_items`], from the right.
fn items_from_right(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let members = line.rsplit(|&byte| byte == b',');
    members.flat_map(list_items)
}
