//! Diagnostics of a configuration, and their output as text and JSON.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use crate::limits::{DIAGNOSTICS_MAX, MESSAGE_BYTES_MAX};
use crate::source::{Sources, Span};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Information only.
    Note,
    /// The server starts, but probably not as intended.
    Warning,
    /// The server does not start.
    Error,
}

impl Level {
    /// The word for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }

    fn color(self) -> &'static str {
        match self {
            Level::Note => "\x1b[1;36m",
            Level::Warning => "\x1b[1;33m",
            Level::Error => "\x1b[1;31m",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub level: Level,
    /// A stable name for this kind of finding, such as `unknown-directive`.
    pub code: &'static str,
    /// The problem, in one sentence without a full stop.
    pub message: String,
    /// The position concerned.
    pub span: Option<Span>,
    /// A remedy.
    pub help: Option<String>,
    /// Other positions concerned ("first set here").
    pub notes: Vec<(Span, String)>,
}

impl Diagnostic {
    /// Creates a finding at a position.
    pub fn new(level: Level, code: &'static str, span: Span, message: impl Into<String>) -> Self {
        let message = cut(message.into());
        Diagnostic { level, code, message, span: Some(span), help: None, notes: Vec::new() }
    }

    /// Creates an error at a position.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Diagnostic::new(Level::Error, code, span, message)
    }

    /// Creates a warning at a position.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Diagnostic::new(Level::Warning, code, span, message)
    }

    /// Adds a suggestion.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the suggestion, if there is one.
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    /// Adds another position.
    pub fn note(mut self, span: Span, note: impl Into<String>) -> Self {
        self.notes.push((span, note.into()));
        self
    }
}

/// Output style of findings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Use terminal colours.
    pub color: bool,
}

/// All findings of one run, in order of discovery.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
    notes: usize,
}

impl Diagnostics {
    /// Adds a finding. Beyond [`DIAGNOSTICS_MAX`] findings of its level, it is only counted.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let room = self.has_room(diagnostic.level);
        *self.count(diagnostic.level) += 1;
        if room {
            self.list.push(diagnostic);
        }
    }

    /// True if another finding of this level would be kept. Callers skip expensive checks
    /// otherwise. Each level has its own limit, so that thousands of warnings do not displace
    /// errors.
    pub(crate) fn has_room(&mut self, level: Level) -> bool {
        *self.count(level) < DIAGNOSTICS_MAX
    }

    fn count(&mut self, level: Level) -> &mut usize {
        match level {
            Level::Error => &mut self.errors,
            Level::Warning => &mut self.warnings,
            Level::Note => &mut self.notes,
        }
    }

    /// Turns warnings with these codes into errors.
    pub fn make_strict(&mut self, codes: &[&str]) {
        for diagnostic in &mut self.list {
            if diagnostic.level == Level::Warning && codes.contains(&diagnostic.code) {
                diagnostic.level = Level::Error;
                self.warnings -= 1;
                self.errors += 1;
            }
        }
    }

    /// True if the configuration cannot be used.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// Number of errors, including ones that were not kept.
    pub fn error_count(&self) -> usize {
        self.errors
    }

    /// Number of warnings, including ones that were not kept.
    pub fn warning_count(&self) -> usize {
        self.warnings
    }

    /// The findings that were kept.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }

    /// True if there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sorts the findings by position: file, then line.
    pub fn sort(&mut self) {
        self.list.sort_by_key(|d| d.span);
    }

    /// Output for people: position, source line with a caret, message, suggestion.
    pub fn render(&self, sources: &Sources, style: Style) -> String {
        let mut out = String::new();
        for diagnostic in &self.list {
            render_one(&mut out, diagnostic, sources, style);
        }
        let dropped = self.errors + self.warnings + self.notes - self.list.len();
        if dropped > 0 {
            let _ = writeln!(out, "… and {dropped} more that are not shown");
        }
        out
    }

    /// Output for programs: an object with the counts and a list of findings, each with file, line,
    /// column, byte range, level, code, message, help and notes.
    pub fn to_json(&self, sources: &Sources) -> String {
        let list: Vec<Json> = self.list.iter().map(|d| json_one(d, sources)).collect();
        json!({ "errors": self.errors, "warnings": self.warnings, "diagnostics": list }).to_string()
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Shortens a message. Values can be megabytes long; messages that quote them must not be.
fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let mut end = MESSAGE_BYTES_MAX;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    message
}

