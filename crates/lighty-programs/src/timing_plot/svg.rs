//! The pictures.

use std::io::{self, Write};

use super::Summary;
use super::series::{Bucket, Series, WAITS, mean_of};
use crate::svg::{self, Chart, color};

/// Two charts, one below the other.
const CHARTS: usize = 2;

pub(super) fn write(series: &Series, summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    svg::begin(CHARTS, "Where the time of requests went", out)?;
    if summary.requests == 0 {
        return svg::end(CHARTS, "no request with times in the log", out);
    }
    let buckets: Vec<(i64, Bucket)> = series.buckets().collect();
    let (first, last) = (buckets.first(), buckets.last());
    let spans_us = first.zip(last).map_or(0, |((from, _), (to, _))| to.saturating_sub(*from));
    let seconds = |part: f64| format!("{:.1}", spans_us as f64 / 1e6 * part);
    waits(series, &buckets, seconds, out)?;
    stages(series, &buckets, seconds, out)?;
    let line = format!(
        "{} requests, means of {} ms each, from {} on; seconds since the first",
        summary.requests,
        series.width_us as f64 / 1e3,
        begin_of(buckets[0].0)
    );
    svg::end(CHARTS, &line, out)
}

/// lighttpd 1.5's picture: a line for each of its waits.
fn waits(
    series: &Series,
    buckets: &[(i64, Bucket)],
    seconds: impl Fn(f64) -> String,
    out: &mut impl Write,
) -> io::Result<()> {
    let value = |bucket: &Bucket, at: usize| mean_of(series, bucket, WAITS[at].1);
    let all = |bucket: &Bucket| (0..WAITS.len()).map(|at| value(bucket, at)).fold(0.0, f64::max);
    let most = buckets.iter().map(|(_, one)| all(one)).fold(0.0, f64::max);
    let chart = Chart::new(0, buckets.len(), most);
    chart.frame("Reading and writing, as lighttpd 1.5 drew it (ms)", seconds, out)?;
    for (at, (name, _)) in WAITS.iter().enumerate() {
        chart.line(at, buckets.iter().map(|(_, bucket)| value(bucket, at)), out)?;
        chart.legend(at, name, out)?;
    }
    Ok(())
}

/// All stages, one upon the other.
fn stages(
    series: &Series,
    buckets: &[(i64, Bucket)],
    seconds: impl Fn(f64) -> String,
    out: &mut impl Write,
) -> io::Result<()> {
    let count = series.stages.len();
    let total = |bucket: &Bucket| (0..count).map(|stage| bucket.mean_ms(stage)).sum();
    let most = buckets.iter().map(|(_, one)| total(one)).fold(0.0, f64::max);
    let chart = Chart::new(1, buckets.len(), most);
    chart.frame("Every stage (ms)", seconds, out)?;
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

/// Seconds since 1970, as they are; a picture needs no calendar.
fn begin_of(at_us: i64) -> String {
    format!("second {} since 1970", at_us.div_euclid(1_000_000))
}
