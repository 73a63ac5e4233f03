//! The host that a request is counted for.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::module_settings;

/// The row of a request among the figures by host, which the condition that names the host sets
/// (`status.hosts`). `None`: requests are not counted by host.
#[derive(Clone, Default)]
pub struct CountedHost(pub Option<Arc<HostRow>>);
module_settings!(CountedHost);

/// The name alone: variants of the settings with equal values print the same.
impl fmt::Debug for CountedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CountedHost").field(&self.0.as_ref().map(|row| &row.name)).finish()
    }
}

/// A row of the figures by host.
pub struct HostRow {
    /// The name in the configuration.
    pub name: Box<str>,
    /// Its place in the lists of all workers, once a request was counted.
    pub(crate) place: OnceLock<usize>,
}

impl HostRow {
    /// A row of this name. Rows of the same name share a place.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), place: OnceLock::new() }
    }
}
