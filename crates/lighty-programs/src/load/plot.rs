//! Charts of a run: its course over time, and the distribution of times.

use std::io::{self, Write};

use lighty_http::date;
use lighty_io::clock::Clock;

use super::felt::{Figure, quantile};
use super::intervals::Interval;
use super::options::LoadTestOptions;
use super::report::whole_name;
use super::tally::{LoadTimes, Tally};
use crate::svg::{self, Chart};

/// Three charts, one below the other.
const CHARTS: usize = 3;

/// Decades of the quantile curve: each covers nine tenths of the remaining requests.
const DECADES: u32 = 4;

/// Points within each decade.
const POINTS: u32 = 25;

/// Writes the charts as SVG.
///
/// # Errors
/// Writing to `out` fails.
pub fn svg(options: &LoadTestOptions, tally: &Tally, out: &mut impl Write) -> io::Result<()> {
    svg::begin(CHARTS, &title(options), out)?;
    let parts = RunParts::of(tally);
    let ticks = svg::time_ticks(parts.length_s * parts.all.len() as f64);
    let count = parts.all.len();
    let rates = || parts.all.iter().map(|(part, length_s)| part.responses as f64 / length_s);
    let chart = Chart::new(0, count, rates().fold(0.0, f64::max));
    chart.frame("Responses per second", &ticks, out)?;
    chart.line(0, rates(), out)?;
    let quantile = |share: f64| parts.all.iter().map(move |(one, _)| millis(one.quantile(share)));
    let chart = Chart::logarithmic(1, count, quantile(0.5).chain(quantile(0.99)));
    chart.frame("Latency over time (ms, logarithmic)", &ticks, out)?;
    for (nth, (name, share)) in [("50 %", 0.5), ("99 %", 0.99)].into_iter().enumerate() {
        chart.line(nth, quantile(share), out)?;
        chart.legend(nth, name, out)?;
    }
    shares(options, tally, out)?;
    let line = format!(
        "{} responses in {:.2} s, {:.0} per second; {} failed; points of {} s",
        tally.responses,
        tally.took.as_secs_f64(),
        tally.per_s(),
        tally.failed() + tally.unsent,
        parts.length_s,
    );
    svg::end(CHARTS, &line, out)
}

/// Maximum characters of the title, since a URL may have any length.
const TITLE_MAX: usize = 110;

/// The title: URL, settings and time of the run.
fn title(options: &LoadTestOptions) -> String {
    let url = options.urls.first().map_or_else(String::new, |url| {
        let scheme = if url.tls { "https" } else { "http" };
        // A password must not appear in the title.
        let authority = url.authority.rsplit_once('@').map_or(&*url.authority, |(_, host)| host);
        format!("{scheme}://{authority}{}", url.target)
    });
    let more = match options.urls.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let rate = options.rate.map_or_else(String::new, |rate| format!(", {rate} requests/s"));
    let http2 = match options.http2 {
        true => format!(", HTTP/2 with {} streams", options.streams),
        false => String::new(),
    };
    let when = String::from_utf8_lossy(&date::iso8601(Clock::start().unix_s())).into_owned();
    let settings = format!("{more}, {} connections{rate}{http2}, {when}", options.connections);
    let room = TITLE_MAX.saturating_sub(settings.chars().count() + options.method.len() + 2);
    let shown: String = match url.chars().count() > room {
        true => url.chars().take(room).chain(['…']).collect(),
        false => url,
    };
    format!("{} {shown}{settings}", options.method)
}

/// The parts of a run, each with its length in seconds. The last one is shorter: with the full
/// length, its rate would look like a slowdown of the server.
struct RunParts<'a> {
    length_s: f64,
    all: Vec<(&'a Interval, f64)>,
}

