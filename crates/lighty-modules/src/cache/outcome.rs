//! The part that the cache had in a response: for Cache-Status, logs and metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lighty_cache::object::Object;
use lighty_cache::rules::{CacheStatus, ForwardReason, Freshness, Unstorable};
use lighty_cache::store::ResponseStore;
use lighty_core::exchange::cache_trace::{CACHE_RESULTS, CacheTrace};
use lighty_core::{Exchange, Level};
use lighty_http::{Method, Status};

use super::settings::CacheSettings;

/// The part that the cache had in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheWord {
    /// It was stored and fresh.
    Hit,
    /// It was stored and stale: in place of an error, or because the client accepts that.
    Stale,
    /// It was stored and stale, and is fetched anew meanwhile.
    Updating,
    /// It was stored and stale, and the backend has confirmed it.
    Revalidated,
    /// It was fetched.
    Miss,
    /// It was fetched because the stored one was stale.
    Expired,
    /// The cache is not for such requests.
    Bypass,
    /// The request went past the store, because responses of its URL are not stored for now.
    Pass,
    /// Another request fetched it.
    Coalesced,
    /// The request for a part went to the backend.
    Partial,
    /// It was fetched because the stored one was purged.
    Purged,
}

impl CacheWord {
    /// All words.
    pub(super) const ALL: [Self; 11] = [
        Self::Hit,
        Self::Stale,
        Self::Updating,
        Self::Revalidated,
        Self::Miss,
        Self::Expired,
        Self::Bypass,
        Self::Pass,
        Self::Coalesced,
        Self::Partial,
        Self::Purged,
    ];

    /// The word for a response that is fetched: by the request itself or by another one, in place
    /// of a stale response, or of one that a purge has removed.
    pub(super) fn of_fetch(is_own: bool, has_stale: bool, is_purged: bool) -> Self {
        match (is_own, has_stale) {
            (false, _) => Self::Coalesced,
            (true, true) => Self::Expired,
            (true, false) if is_purged => Self::Purged,
            (true, false) => Self::Miss,
        }
    }

    /// The word in logs and metrics.
    pub(super) fn as_str(self) -> &'static str {
        // In the order of the words here.
        CACHE_RESULTS[self as usize]
    }

    /// True if the response needs no request to the backend.
    fn is_from_store(self) -> bool {
        matches!(self, Self::Hit | Self::Stale | Self::Updating)
    }

    /// True if the response comes from the backend without being looked at.
    fn goes_past(self) -> bool {
        matches!(self, Self::Bypass | Self::Pass | Self::Partial)
    }

    /// The reason for the request to the backend.
    fn reason(self, method: Option<Method>) -> ForwardReason {
        match self {
            Self::Expired | Self::Revalidated => ForwardReason::Stale,
            Self::Partial => ForwardReason::Partial,
            Self::Pass | Self::Purged => ForwardReason::Miss,
            Self::Bypass if !method.is_some_and(Method::is_get_or_head) => ForwardReason::Method,
            Self::Bypass => ForwardReason::Bypass,
            _ => ForwardReason::UriMiss,
        }
    }
}

