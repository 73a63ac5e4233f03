//! `lighty timing plot`: charts of the time of requests, from a log.
//!
//! A log of any length is read line by line and summed in time buckets, which widen as needed.
//! `lines` parses, `series` sums, `svg` and `gnuplot` draw.

mod gnuplot;
mod lines;
mod series;
mod svg;

use std::io::{self, BufRead, Write};

use lines::LogLine;
pub use lines::TimingLineError;
use series::Series;

/// Maximum bytes of a line. A longer one counts as broken.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Counts of a log's lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Requests with times.
    pub requests: u64,
    /// Other lines.
    pub others: u64,
    /// Lines with times that cannot be read.
    pub broken: u64,
    /// The first broken line: its number, and the reason.
    pub first_broken: Option<(u64, TimingLineError)>,
}

/// The contents of a log.
pub struct Plot {
    series: Series,
    /// Counts of the log's lines.
    pub summary: Summary,
}

impl Plot {
    /// Reads an error log with lines of `debug.log-timing`, or an access log in JSON.
    ///
    /// # Errors
    /// Errors of the input.
    pub fn read(mut input: impl BufRead) -> io::Result<Self> {
        let (mut series, mut summary) = (Series::default(), Summary::default());
        let (mut line, mut number) = (Vec::new(), 0);
        loop {
            line.clear();
            number += 1;
            if io::Read::take(&mut input, LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            match lines::read(&line) {
                LogLine::Times(times) => {
                    summary.requests += 1;
                    series.add(&times);
                }
                LogLine::Other => summary.others += 1,
                LogLine::Broken(why) => {
                    summary.broken += 1;
                    summary.first_broken.get_or_insert((number, why));
                }
            }
        }
        Ok(Self { series, summary })
    }

    /// Draws the charts: above the three waits of lighttpd 1.5's picture, below all stages.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn write_svg(&self, out: &mut impl Write) -> io::Result<()> {
        svg::write(&self.series, &self.summary, out)
    }

    /// Writes a gnuplot script that contains the data and draws the same charts.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn write_gnuplot(&self, out: &mut impl Write) -> io::Result<()> {
        gnuplot::write(&self.series, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-11-24T08:15:00Z [notice] lighty 0.1.0 is serving http://127.0.0.1:80/\n\
2026-11-24T08:15:00Z [notice] 127.0.0.1: timing write-start: 1795508100.000000 read-queue-wait: \
0.000 ms read-time: 2.000 ms write-time: 1.000 ms total: 3.500 ms head: 0.500 ms file-read: 2.000 \
ms write: 1.000 ms, request: \"GET /a.txt\", path: \"/srv/a.txt\", id: 1-2-3\n\
2026-11-24T08:15:01Z [notice] 127.0.0.1: timing write-start: 1795508101.5 total: x ms\n\
{\"time\":\"2026-11-24T08:15:02.250000+00:00\",\"target\":\"/\",\"stages_us\":{\"queue\":4000}}\n\
{\"time\":\"2026-11-24T08:15:03+00:00\",\"target\":\"/\"}\n\
{\"time\"\n";

    #[test]
    fn logs_of_both_kinds_are_read_and_bad_lines_counted() {
        let plot = Plot::read(LOG.as_bytes()).expect("read");
        let first_broken = Some((3, TimingLineError::NotNumber));
        let wanted = Summary { requests: 2, others: 1, broken: 3, first_broken };
        assert_eq!(plot.summary, wanted);
        let (mut svg, mut script) = (Vec::new(), Vec::new());
        plot.write_svg(&mut svg).expect("written");
        plot.write_gnuplot(&mut script).expect("written");
        let (svg, script) = (String::from_utf8(svg), String::from_utf8(script));
        let (svg, script) = (svg.expect("text"), script.expect("text"));
        for stage in ["head", "file-read", "write", "queue"] {
            assert!(svg.contains(&format!(">{stage}<")), "{stage}: {svg}");
            assert!(script.contains(stage), "{stage}: {script}");
        }
        assert!(svg.contains("from 2026-11-24T08:15:00Z") && svg.contains(" s<"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_log_without_times_makes_an_empty_picture() {
        let plot = Plot::read("nothing\n".as_bytes()).expect("read");
        let mut svg = Vec::new();
        plot.write_svg(&mut svg).expect("written");
        assert!(String::from_utf8(svg).expect("text").contains("no request"));
    }

    #[test]
    fn a_line_without_an_end_costs_no_memory() {
        let endless = vec![b'x'; 3 << 20];
        let plot = Plot::read(&*endless).expect("read");
        assert_eq!(plot.summary.others, 3);
    }
}
