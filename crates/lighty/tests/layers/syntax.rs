//! Rules about single constructs: unsafe code, the types of errors, re-exports, comparisons and
//! examples in documentation.

use super::source::Source;
use super::{Rule, Violation};

/// The only crate with `unsafe` code.
const UNSAFE_CRATE: &str = "lighty-io";

/// Lines above unsafe code in which its comment may begin.
const SAFETY_LINES: usize = 8;

/// Languages of code blocks in doc comments. rustdoc would compile blocks in any Rust.
const FENCES: &[&str] = &["text", "console", "html", "json", "lighty", "lua", "sh", "toml"];

pub(super) const RULES: &[Rule<Source>] = &[
    Rule {
        name: "unsafe code is in the I/O crate only",
        find: crate_that_allows_unsafe,
        planted: &[
            ("crates/lighty-core/src/lib.rs", "//! Text.\n#![deny(unsafe_code)]"),
            ("crates/lighty/src/main.rs", "// #![forbid(unsafe_code)]\nfn main() {}"),
            ("crates/lighty-http/src/lib.rs", "mod inner { #![forbid(unsafe_code)] }"),
        ],
        fine: &[
            ("crates/lighty-io/src/lib.rs", "mod one;"),
            ("crates/lighty-core/src/lib.rs", "#![forbid(unsafe_code)]"),
        ],
    },
    Rule {
        name: "unsafe code says why it is sound",
        find: unexplained_unsafe,
        planted: &[
            ("crates/lighty-io/src/one.rs", "fn f() { unsafe { g() } }"),
            ("crates/lighty-io/src/one.rs", "unsafe impl Send for One {}"),
            ("crates/lighty-io/src/one.rs", "fn f() { let _ = \"SAFETY:\"; unsafe { g() } }"),
            ("crates/lighty-io/src/one.rs", "fn f() { assert!(unsafe { g() }); }"),
            ("crates/lighty-io/src/one.rs", "fn f() { unsafe\n{ g() } }"),
            ("crates/lighty-io/src/one.rs", "make! { unsafe impl Send for One {} }"),
            ("crates/lighty-io/src/one.rs", "#[cfg(test)] mod tests { fn f() { unsafe { g() } } }"),
            (
                "crates/lighty-io/src/one.rs",
                "// SAFETY: far.\n\n\n\n\n\n\n\n\nunsafe impl A for B {}",
            ),
        ],
        fine: &[
            ("crates/lighty-io/src/one.rs", "// SAFETY: none.\nunsafe impl Send for One {}"),
            (
                "crates/lighty-io/src/one.rs",
                "/// unsafe { g() }\nunsafe fn f() { \"unsafe { g() }\"; }",
            ),
        ],
    },
    Rule {
        name: "an error has a type, so that its caller can act on it",
        find: text_errors,
        planted: &[
            ("crates/lighty-core/src/one.rs", "fn f() -> Result<(), String> { Ok(()) }"),
            ("crates/lighty-core/src/one.rs", "fn f() -> io::Result<(),\n String,\n> { Ok(()) }"),
            ("crates/lighty-core/src/one.rs", "fn f() -> Option<Result<Vec<u8>, String>> { g() }"),
            ("crates/lighty-core/src/one.rs", "trait A { fn f() -> Result<u8, String>; }"),
            ("crates/lighty-core/src/one.rs", "type Parse = fn(&str) -> Result<u8, String>;"),
            ("crates/lighty-core/src/one.rs", "type Outcome<T> = Result<T, std::string::String>;"),
            ("crates/lighty-core/src/one.rs", "make! { fn f() -> Result<u8, String> { g() } }"),
            (
                "crates/lighty-core/src/one.rs",
                "#[cfg(test)] mod tests {} fn f(g: impl Fn() -> Result<u8, String>) {}",
            ),
        ],
        fine: &[
            ("crates/lighty-core/src/one.rs", "fn f() -> Result<Vec<String>, Error> { g() }"),
            (
                "crates/lighty-core/src/one.rs",
                "#[cfg(test)] mod tests { fn f() -> Result<u8, String> { g() } }",
            ),
            ("crates/lighty-testkit/src/one.rs", "fn f() -> Result<u8, String> { g() }"),
        ],
    },
    Rule {
        name: "nothing is re-exported by the glob",
        find: glob_exports,
        planted: &[
            ("crates/lighty-core/src/one.rs", "pub use two::*;"),
            ("crates/lighty-core/src/one.rs", "pub(crate) use two::{three, four::*};"),
            ("crates/lighty-core/src/one.rs", "pub use crate::{\n    two::*,\n};"),
            ("crates/lighty-core/src/one.rs", "mod inner { pub use two::*; }"),
            ("crates/lighty-core/src/one.rs", "make! { pub(crate) use two::*; }"),
        ],
        fine: &[
            ("crates/lighty-core/src/one.rs", "use two::*;"),
            ("crates/lighty-core/src/one.rs", "#[cfg(test)] pub use two::*;"),
        ],
    },
    // A simulation repeats a run only if every wait polls in a fixed order.
    Rule {
        name: "waits for several events poll them in a fixed order",
        find: random_selects,
        planted: &[
            ("crates/lighty-server/src/one.rs", "fn f() { tokio::select! { a = b => c } }"),
            ("crates/lighty-proxy/src/one.rs", "fn f() { select!(a = biased => c); }"),
        ],
        fine: &[
            ("crates/lighty-server/src/one.rs", "fn f() { tokio::select! { biased; a = b => c } }"),
            ("crates/lighty-programs/src/one.rs", "fn f() { tokio::select! { a = b => c } }"),
            ("crates/lighty-io/src/one/tests.rs", "fn f() { tokio::select! { a = b => c } }"),
            (
                "crates/lighty-io/src/one.rs",
                "#[cfg(test)] fn f() { tokio::select! { a = b => c } }",
            ),
        ],
    },
    // Responses and modules state their own properties.
    Rule {
        name: "nothing is decided by a feature's name",
        find: feature_names,
        planted: &[
            ("crates/lighty-core/src/one.rs", "fn f() { if name == \"mod_ssi\" {} }"),
            ("crates/lighty-core/src/one.rs", "fn f() { if module.name() == *SSI {} }"),
            ("crates/lighty-core/src/one.rs", "fn f() { \"mod_ssi\" != name; }"),
            ("crates/lighty-core/src/one.rs", "fn f() { response.handler\n    == SSI; }"),
            ("crates/lighty-core/src/one.rs", "fn f() { assert!(module.name() == SSI); }"),
        ],
        fine: &[
            (
                "crates/lighty-core/src/one.rs",
                "fn f() { Kind::ALL.into_iter().find(|kind| kind.name() == word); }",
            ),
            (
                "crates/lighty-core/src/one.rs",
                "#[cfg(test)] mod tests { fn f() { assert!(module.name() == SSI); } }",
            ),
        ],
    },
    // The gate runs no documentation tests: each would be a program of its own to link.
    Rule {
        name: "no example in a doc comment is compiled",
        find: compiled_examples,
        planted: &[
            (
                "crates/lighty-core/src/one.rs",
                "/// Text.\n///\n/// ```\n/// f();\n/// ```\nfn f() {}",
            ),
            ("crates/lighty-core/src/one.rs", "//! ```rust,ignore\n//! f();\n//! ```"),
            ("crates/lighty-core/src/one.rs", "//! ~~~no_run\n//! f();\n//! ~~~"),
            ("crates/lighty-core/src/one.rs", "/// - ````text,rust\n///   ````\nfn f() {}"),
            ("crates/lighty-core/src/one.rs", "/// Text.\n///\n///     f();\nfn f() {}"),
            ("crates/lighty-core/src/one.rs", "/** Text.\n\n```\nf();\n```\n*/\nfn f() {}"),
            ("crates/lighty-core/src/one.rs", "make! {\n/// ```\n/// f();\n/// ```\nfn f() {} }"),
            ("crates/lighty-core/src/one.rs", "#[doc = include_str!(\"one.md\")]\nfn f() {}"),
            ("crates/lighty-core/src/one.rs", "#[doc = concat!(\"```\", \"\\nf();\")]\nfn f() {}"),
            ("crates/lighty-core/src/one.rs", "make! { #[doc = include_str!(\"a\")] fn f() {} }"),
        ],
        fine: &[
            (
                "crates/lighty-core/src/one.rs",
                "//! ```text\n//! a\n//!\n//!         b\n//! ```\n\n/// Text `code`,\n///     more.\nfn f() {}",
            ),
            (
                "crates/lighty-core/src/one.rs",
                "make! { #[doc = $words] $name } fn f() { format!(\"{doc}\", doc = row.doc); }",
            ),
            ("crates/lighty-core/src/one.rs", "// ```\n// f();\n// ```\nfn f() {}"),
        ],
    },
];

