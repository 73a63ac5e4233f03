//! What came of the load, in words and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::options::Options;
use super::tally::{Failure, Tally, Times};

/// Shares of responses whose times are told.
const SHARES: [(&str, f64); 6] = [
    ("50 %", 0.5),
    ("75 %", 0.75),
    ("90 %", 0.9),
    ("99 %", 0.99),
    ("99.9 %", 0.999),
    ("99.99 %", 0.9999),
];

/// For people.
pub fn text(options: &Options, tally: &Tally) -> String {
    let mut out = String::new();
    // Writing to a text cannot fail.
    let _ = write_text(options, tally, &mut out);
    out
}

fn write_text(options: &Options, tally: &Tally, out: &mut String) -> std::fmt::Result {
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
    writeln!(out, "made {} connections, {} in use at a time", tally.connections, tally.parallel)?;
    let head: Vec<String> = SHARES.iter().map(|(name, _)| format!("{name:>9}")).collect();
    writeln!(out, "\n{:12}{:>9}{}{:>9}", "", "mean", head.join(""), "longest")?;
    let label = if options.rate.is_some() { "from due" } else { "whole" };
    for (name, times) in
        [("connect", &tally.connect), ("first byte", &tally.first_byte), (label, &tally.total)]
    {
        writeln!(out, "{name:12}{}", row(times))?;
    }
    match options.rate {
        Some(_) => writeln!(
            out,
            "Times count from when a request was due, whether or not it could be sent then."
        )?,
        None => writeln!(
            out,
            "Each connection waited for its response before it asked again: a stall delays requests \
             that are then not made. --rate shows what users feel."
        )?,
    }
    for (failure, count) in &tally.failures {
        let has_words =
            matches!(failure, Failure::Connect | Failure::Handshake | Failure::Protocol);
        let why = tally.trouble.as_ref().filter(|_| has_words);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        writeln!(out, "{count} {}{why}", failure.words())?;
    }
    if tally.unsent > 0 {
        writeln!(out, "{} requests were due, and no connection was free for them", tally.unsent)?;
    }
    Ok(())
}

fn row(times: &Times) -> String {
    let mut text = format!("{:>9}", millis(times.mean_us()));
    for (_, share) in SHARES {
        text += &format!("{:>9}", millis(times.quantile_us(share) as f64));
    }
    text + &format!("{:>9}", millis(times.max_us() as f64))
}

pub(super) fn millis(us: f64) -> String {
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

/// Six digits that count, as the `%g` of C has them, but never with an exponent.
fn digits(value: f64) -> String {
    let before = if value >= 1.0 { value.log10().floor() as usize + 1 } else { 1 };
    let text = format!("{value:.*}", 6usize.saturating_sub(before));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// In the form of http_load.
pub fn http_load(tally: &Tally) -> String {
    let took_s = tally.took.as_secs_f64().max(1e-9);
    let each = tally.body_bytes as f64 / (tally.responses.max(1)) as f64;
    let times = |times: &Times| {
        let ms = [times.mean_us(), times.max_us() as f64, times.min_us() as f64].map(|us| us / 1e3);
        format!("{} mean, {} max, {} min", digits(ms[0]), digits(ms[1]), digits(ms[2]))
    };
    let mut out = format!(
        "{} fetches, {} max parallel, {} bytes, in {} seconds\n\
         {} mean bytes/connection\n{} fetches/sec, {} bytes/sec\n\
         msecs/connect: {}\nmsecs/first-response: {}\n",
        tally.responses,
        tally.parallel,
        tally.body_bytes,
        digits(took_s),
        digits(each),
        digits(tally.per_s()),
        digits(tally.body_bytes as f64 / took_s),
        times(&tally.connect),
        times(&tally.first_byte),
    );
    let failed = |failure| tally.failures.get(&failure).copied().unwrap_or(0);
    for (failure, words) in [
        (Failure::Timeout, "timeouts"),
        (Failure::Length, "bad byte counts"),
        (Failure::Checksum, "bad checksums"),
    ] {
        if failed(failure) > 0 {
            out += &format!("{} {words}\n", failed(failure));
        }
    }
    out += "HTTP response codes:\n";
    for (status, count) in &tally.statuses {
        out += &format!("  code {status} -- {count}\n");
    }
    out
}

/// For programs, and to compare runs.
pub fn json(options: &Options, tally: &Tally) -> Value {
    let times = |times: &Times| {
        let mut object = json!({
            "count": times.count(), "mean_us": times.mean_us(), "max_us": times.max_us(),
            "min_us": times.min_us(),
        });
        for (name, share) in SHARES {
            object[name.replace(" %", "").replace('.', "_").as_str()] =
                times.quantile_us(share).into();
        }
        object
    };
    let words = |failure: &Failure| failure.words().to_owned();
    let failures: serde_json::Map<String, Value> =
        tally.failures.iter().map(|(failure, count)| (words(failure), (*count).into())).collect();
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
        "seconds": tally.took.as_secs_f64(),
        "responses": tally.responses,
        "responses_per_s": tally.per_s(),
        "body_bytes": tally.body_bytes,
        "bytes": tally.bytes,
        "connections_made": tally.connections,
        "unsent": tally.unsent,
        "statuses": statuses,
        "failures": failures,
        "fault": tally.trouble,
        "connect_us": times(&tally.connect),
        "first_byte_us": times(&tally.first_byte),
        "total_us": times(&tally.total),
        "interval_s": tally.intervals.length().as_secs_f64(),
        "intervals": tally.intervals.parts().iter()
            .map(|one| json!([one.responses, one.sum_us, one.spread.pairs().collect::<Vec<_>>()]))
            .collect::<Vec<_>>(),
    })
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
}
