//! The SVG charts.

use std::io::{self, Write};

use lighty_http::date;

use super::Summary;
use super::series::{Bucket, Series, WAITS, mean_of};
use crate::svg::{self, Chart, Tick, color};

/// Two charts, one below the other.
const CHARTS: usize = 2;

pub(super) fn write(series: &Series, summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    if summary.requests == 0 {
        svg::begin(CHARTS, "Where the time of requests went", out)?;
        return svg::end(CHARTS, "no request with times in the log", out);
    }
    let buckets: Vec<(i64, Bucket)> = series.buckets().collect();
    let title = format!("Where the time of requests went, from {}", time_of(buckets[0].0));
    svg::begin(CHARTS, &title, out)?;
    let ticks = svg::time_ticks(series.width_us as f64 / 1e6 * buckets.len() as f64);
    waits(series, &buckets, &ticks, out)?;
    stages(series, &buckets, &ticks, out)?;
    let line = format!(
        "{} requests; each point is the mean of {} ms",
        summary.requests,
        series.width_us as f64 / 1e3,
    );
    svg::end(CHARTS, &line, out)
}

/// Draws lighttpd 1.5's picture: a line for each of its waits.
fn waits(
    series: &Series,
    buckets: &[(i64, Bucket)],
    ticks: &[Tick],
    out: &mut impl Write,
) -> io::Result<()> {
    let value = |bucket: &Bucket, at: usize| mean_of(series, bucket, WAITS[at].1);
    let all = |bucket: &Bucket| (0..WAITS.len()).map(|at| value(bucket, at)).fold(0.0, f64::max);
    let most = buckets.iter().map(|(_, one)| all(one)).fold(0.0, f64::max);
    let chart = Chart::new(0, buckets.len(), most);
    chart.frame("Reading and writing, as lighttpd 1.5 drew it (ms)", ticks, out)?;
    for (at, (name, _)) in WAITS.iter().enumerate() {
        chart.line(at, buckets.iter().map(|(_, bucket)| value(bucket, at)), out)?;
        chart.legend(at, name, out)?;
    }
    Ok(())
}

/// Draws all stages, stacked.
fn stages(
    series: &Series,
    buckets: &[(i64, Bucket)],
    ticks: &[Tick],
    out: &mut impl Write,
) -> io::Result<()> {
    let count = series.stages.len();
    let total = |bucket: &Bucket| (0..count).map(|stage| bucket.mean_ms(stage)).sum();
    let most = buckets.iter().map(|(_, one)| total(one)).fold(0.0, f64::max);
    let chart = Chart::new(1, buckets.len(), most);
    chart.frame("Every stage (ms)", ticks, out)?;
    for (nth, (_, bucket)) in buckets.iter().enumerate() {
        let mut below = 0.0;
        for stage in 0..count {
            let took_ms = bucket.mean_ms(stage);
            if took_ms <= 0.0 {
                continue;
            }
            let (top, bottom) = (chart.y(below + took_ms), chart.y(below));
            write!(
                out,
                "<rect x=\"{:.1}\" y=\"{top:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\">\
                 <title>{}: {took_ms:.3} ms of {} requests</title></rect>",
                chart.x(nth),
                chart.bar(),
                bottom - top,
                color(stage),
                series.stages[stage],
                bucket.requests
            )?;
            below += took_ms;
        }
    }
    for (stage, name) in series.stages.iter().enumerate() {
        chart.legend(stage, name, out)?;
    }
    writeln!(out)
}

/// Formats a time in UTC.
fn time_of(at_us: i64) -> String {
    String::from_utf8_lossy(&date::iso8601(at_us.div_euclid(1_000_000))).into_owned()
}
