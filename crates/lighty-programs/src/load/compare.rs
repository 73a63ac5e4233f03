//! Compares two runs, and decides whether their difference is noise.
//!
//! The parts of each run are resampled many times (block bootstrap: Künsch, 1989). Neighbouring
//! parts stay together, since a stall affects several of them. If nearly all resampled pairs differ
//! in one direction, the difference is not noise within these runs. Variation between runs, such as
//! another memory layout after a restart, only shows if several runs are made in alternation.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::felt::{Figure, Sorted};
use super::intervals::{Interval, Intervals, Spread};
use super::report::{UNSENT, at_least};
use super::tally::LoadFailure;
use crate::plain::plain;

/// Number of resamples.
const DRAWS: usize = 2000;

/// Fraction of resamples outside the reported interval, both sides together.
const OUTSIDE: f64 = 0.01;

/// Parts that are drawn together: one second at their initial length.
const BLOCK: usize = 5;

/// Seed of the resampling.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// Upper limits of a part of a run: buckets, responses, and the sum of their times in microseconds.
/// They keep the sums of all parts in range.
const PAIRS_MAX: usize = 512;
const COUNT_MAX: u64 = 1 << 40;
const SUM_US_MAX: u64 = 1 << 50;

/// Minimum number of parts for a comparison.
const PARTS_MIN: usize = 20;

/// A recorded run.
#[derive(Clone, Debug)]
pub struct RecordedRun {
    name: String,
    settings: Vec<(&'static str, String)>,
    failures: Vec<(String, u64)>,
    intervals: Intervals,
}

/// Settings that two runs should share, if both files contain them.
const SETTINGS: [&str; 9] = [
    "url",
    "http2",
    "streams",
    "connections",
    "threads",
    "rate",
    "keep_alive",
    "method",
    "timeout_s",
];

/// Index of the failed requests in a part. Older files do not have them per part.
const FAILED_AT: usize = 3;

impl RecordedRun {
    /// Reads the output of `lighty load --json`.
    ///
    /// # Errors
    /// The file does not exist, or has another format.
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
        let written = value["intervals"].as_array()?;
        let mut parts = written.iter().map(part).collect::<Option<Vec<_>>>()?;
        let failures = value["failures"].as_object()?.iter();
        let failures = failures.filter_map(|(name, count)| Some((plain(name), count.as_u64()?)));
        let unsent = value["unsent"].as_u64().filter(|count| *count > 0);
        let failures: Vec<_> =
            failures.chain(unsent.map(|count| (UNSENT.to_owned(), count))).collect();
        if written.iter().all(|part| part.get(FAILED_AT).is_none()) {
            spread_evenly(&mut parts, &failures)?;
        }
        let setting = |name| Some((name, plain(&value.get(name)?.to_string())));
        Some(Self {
            name: plain(name),
            settings: SETTINGS.into_iter().filter_map(setting).collect(),
            failures,
            intervals: Intervals::of(length, parts)?,
        })
    }

    /// The complete parts: without the last one, and without the first, in which connections were
    /// made.
    fn parts(&self) -> &[Interval] {
        let parts = self.intervals.parts();
        parts.get(1..parts.len().saturating_sub(1)).unwrap_or_default()
    }
}

fn part(value: &Value) -> Option<Interval> {
    let lost = value.get(FAILED_AT).map_or(Some(Spread::default()), spread)?;
    let (responses, sum_us) = (value[0].as_u64()?, value[1].as_u64()?);
    Some(Interval {
        responses: within(responses, COUNT_MAX)?,
        sum_us: within(sum_us, SUM_US_MAX)?,
        spread: spread(&value[2])?,
        failed: lost.count(),
        lost,
    })
}

fn spread(pairs: &Value) -> Option<Spread> {
    let pairs = pairs.as_array().filter(|pairs| pairs.len() <= PAIRS_MAX)?;
    let mut spread = Spread::default();
    for pair in pairs {
        let (lowest_us, count) = (pair[0].as_u64()?, pair[1].as_u64()?);
        // Times beyond an hour are not distinguished.
        spread.add_pair(lowest_us.min(1 << 32), within(count, COUNT_MAX)?);
    }
    Some(spread)
}

