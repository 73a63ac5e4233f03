//! Results of the load, as text and JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::felt::{Figure, Sorted, mean, quantile};
use super::intervals::{Interval, Spread};
use super::options::LoadTestOptions;
use super::tally::{LoadFailure, LoadTimes, Tally};

/// Quantiles in reports.
const SHARES: [(&str, f64); 6] = [
    ("50 %", 0.5),
    ("75 %", 0.75),
    ("90 %", 0.9),
    ("99 %", 0.99),
    ("99.9 %", 0.999),
    ("99.99 %", 0.9999),
];

/// Description of requests that no connection was free for.
pub(super) const UNSENT: &str = "requests were due, and no connection was free for them";

/// Name of a request's total time. At a fixed rate it starts at the due time.
pub(super) fn whole_name(options: &LoadTestOptions) -> &'static str {
    if options.rate.is_some() { "from due" } else { "whole" }
}

/// Result for people.
pub fn text(options: &LoadTestOptions, tally: &Tally) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(options, tally, &mut out);
    out
}

fn write_text(options: &LoadTestOptions, tally: &Tally, out: &mut String) -> std::fmt::Result {
    let took_s = tally.took.as_secs_f64();
    let rate = tally.body_bytes as f64 / took_s.max(1e-9);
    writeln!(
        out,
        "{} responses in {took_s:.2} s: {:.0}/s, {} of bodies, {}/s",
        tally.responses,
        tally.per_s(),
        bytes(tally.body_bytes as f64),
        bytes(rate)
    )?;
    let statuses: Vec<String> =
        tally.statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
    writeln!(out, "statuses  {}", statuses.join("  "))?;
    write_connections(tally, out)?;
    write_times(options, tally, out)?;
    write_failures(tally, out)
}

/// Result of a run without responses: its failures.
pub fn failures(tally: &Tally) -> String {
    let mut out = String::from("no responses\n");
    // Writing to a string cannot fail.
    let _ = write_connections(tally, &mut out);
    let _ = write_failures(tally, &mut out);
    out
}

fn write_connections(tally: &Tally, out: &mut String) -> std::fmt::Result {
    match tally.connections {
        0 => writeln!(out, "made no connection"),
        made => writeln!(out, "made {made} connections, {} in use at a time", tally.parallel),
    }
}

fn write_failures(tally: &Tally, out: &mut String) -> std::fmt::Result {
    for (failure, count) in &tally.failures {
        let has_reason = matches!(
            failure,
            LoadFailure::Connect | LoadFailure::Handshake | LoadFailure::Protocol
        );
        let why = tally.first_error.as_ref().filter(|_| has_reason);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        writeln!(out, "{count} {}{why}", failure.label())?;
    }
    if tally.unsent > 0 {
        writeln!(out, "{} {UNSENT}", tally.unsent)?;
    }
    Ok(())
}

/// Writes the table of times.
fn write_times(options: &LoadTestOptions, tally: &Tally, out: &mut String) -> std::fmt::Result {
    let head: Vec<String> = SHARES.iter().map(|(name, _)| format!("{name:>9}")).collect();
    writeln!(out, "\n{:12}{:>9}{}{:>9}", "", "mean", head.join(""), "longest")?;
    let label = whole_name(options);
    let none = LoadTimes::default();
    for (name, right, failed) in [
        ("connect", &tally.connect, &none),
        ("first byte", &tally.first_byte, &none),
        (label, &tally.total, &tally.lost),
    ] {
        let row = figures(right, failed);
        let row: Vec<String> = row.map(|(_, one)| format!("{:>9}", at_least(one))).collect();
        writeln!(out, "{name:12}{}", row.concat())?;
    }
    if tally.lost.count() > 0 {
        writeln!(
            out,
            "Requests that failed count as slower than all responses; > stands before what their \
             times are at least."
        )?;
    }
    match options.rate {
        Some(_) => writeln!(
            out,
            "Times count from when a request was due, whether or not it could be sent then."
        ),
        None => writeln!(
            out,
            "Each connection waited for its response before it asked again: a stall delays requests \
             that are then not made. --rate shows what users feel."
        ),
    }
}

/// Mean, quantiles and maximum, with their names in JSON.
fn figures(
    right: &LoadTimes,
    failed: &LoadTimes,
) -> impl Iterator<Item = (String, Option<Figure>)> {
    let right_sum_us = right.mean_us() * right.count() as f64;
    let share = |(name, share): (&str, f64)| {
        let key = name.replace(" %", "").replace('.', "_");
        (key, quantile(right, failed, share))
    };
    let mean = ("mean_us".to_owned(), mean(right_sum_us, right, failed));
    let longest = ("max_us".to_owned(), quantile(right, failed, 1.0));
    [mean].into_iter().chain(SHARES.map(share)).chain([longest])
}

