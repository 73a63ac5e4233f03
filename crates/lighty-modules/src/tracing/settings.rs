//! Directives of the module.

use std::sync::Arc;

use lighty_config::{
    CompileCtx, Directive, Kind, NeedKind, Pairs, Reject, Scope, Value, parse_map, parse_string,
    parse_strings,
};
use lighty_core::settings::cidr::Cidr;
use lighty_core::{Settings, module_settings};
use lighty_http::Known;
use lighty_io::transport::Peer;

use super::{TRACEPARENT, TRACESTATE};

/// Maximum number of finished requests that wait for the collector.
const QUEUE_LENGTH: usize = 2048;

/// Seconds between two exports of metrics.
const METRICS_INTERVAL_SECONDS: u32 = 60;

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub(super) struct TracingSettings {
    pub(super) is_active: bool,
    /// The field that carries a request's id; empty: none.
    pub(super) request_id: Arc<str>,
    pub(super) sample: SampleRate,
    trusted: Arc<Trusted>,
    pub(super) collector: Arc<CollectorOptions>,
    telemetry: Arc<TelemetryUrls>,
    /// Requests are left out of the access log for a collector.
    is_unlogged: bool,
}
module_settings!(TracingSettings);

#[derive(Debug, Default)]
struct Trusted {
    everybody: bool,
    nets: Vec<Cidr>,
}

/// Sampling of the traces that begin here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SampleRate(f64);

impl Default for SampleRate {
    fn default() -> Self {
        Self(0.01)
    }
}

impl SampleRate {
    /// Decides by the trace's id, so that servers with the same ratio decide alike.
    pub(super) fn takes(self, trace_id: u128) -> bool {
        // The last seven bytes are random (W3C Trace Context level 2, section 3.2.2.3.1).
        const RANDOM: u64 = 1 << 56;
        (trace_id as u64 % RANDOM) < (self.0 * RANDOM as f64) as u64
    }
}

/// Collectors of metrics and of the error log.
#[derive(Clone, Debug)]
struct TelemetryUrls {
    /// Empty: metrics are not exported.
    metrics: Arc<str>,
    /// Empty: the error log is not exported.
    logs: Arc<str>,
    /// Empty: finished requests are not exported.
    access_logs: Arc<str>,
    /// Seconds between two exports of metrics.
    interval_s: u32,
}

impl Default for TelemetryUrls {
    fn default() -> Self {
        Self {
            metrics: "".into(),
            logs: "".into(),
            access_logs: "".into(),
            interval_s: METRICS_INTERVAL_SECONDS,
        }
    }
}

/// Options of an export of metrics or of the error log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TelemetryOptions {
    pub(super) url: Arc<str>,
    pub(super) fields: Pairs,
    pub(super) service: Arc<str>,
    pub(super) queue_length: usize,
    pub(super) interval_s: u32,
}

/// The collector, and the options of the exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CollectorOptions {
    /// The collector's URL; empty: traces are not exported.
    pub(super) url: Arc<str>,
    /// Fields of the requests to the collector.
    pub(super) fields: Pairs,
    pub(super) service: Arc<str>,
    pub(super) queue_length: usize,
}

impl Default for CollectorOptions {
    fn default() -> Self {
        Self {
            url: "".into(),
            fields: Pairs::default(),
            service: "lighty".into(),
            queue_length: QUEUE_LENGTH,
        }
    }
}

impl TracingSettings {
    /// The export of metrics, if there is one.
    pub(super) fn metrics_options(&self) -> Option<TelemetryOptions> {
        self.telemetry_options(&self.telemetry.metrics)
    }

    /// The export of the error log, if there is one.
    pub(super) fn logs_options(&self) -> Option<TelemetryOptions> {
        self.telemetry_options(&self.telemetry.logs)
    }

    /// True if finished requests are sent to a collector of logs.
    pub(super) fn logs_access(&self) -> bool {
        !self.is_unlogged && !self.telemetry.access_logs.is_empty()
    }

    /// The export of finished requests, if there is one.
    pub(super) fn access_log_options(&self) -> Option<TelemetryOptions> {
        self.telemetry_options(&self.telemetry.access_logs)
    }

