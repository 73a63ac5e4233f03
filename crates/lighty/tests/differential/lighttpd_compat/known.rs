//! Differences that apply to every case: the rows of the table describe how to recognize them.

use lighty_admin::manual::differences::{Difference, differences};
use lighty_testkit::response::Response;

use super::case::{Ask, Case};
use super::compare::Finding;

/// Rows that describe how to recognize their difference.
pub(crate) struct KnownDifferences {
    rows: Vec<Difference>,
}

impl KnownDifferences {
    pub(crate) fn new() -> Self {
        let mut rows = differences();
        rows.retain(|row| !row.matches.is_empty());
        Self { rows }
    }

    /// Removes the findings that a row explains.
    pub(crate) fn remove_from(
        &self,
        findings: &mut Vec<Finding>,
        case: &Case,
        ask: &Ask,
        lighttpd: &[Result<Response, String>],
    ) {
        if findings.is_empty() {
            return;
        }
        let status = lighttpd.first().and_then(|answer| answer.as_ref().ok()).map(|a| a.status);
        let request = String::from_utf8_lossy(&ask.bytes);
        findings.retain(|finding| {
            let lines = self.rows.iter().flat_map(|row| &row.matches);
            let explains = |line: &&str| {
                line.split(';').map(str::trim).all(|term| match term.split_once(' ') {
                    Some(("request", text)) => request.contains(text),
                    Some(("config", text)) => case.config.contains(text),
                    Some(("order", modules)) => stand_in_order(&case.modules, modules),
                    Some(("answer", text)) => {
                        status.map_or("none".to_owned(), |status| status.to_string()) == text
                    }
                    _ => is_seen(term, &finding.what),
                })
            };
            !lines.clone().any(explains)
        });
    }
}

/// Compares a term with a finding word by word; `*` matches any word.
fn is_seen(term: &str, what: &str) -> bool {
    let mut seen = what.split(' ');
    term.split(' ').all(|word| seen.next().is_some_and(|other| word == "*" || word == other))
        && seen.next().is_none()
}

/// Returns true if both modules are listed, the first before the second.
fn stand_in_order(listed: &[String], two: &str) -> bool {
    let place = |name: &str| listed.iter().position(|module| module == name);
    let Some((first, second)) = two.split_once(' ') else { return false };
    matches!((place(first), place(second)), (Some(first), Some(second)) if first < second)
}
