//! Refuses words in identifiers that do not say what they name: a participle that leaves out its
//! noun (`asked`, `told`), a house metaphor (`errand`), or `words` for arguments, tokens and
//! messages.

use proc_macro2::{TokenStream, TokenTree};

use super::files::TextFile;
use super::{Rule, Violation};

/// Refused parts of identifiers, in lower case, each with better names.
const REFUSED: &[(&str, &str)] = &[
    ("ancestor", "lighttpd, reference"),
    ("asked", "requested, original, pending"),
    ("complain", "log, warn"),
    ("complained", "logged, warned"),
    ("complaint", "problem, throttle"),
    ("complaints", "problems, throttle"),
    ("deed", "behavior"),
    ("deeds", "behaviors"),
    ("errand", "task"),
    ("errands", "tasks"),
    ("said", "declared, logged, output"),
    ("told", "listed, reported, announced"),
    ("trouble", "failure, error"),
    ("unasked", "unrequested"),
    ("unsaid", "unlogged"),
    ("untold", "unlisted"),
    ("words", "arguments, tokens, names, message"),
];

/// Maximum number of parts of an identifier that names a thing. Longer ones are the sentences by
/// which tests are named.
const PARTS_MAX: usize = 3;

pub(super) const RULES: &[Rule<TextFile>] = &[Rule {
    name: "an identifier says what it names",
    find: vague_names,
    planted: &[
        ("crates/lighty-io/src/one.rs", "struct Complaint;"),
        ("crates/lighty-io/src/one.rs", "fn f() {\n    let words = g();\n}"),
        ("crates/lighty-io/src/one.rs", "fn f() { one.words().len() }"),
        ("crates/lighty-io/src/one.rs", "const TOLD_MAX: usize = 4;"),
        ("crates/lighty-io/src/one.rs", "enum One { BodyAskedTwice }"),
        ("crates/lighty-io/src/one.rs", "make! { is_said: bool }"),
        ("crates/lighty-io/tests/io/one.rs", "#[derive(Clone)]\nstruct One { errand: u8 }"),
        ("fuzz/src/one.rs", "macro_rules! one { ($words:literal) => { $words } }"),
    ],
    fine: &[
        ("crates/lighty-io/src/one.rs", "/// What was asked.\nfn f() { \"words\" /* told */ }"),
        ("crates/lighty-io/src/one.rs", "fn f() { path.ancestors().map(|word| masked(word)) }"),
        ("crates/lighty-io/src/one.rs", "fn wrong_lines_are_told() { passwords() }"),
        ("docs/one.md", "let words = asked;"),
    ],
}];

fn vague_names(file: &TextFile) -> Vec<Violation> {
    let mut found = Vec::new();
    // Reading the tokens of all files would take long.
    let text = file.text.to_ascii_lowercase();
    if file.is_rust() && REFUSED.iter().any(|(part, _)| text.contains(part)) {
        let tokens = file.text.parse();
        collect(tokens.unwrap_or_else(|error| panic!("{}: {error}", file.path)), &mut found);
    }
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<Violation>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(name) => {
                let (line, name) = (name.span().start().line, name.to_string());
                let better = better_names(&name);
                found.extend(better.map(|better| (line, format!("{name}: say {better}"))));
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns names that are better than a refused one.
fn better_names(name: &str) -> Option<&'static str> {
    let parts = parts(name);
    if parts.len() > PARTS_MAX {
        return None;
    }
    let is_refused = |(part, _): &&(&str, &str)| parts.iter().any(|own| own == part);
    REFUSED.iter().find(is_refused).map(|(_, better)| *better)
}

/// Returns the parts of a name in snake case or camel case, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        if letter == '_' || was_lower && letter.is_uppercase() {
            parts.push(String::new());
        }
        was_lower = letter.is_lowercase();
        if letter != '_' {
            parts.last_mut().expect("a part").extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}
