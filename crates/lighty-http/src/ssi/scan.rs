//! Splits a page into text and commands.

use alloc::vec::Vec;

use super::COMMAND_BYTES_MAX;

const OPEN: &[u8] = b"<!--#";
const CLOSE: &[u8] = b"-->";

/// A piece of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePiece<'a> {
    /// Sent unchanged. One run of text may be split into several pieces.
    Text(&'a [u8]),
    /// The bytes between `<!--#` and `-->`.
    Command(&'a [u8]),
}

/// Splits a page into pieces while it is read. The boundaries of the reads do not matter.
///
/// Call [`Scanner::next`] until a read is used up, and [`Scanner::finish`] after the last one. The
/// bytes of all pieces, with the delimiters of commands, are the page.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Bytes of an incomplete opening, or of an incomplete command with its opening.
    held: Vec<u8>,
    /// `held` was returned, and is cleared by the next call.
    spent: bool,
}

impl Scanner {
    /// Takes bytes from the beginning of `input`. Returns the next piece, if one is complete, and
    /// the number of bytes used up. Without a piece, all are.
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> (Option<PagePiece<'a>>, usize) {
        if core::mem::take(&mut self.spent) {
            self.held.clear();
        }
        if self.held.is_empty() {
            let text = memchr::memchr(b'<', input).unwrap_or(input.len());
            if text > 0 {
                return (Some(PagePiece::Text(&input[..text])), text);
            }
        }
        self.hold(input)
    }

    /// The remaining bytes, which are not a complete command: text.
    pub fn finish(&mut self) -> &[u8] {
        if core::mem::replace(&mut self.spent, true) {
            self.held.clear();
        }
        &self.held
    }

    /// Takes bytes one by one until it is clear whether they are a command.
    fn hold<'a>(&'a mut self, input: &'a [u8]) -> (Option<PagePiece<'a>>, usize) {
        for (at, &byte) in input.iter().enumerate() {
            let opening = self.held.len() < OPEN.len();
            if opening && byte != OPEN[self.held.len()] {
                // This byte may start another opening.
                return self.text(at);
            }
            if self.held.len() == OPEN.len() && !byte.is_ascii_alphabetic() {
                return self.text(at);
            }
            self.held.push(byte);
            if self.held.len() > OPEN.len() && self.held.ends_with(CLOSE) {
                self.spent = true;
                let end = self.held.len() - CLOSE.len();
                return (Some(PagePiece::Command(&self.held[OPEN.len()..end])), at + 1);
            }
            if self.held.len() == OPEN.len() + COMMAND_BYTES_MAX + CLOSE.len() {
                return self.text(at + 1);
            }
        }
        (None, input.len())
    }

    fn text(&mut self, used: usize) -> (Option<PagePiece<'_>>, usize) {
        self.spent = true;
        (Some(PagePiece::Text(&self.held)), used)
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::{String, ToString};
    use std::vec::Vec;

    use super::*;

    /// The pieces of a page that arrives in parts, with adjacent texts joined.
    fn cut(parts: &[&[u8]]) -> String {
        let (mut scanner, mut shown, mut text) = (Scanner::default(), String::new(), Vec::new());
        let flush = |text: &mut Vec<u8>, shown: &mut String| {
            if !text.is_empty() {
                shown.push_str(&format!("({})", text.escape_ascii()));
                text.clear();
            }
        };
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let (piece, used) = scanner.next(rest);
                match piece {
                    Some(PagePiece::Text(bytes)) => text.extend_from_slice(bytes),
                    Some(PagePiece::Command(bytes)) => {
                        flush(&mut text, &mut shown);
                        shown.push_str(&format!("[{}]", bytes.escape_ascii()));
                    }
                    None => assert_eq!(used, rest.len()),
                }
                rest = &rest[used..];
            }
        }
        text.extend_from_slice(scanner.finish());
        flush(&mut text, &mut shown);
        shown
    }

    #[test]
    fn pages_are_the_same_wherever_they_are_cut() {
        for (page, wanted) in [
            ("", ""),
            ("plain", "(plain)"),
            ("a<!--#echo x-->b", "(a)[echo x](b)"),
            ("<!--#a--><!--#b-->", "[a][b]"),
            ("<!-- no --><<!--#a-->", "(<!-- no --><)[a]"),
            ("<!--# no --><!--#-->", "(<!--# no --><!--#-->)"),
            ("<<!<!-<!--<!--#x --->", "(<<!<!-<!--)[x -]"),
            ("<!--#open", "(<!--#open)"),
            ("<!--#a '-->'-->", "[a \\'](\\'-->)"),
            ("<!--#a\n-- > -->", "[a\\n-- > ]"),
        ] {
            let page = page.as_bytes();
            assert_eq!(cut(&[page]), wanted);
            for at in 0..=page.len() {
                assert_eq!(cut(&[&page[..at], &page[at..]]), wanted, "cut at {at}");
            }
            let bytes: Vec<&[u8]> = page.chunks(1).collect();
            assert_eq!(cut(&bytes), wanted, "byte by byte");
        }
    }

    #[test]
    fn a_command_has_n_bytes_at_most() {
        for (length, is_command) in [(COMMAND_BYTES_MAX, true), (COMMAND_BYTES_MAX + 1, false)] {
            let command = "a".repeat(length);
            let page = format!("<!--#{command}-->x<!--#b-->");
            let wanted = match is_command {
                true => format!("[{command}](x)[b]"),
                false => format!("(<!--#{command}-->x)[b]"),
            };
            assert_eq!(cut(&[page.as_bytes()]), wanted.to_string());
            assert_eq!(cut(&[&page.as_bytes()[..5000], &page.as_bytes()[5000..]]), wanted);
        }
    }
}
