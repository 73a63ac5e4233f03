//! `mod_tracing`: joins requests to distributed traces, and exports their timing to a collector.
//!
//! A request gets a position in a trace (W3C Trace Context) and an id. Backends, programs, scripts
//! and logs get both as fields of the request. Sampled traces go to an OpenTelemetry collector from
//! a separate thread: a request never waits for it.
//!
//! Reading order: `settings`, this file, `span_record` (the data of a finished request), `otlp`
//! (its encoding), `exporter` (the thread that sends it), `delivery` (requests to a collector).
//! `telemetry` exports metrics and the error log, `access_exporter` with `otlp_access` a log record
//! of each request.

mod access_exporter;
mod batch;
mod delivery;
mod exporter;
mod otlp;
mod otlp_access;
mod otlp_logs;
mod partial_success;
mod settings;
mod span_record;
mod telemetry;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::exchange::trace_context::TraceContext;
use lighty_core::machine::metrics::exemplars::Exemplar;
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Settings};
use lighty_http::trace_parent::{TRACEPARENT, TraceParent};

use access_exporter::AccessExporter;
use exporter::Exporter;
use settings::TracingSettings;
use span_record::SpanRecord;

pub use exporter::Exporters;
pub use telemetry::{MetricsSource, Telemetry};

/// W3C Trace Context section 3.3.
const TRACESTATE: &[u8] = b"tracestate";

/// Maximum length of an id from a trusted peer, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The module, one per worker.
pub struct Tracing {
    exporters: Exporters,
    /// The exporter used last, which is usually the only one.
    latest: RefCell<Option<Arc<Exporter>>>,
    /// The exporter of the access log.
    access_log: RefCell<Option<Arc<AccessExporter>>>,
}

impl Tracing {
    /// Creates a worker's instance; all workers share the exporters.
    pub fn new(exporters: Exporters) -> Self {
        Self { exporters, latest: RefCell::default(), access_log: RefCell::default() }
    }

    fn export(&self, record: SpanRecord, own: &TracingSettings, ex: &Exchange) {
        let mut latest = self.latest.borrow_mut();
        if !latest.as_ref().is_some_and(|exporter| exporter.serves(&own.collector)) {
            *latest = Some(self.exporters.of(&own.collector, &ex.machine.log));
        }
        if let Some(exporter) = &*latest {
            exporter.offer(record);
        }
    }

    /// Sends a record of a finished request to the collector of access logs.
    fn log_access(&self, own: &TracingSettings, ex: &Exchange) {
        if !own.logs_access() {
            return;
        }
        let mut latest = self.access_log.borrow_mut();
        if !latest.as_ref().is_some_and(|exporter| own.has_access_log(&exporter.options)) {
            let options = own.access_log_options();
            *latest = options.map(|options| self.exporters.access_log(options, &ex.machine.log));
        }
        if let Some(exporter) = &*latest {
            exporter.offer(SpanRecord::for_log(ex));
        }
    }
}

impl Module for Tracing {
    fn name(&self) -> &'static str {
        "mod_tracing"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { raw_url: true, response_head: true, done: true, ..Hooks::default() },
            never_refuses_paths: true,
            head_never_waits: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<TracingSettings>();
        Hooks {
            raw_url: own.is_active || !own.request_id.is_empty(),
            response_head: !own.request_id.is_empty(),
            done: own.is_active || own.logs_access(),
            ..Hooks::default()
        }
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::rows()
    }

    fn raw_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<TracingSettings>();
        let known = ex.ext::<TraceContext>();
        let (has_span, has_id) = known
            .map_or((false, false), |known| (known.span.is_some(), !known.request_id.is_empty()));
        let trusts = own.trusts(&ex.request.peer);
        if own.is_active && !has_span {
            join_trace(ex, own, trusts);
        }
        if !own.request_id.is_empty() && !has_id {
            take_id(ex, own.request_id.as_bytes(), trusts);
        }
        Step::Next
    }

    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let name = &settings.module::<TracingSettings>().request_id;
        let context = std::mem::take(ex.ext_mut::<TraceContext>());
        if !name.is_empty() && !context.request_id.is_empty() {
            ex.response.fields.set_named(name.as_bytes(), &context.request_id);
        }
        *ex.ext_mut() = context;
        Step::Next
    }

    fn done(&self, ex: &Exchange) {
        let own = ex.settings.module::<TracingSettings>();
        self.log_access(own, ex);
        let Some(context) = ex.ext::<TraceContext>() else { return };
        let sampled = context.span.filter(|span| span.is_sampled && own.is_active);
        let Some(span) = sampled else { return };
        ex.machine.metrics.exemplify(exemplar(ex, span.trace_id));
        if !own.collector.url.is_empty() {
            self.export(SpanRecord::of(ex, span, context), own, ex);
        }
    }
}

/// Creates an exemplar, which links a metric to the request's trace.
fn exemplar(ex: &Exchange, trace_id: u128) -> Exemplar {
    let clock = &ex.machine.clock;
    let unix_us = clock.unix_s().unsigned_abs() * 1_000_000 + u64::from(clock.unix_us());
    Exemplar { trace_id, took_us: ex.stages.total_us(), unix_us }
}

/// Gives the request a span: a child of a trusted peer's span, or the root of a new trace.
fn join_trace(ex: &mut Exchange, own: &TracingSettings, trusts: bool) {
    let parent = parent(ex).filter(|_| trusts);
    let random = &ex.machine.random;
    let new_id = || u128::from(random.next()) << 64 | u128::from(random.next().max(1));
    let trace_id = parent.map_or_else(new_id, |parent| parent.trace_id);
    let is_sampled = match parent {
        Some(parent) => parent.is_sampled,
        None => own.sample.takes(trace_id),
    };
    let span = TraceParent { trace_id, span_id: random.next().max(1), is_sampled };
    let fields = &mut ex.request.fields;
    fields.set_named(TRACEPARENT, span.to_string().as_bytes());
    if parent.is_none() {
        fields.remove_named(TRACESTATE);
    }
    let context = ex.ext_mut::<TraceContext>();
    context.parent_span_id = parent.map_or(0, |parent| parent.span_id);
    context.span = Some(span);
}

/// Returns the parent span from the request; `None` also if it has several.
fn parent(ex: &Exchange) -> Option<TraceParent> {
    let fields = ex.request.fields.iter();
    let mut found = fields.filter(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT));
    let (_, value) = found.next()?;
    if found.next().is_some() { None } else { TraceParent::parse(value) }
}

/// Gives the request an id: a trusted peer's, or a new one.
fn take_id(ex: &mut Exchange, name: &[u8], trusts: bool) {
    let mut id = std::mem::take(&mut ex.ext_mut::<TraceContext>().request_id);
    match ex.request.fields.get_named(name).filter(|id| trusts && is_usable(id)) {
        Some(given) => id.extend_from_slice(given),
        None => {
            let clock = &ex.machine.clock;
            let unix_ms = clock.unix_s().unsigned_abs() * 1000 + u64::from(clock.unix_us() / 1000);
            ex.id().push_uuid(unix_ms, ex.machine.random.next(), &mut id);
        }
    }
    ex.request.fields.set_named(name, &id);
    ex.ext_mut::<TraceContext>().request_id = id;
}

/// Returns true if an id needs no escaping in logs and fields.
fn is_usable(id: &[u8]) -> bool {
    let is_plain =
        |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b';');
    (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(is_plain)
}
