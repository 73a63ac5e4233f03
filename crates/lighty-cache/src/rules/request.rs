//! Input of the rules: a request, and the times of its fetch.

use lighty_http::{Fields, Known, Method};

/// The request as the cache sees it.
#[derive(Clone, Copy, Debug)]
pub struct CacheRequest<'a> {
    /// The method; `None` if it is unknown.
    pub method: Option<Method>,
    /// The header section as the client sent it.
    pub fields: &'a Fields,
    /// True if the server verified an identity and passes it on, which counts as `Authorization`.
    pub is_identified: bool,
    /// True if the request has content.
    pub has_body: bool,
    /// True if the target has a query.
    pub has_query: bool,
}

impl CacheRequest<'_> {
    /// True if the response may depend on an identity: RFC 9111 section 3.5.
    pub(super) fn is_authorized(&self) -> bool {
        self.is_identified || self.fields.contains(Known::Authorization)
    }
}

/// Times of a fetch, in seconds since 1970 by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// Time at which the request was sent.
    pub sent_s: i64,
    /// Time at which the response's head was received.
    pub received_s: i64,
}