    /// True if the export of finished requests has these options.
    pub(super) fn has_access_log(&self, options: &TelemetryOptions) -> bool {
        let TelemetryOptions { url, fields, service, queue_length, interval_s: _ } = options;
        let own = &*self.collector;
        (url, fields, service, queue_length)
            == (&self.telemetry.access_logs, &own.fields, &own.service, &own.queue_length)
    }

    fn telemetry_options(&self, url: &Arc<str>) -> Option<TelemetryOptions> {
        let CollectorOptions { fields, service, queue_length, .. } = &*self.collector;
        (!url.is_empty()).then(|| TelemetryOptions {
            url: Arc::clone(url),
            fields: Arc::clone(fields),
            service: Arc::clone(service),
            queue_length: *queue_length,
            interval_s: self.telemetry.interval_s,
        })
    }

    /// Returns true if the trace and the id from this peer are accepted.
    pub(super) fn trusts(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Inet(address) => {
                let ip = address.ip();
                self.trusted.everybody || self.trusted.nets.iter().any(|net| net.contains(ip))
            }
            Peer::Unix => self.trusted.everybody,
        }
    }
}

type TracingRow = Directive<Settings>;

fn own(s: &mut Settings) -> &mut TracingSettings {
    s.module_mut()
}

fn collector(s: &mut Settings) -> &mut CollectorOptions {
    Arc::make_mut(&mut own(s).collector)
}

pub(super) fn rows() -> Vec<TracingRow> {
    let mut rows = contexts();
    rows.extend(export());
    rows.extend(telemetry_rows());
    rows.into_iter().map(|row| row.module("mod_tracing").since("lighty 0.1")).collect()
}

fn contexts() -> Vec<TracingRow> {
    vec![
        TracingRow::bool("tracing.activate", |s, on| own(s).is_active = on)
            .default("disable")
            .doc(
                "Enables tracing (W3C Trace Context): backends, programs and scripts get \
                 `traceparent`, logs `%{trace-id}x` and `%{span-id}x`. For peers outside \
                 `tracing.trusted-peers` a new trace begins, without their `tracestate`. See the \
                 [manual](../tracing.md).",
            )
            .example("tracing.activate = \"enable\""),
        TracingRow::parsed("tracing.request-id", Kind::String, parse_field_name, |s, name| {
            own(s).request_id = Arc::clone(name);
        })
        .default("")
        .doc(
            "Field in which a request's id goes to backends and to the client, and from which \
             that of a trusted peer is taken, if it has at most 128 visible characters. An id of \
             our own is a UUID of version 7 that ends with the short id of error pages and of \
             the error log. Fields that have another meaning, such as `Content-Length`, are \
             refused. Empty: none.",
        )
        .example("tracing.request-id = \"X-Request-Id\""),
        TracingRow::parsed("tracing.trusted-peers", Kind::List, parse_trusted, |s, trusted| {
            own(s).trusted = Arc::clone(trusted);
        })
        .default("()")
        .doc(
            "Neighbours, as addresses and networks, that are believed: their `traceparent`, \
             `tracestate`, decision to sample, and request id go on. `all` is every neighbour, \
             unix sockets included.",
        )
        .example("tracing.trusted-peers = ( \"127.0.0.1\", \"10.0.0.0/8\" )"),
        TracingRow::parsed("tracing.sample-ratio", Kind::String, parse_ratio, |s, ratio| {
            own(s).sample = *ratio;
        })
        .default("0.01")
        .doc(
            "Share of the traces that begin here that is recorded, from `0` to `1`. A trusted \
             peer has decided already.",
        )
        .example("tracing.sample-ratio = \"0.25\""),
    ]
}

