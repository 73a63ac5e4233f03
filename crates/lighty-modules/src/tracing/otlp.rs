//! Spans in OTLP's JSON encoding (OpenTelemetry Protocol 1.x, section "JSON Protobuf Encoding"),
//! with names of the semantic conventions for HTTP.

use std::borrow::Cow;

use lighty_core::exchange::trace_context::BackendCall;
use lighty_core::json;
use serde::{Serialize, Serializer};

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
    let version = env!("CARGO_PKG_VERSION");
    let resource = OtlpResource::of_service(&options.service);
    let spans = records.iter().flat_map(|record| {
        let parts = record.parts.iter().map(move |part| part_span(record, part));
        let calls = (0..).zip(&record.calls);
        let calls = calls.map(move |(resend, call)| client_span(record, call, resend));
        std::iter::once(server_span(record)).chain(parts).chain(calls)
    });
    let scope_spans =
        ScopeSpans { scope: OtlpScope { name: "lighty", version }, spans: spans.collect() };
    let resource_spans = ResourceSpans { resource, scope_spans: [scope_spans] };
    let mut out = Vec::with_capacity(records.len() * 1024);
    json::push(&ExportRequest { resource_spans: [resource_spans] }, &mut out);
    out
}

/// `ExportTraceServiceRequest`. The types below are messages of `trace.proto`, too.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportRequest<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: OtlpResource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
pub(super) struct OtlpResource<'a> {
    attributes: OtlpAttributes<'a>,
}

impl<'a> OtlpResource<'a> {
    pub(super) fn of_service(service: &'a str) -> Self {
        let mut attributes = OtlpAttributes::default();
        attributes.push("service.name", AttributeValue::Text(service.into()));
        attributes.text("service.version", env!("CARGO_PKG_VERSION"));
        Self { attributes }
    }
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: OtlpScope<'a>,
    spans: Vec<Span<'a>>,
}

#[derive(Serialize)]
pub(super) struct OtlpScope<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    #[serde(serialize_with = "trace_id")]
    trace_id: u128,
    #[serde(serialize_with = "span_id")]
    span_id: u64,
    kind: u8,
    #[serde(rename = "startTimeUnixNano", serialize_with = "nanoseconds")]
    begin_us: u64,
    #[serde(rename = "endTimeUnixNano", serialize_with = "nanoseconds")]
    end_us: u64,
    /// 0 for a span without a parent.
    #[serde(serialize_with = "span_id", skip_serializing_if = "is_zero")]
    parent_span_id: u64,
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "OtlpAttributes::is_empty")]
    attributes: OtlpAttributes<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<SpanStatus<'a>>,
}

#[derive(Serialize)]
struct SpanStatus<'a> {
    code: u8,
    message: &'a str,
}

#[derive(Default, Serialize)]
#[serde(transparent)]
pub(super) struct OtlpAttributes<'a>(Vec<Attribute<'a>>);

#[derive(Serialize)]
struct Attribute<'a> {
    key: &'static str,
    value: AttributeValue<'a>,
}

#[derive(Serialize)]
pub(super) enum AttributeValue<'a> {
    #[serde(rename = "stringValue")]
    Text(Cow<'a, str>),
    #[serde(rename = "intValue", serialize_with = "text_of_number")]
    Number(u64),
    #[serde(rename = "boolValue")]
    Flag(bool),
    #[serde(rename = "doubleValue")]
    Seconds(f64),
}

pub(super) fn trace_id<S: Serializer>(id: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{id:032x}"))
}

pub(super) fn span_id<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{id:016x}"))
}

pub(super) fn nanoseconds<S: Serializer>(us: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{us}000"))
}

/// Integers of 64 bits are strings in the JSON of protocol buffers.
fn text_of_number<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn is_zero(id: &u64) -> bool {
    *id == 0
}

