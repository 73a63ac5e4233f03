//! Client spans of a trace: one for each attempt at a backend, which is the parent of the backend's
//! own span.

use std::sync::Arc;

use lighty_core::Exchange;
use lighty_core::exchange::trace_context::{BackendCall, TraceContext};
use lighty_http::trace_parent::{TRACEPARENT, TraceParent};

use super::Serving;
use crate::upstream::address::Address;

impl Serving<'_> {
    /// Begins the span of an attempt and names it to the backend, if the trace is recorded.
    #[inline]
    pub(super) fn begin_client_span(&mut self, address: &Address) {
        let context = self.ex.ext::<TraceContext>();
        if let Some(own) = context.and_then(TraceContext::records_calls) {
            self.begin_recorded(own, address);
        }
    }

    #[cold]
    fn begin_recorded(&mut self, own: TraceParent, address: &Address) {
        let span_id = self.ex.machine.random.next().max(1);
        let call = BackendCall {
            span_id,
            begin_us: self.local.clock.mono_us(),
            end_us: None,
            address: Arc::clone(&address.spec.text),
            upstream: Arc::clone(&self.upstream.label),
            protocol: self.upstream.spec.protocol.word(),
            status: None,
            error: "",
        };
        self.ex.ext_mut::<TraceContext>().calls.push(call);
        name_span(self.ex, TraceParent { span_id, ..own });
    }

    /// Records the backend's response. The span ends with it, unless another call follows.
    #[inline]
    pub(super) fn answered_client_span(&mut self, status: u16) {
        self.with_last_call(|call, _| call.status = Some(status));
    }

    /// Records a failed attempt, unless the span has a result already.
    pub(super) fn failed_client_span(&mut self, error: &'static str) {
        self.with_last_call(|call, now_us| {
            if call.end_us.is_none() {
                call.error = error;
                call.end_us = Some(now_us);
            }
        });
    }

    fn with_last_call(&mut self, change: impl FnOnce(&mut BackendCall, u64)) {
        if self.ex.ext::<TraceContext>().is_none_or(|context| context.calls.is_empty()) {
            return;
        }
        let now_us = self.local.clock.mono_us();
        if let Some(call) = self.ex.ext_mut::<TraceContext>().calls.last_mut() {
            change(call, now_us);
        }
    }

    /// Names the request's own span again, as the parent of its next calls.
    #[inline]
    pub(super) fn leave_client_span(&mut self) {
        let context = self.ex.ext::<TraceContext>();
        let has_called = |context: &&TraceContext| !context.calls.is_empty();
        if let Some(own) = context.filter(has_called).and_then(TraceContext::records_calls) {
            name_span(self.ex, own);
        }
    }
}

fn name_span(ex: &mut Exchange, span: TraceParent) {
    ex.request.fields.set_named(TRACEPARENT, span.to_string().as_bytes());
}
