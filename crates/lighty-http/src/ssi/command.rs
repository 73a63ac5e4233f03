//! A command and its attributes.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;

/// Name of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the command of its name")]
pub enum CommandName {
    Echo,
    Include,
    Flastmod,
    Fsize,
    Config,
    Printenv,
    Set,
    If,
    Elif,
    Else,
    Endif,
    Exec,
    /// No effect: a remark for authors.
    Comment,
}

/// Names in their written form.
const NAMES: [(&[u8], CommandName); 13] = [
    (b"echo", CommandName::Echo),
    (b"include", CommandName::Include),
    (b"flastmod", CommandName::Flastmod),
    (b"fsize", CommandName::Fsize),
    (b"config", CommandName::Config),
    (b"printenv", CommandName::Printenv),
    (b"set", CommandName::Set),
    (b"if", CommandName::If),
    (b"elif", CommandName::Elif),
    (b"else", CommandName::Else),
    (b"endif", CommandName::Endif),
    (b"exec", CommandName::Exec),
    (b"comment", CommandName::Comment),
];

/// A parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsiCommand<'a> {
    /// The command's name.
    pub name: CommandName,
    /// Names and values as written, in their order.
    pub attributes: Vec<(&'a [u8], Cow<'a, [u8]>)>,
}

/// Reason for rejecting a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// There is no such command.
    Unknown,
    /// An attribute has no `=` or no value.
    NoValue,
    /// A value's quote is not closed.
    Unclosed,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such command",
            Self::NoValue => "an attribute has no value",
            Self::Unclosed => "a value's quote is not closed",
        })
    }
}

impl<'a> SsiCommand<'a> {
    /// Parses the text between `<!--#` and `-->`. Values are in double or single quotes, in which a
    /// backslash escapes the quote, or bare words.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(text: &'a [u8]) -> Result<Self, Malformed> {
        let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
        let (word, mut rest) = text.split_at(end);
        let known = NAMES.iter().find(|(known, _)| *known == word);
        let name = known.ok_or(Malformed::Unknown)?.1;
        let mut attributes = Vec::new();
        if name == CommandName::Comment {
            return Ok(Self { name, attributes });
        }
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return Ok(Self { name, attributes });
            }
            let (attribute, behind) = attribute(rest)?;
            attributes.push(attribute);
            rest = behind;
        }
    }

    /// The last value of an attribute.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.attributes.iter().rev().find(|(known, _)| *known == name);
        found.map(|(_, value)| &**value)
    }
}

type Attribute<'a> = (&'a [u8], Cow<'a, [u8]>);

fn attribute(text: &[u8]) -> Result<(Attribute<'_>, &[u8]), Malformed> {
    let is_end = |byte: &u8| *byte == b'=' || byte.is_ascii_whitespace();
    let (name, rest) = text.split_at(text.iter().position(is_end).unwrap_or(text.len()));
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b"=").ok_or(Malformed::NoValue)?.trim_ascii_start();
    match rest.split_first() {
        Some((&quote @ (b'"' | b'\''), rest)) => {
            let (value, rest) = quoted(rest, quote)?;
            Ok(((name, value), rest))
        }
        Some(_) => {
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            Ok(((name, Cow::Borrowed(&rest[..end])), &rest[end..]))
        }
        None => Err(Malformed::NoValue),
    }
}

/// Splits a value at its closing quote. A backslash only has a meaning before that quote, because
/// expressions have escapes of their own.
fn quoted(text: &[u8], quote: u8) -> Result<(Cow<'_, [u8]>, &[u8]), Malformed> {
    let mut unescaped = Vec::new();
    let mut from = 0;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte == quote {
            let rest = &text[at + 1..];
            if unescaped.is_empty() {
                return Ok((Cow::Borrowed(&text[..at]), rest));
            }
            unescaped.extend_from_slice(&text[from..at]);
            return Ok((Cow::Owned(unescaped), rest));
        }
        if byte == b'\\' && text.get(at + 1) == Some(&quote) {
            unescaped.extend_from_slice(&text[from..at]);
            unescaped.push(quote);
            at += 1;
            from = at + 1;
        }
        at += 1;
    }
    Err(Malformed::Unclosed)
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::String;

    use super::*;

    fn shown(text: &str) -> String {
        match SsiCommand::parse(text.as_bytes()) {
            Ok(command) => {
                let show = |(name, value): &Attribute<'_>| {
                    format!(" {}={}", name.escape_ascii(), value.escape_ascii())
                };
                let attributes: String = command.attributes.iter().map(show).collect();
                format!("{:?}{attributes}", command.name)
            }
            Err(why) => format!("{why:?}"),
        }
    }

    #[test]
    fn commands_and_their_attributes() {
        for (text, wanted) in [
            ("echo var=\"A\"", "Echo var=A"),
            ("echo  var = 'A B'\tencoding=none ", "Echo var=A B encoding=none"),
            ("include\nfile=\"a\"virtual=b", "Include file=a virtual=b"),
            ("set var=\"a\" value=\"say \\\"hi\\\" \\n\"", "Set var=a value=say \\\"hi\\\" \\\\n"),
            ("set var='it\\'s' value=\"\"", "Set var=it\\'s value="),
            ("else", "Else"),
            ("printenv ", "Printenv"),
            ("comment don't mind = this", "Comment"),
            ("Echo var=\"A\"", "Unknown"),
            ("", "Unknown"),
            ("echo\"A\"", "Unknown"),
            ("echo var", "NoValue"),
            ("echo var=", "NoValue"),
            ("echo var=\"A", "Unclosed"),
            ("echo =x", "Echo =x"),
        ] {
            assert_eq!(shown(text), wanted, "{text}");
        }
        let twice = SsiCommand::parse(b"echo var=a var=b").unwrap();
        assert_eq!((twice.get(b"var"), twice.get(b"VAR")), (Some(&b"b"[..]), None));
    }
}
