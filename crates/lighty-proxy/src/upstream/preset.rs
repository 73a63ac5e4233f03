//! Orders of an operator that outlive the process. A backend has them from its creation, also one
//! whose address a name server tells later.

use std::sync::{Arc, Mutex, PoisonError};

use crate::upstream::members::Member;
use crate::upstream::operator::{OperatorState, Orders};
use crate::upstream::remembered::RememberedBackend;

/// A number that holds while the configuration has the number `configured`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresetNumber {
    /// The configured number at the time of the order.
    pub configured: u32,
    /// The ordered one.
    pub ordered: u32,
}

/// Orders for one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetBackend {
    /// The upstream's name in statistics.
    pub upstream: Arc<str>,
    /// The backend's address in logs.
    pub backend: Arc<str>,
    /// Its use.
    pub state: OperatorState,
    /// Its weight, if ordered.
    pub weight: Option<PresetNumber>,
    /// Its maximum number of connections, if ordered.
    pub connections_max: Option<PresetNumber>,
    /// Its weight as a backend that the configuration does not have.
    pub added: Option<u32>,
}

/// The orders for all backends.
#[derive(Debug, Default)]
pub(crate) struct Presets(Mutex<Arc<[PresetBackend]>>);

impl Presets {
    pub(crate) fn set(&self, presets: Arc<[PresetBackend]>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = presets;
    }

    /// Adds the backends that were added at run time in the process before this one.
    pub(crate) fn add_members(&self, histories: &[RememberedBackend]) {
        let mut presets = self.get().to_vec();
        for history in histories.iter().filter(|history| history.added.is_some()) {
            let is_it = |known: &PresetBackend| {
                *known.upstream == *history.upstream && *known.backend == *history.backend
            };
            match presets.iter_mut().find(|known| is_it(known)) {
                Some(known) => known.added = history.added,
                None => presets.push(PresetBackend {
                    upstream: history.upstream.as_str().into(),
                    backend: history.backend.as_str().into(),
                    state: OperatorState::Ready,
                    weight: None,
                    connections_max: None,
                    added: history.added,
                }),
            }
        }
        self.set(presets.into());
    }

    fn get(&self) -> Arc<[PresetBackend]> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives a new backend its orders.
    pub(crate) fn apply(&self, upstream: &str, backend: &str, orders: &Orders) {
        let presets = self.get();
        let is_it =
            |preset: &&PresetBackend| *preset.upstream == *upstream && *preset.backend == *backend;
        let Some(preset) = presets.iter().find(is_it) else { return };
        orders.set_state(preset.state);
        if let Some(PresetNumber { configured, ordered }) = preset.weight {
            orders.set_weight(configured, Some(ordered));
        }
        if let Some(PresetNumber { configured, ordered }) = preset.connections_max {
            orders.set_connections_max(configured, Some(ordered));
        }
    }

    /// Returns the backends added to a new upstream.
    pub(crate) fn members(&self, upstream: &str) -> Vec<Member> {
        let presets = self.get();
        let own = presets.iter().filter(|preset| *preset.upstream == *upstream);
        own.filter_map(|preset| Member::parse(&preset.backend, preset.added?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_backends_survive_an_upgrade() {
        let history = |backend: &str, added| RememberedBackend {
            upstream: "u".to_owned(),
            backend: backend.to_owned(),
            added,
            ..RememberedBackend::default()
        };
        let presets = Presets::default();
        presets.add_members(&[history("192.0.2.1:80", Some(3)), history("192.0.2.2:80", None)]);
        presets.add_members(&[history("192.0.2.1:80", Some(4))]);
        let members = presets.members("u");
        assert_eq!(members, Vec::from_iter(Member::parse("192.0.2.1:80", 4)));
        assert_eq!(presets.members("v"), []);
    }
}
