//! Balancers. Each chooses an address among the ones that can take a request.
//!
//! A balancer is a function of its arguments and a little state; it knows nothing of connections,
//! health or time. To add one: a file and a line in [`REGISTRY`].

use std::net::IpAddr;
use std::sync::Arc;

mod bounded_hash;
mod carp;
mod hash;
mod least_time;
mod rendezvous;
mod round_robin;
mod source_hash;
mod sqf;
mod static_order;
mod sticky;
mod turns;
mod two_choices;

pub(crate) use hash::name_hash;
pub(crate) use sticky::{cookie_value, parse_cookie_value};

/// An address that is up and has room.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Its index among all addresses of the upstream, in the order written. Stable from one call to
    /// the next while the addresses stay.
    pub index: u32,
    /// Hash of its name, by [`name_hash`]: the same in every process and on every machine.
    pub name_hash: u64,
    /// Effective weight in thousandths (slow start applied): at least 1.
    pub weight: u32,
    /// Requests in progress, of all workers.
    pub busy: u32,
    /// Mean time to first byte in microseconds (EWMA); 0 = unknown.
    pub first_byte_us: u32,
}

/// The parts of a request that a balancer may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct BalanceKey<'a> {
    pub authority: &'a [u8],
    /// The URL's path and query.
    pub target: &'a [u8],
    pub client: Option<IpAddr>,
    /// The name's hash of the backend in the client's cookie.
    pub sticky: Option<u64>,
    /// A fresh random number.
    pub random: u64,
}

/// A load-balancing algorithm. Shared by all workers: state is atomic.
pub(crate) trait Balancer: Send + Sync {
    /// Returns the index in `choices` of the address to use. `choices` is not empty and is in the
    /// order written; it omits addresses that are down, full or were tried for this request.
    fn pick(&self, choices: &[Choice], key: &BalanceKey<'_>) -> usize;
}

/// Settings of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BalancerSpec {
    /// The algorithm (`proxy-core.balancer`).
    pub algorithm: Algorithm,
    /// Directives that tune it.
    pub options: BalancerOptions,
    /// Name of the cookie with a client's backend (`sticky`); the algorithm chooses for clients
    /// without one.
    pub cookie: Option<Arc<str>>,
}

/// Directives that a balancing algorithm may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BalancerOptions {
    /// `proxy-core.hash-key`.
    pub hash_key: HashKey,
    /// `proxy-core.hash-load`, percent of the mean load.
    pub load_percent: u32,
}

impl Default for BalancerOptions {
    fn default() -> Self {
        Self { hash_key: HashKey::Url, load_percent: 125 }
    }
}

/// Input of a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HashKey {
    /// The request's host, path and query.
    #[default]
    Url,
    /// The client's address; a random number for a client without one.
    Client,
}

/// A line of the registry.
pub(crate) struct BalancerRow {
    /// Names of `proxy-core.balancer`, the main one first.
    pub names: &'static [&'static str],
    /// Description of the chosen backend, for the manual.
    pub doc: &'static str,
    create: fn(&BalancerOptions) -> Box<dyn Balancer>,
}

/// Every algorithm, in the order of the manual. The first is the default.
pub(crate) const REGISTRY: &[BalancerRow] = &[
    round_robin::ENTRY,
    sqf::ENTRY,
    carp::ENTRY,
    static_order::ENTRY,
    least_time::ENTRY,
    two_choices::ENTRY,
    bounded_hash::ENTRY,
    source_hash::ENTRY,
];

/// An algorithm, by its index in the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Algorithm(usize);

impl Algorithm {
    /// Returns the algorithm of a word of `proxy-core.balancer`.
    pub fn named(word: &str) -> Option<Self> {
        REGISTRY.iter().position(|entry| entry.names.contains(&word)).map(Self)
    }
}

/// Creates the balancer for a specification.
pub(crate) fn create(spec: &BalancerSpec) -> Box<dyn Balancer> {
    let balancer = (REGISTRY[spec.algorithm.0].create)(&spec.options);
    match &spec.cookie {
        Some(_) => Box::new(sticky::Sticky { fallback: balancer }),
        None => balancer,
    }
}

/// Returns true if `a` has less load for its weight than `b`; each is (requests in progress,
/// weight). Cross-multiplied, since a division would round.
fn less_loaded(a: (u32, u32), b: (u32, u32)) -> bool {
    u64::from(a.0) * u64::from(b.1.max(1)) < u64::from(b.0) * u64::from(a.1.max(1))
}

#[cfg(test)]
mod tests;
