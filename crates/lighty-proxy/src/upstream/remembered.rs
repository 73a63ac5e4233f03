//! The history of backends, for the process that takes this one's place.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::upstream::health::passive::RememberedHealth;
use crate::upstream::operator::RememberedOrders;

/// The history of one backend. Members may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RememberedBackend {
    /// Its upstream's name in statistics.
    pub upstream: String,
    /// Its address in logs.
    pub backend: String,
    /// Its weight, if it was added at run time.
    pub added: Option<u32>,
    /// Orders of an operator.
    pub orders: RememberedOrders,
    /// Its health.
    pub health: RememberedHealth,
    /// Mean time to its first byte, in microseconds.
    pub first_byte_us: u32,
    /// Number of its requests.
    pub requests: u64,
    /// Number of those that it failed.
    pub failed: u64,
    /// Reason for its last failure.
    pub last_failure: Option<String>,
}

/// Histories that no backend has taken yet: a name may not be resolved yet.
#[derive(Default)]
pub(crate) struct Histories(Mutex<HashMap<(String, String), RememberedBackend>>);

impl Histories {
    pub(crate) fn fill(&self, all: Vec<RememberedBackend>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(all.into_iter().map(|one| ((one.upstream.clone(), one.backend.clone()), one)));
    }

    /// Takes the history of a backend, if it has one.
    pub(crate) fn take(&self, upstream: &str, backend: &str) -> Option<RememberedBackend> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return None;
        }
        known.remove(&(upstream.to_owned(), backend.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_may_be_missing() {
        let text = r#"{"upstream": "app", "backend": "127.0.0.1:1", "of_the_future": 1}"#;
        let one: RememberedBackend = serde_json::from_str(text).expect("a history");
        assert_eq!((one.upstream.as_str(), one.requests), ("app", 0));
        let text = serde_json::to_string(&one).expect("JSON");
        assert_eq!(serde_json::from_str::<RememberedBackend>(&text).expect("the same"), one);
    }
}
