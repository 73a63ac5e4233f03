//! Metrics in OTLP's JSON encoding (OpenTelemetry Protocol 1.x, section "JSON Protobuf Encoding").
//!
//! Names leave out the unit, which is a field of its own, so that a collector that translates them
//! for Prometheus arrives at the names of the text formats. The metric that OpenTelemetry's
//! conventions for HTTP define has their names.

use lighty_core::json;
use lighty_core::machine::histogram::Histogram;
use serde_json::{Value, json};

use super::family::{Family, Labels, MetricKind, Sample, Value as SampleValue};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE` in `metrics.proto`.
const CUMULATIVE: u8 = 2;

/// Suffixes of names, and the units that they mean in UCUM.
const UNITS: &[(&str, &str)] = &[("_seconds", "s"), ("_bytes", "By")];

/// Names of OpenTelemetry's conventions for HTTP, by the names of the text formats.
const CONVENTIONS: &[(&str, &str)] = &[
    ("http_server_request_duration", "http.server.request.duration"),
    ("http_request_method", "http.request.method"),
    ("url_scheme", "url.scheme"),
    ("http_response_status_code", STATUS_CODE),
    ("network_protocol_version", "network.protocol.version"),
    ("http_route", "http.route"),
];

const STATUS_CODE: &str = "http.response.status_code";

/// Moments of an export, in microseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    /// The start of the process, from which counters count.
    pub(super) started_us: u64,
    pub(super) now_us: u64,
}

/// Renders an `ExportMetricsServiceRequest`.
pub(super) fn write(families: &[Family], service: &str, moments: Moments) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let metrics: Vec<_> = families.iter().map(|family| metric(family, moments)).collect();
    let resource = [text("service.name", service), text("service.version", version)];
    let request = json!({
        "resourceMetrics": [{
            "resource": { "attributes": resource },
            "scopeMetrics": [{
                "scope": { "name": "lighty", "version": version },
                "metrics": metrics,
            }],
        }],
    });
    let mut out = Vec::new();
    json::push(&request, &mut out);
    out
}

fn metric(family: &Family, moments: Moments) -> Value {
    let unit = UNITS
        .iter()
        .find_map(|(suffix, unit)| family.name.strip_suffix(suffix).map(|name| (name, *unit)));
    let (name, unit) = unit.unwrap_or((family.name, "1"));
    let mut metric = json!({ "name": convention(name), "description": family.help, "unit": unit });
    let points: Vec<_> =
        family.samples.iter().filter_map(|sample| point(family.kind, sample, moments)).collect();
    let (kind, data) = match family.kind {
        MetricKind::Gauge => ("gauge", json!({ "dataPoints": points })),
        MetricKind::Counter => (
            "sum",
            json!({
                "dataPoints": points,
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": true,
            }),
        ),
        MetricKind::Histogram(_) => {
            ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }))
        }
    };
    metric[kind] = data;
    metric
}

fn point(kind: MetricKind, sample: &Sample, moments: Moments) -> Option<Value> {
    let mut point = json!({
        "attributes": attributes(&sample.labels),
        "timeUnixNano": nanoseconds(moments.now_us),
    });
    if kind != MetricKind::Gauge {
        point["startTimeUnixNano"] = nanoseconds(moments.started_us);
    }
    match (&sample.value, kind) {
        (SampleValue::Number(value), _) => point["asDouble"] = json!(value),
        (SampleValue::Durations(durations, _), MetricKind::Histogram(bounds_us)) => {
            add_durations(durations, bounds_us, &mut point);
        }
        (SampleValue::Durations(..), _) => return None,
    }
    Some(point)
}

fn add_durations(durations: &Histogram, bounds_us: &[u64], point: &mut Value) {
    let mut before = 0;
    let cumulative = durations.fixed().into_iter().chain([durations.count()]);
    let counts: Vec<_> =
        cumulative.map(|sum| (sum - std::mem::replace(&mut before, sum)).to_string()).collect();
    let bounds: Vec<_> = bounds_us.iter().map(|us| *us as f64 / 1e6).collect();
    point["count"] = json!(durations.count().to_string());
    point["sum"] = json!(durations.sum_us() as f64 / 1e6);
    point["bucketCounts"] = json!(counts);
    point["explicitBounds"] = json!(bounds);
}

fn attributes(labels: &Labels) -> Vec<Value> {
    let attribute = |(name, value): &(&'static str, std::rc::Rc<str>)| {
        let name = convention(name);
        match value.parse::<u16>() {
            Ok(code) if name == STATUS_CODE => {
                json!({ "key": name, "value": { "intValue": code.to_string() } })
            }
            _ => text(name, value),
        }
    };
    labels.iter().map(attribute).collect()
}

fn convention(name: &str) -> &str {
    CONVENTIONS.iter().find(|(known, _)| *known == name).map_or(name, |(_, ours)| *ours)
}

fn text(name: &str, value: &str) -> Value {
    json!({ "key": name, "value": { "stringValue": value } })
}

fn nanoseconds(us: u64) -> Value {
    json!(format!("{us}000"))
}

#[cfg(test)]
mod tests {
    use lighty_core::machine::histogram::REQUEST_BOUNDS_US;

    use super::*;

    fn written(family: Family) -> Value {
        let moments = Moments { started_us: 1, now_us: 2 };
        let request = write(&[family], "front", moments);
        let request: Value = serde_json::from_slice(&request).expect("JSON");
        let resource = &request["resourceMetrics"][0];
        assert_eq!(resource["resource"]["attributes"][0], text("service.name", "front"));
        resource["scopeMetrics"][0]["metrics"][0].clone()
    }

    #[test]
    fn counter_is_a_monotonic_sum() {
        let mut family = Family::new("a_cpu_seconds", MetricKind::Counter, "Help.");
        family.add(vec![("worker", "0".into())], 1.5);
        let expected = json!({
            "name": "a_cpu",
            "description": "Help.",
            "unit": "s",
            "sum": {
                "dataPoints": [{
                    "attributes": [text("worker", "0")],
                    "startTimeUnixNano": "1000",
                    "timeUnixNano": "2000",
                    "asDouble": 1.5,
                }],
                "aggregationTemporality": 2,
                "isMonotonic": true,
            },
        });
        assert_eq!(written(family), expected);
    }

    #[test]
    fn gauge_has_no_start() {
        let gauge = written(Family::single("a_bytes", MetricKind::Gauge, "Help.", 7.0));
        assert_eq!(gauge["unit"], "By");
        let point = &gauge["gauge"]["dataPoints"][0];
        assert_eq!((&point["asDouble"], &point["startTimeUnixNano"]), (&json!(7.0), &Value::Null));
    }

    #[test]
    fn durations_of_requests_have_the_names_of_the_conventions() {
        let kind = MetricKind::Histogram(&REQUEST_BOUNDS_US);
        let mut family = Family::new("http_server_request_duration_seconds", kind, "Help.");
        let mut durations = Histogram::default();
        for took_us in [1, 2, 6_000, 20_000_000] {
            durations.record(took_us, &REQUEST_BOUNDS_US);
        }
        let labels = vec![
            ("http_request_method", "GET".into()),
            ("http_response_status_code", "200".into()),
        ];
        family.add_durations(labels, durations);
        let metric = written(family);
        assert_eq!(
            (&metric["name"], &metric["unit"]),
            (&json!("http.server.request.duration"), &json!("s"))
        );
        let point = &metric["histogram"]["dataPoints"][0];
        assert_eq!((&point["count"], &point["sum"]), (&json!("4"), &json!(20.006003)));
        let counts = point["bucketCounts"].as_array().expect("counts");
        assert_eq!(counts.len(), REQUEST_BOUNDS_US.len() + 1);
        assert_eq!((&counts[0], &counts[1], &counts[14]), (&json!("2"), &json!("1"), &json!("1")));
        assert_eq!(point["explicitBounds"][0], json!(0.005));
        let code = json!({ "key": STATUS_CODE, "value": { "intValue": "200" } });
        assert_eq!(point["attributes"], json!([text("http.request.method", "GET"), code]));
    }
}
