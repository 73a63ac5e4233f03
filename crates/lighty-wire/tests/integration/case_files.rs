//! Parses files of test cases; their format is described in `testdata/http1/README.md`.

use std::path::{Path, PathBuf};

/// A test case.
#[derive(Default)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) input: Vec<u8>,
    pub(crate) options: Vec<String>,
    pub(crate) expected: String,
}

/// Every case of `testdata/DIRECTORY/*.EXTENSION`, in the order of the files' names.
pub(crate) fn load_all(directory: &str, extension: &str) -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(directory);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&dir)
        .expect("the corpus is in the tree")
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| path.extension().is_some_and(|own| own == extension))
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
