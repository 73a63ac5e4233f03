//! Circles between the modules of a crate. A module is a file; an arrow leads from it to the file
//! that defines what it names, whatever re-exports it on the way. A re-export alone is no arrow,
//! nor is what a module and its own parts (`foo.rs` and `foo/`) know of each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{crates, is_test_file, rust_files};

/// Modules that may know each other, by crate, and why. A row that is no circle fails, too.
const CIRCLES: &[(&str, &[&str], &str)] = &[
    (
        "lighty-core",
        &["exchange", "generation", "module"],
        "an exchange pins its generation, whose table of hooks has functions over exchanges",
    ),
    (
        "lighty-wire",
        &["http2::schedule", "http2::streams"],
        "the lists of the schedule are linked through the streams",
    ),
];

#[test]
fn modules_form_no_circles() {
    let mut allowed: Vec<_> = CIRCLES.to_vec();
    let mut found = Vec::new();
    for (name, directory) in crates() {
        let sources = sources(&directory.join("src"));
        let arrows = arrows(&sources);
        for circle in circles(&arrows) {
            let members: Vec<_> = circle.iter().map(String::as_str).collect();
            match allowed.iter().position(|row| row.0 == name && row.1 == members) {
                Some(at) => _ = allowed.swap_remove(at),
                None => found.push(describe(&name, &circle, &arrows)),
            }
        }
    }
    assert!(found.is_empty(), "circles between modules:\n{}", found.join("\n"));
    assert!(allowed.is_empty(), "rows of CIRCLES that are none: {allowed:#?}");
}

#[test]
fn the_scanner_sees_planted_circles() {
    let plain = [
        ("", "mod one; mod two; pub use one::One;"),
        ("one", "mod part; pub use part::Part; use part::Whole; pub struct One(Whole);"),
        ("one::part", "use super::super::two; pub struct Part(two::Two, super::One);"),
        (
            "two",
            "//! use crate::one::One;\npub struct Two; #[cfg(test)] mod tests { use crate::One; }",
        ),
    ];
    assert_eq!(planted(&plain), Vec::<Vec<String>>::new());
    let planted_in = |name: &str, text: &str| {
        let mut tree = plain.to_vec();
        tree.retain(|(module, _)| *module != name);
        tree.push((name, text));
        planted(&tree)
    };
    let circle = vec![vec!["one::part".to_owned(), "two".to_owned()]];
    for text in [
        "use crate::one::Part;",
        "use crate::{one::{self, part::Part as Other}};",
        "use crate::one; fn f(_: &one::Part) {}",
        "fn f() { crate::one::part::make(\"a \\\" string\", '\"') }",
        "use super::one::Part;",
        "use crate::one::part::*;",
    ] {
        assert_eq!(planted_in("two", text), circle, "{text}");
    }
    let root = vec![vec![String::new(), "two".to_owned()]];
    let mut tree = plain.to_vec();
    tree[0].1 = "mod one; mod two; use two::Two; struct Root(Two);";
    tree[3].1 = "pub struct Two(crate::Root);";
    assert_eq!(planted(&tree), root);
}

fn planted(tree: &[(&str, &str)]) -> Vec<Vec<String>> {
    let sources =
        tree.iter().map(|(module, text)| ((*module).to_owned(), Source::read(text))).collect();
    circles(&arrows(&sources))
}

/// A module's words without comments, texts and unit tests, and the names it takes from others.
struct Source {
    words: Vec<String>,
    imports: Vec<Import>,
    children: BTreeSet<String>,
}

/// One name of a `use` declaration.
struct Import {
    path: Vec<String>,
    alias: String,
    is_public: bool,
}

type Sources = BTreeMap<String, Source>;
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The modules below `src` by their paths; the crate's root has the empty one.
fn sources(src: &Path) -> Sources {
    let files = rust_files(src).into_iter().filter(|path| !is_test_file(path));
    let source = |path: std::path::PathBuf| {
        let relative = path.strip_prefix(src).expect("a file of the crate").with_extension("");
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        let module = parts.join("::");
        let module = if module == "lib" || module == "main" { String::new() } else { module };
        (module, Source::read(&std::fs::read_to_string(&path).expect("a text file")))
    };
    files.map(source).collect()
}

