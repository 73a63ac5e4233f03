//! Constructs of a pattern that decide which engine matches it.

use std::iter::Peekable;
use std::ops::Range;
use std::str::Chars;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConstructKind {
    /// A backslash and its operands.
    Escape,
    /// `\Q…\E`
    Quoted,
    /// `[…]`
    Class,
    /// `(`, with the characters that select the kind of group.
    Open,
    Close,
    /// `(*NAME)`
    Verb,
    /// `*`, `+`, `?` or `{1,2}`, with an optional `?` that makes it lazy.
    Repetition,
    /// A possessive `Repetition`.
    Possessive,
    Other,
}

/// The constructs of a pattern in order.
struct Constructs<'p> {
    pattern: &'p str,
    at: usize,
}

fn parts(pattern: &str) -> Constructs<'_> {
    Constructs { pattern, at: 0 }
}

impl Iterator for Constructs<'_> {
    type Item = (ConstructKind, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.pattern[self.at..];
        let first = rest.chars().next()?;
        let (kind, length) = match first {
            '\\' => escape(rest),
            '[' => (ConstructKind::Class, class(rest)),
            '(' => open(rest),
            ')' => (ConstructKind::Close, 1),
            '*' | '+' | '?' => repetition(rest, 1),
            '{' => match counted(rest) {
                Some(length) => repetition(rest, length),
                None => (ConstructKind::Other, 1),
            },
            other => (ConstructKind::Other, other.len_utf8()),
        };
        let range = self.at..self.at + length.min(rest.len());
        self.at = range.end;
        Some((kind, range))
    }
}

fn escape(rest: &str) -> (ConstructKind, usize) {
    let Some(letter) = rest[1..].chars().next() else { return (ConstructKind::Escape, 1) };
    let head = 1 + letter.len_utf8();
    let until = |end: char| rest[head..].find(end).map_or(head, |at| head + at + 1);
    match (letter, rest[head..].chars().next()) {
        ('Q', _) => (ConstructKind::Quoted, rest.find("\\E").map_or(rest.len(), |at| at + 2)),
        ('p' | 'P' | 'x' | 'o' | 'N' | 'g' | 'k', Some('{')) => (ConstructKind::Escape, until('}')),
        ('g' | 'k', Some('<')) => (ConstructKind::Escape, until('>')),
        ('g' | 'k', Some('\'')) => {
            let end = rest[head + 1..].find('\'').map_or(head, |at| head + at + 2);
            (ConstructKind::Escape, end)
        }
        ('g', Some(_)) => {
            let digits = rest[head..].bytes().take_while(|b| b.is_ascii_digit() || *b == b'-');
            (ConstructKind::Escape, head + digits.count())
        }
        _ => (ConstructKind::Escape, head),
    }
}

