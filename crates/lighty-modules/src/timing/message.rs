//! Timings as text.

use std::fmt::Write as _;

use lighty_core::Exchange;
use lighty_core::exchange::response::Maker;
use lighty_core::exchange::span::Span;
use lighty_core::exchange::stage::Stages;
use lighty_core::exchange::upstream_trace::{EarlierTries, UpstreamTrace};

/// Maximum number of spans listed for a slow request.
const STRETCHES_MAX: usize = 4;

/// Text for [`Span::Body`] if this server makes the body, for example by compressing a file.
const MAKING: &str = "making more of the body";

/// Microseconds, shown as milliseconds with three decimals.
struct Millis(u64);

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// Microseconds, shown in a readable unit.
struct Spoken(u64);

impl std::fmt::Display for Spoken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ..1_000 => write!(f, "{} us", self.0),
            1_000..1_000_000 => write!(f, "{} ms", (self.0 + 500) / 1_000),
            _ => write!(f, "{:.2} s", self.0 as f64 / 1e6),
        }
    }
}

/// The value of `Server-Timing` (W3C Server Timing section 3).
pub(super) fn server_timing(stages: &Stages) -> String {
    let mut text = String::new();
    for (span, _, took_us) in stages.spans().filter(|(span, ..)| span.is_within_request()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{};dur={}, ", span.name(), Millis(took_us.into()));
    }
    let _ = write!(text, "total;dur={}", Millis(stages.total_us()));
    text
}

/// A line of `debug.log-timing`. The fields up to `write-time` match 1.5, columns included.
pub(super) fn line(stages: &Stages, write_start_us: u64) -> String {
    let of = |span| u64::from(stages.span_us(span).unwrap_or(0));
    let mut text = format!(
        "timing write-start: {}.{:06} read-queue-wait: {} ms read-time: {} ms write-time: {} ms \
         total: {} ms",
        write_start_us / 1_000_000,
        write_start_us % 1_000_000,
        Millis(of(Span::FileQueued)),
        Millis(of(Span::FileRead)),
        Millis(of(Span::SendQueued) + of(Span::Write)),
        Millis(stages.total_us()),
    );
    for (span, _, took_us) in stages.spans() {
        // Writing to a string cannot fail.
        let _ = write!(text, " {}: {} ms", span.name(), Millis(took_us.into()));
    }
    text
}

/// Describes a slow request's time, the longest span first.
pub(super) fn slow(ex: &Exchange) -> String {
    let trace = ex.ext::<UpstreamTrace>();
    let mut stretches = stretches(&ex.stages, trace, ex.response.maker);
    stretches.sort_by_key(|(took_us, _)| std::cmp::Reverse(*took_us));
    let (total_us, status) = (ex.stages.total_us(), ex.response.status.code());
    let mut text = format!("slow request ({status}): {}", Spoken(total_us));
    let mut separator = ": ";
    for (took_us, description) in stretches.into_iter().take(STRETCHES_MAX) {
        // Spans below one percent explain nothing.
        if took_us * 100 < total_us {
            break;
        }
        let _ = write!(text, "{separator}{} {description}", Spoken(took_us));
        separator = ", ";
    }
    if let Some(tries) = trace.map(|trace| trace.tries).filter(|tries| *tries > 1) {
        let _ = write!(text, " ({tries} tries)");
    }
    text
}

/// Returns the spans of a request's time, each with a description. Earlier tries are listed by
/// backend.
fn stretches(stages: &Stages, trace: Option<&UpstreamTrace>, maker: Maker) -> Vec<(u64, String)> {
    let backend = match trace.map(|trace| trace.address.as_deref()) {
        Some(_) if maker == Maker::Program => "the program".to_owned(),
        Some(Some(address)) => format!("backend {address}"),
        Some(None) => "the backend".to_owned(),
        None => "the program".to_owned(),
    };
    let description = |span: Span| match span {
        Span::Body if maker == Maker::Server => MAKING.to_owned(),
        _ => span.description().replace("{}", &backend),
    };
    let within = stages.spans().filter(|(span, ..)| span.is_within_request());
    let own = within.map(|(span, _, took_us)| {
        let earlier_us = trace.map_or(0, |trace| trace.earlier_us(span));
        (took_us.saturating_sub(earlier_us).into(), description(span))
    });
    let earlier = trace.into_iter().flat_map(|trace| &trace.earlier);
    own.chain(earlier.map(|tries| (tries.took_us(), describe_earlier(tries)))).collect()
}