impl<'a> OtlpAttributes<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, key: &'static str, value: AttributeValue<'a>) {
        self.0.push(Attribute { key, value });
    }

    /// Appends the attribute unless its value is empty.
    pub(super) fn text(&mut self, key: &'static str, value: impl Into<Cow<'a, str>>) {
        let value = value.into();
        if !value.is_empty() {
            self.push(key, AttributeValue::Text(value));
        }
    }

    pub(super) fn number(&mut self, key: &'static str, value: u64) {
        self.push(key, AttributeValue::Number(value));
    }
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

fn server_span(record: &SpanRecord) -> Span<'_> {
    // Span names have few values: text chosen by the client goes into the attributes.
    let method = record.method.unwrap_or("HTTP");
    let name = match &*record.route {
        "" => method.into(),
        route => format!("{method} {route}").into(),
    };
    let is_failed = record.status >= 500 || !record.fault.is_empty() && record.status < 400;
    Span {
        trace_id: record.span.trace_id,
        span_id: record.span.span_id,
        kind: SERVER,
        begin_us: record.begin_us,
        end_us: record.end_us,
        parent_span_id: record.parent_span_id,
        name,
        attributes: server_attributes(record),
        status: is_failed.then_some(SpanStatus { code: ERROR, message: record.fault }),
    }
}

/// Attributes of a request, by the semantic conventions for HTTP servers.
pub(super) fn server_attributes(record: &SpanRecord) -> OtlpAttributes<'_> {
    let mut attributes = OtlpAttributes::default();
    attributes.text("http.request.method", record.method.unwrap_or("_OTHER"));
    attributes.number("http.response.status_code", record.status.into());
    attributes.number("http.response.body.size", record.body_bytes_out);
    attributes.number("server.port", record.port.into());
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
        attributes.text(name, value);
    }
    if record.has_query {
        // The query may hold secrets; its presence is harmless.
        attributes.push("lighty.has_query", AttributeValue::Flag(true));
    }
    if let Some(backend) = &record.backend {
        attributes.text("lighty.backend", backend.address.as_deref().unwrap_or_default());
        attributes.number("lighty.tries", backend.tries.into());
    }
    if record.status >= 500 {
        attributes.text("error.type", record.status.to_string());
    }
    attributes
}

/// Describes a try at a backend. Collectors use it to draw the edge from this server to the
/// backend.
fn client_span<'a>(record: &'a SpanRecord, call: &'a BackendCall, resend: u64) -> Span<'a> {
    let method = record.method.unwrap_or("HTTP");
    // Client spans treat a status of 400 and above as an error, too.
    let status = call.status.filter(|status| *status >= 400);
    let error = status.map_or(Cow::from(call.error), |status| status.to_string().into());
    let is_failed = !error.is_empty();
    let mut attributes = client_attributes(record, call, resend);
    attributes.text("error.type", error);
    Span {
        trace_id: record.span.trace_id,
        span_id: call.span_id,
        kind: CLIENT,
        begin_us: call.begin_us,
        end_us: call.end_us.unwrap_or(call.begin_us),
        parent_span_id: record.span.span_id,
        name: format!("{method} {}", call.upstream).into(),
        attributes,
        status: is_failed.then_some(SpanStatus { code: ERROR, message: call.error }),
    }
}

fn client_attributes<'a>(
    record: &'a SpanRecord,
    call: &'a BackendCall,
    resend: u64,
) -> OtlpAttributes<'a> {
    let mut attributes = OtlpAttributes::default();
    attributes.text("http.request.method", record.method.unwrap_or("_OTHER"));
    if let Some(status) = call.status {
        attributes.number("http.response.status_code", status.into());
    }
    if resend > 0 {
        attributes.number("http.request.resend_count", resend);
    }
    let (host, port) = peer(&call.address);
    for name in ["server.address", "network.peer.address"] {
        attributes.text(name, host);
    }
    if let Some(port) = port {
        attributes.number("server.port", port.into());
        attributes.number("network.peer.port", port.into());
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
        attributes.text(name, value);
    }
    attributes
}

