//! Refuses words in identifiers that do not say what they name: a participle that leaves out its
//! noun (`asked`, `told`), a house metaphor (`errand`), or `words` for arguments, tokens and
//! messages. Refuses names of tests that begin with a pronoun instead of the subject.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

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

/// Refused first parts of the names of tests: pronouns in place of the subject.
const OPENINGS: &[&str] = &[
    "it",
    "its",
    "nobody",
    "somebody",
    "that",
    "there",
    "these",
    "they",
    "this",
    "those",
    "what",
    "whatever",
    "where",
    "wherever",
    "which",
    "whichever",
    "who",
    "whoever",
    "whom",
    "whose",
];

pub(super) const RULES: &[Rule<TextFile>] = &[
    Rule {
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
    },
    Rule {
        name: "the name of a test begins with its subject",
        find: riddles,
        planted: &[
            ("crates/lighty-io/src/one.rs", "#[test]\nfn what_is_forgotten_is_gone() {}"),
            (
                "crates/lighty-io/src/one.rs",
                "#[cfg(test)]\nmod tests { #[test] fn they_differ() {} }",
            ),
            ("crates/lighty-io/tests/one.rs", "#[tokio::test]\nasync fn who_closes_may_read() {}"),
            (
                "crates/lighty-io/tests/one.rs",
                "#[tokio::test(flavor = \"current_thread\")]\nasync fn it_ends() {}",
            ),
            (
                "crates/lighty-io/tests/one.rs",
                "#[test]\n#[ignore]\n/// One.\npub(super) fn there_is_a_limit() {}",
            ),
            (
                "crates/lighty-io/src/one.rs",
                "proptest! {\n    #[test]\n    fn whatever_comes(text: u8) {}\n}",
            ),
        ],
        fine: &[
            ("crates/lighty-io/src/one.rs", "fn what_holds() {}\n#[test]\nfn truth_holds() {}"),
            ("crates/lighty-io/src/one.rs", "#[test]\nfn one() { fn what_is_inside() {} }"),
            ("crates/lighty-io/src/one.rs", "#[cfg(test)]\nfn where_it_is() {}"),
            ("crates/lighty-io/src/one.rs", "#[test]\nfn items_do_what_they_do() {}"),
            ("crates/lighty-io/src/one.rs", "/// #[test] fn it_ends() {}\nfn f() {}"),
            ("docs/one.md", "#[test]\nfn what_is_forgotten_is_gone() {}"),
        ],
    },
];

fn vague_names(file: &TextFile) -> Vec<Violation> {
    let mut found = Vec::new();
    // Reading the tokens of all files would take long.
    let text = file.text.to_ascii_lowercase();
    if file.is_rust() && REFUSED.iter().any(|(part, _)| text.contains(part)) {
        collect(tokens(file), &mut found);
    }
    found
}

fn tokens(file: &TextFile) -> TokenStream {
    file.text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.path))
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

fn riddles(file: &TextFile) -> Vec<Violation> {
    let mut found = Vec::new();
    // Reading the tokens of all files would take long.
    let is_suspect = |opening: &&str| file.text.contains(&format!("fn {opening}_"));
    if file.is_rust() && OPENINGS.iter().any(is_suspect) {
        collect_riddles(tokens(file), &mut found);
    }
    found
}

/// Finds refused names of functions behind an attribute whose path ends in `test`.
fn collect_riddles(tokens: TokenStream, found: &mut Vec<Violation>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut is_test = false;
    for (at, token) in tokens.iter().enumerate() {
        match (token, tokens.get(at + 1)) {
            (TokenTree::Punct(mark), Some(TokenTree::Group(group))) if mark.as_char() == '#' => {
                let is_attribute = group.delimiter() == Delimiter::Bracket;
                is_test |= is_attribute && is_test_attribute(group.stream());
            }
            (TokenTree::Ident(keyword), Some(TokenTree::Ident(name))) if keyword == "fn" => {
                if is_test && begins_with_opening(name) {
                    let line = name.span().start().line;
                    found.push((line, format!("{name}: begin with the subject")));
                }
                is_test = false;
            }
            (TokenTree::Group(group), _) => collect_riddles(group.stream(), found),
            _ => {}
        }
    }
}

/// Returns true for `test`, `tokio::test` and `tokio::test(...)`.
fn is_test_attribute(attribute: TokenStream) -> bool {
    let is_path = |token: &TokenTree| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(mark) => mark.as_char() == ':',
        TokenTree::Group(_) | TokenTree::Literal(_) => false,
    };
    let last = attribute.into_iter().take_while(is_path).last();
    matches!(last, Some(TokenTree::Ident(name)) if name == "test")
}

fn begins_with_opening(name: &Ident) -> bool {
    let name = name.to_string();
    name.split_once('_').is_some_and(|(opening, _)| OPENINGS.contains(&opening))
}
