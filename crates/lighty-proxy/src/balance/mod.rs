//! Balancers: which of the addresses that can take a request gets it.
//!
//! Each is a function of what is handed to it and of little state of its own; none knows of
//! connections, health or time. A new one is a file, a line in [`create`] and a kind in
//! [`crate::spec::BalancerKind`].

use std::net::IpAddr;

use crate::spec::BalancerKind;

mod round_robin;

/// An address that is up and has room.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Its place among all addresses of the upstream, in the order written; the same from one call
    /// to the next while the addresses stay.
    pub place: u32,
    /// Hash of its name: the same in every process and on every machine.
    pub name_hash: u64,
    /// Effective weight in thousandths (slow start applied): at least 1.
    pub weight: u32,
    /// Requests under way, of all workers.
    pub busy: u32,
    /// Mean time to first byte in microseconds (EWMA); 0 = not known yet.
    pub first_byte_us: u32,
}

/// What a balancer may look at of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Key<'a> {
    pub authority: &'a [u8],
    /// The URL's path and query.
    pub target: &'a [u8],
    pub client: Option<IpAddr>,
    /// The backend that the client's cookie names, by its name's hash.
    pub sticky: Option<u64>,
    /// A fresh random number.
    pub random: u64,
}

/// A way to choose. Shared by all workers: state is atomic.
pub trait Balancer: Send + Sync {
    /// As written in `proxy-core.balancer`.
    fn name(&self) -> &'static str;

    /// The index in `choices` of the address to use. `choices` is not empty and is in the order
    /// written; addresses that are down, full or were tried for this request are not in it.
    fn pick(&self, choices: &[Choice], key: &Key<'_>) -> usize;
}

/// The balancer for a kind.
pub fn create(_kind: &BalancerKind) -> Box<dyn Balancer> {
    Box::new(round_robin::RoundRobin::default())
}
