//! The text formats: Prometheus' 0.0.4, and OpenMetrics 1.0.

use std::fmt::Write;

use lighty_core::machine::histogram::Histogram;

use super::family::{Family, Kind, Labels, Value};

/// Which of the formats.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Prometheus,
    OpenMetrics,
}

pub(super) fn write(families: &[Family], dialect: Dialect) -> Vec<u8> {
    let mut out = String::new();
    for family in families {
        // Writing to a text cannot fail.
        let _ = push_family(family, dialect, &mut out);
    }
    if dialect == Dialect::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out.into_bytes()
}

fn push_family(family: &Family, dialect: Dialect, out: &mut String) -> std::fmt::Result {
    let suffix = if family.kind == Kind::Counter { "_total" } else { "" };
    let described = if dialect == Dialect::Prometheus { suffix } else { "" };
    let (name, help) = (family.name, family.help);
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    writeln!(out, "# HELP {name}{described} {help}")?;
    writeln!(out, "# TYPE {name}{described} {kind}")?;
    for sample in &family.samples {
        match (&sample.value, family.kind) {
            (Value::Durations(durations), Kind::Histogram(bounds_us)) => {
                push_durations(name, &sample.labels, durations, bounds_us, out)?;
            }
            (Value::Number(value), _) => {
                write!(out, "{name}{suffix}")?;
                push_labels(&sample.labels, None, out)?;
                writeln!(out, " {value}")?;
            }
            (Value::Durations(_), _) => {}
        }
    }
    Ok(())
}

fn push_durations(
    name: &str,
    labels: &Labels,
    durations: &Histogram,
    bounds_us: &[u64],
    out: &mut String,
) -> std::fmt::Result {
    for (bound_us, count) in bounds_us.iter().zip(durations.fixed()) {
        write!(out, "{name}_bucket")?;
        push_labels(labels, Some(&bound(*bound_us)), out)?;
        writeln!(out, " {count}")?;
    }
    write!(out, "{name}_bucket")?;
    push_labels(labels, Some("+Inf"), out)?;
    writeln!(out, " {}", durations.count())?;
    write!(out, "{name}_sum")?;
    push_labels(labels, None, out)?;
    writeln!(out, " {}", durations.sum_us() as f64 / 1e6)?;
    write!(out, "{name}_count")?;
    push_labels(labels, None, out)?;
    writeln!(out, " {}", durations.count())
}

/// A bound in seconds. OpenMetrics wants a fraction behind every one, and both take it.
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

    use super::*;

    fn families() -> Vec<Family> {
        let mut counter = Family::new("a_requests", Kind::Counter, "Requests.");
        counter.add(vec![("name", "q\"\\\n".into())], 3.0);
        let kind = Kind::Histogram(&REQUEST_BOUNDS_US);
        let mut durations = Family::new("a_seconds", kind, "Seconds.");
        let mut histogram = Histogram::default();
        histogram.record(1_500_000, &REQUEST_BOUNDS_US);
        durations.add_durations(Vec::new(), histogram);
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
        assert!(open.contains("# TYPE a_requests counter\n") && open.ends_with("\n# EOF\n"));
    }
}
