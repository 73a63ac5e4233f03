//! A script's orders to the cache of responses, about one request.

use crate::exchange::extensions::Extension;
use crate::extension_slot;

/// Orders to the cache. They count if they are given before the cache looks the request up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheOrders {
    /// Another part of the key.
    pub key: Option<Box<[u8]>>,
    /// Lifetime of the response in seconds, in place of its own; 0: it is not stored.
    pub ttl_s: Option<u32>,
    /// The request goes past the cache.
    pub bypasses: bool,
    /// Further tags of the response, separated by spaces.
    pub tags: Vec<u8>,
}

impl Extension for CacheOrders {
    extension_slot!();
}
