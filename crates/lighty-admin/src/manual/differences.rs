//! Permanent differences from lighttpd. They live in one file of rows: the manual's table is
//! generated from it, and the comparison tests check each row against both servers.

use std::fmt::Write;

use super::GENERATED;

/// The rows as written.
const ROWS: &str = include_str!("differences.txt");

/// A permanent difference from lighttpd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Identifier for test cases.
    pub id: &'static str,
    /// The directive, or the kind of request.
    pub what: &'static str,
    /// Behaviour of lighttpd.
    pub lighttpd: &'static str,
    /// Behaviour of lighty.
    pub lighty: &'static str,
    /// Reason for the difference.
    pub because: &'static str,
    /// Reason why no request can show it, if none can.
    pub untested: &'static str,
    /// Conditions under which random requests show it; the file's header has the grammar.
    pub matches: Vec<&'static str>,
}

/// Every difference, in the table's order.
///
/// # Panics
/// If a row violates the grammar in the file's header, which a test would have caught.
#[must_use]
pub fn differences() -> Vec<Difference> {
    let lines = ROWS.lines().filter(|line| !line.starts_with('#'));
    let mut rows = Vec::new();
    let mut row = Difference::default();
    for line in lines.chain([""]) {
        if line.trim().is_empty() {
            rows.extend((!row.id.is_empty()).then(|| std::mem::take(&mut row)));
            continue;
        }
        let (word, text) = line.split_once(' ').unwrap_or((line, ""));
        let text = text.trim();
        match word {
            "id" => row.id = text,
            "what" => row.what = text,
            "lighttpd" => row.lighttpd = text,
            "lighty" => row.lighty = text,
            "because" => row.because = text,
            "untested" => row.untested = text,
            "match" => row.matches.push(text),
            _ => panic!("differences.txt: {line:?} is not understood"),
        }
    }
    rows
}

/// Renders the page.
pub(super) fn page() -> String {
    let mut page = format!(
        "{GENERATED}# Differences from lighttpd\n\n\
         All permanent differences from lighttpd 1.4 with the same configuration. Tests send the \
         same requests to both servers, with some hundred configurations, and compare every \
         response: a difference that is not in this table is a mistake; please report it. [Coming \
         from lighttpd](lighttpd.md) has the rest.\n\n\
         | | lighttpd | lighty | because |\n|---|---|---|---|\n"
    );
    for row in differences() {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            row.what, row.lighttpd, row.lighty, row.because
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_whole_and_has_a_name_of_its_own() {
        let rows = differences();
        assert!(rows.len() > 20);
        for (index, row) in rows.iter().enumerate() {
            let texts = [row.what, row.lighttpd, row.lighty, row.because];
            assert!(texts.iter().all(|text| !text.is_empty()), "{row:?}");
            assert!(!texts.iter().any(|text| text.contains('|')), "{row:?}");
            assert!(rows[..index].iter().all(|before| before.id != row.id), "{row:?}");
        }
    }
}