fn violations(lines: &[usize], what: &str) -> Vec<Violation> {
    lines.iter().map(|line| (*line, what.to_owned())).collect()
}

fn crate_that_allows_unsafe(source: &Source) -> Vec<Violation> {
    let may = source.file.crate_name() == UNSAFE_CRATE || !source.file.is_crate_root();
    if may || source.facts.forbids_unsafe {
        return Vec::new();
    }
    violations(&[1], "no #![forbid(unsafe_code)]")
}

fn unexplained_unsafe(source: &Source) -> Vec<Violation> {
    let lines: Vec<&str> = source.file.text.lines().collect();
    let is_explained = |line: usize| {
        let above = &lines[line.saturating_sub(SAFETY_LINES + 1)..line];
        above.iter().any(|l| l.split_once("//").is_some_and(|(_, text)| text.contains("SAFETY:")))
    };
    let mut unexplained = source.facts.unsafe_code.clone();
    unexplained.retain(|line| !is_explained(*line));
    violations(&unexplained, "no SAFETY comment")
}

fn text_errors(source: &Source) -> Vec<Violation> {
    if source.file.crate_name() == "lighty-testkit" || source.file.is_test() {
        return Vec::new();
    }
    violations(&source.facts.text_errors, "Result<_, String>")
}

fn glob_exports(source: &Source) -> Vec<Violation> {
    violations(&source.facts.glob_exports, "pub use ::*")
}

