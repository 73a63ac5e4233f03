//! Metrics in the exposition formats of Prometheus.
//!
//! `family` defines the terms, `families` collects the server's metrics, `text` and `protobuf`
//! write them. `otlp` writes the same metrics for collectors of OpenTelemetry.

mod families;
mod family;
mod otlp;
mod protobuf;
mod text;

use lighty_http::accept::media_quality;

use super::facts::Facts;

/// An exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' protocol buffers, the only format with native histograms.
    Protobuf,
}

impl Format {
    /// Returns the format that the client prefers.
    pub(super) fn preferred(accept: Option<&[u8]>) -> Self {
        let Some(accept) = accept else { return Self::Text };
        let quality = |media_type| media_quality(Some(accept), media_type);
        // Wildcards do not count: a client that accepts any type gets text.
        let names = |name: &[u8]| accept.windows(name.len()).any(|part| part == name);
        let wanted = [
            (Self::Protobuf, quality("application/vnd.google.protobuf"), names(b"protobuf")),
            (Self::OpenMetrics, quality("application/openmetrics-text"), names(b"openmetrics")),
            (Self::Text, quality("text/plain"), true),
        ];
        let named = wanted.into_iter().filter(|(_, quality, is_named)| *is_named && *quality > 0);
        // The first of several with equal quality.
        named.rev().max_by_key(|(_, quality, _)| *quality).map_or(Self::Text, |(format, ..)| format)
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }
}

/// Writes all metrics. Too slow for an event loop if there are many series.
pub(super) fn write(facts: &Facts, format: Format) -> Vec<u8> {
    let families = families::all(facts);
    match format {
        Format::Text => text::write(&families, text::Dialect::Prometheus),
        Format::OpenMetrics => text::write(&families, text::Dialect::OpenMetrics),
        Format::Protobuf => protobuf::write(&families),
    }
}

/// Writes all metrics as an OTLP request. `now_us` is the time in microseconds since 1970.
pub(super) fn write_otlp(facts: &Facts, service: &str, now_us: u64) -> Vec<u8> {
    let started_us = facts.input.started_s.unsigned_abs() * 1_000_000;
    let moments = otlp::Moments { started_us, now_us };
    otlp::write(&families::all(facts), service, moments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_gets_the_format_that_it_prefers() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
                          application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                      encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            (native, Format::Protobuf),
            ("*/*", Format::Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
            ("text/plain", Format::Text),
            ("image/png", Format::Text),
        ] {
            assert_eq!(Format::preferred(Some(accept.as_bytes())), format, "{accept}");
        }
        assert_eq!(Format::preferred(None), Format::Text);
    }
}
