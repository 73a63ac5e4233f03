//! Names of the hosts that requests are counted for.

use std::collections::HashMap;
use std::sync::Arc;

/// Names of all configurations that a process has read. Further ones are counted as [`OTHER`].
pub const HOSTS_MAX: usize = 1_000;

/// Requests of hosts without a row.
pub const OTHER: &str = "other";

/// The names of a process, in the order of their first requests. Nothing is ever removed, so that
/// no counter falls.
pub(super) struct HostNames {
    places: HashMap<Arc<str>, usize>,
    names: Vec<Arc<str>>,
}

impl Default for HostNames {
    fn default() -> Self {
        let other: Arc<str> = OTHER.into();
        Self { places: HashMap::from([(Arc::clone(&other), 0)]), names: vec![other] }
    }
}

impl HostNames {
    /// The place of a name; `None` if it is new and there is no room for it.
    pub(super) fn place(&mut self, name: &str) -> Option<usize> {
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        // [`OTHER`] is there besides.
        if self.names.len() > HOSTS_MAX {
            return None;
        }
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.places.insert(name, self.names.len() - 1);
        Some(self.names.len() - 1)
    }

    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.names.clone()
    }
}
