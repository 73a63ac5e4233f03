//! Rules about sizes: lines of functions and files, columns of comments, and the documentation at
//! the beginning of each crate.

use super::files::TextFile;
use super::source::Source;
use super::{Rule, Violation};

/// Maximum number of lines of a file. Tables and tests are exempt: they are not read in one go.
const FILE_LINES_MAX: usize = 700;

/// Lines a function may have.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines that 95 of 100 functions keep within.
const FUNCTION_LINES_P95: usize = 30;

/// Maximum width of comments in columns; rustfmt limits the width of code.
const COMMENT_COLUMNS_MAX: usize = 100;

/// Lines of documentation at the beginning of a crate, at least.
const ESSAY_LINES_MIN: usize = 3;

/// Expands to a text with the given number of empty lines.
macro_rules! lines {
    (9) => {
        "\n\n\n\n\n\n\n\n\n"
    };
    (10) => {
        "\n\n\n\n\n\n\n\n\n\n"
    };
    (60) => {
        concat!(lines!(10), lines!(10), lines!(10), lines!(10), lines!(10), lines!(10))
    };
    (69) => {
        concat!(lines!(60), lines!(9))
    };
    (70) => {
        concat!(lines!(60), lines!(10))
    };
    (350) => {
        concat!(lines!(70), lines!(70), lines!(70), lines!(70), lines!(70))
    };
    (700) => {
        concat!(lines!(350), lines!(350))
    };
}

/// Expands to a word with the given number of characters.
macro_rules! columns {
    (30) => {
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    };
    (90) => {
        concat!(columns!(30), columns!(30), columns!(30))
    };
    (93) => {
        concat!(columns!(90), "xxx")
    };
    (96) => {
        concat!(columns!(90), "xxxxxx")
    };
    (97) => {
        concat!(columns!(90), "xxxxxxx")
    };
}

pub(super) const RULES: &[Rule<Source>] = &[Rule {
    name: "functions stay short",
    find: long_functions,
    planted: &[
        ("crates/lighty-io/src/one.rs", concat!("fn f() {", lines!(70), "}")),
        ("crates/lighty-io/src/one.rs", concat!("impl A { pub fn f() {", lines!(70), "} }")),
        ("crates/lighty-io/src/one.rs", concat!("trait A { fn f(", lines!(70), ") {} }")),
        ("crates/lighty-io/src/one.rs", concat!("make! { fn f() {", lines!(70), "} }")),
        ("crates/lighty-io/src/one.rs", concat!("make! { fn $f() {", lines!(70), "} }")),
        ("crates/lighty-io/src/one.rs", concat!("fn g() { fn f() {", lines!(70), "} }")),
        ("crates/lighty-io/src/tests.rs", concat!("#[test] fn f() {", lines!(70), "}")),
        (
            "crates/lighty-io/src/one.rs",
            concat!("#[cfg(test)] mod tests { fn f() {", lines!(70), "} }"),
        ),
    ],
    fine: &[
        ("crates/lighty-io/src/one.rs", concat!("fn f() {", lines!(69), "}")),
        ("crates/lighty-io/src/one.rs", concat!("trait A { fn f(", lines!(70), "); }")),
        ("crates/lighty-io/src/one.rs", concat!("fn f() {} struct A {", lines!(70), "}")),
    ],
}];

pub(super) const TEXT_RULES: &[Rule<TextFile>] = &[
    Rule {
        name: "files stay short",
        find: long_file,
        planted: &[("crates/lighty-io/src/one.rs", concat!(lines!(700), "fn f() {}"))],
        fine: &[
            ("crates/lighty-io/src/one.rs", lines!(700)),
            ("crates/lighty-io/src/clock/tests.rs", concat!(lines!(700), "fn f() {}")),
            ("crates/lighty-io/src/fault_table.rs", concat!(lines!(700), "fn f() {}")),
            ("crates/lighty-io/tests/one/main.rs", concat!(lines!(700), "fn f() {}")),
        ],
    },
    Rule {
        name: "comments keep within their columns",
        find: wide_comments,
        planted: &[
            ("crates/lighty-io/src/one.rs", concat!("    //! ", columns!(93))),
            ("crates/lighty-io/tests/one/main.rs", concat!("fn f() {}\n/// ", columns!(97))),
        ],
        fine: &[("crates/lighty-io/src/one.rs", concat!("//! ", columns!(96)))],
    },
    Rule {
        name: "each crate says what it is and how to read it",
        find: missing_essay,
        planted: &[
            ("crates/lighty-io/src/lib.rs", "//! One.\n//! Two.\n\n//! Three.\nmod one;"),
            ("crates/lighty/src/main.rs", "fn main() {}"),
        ],
        fine: &[("crates/lighty-io/src/lib.rs", "//! One.\n//! Two.\n//! Three.\nmod one;")],
    },
];

fn long_functions(source: &Source) -> Vec<Violation> {
    let long = source.facts.functions.iter().filter(|f| f.lines > FUNCTION_LINES_MAX);
    long.map(|f| (f.line, format!("{} has {} lines", f.name, f.lines))).collect()
}

/// Describes the longest functions if too many are long.
pub(super) fn function_percentile(sources: &[Source]) -> Option<String> {
    let mut functions: Vec<_> = sources.iter().flat_map(|source| &source.facts.functions).collect();
    functions.sort_by_key(|function| function.lines);
    let count = functions.len();
    let [median, p95] = [50, 95].map(|percent| functions[count * percent / 100].lines);
    println!("{count} functions: median {median} lines, 95th percentile {p95}");
    let longest = functions.iter().rev().take(5).map(|f| format!("{} ({})", f.name, f.lines));
    let longest: Vec<_> = longest.collect();
    (p95 > FUNCTION_LINES_P95).then(|| format!("95th percentile: {p95} lines; {longest:?}"))
}

#[test]
fn planted_percentile_is_found() {
    let read = |text: &str| vec![Source::read(TextFile::new("crates/lighty/src/one.rs", text))];
    let short = "fn g() {}".repeat(93);
    let long = "fn f() {\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n}";
    assert!(function_percentile(&read(&(short.clone() + &long.repeat(4)))).is_none());
    assert!(function_percentile(&read(&(short + &long.repeat(7)))).is_some());
}

/// Finds files over the limit of lines; tables and tests are exempt.
fn long_file(file: &TextFile) -> Vec<Violation> {
    let is_exempt = file.is_test() || file.stem().ends_with("table");
    let lines = file.text.lines().count();
    let is_long = file.is_rust() && file.below_src().is_some() && lines > FILE_LINES_MAX;
    (is_long && !is_exempt).then(|| (lines, format!("{lines} lines"))).into_iter().collect()
}

fn wide_comments(file: &TextFile) -> Vec<Violation> {
    if !file.is_rust() {
        return Vec::new();
    }
    let comments = file.text.lines().enumerate().filter(|(_, l)| l.trim_start().starts_with("//"));
    let wide = comments.filter(|(_, line)| line.chars().count() > COMMENT_COLUMNS_MAX);
    wide.map(|(at, line)| (at + 1, line.to_owned())).collect()
}

fn missing_essay(file: &TextFile) -> Vec<Violation> {
    let lines = file.text.lines().take_while(|line| line.starts_with("//!")).count();
    let is_missing = file.is_crate_root() && lines < ESSAY_LINES_MIN;
    is_missing.then(|| (1, format!("{lines} lines of documentation"))).into_iter().collect()
}