impl<'a> RunParts<'a> {
    fn of(tally: &'a Tally) -> Self {
        let (length_s, took_s) = (tally.intervals.length().as_secs_f64(), tally.took.as_secs_f64());
        let with_length = |(nth, part): (usize, &'a Interval)| {
            (part, (took_s - nth as f64 * length_s).clamp(0.0, length_s))
        };
        let mut all: Vec<_> = tally.intervals.parts().iter().enumerate().map(with_length).collect();
        // Too short for a rate.
        while all.len() > 1 && all.last().is_some_and(|(_, own_s)| *own_s < length_s / 2.0) {
            all.pop();
        }
        all.iter_mut().for_each(|(_, own_s)| *own_s = own_s.max(1e-6));
        Self { length_s, all }
    }
}

/// A figure in milliseconds, including lower bounds; 0 without data.
fn millis(figure: Option<Figure>) -> f64 {
    figure.unwrap_or_default().value / 1e3
}

/// Draws the distribution of times, with increasing resolution for the slowest requests.
fn shares(options: &LoadTestOptions, tally: &Tally, out: &mut impl Write) -> io::Result<()> {
    let share = |point: f64| 1.0 - 10f64.powf(-point);
    let points = DECADES * POINTS;
    let none = LoadTimes::default();
    let curves = [("connect", &tally.connect, &none), ("first byte", &tally.first_byte, &none)];
    let curves = curves.into_iter().chain([(whole_name(options), &tally.total, &tally.lost)]);
    let values = |right, failed| {
        (0..=points).map(move |point| {
            millis(quantile(right, failed, share(f64::from(point) / f64::from(POINTS))))
        })
    };
    let all = curves.clone().flat_map(|(_, right, failed)| values(right, failed));
    let chart = Chart::logarithmic(2, points as usize, all);
    let ticks: Vec<svg::Tick> = (0..=DECADES)
        .map(|decade| (f64::from(decade) / f64::from(DECADES), percent(decade)))
        .collect();
    chart.frame("Latency by share of requests (ms, logarithmic)", &ticks, out)?;
    for (nth, (name, right, failed)) in curves.enumerate() {
        chart.line(nth, values(right, failed), out)?;
        chart.legend(nth, name, out)?;
    }
    Ok(())
}

/// `0 %`, `90 %`, `99 %`, `99.9 %` and so on.
fn percent(nines: u32) -> String {
    match nines {
        0 => "0 %".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        more => format!("99.{} %", "9".repeat(more as usize - 2)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::options::LoadTestOptions;
    use super::super::target::LoadUrl;
    use super::*;

    fn run(took_ms: u64) -> Tally {
        let mut tally = Tally { took: Duration::from_millis(took_ms), ..Tally::default() };
        // A thousand per second.
        for at_ms in 0..took_ms {
            tally.intervals.at(at_ms * 1000).end(2_000);
            tally.total.record(2_000);
            tally.responses += 1;
        }
        tally
    }

    fn options(url: &str) -> LoadTestOptions {
        LoadTestOptions::new(vec![LoadUrl::parse(url).expect("a URL")])
    }

    #[test]
    fn last_part_has_the_rate_of_the_others() {
        for took_ms in [1_000, 1_001, 1_050, 1_110, 1_190, 130] {
            let tally = run(took_ms);
            let parts = RunParts::of(&tally);
            for (part, length_s) in &parts.all {
                let rate = part.responses as f64 / length_s;
                assert!((990.0..1010.0).contains(&rate), "{took_ms}: {rate}");
            }
        }
    }

    #[test]
    fn picture_names_its_url_settings_and_units() {
        let mut options = options("http://u:secret@a.example/x?y=1&z");
        let mut out = Vec::new();
        svg(&options, &run(1_050), &mut out).expect("written");
        let text = String::from_utf8(out).expect("UTF-8");
        for piece in [
            "GET http://a.example/x?y=1&amp;z, ",
            ">0.2 s<",
            ">90 %<",
            ">99.99 %<",
            ">whole<",
            "Responses per second",
        ] {
            assert!(text.contains(piece), "{piece}: {text}");
        }
        assert!(!text.contains("secret") && !text.contains("90.0000"), "{text}");
        options.rate = Some(500.0);
        let mut out = Vec::new();
        svg(&options, &run(100), &mut out).expect("written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(text.contains(">from due<") && text.contains("500 requests/s"), "{text}");
    }
}
