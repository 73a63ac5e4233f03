//! Two runs beside each other, and whether their difference is noise.
//!
//! The parts of each run are drawn anew many times (a bootstrap of blocks: Künsch, 1989):
//! neighbours stay together, since a stall reaches over several. Where nearly all such pairs of
//! runs differ in one direction, the difference is not noise of these runs. What changes between
//! runs, as memory that lies elsewhere after a restart, shows only where several are made in turns.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::chance::Chance;
use super::intervals::{Interval, Intervals, Spread};
use crate::plain::plain;

/// Runs that are drawn.
const DRAWS: usize = 2000;

/// Draws that lie outside of what is told, in all.
const OUTSIDE: f64 = 0.01;

/// Parts that are drawn together: a second at their first length.
const BLOCK: usize = 5;

/// Of the numbers that draw.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// What no part of a run exceeds: buckets, responses, and the sum of their times in microseconds.
/// With these the sums of all parts stay in range.
const PAIRS_MAX: usize = 512;
const COUNT_MAX: u64 = 1 << 40;
const SUM_US_MAX: u64 = 1 << 50;

/// With fewer parts nothing can be said.
const PARTS_MIN: usize = 20;

/// A run that was measured before.
#[derive(Clone, Debug)]
pub struct Run {
    name: String,
    settings: Vec<(&'static str, String)>,
    failures: Vec<(String, u64)>,
    intervals: Intervals,
}

/// Settings that two runs should share.
const SETTINGS: [&str; 8] =
    ["url", "http2", "streams", "connections", "threads", "rate", "keep_alive", "method"];

impl Run {
    /// Reads what `lighty load --json` wrote.
    ///
    /// # Errors
    /// There is no such file, or it is another one.
    pub fn read(path: &Path) -> io::Result<Self> {
        let at = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
        let text = std::fs::read(path).map_err(at)?;
        let other = || at(io::Error::other("this is not what lighty load --json writes"));
        let value: Value = serde_json::from_slice(&text).map_err(|_| other())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self::of(&name, &value).ok_or_else(other)
    }

    fn of(name: &str, value: &Value) -> Option<Self> {
        let length = Duration::try_from_secs_f64(value["interval_s"].as_f64()?).ok()?;
        let parts = value["intervals"].as_array()?.iter().map(part).collect::<Option<Vec<_>>>()?;
        let intervals = Intervals::of(length, parts)?;
        let failures = value["failures"].as_object()?.iter();
        let failures = failures.filter_map(|(words, count)| Some((plain(words), count.as_u64()?)));
        Some(Self {
            name: plain(name),
            settings: SETTINGS
                .map(|setting| (setting, plain(&value[setting].to_string())))
                .to_vec(),
            failures: failures.collect(),
            intervals,
        })
    }

    /// The parts that were whole: not the last one, nor the first, in which connections were made.
    fn parts(&self) -> &[Interval] {
        let parts = self.intervals.parts();
        parts.get(1..parts.len().saturating_sub(1)).unwrap_or_default()
    }
}

fn part(value: &Value) -> Option<Interval> {
    let mut spread = Spread::default();
    let pairs = value[2].as_array()?;
    if pairs.len() > PAIRS_MAX {
        return None;
    }
    for pair in pairs {
        let (lowest_us, count) = (pair[0].as_u64()?, pair[1].as_u64()?);
        // An hour is the longest that is told apart.
        spread.add_pair(lowest_us.min(1 << 32), within(count, COUNT_MAX)?);
    }
    let (responses, sum_us) = (value[0].as_u64()?, value[1].as_u64()?);
    let responses = within(responses, COUNT_MAX)?;
    Some(Interval { responses, sum_us: within(sum_us, SUM_US_MAX)?, spread })
}

fn within(figure: u64, max: u64) -> Option<u64> {
    Some(figure).filter(|figure| *figure <= max)
}

/// What is compared: its name, what it is of parts of this length in seconds, and whether more is
/// better.
type Measure = (&'static str, fn(&Interval, f64) -> f64, bool);

const MEASURES: [Measure; 5] = [
    ("responses/s", |sum, seconds| sum.responses as f64 / seconds, true),
    ("mean", |sum, _| sum.sum_us as f64 / sum.responses.max(1) as f64, false),
    ("50 %", |sum, _| sum.spread.quantile_us(0.5), false),
    ("90 %", |sum, _| sum.spread.quantile_us(0.9), false),
    ("99 %", |sum, _| sum.spread.quantile_us(0.99), false),
];

/// How a measure of one run lies to that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Worse,
    Noise,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Noise => "noise",
        }
    }
}

