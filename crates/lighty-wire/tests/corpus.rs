//! Replays `testdata/http1`: every case in one piece and in every cut. The format is described in
//! `testdata/http1/README.md`.

mod case_files;

use std::collections::HashSet;
use std::fmt::Write;

use case_files::{Case, load_all};
use lighty_http::uri::ParseOpts;
use lighty_testkit::shredder::{byte_by_byte, every_split, random_fragments};
use lighty_wire::http1::request::TargetForm;
use lighty_wire::http1::{BodyFraming, Head, Limits, RequestHead, parse_request};

/// Beyond this length cutting at every place takes too long; random pieces do then.
const EVERY_SPLIT_BYTES_MAX: usize = 1024;
const CASES_MIN: usize = 150;

#[test]
fn every_case_in_every_cut() {
    let cases = load_all("http1", "http");
    assert!(cases.len() >= CASES_MIN, "only {} cases were found", cases.len());
    let mut names = HashSet::new();
    let mut failures = String::new();
    for case in &cases {
        assert!(names.insert(&case.name), "two cases are called {}", case.name);
        if let Err(reason) = replay(case) {
            writeln!(failures, "{}: {reason}", case.name).expect("a String takes all");
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn replay(case: &Case) -> Result<(), String> {
    let opts = options(&case.options);
    let whole = run(&[&case.input], &opts);
    check(&case.expected, &whole)?;
    let mut result = Ok(());
    let mut compare = |pieces: &[&[u8]]| {
        let cut = run(pieces, &opts);
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

/// What came out, in the words of the corpus with all its keys. A head that is complete before the
/// last piece counts what has not arrived yet as left over.
fn run(pieces: &[&[u8]], opts: &ParseOpts) -> String {
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let (mut buf, mut head) = (Vec::new(), RequestHead::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        match parse_request(&buf, &Limits::default(), opts, &mut head) {
            Ok(Head::Partial) => {}
            Ok(Head::Complete { consumed }) => return describe(&head, total - consumed),
            Err(fault) => return format!("refuse {} {}", fault.status(), fault.slug()),
        }
    }
    "partial".into()
}

fn describe(head: &RequestHead, rest: usize) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let yes = |flag| if flag { "yes" } else { "no" };
    format!(
        "accept method={} version={} path={} query={} host={} port={} body={} keep={} continue={} \
         upgrade={} fields={} form={} rest={rest}",
        head.method.map_or("-", |method| method.as_str()),
        head.version,
        text(head.path()),
        head.query().map_or("-".into(), text),
        text(&head.host),
        head.port.map_or("-".into(), |port| port.to_string()),
        match head.framing {
            BodyFraming::None => "none".into(),
            BodyFraming::Length(len) => len.to_string(),
            BodyFraming::Chunked => "chunked".into(),
        },
        yes(head.keep_alive),
        yes(head.expect_continue),
        yes(head.upgrade),
        head.fields.len(),
        match head.form {
            TargetForm::Origin => "origin",
            TargetForm::Absolute { secure: false } => "absolute",
            TargetForm::Absolute { secure: true } => "absolute-secure",
            TargetForm::Authority => "authority",
            TargetForm::Asterisk => "asterisk",
        },
    )
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

fn options(names: &[String]) -> ParseOpts {
    let mut opts = ParseOpts::default();
    for name in names {
        let (name, value) = name.strip_prefix('-').map_or((&**name, true), |name| (name, false));
        *match name {
            "header-strict" => &mut opts.header_strict,
            "host-strict" => &mut opts.host_strict,
            "method-get-body" => &mut opts.method_get_body,
            "url-path-2f-reject" => &mut opts.url_path_2f_reject,
            "url-path-dotseg-remove" => &mut opts.url_path_dotseg_remove,
            "url-path-dotseg-reject" => &mut opts.url_path_dotseg_reject,
            _ => panic!("no option {name} here yet"),
        } = value;
    }
    opts
}