impl Source {
    fn read(text: &str) -> Self {
        let mut source = Self { words: Vec::new(), imports: Vec::new(), children: BTreeSet::new() };
        let words = without_tests(words(text));
        let mut at = 0;
        while at < words.len() {
            if words[at] == "use" {
                let end = end_of_statement(&words, at);
                let is_public = at > 0 && ["pub", ")"].contains(&words[at - 1].as_str());
                imports(&words[at + 1..end], &mut Vec::new(), is_public, &mut source.imports);
                at = end;
            } else if words[at] == "mod" && words.get(at + 2).is_some_and(|w| w == ";") {
                source.children.insert(words[at + 1].clone());
                at += 2;
            } else {
                source.words.push(words[at].clone());
            }
            at += 1;
        }
        source
    }

    fn import(&self, alias: &str) -> Option<&Import> {
        self.imports.iter().find(|import| import.alias == alias)
    }

    fn names(&self, alias: &str) -> bool {
        self.words.iter().any(|word| word == alias)
    }

    /// Paths of two parts and more outside of `use`.
    fn paths(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.words.len() {
            let mut path = vec![self.words[at].clone()];
            while self.words.get(at + 1).is_some_and(|w| w == "::")
                && self.words.get(at + 2).is_some_and(|w| is_name(w))
            {
                path.push(self.words[at + 2].clone());
                at += 2;
            }
            if path.len() > 1 && is_name(&path[0]) {
                found.push(path);
            }
            at += 1;
        }
        found
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names and marks of a source, without comments, texts and lifetimes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(hashes) = raw_text(rest) {
            let close = format!("\"{}", "#".repeat(hashes));
            let start = hashes + 2;
            rest[start..].find(&close).map_or(rest.len(), |end| start + end + close.len())
        } else if first == '"' {
            quoted_len(rest, b'"')
        } else if first == '\'' {
            quote_len(rest)
        } else if is_name(rest) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            words.push(rest[..end.unwrap_or(rest.len())].to_owned());
            end.unwrap_or(rest.len())
        } else {
            let mark = if rest.starts_with("::") { "::" } else { &rest[..first.len_utf8()] };
            if !first.is_whitespace() {
                words.push(mark.to_owned());
            }
            mark.len()
        };
        rest = &rest[taken..];
    }
    words
}

/// The number of hashes of a raw text that begins here.
fn raw_text(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let text = after.trim_start_matches('#');
    text.starts_with('"').then(|| after.len() - text.len())
}

fn quoted_len(rest: &str, quote: u8) -> usize {
    let mut is_escaped = false;
    for (at, byte) in rest.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character, or the mark of a lifetime.
fn quote_len(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    let is_character = chars.next() == Some('\\') || chars.next() == Some('\'');
    if is_character { quoted_len(rest, b'\'') } else { 1 }
}

fn without_tests(words: Vec<String>) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let rest = &words[at..];
        if rest.len() > MARK.len() && rest[..MARK.len()].iter().zip(MARK).all(|(w, m)| w == m) {
            at = end_of_statement(&words, at + MARK.len());
        } else {
            kept.push(words[at].clone());
        }
        at += 1;
    }
    kept
}

/// Where the semicolon or the closing brace of the item at `start` stands.
fn end_of_statement(words: &[String], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate().skip(start) {
        match word.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                let is_use = words[start] == "use";
                if depth == 0 && word == "}" && !is_use {
                    return at;
                }
            }
            ";" if depth == 0 => return at,
            _ => {}
        }
    }
    words.len() - 1
}

/// The names of a tree of imports behind `prefix`.
fn imports(tree: &[String], prefix: &mut Vec<String>, is_public: bool, out: &mut Vec<Import>) {
    let kept = prefix.len();
    let mut at = 0;
    while at < tree.len() {
        match tree[at].as_str() {
            "{" => {
                let end = end_of_group(tree, at);
                for part in parts(&tree[at + 1..end]) {
                    imports(part, prefix, is_public, out);
                }
                prefix.truncate(kept);
                return;
            }
            "as" => {
                let alias = tree[at + 1].clone();
                out.push(Import { path: prefix.clone(), alias, is_public });
                prefix.truncate(kept);
                return;
            }
            "::" => {}
            word => prefix.push(word.to_owned()),
        }
        at += 1;
    }
    if prefix.len() > kept {
        if prefix.len() > 1 && prefix.last().is_some_and(|last| last == "self") {
            prefix.pop();
        }
        let alias = prefix.last().cloned().unwrap_or_default();
        out.push(Import { path: prefix.clone(), alias, is_public });
    }
    prefix.truncate(kept);
}

