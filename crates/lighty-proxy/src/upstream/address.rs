//! An address of an upstream: the upstream's settings for a backend, and the backend.

use std::ops::Deref;
use std::sync::Arc;

use lighty_io::connect::Target;
use lighty_io::tls::ClientOptions;

pub(crate) use crate::upstream::backend::AddressId;
use crate::upstream::backend::Backend;
use crate::upstream::operator::{OperatorOrder, OperatorState};
use crate::upstream::spec::SpawnSpec;

/// The configuration of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSpec {
    /// Its text in logs and statistics.
    pub text: Arc<str>,
    /// The backend's name in the configuration, if any.
    pub label: Option<Arc<str>>,
    pub target: Target,
    /// The program that the server starts there.
    pub program: Option<Arc<SpawnSpec>>,
    /// Share of requests, 0 to 1000; 0 drains it.
    pub weight: u32,
    /// Used only while no other address is up.
    pub backup: bool,
    /// Maximum number of connections, busy and idle, over all workers.
    pub connections_max: u32,
    /// The Host of requests to this address, in place of the client's.
    pub http_host: Option<Arc<str>>,
    /// TLS options; `None` without TLS.
    pub tls: Option<Arc<ClientOptions>>,
}

/// An address in use. Derefs to its backend, and adds the upstream's limits and share.
pub struct Address {
    pub spec: AddressSpec,
    /// Hash of the text: the same in every process.
    pub name_hash: u64,
    backend: Arc<Backend>,
}

impl Deref for Address {
    type Target = Backend;

    fn deref(&self) -> &Backend {
        &self.backend
    }
}

impl Address {
    /// Creates an address of a backend.
    pub fn new(spec: AddressSpec, backend: Arc<Backend>) -> Self {
        let name_hash = crate::upstream::balance::name_hash(spec.text.as_bytes());
        Self { spec, name_hash, backend }
    }

    /// Returns the backend itself, whatever upstreams use it.
    pub(crate) fn backend(&self) -> Arc<Backend> {
        Arc::clone(&self.backend)
    }

    /// Its share of requests: as an operator has ordered, or as configured; 0: none.
    #[inline]
    pub fn weight(&self) -> u32 {
        self.orders.weight(self.spec.weight)
    }

    /// Returns true if new requests may go to it while it is up.
    #[inline]
    pub fn takes_requests(&self) -> bool {
        self.weight() > 0 && self.operator_state() == OperatorState::Ready
    }

    pub(crate) fn obey(&self, order: OperatorOrder) {
        match order {
            OperatorOrder::State(state) => self.orders.set_state(state),
            OperatorOrder::Weight(weight) => self.orders.set_weight(self.spec.weight, weight),
            OperatorOrder::Limit(most) => {
                self.orders.set_connections_max(self.spec.connections_max, most);
            }
        }
    }

    /// Returns true if another connection may be opened.
    pub fn has_room(&self) -> bool {
        self.open() < self.connections_max()
    }

    /// Returns the number of connections that the configuration still permits.
    pub(crate) fn room_of_pool(&self) -> u32 {
        self.ordered_connections_max().saturating_sub(self.open())
    }

    /// Returns the limit on connections, as an operator has ordered, or as configured.
    #[inline]
    pub(crate) fn ordered_connections_max(&self) -> u32 {
        self.orders.connections_max(self.spec.connections_max)
    }

    /// Returns the limit on connections: as ordered or configured, and no more than the backend has
    /// shown to accept.
    fn connections_max(&self) -> u32 {
        self.ordered_connections_max().min(self.queue.limit())
    }

    /// Takes a permit for one of the connections, if there is one.
    pub(crate) fn try_open(&self) -> bool {
        self.backend.try_open(self.connections_max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::spec::HealthSpec;

    fn address(connections_max: u32) -> Address {
        let target = Target::Tcp("127.0.0.1:80".parse().expect("an address"));
        let spec = AddressSpec {
            text: "127.0.0.1:80".into(),
            label: None,
            target,
            program: None,
            weight: 1,
            backup: false,
            http_host: None,
            tls: None,
            connections_max,
        };
        let backend = Arc::new(Backend::new(&spec.target, &HealthSpec::default()));
        Address::new(spec, backend)
    }

    #[test]
    fn no_more_connections_than_the_limit() {
        let address = address(2);
        assert!(address.try_open() && address.try_open());
        assert!(!address.try_open() && !address.has_room());
        address.closed();
        assert!(address.try_open());
    }

    #[test]
    fn idle_connections_are_not_busy() {
        let address = address(4);
        assert!(address.try_open() && address.try_open());
        address.become_idle();
        assert_eq!((address.open(), address.idle(), address.busy()), (2, 1, 1));
        address.leave_idle();
        assert_eq!(address.busy(), 2);
    }

    #[test]
    fn the_mean_follows_what_is_seen() {
        let address = address(1);
        address.saw_first_byte(8_000);
        assert_eq!(address.first_byte_us(), 8_000);
        for _ in 0..100 {
            address.saw_first_byte(80_000);
        }
        assert!((70_000..=80_000).contains(&address.first_byte_us()));
        address.saw_first_byte(u64::MAX);
        assert!(address.first_byte_us() > 80_000);
    }
}