/// Spreads failures evenly over all parts if their times were not recorded. Unexpected responses
/// are already among the times of their parts.
fn spread_evenly(parts: &mut [Interval], failures: &[(String, u64)]) -> Option<()> {
    let has_response = |name: &str| {
        let known = [LoadFailure::Status, LoadFailure::Length, LoadFailure::Checksum];
        known.into_iter().any(|failure| failure.label() == name)
    };
    let (mut failed, mut unanswered) = (0u64, 0);
    for (name, count) in failures {
        failed = within(failed.checked_add(*count)?, COUNT_MAX)?;
        unanswered += if has_response(name) { 0 } else { *count };
    }
    let whole = parts.len() as u64;
    for (at, part) in (0..).zip(parts) {
        // Rounds in the middle of a part's share, so that the last part does not get more than
        // others.
        let until = |count: u64, at: u64| (count * at + whole / 2) / whole;
        let of = |count| until(count, at + 1) - until(count, at);
        part.failed = of(failed);
        part.lost.add_pair(0, of(unanswered));
    }
    Some(())
}

fn within(figure: u64, max: u64) -> Option<u64> {
    Some(figure).filter(|figure| *figure <= max)
}

/// A compared quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Measure {
    /// Responses per second.
    Rate,
    /// The mean time.
    Mean,
    /// The time within which this share of requests completed.
    Share(f64),
    /// The share of requests that failed.
    Failed,
}

/// Measures by name. The last one affects the verdicts on the others.
const MEASURES: [(&str, Measure); 6] = [
    ("responses/s", Measure::Rate),
    ("mean", Measure::Mean),
    ("50 %", Measure::Share(0.5)),
    ("90 %", Measure::Share(0.9)),
    ("99 %", Measure::Share(0.99)),
    ("failed", Measure::Failed),
];

impl Measure {
    /// The value for parts that take `seconds` together.
    fn of(self, sum: &Interval, seconds: f64) -> Figure {
        let exact = |value| Figure { value, is_bound: false };
        match self {
            Self::Rate => exact(sum.responses as f64 / seconds),
            Self::Mean => sum.mean().unwrap_or_default(),
            Self::Share(share) => sum.quantile(share).unwrap_or_default(),
            Self::Failed => exact(sum.failed_share() * 100.0),
        }
    }

    /// The change in percent, or for shares in percentage points.
    fn change(self, from: f64, to: f64) -> f64 {
        match self {
            Self::Failed => to - from,
            _ if from > 0.0 => (to / from - 1.0) * 100.0,
            _ => 0.0,
        }
    }

    fn show(self, figure: Figure) -> String {
        match self {
            Self::Rate => format!("{:.0}", figure.value),
            Self::Mean | Self::Share(_) => at_least(Some(figure)),
            Self::Failed => format!("{:.2} %", figure.value),
        }
    }

    /// The change, with its bounds and verdict.
    fn show_change(self, row: &MeasureRow) -> String {
        let MeasureRow { change, low, high, verdict, .. } = row;
        let word = verdict.label();
        match self {
            Self::Failed => format!("{change:>+6.2} pt {low:>+6.2} to {high:>+6.2} pt: {word}"),
            _ => format!("{change:>+6.1} %  {low:>+6.1} to {high:>+6.1} %: {word}"),
        }
    }
}

/// Verdict on a measure of one run relative to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MeasureVerdict {
    Better,
    Worse,
    Noise,
    /// More than noise, but failures prevent an interpretation.
    Unclear,
}

impl MeasureVerdict {
    fn label(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Noise => "noise",
            Self::Unclear => "unclear",
        }
    }
}

/// A measure of two runs.
struct MeasureRow {
    measure: Measure,
    here: Figure,
    there: Figure,
    change: f64,
    low: f64,
    high: f64,
    verdict: MeasureVerdict,
}

impl MeasureRow {
    /// Adjusts the verdict for the change in failures.
    fn settle(&mut self, failures: MeasureVerdict) {
        let are_bounds = self.here.is_bound && self.there.is_bound;
        let is_unclear = match (self.verdict, failures) {
            // Serving fewer requests does not count as faster.
            (MeasureVerdict::Better, MeasureVerdict::Worse) => true,
            // The earlier times are only lower bounds.
            (MeasureVerdict::Worse, MeasureVerdict::Better) => self.here.is_bound,
            (MeasureVerdict::Better | MeasureVerdict::Worse, _) => {
                are_bounds && matches!(self.measure, Measure::Share(_))
            }
            (MeasureVerdict::Noise | MeasureVerdict::Unclear, _) => false,
        };
        if is_unclear {
            self.verdict = MeasureVerdict::Unclear;
        }
    }
}

