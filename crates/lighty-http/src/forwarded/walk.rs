//! From the neighbour back to the client, as far as there is reason to believe what is said.

use core::net::IpAddr;

use super::list::from_right;
use super::{Element, Node, NodeName, NodePort};
use crate::fields::list_items;
use crate::{Fields, Known};

/// Members of a list that are looked at. No request comes through that many proxies.
pub const HOPS_MAX: usize = 64;

/// Where the walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The last address that somebody who is trusted vouches for.
    pub addr: IpAddr,
    /// Its port, if it was told. `None` also if `addr` is the neighbour itself.
    pub port: Option<u16>,
    /// How many members, from the right, trusted proxies have written.
    pub hops: usize,
    /// Why it ended.
    pub end: End,
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `addr` is not trusted: it is the client's.
    Client,
    /// Everybody who is named is trusted: `addr` is the first of them.
    Exhausted,
    /// A trusted proxy does not say for whom it asked: `addr` is the proxy's. A caller that
    /// gives rights to addresses must not give the proxy's to the client.
    Hidden,
    /// What a trusted proxy passed on is not legible: `addr` is the proxy's, as above.
    Malformed,
    /// More than [`HOPS_MAX`].
    TooMany,
}

/// What one member of a list says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// The request came from there.
    From(IpAddr, Option<u16>),
    /// Nothing about where it came from.
    Hidden,
    /// Nothing that can be understood.
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

/// Goes from `peer`, the neighbour, through `hops`, the nearest first, while the address at hand is
/// `trusted`. The predicate sees IPv4 addresses plain, never mapped.
pub fn walk(
    peer: IpAddr,
    hops: impl Iterator<Item = Hop>,
    mut trusted: impl FnMut(IpAddr) -> bool,
) -> Origin {
    let mut origin = Origin { addr: peer.to_canonical(), port: None, hops: 0, end: End::Exhausted };
    let mut hops = hops;
    loop {
        if !trusted(origin.addr) {
            return Origin { end: End::Client, ..origin };
        }
        if origin.hops == HOPS_MAX {
            return Origin { end: End::TooMany, ..origin };
        }
        match hops.next() {
            None => return origin,
            Some(Hop::Malformed) => return Origin { end: End::Malformed, ..origin },
            Some(Hop::Hidden) => {
                return Origin { end: End::Hidden, hops: origin.hops + 1, ..origin };
            }
            Some(Hop::From(ip, port)) => {
                (origin.addr, origin.port) = (ip.to_canonical(), port);
                origin.hops += 1;
            }
        }
    }
}

/// Walks `X-Forwarded-For`, all its lines as one list.
pub fn by_x_forwarded_for(
    peer: IpAddr,
    fields: &Fields,
    trusted: impl FnMut(IpAddr) -> bool,
) -> Origin {
    let members = fields.get_all(Known::XForwardedFor).rev().flat_map(items_from_right);
    walk(peer, members.map(|member| Hop::from_node(Node::parse_lenient(member))), trusted)
}

/// Walks `Forwarded`, all its lines as one list. An element without `for` hides its client.
pub fn by_forwarded(peer: IpAddr, fields: &Fields, trusted: impl FnMut(IpAddr) -> bool) -> Origin {
    let members = fields.get_all(Known::Forwarded).rev().flat_map(from_right);
    let hops = members.map(|member| match member.ok().and_then(Element::parse) {
        None => Hop::Malformed,
        Some(Element { for_node: None, .. }) => Hop::Hidden,
        Some(Element { for_node: Some(value), .. }) => Hop::from_node(Node::parse(&value.text())),
    });
    walk(peer, hops, trusted)
}

/// As [`list_items`], from the right.
fn items_from_right(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let members = line.rsplit(|&byte| byte == b',');
    members.flat_map(list_items)
}