/// ```text
/// lighttpd.conf:3:1: error: unknown directive "server.prot" [unknown-directive]
///   3 | server.prot = 80
///     | ^^^^^^^^^^^
///     = help: did you mean "server.port"?
/// ```
fn render_one(out: &mut String, d: &Diagnostic, sources: &Sources, style: Style) {
    let (color, bold, off) =
        if style.color { (d.level.color(), "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
    if let Some(span) = d.span {
        let _ = write!(out, "{bold}{}: {off}", place(sources, span));
    }
    let (level, message, code) = (d.level.as_str(), clean(&d.message), d.code);
    let _ = writeln!(out, "{color}{level}{off}{bold}: {message}{off} [{code}]");
    let gutter = match d.span {
        Some(span) => {
            render_snippet(out, sources, span, color, off);
            sources.locate(span).line.to_string().len() + 3
        }
        None => 3,
    };
    if let Some(help) = &d.help {
        let _ = writeln!(out, "{:gutter$}= {bold}help{off}: {}", "", clean(help));
    }
    for (span, note) in &d.notes {
        let _ = writeln!(out, "  {}: {}", place(sources, *span), clean(note));
        render_snippet(out, sources, *span, "", "");
    }
    if let Some(mut from) = d.span.and_then(|s| sources.get(s.file).included_from) {
        loop {
            let _ = writeln!(out, "{:gutter$}= included from {}", "", place(sources, from));
            match sources.get(from.file).included_from {
                Some(next) => from = next,
                None => break,
            }
        }
    }
}

/// Columns of source shown left and right of the caret when a line is very long.
const SNIPPET_BEFORE: usize = 60;
const SNIPPET_COLUMNS: usize = 120;

fn render_snippet(out: &mut String, sources: &Sources, span: Span, color: &str, off: &str) {
    // The file could not be read, so there is no line to show.
    if sources.get(span.file).text.is_empty() {
        return;
    }
    let place = sources.locate(span);
    let line = sources.get(span.file).line(place.line);
    let skip = if line.chars().count() > SNIPPET_COLUMNS {
        (place.column - 1).saturating_sub(SNIPPET_BEFORE)
    } else {
        0
    };
    let shown: String = line.chars().skip(skip).take(SNIPPET_COLUMNS).map(visible).collect();
    let indent: String = shown
        .chars()
        .take(place.column - 1 - skip)
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    let width = sources.text(span).chars().take_while(|&c| c != '\n').count();
    let room = shown.chars().count().saturating_sub(place.column - 1 - skip);
    let carets = "^".repeat(width.min(room).max(1));
    let number = place.line.to_string();
    let _ = writeln!(out, "  {number} | {shown}");
    let _ = writeln!(out, "  {:w$} | {indent}{color}{carets}{off}", "", w = number.len());
}

/// File, line and column. The name may contain a command of several lines.
fn place(sources: &Sources, span: Span) -> String {
    clean(&sources.locate(span).to_string())
}

/// Replaces control characters, which must not reach the terminal.
fn visible(c: char) -> char {
    if c.is_control() && c != '\t' { '\u{fffd}' } else { c }
}

fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn json_one(d: &Diagnostic, sources: &Sources) -> Json {
    let mut object = json!({
        "level": d.level.as_str(), "code": d.code, "message": d.message, "help": d.help,
        "notes": d.notes.iter().map(|(span, text)| {
            let mut note = json_place(*span, sources);
            note["message"] = json!(text);
            note
        }).collect::<Vec<_>>(),
    });
    if let Some(span) = d.span {
        for (key, value) in json_place(span, sources).as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
    }
    object
}

fn json_place(span: Span, sources: &Sources) -> Json {
    let place = sources.locate(span);
    json!({
        "file": place.name, "line": place.line, "column": place.column,
        "start": span.start, "end": span.end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;

    fn sample() -> (Sources, Diagnostics) {
        let mut sources = Sources::default();
        let file = sources.add("a.conf", None, "x = 1\n\tserver.prot = 80\n".into());
        let mut list = Diagnostics::default();
        let span = Span { file, start: 7, end: 18 };
        let first = Span { file, start: 0, end: 1 };
        list.push(
            Diagnostic::warning("unknown-directive", span, "unknown directive \"server.prot\"")
                .help("did you mean \"server.port\"?")
                .note(first, "see also"),
        );
        (sources, list)
    }

    #[test]
    fn a_finding_shows_place_line_caret_and_help() {
        let (sources, list) = sample();
        let want = "a.conf:2:2: warning: unknown directive \"server.prot\" [unknown-directive]\n  \
                    2 | \tserver.prot = 80\n    | \t^^^^^^^^^^^\n    = help: did you mean \
                    \"server.port\"?\n  a.conf:1:1: see also\n  1 | x = 1\n    | ^\n";
        assert_eq!(list.render(&sources, Style::default()), want);
        assert!(list.render(&sources, Style { color: true }).contains("\x1b[1;33mwarning"));
    }

    #[test]
    fn the_same_finding_as_json() {
        let (sources, list) = sample();
        let json: Json = serde_json::from_str(&list.to_json(&sources)).unwrap();
        assert_eq!(json["warnings"], 1);
        let one = &json["diagnostics"][0];
        assert_eq!(one["line"], 2);
        assert_eq!(one["column"], 2);
        assert_eq!(one["code"], "unknown-directive");
        assert_eq!(one["notes"][0]["line"], 1);
    }

    #[test]
    fn past_the_limit_findings_are_only_counted() {
        let mut sources = Sources::default();
        sources.add("a", None, "x\n".into());
        let span = Span { file: FileId(0), start: 0, end: 1 };
        let mut list = Diagnostics::default();
        for _ in 0..DIAGNOSTICS_MAX {
            list.push(Diagnostic::error("x", span, "x"));
        }
        assert!(!list.render(&sources, Style::default()).contains("more that are not shown"));
        list.push(Diagnostic::error("x", span, "x"));
        assert_eq!(list.iter().count(), DIAGNOSTICS_MAX);
        assert_eq!(list.error_count(), DIAGNOSTICS_MAX + 1);
        assert!(list.render(&sources, Style::default()).contains("and 1 more"));
    }

    #[test]
    fn an_error_behind_many_warnings_is_kept() {
        let mut sources = Sources::default();
        sources.add("a", None, "x\n".into());
        let span = Span { file: FileId(0), start: 0, end: 1 };
        let mut list = Diagnostics::default();
        for _ in 0..DIAGNOSTICS_MAX {
            list.push(Diagnostic::warning("x", span, "x"));
        }
        assert!(!list.has_room(Level::Warning) && list.has_room(Level::Error));
        list.push(Diagnostic::error("x", span, "the one that matters"));
        assert!(list.render(&sources, Style::default()).contains("the one that matters"));
    }

    #[test]
    fn long_messages_are_cut() {
        let span = Span { file: FileId(0), start: 0, end: 0 };
        let message = |n: usize| Diagnostic::error("x", span, "é".repeat(n / 2)).message;
        assert_eq!(message(MESSAGE_BYTES_MAX).len(), MESSAGE_BYTES_MAX);
        let cut = message(MESSAGE_BYTES_MAX + 2);
        assert_eq!(cut, "é".repeat(MESSAGE_BYTES_MAX / 2) + "…");
    }

    #[test]
    fn of_an_empty_file_only_the_name_is_shown() {
        let mut sources = Sources::default();
        let file = sources.add("none.conf", None, String::new());
        let mut list = Diagnostics::default();
        list.push(Diagnostic::error("read", Span { file, start: 0, end: 0 }, "cannot read it"));
        let text = list.render(&sources, Style::default());
        assert_eq!(text, "none.conf:1:1: error: cannot read it [read]\n");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut sources = Sources::default();
        let file = sources.add("a", None, "x\x1b[31m = 1\n".into());
        let mut list = Diagnostics::default();
        list.push(Diagnostic::error("x", Span { file, start: 1, end: 2 }, "bad \x1b"));
        assert!(!list.render(&sources, Style::default()).contains('\x1b'));
    }

    #[test]
    fn a_very_long_line_is_shown_around_the_caret() {
        let mut sources = Sources::default();
        let file = sources.add("a", None, format!("{}!{}", "x".repeat(5000), "y".repeat(5000)));
        let mut list = Diagnostics::default();
        list.push(Diagnostic::error("x", Span { file, start: 5000, end: 5001 }, "here"));
        let text = list.render(&sources, Style::default());
        assert!(text.len() < 600, "{text}");
        assert!(text.contains('!'));
    }
}
