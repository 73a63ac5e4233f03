//! One rule of `auth.forward`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lighty_config::{Pairs, Strings};
use lighty_core::settings::services::ServiceSpec;

use super::identity_fields::IdentityName;
use super::preset::Preset;
use super::sign_in::SignIn;

/// Milliseconds between two lines about a service without verdicts.
const LOG_AGAIN_MS: u64 = 1000;

/// A path, and the service that decides about requests for it.
pub(super) struct ForwardRule {
    /// The directive and its service, for the log.
    pub(super) name: Arc<str>,
    pub(super) prefix: Arc<str>,
    /// `None`: the path is exempt.
    pub(super) service: Option<Arc<ServiceSpec>>,
    pub(super) preset: &'static Preset,
    /// Path and query of the service's endpoint.
    pub(super) target: Arc<str>,
    /// Value of Host; `None`: the client's.
    pub(super) authority: Option<Arc<str>>,
    /// The client's fields that the service gets; empty: all.
    pub(super) request_fields: Strings,
    /// Further fields for the service.
    pub(super) set_fields: Pairs,
    /// The fields of a permission that the request gets.
    pub(super) identity: Vec<IdentityName>,
    /// The fields that the preset's service could send. A client must not send them either.
    pub(super) identity_of_preset: Vec<IdentityName>,
    pub(super) user_field: Option<Arc<str>>,
    pub(super) passes_cookies: bool,
    pub(super) sign_in: Option<SignIn>,
    pub(super) body_bytes_max: usize,
    pub(super) cache_ms: u64,
    pub(super) throttle: FailureThrottle,
}

/// Limits the lines about failures of a service.
#[derive(Default)]
pub(super) struct FailureThrottle {
    /// Time of the next permitted line, in monotonic milliseconds.
    next_ms: AtomicU64,
    hushed: AtomicU64,
}

impl FailureThrottle {
    /// Returns the number of failures without a line if one is due.
    pub(super) fn next(&self, now_ms: u64) -> Option<u64> {
        let due = |next_ms: u64| (now_ms >= next_ms).then_some(now_ms + LOG_AGAIN_MS);
        match self.next_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due) {
            Ok(_) => Some(self.hushed.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.hushed.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

impl ForwardRule {
    /// Milliseconds for a verdict.
    pub(super) fn timeout_ms(&self) -> u64 {
        self.service.as_ref().map_or(0, |service| service.timeout_ms)
    }

    /// True if the service gets the client's fields of this name.
    pub(super) fn passes_to_service(&self, name: &[u8]) -> bool {
        let is_it = |listed: &Arc<str>| name.eq_ignore_ascii_case(listed.as_bytes());
        self.request_fields.is_empty() || self.request_fields.iter().any(is_it)
    }

    /// Describes the rule, for `lighty explain`.
    pub(super) fn describe(&self) -> String {
        let (name, target, prefix) = (&self.name, &self.target, &self.prefix);
        format!("{name} decides by {target} (rule \"{prefix}\"); shown as if it allows the request")
    }
}
