//! Test cases of a corpus, replayed in one piece and in every cut.

use std::collections::HashSet;
use std::fmt::Write;

pub(crate) use crate::case_files::Case;
use crate::case_files::load_all;
use lighty_testkit::shredder::{byte_by_byte, every_split, random_fragments};

/// Longer inputs are cut at random positions, because cutting at every position takes too long.
const EVERY_SPLIT_BYTES_MAX: usize = 1024;

/// Runs all cases of a folder of `testdata`. `run` describes the result for the pieces of a case.
pub(crate) fn replay_all(folder: &str, cases_min: usize, run: impl Fn(&Case, &[&[u8]]) -> String) {
    let cases = load_all(folder, "http");
    assert!(cases.len() >= cases_min, "only {} cases were found", cases.len());
    let mut names = HashSet::new();
    let mut failures = String::new();
    for case in &cases {
        assert!(names.insert(&case.name), "two cases are called {}", case.name);
        if let Err(reason) = replay(case, &run) {
            writeln!(failures, "{}: {reason}", case.name).expect("a String takes all");
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn replay(case: &Case, run: &impl Fn(&Case, &[&[u8]]) -> String) -> Result<(), String> {
    let whole = run(case, &[&case.input]);
    check(&case.expected, &whole)?;
    let mut result = Ok(());
    let mut compare = |pieces: &[&[u8]]| {
        let cut = run(case, pieces);
        if cut != whole && result.is_ok() {
            let lens: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
            result = Err(format!("in pieces of {lens:?}: {cut}, in one: {whole}"));
        }
    };
    if case.input.len() <= EVERY_SPLIT_BYTES_MAX {
        every_split(&case.input, &mut compare);
    }
    byte_by_byte(&case.input, &mut compare);
    random_fragments(&case.input, 1, 20, &mut compare);
    result
}

/// Checks that every expected word is in the actual result.
fn check(expected: &str, actual: &str) -> Result<(), String> {
    let text: HashSet<&str> = actual.split(' ').collect();
    match expected.split(' ').find(|word| !text.contains(word)) {
        _ if expected.is_empty() => Err("no outcome is given".into()),
        None => Ok(()),
        Some(word) => Err(format!("expected {word}, got {actual}")),
    }
}