fn describe_earlier(tries: &EarlierTries) -> String {
    let backend = match &tries.address {
        Some(address) => format!("backend {address}"),
        None => "a program".to_owned(),
    };
    match tries.failed {
        0 => format!("at {backend}, which sent the request on"),
        1 => format!("in a failed try at {backend}"),
        several => format!("in {several} failed tries at {backend}"),
    }
}

#[cfg(test)]
mod tests {
    use lighty_core::exchange::stage::Stage;

    use super::*;

    fn stages() -> Stages {
        let mut stages = Stages::default();
        stages.begin_first(1_000, 3_000, None);
        stages.enter(Stage::Head, 3_010);
        stages.enter(Stage::LookUp, 3_010);
        stages.enter(Stage::Open, 5_020);
        stages.enter(Stage::FirstByteOut, 5_020);
        stages.divert(Span::FileRead, 1_234, 7_000);
        stages.enter(Stage::LastByteOut, 7_020);
        stages
    }

    #[test]
    fn a_line_has_the_columns_of_lighttpd() {
        let line = line(&stages(), 1_764_000_000_000_042);
        let columns: Vec<&str> = line.split(' ').collect();
        // The time, the level and the client come before these columns.
        let column = |nth: usize| columns[nth - 4];
        assert_eq!([4, 5, 6].map(column), ["timing", "write-start:", "1764000000.000042"]);
        assert_eq!([7, 8, 9].map(column), ["read-queue-wait:", "0.000", "ms"]);
        assert_eq!([10, 11, 12].map(column), ["read-time:", "1.234", "ms"]);
        assert_eq!([13, 14, 15].map(column), ["write-time:", "0.766", "ms"]);
        let all = " total: 4.020 ms accept: 2.000 ms head: 0.010 ms stat: 2.010 ms \
                   file-read: 1.234 ms write: 0.766 ms";
        assert!(line.ends_with(all), "{line}");
    }

    #[test]
    fn a_field_has_what_belongs_to_the_request() {
        let wanted = "head;dur=0.010, stat;dur=2.010, file-read;dur=1.234, write;dur=0.766, \
                      total;dur=4.020";
        assert_eq!(server_timing(&stages()), wanted);
    }

    #[test]
    fn the_time_of_a_failed_try_is_its_backends() {
        let (mut stages, mut trace) = (Stages::default(), UpstreamTrace::default());
        stages.begin(0);
        stages.enter(Stage::RequestSent, 0);
        stages.enter(Stage::BackendQueue, 400_000);
        trace.leave(Some("a:1".into()), true, &stages);
        trace.address = Some("b:1".into());
        stages.enter(Stage::RequestSent, 400_000);
        stages.enter(Stage::HeadBack, 403_000);
        let mut reported = stretches(&stages, Some(&trace), Maker::Server);
        reported.retain(|(took_us, _)| *took_us > 0);
        let first_byte = (3_000, "waiting for the first byte of backend b:1".to_owned());
        let failed = (400_000, "in a failed try at backend a:1".to_owned());
        assert_eq!(reported, [first_byte, failed]);
        trace.leave(Some("a:1".into()), true, &stages);
        assert_eq!(describe_earlier(&trace.earlier[0]), "in 2 failed tries at backend a:1");
    }

    #[test]
    fn a_body_is_its_makers() {
        let mut stages = Stages::default();
        stages.begin(0);
        stages.begin_span(Span::Body, 0);
        stages.begin_span(Span::Write, 9);
        let backend = UpstreamTrace { address: Some("b:1".into()), ..UpstreamTrace::default() };
        for (trace, maker, description) in [
            (None, Maker::Server, MAKING),
            // The backend only authorized the request.
            (Some(&backend), Maker::Server, MAKING),
            (Some(&backend), Maker::Backend, "waiting for more of the body of backend b:1"),
            (None, Maker::Program, "waiting for more of the body of the program"),
            (Some(&backend), Maker::Program, "waiting for more of the body of the program"),
        ] {
            assert_eq!(
                stretches(&stages, trace, maker),
                [(9, description.to_owned())],
                "{maker:?}"
            );
        }
    }

    #[test]
    fn times_are_spoken() {
        for (us, description) in
            [(0, "0 us"), (999, "999 us"), (1_499, "1 ms"), (999_999, "1000 ms")]
        {
            assert_eq!(Spoken(us).to_string(), description);
        }
        assert_eq!(Spoken(2_314_000).to_string(), "2.31 s");
    }
}