fn export() -> Vec<TracingRow> {
    vec![
        TracingRow::parsed("tracing.collector", Kind::String, parse_url, |s, url| {
            collector(s).url = Arc::clone(url);
        })
        .needs(NeedKind::Url)
        .scope(Scope::Server)
        .default("")
        .doc(
            "URL to which recorded requests are sent, as OTLP over HTTP in JSON; without a path it \
             is `/v1/traces`. A thread of its own sends them, so a slow or missing collector \
             delays no request; records that the collector does not accept are dropped and \
             counted. Empty: nowhere.",
        )
        .example("tracing.collector = \"http://127.0.0.1:4318/v1/traces\""),
        TracingRow::parsed("tracing.collector-headers", Kind::Map, parse_fields, |s, fields| {
            collector(s).fields = Pairs::clone(fields);
        })
        .scope(Scope::Server)
        .default("()")
        .doc("Fields of the requests to the collector, such as a key.")
        .example("tracing.collector-headers = ( \"Authorization\" => \"Bearer abc\" )"),
        TracingRow::string("tracing.service-name", |s, name| collector(s).service = name)
            .scope(Scope::Server)
            .default("lighty")
            .doc("Name of this server in traces.")
            .example("tracing.service-name = \"front\""),
        TracingRow::int("tracing.queue-length", 1..=1_000_000, |s, length| {
            collector(s).queue_length = usize::try_from(length).unwrap_or(QUEUE_LENGTH);
        })
        .scope(Scope::Server)
        .default("2048")
        .doc("Recorded requests that may wait for the collector; further ones are dropped.")
        .example("tracing.queue-length = 10000"),
    ]
}

fn telemetry(s: &mut Settings) -> &mut TelemetryUrls {
    Arc::make_mut(&mut own(s).telemetry)
}

fn telemetry_rows() -> Vec<TracingRow> {
    let metrics_url = |value: &Value, _: &CompileCtx| collector_url(value, "/v1/metrics");
    let logs_url = |value: &Value, _: &CompileCtx| collector_url(value, "/v1/logs");
    vec![
        TracingRow::parsed("tracing.metrics-collector", Kind::String, metrics_url, |s, url| {
            telemetry(s).metrics = Arc::clone(url);
        })
        .needs(NeedKind::Url)
        .scope(Scope::Server)
        .default("")
        .doc(
            "URL to which all [metrics](../metrics.md) are sent, as OTLP over HTTP in JSON; without \
             a path it is `/v1/metrics`. `tracing.collector-headers` and `tracing.service-name` \
             hold for it. Empty: nowhere.",
        )
        .example("tracing.metrics-collector = \"http://127.0.0.1:4318\""),
        TracingRow::int("tracing.metrics-interval", 1..=3600, |s, seconds| {
            telemetry(s).interval_s = u32::try_from(seconds).unwrap_or(METRICS_INTERVAL_SECONDS);
        })
        .scope(Scope::Server)
        .default("60")
        .doc("Seconds between two exports of metrics to `tracing.metrics-collector`.")
        .example("tracing.metrics-interval = 15"),
        TracingRow::parsed("tracing.logs-collector", Kind::String, logs_url, |s, url| {
            telemetry(s).logs = Arc::clone(url);
        })
        .needs(NeedKind::Url)
        .scope(Scope::Server)
        .default("")
        .doc(
            "URL to which the lines of the error log are sent besides, as OTLP over HTTP in JSON; \
             without a path it is `/v1/logs`. Error output of programs is not sent. \
             `tracing.collector-headers` and `tracing.service-name` hold for it; lines that more \
             than `tracing.queue-length` others wait before are dropped and counted. Empty: \
             nowhere.",
        )
        .example("tracing.logs-collector = \"http://127.0.0.1:4318\""),
        TracingRow::parsed("tracing.access-logs-collector", Kind::String, logs_url, |s, url| {
            telemetry(s).access_logs = Arc::clone(url);
        })
        .needs(NeedKind::Addresses)
        .scope(Scope::Server)
        .default("")
        .doc(
            "URL to which a log record of each finished request is sent, as OTLP over HTTP in JSON; \
             without a path it is `/v1/logs`. Attributes are those of the semantic conventions for \
             HTTP. Independent of `accesslog.filename`. `tracing.collector-headers` and \
             `tracing.service-name` hold for it; records that more than `tracing.queue-length` \
             others wait before are dropped and counted. Empty: nowhere.",
        )
        .example("tracing.access-logs-collector = \"http://127.0.0.1:4318\""),
        TracingRow::bool("tracing.access-logs", |s, on| own(s).is_unlogged = !on)
            .default("enable")
            .doc("Sends log records of requests to `tracing.access-logs-collector`.")
            .example("tracing.access-logs = \"disable\""),
    ]
}

