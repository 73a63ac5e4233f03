//! Source texts, and positions in them.

use std::path::{Path, PathBuf};

/// Number of a file in [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub(crate) u32);

/// A range of bytes in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// Byte after the last one.
    pub end: u32,
}

impl Span {
    /// The range from the start of `self` to the end of `other`; `self` if they are in
    /// different files.
    pub fn to(self, other: Span) -> Span {
        if self.file == other.file { Span { end: other.end.max(self.end), ..self } } else { self }
    }
}

/// A value with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// The position.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Adds a position to a value.
    pub fn new(value: T, span: Span) -> Self {
        Spanned { value, span }
    }
}

/// A file, or the output of a command.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name for messages: a path, `-`, or `include_shell "…"`.
    pub name: String,
    /// The file that it was read from, if any.
    pub path: Option<PathBuf>,
    /// The text, with U+FFFD in place of bytes that were not UTF-8.
    pub text: String,
    /// True if some bytes were not UTF-8.
    pub lossy: bool,
    /// The `include` statement.
    pub included_from: Option<Span>,
    line_starts: Vec<u32>,
}

impl Source {
    /// Number of lines; a last line without a newline counts.
    pub fn line_count(&self) -> usize {
        self.line_starts.len()
    }

    /// The text of a line (counted from 1) without its line ending.
    pub fn line(&self, line: usize) -> &str {
        let start = self.line_starts[line - 1] as usize;
        let end = self.line_starts.get(line).map_or(self.text.len(), |&next| next as usize);
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }
}

/// A position for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// Name of the file.
    pub name: &'a str,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl std::fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.line, self.column)
    }
}

/// All texts of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<Source>,
}

impl Sources {
    /// Adds a text under a name.
    pub fn add(&mut self, name: &str, path: Option<&Path>, text: String) -> FileId {
        let mut line_starts = vec![0];
        let newlines = text.bytes().enumerate().filter(|&(_, b)| b == b'\n');
        line_starts.extend(newlines.map(|(at, _)| at as u32 + 1));
        if line_starts.len() > 1 && line_starts.last() == Some(&(text.len() as u32)) {
            line_starts.pop();
        }
        let id = FileId(self.files.len() as u32);
        self.files.push(Source {
            name: name.to_owned(),
            path: path.map(Path::to_path_buf),
            lossy: false,
            included_from: None,
            text,
            line_starts,
        });
        id
    }

    /// The names and the starts of lines alone, which tell the lines of positions.
    #[must_use]
    pub fn without_texts(&self) -> Sources {
        let bare = |file: &Source| Source { text: String::new(), ..file.clone() };
        Sources { files: self.files.iter().map(bare).collect() }
    }

    /// Adds raw bytes. Records invalid UTF-8, and the `include` statement.
    pub(crate) fn add_bytes(
        &mut self,
        name: &str,
        path: Option<&Path>,
        bytes: Vec<u8>,
        included_from: Option<Span>,
    ) -> FileId {
        let (text, lossy) = match String::from_utf8(bytes) {
            Ok(text) => (text, false),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
        };
        let id = self.add(name, path, text);
        let file = &mut self.files[id.0 as usize];
        file.lossy = lossy;
        file.included_from = included_from;
        id
    }

    /// The file with this id.
    pub fn get(&self, id: FileId) -> &Source {
        &self.files[id.0 as usize]
    }

    /// All files in the order of reading; the first is the main one.
    pub fn iter(&self) -> impl Iterator<Item = (FileId, &Source)> {
        self.files.iter().enumerate().map(|(at, file)| (FileId(at as u32), file))
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// True if there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The text at a position.
    pub fn text(&self, span: Span) -> &str {
        self.get(span.file).text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// Name, line and column of a position's start.
    pub fn locate(&self, span: Span) -> Location<'_> {
        let file = self.get(span.file);
        let line = file.line_starts.partition_point(|&start| start <= span.start);
        let start = file.line_starts[line - 1] as usize;
        let before = file.text.get(start..span.start as usize).unwrap_or("");
        Location { name: &file.name, line, column: before.chars().count() + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sources: &Sources, start: u32) -> (usize, usize) {
        let location = sources.locate(Span { file: FileId(0), start, end: start });
        (location.line, location.column)
    }

    #[test]
    fn places_are_counted_in_lines_and_characters() {
        let mut sources = Sources::default();
        sources.add("x", None, "ab\né=1\n".into());
        assert_eq!(at(&sources, 0), (1, 1));
        assert_eq!(at(&sources, 2), (1, 3));
        assert_eq!(at(&sources, 3), (2, 1));
        assert_eq!(at(&sources, 5), (2, 2), "é is two bytes and one column");
        assert_eq!(at(&sources, 8), (2, 5), "the end belongs to the last line");
        assert_eq!(sources.get(FileId(0)).line_count(), 2);
        assert_eq!(sources.get(FileId(0)).line(2), "é=1");
    }

    #[test]
    fn an_empty_file_has_one_line() {
        let mut sources = Sources::default();
        sources.add("x", None, String::new());
        assert_eq!(at(&sources, 0), (1, 1));
        assert_eq!(sources.get(FileId(0)).line(1), "");
    }
}
