//! Gives orders of an operator to the backends that they name.

use std::sync::Arc;

use crate::upstream::operator::{OperatorOrder, OperatorState};
use crate::upstream::registry::Registry;

/// A backend that has obeyed an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedBackend {
    /// The upstream's name in statistics.
    pub upstream: Arc<str>,
    /// The backend's address in logs.
    pub backend: Arc<str>,
    /// Its use now.
    pub state: OperatorState,
    /// Its weight now.
    pub weight: u32,
}

/// Reason why an order reaches no backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderFault {
    /// No upstream of the current configuration has such a backend.
    NoBackend,
    /// These upstreams have one.
    Ambiguous(Vec<Arc<str>>),
}

/// Gives a backend an order. `name` is its address in logs or its name in the configuration;
/// `upstream` the name in statistics of its upstream, necessary if several have such a backend.
///
/// # Errors
/// No backend, or several, have these names.
pub fn give(
    registry: &Registry,
    name: &str,
    upstream: Option<&str>,
    order: OperatorOrder,
) -> Result<OrderedBackend, OrderFault> {
    let mut found = Vec::new();
    for one in registry.all() {
        if upstream.is_some_and(|upstream| *one.label != *upstream) {
            continue;
        }
        for address in one.addresses().iter() {
            let spec = &address.spec;
            if *spec.text == *name || spec.label.as_deref() == Some(name) {
                found.push((Arc::clone(&one), Arc::clone(address)));
            }
        }
    }
    let (one, address) = match &found[..] {
        [] => return Err(OrderFault::NoBackend),
        [only] => only,
        _ => {
            let labels = found.iter().map(|(one, _)| Arc::clone(&one.label));
            return Err(OrderFault::Ambiguous(labels.collect()));
        }
    };
    one.order(address, order);
    Ok(OrderedBackend {
        upstream: Arc::clone(&one.label),
        backend: Arc::clone(&address.spec.text),
        state: address.operator_state(),
        weight: address.weight(),
    })
}
