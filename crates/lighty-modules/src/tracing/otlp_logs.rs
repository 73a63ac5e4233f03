//! Lines of the error log in OTLP's JSON encoding (OpenTelemetry Protocol 1.x, section "JSON
//! Protobuf Encoding").

use lighty_core::Level;
use lighty_core::json;
use lighty_core::log::tap::LogRecord;
use serde_json::{Value, json};

/// Renders an `ExportLogsServiceRequest`.
pub(super) fn request(records: &[LogRecord], service: &str) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let records: Vec<_> = records.iter().map(record).collect();
    let resource = [attribute("service.name", service), attribute("service.version", version)];
    let request = json!({
        "resourceLogs": [{
            "resource": { "attributes": resource },
            "scopeLogs": [{
                "scope": { "name": "lighty", "version": version },
                "logRecords": records,
            }],
        }],
    });
    let mut out = Vec::new();
    json::push(&request, &mut out);
    out
}

fn record(record: &LogRecord) -> Value {
    let (number, text) = severity(record.level);
    let (file, line) = record.place;
    let mut attributes = vec![
        attribute("code.file.path", file),
        json!({ "key": "code.line.number", "value": { "intValue": line.to_string() } }),
    ];
    for (name, value) in [
        ("lighty.module", record.module),
        ("client.address", record.client.as_str()),
        ("http.request.method", record.method.as_str()),
        ("url.path", record.url_path.as_str()),
        ("file.path", record.file_path.as_str()),
        ("lighty.request_id", record.request_id.as_str()),
    ] {
        if !value.is_empty() {
            attributes.push(attribute(name, value));
        }
    }
    let time = format!("{}000000000", record.unix_s);
    json!({
        "timeUnixNano": time,
        "observedTimeUnixNano": time,
        "severityNumber": number,
        "severityText": text,
        "body": { "stringValue": record.message },
        "attributes": attributes,
    })
}

fn attribute(name: &str, value: &str) -> Value {
    json!({ "key": name, "value": { "stringValue": value } })
}

/// `SeverityNumber` in `logs.proto`, and its name. A notice is INFO2.
fn severity(level: Level) -> (u8, &'static str) {
    match level {
        Level::Debug => (5, "DEBUG"),
        Level::Info => (9, "INFO"),
        Level::Notice => (10, "INFO2"),
        Level::Warning => (13, "WARN"),
        Level::Error => (17, "ERROR"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_its_context() {
        let record = LogRecord {
            unix_s: 1_795_508_100,
            level: Level::Warning,
            module: "proxy",
            place: ("a.rs", 7),
            message: "no \"room\"".to_owned(),
            client: "::1".to_owned(),
            method: String::new(),
            url_path: "/a".to_owned(),
            file_path: String::new(),
            request_id: String::new(),
        };
        let request: Value = serde_json::from_slice(&request(&[record], "front")).expect("JSON");
        let logs = &request["resourceLogs"][0];
        assert_eq!(logs["resource"]["attributes"][0], attribute("service.name", "front"));
        let expected = json!({
            "timeUnixNano": "1795508100000000000",
            "observedTimeUnixNano": "1795508100000000000",
            "severityNumber": 13,
            "severityText": "WARN",
            "body": { "stringValue": "no \"room\"" },
            "attributes": [
                attribute("code.file.path", "a.rs"),
                { "key": "code.line.number", "value": { "intValue": "7" } },
                attribute("lighty.module", "proxy"),
                attribute("client.address", "::1"),
                attribute("url.path", "/a"),
            ],
        });
        assert_eq!(logs["scopeLogs"][0]["logRecords"][0], expected);
    }
}
