//! Counters of upstreams in the processes before this one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::upstream::remembered::RememberedBackend;

/// Maximum upstreams, and maximum backends of each, with counters that are taken.
const COUNTED_MAX: usize = 10_000;

/// Counters of an upstream. Members may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpstreamCounts {
    /// Its name in statistics.
    pub upstream: String,
    /// Requests for it.
    pub requests: u64,
    /// Counters of its backends.
    pub backends: Vec<BackendCounts>,
}

/// Counters of a backend. Members may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackendCounts {
    /// Its address in logs.
    pub backend: String,
    /// Requests sent to it.
    pub requests: u64,
    /// Tries that it failed.
    pub failed: u64,
    /// TLS handshakes with it.
    pub handshakes: u64,
    /// Resumed ones among these.
    pub resumed: u64,
}

/// Counters of an upstream before this process.
#[derive(Default)]
pub(crate) struct FormerUpstream {
    pub(crate) requests: u64,
    pub(crate) backends: HashMap<String, BackendCounts>,
}

/// Counters of all upstreams before this process, by name.
#[derive(Default)]
pub(crate) struct FormerCounts(Mutex<HashMap<String, FormerUpstream>>);

impl FormerCounts {
    /// Replaces all counters. Upstreams of one name, of different configurations, add up.
    pub(crate) fn replace(&self, all: Vec<UpstreamCounts>) {
        let mut by_name = HashMap::<String, FormerUpstream>::new();
        for one in all.into_iter().take(COUNTED_MAX) {
            let sum = by_name.entry(one.upstream).or_default();
            sum.requests = sum.requests.saturating_add(one.requests);
            for backend in one.backends.into_iter().take(COUNTED_MAX) {
                let sum = sum.backends.entry(backend.backend).or_default();
                for (own, more) in [
                    (&mut sum.requests, backend.requests),
                    (&mut sum.failed, backend.failed),
                    (&mut sum.handshakes, backend.handshakes),
                    (&mut sum.resumed, backend.resumed),
                ] {
                    *own = own.saturating_add(more);
                }
            }
        }
        *self.lock() = by_name;
    }

    /// Begins with the counters that histories of backends have.
    pub(crate) fn begin(&self, histories: &[RememberedBackend]) {
        let counts = |one: &RememberedBackend| UpstreamCounts {
            upstream: one.upstream.clone(),
            requests: 0,
            backends: vec![BackendCounts {
                backend: one.backend.clone(),
                requests: one.requests,
                failed: one.failed,
                ..BackendCounts::default()
            }],
        };
        self.replace(histories.iter().map(counts).collect());
    }

    /// The counters by the upstream's name.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<String, FormerUpstream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_may_be_missing() {
        let text = r#"{"upstream": "u", "of_the_future": 1, "backends": [{"backend": "b"}]}"#;
        let counts: UpstreamCounts = serde_json::from_str(text).expect("counters");
        assert_eq!((counts.requests, counts.backends[0].requests), (0, 0));
    }

    #[test]
    fn histories_have_counters_of_backends() {
        let former = FormerCounts::default();
        let history = |backend: &str, requests| RememberedBackend {
            upstream: "u".to_owned(),
            backend: backend.to_owned(),
            requests,
            ..RememberedBackend::default()
        };
        former.begin(&[history("a", 7), history("b", 8)]);
        let all = former.lock();
        let backends = &all["u"].backends;
        assert_eq!((all["u"].requests, backends["a"].requests, backends["b"].requests), (0, 7, 8));
    }

    #[test]
    fn number_of_upstreams_is_limited() {
        let former = FormerCounts::default();
        let counts = |number: usize| UpstreamCounts {
            upstream: number.to_string(),
            ..UpstreamCounts::default()
        };
        former.replace((0..COUNTED_MAX + 1).map(counts).collect());
        assert_eq!(former.lock().len(), COUNTED_MAX);
    }
}
