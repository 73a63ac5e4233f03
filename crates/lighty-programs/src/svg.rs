//! SVG charts: common code of several plots.

use std::io::{self, Write};

use lighty_http::html;

const WIDTH: f64 = 1000.0;
const CHART_HEIGHT: f64 = 280.0;
pub(crate) const LEFT: f64 = 70.0;
const RIGHT: f64 = 180.0;
const TOP: f64 = 80.0;

/// Vertical distance between charts.
const STEP: f64 = CHART_HEIGHT + 90.0;

/// Distinguishable hues, in the order of use.
const HUES: [u32; 12] = [210, 30, 140, 0, 270, 55, 180, 320, 90, 240, 15, 160];

const STYLE: &str = "<style>\
text{font:12px sans-serif;fill:#222}.title{font-size:17px;font-weight:600}.head{font-size:15px}\
.axis{stroke:#888;fill:none}.grid{stroke:#8884}.line{fill:none;stroke-width:1.5}\
@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>";

/// Begins a picture of `charts` charts, one below the other, with a title above them.
pub(crate) fn begin(charts: usize, title: &str, out: &mut impl Write) -> io::Result<()> {
    let title = escaped(title);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" \
         aria-label=\"{title}\">{STYLE}<text class=\"title\" x=\"{LEFT}\" y=\"26\">{title}</text>",
        top(charts)
    )
}

/// Escapes markup in text.
fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    html::escape(text.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Ends a picture with a line of text below the charts, which must not contain markup.
pub(crate) fn end(charts: usize, line: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">{line}</text>\n</svg>", top(charts) - 30.0)
}

/// Vertical position of a chart.
fn top(nth: usize) -> f64 {
    TOP + nth as f64 * STEP
}

pub(crate) fn color(nth: usize) -> String {
    let lightness = if nth < HUES.len() { 50 } else { 70 };
    format!("hsl({} 65% {lightness}%)", HUES[nth % HUES.len()])
}

/// A mark on the horizontal axis: position from left to right (0 to 1), and text.
pub(crate) type Tick = (f64, String);

/// Marks for a duration in seconds, at round times.
pub(crate) fn time_ticks(seconds: f64) -> Vec<Tick> {
    if seconds <= 0.0 {
        return Vec::new();
    }
    let step = ((seconds / TICKS_MAX).log10().floor() as i32..)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
        .find(|step| seconds / step <= TICKS_MAX)
        .unwrap_or(seconds);
    let count = (seconds / step + 1e-9).floor() as u32;
    (0..=count)
        .map(|nth| {
            (f64::from(nth) * step / seconds, format!("{} s", number(f64::from(nth) * step)))
        })
        .collect()
}

/// Maximum number of marks on a time axis, without the first one.
const TICKS_MAX: f64 = 8.0;

/// Mapping of values to heights.
#[derive(Clone, Copy)]
enum Scale {
    Linear,
    /// Starts at this value; lower values are not drawn.
    Logarithmic(f64),
}

/// Axes with values at equal distances.
pub(crate) struct Chart {
    top: f64,
    count: usize,
    scale: Scale,
    /// The value at the upper edge.
    most: f64,
}

impl Chart {
    /// Creates chart `nth` for `count` values of at most `most`.
    pub(crate) fn new(nth: usize, count: usize, most: f64) -> Self {
        Self { top: top(nth), count, scale: Scale::Linear, most: nice(most) }
    }

