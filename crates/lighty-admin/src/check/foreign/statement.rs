//! Statements of configurations whose language is not known yet.

use lighty_config::{FileId, Span};

/// A piece of a file up to its terminator.
pub(super) struct Statement<'a> {
    /// Empty for a `{` that nothing precedes in the file.
    pub(super) tokens: Vec<&'a str>,
    /// `;`, `{`, `}`, or the end of the line. A `{` may stand in the next line.
    pub(super) end: char,
    /// Only comments precede it.
    pub(super) is_first: bool,
    /// The text behind the terminator.
    pub(super) rest: &'a str,
    pub(super) span: Span,
}

impl Statement<'_> {
    /// The place of what follows the statement, where a parser that knows another language may
    /// first notice it.
    pub(super) fn reach(&self, text: &str) -> u32 {
        let behind = &text[self.span.end as usize..];
        let space = behind.find(|c: char| !c.is_whitespace()).unwrap_or(behind.len());
        self.span.end + space as u32
    }

    /// The end of the statement, and of the block that it opens.
    pub(super) fn end_of_part(&self, text: &str) -> u32 {
        let from = self.span.end as usize;
        let section = self.tokens.first().and_then(|word| word.strip_prefix('<'));
        let length = match (self.end, section) {
            ('{', _) => end_of_block(&text[from..]),
            (_, Some(name)) => end_of_section(&text[from..], name.trim_end_matches('>')),
            ('\n', None) => end_of_indented(&text[from..]),
            _ => 0,
        };
        (from + length) as u32
    }
}

/// Length up to the `}` of the block whose `{` is the first in `text`.
fn end_of_block(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Length up to `</name>`, or 0 without it.
fn end_of_section(text: &str, name: &str) -> usize {
    let end = format!("</{}>", name.to_ascii_lowercase());
    text.to_ascii_lowercase().find(&end).map_or(0, |at| at + end.len() - 1)
}

/// Length of the indented lines behind this one, blank lines between them included.
fn end_of_indented(text: &str) -> usize {
    let mut length = 0;
    let mut all = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let is_blank = line.trim().is_empty();
        if index > 0 && !is_blank && !line.starts_with([' ', '\t']) {
            break;
        }
        all += line.len();
        if index > 0 && !is_blank {
            length = all.saturating_sub(1);
        }
    }
    length
}

/// All statements of a file.
pub(super) fn statements(file: FileId, text: &str) -> Vec<Statement<'_>> {
    let mut list: Vec<Statement<'_>> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let behind = &text[at + line.len()..];
        let comment = line.find('#').filter(|at| *at == 0 || line[..*at].ends_with([' ', '\t']));
        let code = &line[..comment.unwrap_or(line.len())];
        let mut begin = 0;
        while begin < code.len() {
            let found = code[begin..].find([';', '{', '}']);
            let end = found.map_or(code.len(), |length| begin + length);
            let piece = &code[begin..end];
            let tokens: Vec<&str> = piece.split_whitespace().collect();
            let terminator = match code[end..].chars().next() {
                Some(terminator) => terminator,
                None if behind.trim_start().starts_with('{') => '{',
                None => '\n',
            };
            let is_opening = list.is_empty() && terminator == '{' && found.is_some();
            if !tokens.is_empty() || is_opening {
                let start = tokens.first().and_then(|word| piece.find(word));
                let start = at + begin + start.unwrap_or(piece.len());
                let length = piece.trim().len().max(usize::from(tokens.is_empty()));
                let span = Span { file, start: start as u32, end: (start + length) as u32 };
                let rest = text.get(at + end + 1..).unwrap_or_default();
                let is_first = list.is_empty();
                list.push(Statement { tokens, end: terminator, is_first, rest, span });
            }
            begin = end + 1;
        }
        at += line.len();
    }
    list
}
