//! The part that the cache of responses had in a response, for logs.

use crate::exchange::extensions::Extension;
use crate::extension_slot;

/// The part of the cache. Empty for requests that it does not concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTrace {
    /// The result, as a word such as `hit`.
    pub result: &'static str,
    /// Age of the stored response in seconds; `None` if the response is not from the store.
    pub age_s: Option<u32>,
    /// Microseconds that the request waited for a fetch, its own or another one's.
    pub wait_us: u64,
}

impl Extension for CacheTrace {
    extension_slot!();
}