/// Records the part of the cache.
pub(super) fn conclude(
    ex: &mut Exchange,
    own: &CacheSettings,
    store: &ResponseStore,
    word: CacheWord,
    object: Option<&Object>,
) {
    let now_s = ex.machine.clock.unix_s();
    record(ex, own, store, word);
    let counters = store.counters();
    let is_stored = word.is_from_store() || word == CacheWord::Revalidated;
    if is_stored && let Some(bytes) = ex.response.body.known_length() {
        counters.saved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    let freshness = object.filter(|_| is_stored).map(|object| object.head.freshness);
    ex.ext_mut::<CacheTrace>().age_s = freshness.map(|freshness| freshness.age_s(now_s));
    // A response that is still to come has no fields yet.
    if !own.status_field || word.goes_past() {
        return;
    }
    let is_hit = word.is_from_store();
    let is_validated = word == CacheWord::Revalidated;
    let status = CacheStatus {
        name: &own.name,
        is_hit,
        ttl_s: freshness.filter(|_| is_hit).map(|freshness| freshness.ttl_s(now_s)),
        forwarded: (!is_hit).then(|| word.reason(ex.request.method)),
        forwarded_status: is_validated.then_some(Status::NOT_MODIFIED),
        is_stored: !is_hit,
        is_collapsed: word == CacheWord::Coalesced,
        ..CacheStatus::default()
    };
    status.append_to(&mut ex.response.fields);
}

/// The part of the cache in a response that is put together from slices.
pub(super) struct SliceReport {
    /// The part in the first slice.
    pub(super) word: CacheWord,
    /// All other slices are stored.
    pub(super) is_complete: bool,
}

/// Records the part of the cache in a response from slices. It is a hit only if no slice of it is
/// fetched.
pub(super) fn conclude_slices(
    ex: &mut Exchange,
    own: &CacheSettings,
    store: &ResponseStore,
    report: SliceReport,
    freshness: &Freshness,
) {
    let is_stored = report.word.is_from_store() || report.word == CacheWord::Revalidated;
    let is_partly_stored = is_stored && !report.is_complete;
    let word = if is_partly_stored { CacheWord::Miss } else { report.word };
    record(ex, own, store, word);
    let now_s = ex.machine.clock.unix_s();
    ex.ext_mut::<CacheTrace>().age_s =
        (is_stored && !is_partly_stored).then(|| freshness.age_s(now_s));
    if !own.status_field {
        return;
    }
    let is_hit = word.is_from_store();
    let partial = is_partly_stored.then_some(ForwardReason::Partial);
    let status = CacheStatus {
        name: &own.name,
        is_hit,
        ttl_s: is_hit.then(|| freshness.ttl_s(now_s)),
        forwarded: (!is_hit).then(|| partial.unwrap_or(word.reason(ex.request.method))),
        forwarded_status: (word == CacheWord::Revalidated).then_some(Status::NOT_MODIFIED),
        is_stored: !is_hit,
        is_collapsed: word == CacheWord::Coalesced,
        ..CacheStatus::default()
    };
    status.append_to(&mut ex.response.fields);
}

/// Counts the result of a request, and records it for logs and conditions.
fn record(ex: &mut Exchange, own: &CacheSettings, store: &ResponseStore, word: CacheWord) {
    if own.debug > 1 {
        ex.log(Level::Notice, &format!("cache: {}", word.as_str()));
    }
    store.counters().results[word as usize].fetch_add(1, Ordering::Relaxed);
    ex.environment.set(b"CACHE_STATUS", word.as_str().as_bytes());
    ex.ext_mut::<CacheTrace>().result = word.as_str();
}

/// Records that a fetched response is not stored.
pub(super) fn conclude_unshared(
    ex: &mut Exchange,
    own: &CacheSettings,
    store: &ResponseStore,
    word: CacheWord,
    reason: Option<Unstorable>,
) {
    if own.debug > 0 {
        // Without a reason, there is no response: the fault is in the log.
        let text = reason.map_or_else(|| "no response".to_owned(), |reason| reason.to_string());
        ex.log(Level::Notice, &format!("cache: {}, not stored: {text}", word.as_str()));
    }
    store.counters().results[word as usize].fetch_add(1, Ordering::Relaxed);
    ex.environment.set(b"CACHE_STATUS", word.as_str().as_bytes());
    ex.ext_mut::<CacheTrace>().result = word.as_str();
    if !own.status_field {
        return;
    }
    let status = CacheStatus {
        name: &own.name,
        forwarded: Some(word.reason(ex.request.method)),
        forwarded_status: Some(ex.response.status),
        detail: reason.map(Unstorable::as_str),
        ..CacheStatus::default()
    };
    status.append_to(&mut ex.response.fields);
}

/// Adds Cache-Status to a response that came past the store.
pub(super) fn conclude_past(ex: &mut Exchange, own: &CacheSettings) {
    let Some(trace) = ex.ext::<CacheTrace>().filter(|_| own.status_field) else { return };
    let mut past = CacheWord::ALL.into_iter().filter(|word| word.goes_past());
    let Some(word) = past.find(|word| word.as_str() == trace.result) else { return };
    let status = CacheStatus {
        name: &own.name,
        forwarded: Some(word.reason(ex.request.method)),
        forwarded_status: Some(ex.response.status),
        detail: (word == CacheWord::Pass).then_some("pass"),
        ..CacheStatus::default()
    };
    status.append_to(&mut ex.response.fields);
}

/// A request that waits for a fetch: counted while it waits, and timed.
pub(super) struct FetchWait {
    store: Arc<ResponseStore>,
    begun_us: u64,
}

impl FetchWait {
    pub(super) fn begin(ex: &Exchange, store: &Arc<ResponseStore>) -> Self {
        store.counters().waiting.fetch_add(1, Ordering::Relaxed);
        Self { store: Arc::clone(store), begun_us: ex.machine.clock.mono_us() }
    }

    /// The wait is over: adds its time to the request's.
    pub(super) fn end(self, ex: &mut Exchange) {
        let waited_us = ex.machine.clock.mono_us().saturating_sub(self.begun_us);
        ex.ext_mut::<CacheTrace>().wait_us += waited_us;
    }
}

impl Drop for FetchWait {
    fn drop(&mut self) {
        self.store.counters().waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Removes the fields that a backend sends to caches in front of it, and not to clients.
pub(super) fn hide_fields(ex: &mut Exchange, own: &CacheSettings) {
    for name in [&b"X-Accel-Expires"[..], b"Surrogate-Control"] {
        ex.response.fields.remove_named(name);
    }
    if own.hides_tags {
        for name in own.tag_fields.iter() {
            ex.response.fields.remove_named(name.as_bytes());
        }
    }
}
