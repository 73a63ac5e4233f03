//! What a request is called by other servers: its trace and its id.

use std::sync::Arc;

use lighty_http::trace_parent::TraceParent;

use crate::exchange::extensions::Extension;
use crate::extension_slot;

/// A request's place in a trace, and its id, as they go to backends and logs. Empty unless
/// `mod_tracing` is active.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The span of this request; what it asks of others is beneath it.
    pub span: Option<TraceParent>,
    /// The span of whoever sent it, in the same trace; 0 if the trace begins here.
    pub parent_span_id: u64,
    /// The request's id, as a trusted peer or this server names it.
    pub request_id: Vec<u8>,
    /// The tries at backends, in order, if the trace is recorded.
    pub calls: Vec<BackendCall>,
    /// The request is part of another one, whose span alone is recorded.
    pub is_part: bool,
}

/// A try at a backend: a client's span of the trace. Times are in microseconds of the monotonic
/// clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendCall {
    /// The parent span that is sent to the backend.
    pub span_id: u64,
    /// The request had a place at the backend.
    pub begin_us: u64,
    /// The try was over; `None` if it lasted until the response was complete.
    pub end_us: Option<u64>,
    /// The backend's address.
    pub address: Arc<str>,
    /// The upstream, as the configuration calls it.
    pub upstream: Arc<str>,
    /// The word of `proxy-core.protocol`.
    pub protocol: &'static str,
    /// The status of its response; `None` if there was none.
    pub status: Option<u16>,
    /// Description of the failure.
    pub error: &'static str,
}

impl TraceContext {
    /// The request's span, if tries at backends are recorded beneath it.
    pub fn records_calls(&self) -> Option<TraceParent> {
        self.span.filter(|span| span.is_sampled && !self.is_part)
    }
}

impl Extension for TraceContext {
    extension_slot!();

    fn inherited(&self) -> Option<Self> {
        Some(Self { calls: Vec::new(), is_part: true, ..self.clone() })
    }

    fn reset(&mut self) {
        self.span = None;
        self.parent_span_id = 0;
        self.request_id.clear();
        self.calls.clear();
        self.is_part = false;
    }
}
