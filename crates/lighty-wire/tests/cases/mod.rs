//! Cases of a corpus: how they are read, and replayed in one piece and in every cut. The format is
//! described in `testdata/http1/README.md`.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use lighty_testkit::shredder::{byte_by_byte, every_split, random_fragments};

/// Beyond this length cutting at every place takes too long; random pieces do then.
const EVERY_SPLIT_BYTES_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) input: Vec<u8>,
    pub(crate) options: Vec<String>,
    pub(crate) expected: String,
}

/// Runs all cases of a folder of `testdata`: `run` tells what came out of the pieces of one.
pub(crate) fn replay_all(folder: &str, cases_min: usize, run: impl Fn(&Case, &[&[u8]]) -> String) {
    let cases = load_all(folder);
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

/// Every word that is expected must be among those that came out.
fn check(expected: &str, actual: &str) -> Result<(), String> {
    let words: HashSet<&str> = actual.split(' ').collect();
    match expected.split(' ').find(|word| !words.contains(word)) {
        _ if expected.is_empty() => Err("no outcome is given".into()),
        None => Ok(()),
        Some(word) => Err(format!("expected {word}, got {actual}")),
    }
}

fn load_all(folder: &str) -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&dir)
        .expect("the corpus is in the tree")
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "http"))
        .collect();
    paths.sort();
    paths.iter().flat_map(|path| load(path)).collect()
}

fn load(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).expect("cases are ASCII");
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            cases.push(Case { name: name.into(), ..Case::default() });
            continue;
        }
        let (mark, rest) = line.split_at(line.len().min(1));
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match (mark, cases.last_mut()) {
            ("" | "#", _) => {}
            ("|", Some(case)) => {
                unescape(rest, &mut case.input);
                case.input.extend_from_slice(b"\r\n");
            }
            (":", Some(case)) => unescape(rest, &mut case.input),
            ("!", Some(case)) => case.options.push(rest.into()),
            (">", Some(case)) => case.expected = rest.into(),
            _ => panic!("{}: {line:?} is no line of a case", path.display()),
        }
    }
    cases
}

fn unescape(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let mut len = 1;
        match rest.as_bytes().first() {
            Some(b'r') => out.push(b'\r'),
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(b's') => out.push(b' '),
            Some(b'0') => out.push(0),
            Some(b'\\') => out.push(b'\\'),
            Some(b'x') => {
                out.push(u8::from_str_radix(&rest[1..3], 16).expect("two hexadecimal digits"));
                len = 3;
            }
            Some(b'{') => {
                len = rest.find('}').expect("a closing brace") + 1;
                let (piece, count) = rest[1..len - 1].rsplit_once('*').expect("text*count");
                let mut bytes = Vec::new();
                unescape(piece, &mut bytes);
                out.extend(bytes.repeat(count.parse().expect("a count")));
            }
            other => panic!("unknown escape {other:?} in {text}"),
        }
        rest = &rest[len..];
    }
    out.extend_from_slice(rest.as_bytes());
}
