//! What a request is called by other servers: its trace and its id.

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
}

impl Extension for TraceContext {
    extension_slot!();

    fn inherited(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn reset(&mut self) {
        self.span = None;
        self.parent_span_id = 0;
        self.request_id.clear();
    }
}
