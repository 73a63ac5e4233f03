//! What a request met on its way to a backend: for logs.

use std::sync::Arc;

/// The way of one request to its backend. Times are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTrace {
    /// The address that was asked last; `None` where none could be.
    pub address: Option<Arc<str>>,
    /// Waiting for a place: in the backlog, for a name, for a backend to come back. All tries.
    pub wait_us: u64,
    /// Making the connection; `None` for one that was there.
    pub connect_us: Option<u64>,
    /// From the request on until the head of the answer was there.
    pub first_byte_us: Option<u64>,
    /// Places that were given to it: more than one where a try failed.
    pub tries: u32,
}
