//! Access log records in OTLP's JSON encoding (OpenTelemetry Protocol 1.x, section "JSON Protobuf
//! Encoding"), with names of the semantic conventions for HTTP.

use lighty_core::json;
use serde::Serialize;

use super::otlp::{
    AttributeValue, OtlpAttributes, OtlpResource, OtlpScope, nanoseconds, server_attributes,
    span_id, trace_id,
};
use super::span_record::SpanRecord;

/// Name of the scope, by which collectors tell these records from lines of the error log.
const SCOPE: &str = "lighty.access";

/// `SeverityNumber` in `logs.proto`.
const INFO: u8 = 9;
const ERROR: u8 = 17;

/// Renders an `ExportLogsServiceRequest`.
pub(super) fn request(records: &[SpanRecord], service: &str) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let scope_logs = ScopeLogs {
        scope: OtlpScope { name: SCOPE, version },
        log_records: records.iter().map(access_record).collect(),
    };
    let resource = OtlpResource::of_service(service);
    let mut out = Vec::with_capacity(records.len() * 1024);
    let resource_logs = [ResourceLogs { resource, scope_logs: [scope_logs] }];
    json::push(&ExportLogsRequest { resource_logs }, &mut out);
    out
}

/// `ExportLogsServiceRequest`. The types below are messages of `logs.proto`, too.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportLogsRequest<'a> {
    resource_logs: [ResourceLogs<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceLogs<'a> {
    resource: OtlpResource<'a>,
    scope_logs: [ScopeLogs<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScopeLogs<'a> {
    scope: OtlpScope<'a>,
    log_records: Vec<AccessLogRecord<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessLogRecord<'a> {
    #[serde(rename = "timeUnixNano", serialize_with = "nanoseconds")]
    time_us: u64,
    #[serde(rename = "observedTimeUnixNano", serialize_with = "nanoseconds")]
    observed_us: u64,
    severity_number: u8,
    severity_text: &'static str,
    body: AttributeValue<'a>,
    attributes: OtlpAttributes<'a>,
    #[serde(flatten)]
    trace: Option<TracePlace>,
}

/// Place of the request in a trace.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TracePlace {
    #[serde(serialize_with = "trace_id")]
    trace_id: u128,
    #[serde(serialize_with = "span_id")]
    span_id: u64,
    /// Trace flags; 1: sampled.
    flags: u32,
}

fn access_record(record: &SpanRecord) -> AccessLogRecord<'_> {
    let method = record.method.unwrap_or("_OTHER");
    let text = format!("{method} {} {}", record.path, record.status);
    let (severity_number, severity_text) = match record.status {
        500.. => (ERROR, "ERROR"),
        _ => (INFO, "INFO"),
    };
    let mut attributes = server_attributes(record);
    attributes.text("network.protocol.name", "http");
    attributes.number("http.request.body.size", record.body_bytes_in);
    let took_us = record.end_us.saturating_sub(record.begin_us);
    let took = AttributeValue::Seconds(took_us as f64 / 1e6);
    attributes.push("http.server.request.duration", took);
    let span = record.span;
    let place = TracePlace {
        trace_id: span.trace_id,
        span_id: span.span_id,
        flags: span.is_sampled.into(),
    };
    AccessLogRecord {
        time_us: record.end_us,
        observed_us: record.end_us,
        severity_number,
        severity_text,
        body: AttributeValue::Text(text.into()),
        attributes,
        trace: (span.trace_id != 0).then_some(place),
    }
}

#[cfg(test)]
mod tests {
    use lighty_http::trace_parent::TraceParent;
    use serde_json::Value;

    use super::*;

    fn record() -> SpanRecord {
        SpanRecord {
            span: TraceParent { trace_id: 0, span_id: 0, is_sampled: false },
            parent_span_id: 0,
            begin_us: 1_795_508_100_000_000,
            end_us: 1_795_508_100_250_000,
            method: Some("POST"),
            scheme: "https",
            host: "www.example.org".to_owned(),
            port: 443,
            path: "/a".to_owned(),
            has_query: true,
            version: "2.0",
            client: "::1".to_owned(),
            user_agent: "x/1".to_owned(),
            request_id: String::new(),
            status: 503,
            route: "shop".into(),
            handler: "mod_proxy_core",
            body_bytes_in: 7,
            body_bytes_out: 9,
            backend: None,
            fault: "",
            parts: Vec::new(),
            calls: Vec::new(),
        }
    }

    fn encoded(record: SpanRecord) -> Value {
        let request: Value = serde_json::from_slice(&request(&[record], "front")).expect("JSON");
        let logs = &request["resourceLogs"][0];
        assert_eq!(logs["resource"]["attributes"][0]["value"]["stringValue"], "front");
        assert_eq!(logs["scopeLogs"][0]["scope"]["name"], SCOPE);
        logs["scopeLogs"][0]["logRecords"][0].clone()
    }

    #[test]
    fn record_has_the_attributes_of_the_conventions() {
        let log = encoded(record());
        assert_eq!(log["timeUnixNano"], "1795508100250000000");
        assert_eq!((&log["severityNumber"], &log["severityText"]), (&17.into(), &"ERROR".into()));
        assert_eq!(log["body"]["stringValue"], "POST /a 503");
        let attribute = |name: &str| {
            let all = log["attributes"].as_array().expect("attributes");
            let found = all.iter().find(|one| one["key"] == name);
            found.unwrap_or_else(|| panic!("{name}: {log}"))["value"].clone()
        };
        for (name, value) in [
            ("http.request.method", "POST"),
            ("url.scheme", "https"),
            ("url.path", "/a"),
            ("http.route", "shop"),
            ("server.address", "www.example.org"),
            ("client.address", "::1"),
            ("network.protocol.name", "http"),
            ("network.protocol.version", "2"),
            ("user_agent.original", "x/1"),
            ("error.type", "503"),
        ] {
            assert_eq!(attribute(name)["stringValue"], value, "{name}");
        }
        for (name, value) in [
            ("http.response.status_code", "503"),
            ("http.response.body.size", "9"),
            ("http.request.body.size", "7"),
            ("server.port", "443"),
        ] {
            assert_eq!(attribute(name)["intValue"], value, "{name}");
        }
        assert_eq!(attribute("http.server.request.duration")["doubleValue"], 0.25);
        assert!(log.get("traceId").is_none(), "{log}");
    }

    #[test]
    fn record_of_a_traced_request_names_its_span() {
        let span = TraceParent { trace_id: 0xab, span_id: 0xcd, is_sampled: true };
        let log = encoded(SpanRecord { span, status: 404, ..record() });
        assert_eq!(log["traceId"], "000000000000000000000000000000ab");
        assert_eq!(log["spanId"], "00000000000000cd");
        assert_eq!((&log["flags"], &log["severityText"]), (&1.into(), &"INFO".into()));
    }
}
