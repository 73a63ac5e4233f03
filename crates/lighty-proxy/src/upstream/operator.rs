//! The state of a backend that an operator has ordered at run time.
//!
//! ```text
//!             drain                  maintenance
//! Ready ------------> Draining ---------------------> Maintenance
//!   ^                    |                                 |
//!   +------- ready ------+-------------- ready ------------+
//! ```
//!
//! Each order leads from any state to its own. Orders belong to the backend, so a reload keeps
//! them. A weight or a limit holds until the configuration has another one for the address.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::upstream::names;

/// Maximum weight of a backend.
pub const WEIGHT_MAX: u32 = names::WEIGHT_MAX;

/// Maximum number of connections to a backend that an operator can order: as of
/// `proxy-core.max-pool-size`.
pub const LIMIT_MAX: u32 = 65_535;

/// Use of a backend that an operator has ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum OperatorState {
    /// As configured.
    #[default]
    Ready,
    /// No new requests.
    Draining,
    /// No new requests and no health checks.
    Maintenance,
}

/// An order of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorOrder {
    /// Use, or stop to use, the backend.
    State(OperatorState),
    /// A weight in place of the configured one; `None`: the configured one again.
    Weight(Option<u32>),
    /// A maximum number of connections, 1 to [`LIMIT_MAX`], in place of the configured one; `None`:
    /// the configured one again.
    Limit(Option<u32>),
}

impl OperatorState {
    const ALL: [Self; 3] = [Self::Ready, Self::Draining, Self::Maintenance];

    /// The state with a name for users.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Its name for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining => "drain",
            Self::Maintenance => "maintenance",
        }
    }
}

/// The orders for one backend.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    state: AtomicU8,
    weight: OrderedNumber,
    connections_max: OrderedNumber,
}

/// A number in place of a configured one: the configured one at the time of the order, and the
/// ordered one plus 1; 0: no order.
#[derive(Debug, Default)]
struct OrderedNumber(AtomicU64);

impl OrderedNumber {
    fn set(&self, configured: u32, number: Option<u32>) {
        let ordered = number.map_or(0, |number| u64::from(number) + 1);
        self.0.store(u64::from(configured) << 32 | ordered, Ordering::Relaxed);
    }

    /// The configured number at the time of the order, and the ordered one.
    fn get(&self) -> Option<(u32, u32)> {
        let order = self.0.load(Ordering::Relaxed);
        let ordered = (order & u64::from(u32::MAX)) as u32;
        ordered.checked_sub(1).map(|ordered| ((order >> 32) as u32, ordered))
    }

    #[inline]
    fn beside(&self, configured: u32) -> u32 {
        let order = self.0.load(Ordering::Relaxed);
        match (order >> 32, (order & u64::from(u32::MAX)) as u32) {
            (_, 0) => configured,
            (before, ordered) if before == u64::from(configured) => ordered - 1,
            _ => configured,
        }
    }
}

/// The orders for one backend, for another process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RememberedOrders {
    /// Name of the ordered use.
    pub state: String,
    /// The configured weight at the time of the order, and the ordered one.
    pub weight: Option<(u32, u32)>,
    /// The same of its maximum number of connections.
    pub connections_max: Option<(u32, u32)>,
}

impl Orders {
    pub(crate) fn remember(&self) -> RememberedOrders {
        RememberedOrders {
            state: self.state().name().to_owned(),
            weight: self.weight.get(),
            connections_max: self.connections_max.get(),
        }
    }

    pub(crate) fn recall(&self, orders: &RememberedOrders) {
        self.set_state(OperatorState::of_name(&orders.state).unwrap_or_default());
        let (configured, ordered) = orders.weight.unzip();
        let ordered = ordered.map(|weight: u32| weight.min(WEIGHT_MAX));
        self.set_weight(configured.unwrap_or(0), ordered);
        let (configured, ordered) = orders.connections_max.unzip();
        let ordered = ordered.map(|most: u32| most.clamp(1, LIMIT_MAX));
        self.set_connections_max(configured.unwrap_or(0), ordered);
    }

    pub(crate) fn state(&self) -> OperatorState {
        let number = usize::from(self.state.load(Ordering::Relaxed));
        OperatorState::ALL.get(number).copied().unwrap_or_default()
    }

    pub(crate) fn set_state(&self, state: OperatorState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Orders a weight in place of the configured one; `None`: the configured one.
    pub(crate) fn set_weight(&self, configured: u32, weight: Option<u32>) {
        self.weight.set(configured, weight);
    }

    /// Orders a maximum number of connections; `None`: the configured one.
    pub(crate) fn set_connections_max(&self, configured: u32, most: Option<u32>) {
        self.connections_max.set(configured, most);
    }

    /// The maximum number of connections in effect beside a configured one.
    #[inline]
    pub(crate) fn connections_max(&self, configured: u32) -> u32 {
        self.connections_max.beside(configured)
    }

    /// The weight in effect beside a configured one.
    #[inline]
    pub(crate) fn weight(&self, configured: u32) -> u32 {
        self.weight.beside(configured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_leads_from_every_state_to_its_own() {
        for before in OperatorState::ALL {
            for after in OperatorState::ALL {
                let orders = Orders::default();
                orders.set_state(before);
                orders.set_state(after);
                assert_eq!(orders.state(), after);
            }
        }
    }

    #[test]
    fn orders_survive_an_upgrade() {
        for (state, weight) in [
            (OperatorState::Ready, None),
            (OperatorState::Draining, Some(0)),
            (OperatorState::Maintenance, Some(WEIGHT_MAX)),
        ] {
            let (before, after) = (Orders::default(), Orders::default());
            before.set_state(state);
            before.set_weight(3, weight);
            before.set_connections_max(256, weight.map(|_| 7));
            after.recall(&before.remember());
            assert_eq!((after.state(), after.weight(3)), (state, weight.unwrap_or(3)));
            assert_eq!(after.weight(4), 4);
            assert_eq!(after.connections_max(256), if weight.is_some() { 7 } else { 256 });
        }
    }

    #[test]
    fn ordered_weight_holds_until_another_is_configured() {
        let orders = Orders::default();
        assert_eq!(orders.weight(3), 3);
        orders.set_weight(3, Some(0));
        assert_eq!((orders.weight(3), orders.weight(4)), (0, 4));
        orders.set_weight(3, Some(7));
        assert_eq!((orders.weight(3), orders.weight(4)), (7, 4));
        orders.set_weight(3, None);
        assert_eq!(orders.weight(3), 3);
        orders.set_connections_max(256, Some(2));
        assert_eq!((orders.connections_max(256), orders.connections_max(8)), (2, 8));
    }
}