fn part_span<'a>(record: &'a SpanRecord, part: &'a Part) -> Span<'a> {
    Span {
        trace_id: record.span.trace_id,
        span_id: part.number,
        kind: INTERNAL,
        begin_us: part.begin_us,
        end_us: part.end_us,
        parent_span_id: record.span.span_id,
        name: part.name.into(),
        attributes: OtlpAttributes::default(),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use lighty_core::exchange::upstream_trace::UpstreamTrace;
    use lighty_http::trace_parent::TraceParent;

    use super::*;

    fn call(span_id: u64, address: &str, status: Option<u16>, error: &'static str) -> BackendCall {
        BackendCall {
            span_id,
            begin_us: 1_001,
            end_us: (status != Some(200)).then_some(1_002),
            address: address.into(),
            upstream: "app".into(),
            protocol: if status.is_some() { "h2" } else { "fastcgi" },
            status,
            error,
        }
    }

    fn record(status: u16, fault: &'static str) -> SpanRecord {
        SpanRecord {
            span: TraceParent { trace_id: 0xabc, span_id: 1, is_sampled: true },
            parent_span_id: 0,
            begin_us: 1_000,
            end_us: 2_000,
            method: Some("GET"),
            scheme: "https",
            host: "a.example".to_owned(),
            port: 443,
            path: "/<a>\"".to_owned(),
            has_query: true,
            version: "2.0",
            client: "192.0.2.1".to_owned(),
            user_agent: "curl\u{7f}".to_owned(),
            request_id: String::new(),
            status,
            route: "files".into(),
            handler: "proxy",
            body_bytes_in: 0,
            body_bytes_out: 7,
            backend: Some(UpstreamTrace {
                address: Some("[::1]:80".into()),
                tries: 2,
                ..UpstreamTrace::default()
            }),
            fault,
            parts: vec![Part { name: "queue", begin_us: 1_000, end_us: 1_001, number: 2 }],
            calls: vec![
                call(3, "unix:/run/app", None, "refused"),
                call(4, "[::1]:80", Some(502), ""),
                call(5, "host:99999", Some(200), ""),
            ],
        }
    }

    fn options() -> CollectorOptions {
        CollectorOptions { service: "shop".into(), ..CollectorOptions::default() }
    }

    #[test]
    fn a_request_is_a_span_with_its_parts_and_tries() {
        let text = String::from_utf8(request(&[record(502, "backend failed")], &options()));
        let text = text.expect("UTF-8");
        let version = env!("CARGO_PKG_VERSION");
        let begin = format!(
            r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"shop"}}}},{{"key":"service.version","value":{{"stringValue":"{version}"}}}}]}},"scopeSpans":[{{"scope":{{"name":"lighty","version":"{version}"}},"spans":["#
        );
        let spans = text.strip_prefix(&begin).and_then(|text| text.strip_suffix("]}]}]}"));
        let spans = spans.unwrap_or_else(|| panic!("{text}"));
        let expected = [SERVER_SPAN, PART_SPAN, FIRST_TRY, SECOND_TRY].join(",");
        assert!(spans.starts_with(&expected), "{spans}\n{expected}");
        let rest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let spans = &rest["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(spans.as_array().map(Vec::len), Some(5));
        assert_eq!(spans[4]["status"], serde_json::Value::Null, "it succeeded");
    }

    const SERVER_SPAN: &str = concat!(
        r#"{"traceId":"00000000000000000000000000000abc","spanId":"0000000000000001","kind":2,"startTimeUnixNano":"1000000","endTimeUnixNano":"2000000","name":"GET files","attributes":[{"key":"http.request.method","value":{"stringValue":"GET"}},"#,
        r#"{"key":"http.response.status_code","value":{"intValue":"502"}},"#,
        r#"{"key":"http.response.body.size","value":{"intValue":"7"}},"#,
        r#"{"key":"server.port","value":{"intValue":"443"}},"#,
        r#"{"key":"url.scheme","value":{"stringValue":"https"}},"#,
        r#"{"key":"url.path","value":{"stringValue":"/\u003ca>\""}},"#,
        r#"{"key":"http.route","value":{"stringValue":"files"}},"#,
        r#"{"key":"server.address","value":{"stringValue":"a.example"}},"#,
        r#"{"key":"client.address","value":{"stringValue":"192.0.2.1"}},"#,
        r#"{"key":"network.protocol.version","value":{"stringValue":"2"}},"#,
        r#"{"key":"user_agent.original","value":{"stringValue":"curl\u007f"}},"#,
        r#"{"key":"lighty.handler","value":{"stringValue":"proxy"}},"#,
        r#"{"key":"lighty.has_query","value":{"boolValue":true}},"#,
        r#"{"key":"lighty.backend","value":{"stringValue":"[::1]:80"}},"#,
        r#"{"key":"lighty.tries","value":{"intValue":"2"}},"#,
        r#"{"key":"error.type","value":{"stringValue":"502"}}],"status":{"code":2,"message":"backend failed"}}"#,
    );

    const PART_SPAN: &str = r#"{"traceId":"00000000000000000000000000000abc","spanId":"0000000000000002","kind":1,"startTimeUnixNano":"1000000","endTimeUnixNano":"1001000","parentSpanId":"0000000000000001","name":"queue"}"#;

    const FIRST_TRY: &str = concat!(
        r#"{"traceId":"00000000000000000000000000000abc","spanId":"0000000000000003","kind":3,"startTimeUnixNano":"1001000","endTimeUnixNano":"1002000","parentSpanId":"0000000000000001","name":"GET app","attributes":[{"key":"http.request.method","value":{"stringValue":"GET"}},"#,
        r#"{"key":"server.address","value":{"stringValue":"/run/app"}},"#,
        r#"{"key":"network.peer.address","value":{"stringValue":"/run/app"}},"#,
        r#"{"key":"network.transport","value":{"stringValue":"unix"}},"#,
        r#"{"key":"network.protocol.name","value":{"stringValue":"fastcgi"}},"#,
        r#"{"key":"peer.service","value":{"stringValue":"app"}},"#,
        r#"{"key":"lighty.backend","value":{"stringValue":"unix:/run/app"}},"#,
        r#"{"key":"error.type","value":{"stringValue":"refused"}}],"status":{"code":2,"message":"refused"}}"#,
    );

    const SECOND_TRY: &str = concat!(
        r#"{"traceId":"00000000000000000000000000000abc","spanId":"0000000000000004","kind":3,"startTimeUnixNano":"1001000","endTimeUnixNano":"1002000","parentSpanId":"0000000000000001","name":"GET app","attributes":[{"key":"http.request.method","value":{"stringValue":"GET"}},"#,
        r#"{"key":"http.response.status_code","value":{"intValue":"502"}},"#,
        r#"{"key":"http.request.resend_count","value":{"intValue":"1"}},"#,
        r#"{"key":"server.address","value":{"stringValue":"::1"}},"#,
        r#"{"key":"network.peer.address","value":{"stringValue":"::1"}},"#,
        r#"{"key":"server.port","value":{"intValue":"80"}},"#,
        r#"{"key":"network.peer.port","value":{"intValue":"80"}},"#,
        r#"{"key":"network.transport","value":{"stringValue":"tcp"}},"#,
        r#"{"key":"network.protocol.name","value":{"stringValue":"http"}},"#,
        r#"{"key":"network.protocol.version","value":{"stringValue":"2"}},"#,
        r#"{"key":"peer.service","value":{"stringValue":"app"}},"#,
        r#"{"key":"lighty.backend","value":{"stringValue":"[::1]:80"}},"#,
        r#"{"key":"error.type","value":{"stringValue":"502"}}],"status":{"code":2,"message":""}}"#,
    );

    #[test]
    fn a_response_without_a_fault_is_no_error() {
        let status = |record: SpanRecord| {
            let value =
                serde_json::from_slice::<serde_json::Value>(&request(&[record], &options()));
            value.expect("JSON")["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["status"].clone()
        };
        let error = serde_json::json!({ "code": ERROR, "message": "client left" });
        assert_eq!(status(record(200, "")), serde_json::Value::Null);
        assert_eq!(status(record(404, "no file")), serde_json::Value::Null);
        assert_eq!(status(record(200, "client left")), error);
    }
}