fn end_of_group(tree: &[String], start: usize) -> usize {
    let mut depth = 0;
    for (at, word) in tree.iter().enumerate().skip(start) {
        depth += i32::from(word == "{") - i32::from(word == "}");
        if depth == 0 {
            return at;
        }
    }
    tree.len()
}

/// The parts of a group, at its commas.
fn parts(group: &[String]) -> Vec<&[String]> {
    let mut found = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, word) in group.iter().enumerate() {
        depth += i32::from(word == "{") - i32::from(word == "}");
        if word == "," && depth == 0 {
            found.push(&group[start..at]);
            start = at + 1;
        }
    }
    found.push(&group[start..]);
    found
}

/// Which module names something of which other.
fn arrows(sources: &Sources) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, source) in sources {
        let used = source.imports.iter().filter(|i| !i.is_public || source.names(&i.alias));
        let paths = used.map(|i| i.path.clone()).chain(source.paths());
        let known: BTreeSet<_> = paths
            .filter_map(|path| defined_in(sources, module, &path, 0))
            .filter(|other| !is_part(module, other) && !is_part(other, module))
            .collect();
        arrows.insert(module.clone(), known);
    }
    arrows
}

/// Re-exports that a name may pass through.
const HOPS_MAX: usize = 16;

/// The module that defines what `path` names in `module`; none of another crate, and none where
/// the path is a module itself: what is used of it has a path of its own.
fn defined_in(sources: &Sources, module: &str, path: &[String], hops: usize) -> Option<String> {
    let here = &sources[module];
    let (first, mut rest) = path.split_first()?;
    let mut current = match first.as_str() {
        _ if hops > HOPS_MAX => return None,
        "crate" => String::new(),
        "self" => module.to_owned(),
        "super" => parent(module),
        name if here.children.contains(name) => child(module, name),
        name => {
            let import = here.import(name).filter(|import| import.path[0] != name)?;
            let path: Vec<_> = import.path.iter().chain(rest).cloned().collect();
            return defined_in(sources, module, &path, hops + 1);
        }
    };
    while let Some((name, after)) = rest.split_first() {
        if name == "super" {
            current = parent(&current);
        } else if sources.contains_key(&child(&current, name)) {
            current = child(&current, name);
        } else if let Some(import) = sources.get(&current)?.import(name) {
            let path: Vec<_> = import.path.iter().chain(after).cloned().collect();
            return defined_in(sources, &current, &path, hops + 1);
        } else {
            return Some(current);
        }
        rest = after;
    }
    None
}

/// Whether `part` is `module` or lies below it; the root of a crate has no parts.
fn is_part(part: &str, module: &str) -> bool {
    part == module || !module.is_empty() && part.starts_with(&format!("{module}::"))
}

fn parent(module: &str) -> String {
    module.rsplit_once("::").map_or_else(String::new, |(parent, _)| parent.to_owned())
}

fn child(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// Sets of modules of which each leads to each, sorted.
fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reach: BTreeMap<_, _> =
        arrows.keys().map(|module| (module, reached(arrows, module))).collect();
    let circle = |module: &String| -> Vec<String> {
        let back = reach[module].iter().filter(|other| reach[other].contains(module));
        back.cloned().collect()
    };
    let found: BTreeSet<_> = arrows.keys().map(circle).filter(|c| c.len() > 1).collect();
    found.into_iter().collect()
}

/// The modules that arrows lead to from `module`, in one step or in many.
fn reached(arrows: &Arrows, module: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![module];
    while let Some(next) = waiting.pop() {
        for other in arrows.get(next).into_iter().flatten() {
            if found.insert(other.clone()) {
                waiting.push(other);
            }
        }
    }
    found
}

fn describe(name: &str, circle: &[String], arrows: &Arrows) -> String {
    let known = |module: &String| {
        let inside: Vec<_> = arrows[module].iter().filter(|m| circle.contains(m)).collect();
        format!("    {module} -> {inside:?}")
    };
    let lines: Vec<_> = circle.iter().map(known).collect();
    format!("{name}: {circle:?}\n{}", lines.join("\n"))
}
