//! What a request met on its way to a backend, for logs.

use std::sync::Arc;

use crate::exchange::extensions::Extension;
use crate::extension_slot;

/// A request's way to its backend. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTrace {
    /// The upstream, as the configuration calls it; `None` if no place was had.
    pub upstream: Option<Arc<str>>,
    /// The address tried last; `None` if none could be.
    pub address: Option<Arc<str>>,
    /// Time waiting for a place: in the backlog, for a name, for a backend to come back. Sum of all
    /// tries.
    pub wait_us: u64,
    /// Connect time; `None` for a reused connection.
    pub connect_us: Option<u64>,
    /// Time of the handshake of TLS behind it; `None` for a reused connection and in the clear.
    pub tls_us: Option<u64>,
    /// Time from the request to the response head.
    pub first_byte_us: Option<u64>,
    /// Places assigned: more than one if a try failed.
    pub tries: u32,
}

impl Extension for UpstreamTrace {
    extension_slot!();
}