/// The length of a class. A bracket right after its start is one of its characters.
fn class(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1 + usize::from(bytes.get(1) == Some(&b'^'));
    at += usize::from(bytes.get(at) == Some(&b']'));
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'[' if bytes.get(at + 1) == Some(&b':') => {
                at = rest[at..].find(":]").map_or(at + 1, |end| at + end + 2);
            }
            b']' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn open(rest: &str) -> (ConstructKind, usize) {
    if rest.starts_with("(*") {
        return (ConstructKind::Verb, rest.find(')').map_or(rest.len(), |at| at + 1));
    }
    if rest.starts_with("(?#") {
        return (ConstructKind::Other, rest.find(')').map_or(rest.len(), |at| at + 1));
    }
    let known = ["(?<=", "(?<!", "(?=", "(?!", "(?>", "(?|", "(?(", "(?R", "(?&", "(?P>"];
    let length = known.iter().find(|head| rest.starts_with(**head)).map(|head| head.len());
    let length = length.unwrap_or_else(|| match rest.strip_prefix("(?") {
        Some(rest) => {
            let number = rest.trim_start_matches(['+', '-']).bytes();
            let digits = number.take_while(u8::is_ascii_digit).count();
            let sign = rest.len() - rest.trim_start_matches(['+', '-']).len();
            2 + if digits > 0 { sign + digits } else { 0 }
        }
        None => 1,
    });
    (ConstructKind::Open, length)
}

/// The length of `{1}`, `{1,}` or `{1,2}`. Any other brace is a literal character.
fn counted(rest: &str) -> Option<usize> {
    let end = rest.find('}')?;
    let (low, high) = rest[1..end].split_once(',').unwrap_or((&rest[1..end], ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!low.is_empty() && is_number(low) && is_number(high)).then_some(end + 1)
}

fn repetition(rest: &str, length: usize) -> (ConstructKind, usize) {
    match rest.as_bytes().get(length) {
        Some(b'+') => (ConstructKind::Possessive, length + 1),
        Some(b'?') => (ConstructKind::Repetition, length + 1),
        _ => (ConstructKind::Repetition, length),
    }
}

/// The first possessive repetition. The linear engine would read it as a repetition of a
/// repetition.
pub(super) fn possessive(pattern: &str) -> Option<Range<usize>> {
    let found = parts(pattern).find(|(kind, _)| *kind == ConstructKind::Possessive);
    // The range includes the quantifier: a plus alone would look like an ordinary repetition.
    found.map(|(_, range)| range)
}

/// The first construct of a pattern that no linear engine can match, and its name.
pub(super) fn beyond_linear(pattern: &str) -> Option<(&'static str, Range<usize>)> {
    parts(pattern).find_map(|(kind, range)| {
        let text = &pattern[range.clone()];
        let name = match kind {
            ConstructKind::Possessive => "a possessive repetition",
            ConstructKind::Escape => match text.as_bytes().get(1)? {
                b'1'..=b'9' | b'k' => "a back-reference",
                b'g' if text.contains(['<', '\'']) => "recursion",
                b'g' => "a back-reference",
                _ => return None,
            },
            ConstructKind::Open => match text {
                "(?=" | "(?!" => "look-ahead",
                "(?<=" | "(?<!" => "look-behind",
                "(?>" => "an atomic group",
                "(?(" => "a conditional group",
                "(?R" | "(?&" | "(?P>" => "recursion",
                text if text.ends_with(|last: char| last.is_ascii_digit()) => "recursion",
                _ => return None,
            },
            ConstructKind::Verb => "a verb",
            _ => return None,
        };
        Some((name, range))
    })
}

/// Translates a pattern of PCRE without options to the syntax of the linear engine.
pub(crate) fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    for (kind, range) in parts(pattern) {
        let text = &pattern[range];
        match (kind, text) {
            (ConstructKind::Class, _) => push_ascii_class(text, &mut out),
            (ConstructKind::Escape, r"\d" | r"\w" | r"\s" | r"\b" | r"\B") => {
                out.extend(["(?-u:", text, ")"]);
            }
            (ConstructKind::Escape, r"\D") => out.push_str("[^0-9]"),
            (ConstructKind::Escape, r"\W") => out.push_str("[^0-9A-Za-z_]"),
            (ConstructKind::Escape, r"\S") => out.push_str("[^\\t-\\r ]"),
            (ConstructKind::Escape, r"\Z") => out.push_str("\\z"),
            // Escaped, they are word boundaries in the linear engine.
            (ConstructKind::Escape, r"\/" | r"\<" | r"\>") => out.push_str(&text[1..]),
            _ => out.push_str(text),
        }
    }
    out
}

fn push_ascii_class(class: &str, out: &mut String) {
    let inner = class.strip_prefix('[').unwrap_or(class);
    out.push('[');
    let inner = match inner.strip_prefix('^') {
        Some(rest) => {
            out.push('^');
            rest
        }
        None => inner,
    };
    let (mut chars, mut is_first, mut before) = (inner.chars().peekable(), true, ' ');
    while let Some(c) = chars.next() {
        let own = std::mem::replace(&mut before, c);
        match c {
            ']' if !is_first => out.push(']'),
            '\\' => {
                escape_in_class(chars.next(), out);
                before = ' ';
            }
            '[' if chars.peek() == Some(&':') => named_class(&mut chars, out),
            // Literal in PCRE, but set operations in the linear engine.
            '[' | ']' | '&' | '~' => out.extend(['\\', c]),
            '-' if is_first || own == '-' => {
                out.push_str("\\-");
                before = ' ';
            }
            c => out.push(c),
        }
        is_first = false;
    }
}

fn escape_in_class(letter: Option<char>, out: &mut String) {
    match letter {
        Some('d') => out.push_str("0-9"),
        Some('w') => out.push_str("0-9A-Za-z_"),
        Some('s') => out.push_str("\\t-\\r "),
        Some('D') => out.push_str("[^0-9]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('S') => out.push_str("[^\\t-\\r ]"),
        Some('b') => out.push_str("\\x08"),
        Some(c @ ('/' | '<' | '>')) => out.push(c),
        Some(c) => out.extend(['\\', c]),
        None => out.push('\\'),
    }
}

fn named_class(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('[');
    for c in chars.by_ref() {
        out.push(c);
        if c == ']' {
            break;
        }
    }
}
