//! Gives orders of an operator to the backends that they name, and adds and removes backends.

use std::sync::Arc;

use lighty_io::connect::Target;
use lighty_io::sandbox;

use crate::upstream::Upstream;
use crate::upstream::address::Address;
use crate::upstream::members::{MEMBERS_MAX, Member};
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
    /// Its weight without orders.
    pub configured_weight: u32,
    /// Its maximum number of connections now.
    pub connections_max: u32,
    /// That number without orders.
    pub configured_connections_max: u32,
}

/// Reason why an order reaches no backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderFault {
    /// No upstream of the current configuration has such a backend.
    NoBackend,
    /// The current configuration has no such upstream.
    NoUpstream,
    /// These upstreams have one.
    Ambiguous(Vec<Arc<str>>),
    /// The text is no address of a backend that can be added.
    NoAddress,
    /// The upstream has this backend already.
    Known,
    /// The configuration has the backend, so it cannot be removed.
    Configured,
    /// So many backends have been added.
    Full(usize),
    /// The sandbox forbids connections to this port.
    Sandbox(u16),
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
    let (one, address) = find(registry, name, upstream)?;
    one.order(&address, order);
    Ok(ordered(&one, &address))
}

/// Adds a backend to an upstream, with the options of the upstream's first backend. `text` is
/// `IP:port`, `[IPv6]:port` or `unix:/path`.
///
/// # Errors
/// There is no such upstream, it has the backend, the text is no address, or there are too many.
pub fn add(
    registry: &Registry,
    text: &str,
    upstream: &str,
    weight: u32,
) -> Result<OrderedBackend, OrderFault> {
    let member = Member::parse(text, weight).ok_or(OrderFault::NoAddress)?;
    if let Target::Tcp(address) = &member.target
        && sandbox::forbids_port(address.port())
    {
        return Err(OrderFault::Sandbox(address.port()));
    }
    let one = upstream_of(registry, upstream)?;
    let is_known = |a: &Arc<Address>| *a.spec.text == *text || a.spec.target == member.target;
    if one.addresses().iter().any(is_known) {
        return Err(OrderFault::Known);
    }
    if !one.add_member(member) {
        return Err(OrderFault::Full(MEMBERS_MAX));
    }
    let addresses = one.addresses();
    let added = addresses.iter().find(|address| *address.spec.text == *text);
    let added = added.ok_or(OrderFault::NoBackend)?;
    Ok(ordered(&one, added))
}

/// Removes a backend that [`add`] has added. Requests under way at it go on.
///
/// # Errors
/// No backend, or several, have these names, or the configuration has it.
pub fn remove(
    registry: &Registry,
    name: &str,
    upstream: Option<&str>,
) -> Result<OrderedBackend, OrderFault> {
    let (one, address) = find(registry, name, upstream)?;
    let removed = ordered(&one, &address);
    match one.remove_member(&address.spec.text) {
        true => Ok(removed),
        false => Err(OrderFault::Configured),
    }
}

fn find(
    registry: &Registry,
    name: &str,
    upstream: Option<&str>,
) -> Result<(Arc<Upstream>, Arc<Address>), OrderFault> {
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
    match found.len() {
        0 => Err(OrderFault::NoBackend),
        1 => Ok(found.swap_remove(0)),
        _ => {
            let labels = found.iter().map(|(one, _)| Arc::clone(&one.label));
            Err(OrderFault::Ambiguous(labels.collect()))
        }
    }
}

/// Finds an upstream by its name in statistics, or by the directive and key alone.
fn upstream_of(registry: &Registry, name: &str) -> Result<Arc<Upstream>, OrderFault> {
    let all = registry.all();
    if let Some(exact) = all.iter().find(|one| *one.label == *name) {
        return Ok(Arc::clone(exact));
    }
    let mut found: Vec<_> = all.into_iter().filter(|one| *one.spec.name == *name).collect();
    match found.len() {
        0 => Err(OrderFault::NoUpstream),
        1 => Ok(found.swap_remove(0)),
        _ => Err(OrderFault::Ambiguous(found.iter().map(|one| Arc::clone(&one.label)).collect())),
    }
}

fn ordered(one: &Upstream, address: &Address) -> OrderedBackend {
    OrderedBackend {
        upstream: Arc::clone(&one.label),
        backend: Arc::clone(&address.spec.text),
        state: address.operator_state(),
        weight: address.weight(),
        configured_weight: address.spec.weight,
        connections_max: address.ordered_connections_max(),
        configured_connections_max: address.spec.connections_max,
    }
}
