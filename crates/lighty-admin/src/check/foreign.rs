//! Detects configurations written for other servers by their vocabulary, so that a single error
//! explains the problem.

mod languages;
mod statement;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use lighty_config::{Diagnostic, Diagnostics, FileId, Level, Source, Sources, Span};

use languages::{LANGUAGES, Language, STRONG};
use statement::{Statement, statements};

/// Sum of the weights that the telltales of a file must reach. A matching file name adds 1.
const WEIGHT_MIN: u32 = STRONG;

/// Reference to the manual page with the equivalents.
const HELP: &str = "the manual's page \"Coming from another server\" (other-servers.md) says what \
                    to write instead";

/// Longest statement that a message quotes, in characters.
const QUOTED_CHARS_MAX: usize = 60;

/// Replaces all errors of a file in another server's language with a single error, and the errors
/// of each pasted statement with one that names its server. Files that parse as lighttpd's are
/// never affected.
#[must_use]
pub fn name_foreign(findings: Diagnostics, sources: &Sources) -> Diagnostics {
    let is_syntax = |found: &&Diagnostic| {
        found.level == Level::Error && matches!(found.code, "syntax" | "unclosed")
    };
    let mut wrong: HashMap<FileId, Vec<u32>> = HashMap::new();
    for span in findings.iter().filter(is_syntax).filter_map(|found| found.span) {
        wrong.entry(span.file).or_default().push(span.start);
    }
    // Each finding, with the part of its file in which it replaces other errors.
    let foreign: Vec<(Diagnostic, Span)> = wrong
        .iter()
        .flat_map(|(file, errors)| {
            let source = sources.get(*file);
            match recognise(*file, source) {
                Some(found) => {
                    let whole = Span { file: *file, start: 0, end: u32::MAX };
                    vec![(found, whole)]
                }
                None => pasted(*file, source, errors),
            }
        })
        .collect();
    if foreign.is_empty() {
        return findings;
    }
    let mut named = Diagnostics::default();
    let parts: Vec<Span> = foreign.iter().map(|(_, part)| *part).collect();
    foreign.into_iter().for_each(|(found, _)| named.push(found));
    let is_in = |span: Span, part: &Span| {
        span.file == part.file && (part.start..=part.end).contains(&span.start)
    };
    let elsewhere = |found: &&Diagnostic| {
        found.span.is_none_or(|span| !parts.iter().any(|part| is_in(span, part)))
    };
    findings.iter().filter(elsewhere).for_each(|found| named.push(found.clone()));
    named.sort();
    named
}

/// Returns the error that names the file's language, if it is another server's.
fn recognise(file: FileId, source: &Source) -> Option<Diagnostic> {
    if source.text.lines().any(is_lighttpds) {
        return None;
    }
    let statements = statements(file, &source.text);
    let name = source.path.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("");
    let weigh = |language: &Language| {
        let mut telltales = HashMap::new();
        let mut first = None;
        for statement in &statements {
            if let Some((word, weight)) = (language.telltale)(statement) {
                first = first.or(Some(statement.span));
                telltales.insert(word, weight);
            }
        }
        let by_name = u32::from(language.names.contains(&name));
        (telltales.values().sum::<u32>() + by_name, first, language.what)
    };
    let found = LANGUAGES.iter().map(weigh).rev().max_by_key(|(weight, ..)| *weight);
    let (_, span, what) = found.filter(|(weight, ..)| *weight >= WEIGHT_MIN)?;
    let text = format!("this is {what}: lighty reads lighttpd's language");
    Some(Diagnostic::error("foreign", span?, text).help(HELP))
}

/// Statements and blocks of other servers in a file that is lighttpd's otherwise, with the errors
/// that name them. `errors` are the places of syntax errors: text without one, such as that of a
/// string, is left alone.
fn pasted(file: FileId, source: &Source, errors: &[u32]) -> Vec<(Diagnostic, Span)> {
    let text = &source.text;
    let errors: BTreeSet<u32> = errors.iter().copied().collect();
    let mut parts = Vec::new();
    let mut end_of_last = 0;
    for statement in statements(file, text) {
        let start = statement.span.start;
        if start < end_of_last {
            continue;
        }
        let language = LANGUAGES.iter().find(|language| language.is_pasted(&statement));
        let Some(language) = language else { continue };
        if errors.range(start..=statement.reach(text)).next().is_none() {
            continue;
        }
        let end = statement.end_of_part(text);
        end_of_last = end;
        let quoted = quoted(&statement);
        let message = format!("`{quoted}` is {} language: lighty reads lighttpd's", language.whose);
        let help = match condition_of_location(&statement.tokens) {
            Some(condition) => format!("write `{condition} {{ … }}`; {HELP}"),
            None => HELP.to_owned(),
        };
        let found = Diagnostic::error("foreign", statement.span, message).help(help);
        parts.push((found, Span { file, start, end }));
    }
    parts
}

/// A statement as a message shows it.
fn quoted(statement: &Statement<'_>) -> String {
    let tokens = statement.tokens.join(" ");
    let mut text: String = tokens.chars().take(QUOTED_CHARS_MAX).collect();
    if text.len() < tokens.len() {
        text.push('…');
    }
    match statement.end {
        '{' => text + " {",
        ';' => text + ";",
        _ => text,
    }
}

/// Returns the lighttpd condition that is equivalent to an nginx `location`.
fn condition_of_location(tokens: &[&str]) -> Option<String> {
    let (operator, text) = match tokens {
        ["location", path] if path.starts_with('/') => ("=^", path),
        ["location", "^~", path] => ("=^", path),
        ["location", "=", path] => ("==", path),
        ["location", "~" | "~*", pattern] => ("=~", pattern),
        _ => return None,
    };
    Some(format!("$HTTP[\"url\"] {operator} \"{text}\""))
}

/// True if a line assigns a lighttpd directive or begins a condition.
fn is_lighttpds(line: &str) -> bool {
    let line = line.trim_start();
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let end = line.find(|c| !is_key(c)).unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let assigns = ["=", "+=", ":="].iter().any(|operator| rest.starts_with(operator));
    let condition = ["$HTTP[", "$SERVER[", "$REQUEST_HEADER["];
    key.contains('.') && assigns || condition.iter().any(|begin| line.starts_with(begin))
}
