//! Line charts of the last minutes, as SVG within the page.

use std::fmt::Write;

use lighty_core::machine::metrics::history::{HISTORY_S, Second};

use super::units::bytes;

/// Minimum seconds shown by a chart: its width in its own units.
const SECONDS_MIN: i64 = 60;

/// Height of a chart, in its own units.
const HEIGHT: f64 = 60.0;

/// Below this average request rate, rates are means of [`MEAN_S`] seconds: occasional requests
/// would otherwise be drawn as a solid block of peaks.
const FEW_PER_S: f64 = 3.0;

/// Seconds covered by a mean.
const MEAN_S: i64 = 10;

/// Source of a line's values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChartKind {
    /// Events per second.
    Rate,
    /// The level at the end of the second.
    Level,
    /// A duration. Seconds without a request have no value.
    Duration,
}

/// A line of a chart: its style class, its label, and its value in a second.
struct Line(&'static str, &'static str, fn(&Second) -> f64);

/// A chart: heading, kind of its values, format of a value, lines.
struct Chart(&'static str, ChartKind, fn(f64) -> String, &'static [Line]);

const CHARTS: [Chart; 4] = [
    Chart(
        "Responses per second",
        ChartKind::Rate,
        count,
        &[
            Line("first", "below 400", |second| {
                second.requests.saturating_sub(second.errors + second.client_errors) as f64
            }),
            Line("second", "4xx", |second| second.client_errors as f64),
            Line("bad", "5xx", |second| second.errors as f64),
        ],
    ),
    Chart(
        "Duration",
        ChartKind::Duration,
        millis,
        &[
            Line("first", "50 %", |second| second.p50_us as f64),
            Line("second", "99 %", |second| second.p99_us as f64),
        ],
    ),
    Chart(
        "Sent per second",
        ChartKind::Rate,
        size,
        &[Line("first", "", |second| second.bytes_out as f64)],
    ),
    Chart(
        "Connections",
        ChartKind::Level,
        count,
        &[Line("first", "open", |second| second.open as f64)],
    ),
];