/// The comparison as a table, from the point of view of the second run.
pub fn compare(one: &RecordedRun, other: &RecordedRun) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(one, other, &mut out);
    out
}

fn write_table(one: &RecordedRun, other: &RecordedRun, out: &mut String) -> std::fmt::Result {
    for (name, here) in &one.settings {
        let there = other.settings.iter().find(|(setting, _)| setting == name);
        if let Some((_, there)) = there.filter(|(_, there)| there != here) {
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
        for (name, count) in &run.failures {
            writeln!(out, "{}: {count} {name}", run.name)?;
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
    let rows = rows(&one, &other);
    for ((name, measure), row) in MEASURES.iter().zip(&rows) {
        let [here, there] = [row.here, row.there].map(|figure| measure.show(figure));
        let change = measure.show_change(row);
        writeln!(out, "{name:12}{here:>width$}  {there:>width$}  {change}")?;
    }
    if rows.last().is_some_and(|row| row.verdict == MeasureVerdict::Worse) {
        let name = &other.name;
        writeln!(out, "Since more requests failed in {name}, nothing of it is called better.")?;
    }
    Ok(())
}

fn rows(one: &RecordedRun, other: &RecordedRun) -> Vec<MeasureRow> {
    let seconds = one.intervals.length().as_secs_f64();
    let changes = draw(one.parts(), other.parts(), seconds);
    let row = |((_, measure), mut changes): ((&str, Measure), Vec<f64>)| {
        let of =
            |run: &RecordedRun| measure.of(&sum(run.parts()), seconds * run.parts().len() as f64);
        let (here, there) = (of(one), of(other));
        changes.sort_by(f64::total_cmp);
        let at = |share: f64| changes[(share * (DRAWS - 1) as f64) as usize];
        let (low, high) = (at(OUTSIDE / 2.0), at(1.0 - OUTSIDE / 2.0));
        let verdict = judge(low, high, measure == Measure::Rate);
        let change = measure.change(here.value, there.value);
        MeasureRow { measure, here, there, change, low, high, verdict }
    };
    let mut rows: Vec<MeasureRow> = MEASURES.into_iter().zip(changes).map(row).collect();
    let failures = rows.last().map_or(MeasureVerdict::Noise, |row| row.verdict);
    rows.iter_mut().for_each(|row| row.settle(failures));
    rows
}

fn judge(low: f64, high: f64, more_is_better: bool) -> MeasureVerdict {
    match (low > 0.0, high < 0.0) {
        (false, false) => MeasureVerdict::Noise,
        (is_more, _) if is_more == more_is_better => MeasureVerdict::Better,
        _ => MeasureVerdict::Worse,
    }
}

fn sum(parts: &[Interval]) -> Interval {
    let mut sum = Interval::default();
    parts.iter().for_each(|part| sum += part);
    sum
}

/// The changes of each measure between resampled runs.
fn draw(one: &[Interval], other: &[Interval], seconds: f64) -> [Vec<f64>; MEASURES.len()] {
    let mut changes = MEASURES.map(|_| Vec::with_capacity(DRAWS));
    // The same two files must give the same result.
    let mut chance = fastrand::Rng::with_seed(SEED);
    for _ in 0..DRAWS {
        let (here, there) = (drawn(one, &mut chance), drawn(other, &mut chance));
        for ((_, measure), changes) in MEASURES.iter().zip(&mut changes) {
            let from = measure.of(&here, seconds * one.len() as f64);
            let to = measure.of(&there, seconds * other.len() as f64);
            changes.push(measure.change(from.value, to.value));
        }
    }
    changes
}

/// The sum of as many parts as the run has, drawn in blocks that start at random positions and wrap
/// around.
fn drawn(parts: &[Interval], chance: &mut fastrand::Rng) -> Interval {
    let mut sum = Interval::default();
    let mut left = parts.len();
    while left > 0 {
        let start = chance.usize(..parts.len());
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

    /// A run of sixty parts with about `responses` responses each, which take about `us`.
    fn run(name: &str, responses: u64, us: u64, seed: u64) -> RecordedRun {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut intervals = Intervals::default();
        let length_us = intervals.length().as_micros() as u64;
        for part in 0..60 {
            let jitter = chance.u64(..1 + responses / 10);
            for _ in 0..responses + jitter {
                intervals.at(part * length_us).end(us + chance.u64(..us / 2));
            }
        }
        RecordedRun { name: name.to_owned(), settings: Vec::new(), failures: Vec::new(), intervals }
    }

    fn verdicts(table: &str) -> Vec<&str> {
        table.lines().skip(1).filter_map(|line| line.rsplit_once(": ")).map(|(_, v)| v).collect()
    }

    #[test]
    fn the_same_load_differs_by_noise_and_another_does_not() {
        let base = run("a", 200, 1000, 1);
        for seed in 2..7 {
            let table = compare(&base, &run("b", 200, 1000, seed));
            assert_eq!(verdicts(&table), ["noise"; 6], "{table}");
        }
        let table = compare(&base, &run("b", 230, 1000, 9));
        assert_eq!(verdicts(&table)[..2], ["better", "noise"], "{table}");
        let table = compare(&base, &run("b", 170, 1200, 9));
        assert_eq!(verdicts(&table)[..5], ["worse"; 5], "{table}");
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

    /// Adds `count` failed requests to each part of a run, which failed after `waited_us`.
    fn failing(mut run: RecordedRun, count: u64, waited_us: u64) -> RecordedRun {
        let mut parts = run.intervals.parts().to_vec();
        for part in &mut parts {
            (0..count).for_each(|_| part.fail(waited_us, false));
        }
        run.intervals = Intervals::of(run.intervals.length(), parts).expect("a run");
        run
    }

    #[test]
    fn a_run_of_which_half_fails_is_not_better() {
        let slow = run("a", 200, 2000, 1);
        let quick = |name| run(name, 100, 1000, 2);
        // Requests that hang, and requests that are refused at once.
        for waited_us in [1_000_000, 100] {
            let table = compare(&slow, &failing(quick("b"), 100, waited_us));
            let found = verdicts(&table);
            assert!(!found.contains(&"better"), "{table}");
            assert_eq!((found[0], found[5]), ("worse", "worse"), "{table}");
            assert!(table.contains("Since more requests failed in b, nothing of it"), "{table}");
            // The requests that do not fail were faster.
            assert_eq!(found[2], "unclear", "{table}");
            assert!(table.lines().any(|line| line.starts_with("99 %") && line.contains(" >")));
        }
        let table = compare(&slow, &failing(quick("b"), 100, 1_000_000));
        assert_eq!(verdicts(&table)[3..], ["worse"; 3], "{table}");
        let table = compare(&failing(quick("b"), 100, 1_000_000), &slow);
        assert_eq!(verdicts(&table)[3..], ["better"; 3], "{table}");
    }

    #[test]
    fn failures_that_come_at_one_time_are_noise() {
        let (base, mut other) = (run("a", 200, 1000, 1), run("b", 200, 1000, 2));
        let mut parts = other.intervals.parts().to_vec();
        (0..50).for_each(|_| parts[30].fail(1000, false));
        other.intervals = Intervals::of(other.intervals.length(), parts).expect("a run");
        let table = compare(&base, &other);
        assert_eq!(verdicts(&table)[5], "noise", "{table}");
        let table = compare(&base, &failing(run("b", 200, 1000, 2), 2, 1000));
        assert_eq!(verdicts(&table)[5], "worse", "{table}");
    }

    #[test]
    fn bounds_are_not_taken_for_times() {
        let row = |verdict, here, there| MeasureRow {
            measure: Measure::Share(0.99),
            here: Figure { value: 1.0, is_bound: here },
            there: Figure { value: 1.0, is_bound: there },
            change: 0.0,
            low: 0.0,
            high: 0.0,
            verdict,
        };
        let settled = |mut row: MeasureRow, failures| {
            row.settle(failures);
            row.verdict
        };
        for (verdict, here, there, failures, wanted) in [
            (MeasureVerdict::Better, false, false, MeasureVerdict::Noise, MeasureVerdict::Better),
            (MeasureVerdict::Better, true, false, MeasureVerdict::Better, MeasureVerdict::Better),
            (MeasureVerdict::Better, false, false, MeasureVerdict::Worse, MeasureVerdict::Unclear),
            (MeasureVerdict::Worse, false, true, MeasureVerdict::Worse, MeasureVerdict::Worse),
            (MeasureVerdict::Worse, true, false, MeasureVerdict::Better, MeasureVerdict::Unclear),
            (MeasureVerdict::Worse, false, false, MeasureVerdict::Better, MeasureVerdict::Worse),
            (MeasureVerdict::Worse, true, true, MeasureVerdict::Noise, MeasureVerdict::Unclear),
            (MeasureVerdict::Better, true, true, MeasureVerdict::Noise, MeasureVerdict::Unclear),
            (MeasureVerdict::Noise, true, true, MeasureVerdict::Worse, MeasureVerdict::Noise),
        ] {
            assert_eq!(settled(row(verdict, here, there), failures), wanted);
        }
        // A single failure among thousands does not prevent a comparison of means.
        let mean = MeasureRow { measure: Measure::Mean, ..row(MeasureVerdict::Better, true, true) };
        assert_eq!(settled(mean, MeasureVerdict::Noise), MeasureVerdict::Better);
    }

    #[test]
    fn runs_that_do_not_say_when_requests_failed_are_read() {
        use serde_json::json;
        let old = |name: &str, failures: Value, unsent: u64| {
            let parts = vec![json!([100, 200_000, [[1920, 100]]]); 62];
            let value = json!({
                "interval_s": 0.2, "intervals": parts, "failures": failures, "unsent": unsent,
                "rate": null,
            });
            RecordedRun::of(name, &value).expect("a run")
        };
        let well = old("well", json!({}), 0);
        assert_eq!(verdicts(&compare(&well, &well)), ["noise"; 6]);
        let hung = old("hung", json!({"responses timed out": 6000}), 200);
        let parts = hung.intervals.parts();
        assert!(parts.iter().all(|part| (part.failed, part.lost.count()) == (100, 100)));
        let table = compare(&well, &hung);
        assert!(table.contains(&format!("hung: 200 {UNSENT}\n")), "{table}");
        assert!(table.contains("failed           0.00 %      50.00 %  +50.00 pt"), "{table}");
        assert_eq!(verdicts(&table)[3..], ["worse"; 4], "{table}");
        // Such responses are counted among the others.
        let wrong = old("wrong", json!({"unexpected statuses": 6200}), 0);
        assert!(compare(&well, &wrong).contains(" 100.00 %"));
        let one = old("one", json!({"responses timed out": 1}), 0);
        assert_eq!(one.intervals.parts()[30].failed, 1);
        // A setting missing in one file does not count as different.
        let mut timed = well.clone();
        timed.settings.push(("timeout_s", "1.0".to_owned()));
        assert!(!compare(&well, &timed).contains("differ"));
        timed.settings[0].1 = "5".to_owned();
        assert!(compare(&well, &timed).contains("The runs differ in rate: null and 5."));
    }

    #[test]
    fn runs_too_short_or_empty_are_not_compared() {
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
    fn malformed_record_of_a_run_is_none() {
        use serde_json::json;
        let of = |interval_s: f64, count: u64, times: usize| {
            let parts = vec![json!([count, count, [[10, count]]]); times];
            let value = json!({
                "interval_s": interval_s, "intervals": parts, "failures": {"\u{1b}[2J": 1}
            });
            RecordedRun::of("x\n", &value)
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
        let with = |failures: Value, lost: Value| {
            let parts = vec![json!([1, 1, [[10, 1]], lost]); 30];
            let value = json!({"interval_s": 0.2, "intervals": parts, "failures": failures});
            RecordedRun::of("x", &value)
        };
        assert_eq!(with(json!({}), json!([[9, 2]])).expect("a run").intervals.parts()[0].failed, 2);
        assert!(with(json!({}), json!([[9, u64::MAX]])).is_none());
        assert!(with(json!({}), json!(5)).is_none());
        let many = json!({"interval_s": 0.2, "intervals": [], "failures": {"a": u64::MAX, "b": 1}});
        assert!(RecordedRun::of("x", &many).is_none());
        assert!(RecordedRun::of("x", &json!({"interval_s": 0.2})).is_none());
    }
}
