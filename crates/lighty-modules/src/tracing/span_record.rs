//! The data of a finished request for a collector.

use std::sync::Arc;

use lighty_core::Exchange;
use lighty_core::exchange::span::Span;
use lighty_core::exchange::stage::Stage;
use lighty_core::exchange::trace_context::{BackendCall, TraceContext};
use lighty_core::exchange::upstream_trace::UpstreamTrace;
use lighty_core::settings::route_name::RouteName;
use lighty_http::trace_parent::TraceParent;
use lighty_http::{Known, Method, host};

/// Maximum length of a text from a client, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// A request of a recorded trace, or of a log.
#[derive(Debug)]
pub(super) struct SpanRecord {
    /// Its span; a trace id of 0: the request belongs to no trace.
    pub(super) span: TraceParent,
    /// 0 if the trace begins here.
    pub(super) parent_span_id: u64,
    /// Microseconds since 1970.
    pub(super) begin_us: u64,
    pub(super) end_us: u64,
    /// `None` if it is not an HTTP method.
    pub(super) method: Option<&'static str>,
    pub(super) scheme: &'static str,
    pub(super) host: String,
    pub(super) port: u16,
    /// The path as sent by the client, before any rewrite.
    pub(super) path: String,
    pub(super) has_query: bool,
    pub(super) version: &'static str,
    pub(super) client: String,
    pub(super) user_agent: String,
    pub(super) request_id: String,
    pub(super) status: u16,
    /// The operator's name for the route, if any.
    pub(super) route: Arc<str>,
    /// The module that handled the request.
    pub(super) handler: &'static str,
    pub(super) body_bytes_in: u64,
    pub(super) body_bytes_out: u64,
    pub(super) backend: Option<UpstreamTrace>,
    /// Description of the failure.
    pub(super) fault: &'static str,
    pub(super) parts: Vec<Part>,
    /// Tries at backends; times in microseconds since 1970.
    pub(super) calls: Vec<BackendCall>,
}

/// A span of time within a request.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) begin_us: u64,
    pub(super) end_us: u64,
    /// The span's id; unique within the request.
    pub(super) number: u64,
}

impl SpanRecord {
    /// Number of exported spans: the request's own, one for each part, and one for each try at a
    /// backend.
    pub(super) fn spans(&self) -> u64 {
        1 + (self.parts.len() + self.calls.len()) as u64
    }

    /// The record of a request of a recorded trace.
    pub(super) fn of(ex: &Exchange, span: TraceParent, context: &TraceContext) -> Self {
        let origin_us = origin_us(ex);
        Self {
            span,
            parent_span_id: context.parent_span_id,
            parts: parts(ex, origin_us),
            calls: context.calls.iter().map(|call| since_1970(ex, call, origin_us)).collect(),
            ..Self::whole(ex, &context.request_id)
        }
    }

    /// The record of any request, for a log: without parts and calls.
    pub(super) fn for_log(ex: &Exchange) -> Self {
        let context = ex.ext::<TraceContext>();
        let request_id = context.map_or(&[][..], |context| &context.request_id);
        let record = Self::whole(ex, request_id);
        let span = context.and_then(|context| context.span);
        Self { span: span.unwrap_or(record.span), ..record }
    }

    /// The request as a whole, outside all traces.
    fn whole(ex: &Exchange, request_id: &[u8]) -> Self {
        let origin_us = origin_us(ex);
        let at = |stage| ex.stages.when_us(stage).map(|when_us| origin_us + when_us);
        let now_unix_us = origin_us + ex.machine.clock.mono_us();
        let request = &ex.request;
        let mut target = request.target_raw.splitn(2, |byte| *byte == b'?');
        let (path, query) = (target.next().unwrap_or_default(), target.next());
        let user_agent = request.fields.get(Known::UserAgent).unwrap_or_default();
        Self {
            span: TraceParent { trace_id: 0, span_id: 0, is_sampled: false },
            parent_span_id: 0,
            begin_us: at(Stage::FirstByte).unwrap_or(now_unix_us),
            end_us: at(Stage::LastByteOut).unwrap_or(now_unix_us),
            method: request.method.map(Method::as_str),
            scheme: request.scheme,
            host: text(host::parts(&request.authority).0),
            port: request.local_port,
            path: text(path),
            has_query: query.is_some_and(|query| !query.is_empty()),
            version: request.version.as_str().trim_start_matches("HTTP/"),
            client: request.peer_text.to_string(),
            user_agent: text(user_agent),
            request_id: text(request_id),
            status: ex.response.status.code(),
            route: Arc::clone(&ex.settings.module::<RouteName>().0),
            handler: ex.counts_for(),
            body_bytes_in: ex.body.received(),
            body_bytes_out: ex.state.bytes_sent.saturating_sub(ex.state.head_sent.into()),
            backend: ex.ext::<UpstreamTrace>().cloned(),
            fault: ex.state.fault.map_or("", |fault| fault.verdict().message),
            parts: Vec::new(),
            calls: Vec::new(),
        }
    }
}

/// Wall-clock time at zero of the monotonic clock, in microseconds since 1970. The wall clock may
/// have been set since.
fn origin_us(ex: &Exchange) -> u64 {
    let clock = &ex.machine.clock;
    let now_unix_us = clock.unix_s().unsigned_abs() * 1_000_000 + u64::from(clock.unix_us());
    now_unix_us.saturating_sub(clock.mono_us())
}

/// Converts a call to wall-clock time. A call still under way ends with the response's body.
fn since_1970(ex: &Exchange, call: &BackendCall, origin_us: u64) -> BackendCall {
    let last = [Stage::BodyBack, Stage::LastByteOut].map(|stage| ex.stages.when_us(stage));
    let last_us = last.into_iter().flatten().find(|when_us| *when_us >= call.begin_us);
    let end_us = call.end_us.or(last_us).unwrap_or_else(|| ex.machine.clock.mono_us());
    BackendCall {
        begin_us: origin_us + call.begin_us,
        end_us: Some(origin_us + end_us),
        ..call.clone()
    }
}

/// Returns the spans within the request, and its tunnel. A span of several stretches is shown as
/// one, from the start of its first.
fn parts(ex: &Exchange, origin_us: u64) -> Vec<Part> {
    let random = &ex.machine.random;
    let part = |(span, began_us, took_us): (Span, u64, u32)| {
        let begin_us = origin_us + began_us;
        let (end_us, number) = (begin_us + u64::from(took_us), random.next().max(1));
        Part { name: span.name(), begin_us, end_us, number }
    };
    let is_exported = |span: Span| span.is_within_request() || span == Span::Tunnel;
    let within = ex.stages.spans().filter(|(span, ..)| is_exported(*span));
    within.map(part).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_BYTES_MAX)]).into_owned()
}