    /// Like [`Chart::new`], with a logarithmic scale, which shows short and long times alike.
    /// Values that are not positive leave a gap.
    pub(crate) fn logarithmic(nth: usize, count: usize, values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| *value > 0.0);
        let (least, most) = positive.fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        if most <= 0.0 {
            return Self::new(nth, count, 0.0);
        }
        let least = 10f64.powf(least.log10().floor());
        // At least one decade, so that there are marks.
        let most = nice(most).max(least * 10.0);
        Self { top: top(nth), count, scale: Scale::Logarithmic(least), most }
    }

    /// The distance between two values.
    pub(crate) fn bar(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.count.max(1) as f64
    }

    pub(crate) fn x(&self, nth: usize) -> f64 {
        LEFT + self.bar() * nth as f64
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => value / self.most,
            Scale::Logarithmic(least) => (value / least).ln() / (self.most / least).ln(),
        };
        self.top + CHART_HEIGHT * (1.0 - part)
    }

    /// Values of the horizontal lines.
    fn levels(&self) -> Vec<f64> {
        let Scale::Logarithmic(least) = self.scale else {
            return (1..=4).map(|quarter| self.most * f64::from(quarter) / 4.0).collect();
        };
        let decades = (self.most / least).log10();
        let digits: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let from = least.log10().round() as i32;
        (from..=from + decades.ceil() as i32)
            .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
            .filter(|value| *value <= self.most * 1.000_001)
            .collect()
    }

    /// Draws axes, grid and a title.
    pub(crate) fn frame(
        &self,
        title: &str,
        ticks: &[Tick],
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
        for value in self.levels() {
            let y = self.y(value);
            writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                number(value),
            )?;
        }
        for (part, text) in ticks {
            let x = LEFT + (right - LEFT) * part;
            writeln!(
                out,
                "<path class=\"grid\" d=\"M{x:.1} {}V{bottom}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                self.top,
                bottom + 18.0,
            )?;
        }
        Ok(())
    }

    /// Draws a line through values from left to right, in the colour of a legend. Values that a
    /// logarithmic scale cannot show leave a gap.
    pub(crate) fn line(
        &self,
        nth: usize,
        values: impl Iterator<Item = f64>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let least = match self.scale {
            Scale::Linear => f64::NEG_INFINITY,
            Scale::Logarithmic(least) => least,
        };
        let mut points = String::new();
        let draw = |points: &mut String, out: &mut _| -> io::Result<()> {
            if !points.is_empty() {
                Self::polyline(nth, points, out)?;
            }
            points.clear();
            Ok(())
        };
        for (at, value) in values.enumerate() {
            match value >= least {
                true => points += &format!("{:.1},{:.1} ", self.x(at), self.y(value)),
                false => draw(&mut points, out)?,
            }
        }
        draw(&mut points, out)
    }

    fn polyline(nth: usize, points: &str, out: &mut impl Write) -> io::Result<()> {
        let color = color(nth);
        writeln!(out, "<polyline class=\"line\" stroke=\"{color}\" points=\"{points}\"/>")
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

/// The next higher number with round quarters, at most a third higher.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * unit).find(|most| *most >= value).unwrap_or(10.0 * unit)
}

/// Formats a number without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_numbers_that_are_easy_to_read() {
        for (value, wanted) in
            [(0.0, 1.0), (0.9, 1.0), (1.0, 1.0), (3.0, 3.2), (81.0, 100.0), (4100.0, 5000.0)]
        {
            assert!((nice(value) - wanted).abs() < 1e-9, "{value}: {}", nice(value));
        }
        for tenth in 1..1000 {
            let value = f64::from(tenth) / 10.0;
            assert!(nice(value) >= value && nice(value) <= value * 1.34, "{value}");
        }
    }

    #[test]
    fn times_are_marked_in_seconds() {
        let texts =
            |seconds| time_ticks(seconds).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts(3.0), ["0 s", "0.5 s", "1 s", "1.5 s", "2 s", "2.5 s", "3 s"]);
        assert_eq!(texts(10.0), ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"]);
        assert_eq!(texts(0.0), [""; 0]);
        assert!(time_ticks(86_400.0).iter().all(|(part, _)| (0.0..=1.0).contains(part)));
    }

    #[test]
    fn logarithmic_scale_has_decades_and_gaps() {
        let values = [0.5, 0.0, 300.0];
        let chart = Chart::logarithmic(0, 3, values.into_iter());
        assert_eq!(chart.levels(), [0.1, 1.0, 10.0, 100.0]);
        let decade = chart.y(1.0) - chart.y(10.0);
        assert!((chart.y(10.0) - chart.y(100.0) - decade).abs() < 1e-9);
        let mut out = Vec::new();
        chart.line(0, values.into_iter(), &mut out).expect("written");
        assert_eq!(String::from_utf8_lossy(&out).matches("<polyline").count(), 2);
    }

    #[test]
    fn title_is_text() {
        let mut out = Vec::new();
        begin(1, "http://a/?<b>&c", &mut out).expect("written");
        let out = String::from_utf8_lossy(&out);
        assert!(out.contains("?&lt;b&gt;&amp;c") && !out.contains("<b>"), "{out}");
    }
}
