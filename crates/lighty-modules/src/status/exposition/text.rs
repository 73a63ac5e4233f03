//! The text formats: Prometheus' 0.0.4, and OpenMetrics 1.0.

use std::fmt::Write;

use lighty_core::machine::histogram::Histogram;
use lighty_core::machine::metrics::exemplars::Exemplars;

use super::family::{Family, Labels, MetricKind, Value};

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Prometheus,
    OpenMetrics,
}

pub(super) fn write(families: &[Family], dialect: Dialect) -> Vec<u8> {
    let mut out = String::new();
    for family in families {
        // Writing to a string cannot fail.
        let _ = push_family(family, dialect, &mut out);
    }
    if dialect == Dialect::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out.into_bytes()
}

fn push_family(family: &Family, dialect: Dialect, out: &mut String) -> std::fmt::Result {
    let suffix = if family.kind == MetricKind::Counter { "_total" } else { "" };
    let described = if dialect == Dialect::Prometheus { suffix } else { "" };
    let (name, help) = (family.name, family.help);
    let kind = match family.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram(_) => "histogram",
    };
    writeln!(out, "# HELP {name}{described} {help}")?;
    writeln!(out, "# TYPE {name}{described} {kind}")?;
    for sample in &family.samples {
        match (&sample.value, family.kind) {
            (Value::Durations(durations, exemplars), MetricKind::Histogram(bounds_us)) => {
                // The older format has no exemplars.
                let exemplars = exemplars.as_deref().filter(|_| dialect == Dialect::OpenMetrics);
                push_durations(name, &sample.labels, (durations, exemplars), bounds_us, out)?;
            }
            (Value::Number(value), _) => {
                write!(out, "{name}{suffix}")?;
                push_labels(&sample.labels, None, out)?;
                writeln!(out, " {value}")?;
            }
            (Value::Durations(..), _) => {}
        }
    }
    Ok(())
}

fn push_durations(
    name: &str,
    labels: &Labels,
    (durations, exemplars): (&Histogram, Option<&Exemplars>),
    bounds_us: &[u64],
    out: &mut String,
) -> std::fmt::Result {
    let bounds = bounds_us.iter().map(|us| bound(*us)).chain(["+Inf".to_owned()]);
    let counts = durations.fixed().into_iter().chain([durations.count()]);
    for (at, (bound, count)) in bounds.zip(counts).enumerate() {
        write!(out, "{name}_bucket")?;
        push_labels(labels, Some(&bound), out)?;
        write!(out, " {count}")?;
        if let Some(one) = exemplars.and_then(|all| all.of(at)) {
            let seconds = |us: u64| us as f64 / 1e6;
            let (took_s, unix_s) = (seconds(one.took_us), seconds(one.unix_us));
            write!(out, " # {{trace_id=\"{:032x}\"}} {took_s} {unix_s:.3}", one.trace_id)?;
        }
        out.push('\n');
    }
    write!(out, "{name}_sum")?;
    push_labels(labels, None, out)?;
    writeln!(out, " {}", durations.sum_us() as f64 / 1e6)?;
    write!(out, "{name}_count")?;
    push_labels(labels, None, out)?;
    writeln!(out, " {}", durations.count())
}

/// Formats a bound in seconds. OpenMetrics requires a decimal fraction; the older format accepts
/// it.
fn bound(us: u64) -> String {
    let text = (us as f64 / 1e6).to_string();
    if text.contains('.') { text } else { text + ".0" }
}

fn push_labels(labels: &Labels, le: Option<&str>, out: &mut String) -> std::fmt::Result {
    if labels.is_empty() && le.is_none() {
        return Ok(());
    }
    let mut separator = '{';
    for (name, value) in labels {
        write!(out, "{separator}{name}=\"")?;
        push_escaped(value, out);
        out.push('"');
        separator = ',';
    }
    if let Some(le) = le {
        write!(out, "{separator}le=\"{le}\"")?;
    }
    out.push('}');
    Ok(())
}

fn push_escaped(text: &str, out: &mut String) {
    for one in text.chars() {
        match one {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_core::machine::histogram::REQUEST_BOUNDS_US;
    use lighty_core::machine::metrics::exemplars::Exemplar;

    use super::*;

    fn families() -> Vec<Family> {
        let mut counter = Family::new("a_requests", MetricKind::Counter, "Requests.");
        counter.add(vec![("name", "q\"\\\n".into())], 3.0);
        let kind = MetricKind::Histogram(&REQUEST_BOUNDS_US);
        let mut durations = Family::new("a_seconds", kind, "Seconds.");
        let mut histogram = Histogram::default();
        histogram.record(1_500_000, &REQUEST_BOUNDS_US);
        let (unix_us, took_us) = (1_795_508_100_123_456, 1_500_000);
        let mut exemplars = Exemplars::default();
        exemplars.note(Exemplar { trace_id: 10, took_us, unix_us });
        durations.add_exemplified(Vec::new(), histogram, Some(exemplars.into()));
        vec![counter, durations]
    }

    #[test]
    fn counters_and_histograms_are_written_in_both_formats() {
        let text = String::from_utf8(write(&families(), Dialect::Prometheus)).expect("UTF-8");
        for line in [
            "# TYPE a_requests_total counter",
            "a_requests_total{name=\"q\\\"\\\\\\n\"} 3",
            "a_seconds_bucket{le=\"0.005\"} 0",
            "a_seconds_bucket{le=\"1.0\"} 0",
            "a_seconds_bucket{le=\"2.5\"} 1",
            "a_seconds_bucket{le=\"+Inf\"} 1",
            "a_seconds_sum 1.5",
            "a_seconds_count 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
        let open = String::from_utf8(write(&families(), Dialect::OpenMetrics)).expect("UTF-8");
        // OpenMetrics 1.0, section "Exemplars".
        let example = " 1 # {trace_id=\"0000000000000000000000000000000a\"} 1.5 1795508100.123\n";
        assert!(open.contains(&format!("a_seconds_bucket{{le=\"2.5\"}}{example}")), "{open}");
        assert!(!text.contains(" # {"), "{text}");
        assert!(open.contains("# TYPE a_requests counter\n") && open.ends_with("\n# EOF\n"));
    }
}
