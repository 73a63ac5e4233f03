//! Spans in OTLP's JSON encoding (OpenTelemetry Protocol 1.x, section "JSON Protobuf Encoding"),
//! with names of the semantic conventions for HTTP.

use lighty_http::json;

use lighty_core::exchange::trace_context::BackendCall;

use super::settings::CollectorOptions;
use super::span_record::{Part, SpanRecord};

/// `SpanKind` in `trace.proto`.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

/// `StatusCode` in `trace.proto`.
const ERROR: u8 = 2;

/// Renders an `ExportTraceServiceRequest`.
pub(super) fn request(records: &[SpanRecord], options: &CollectorOptions) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(records.len() * 1024));
    out.raw("{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    out.text("service.name", &options.service);
    out.raw(",");
    out.text("service.version", env!("CARGO_PKG_VERSION"));
    out.raw("]},\"scopeSpans\":[{\"scope\":{\"name\":\"lighty\",\"version\":");
    json::push_string(env!("CARGO_PKG_VERSION").as_bytes(), &mut out.0);
    out.raw("},\"spans\":[");
    for (at, record) in records.iter().enumerate() {
        if at > 0 {
            out.raw(",");
        }
        out.server_span(record);
        for part in &record.parts {
            out.raw(",");
            out.part(record, part);
        }
        for (resend, call) in (0..).zip(&record.calls) {
            out.raw(",");
            out.client_span(record, call, resend);
        }
    }
    out.raw("]}]}]}");
    out.0
}

/// Splits a backend's address into host and port; a unix socket has a path and no port.
fn peer(address: &str) -> (&str, Option<u16>) {
    if let Some(path) = address.strip_prefix("unix:") {
        return (path, None);
    }
    let parts = address.rsplit_once(':');
    match parts.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        Some((host, port)) => (host.trim_matches(['[', ']']), Some(port)),
        None => (address, None),
    }
}

/// Writes JSON.
struct Writer(Vec<u8>);

impl Writer {
    fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn formatted(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a vector cannot fail.
        let _ = std::io::Write::write_fmt(&mut self.0, arguments);
    }

    /// Writes the fields common to all spans. Integers of 64 bits are strings.
    fn head(&mut self, trace_id: u128, span_id: u64, parent: u64, kind: u8, times_us: (u64, u64)) {
        self.formatted(format_args!(
            "{{\"traceId\":\"{trace_id:032x}\",\"spanId\":\"{span_id:016x}\",\"kind\":{kind},\
             \"startTimeUnixNano\":\"{}000\",\"endTimeUnixNano\":\"{}000\"",
            times_us.0, times_us.1
        ));
        if parent != 0 {
            self.formatted(format_args!(",\"parentSpanId\":\"{parent:016x}\""));
        }
        self.raw(",\"name\":");
    }

    fn server_span(&mut self, record: &SpanRecord) {
        let times_us = (record.begin_us, record.end_us);
        let span = record.span;
        self.head(span.trace_id, span.span_id, record.parent_span_id, SERVER, times_us);
        // Span names have few values: text chosen by the client goes into the attributes.
        let method = record.method.unwrap_or("HTTP");
        match &*record.route {
            "" => json::push_string(method.as_bytes(), &mut self.0),
            route => json::push_string(format!("{method} {route}").as_bytes(), &mut self.0),
        }
        self.raw(",\"attributes\":[");
        self.text("http.request.method", record.method.unwrap_or("_OTHER"));
        self.number_after("http.response.status_code", record.status.into());
        self.number_after("http.response.body.size", record.body_bytes_out);
        self.number_after("server.port", record.port.into());
        for (name, value) in [
            ("url.scheme", record.scheme),
            ("url.path", &record.path),
            ("http.route", &record.route),
            ("server.address", &record.host),
            ("client.address", &record.client),
            // OpenTelemetry's names for HTTP/2 and HTTP/3 have no minor version.
            ("network.protocol.version", record.version.trim_end_matches(".0")),
            ("user_agent.original", &record.user_agent),
            ("lighty.request_id", &record.request_id),
            ("lighty.handler", record.handler),
        ] {
            self.text_after(name, value);
        }
        if record.has_query {
            // The query may hold secrets; its presence is harmless.
            self.raw(",{\"key\":\"lighty.has_query\",\"value\":{\"boolValue\":true}}");
        }
        if let Some(backend) = &record.backend {
            let address = backend.address.as_deref().unwrap_or_default();
            self.text_after("lighty.backend", address);
            self.number_after("lighty.tries", backend.tries.into());
        }
        if record.status >= 500 {
            self.text_after("error.type", &record.status.to_string());
        }
        self.raw("]");
        if record.status >= 500 || !record.fault.is_empty() && record.status < 400 {
            self.formatted(format_args!(",\"status\":{{\"code\":{ERROR},\"message\":"));
            json::push_string(record.fault.as_bytes(), &mut self.0);
            self.raw("}");
        }
        self.raw("}");
    }

