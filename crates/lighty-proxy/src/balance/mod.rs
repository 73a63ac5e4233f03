//! Balancers: each chooses one of the addresses that can take a request.
//!
//! A balancer is a function of its arguments and a little state; none knows of connections, health
//! or time. A new one is a file, a line in [`create`] and a kind in [`crate::spec::BalancerKind`].

use std::net::IpAddr;

use crate::spec::BalancerKind;

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
    /// Its place among all addresses of the upstream, in the order written: below their number, and
    /// the same from one call to the next while the addresses stay.
    pub index: u32,
    /// Hash of its name, by [`name_hash`]: the same in every process and on every machine.
    pub name_hash: u64,
    /// Effective weight in thousandths (slow start applied): at least 1.
    pub weight: u32,
    /// Requests under way, of all workers.
    pub busy: u32,
    /// Mean time to first byte in microseconds (EWMA); 0 = not known yet.
    pub first_byte_us: u32,
}

/// The parts of a request that a balancer may use.
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

/// A load-balancing algorithm. Shared by all workers: state is atomic.
pub(crate) trait Balancer: Send + Sync {
    /// The index in `choices` of the address to use. `choices` is not empty and is in the order
    /// written; addresses that are down, full or were tried for this request are not in it.
    fn pick(&self, choices: &[Choice], key: &Key<'_>) -> usize;
}

/// The balancer for a kind.
pub(crate) fn create(kind: &BalancerKind) -> Box<dyn Balancer> {
    match kind {
        BalancerKind::RoundRobin => Box::new(round_robin::RoundRobin::default()),
        BalancerKind::Sqf => Box::new(sqf::Sqf::default()),
        BalancerKind::Carp => Box::new(carp::Carp),
        BalancerKind::Static => Box::new(static_order::StaticOrder),
        BalancerKind::LeastTime => Box::new(least_time::LeastTime::default()),
        BalancerKind::TwoChoices => Box::new(two_choices::TwoChoices),
        BalancerKind::Sticky { fallback, .. } => {
            Box::new(sticky::Sticky { fallback: create(fallback) })
        }
        BalancerKind::BoundedHash { key, load_percent } => {
            Box::new(bounded_hash::BoundedHash::new(*key, *load_percent))
        }
        BalancerKind::SourceHash => Box::new(source_hash::SourceHash),
    }
}

/// True if `a` has less load for its weight than `b`; each is (requests in progress, weight).
/// Cross-multiplied, since a division would round.
fn less_loaded(a: (u32, u32), b: (u32, u32)) -> bool {
    u64::from(a.0) * u64::from(b.1.max(1)) < u64::from(b.0) * u64::from(a.1.max(1))
}

#[cfg(test)]
mod tests;