/// The table, in words; about the second run.
pub fn compare(one: &Run, other: &Run) -> String {
    let mut out = String::new();
    // Writing to a text cannot fail.
    let _ = write_table(one, other, &mut out);
    out
}

fn write_table(one: &Run, other: &Run, out: &mut String) -> std::fmt::Result {
    for ((name, here), (_, there)) in one.settings.iter().zip(&other.settings) {
        if here != there {
            writeln!(out, "The runs differ in {name}: {here} and {there}.")?;
        }
    }
    let (mut one, mut other) = (one.clone(), other.clone());
    while one.intervals.length() < other.intervals.length() {
        one.intervals.widen();
    }
    while other.intervals.length() < one.intervals.length() {
        other.intervals.widen();
    }
    for run in [&one, &other] {
        for (words, count) in &run.failures {
            writeln!(out, "{}: {count} {words}", run.name)?;
        }
    }
    if let Some(short) = [&one, &other].into_iter().find(|run| run.parts().len() < PARTS_MIN) {
        let wanted_s = one.intervals.length().as_secs_f64() * (PARTS_MIN + 2) as f64;
        return writeln!(out, "{} is too short to tell: {wanted_s:.1} s are needed.", short.name);
    }
    if let Some(empty) = [&one, &other].into_iter().find(|run| sum(run.parts()).responses == 0) {
        return writeln!(out, "{} has no responses to compare.", empty.name);
    }
    let width = one.name.len().max(other.name.len()).max(11);
    writeln!(
        out,
        "{:12}{:>width$}  {:>width$}   change  99 % of such runs",
        "", one.name, other.name
    )?;
    let seconds = one.intervals.length().as_secs_f64();
    let changes = draw(one.parts(), other.parts(), seconds);
    for ((name, of, more_is_better), mut changes) in MEASURES.into_iter().zip(changes) {
        let value = |run: &Run| of(&sum(run.parts()), seconds * run.parts().len() as f64);
        let (here, there) = (value(&one), value(&other));
        changes.sort_by(f64::total_cmp);
        let at = |share: f64| changes[(share * (DRAWS - 1) as f64) as usize];
        let (low, high) = (at(OUTSIDE / 2.0), at(1.0 - OUTSIDE / 2.0));
        let show = |value: f64| match more_is_better {
            true => format!("{value:.0}"),
            false => super::report::millis(value),
        };
        writeln!(
            out,
            "{name:12}{:>width$}  {:>width$}  {:>+6.1} %  {low:>+6.1} to {high:>+6.1} %: {}",
            show(here),
            show(there),
            change(here, there),
            judge(low, high, more_is_better).words()
        )?;
    }
    Ok(())
}

fn judge(low: f64, high: f64, more_is_better: bool) -> Verdict {
    match (low > 0.0, high < 0.0) {
        (false, false) => Verdict::Noise,
        (is_more, _) if is_more == more_is_better => Verdict::Better,
        _ => Verdict::Worse,
    }
}

/// By how many percent a value differs from another.
fn change(from: f64, to: f64) -> f64 {
    if from > 0.0 { (to / from - 1.0) * 100.0 } else { 0.0 }
}

fn sum(parts: &[Interval]) -> Interval {
    let mut sum = Interval::default();
    parts.iter().for_each(|part| sum += part);
    sum
}

/// The changes of each measure, of runs drawn from two.
fn draw(one: &[Interval], other: &[Interval], seconds: f64) -> [Vec<f64>; MEASURES.len()] {
    let mut changes = MEASURES.map(|_| Vec::with_capacity(DRAWS));
    // The same two files have the same answer.
    let chance = Chance::new(SEED);
    for _ in 0..DRAWS {
        let (here, there) = (drawn(one, &chance), drawn(other, &chance));
        for ((_, of, _), changes) in MEASURES.iter().zip(&mut changes) {
            let (from, to) =
                (of(&here, seconds * one.len() as f64), of(&there, seconds * other.len() as f64));
            changes.push(change(from, to));
        }
    }
    changes
}

