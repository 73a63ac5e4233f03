//! Runs lighttpd 1.4 and lighty side by side, with the same configuration, requests and programs
//! behind them. Statuses, header fields, bodies and the requests that programs see must be equal,
//! or the manual must list and justify the difference (`lighty-admin/src/manual/differences.txt`).
//!
//! Configurations are data (`cases/`, see [`case`]) or random combinations ([`random`]).
//! `LIGHTY_COMPAT_CASE=words` selects cases by a part of their name. `LIGHTY_COMPAT_PAIRS` sets the
//! number of random requests, `LIGHTY_COMPAT_SEED` their seed, and `LIGHTY_COMPAT_CONFIGURATION`
//! selects a single random configuration. The test `configurations_of_the_day` uses the days since
//! 1970 as its seed.

mod ajp;
mod case;
mod coding;
mod compare;
mod echo;
mod known;
mod multistatus;
mod pair;
mod random;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use lighty_admin::manual::differences::differences;

use case::{Ask, Case, Mark};
use compare::{Finding, compare};
use known::KnownDifferences;
use pair::ServerPair;

/// Defines a test for each data file.
macro_rules! features {
    ($($name:ident)*) => {
        const FEATURES: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*
    };
}

features! {
    aliases applications conditions directories distribution files gateways hosts index language logs manual14
    matching options packages pages places programs programs2 urls urls2 vhostdb webdav wire
}

/// Sends all requests of a data file, and fails with all findings.
#[track_caller]
fn run(feature: &str) {
    let Some(lighttpd) = pair::lighttpd() else { return };
    let only = std::env::var("LIGHTY_COMPAT_CASE").unwrap_or_default();
    let mut report = String::new();
    for case in case::read(feature).iter().filter(|case| case.name.contains(&only)) {
        report.push_str(&examine(feature, case, &lighttpd));
    }
    assert!(report.is_empty(), "\n{report}");
}

/// Returns the findings of a case as text; empty if there are none.
fn examine(feature: &str, case: &Case, lighttpd: &Path) -> String {
    let pair = ServerPair::start(case, lighttpd);
    let mut report = String::new();
    let head = format!("--- {feature}: {}", case.name);
    if let Some(module) = pair.missing_module() {
        eprintln!("SKIPPED: {}: lighttpd has no {module} here", case.name);
        return report;
    }
    let (theirs, ours) = match (&pair.lighttpd, &pair.lighty) {
        (Ok(theirs), Ok(ours)) if !case.refused => (theirs, ours),
        (Err(_), Err(_)) if case.refused => return report,
        (theirs, ours) => {
            let printed = |side: &Result<pair::Side, String>| match side {
                Ok(_) => "starts".to_owned(),
                Err(log) => format!("does not start: {log}"),
            };
            let finding =
                Finding { what: "start".into(), lighttpd: printed(theirs), lighty: printed(ours) };
            judge(&case.mark, &[finding], &head, &mut report);
            return report;
        }
    };
    let known = KnownDifferences::new();
    let mut answered = false;
    let mut differed = false;
    for ask in &case.asks {
        let (a, b) = (theirs.ask(ask), ours.ask(ask));
        answered |= a.iter().flatten().any(|response| response.status != 404);
        let mut findings = compare(&a, &b, ask.to_head, ask.loose);
        // With a log, the mark applies to the log line; the responses must be alike.
        let mark = if case.log.is_some() { &Mark::Alike } else { &ask.mark };
        if *mark == Mark::Alike {
            known.remove_from(&mut findings, case, ask, &a);
        }
        if case.mark != Mark::Alike {
            differed |= !findings.is_empty();
            continue;
        }
        judge(mark, &findings, &format!("{head}\n{}", shown(ask)), &mut report);
    }
    if let Some(log) = &case.log {
        let lines = [theirs, ours].map(|side| side.lines_of(log, case.asks.len()));
        compare_logs(case, &lines, &head, &mut report);
    }
    if case.mark != Mark::Alike && !differed {
        judge(&case.mark, &[], &head, &mut report);
    }
    if !answered {
        let _ = writeln!(report, "{head}\n  lighttpd answers nothing but 404, which tests nothing");
    }
    if !report.is_empty() && std::env::var_os("LIGHTY_COMPAT_LOGS").is_some() {
        let _ =
            writeln!(report, "  lighttpd wrote:\n{}  lighty wrote:\n{}", theirs.log(), ours.log());
    }
    report
}

