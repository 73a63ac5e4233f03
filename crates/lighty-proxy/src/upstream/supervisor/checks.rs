//! Active checks of an upstream's addresses: a task for each, all on the supervisor's thread.

use std::collections::HashSet;
use std::sync::Arc;

use lighty_core::log::Level;
use lighty_io::connect::Target;
use lighty_io::threads::{keep, panics};

use super::SupervisorLog;
use crate::connect::listen_queue::{Standing, watch};
use crate::upstream::Upstream;
use crate::upstream::address::{Address, AddressId};
use crate::upstream::backend_tls::BackendTls;
use crate::upstream::health::check_fault::CheckFault;
use crate::upstream::health::checks::{Checked, keep_asking};
use crate::upstream::health::passive::{Health, HealthChange};
use crate::upstream::operator::OperatorState;

/// Starts checks for new addresses, and forgets removed ones.
pub(super) fn cover(
    upstream: &Arc<Upstream>,
    checked: &mut HashSet<AddressId>,
    log: &SupervisorLog,
) {
    if upstream.spec.health.check.is_none() {
        return;
    }
    let addresses = upstream.addresses();
    checked.retain(|id| addresses.iter().any(|address| address.id == *id));
    for address in addresses.iter() {
        if checked.insert(address.id) {
            let (upstream, address) = (Arc::clone(upstream), Arc::clone(address));
            let log = log.clone();
            keep::keep("health check", move || {
                keep(Arc::clone(&upstream), Arc::clone(&address), log.clone())
            });
        }
    }
}

/// Checks an address for as long as it is one of the upstream's.
async fn keep(upstream: Arc<Upstream>, address: Arc<Address>, log: SupervisorLog) {
    panics::point("health check");
    let spec = Arc::clone(&upstream.spec);
    let Some(check) = &spec.health.check else { return };
    let clock = log.clock.clone();
    let present = || {
        let is_there = upstream.is_current()
            && upstream.addresses().iter().any(|known| known.id == address.id);
        is_there.then_some(CheckedAddress { upstream: &upstream, address: &address, log: &log })
    };
    keep_asking(present, check, spec.proxy_protocol, clock).await;
}

struct CheckedAddress<'a> {
    upstream: &'a Upstream,
    address: &'a Address,
    log: &'a SupervisorLog,
}

impl Checked for CheckedAddress<'_> {
    fn target(&self) -> &Target {
        &self.address.spec.target
    }

    fn tls(&self) -> Option<&BackendTls> {
        self.address.tls.as_ref()
    }

    fn health(&self) -> &Health {
        &self.address.health
    }

    fn is_in_maintenance(&self) -> bool {
        self.address.operator_state() == OperatorState::Maintenance
    }

    fn stand_in_line(&self) -> Option<Standing> {
        let (standing, doubts) =
            self.address.queue.enter(self.log.now_ms(), self.address.first_byte_us());
        if doubts {
            let (queue, clock) = (Arc::clone(&self.address.queue), self.log.clock.clone());
            keep::keep("line at a backend", move || watch(Arc::clone(&queue), clock.clone()));
        }
        Some(standing)
    }

    fn was_checked(&self, change: HealthChange, fault: Option<&CheckFault>) {
        let (name, text) = (&self.upstream.spec.name, &self.address.spec.text);
        match change {
            HealthChange::Nothing => {}
            HealthChange::CameBack => {
                self.upstream.backlog.call_all();
                self.address.set_last_error(None);
                let message = format!("{name}: backend {text} is up again, its check says");
                self.log.say(Level::Notice, &message);
            }
            HealthChange::WentDown { .. } => {
                let why = fault.map(CheckFault::to_string).unwrap_or_default();
                self.address.set_last_error(Some(&why));
                let message = format!("{name}: backend {text} is down, its check says: {why}");
                self.log.say(Level::Error, &message);
            }
        }
    }
}