fn random_selects(source: &Source) -> Vec<Violation> {
    // The programs beside the server are no part of a simulation.
    if source.file.crate_name() == "lighty-programs" || source.file.is_test() {
        return Vec::new();
    }
    violations(&source.facts.random_selects, "select! without `biased`")
}

fn feature_names(source: &Source) -> Vec<Violation> {
    violations(&source.facts.feature_names, "compares a name")
}

fn compiled_examples(source: &Source) -> Vec<Violation> {
    let mut found = violations(&source.facts.computed_docs, "text from elsewhere");
    let follows = |one: &(usize, String), other: &(usize, String)| one.0 + 1 == other.0;
    for comment in source.facts.docs.chunk_by(follows) {
        found.extend(violations(&compiled_blocks(comment), "name a language that is not Rust"));
    }
    found
}

/// Lines of a doc comment that begin a code block that rustdoc would compile: a fence with a
/// language not in `FENCES`, or an indented block.
fn compiled_blocks(comment: &[(usize, String)]) -> Vec<usize> {
    let indent = |text: &str| text.len() - text.trim_start().len();
    let texts = comment.iter().map(|(_, text)| text).filter(|text| !text.trim().is_empty());
    let base = texts.map(|text| indent(text)).min().unwrap_or_default();
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    let mut is_behind_blank = true;
    for (line, text) in comment {
        // A fence may be part of a list or a quotation.
        let code = text.trim_start_matches(|c: char| " >-*+.)".contains(c) || c.is_ascii_digit());
        let info = code.trim_start_matches(['`', '~']);
        let mark = &code[..code.len() - info.len()];
        let is_fence = mark.len() >= 3 && !info.contains('`');
        match fence {
            Some(open) if mark.starts_with(open) && info.trim().is_empty() => fence = None,
            Some(_) => {}
            None if is_fence => {
                fence = Some(mark);
                found.extend((!FENCES.contains(&info.trim())).then_some(*line));
            }
            None if is_behind_blank && !text.trim().is_empty() && indent(text) >= base + 4 => {
                found.push(*line);
            }
            None => {}
        }
        is_behind_blank = text.trim().is_empty();
    }
    found
}
