//! Permissions that are kept for some seconds, and equal requests in flight. All workers share
//! them; a reload begins with none.
//!
//! The key is a keyed hash of all that the service is told, so two requests share a permission only
//! if the service could not tell them apart.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::hmac;
use lighty_core::pipeline::subrequest::ServiceRequest;
use tokio::sync::Notify;

use super::rule::ForwardRule;
use super::verdict::{Allowance, ServiceVerdict};

/// Maximum number of entries, kept and in flight.
const ENTRIES_MAX: usize = 10_000;

/// Fields that differ between equal requests.
const VARYING: [&[u8]; 4] = [b"traceparent", b"tracestate", b"x-request-id", b"request-id"];

/// Hash of a request to a service.
pub(super) type VerdictKey = [u8; 32];

/// The cache of one list of rules.
pub(super) struct VerdictCache {
    secret: hmac::Key,
    entries: Mutex<HashMap<VerdictKey, VerdictEntry, foldhash::fast::RandomState>>,
}

enum VerdictEntry {
    Kept { allowance: Arc<Allowance>, until_ms: u64 },
    InFlight(Arc<Flight>),
}

/// Result of a look-up.
pub(super) enum LookUp<'a> {
    Kept(Arc<Allowance>),
    InFlight(Arc<Flight>),
    /// The caller asks.
    Begins(Pilot<'a>),
}

/// A request to a service for which others wait.
#[derive(Default)]
pub(super) struct Flight {
    landing: Mutex<Option<Landing>>,
    landed: Notify,
}

/// The end of a flight.
#[derive(Clone)]
pub(super) enum Landing {
    /// The others have the same permission.
    Shared(Arc<Allowance>),
    /// The verdict is for the first request only.
    Unshared,
    /// The first request ended before its verdict.
    Abandoned,
}

/// The owner of a flight. Dropped, it abandons the flight.
pub(super) struct Pilot<'a> {
    cache: &'a VerdictCache,
    key: VerdictKey,
    /// `None` if the cache is full of flights.
    flight: Option<Arc<Flight>>,
}

impl VerdictCache {
    /// Creates an empty cache.
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret: hmac::Key::new(hmac::HMAC_SHA256, &secret), entries: Mutex::default() }
    }

    /// Returns the key of a request to a service.
    pub(super) fn key(
        &self,
        rule: &ForwardRule,
        request: &ServiceRequest,
        client: Option<IpAddr>,
    ) -> VerdictKey {
        let mut context = hmac::Context::with_key(&self.secret);
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        };
        add(rule.prefix.as_bytes());
        add(request.method.as_str().as_bytes());
        add(&request.target);
        add(&request.authority);
        add(client.map(|ip| ip.to_string()).unwrap_or_default().as_bytes());
        for (name, value) in request.fields.iter() {
            let name = name.to_ascii_lowercase();
            if !VARYING.contains(&&*name) {
                add(&name);
                add(value);
            }
        }
        let tag = context.sign();
        tag.as_ref().try_into().unwrap_or_default()
    }

    /// Looks a request up. If it is neither kept nor in flight, it is in flight from now on.
    pub(super) fn look_up(&self, key: VerdictKey, now_ms: u64) -> LookUp<'_> {
        let mut entries = self.entries();
        match entries.get(&key) {
            Some(VerdictEntry::Kept { allowance, until_ms }) if *until_ms > now_ms => {
                return LookUp::Kept(Arc::clone(allowance));
            }
            Some(VerdictEntry::InFlight(flight)) => return LookUp::InFlight(Arc::clone(flight)),
            Some(VerdictEntry::Kept { .. }) => {}
            None if entries.len() >= ENTRIES_MAX => {
                make_room(&mut entries, now_ms);
                if entries.len() >= ENTRIES_MAX {
                    return LookUp::Begins(Pilot { cache: self, key, flight: None });
                }
            }
            None => {}
        }
        let flight = Arc::new(Flight::default());
        entries.insert(key, VerdictEntry::InFlight(Arc::clone(&flight)));
        LookUp::Begins(Pilot { cache: self, key, flight: Some(flight) })
    }

    fn entries(
        &self,
    ) -> MutexGuard<'_, HashMap<VerdictKey, VerdictEntry, foldhash::fast::RandomState>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes expired permissions, or else any one.
fn make_room(
    entries: &mut HashMap<VerdictKey, VerdictEntry, foldhash::fast::RandomState>,
    now_ms: u64,
) {
    let before = entries.len();
    entries.retain(|_, entry| match entry {
        VerdictEntry::Kept { until_ms, .. } => *until_ms > now_ms,
        VerdictEntry::InFlight(_) => true,
    });
    if entries.len() < before {
        return;
    }
    let is_kept = |entry: &VerdictEntry| matches!(entry, VerdictEntry::Kept { .. });
    let any = entries.iter().find(|(_, entry)| is_kept(entry)).map(|(key, _)| *key);
    any.map(|key| entries.remove(&key));
}

impl Pilot<'_> {
    /// Ends the flight with its verdict, and keeps a permission for at most `keep_ms`.
    pub(super) fn land(mut self, verdict: &ServiceVerdict, now_ms: u64, keep_ms: u64) {
        let Some(flight) = self.flight.take() else { return };
        let shared = match verdict {
            // A new session cookie is for one client only.
            ServiceVerdict::Allowed(allowance) if allowance.cookies.is_empty() => {
                let fresh_ms = keep_ms.min(allowance.fresh_ms.unwrap_or(keep_ms));
                (fresh_ms > 0).then(|| (Arc::clone(allowance), now_ms.saturating_add(fresh_ms)))
            }
            _ => None,
        };
        let mut entries = self.cache.entries();
        match &shared {
            Some((allowance, until_ms)) => {
                let (allowance, until_ms) = (Arc::clone(allowance), *until_ms);
                entries.insert(self.key, VerdictEntry::Kept { allowance, until_ms });
            }
            None => drop(entries.remove(&self.key)),
        }
        drop(entries);
        flight.end(shared.map_or(Landing::Unshared, |(allowance, _)| Landing::Shared(allowance)));
    }
}

impl Drop for Pilot<'_> {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.cache.entries().remove(&self.key);
            flight.end(Landing::Abandoned);
        }
    }
}

impl Flight {
    fn end(&self, landing: Landing) {
        *self.landing.lock().unwrap_or_else(PoisonError::into_inner) = Some(landing);
        self.landed.notify_waiters();
    }

    fn known_landing(&self) -> Option<Landing> {
        self.landing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the end of the flight.
    pub(super) async fn landing(&self) -> Landing {
        let mut landed = std::pin::pin!(self.landed.notified());
        // No notification is missed from here on.
        landed.as_mut().enable();
        if let Some(landing) = self.known_landing() {
            return landing;
        }
        landed.await;
        self.known_landing().unwrap_or(Landing::Abandoned)
    }
}