fn parse_field_name(value: &Value, _: &CompileCtx) -> Result<Arc<str>, Reject> {
    field_name(parse_string(value)?)
}

fn field_name(name: Arc<str>) -> Result<Arc<str>, Reject> {
    let wrong = |message: String| Err(Reject::new(message).help("write `\"X-Request-Id\"`"));
    if !name.bytes().all(is_token) {
        return wrong("is no name of a field".to_owned());
    }
    let is_ours = || OUR_FIELDS.iter().any(|ours| name.as_bytes().eq_ignore_ascii_case(ours));
    if Known::from_bytes(name.as_bytes()).is_some() || is_ours() {
        return wrong(format!(
            "\"{name}\" is a field with another meaning, which an id would break"
        ));
    }
    Ok(name)
}

/// Fields set by the server that are not in [`Known`].
const OUR_FIELDS: [&[u8]; 3] = [TRACEPARENT, TRACESTATE, b"Server-Timing"];

/// Returns true for a token character (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn parse_trusted(value: &Value, _: &CompileCtx) -> Result<Arc<Trusted>, Reject> {
    let mut trusted = Trusted::default();
    for text in &*parse_strings(value)? {
        if &**text == "all" {
            trusted.everybody = true;
            continue;
        }
        let net = Cidr::parse(text).ok_or_else(|| {
            Reject::new(format!("\"{text}\" is neither an address nor a network nor `all`"))
        })?;
        trusted.nets.push(net);
    }
    Ok(Arc::new(trusted))
}

fn parse_ratio(value: &Value, _: &CompileCtx) -> Result<SampleRate, Reject> {
    let text = parse_string(value)?;
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    let wrong = || Reject::new("is no share of requests").help("from `\"0\"` to `\"1\"`");
    ratio.map(SampleRate).ok_or_else(wrong)
}

fn parse_url(value: &Value, _: &CompileCtx) -> Result<Arc<str>, Reject> {
    collector_url(value, "/v1/traces")
}

/// Parses a collector's URL, and adds `path` if it has none.
fn collector_url(value: &Value, path: &str) -> Result<Arc<str>, Reject> {
    let text = parse_string(value)?;
    if text.is_empty() {
        return Ok(text);
    }
    match lighty_fetch::parse_url(&text) {
        Some(url) if matches!(url.path(), "" | "/") && url.query().is_none() => {
            Ok(format!("{}{path}", text.trim_end_matches('/')).into())
        }
        Some(_) => Ok(text),
        None => Err(Reject::new("is no URL of a collector")
            .help(format!("write `\"http://127.0.0.1:4318{path}\"`"))),
    }
}

fn parse_fields(value: &Value, _: &CompileCtx) -> Result<Pairs, Reject> {
    let fields = parse_map(value)?;
    match fields.iter().find(|(name, text)| !lighty_fetch::is_field(name, text)) {
        Some((name, _)) => Err(Reject::new(format!("\"{name}\" is no field with a value"))),
        None => Ok(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_a_field_of_its_own() {
        for name in ["", "X-Request-Id", "x-correlation-id", "Request-Id", "X-Amzn-Trace-Id"] {
            assert!(field_name(name.into()).is_ok(), "{name}");
        }
        for name in [
            "a b",
            "Content-Length",
            "transfer-encoding",
            "Connection",
            "Host",
            "Date",
            "Set-Cookie",
            "Authorization",
            "Location",
            "Traceparent",
            "tracestate",
            "server-timing",
        ] {
            let reject = field_name(name.into()).expect_err(name);
            assert!(format!("{reject:?}").contains("X-Request-Id"), "{name}: {reject:?}");
        }
    }

    #[test]
    fn a_ratio_takes_that_share_of_traces() {
        const RANDOM: u128 = (1 << 56) - 1;
        let half = SampleRate(0.5);
        assert!(half.takes(RANDOM / 2), "the largest in the lower half");
        assert!(!half.takes(RANDOM / 2 + 1));
        assert!(half.takes(u128::MAX << 56), "only the random bytes count");
        assert!(!SampleRate(0.0).takes(0));
        assert!(SampleRate(1.0).takes(RANDOM));
    }
}
