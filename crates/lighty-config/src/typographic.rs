//! Typographic characters of web pages and word processors: quotes, dashes, arrows, spaces. Inside
//! a proper string or a comment they are text; elsewhere they can only stand for the plain
//! character.

use std::borrow::Cow;

use crate::diag::Diagnostic;
use crate::lex::{Lexer, Token};
use crate::source::{FileId, Span};

/// The plain form of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    /// `"` at the beginning of a string.
    Opening,
    /// `"` at the end of a string.
    Closing,
    Dash,
    Arrow,
    Space,
    /// Nothing: the character has no width.
    Nothing,
}

/// A typographic character in place of its plain form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slip {
    at: usize,
    written: char,
    plain: Plain,
}

/// Every such character of a text, in order.
pub(crate) fn slips(text: &str) -> Vec<Slip> {
    let mut found = Vec::new();
    if text.is_ascii() {
        return found;
    }
    let mut lexer = Lexer::new(text, FileId(0));
    loop {
        let lexeme = lexer.next();
        let start = lexeme.span.start as usize;
        match lexeme.token {
            Token::Eof => return found,
            Token::OpenStr => {
                let string = &text[start..lexeme.span.end as usize];
                let quote = string.char_indices().find(|(_, c)| is_double(*c));
                if let Some((at, written)) = quote {
                    found.push(Slip { at: start + at, written, plain: Plain::Closing });
                    lexer.go_to(start + at + written.len_utf8());
                }
            }
            Token::Unknown => {
                let Some(written) = text[start..].chars().next() else { continue };
                let Some(plain) = plain(written) else { continue };
                found.push(Slip { at: start, written, plain });
                if plain == Plain::Opening
                    && let Some((at, closing)) = closing(text, start, written)
                {
                    if closing != '"' {
                        found.push(Slip { at, written: closing, plain: Plain::Closing });
                    }
                    lexer.go_to(at + closing.len_utf8());
                }
            }
            _ => {}
        }
    }
}

/// Reports typographic characters. Matching quotes are reported once, for the first one.
pub(crate) fn report<'a>(slips: &'a [Slip], file: FileId) -> impl Iterator<Item = Diagnostic> + 'a {
    let is_second = |at: usize| {
        slips[at].plain == Plain::Closing && at > 0 && slips[at - 1].plain == Plain::Opening
    };
    (0..slips.len()).filter(move |at| !is_second(*at)).map(move |at| {
        let Slip { at, written, plain } = slips[at];
        let wanted = match plain {
            Plain::Opening | Plain::Closing => "text stands between plain quotes: \"…\"",
            Plain::Dash => "the plain `-` belongs here",
            Plain::Arrow => "write `=>`",
            Plain::Space | Plain::Nothing => "a plain space, or nothing, belongs here",
        };
        let text = format!("`{written}` ({}, U+{:04X}): {wanted}", name(written), written as u32);
        let span = Span { file, start: at as u32, end: (at + written.len_utf8()) as u32 };
        Diagnostic::error("typography", span, text).help(
            "text from a web page or a word processor has such characters; `lighty fmt` mends them",
        )
    })
}

/// The text with plain characters. Byte positions are unchanged, so that the rest can be parsed.
pub(crate) fn padded<'a>(text: &'a str, slips: &[Slip]) -> Cow<'a, str> {
    replaced(text, slips, |slip| {
        let width = slip.written.len_utf8();
        match slip.plain {
            Plain::Opening => format!("{:>width$}", "\""),
            Plain::Closing => format!("{:width$}", "\""),
            Plain::Dash => "-".repeat(width),
            Plain::Arrow => format!("{:width$}", "=>"),
            Plain::Space | Plain::Nothing => " ".repeat(width),
        }
    })
}

/// The text with plain characters, for the formatter.
pub(crate) fn mended<'a>(text: &'a str, slips: &[Slip]) -> Cow<'a, str> {
    replaced(text, slips, |slip| {
        let plain = match slip.plain {
            Plain::Opening | Plain::Closing => "\"",
            Plain::Dash => "-",
            Plain::Arrow => "=>",
            Plain::Space => " ",
            Plain::Nothing => "",
        };
        plain.to_owned()
    })
}

