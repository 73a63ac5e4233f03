//! Charts as SVG: what several pictures share.

use std::io::{self, Write};

const WIDTH: f64 = 1000.0;
const CHART_HEIGHT: f64 = 280.0;
pub(crate) const LEFT: f64 = 70.0;
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

/// Begins a picture of so many charts, one below the other; `label` has no markup.
pub(crate) fn begin(charts: usize, label: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" \
         aria-label=\"{label}\">{STYLE}",
        top(charts)
    )
}

/// Ends a picture of so many charts with a line below them, without markup.
pub(crate) fn end(charts: usize, line: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">{line}</text>\n</svg>", top(charts) - 30.0)
}

/// Where a chart begins.
fn top(nth: usize) -> f64 {
    TOP + nth as f64 * STEP
}

pub(crate) fn color(nth: usize) -> String {
    let lightness = if nth < HUES.len() { 50 } else { 70 };
    format!("hsl({} 65% {lightness}%)", HUES[nth % HUES.len()])
}

/// Axes with values at equal distances.
pub(crate) struct Chart {
    top: f64,
    count: usize,
    /// The value at the upper edge.
    most: f64,
}

impl Chart {
    /// The chart at a place, for so many values, none of which is above `most`.
    pub(crate) fn new(nth: usize, count: usize, most: f64) -> Self {
        Self { top: top(nth), count, most: nice(most) }
    }

    /// The distance between two values.
    pub(crate) fn bar(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.count.max(1) as f64
    }

    pub(crate) fn x(&self, nth: usize) -> f64 {
        LEFT + self.bar() * nth as f64
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        self.top + CHART_HEIGHT * (1.0 - value / self.most)
    }

    /// Axes, grid and a title. `label` writes below the place that is so far from left to right.
    pub(crate) fn frame(
        &self,
        title: &str,
        label: impl Fn(f64) -> String,
        out: &mut impl Write,
    ) -> io::Result<()> {
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
                 <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                self.most * part,
                bottom + 18.0,
                label(part)
            )?;
        }
        Ok(())
    }

    /// A line through values from left to right, in the color of a legend.
    pub(crate) fn line(
        &self,
        nth: usize,
        values: impl Iterator<Item = f64>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        write!(out, "<polyline class=\"line\" stroke=\"{}\" points=\"", color(nth))?;
        for (at, value) in values.enumerate() {
            write!(out, "{:.1},{:.1} ", self.x(at), self.y(value))?;
        }
        writeln!(out, "\"/>")
    }

    pub(crate) fn legend(&self, nth: usize, name: &str, out: &mut impl Write) -> io::Result<()> {
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
