//! Lines of the last minutes, as SVG within the page.

use std::fmt::Write;

use lighty_core::machine::metrics::history::{HISTORY_S, Second};

use super::units::bytes;

/// Seconds that a chart shows at least: its width in its own units.
const SECONDS_MIN: i64 = 60;

/// Height of a chart, in its own units.
const HEIGHT: f64 = 60.0;

/// A chart's line: a name for its style, and its value in a second.
struct Line(&'static str, fn(&Second) -> f64);

/// A chart: its heading, how a value is written, its lines.
struct Chart(&'static str, fn(f64) -> String, &'static [Line]);

const CHARTS: [Chart; 4] = [
    Chart(
        "Requests a second",
        whole,
        &[
            Line("first", |second| second.requests as f64),
            Line("bad", |second| second.errors as f64),
        ],
    ),
    Chart(
        "Duration: half, and 99 of 100 below",
        millis,
        &[
            Line("first", |second| second.p50_us as f64),
            Line("second", |second| second.p99_us as f64),
        ],
    ),
    Chart("Sent a second", size, &[Line("first", |second| second.bytes_out as f64)]),
    Chart("Connections", whole, &[Line("first", |second| second.open as f64)]),
];

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn millis(us: f64) -> String {
    format!("{:.1} ms", us / 1e3)
}

fn size(value: f64) -> String {
    bytes(value as u64)
}

/// The charts; nothing where nothing was recorded yet.
pub(super) fn svg(history: &[Second]) -> String {
    let Some(latest) = history.last() else { return String::new() };
    let charts: String = CHARTS.iter().map(|one| chart(one, history, latest.at_s)).collect();
    format!("<h2>Last minutes</h2>\n<div class=\"charts\">\n{charts}</div>\n")
}

fn chart(Chart(heading, show, lines): &Chart, history: &[Second], now_s: i64) -> String {
    let highest = |Line(_, value): &Line| history.iter().map(value).fold(0.0, f64::max);
    let top = lines.iter().map(highest).fold(0.0, f64::max);
    let oldest_s = history.first().map_or(now_s, |second| second.at_s);
    let width = (now_s - oldest_s).clamp(SECONDS_MIN, HISTORY_S as i64);
    let scale = if top > 0.0 { HEIGHT / top } else { 0.0 };
    let mut drawn = String::new();
    for Line(class, value) in *lines {
        let points = history.iter().map(|second| {
            let x = width - (now_s - second.at_s);
            format!("{x},{:.1} ", HEIGHT - value(second) * scale)
        });
        // Writing to a text cannot fail.
        let _ = write!(
            drawn,
            "<polyline class=\"{class}\" points=\"{}\"/>",
            points.collect::<String>().trim_end()
        );
    }
    let last =
        |Line(_, value): &Line| history.last().map_or_else(String::new, |one| show(value(one)));
    let now: Vec<String> = lines.iter().map(last).collect();
    let (now, top) = (now.join(" / "), show(top));
    format!(
        "<figure><figcaption>{heading}: <b>{now}</b> <span>at most {top}</span></figcaption>\
         <svg viewBox=\"0 -2 {width} 64\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{heading}: now {now}, at most {top} in the last minutes\">{drawn}</svg></figure>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_ends_now_and_reaches_its_highest_value() {
        assert_eq!(svg(&[]), "");
        let second = |at_s, requests| Second { at_s, requests, ..Second::default() };
        let page = svg(&[second(1_000, 5), second(1_001, 10), second(1_003, 0)]);
        assert!(page.contains("points=\"57,30.0 58,0.0 60,60.0\""), "{page}");
        assert!(page.contains("Requests a second: now 0 / 0, at most 10"), "{page}");
    }
}
