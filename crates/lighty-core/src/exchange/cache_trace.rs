//! The part that the cache of responses had in a response, for logs.

use crate::exchange::extensions::Extension;
use crate::extension_slot;

/// The results, as words.
pub const CACHE_RESULTS: [&str; 11] = [
    "hit",
    "stale",
    "updating",
    "revalidated",
    "miss",
    "expired",
    "bypass",
    "pass",
    "coalesced",
    "partial",
    "purged",
];

/// The part of the cache. Empty for requests that it does not concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTrace {
    /// The result, one of [`CACHE_RESULTS`]; empty if the cache has no part in the response.
    pub result: &'static str,
    /// Age of the stored response in seconds; `None` if the response is not from the store.
    pub age_s: Option<u32>,
    /// Microseconds that the request waited for a fetch, its own or another one's.
    pub wait_us: u64,
    /// The fetch of another request, which this one has waited for, has failed: its fault is also
    /// that of this request.
    pub shares_fault: bool,
}

impl Extension for CacheTrace {
    extension_slot!();
}