/// A name with plain dashes.
pub(crate) fn with_plain_dashes(word: &str) -> String {
    let dash = |c: char| if plain(c) == Some(Plain::Dash) { '-' } else { c };
    word.chars().map(dash).collect()
}

fn replaced<'a>(text: &'a str, slips: &[Slip], by: impl Fn(&Slip) -> String) -> Cow<'a, str> {
    if slips.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for slip in slips {
        out.push_str(&text[from..slip.at]);
        out.push_str(&by(slip));
        from = slip.at + slip.written.len_utf8();
    }
    out.push_str(&text[from..]);
    Cow::Owned(out)
}

/// End and closing character, on the same line, of a string that `opening` opens.
fn closing(text: &str, start: usize, opening: char) -> Option<(usize, char)> {
    let from = start + opening.len_utf8();
    let line = text[from..].split('\n').next()?;
    let ends = |c: char| match is_double(opening) {
        true => c == '"' || is_double(c),
        false => is_single(c),
    };
    line.char_indices().find(|(_, c)| ends(*c)).map(|(at, c)| (from + at, c))
}

fn is_double(c: char) -> bool {
    matches!(c, '\u{201c}'..='\u{201f}' | '«' | '»' | '\u{2033}' | '\u{ff02}')
}

fn is_single(c: char) -> bool {
    matches!(c, '\u{2018}'..='\u{201b}' | '\u{2039}' | '\u{203a}' | '\u{2032}')
}

fn plain(c: char) -> Option<Plain> {
    Some(match c {
        _ if is_double(c) || is_single(c) => Plain::Opening,
        '\u{2010}'..='\u{2015}' | '\u{2212}' => Plain::Dash,
        '\u{2192}' | '\u{21d2}' => Plain::Arrow,
        '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => Plain::Space,
        '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{ad}' => Plain::Nothing,
        _ => return None,
    })
}

/// The character's Unicode name, or its common name.
fn name(c: char) -> &'static str {
    match c {
        '\u{201c}' => "left double quotation mark",
        '\u{201d}' => "right double quotation mark",
        '\u{2018}' => "left single quotation mark",
        '\u{2019}' => "right single quotation mark",
        '«' | '»' | '\u{2039}' | '\u{203a}' => "guillemet",
        _ if is_double(c) || is_single(c) => "quotation mark",
        '\u{2013}' => "en dash",
        '\u{2014}' => "em dash",
        '\u{2011}' => "non-breaking hyphen",
        '\u{2212}' => "minus sign",
        _ => match plain(c) {
            Some(Plain::Dash) => "dash",
            Some(Plain::Arrow) => "arrow",
            Some(Plain::Nothing) => "character without width",
            _ => "space",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mend(text: &str) -> String {
        let slips = slips(text);
        let padded = padded(text, &slips);
        assert_eq!(padded.len(), text.len(), "{padded}");
        mended(text, &slips).into_owned()
    }

    #[test]
    fn slips_become_what_was_meant() {
        assert_eq!(mend("a = “x”"), "a = \"x\"");
        assert_eq!(mend("a = „x“ + «y» + ‘z’ + ”w”"), "a = \"x\" + \"y\" + \"z\" + \"w\"");
        assert_eq!(mend("a = “x\"\nb = \"y”\nc = \"z\""), "a = \"x\"\nb = \"y\"\nc = \"z\"");
        assert_eq!(mend("server.document–root = “/srv”"), "server.document-root = \"/srv\"");
        assert_eq!(mend("a = ( “x” ⇒ “y” )"), "a = ( \"x\" => \"y\" )");
        assert_eq!(mend("a\u{2003}= \u{200b}1"), "a = 1");
        assert_eq!(mend("a = “don’t # stop”"), "a = \"don’t # stop\"");
    }

    #[test]
    fn strings_and_comments_keep_their_characters() {
        for text in ["a = \"“x” – y\" # “so” –", "# “\na = \"»\"", "a = “", "a = é"]
        {
            let found = mend(text);
            assert!(found == text || text == "a = “" && found == "a = \"", "{found}");
        }
    }
}