    /// Writes a try at a backend. Collectors use it to draw the edge from this server to the
    /// backend.
    fn client_span(&mut self, record: &SpanRecord, call: &BackendCall, resend: u64) {
        let times_us = (call.begin_us, call.end_us.unwrap_or(call.begin_us));
        self.head(record.span.trace_id, call.span_id, record.span.span_id, CLIENT, times_us);
        let method = record.method.unwrap_or("HTTP");
        json::push_string(format!("{method} {}", call.upstream).as_bytes(), &mut self.0);
        self.raw(",\"attributes\":[");
        self.text("http.request.method", record.method.unwrap_or("_OTHER"));
        if let Some(status) = call.status {
            self.number_after("http.response.status_code", status.into());
        }
        if resend > 0 {
            self.number_after("http.request.resend_count", resend);
        }
        let (host, port) = peer(&call.address);
        for name in ["server.address", "network.peer.address"] {
            self.text_after(name, host);
        }
        if let Some(port) = port {
            self.number_after("server.port", port.into());
            self.number_after("network.peer.port", port.into());
        }
        let transport = if port.is_some() { "tcp" } else { "unix" };
        // OpenTelemetry treats HTTP/2 as a version of HTTP, not as a protocol of its own.
        let (protocol, version) = match call.protocol {
            "h2" => ("http", "2"),
            other => (other, ""),
        };
        for (name, value) in [
            ("network.transport", transport),
            ("network.protocol.name", protocol),
            ("network.protocol.version", version),
            ("peer.service", &call.upstream),
            ("lighty.backend", &call.address),
        ] {
            self.text_after(name, value);
        }
        // Client spans treat a status of 400 and above as an error, too.
        let status = call.status.filter(|status| *status >= 400).map(|status| status.to_string());
        let error = status.as_deref().unwrap_or(call.error);
        self.text_after("error.type", error);
        self.raw("]");
        if !error.is_empty() {
            self.formatted(format_args!(",\"status\":{{\"code\":{ERROR},\"message\":"));
            json::push_string(call.error.as_bytes(), &mut self.0);
            self.raw("}");
        }
        self.raw("}");
    }

    fn part(&mut self, record: &SpanRecord, part: &Part) {
        let (span, times_us) = (record.span, (part.begin_us, part.end_us));
        self.head(span.trace_id, part.number, span.span_id, INTERNAL, times_us);
        json::push_string(part.name.as_bytes(), &mut self.0);
        self.raw("}");
    }

    fn text(&mut self, name: &str, value: &str) {
        self.formatted(format_args!("{{\"key\":\"{name}\",\"value\":{{\"stringValue\":"));
        json::push_string(value.as_bytes(), &mut self.0);
        self.raw("}}");
    }

    /// Writes the attribute unless its value is empty.
    fn text_after(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.raw(",");
            self.text(name, value);
        }
    }

    fn number_after(&mut self, name: &str, value: u64) {
        self.formatted(format_args!(
            ",{{\"key\":\"{name}\",\"value\":{{\"intValue\":\"{value}\"}}}}"
        ));
    }
}
