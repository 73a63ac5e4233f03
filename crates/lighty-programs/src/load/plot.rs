//! The picture of a run: what it did over time, and how its times are spread.

use std::io::{self, Write};

use super::felt::{Figure, quantile};
use super::tally::{Tally, Times};
use crate::svg::{self, Chart};

/// Three charts, one below the other.
const CHARTS: usize = 3;

/// Points of the curve of shares, each a tenth of those that were left before.
const DECADES: u32 = 4;

/// Points within each.
const POINTS: u32 = 25;

/// Writes it as SVG.
///
/// # Errors
/// `out` fails.
pub fn svg(tally: &Tally, out: &mut impl Write) -> io::Result<()> {
    svg::begin(CHARTS, "Responses over time, and how long they took", out)?;
    let (parts, seconds) = (tally.intervals.parts(), tally.intervals.length().as_secs_f64());
    let time = |part: f64| format!("{:.1}", seconds * parts.len() as f64 * part);
    let rates = parts.iter().map(|part| part.responses as f64 / seconds);
    let chart = Chart::new(0, parts.len(), rates.clone().fold(0.0, f64::max));
    chart.frame("Responses a second", time, out)?;
    chart.line(0, rates, out)?;
    let quantile = |share: f64| parts.iter().map(move |one| millis(one.quantile(share)));
    let chart = Chart::new(1, parts.len(), quantile(0.99).fold(0.0, f64::max));
    chart.frame("Times over time (ms)", time, out)?;
    for (nth, (name, share)) in [("50 %", 0.5), ("99 %", 0.99)].into_iter().enumerate() {
        chart.line(nth, quantile(share), out)?;
        chart.legend(nth, name, out)?;
    }
    shares(tally, out)?;
    let line = format!("{} responses, parts of {seconds:.1} s", tally.responses);
    svg::end(CHARTS, &line, out)
}

/// Milliseconds, for what is known at least and for nothing too.
fn millis(figure: Option<Figure>) -> f64 {
    figure.unwrap_or_default().value / 1e3
}

/// Which share of requests took no longer than what, the last ones drawn apart.
fn shares(tally: &Tally, out: &mut impl Write) -> io::Result<()> {
    let share = |point: f64| 1.0 - 10f64.powf(-point);
    let points = DECADES * POINTS;
    let none = Times::default();
    let curves = [("connect", &tally.connect, &none), ("first byte", &tally.first_byte, &none)];
    let curves = curves.into_iter().chain([("whole", &tally.total, &tally.lost)]);
    let most_us = tally.total.max_us().max(tally.lost.max_us());
    let chart = Chart::new(2, points as usize, most_us as f64 / 1e3);
    let label = |part: f64| format!("{:.4} %", share(part * f64::from(DECADES)) * 100.0);
    chart.frame("Times by share of requests (ms)", label, out)?;
    for (nth, (name, right, failed)) in curves.enumerate() {
        let values = (0..=points).map(|point| {
            let point = f64::from(point) / f64::from(POINTS);
            millis(quantile(right, failed, share(point)))
        });
        chart.line(nth, values, out)?;
        chart.legend(nth, name, out)?;
    }
    Ok(())
}