/// Compares the lines of two logs, one for each request.
fn compare_logs(
    case: &Case,
    [lighttpd, lighty]: &[Vec<String>; 2],
    head: &str,
    report: &mut String,
) {
    let counts = [lighttpd.len(), lighty.len()];
    if counts != [case.asks.len(); 2] {
        let _ = writeln!(report, "{head}\n  lines of the log: lighttpd, lighty {counts:?}");
        return;
    }
    for (ask, (lighttpd, lighty)) in case.asks.iter().zip(lighttpd.iter().zip(lighty)) {
        let (lighttpd, lighty) = (lighttpd.clone(), lighty.clone());
        let finding = Finding { what: "line of the log".into(), lighttpd, lighty };
        let differs = (finding.lighttpd != finding.lighty).then_some(finding);
        judge(&ask.mark, differs.as_slice(), &format!("{head}\n{}", shown(ask)), report);
    }
}

/// Compares the findings with the known differences.
fn judge(mark: &Mark, findings: &[Finding], what: &str, report: &mut String) {
    match mark {
        Mark::Alike => {
            if !findings.is_empty() {
                let _ = writeln!(report, "{what}");
            }
            for finding in findings {
                let _ = writeln!(report, "  {finding}");
            }
        }
        Mark::Differs(id) if findings.is_empty() => {
            let _ = writeln!(report, "{what}\n  is answered alike, against the difference {id}");
        }
        Mark::Pending(item) if findings.is_empty() => {
            eprintln!("{what}\n  is answered alike now: {item} is no longer pending");
        }
        Mark::Differs(_) | Mark::Pending(_) => {}
    }
}

/// Short form of a request for reports.
fn shown(ask: &Ask) -> String {
    let text = String::from_utf8_lossy(&ask.bytes[..ask.bytes.len().min(400)]).into_owned();
    text.trim_end()
        .lines()
        .map(|line| format!("  > {line}\n"))
        .collect::<String>()
        .trim_end()
        .into()
}

#[test]
fn random_configurations() {
    let Some(lighttpd) = pair::lighttpd() else { return };
    let report = random::run(&lighttpd);
    assert!(report.is_empty(), "\n{report}");
}

/// Runs other configurations each day. The report names the seed, which replays a failure.
#[test]
fn configurations_of_the_day() {
    let Some(lighttpd) = pair::lighttpd() else { return };
    let report = random::run_of_the_day(&lighttpd);
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn every_data_file_is_a_test() {
    let found = std::fs::read_dir(case::directory()).expect("the data files").flatten();
    let found: BTreeSet<String> = found
        .map(|f| f.path().file_stem().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    let listed: BTreeSet<String> = FEATURES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, listed);
    let cases: usize = FEATURES.iter().map(|feature| case::read(feature).len()).sum();
    let asks: usize =
        FEATURES.iter().flat_map(|feature| case::read(feature)).map(|case| case.asks.len()).sum();
    eprintln!("{cases} configurations, {asks} requests");
}

/// A row of the table without a case could become untrue unnoticed.
#[test]
fn every_difference_is_shown_by_a_case() {
    let mut shown = BTreeSet::new();
    for case in FEATURES.iter().flat_map(|feature| case::read(feature)) {
        for mark in case.asks.iter().map(|ask| &ask.mark).chain([&case.mark]) {
            if let Mark::Differs(id) = mark {
                shown.insert(id.clone());
            }
        }
    }
    let rows = differences();
    for id in &shown {
        assert!(rows.iter().any(|row| row.id == id), "{id} is no row of the differences");
    }
    for row in &rows {
        let is_shown = shown.contains(row.id);
        assert!(is_shown || !row.untested.is_empty(), "no case shows {}", row.id);
        assert!(!is_shown || row.untested.is_empty(), "{} is tested", row.id);
    }
}