/// The sum of as many parts as a run has, in blocks that begin anywhere and go round at its end.
fn drawn(parts: &[Interval], chance: &Chance) -> Interval {
    let mut sum = Interval::default();
    let mut left = parts.len();
    while left > 0 {
        let start = chance.below(parts.len());
        for step in 0..BLOCK.min(left) {
            sum += &parts[(start + step) % parts.len()];
        }
        left -= BLOCK.min(left);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixty parts of about so many responses that take about so long.
    fn run(name: &str, responses: u64, us: u64, seed: u64) -> Run {
        let chance = Chance::new(seed);
        let mut intervals = Intervals::default();
        let length_us = intervals.length().as_micros() as u64;
        for part in 0..60 {
            let jitter = chance.below(1 + responses as usize / 10) as u64;
            for _ in 0..responses + jitter {
                intervals.note(part * length_us, us + chance.below(us as usize / 2) as u64);
            }
        }
        Run { name: name.to_owned(), settings: Vec::new(), failures: Vec::new(), intervals }
    }

    fn verdicts(table: &str) -> Vec<&str> {
        table.lines().skip(1).filter_map(|line| line.rsplit_once(": ")).map(|(_, v)| v).collect()
    }

    #[test]
    fn the_same_load_differs_by_noise_and_another_does_not() {
        let base = run("a", 200, 1000, 1);
        for seed in 2..7 {
            let table = compare(&base, &run("b", 200, 1000, seed));
            assert_eq!(verdicts(&table), ["noise"; 5], "{table}");
        }
        let table = compare(&base, &run("b", 230, 1000, 9));
        assert_eq!(verdicts(&table)[..2], ["better", "noise"], "{table}");
        let table = compare(&base, &run("b", 170, 1200, 9));
        assert_eq!(verdicts(&table), ["worse"; 5], "{table}");
    }

    #[test]
    fn a_stall_in_a_run_is_not_more_than_noise_in_its_rate() {
        let mut stalled = run("b", 200, 1000, 3);
        let mut parts = stalled.intervals.parts().to_vec();
        parts[30] = Interval::default();
        stalled.intervals = Intervals::of(stalled.intervals.length(), parts).expect("a run");
        let table = compare(&run("a", 200, 1000, 1), &stalled);
        assert_eq!(verdicts(&table)[0], "noise", "{table}");
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        // The first and the last part are left out.
        for (parts, tells) in [(PARTS_MIN + 2, true), (PARTS_MIN + 1, false), (0, false)] {
            let mut short = run("short", 10, 100, 1);
            let parts = short.intervals.parts()[..parts].to_vec();
            short.intervals = Intervals::of(short.intervals.length(), parts).expect("a run");
            let table = compare(&run("a", 10, 100, 1), &short);
            let is_short = table == "short is too short to tell: 4.4 s are needed.\n";
            assert_eq!(is_short, !tells, "{table}");
        }
        let mut silent = run("silent", 10, 100, 1);
        let nothing = vec![Interval::default(); 60];
        silent.intervals = Intervals::of(silent.intervals.length(), nothing).expect("a run");
        let table = compare(&silent, &run("a", 10, 100, 1));
        assert_eq!(table, "silent has no responses to compare.\n");
    }

    #[test]
    fn what_no_run_wrote_is_none() {
        use serde_json::json;
        let of = |interval_s: f64, count: u64, times: usize| {
            let parts = vec![json!([count, count, [[10, count]]]); times];
            let value = json!({
                "interval_s": interval_s, "intervals": parts, "failures": {"\u{1b}[2J": 1}
            });
            Run::of("x\n", &value)
        };
        let known = of(0.4, COUNT_MAX, 1500).expect("a run");
        assert_eq!((&*known.name, &*known.failures[0].0), ("x?", "?[2J"));
        assert!(compare(&known, &of(102.4, 5, 60).expect("a run")).contains("is too short"));
        for (interval_s, count, times) in [
            (0.0, 1, 60),
            (-1.0, 1, 60),
            (0.3, 1, 60),
            (1e18, 1, 60),
            (0.2, u64::MAX, 60),
            (0.2, COUNT_MAX + 1, 60),
            (0.2, 1, 1501),
        ] {
            assert!(of(interval_s, count, times).is_none(), "{interval_s} {count} {times}");
        }
        assert!(Run::of("x", &json!({"interval_s": 0.2})).is_none());
    }
}