/// Formats a time, with `>` for a lower bound.
pub(super) fn at_least(figure: Option<Figure>) -> String {
    figure.map_or_else(
        || "-".to_owned(),
        |one| format!("{}{}", if one.is_bound { ">" } else { "" }, millis(one.value)),
    )
}

fn millis(us: f64) -> String {
    match us / 1e3 {
        ms if ms < 10.0 => format!("{ms:.3}ms"),
        ms if ms < 1000.0 => format!("{ms:.1}ms"),
        ms => format!("{:.2}s", ms / 1e3),
    }
}

fn bytes(count: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (count, 0);
    while value >= 1000.0 && unit < units.len() - 1 {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// Formats a number with six significant digits, like `%g` in C, but without an exponent.
fn digits(value: f64) -> String {
    let before = if value >= 1.0 { value.log10().floor() as usize + 1 } else { 1 };
    let text = format!("{value:.*}", 6usize.saturating_sub(before));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Result in the format of http_load.
pub fn http_load(tally: &Tally) -> String {
    let took_s = tally.took.as_secs_f64().max(1e-9);
    let mut out = format!(
        "{} fetches, {} max parallel, {} bytes, in {} seconds\n",
        tally.responses,
        tally.parallel,
        tally.body_bytes,
        digits(took_s),
    );
    if tally.responses > 0 {
        let each = tally.body_bytes as f64 / tally.responses as f64;
        out += &format!("{} mean bytes/connection\n", digits(each));
    }
    let (fetches, bytes) = (tally.per_s(), tally.body_bytes as f64 / took_s);
    out += &format!("{} fetches/sec, {} bytes/sec\n", digits(fetches), digits(bytes));
    let times = [("connect", &tally.connect), ("first-response", &tally.first_byte)];
    // http_load omits times without data.
    for (name, times) in times.into_iter().filter(|(_, times)| times.count() > 0) {
        let ms = [times.mean_us(), times.max_us() as f64, times.min_us() as f64].map(|us| us / 1e3);
        let [mean, max, min] = ms.map(digits);
        out += &format!("msecs/{name}: {mean} mean, {max} max, {min} min\n");
    }
    let failed = |failure| tally.failures.get(&failure).copied().unwrap_or(0);
    for (failure, label) in [
        (LoadFailure::Timeout, "timeouts"),
        (LoadFailure::Length, "bad byte counts"),
        (LoadFailure::Checksum, "bad checksums"),
    ] {
        if failed(failure) > 0 {
            out += &format!("{} {label}\n", failed(failure));
        }
    }
    out += "HTTP response codes:\n";
    for (status, count) in &tally.statuses {
        out += &format!("  code {status} -- {count}\n");
    }
    out
}

/// Result for programs, and for comparing runs.
pub fn json(options: &LoadTestOptions, tally: &Tally) -> Value {
    let none = LoadTimes::default();
    let label = |failure: &LoadFailure| failure.label().to_owned();
    let failures: serde_json::Map<String, Value> =
        tally.failures.iter().map(|(failure, count)| (label(failure), (*count).into())).collect();
    let statuses: serde_json::Map<String, Value> = tally
        .statuses
        .iter()
        .map(|(status, count)| (status.to_string(), (*count).into()))
        .collect();
    json!({
        "url": options.urls.first().map(|url| format!("{}{}", url.authority, url.target)),
        "http2": options.http2,
        "streams": options.streams,
        "method": options.method,
        "keep_alive": options.keep_alive,
        "connections": options.connections,
        "threads": options.threads,
        "rate": options.rate,
        "timeout_s": options.timeout.as_secs_f64(),
        "seconds": tally.took.as_secs_f64(),
        "responses": tally.responses,
        "responses_per_s": tally.per_s(),
        "body_bytes": tally.body_bytes,
        "bytes": tally.bytes,
        "connections_made": tally.connections,
        "unsent": tally.unsent,
        "statuses": statuses,
        "failures": failures,
        "fault": tally.first_error,
        "connect_us": json_of_times(&tally.connect, &none),
        "first_byte_us": json_of_times(&tally.first_byte, &none),
        "total_us": json_of_times(&tally.total, &tally.lost),
        "interval_s": tally.intervals.length().as_secs_f64(),
        "intervals": tally.intervals.parts().iter().map(json_of_part).collect::<Vec<_>>(),
    })
}

fn json_of_times(right: &LoadTimes, failed: &LoadTimes) -> Value {
    let mut object = json!({
        "count": right.count() + failed.count(),
        "failed": failed.count(),
        "min_us": (right.count() > 0).then(|| right.min_us()),
    });
    let mut bounds = Vec::new();
    for (name, figure) in figures(right, failed) {
        object[&name] = match (figure, &*name) {
            (Some(figure), "mean_us") => figure.value.into(),
            (figure, _) => figure.map(|one| one.value as u64).into(),
        };
        bounds.extend(figure.filter(|one| one.is_bound).map(|_| name));
    }
    // Names of the figures that are lower bounds.
    object["at_least"] = bounds.into();
    object
}

fn json_of_part(part: &Interval) -> Value {
    let pairs = |spread: &Spread| spread.pairs().collect::<Vec<_>>();
    json!([part.responses, part.sum_us, pairs(&part.spread), pairs(&part.lost)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits() {
        for (value, wanted) in [
            (0.0, "0"),
            (28.893_24, "28.8932"),
            (10.0, "10"),
            (5_916_123.4, "5916123"),
            (0.03077, "0.03077"),
        ] {
            assert_eq!(digits(value), wanted);
        }
    }

    fn printed(tally: &Tally) -> (String, Value) {
        let options = LoadTestOptions::new(Vec::new());
        (text(&options, tally), json(&options, tally))
    }

    #[test]
    fn times_of_nothing_are_none() {
        let (text, value) = printed(&Tally::default());
        for name in ["connect", "first byte", "whole"] {
            let row = text.lines().find(|line| line.starts_with(name)).expect("a row");
            assert_eq!(row[name.len()..].split_whitespace().collect::<Vec<_>>(), ["-"; 8]);
        }
        assert!(text.contains("made no connection\n") && !text.contains("0.000"), "{text}");
        for name in ["connect_us", "first_byte_us", "total_us"] {
            let times = value[name].as_object().expect("an object");
            let of_nothing = times.iter().filter(|(_, figure)| figure.is_null()).count();
            assert_eq!((of_nothing, &times["count"], times.len()), (9, &0.into(), 12), "{value}");
        }
        let text = http_load(&Tally::default());
        assert!(!text.contains("msecs") && !text.contains("mean bytes"), "{text}");
    }

    #[test]
    fn failures_give_lower_bounds_in_the_report() {
        let mut tally = Tally::default();
        (0..50).for_each(|_| tally.end(0, 2000));
        (0..25).for_each(|_| tally.fail(LoadFailure::Timeout, 0, 1_000_000));
        (0..25).for_each(|_| tally.omit(0, 4));
        let (text, value) = printed(&tally);
        let row = text.lines().find(|line| line.starts_with("whole")).expect("a row");
        let figures: Vec<&str> = row.split_whitespace().skip(1).collect();
        // Unsent requests do not count as fast.
        let bounds = [">2.000ms", ">1.00s", ">1.00s", ">1.00s", ">1.00s", ">1.00s"];
        assert_eq!(figures[1..3], ["2.000ms", bounds[0]], "{text}");
        assert_eq!(figures[3..], bounds[1..], "{text}");
        assert!(figures[0].starts_with(">251.") && text.contains("; > stands before"), "{text}");
        let times = &value["total_us"];
        let at_least = ["mean_us", "75", "90", "99", "99_9", "99_99", "max_us"];
        assert_eq!(times["at_least"], json!(at_least), "{value}");
        assert_eq!((&times["count"], &times["failed"]), (&100.into(), &50.into()), "{value}");
        assert!(times["99"].as_u64() >= Some(1_000_000) && times["50"].as_u64() < Some(2100));
        assert_eq!(
            value["intervals"],
            json!([[50, 100_000, [[1920, 50]], [[4, 25], [983_040, 25]]]])
        );
        assert!(value["first_byte_us"]["at_least"] == json!([]), "{value}");
    }

    #[test]
    fn refused_connections_have_no_times_in_the_report() {
        let mut tally = Tally::default();
        (0..3).for_each(|_| tally.fail(LoadFailure::Refused, 0, 90));
        let (text, value) = printed(&tally);
        let row = text.lines().find(|line| line.starts_with("whole")).expect("a row");
        assert_eq!(row.split_whitespace().skip(1).collect::<Vec<_>>(), ["-"; 8], "{text}");
        let total = &value["total_us"];
        assert_eq!((&total["99"], &total["mean_us"]), (&Value::Null, &Value::Null), "{value}");
        assert_eq!((&total["failed"], &total["at_least"]), (&3.into(), &json!([])), "{value}");
    }
}
