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

    /// Returns the key of a request to the service of the rule for a prefix.
    pub(super) fn key(
        &self,
        prefix: &str,
        request: &ServiceRequest,
        client: Option<IpAddr>,
    ) -> VerdictKey {
        let mut context = hmac::Context::with_key(&self.secret);
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        };
        add(prefix.as_bytes());
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
            ServiceVerdict::Allowed(allowance) if !allowance.sets_cookies => {
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

#[cfg(test)]
mod tests {
    use lighty_http::{Fields, Method};
    use lighty_testkit::matrix::{assert_matrix, table};

    use super::*;

    fn request(target: &str, fields: &[(&str, &str)]) -> ServiceRequest {
        let mut own = Fields::default();
        fields.iter().for_each(|(name, value)| own.push(name.as_bytes(), value.as_bytes()));
        ServiceRequest {
            method: Method::Get,
            target: target.into(),
            authority: b"service".to_vec(),
            fields: own,
        }
    }

    fn allowed(sets_cookies: bool, fresh_ms: Option<u64>) -> ServiceVerdict {
        let allowance = Allowance { fresh_ms, sets_cookies, ..Allowance::default() };
        ServiceVerdict::Allowed(Arc::new(allowance))
    }

    #[test]
    fn key_covers_all_that_the_service_is_told() {
        let cache = VerdictCache::new([7; 32]);
        let client = "192.0.2.1".parse().ok();
        let of = |fields: &[(&str, &str)]| cache.key("/", &request("/auth", fields), client);
        let one = of(&[("Cookie", "a"), ("X-B", "c")]);
        assert_eq!(one, of(&[("cookie", "a"), ("x-b", "c")]));
        assert_eq!(one, of(&[("Cookie", "a"), ("Traceparent", "00-1-2-01"), ("X-B", "c")]));
        for other in [
            of(&[("Cookie", "a")]),
            of(&[("Cookie", "ax"), ("-B", "c")]),
            of(&[("Cookie", "a"), ("X-B", "c"), ("X-B", "c")]),
            of(&[("Cookie", "A"), ("X-B", "c")]),
            cache.key("/x", &request("/auth", &[("Cookie", "a"), ("X-B", "c")]), client),
            cache.key("/", &request("/auth2", &[("Cookie", "a"), ("X-B", "c")]), client),
            cache.key("/", &request("/auth", &[("Cookie", "a"), ("X-B", "c")]), None),
            VerdictCache::new([8; 32]).key(
                "/",
                &request("/auth", &[("Cookie", "a"), ("X-B", "c")]),
                client,
            ),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn each_verdict_ends_its_flight() {
        let mut rows = vec![["verdict", "others", "kept"].map(str::to_owned).to_vec()];
        for (name, verdict) in [
            ("allowed", allowed(false, None)),
            ("allowed for 100 ms", allowed(false, Some(100))),
            ("allowed for 0 ms", allowed(false, Some(0))),
            ("allowed with a cookie", allowed(true, None)),
            ("failed", ServiceVerdict::failed("")),
        ] {
            let cache = VerdictCache::new([7; 32]);
            let LookUp::Begins(pilot) = cache.look_up([1; 32], 0) else { panic!("{name}") };
            let LookUp::InFlight(flight) = cache.look_up([1; 32], 0) else { panic!("{name}") };
            pilot.land(&verdict, 0, 1000);
            let others = match flight.known_landing() {
                Some(Landing::Shared(_)) => "share it",
                Some(Landing::Unshared) => "ask",
                Some(Landing::Abandoned) => "try again",
                None => "wait",
            };
            let is_kept = |now_ms| matches!(cache.look_up([1; 32], now_ms), LookUp::Kept(_));
            let kept: Vec<_> =
                [0, 99, 100, 999, 1000].into_iter().filter(|now_ms| is_kept(*now_ms)).collect();
            rows.push(vec![name.to_owned(), others.to_owned(), format!("{kept:?}")]);
        }
        assert_matrix(&table(&rows), ENDS);
    }

    const ENDS: &str = r#"
verdict                others    kept
allowed                share it  [0, 99, 100, 999]
allowed for 100 ms     share it  [0, 99]
allowed for 0 ms       ask       []
allowed with a cookie  ask       []
failed                 ask       []
"#;

    #[test]
    fn dropped_pilot_lets_another_one_begin() {
        let cache = VerdictCache::new([7; 32]);
        let LookUp::Begins(pilot) = cache.look_up([1; 32], 0) else { panic!("the first") };
        let LookUp::InFlight(flight) = cache.look_up([1; 32], 0) else { panic!("in flight") };
        drop(pilot);
        assert!(matches!(flight.known_landing(), Some(Landing::Abandoned)));
        assert!(matches!(cache.look_up([1; 32], 0), LookUp::Begins(_)));
    }

    #[test]
    fn number_of_entries_has_a_limit() {
        let cache = VerdictCache::new([7; 32]);
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            key
        };
        let keep = |number: usize, now_ms: u64| {
            let LookUp::Begins(pilot) = cache.look_up(key(number), now_ms) else { return };
            pilot.land(&allowed(false, None), now_ms, 1000);
        };
        (0..ENTRIES_MAX).for_each(|number| keep(number, 0));
        assert_eq!(cache.entries().len(), ENTRIES_MAX);
        keep(ENTRIES_MAX, 1);
        assert_eq!(cache.entries().len(), ENTRIES_MAX, "one makes room");
        keep(ENTRIES_MAX + 1, 5000);
        assert_eq!(cache.entries().len(), 1, "the old make room");
        let flights: Vec<_> =
            (0..ENTRIES_MAX + 5).map(|number| cache.look_up(key(number), 9000)).collect();
        assert_eq!(cache.entries().len(), ENTRIES_MAX);
        drop(flights);
        assert!(cache.entries().len() <= 1, "{}", cache.entries().len());
    }
}
