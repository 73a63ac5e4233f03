//! The part that the cache had in a response: for Cache-Status and logs.

use lighty_cache::object::Object;
use lighty_cache::rules::{CacheStatus, ForwardReason, Unstorable};
use lighty_core::Exchange;

use super::settings::CacheSettings;

/// The part that the cache had in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheWord {
    /// It was stored and fresh.
    Hit,
    /// It was stored and stale.
    Stale,
    /// It was fetched.
    Miss,
    /// It was fetched or validated because the stored one was stale.
    Expired,
    /// Another request fetched it.
    Coalesced,
    /// The request went past the store.
    Pass,
}

impl CacheWord {
    fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Miss => "miss",
            Self::Expired => "expired",
            Self::Coalesced => "coalesced",
            Self::Pass => "pass",
        }
    }
}

/// Records the part of the cache.
pub(super) fn conclude(
    ex: &mut Exchange,
    own: &CacheSettings,
    word: CacheWord,
    object: Option<&Object>,
) {
    ex.environment.set(b"CACHE_STATUS", word.as_str().as_bytes());
    // A response that is still to come has no fields yet.
    if !own.status_field || word == CacheWord::Pass {
        return;
    }
    let now_s = ex.machine.clock.unix_s();
    let is_hit = matches!(word, CacheWord::Hit | CacheWord::Stale);
    let forwarded = match word {
        CacheWord::Expired => Some(ForwardReason::Stale),
        _ => Some(ForwardReason::UriMiss),
    };
    let status = CacheStatus {
        name: &own.name,
        is_hit,
        ttl_s: object.filter(|_| is_hit).map(|object| object.head.freshness.ttl_s(now_s)),
        forwarded: forwarded.filter(|_| !is_hit),
        is_stored: !is_hit,
        is_collapsed: word == CacheWord::Coalesced,
        ..CacheStatus::default()
    };
    status.append_to(&mut ex.response.fields);
}

/// Records that a response is not stored.
pub(super) fn conclude_unshared(
    ex: &mut Exchange,
    own: &CacheSettings,
    reason: Option<Unstorable>,
) {
    ex.environment.set(b"CACHE_STATUS", b"miss");
    if !own.status_field {
        return;
    }
    let status = CacheStatus {
        name: &own.name,
        forwarded: Some(ForwardReason::UriMiss),
        forwarded_status: Some(ex.response.status),
        detail: reason.map(Unstorable::as_str),
        ..CacheStatus::default()
    };
    status.append_to(&mut ex.response.fields);
}
