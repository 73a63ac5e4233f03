//! Architecture rules as tests: dependencies between crates, the place of `unsafe`, the length of
//! functions, the names of types. Rules that a lint can check are left to the lint.
//!
//! `source` reads a syntax tree by means of `reader` and `tokens`; `files` reads texts. Rules are
//! rows of `RULES` in `edges`, `names`, `size`, `syntax` and `vocabulary`, each with violations
//! that it must find and code that it must accept. A single test checks all sources against all
//! rules, because parsing takes seconds.

mod architecture;
mod circles;
mod comments;
mod edges;
mod effects;
mod files;
mod fuzzing;
mod names;
mod reader;
mod size;
mod source;
mod syntax;
mod tokens;
mod types;
mod vocabulary;
mod waits;

use files::TextFile;
use source::Source;

/// Violation of a rule: the line and a description.
type Violation = (usize, String);

/// A rule about single files.
struct Rule<File: 'static> {
    name: &'static str,
    find: fn(&File) -> Vec<Violation>,
    /// Files, by path and text, that break this rule and no other.
    planted: &'static [(&'static str, &'static str)],
    /// Files that keep all rules though they come close.
    fine: &'static [(&'static str, &'static str)],
}

const SOURCE_RULES: &[&[Rule<Source>]] = &[edges::RULES, syntax::RULES, size::RULES];
const TEXT_RULES: &[&[Rule<TextFile>]] = &[names::RULES, size::TEXT_RULES, vocabulary::RULES];

#[test]
fn sources_keep_the_rules() {
    let sources = read_sources();
    let functions: usize = sources.iter().map(|source| source.facts.functions.len()).sum();
    assert!(functions > 9000, "only {functions} functions in {} sources", sources.len());
    let mut found = check(&sources, SOURCE_RULES, |source| &source.file.path);
    found.extend(circles::violations(&sources));
    found.extend(edges::idle_permissions(&sources));
    found.extend(size::function_percentile(&sources));
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn texts_keep_the_rules() {
    let found = check(&files::all_files(), TEXT_RULES, |file| &file.path);
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn planted_violations_are_found() {
    let read = |path: &str, text: &str| Source::read(TextFile::new(path, text));
    check_planted(SOURCE_RULES, read, |source| &source.file.path);
    check_planted(TEXT_RULES, TextFile::new, |file| &file.path);
}

/// Parses the files below `src` of all crates, on all processors.
fn read_sources() -> Vec<Source> {
    let mut files = files::all_files();
    files.retain(|file| file.is_rust() && file.below_src().is_some());
    assert!(files.len() > 700, "only {} sources were found", files.len());
    let files = std::sync::Mutex::new(files);
    let next = || files.lock().expect("no thread panicked").pop();
    let read = || std::iter::from_fn(next).map(Source::read).collect::<Vec<_>>();
    let mut sources: Vec<_> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("sources that parse")).collect()
    });
    sources.sort_by(|one, other| one.file.path.cmp(&other.file.path));
    sources
}

/// Describes all violations of the rules.
fn check<File>(
    files: &[File],
    rules: &[&[Rule<File>]],
    path: impl Fn(&File) -> &String,
) -> Vec<String> {
    let mut found = Vec::new();
    for rule in rules.iter().copied().flatten() {
        for file in files {
            let describe = |(line, what)| format!("{}:{line}: {what} ({})", path(file), rule.name);
            found.extend((rule.find)(file).into_iter().map(describe));
        }
    }
    found
}

/// Checks each rule against its own examples.
fn check_planted<File>(
    rules: &[&[Rule<File>]],
    read: impl Fn(&str, &str) -> File,
    path: impl Fn(&File) -> &String,
) {
    for rule in rules.iter().copied().flatten() {
        assert!(!rule.planted.is_empty(), "{}: no planted violation", rule.name);
        for (name, text) in rule.planted {
            let found = check(&[read(name, text)], rules, &path);
            let own = format!("({})", rule.name);
            let is_found = !found.is_empty() && found.iter().all(|line| line.ends_with(&own));
            assert!(is_found, "{}: found {found:?} in {name}:\n{text:.400}", rule.name);
        }
        for (name, text) in rule.fine {
            let found = check(&[read(name, text)], rules, &path);
            assert!(found.is_empty(), "{}: found {found:?} in {name}:\n{text:.400}", rule.name);
        }
    }
}
