//! The pictures.

use std::io::{self, Write};

use super::Summary;
use super::series::{Bucket, Series, WAITS, mean_of};

const WIDTH: f64 = 1000.0;
const CHART_HEIGHT: f64 = 280.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 180.0;
const TOP: f64 = 50.0;

/// Distance from one chart to the next.
const STEP: f64 = CHART_HEIGHT + 90.0;

/// Hues that are told apart, in the order in which they are given out.
const HUES: [u32; 12] = [210, 30, 140, 0, 270, 55, 180, 320, 90, 240, 15, 160];

const STYLE: &str = "<style>\
text{font:12px sans-serif;fill:#222}.head{font-size:15px}\
.axis{stroke:#888;fill:none}.grid{stroke:#8884}.line{fill:none;stroke-width:1.5}\
@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>";

pub(super) fn write(series: &Series, summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    let height = TOP + 2.0 * STEP;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Where the time of requests went\">{STYLE}"
    )?;
    if summary.requests == 0 {
        writeln!(out, "<text x=\"{LEFT}\" y=\"{TOP}\">no request with times in the log</text>")?;
        return writeln!(out, "</svg>");
    }
    let buckets: Vec<(i64, Bucket)> = series.buckets().collect();
    waits(series, &buckets, out)?;
    stages(series, &buckets, out)?;
    writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\">{} requests, means of {} ms each, from {} on; \
         seconds since the first</text>",
        height - 30.0,
        summary.requests,
        series.width_us as f64 / 1e3,
        begin(buckets[0].0)
    )?;
    writeln!(out, "</svg>")
}

/// lighttpd 1.5's picture: a line for each of its waits.
fn waits(series: &Series, buckets: &[(i64, Bucket)], out: &mut impl Write) -> io::Result<()> {
    let value = |bucket: &Bucket, at: usize| mean_of(series, bucket, WAITS[at].1);
    let all = |bucket: &Bucket| (0..WAITS.len()).map(|at| value(bucket, at)).fold(0.0, f64::max);
    let chart = Chart::new(TOP, buckets, buckets.iter().map(|(_, one)| all(one)));
    chart.frame("Reading and writing, as lighttpd 1.5 drew it (ms)", out)?;
    for (at, (name, _)) in WAITS.iter().enumerate() {
        write!(out, "<polyline class=\"line\" stroke=\"{}\" points=\"", color(at))?;
        for (nth, (_, bucket)) in buckets.iter().enumerate() {
            write!(out, "{:.1},{:.1} ", chart.x(nth), chart.y(value(bucket, at)))?;
        }
        writeln!(out, "\"/>")?;
        chart.legend(at, name, out)?;
    }
    Ok(())
}

/// All stages, one upon the other.
fn stages(series: &Series, buckets: &[(i64, Bucket)], out: &mut impl Write) -> io::Result<()> {
    let count = series.stages.len();
    let total = |bucket: &Bucket| (0..count).map(|stage| bucket.mean_ms(stage)).sum();
    let chart = Chart::new(TOP + STEP, buckets, buckets.iter().map(|(_, one)| total(one)));
    chart.frame("Every stage (ms)", out)?;
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

fn color(nth: usize) -> String {
    let lightness = if nth < HUES.len() { 50 } else { 70 };
    format!("hsl({} 65% {lightness}%)", HUES[nth % HUES.len()])
}

struct Chart {
    top: f64,
    count: usize,
    seconds: f64,
    /// The value at the upper edge.
    most: f64,
}

impl Chart {
    fn new(top: f64, buckets: &[(i64, Bucket)], values: impl Iterator<Item = f64>) -> Self {
        let most = nice(values.fold(0.0, f64::max));
        let (first, last) = (buckets.first(), buckets.last());
        let spans_us = first.zip(last).map_or(0, |((from, _), (to, _))| to.saturating_sub(*from));
        Self { top, count: buckets.len(), seconds: spans_us as f64 / 1e6, most }
    }

    fn bar(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.count.max(1) as f64
    }

    fn x(&self, nth: usize) -> f64 {
        LEFT + self.bar() * nth as f64
    }

    fn y(&self, value: f64) -> f64 {
        self.top + CHART_HEIGHT * (1.0 - value / self.most)
    }

    fn frame(&self, title: &str, out: &mut impl Write) -> io::Result<()> {
        let (right, bottom) = (WIDTH - RIGHT, self.top + CHART_HEIGHT);
        writeln!(
            out,
            "<text class=\"head\" x=\"{LEFT}\" y=\"{}\">{title}</text>\
             <path class=\"axis\" d=\"M{LEFT} {}V{bottom}H{right}\"/>",
            self.top - 14.0,
            self.top
        )?;
        for quarter in 1..=4 {
            let part = f64::from(quarter) / 4.0;
            let (y, x) = (self.y(self.most * part), LEFT + (right - LEFT) * part);
            writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y}H{right}\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
                 <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{:.1}</text>",
                LEFT - 6.0,
                y + 4.0,
                self.most * part,
                bottom + 18.0,
                self.seconds * part
            )?;
        }
        Ok(())
    }

    fn legend(&self, nth: usize, name: &str, out: &mut impl Write) -> io::Result<()> {
        let (x, y) = (WIDTH - RIGHT + 16.0, self.top + 16.0 * nth as f64);
        let color = color(nth);
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"10\" height=\"10\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            x + 16.0,
            y + 10.0
        )
    }
}

/// The next number above that is easy to read: 1, 2, 4 or 8 times a power of ten.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 8.0, 10.0];
    steps.iter().map(|step| step * unit).find(|most| *most >= value).unwrap_or(10.0 * unit)
}

/// Seconds since 1970, as they are; a picture needs no calendar.
fn begin(at_us: i64) -> String {
    format!("second {} since 1970", at_us.div_euclid(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_numbers_that_are_easy_to_read() {
        for (value, wanted) in [(0.0, 1.0), (0.9, 1.0), (1.0, 1.0), (3.0, 4.0), (81.0, 100.0)] {
            assert!((nice(value) - wanted).abs() < 1e-9, "{value}: {}", nice(value));
        }
    }
}