fn count(value: f64) -> String {
    match value {
        0.0..10.0 if value.fract() > 0.001 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn millis(us: f64) -> String {
    format!("{:.1} ms", us / 1e3)
}

fn size(value: f64) -> String {
    bytes(value as u64)
}

/// Renders the charts; empty before the first recorded second.
pub(super) fn svg(history: &[Second]) -> String {
    let Some(latest) = history.last() else { return String::new() };
    let charts: String = CHARTS.iter().map(|one| chart(one, history, latest.at_s)).collect();
    format!("<h2>Last minutes</h2>\n<div class=\"charts\">\n{charts}</div>\n")
}

/// Returns a line's points: time and value.
fn values(history: &[Second], kind: ChartKind, value: fn(&Second) -> f64) -> Vec<(i64, f64)> {
    let all = history.iter().map(|second| (second.at_s, value(second)));
    match kind {
        ChartKind::Level => all.collect(),
        ChartKind::Duration => all.filter(|(_, value)| *value > 0.0).collect(),
        ChartKind::Rate => {
            let requests: u64 = history.iter().map(|second| second.requests).sum();
            match requests as f64 / (history.len().max(1) as f64) < FEW_PER_S {
                true => means(&all.collect::<Vec<_>>()),
                false => all.collect(),
            }
        }
    }
}

/// Means of the last [`MEAN_S`] seconds.
fn means(all: &[(i64, f64)]) -> Vec<(i64, f64)> {
    let mean = |(at, (now_s, _)): (usize, &(i64, f64))| {
        let recent = all[..=at].iter().rev().take_while(|(at_s, _)| now_s - at_s < MEAN_S);
        let (count, sum) = recent.fold((0, 0.0), |(count, sum), (_, one)| (count + 1, sum + one));
        (*now_s, sum / f64::from(count.max(1)))
    };
    all.iter().enumerate().map(mean).collect()
}

/// Returns the smallest round number at or above the value.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * unit).find(|most| *most >= value).unwrap_or(10.0 * unit)
}

fn chart(Chart(heading, kind, show, lines): &Chart, history: &[Second], now_s: i64) -> String {
    let all: Vec<_> = lines.iter().map(|Line(.., value)| values(history, *kind, *value)).collect();
    let highest = all.iter().flatten().map(|(_, value)| *value).fold(0.0, f64::max);
    let top = nice(highest);
    let oldest_s = history.first().map_or(now_s, |second| second.at_s);
    let width = (now_s - oldest_s).clamp(SECONDS_MIN, HISTORY_S as i64);
    let (mut drawn, mut now) = (String::new(), Vec::new());
    for (Line(class, name, _), values) in lines.iter().zip(&all) {
        let points = values.iter().map(|(at_s, value)| {
            let x = width - (now_s - at_s);
            format!("{x},{:.1} ", HEIGHT - value * HEIGHT / top)
        });
        // Writing to a string cannot fail.
        let _ = write!(
            drawn,
            "<polyline class=\"{class}\" points=\"{}\"/>",
            points.collect::<String>().trim_end()
        );
        let latest = values.last().map_or_else(|| "–".to_owned(), |(_, value)| show(*value));
        now.push(format!("<span class=\"{class}\">{name} <b>{latest}</b></span>"));
    }
    let (now, middle) = (now.join(" "), HEIGHT / 2.0);
    let ago = match width {
        s if s % 60 == 0 => format!("{} min ago", s / 60),
        s => format!("{s} s ago"),
    };
    format!(
        "<figure><figcaption>{heading} {now}</figcaption><div class=\"plot\">\
         <div class=\"y\" aria-hidden=\"true\"><span>{}</span><span>{}</span><span>{}</span></div>\
         <svg viewBox=\"0 -1 {width} 62\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{heading}: at most {} in the last minutes\">\
         <path d=\"M0 0H{width}M0 {middle}H{width}M0 {HEIGHT}H{width}\"/>{drawn}</svg>\
         <div class=\"x\" aria-hidden=\"true\"><span>{ago}</span><span>now</span></div>\
         </div></figure>\n",
        show(top),
        show(top / 2.0),
        show(0.0),
        show(highest),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at_s: i64, requests: u64) -> Second {
        Second { at_s, requests, ..Second::default() }
    }

    #[test]
    fn a_chart_ends_now_and_has_axes() {
        assert_eq!(svg(&[]), "");
        let page = svg(&[second(1_000, 5), second(1_001, 10), second(1_003, 0)]);
        assert!(page.contains("points=\"57,30.0 58,0.0 60,60.0\""), "{page}");
        assert!(page.contains("Responses per second: at most 10"), "{page}");
        assert!(page.contains("<span>10</span><span>5</span><span>0</span>"), "{page}");
        assert!(page.contains("<span>1 min ago</span><span>now</span>"), "{page}");
    }

    #[test]
    fn responses_are_split_by_class() {
        let one = Second { client_errors: 3, errors: 2, ..second(5, 10) };
        let page = svg(&[one]);
        for piece in ["below 400 <b>5</b>", "4xx <b>3</b>", "5xx <b>2</b>"] {
            assert!(page.contains(piece), "{piece}: {page}");
        }
    }

    #[test]
    fn few_requests_are_a_line_and_no_block() {
        let history: Vec<Second> =
            (0..60).map(|at_s| second(at_s, u64::from(at_s % 2 == 0))).collect();
        let rates = values(&history, ChartKind::Rate, |second| second.requests as f64);
        assert!(rates[20..].iter().all(|(_, rate)| (*rate - 0.5).abs() < 1e-9), "{rates:?}");
        let many: Vec<Second> =
            (0..60).map(|at_s| second(at_s, 100 * u64::from(at_s % 2 == 0))).collect();
        let rates = values(&many, ChartKind::Rate, |second| second.requests as f64);
        assert_eq!((rates[20].1, rates[21].1), (100.0, 0.0));
    }

    #[test]
    fn seconds_without_requests_have_no_duration() {
        let history = [Second { p50_us: 7, ..second(1, 1) }, second(2, 0)];
        assert_eq!(
            values(&history, ChartKind::Duration, |second| second.p50_us as f64),
            [(1, 7.0)]
        );
    }
}
