//! Trace and id by which other servers know a request.

use std::sync::Arc;

use lighty_http::trace_parent::TraceParent;

use crate::exchange::extensions::Extension;
use crate::extension_slot;

/// A request's span in a trace, and its id, as sent to backends and written to logs. Empty unless
/// `mod_tracing` is active.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The span of this request, the parent of its calls to backends.
    pub span: Option<TraceParent>,
    /// The sender's span, in the same trace; 0 if the trace begins here.
    pub parent_span_id: u64,
    /// The request's id, from a trusted peer or from this server.
    pub request_id: Vec<u8>,
    /// The tries at backends, in order, if the trace is recorded.
    pub calls: Vec<BackendCall>,
    /// The request is a subrequest. Only the enclosing request's span is recorded.
    pub is_part: bool,
}

/// A try at a backend: a client span of the trace. Times are in microseconds of the monotonic
/// clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendCall {
    /// The span id that the backend receives as its parent.
    pub span_id: u64,
    /// Time at which the request had a place at the backend.
    pub begin_us: u64,
    /// Time at which the try ended; `None` if it lasted until the response was complete.
    pub end_us: Option<u64>,
    /// The backend's address.
    pub address: Arc<str>,
    /// The upstream's name in the configuration.
    pub upstream: Arc<str>,
    /// The value of `proxy-core.protocol`.
    pub protocol: &'static str,
    /// The status of the backend's response; `None` if there was none.
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
