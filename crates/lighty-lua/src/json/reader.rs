//! Reads a JSON text piece by piece: any bytes, no recursion, nothing copied except strings with
//! escapes. Accepts exactly RFC 8259 in UTF-8.

use std::borrow::Cow;

use super::{DEPTH_MAX, VALUES_MAX};
use crate::lib_c::quoting::code_unit;

/// A piece of a text.
#[derive(Debug, PartialEq)]
pub enum JsonPiece<'a> {
    /// The literal `null`.
    Null,
    /// The literal `true` or `false`.
    Bool(bool),
    /// An integer in range, without fraction and exponent.
    Integer(i64),
    /// Any other number; it is finite.
    Number(f64),
    /// A string value, unescaped.
    String(Cow<'a, str>),
    /// `[`; the items follow.
    BeginArray,
    /// `]` of the innermost array.
    EndArray,
    /// `{`; a name and a value follow for each member.
    BeginObject,
    /// The name of a member; its value follows.
    Name(Cow<'a, str>),
    /// `}` of the innermost object.
    EndObject,
}

/// Reason for refusing a text, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} at byte {}", .at + 1)]
pub struct JsonError {
    /// The rule or limit that it breaks.
    pub why: Why,
    /// Offset in bytes, from 0.
    pub at: usize,
}

/// Error in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It ends too early.
    #[error("the text ends too soon")]
    Torn,
    /// A character that is not permitted here.
    #[error("unexpected character")]
    Unexpected,
    /// An invalid number, or one that is too large.
    #[error("invalid number")]
    Number,
    /// An invalid escape, or half a surrogate pair.
    #[error("invalid escape in a string")]
    Escape,
    /// A control character in a string.
    #[error("control character in a string")]
    Control,
    /// Bytes that are not UTF-8.
    #[error("the text is not UTF-8")]
    Utf8,
    /// More than [`DEPTH_MAX`] nested arrays and objects.
    #[error("arrays and objects nested deeper than {DEPTH_MAX}")]
    Depth,
    /// More than [`VALUES_MAX`] values.
    #[error("more than {VALUES_MAX} values")]
    Values,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Array,
    Object,
}

/// The pieces that may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    /// A value, or the end of an array that has just begun.
    FirstItem,
    /// A name, or the end of an object that has just begun.
    FirstName,
    /// After a value: a comma, an end, or nothing.
    Next,
}

/// A text being read.
pub struct JsonReader<'a> {
    text: &'a str,
    at: usize,
    open: Vec<Inside>,
    expected: Expected,
    values: usize,
}

impl<'a> JsonReader<'a> {
    /// # Errors
    /// The text is not UTF-8.
    pub fn new(text: &'a [u8]) -> Result<Self, JsonError> {
        let text = str::from_utf8(text)
            .map_err(|error| JsonError { why: Why::Utf8, at: error.valid_up_to() })?;
        Ok(Self { text, at: 0, open: Vec::new(), expected: Expected::Value, values: 0 })
    }

    /// Values read so far.
    pub fn values(&self) -> usize {
        self.values
    }

    /// The next piece; `None` at the end of a complete text.
    ///
    /// # Errors
    /// The error in the text; reading cannot continue.
    pub fn next_piece(&mut self) -> Result<Option<JsonPiece<'a>>, JsonError> {
        self.skip_space();
        let next = self.text.as_bytes().get(self.at);
        match (self.expected, self.open.last(), next) {
            (Expected::FirstItem, _, Some(b']'))
            | (Expected::Next, Some(Inside::Array), Some(b']'))
            | (Expected::FirstName, _, Some(b'}'))
            | (Expected::Next, Some(Inside::Object), Some(b'}')) => Ok(Some(self.end())),
            (Expected::Next, None, None) => Ok(None),
            (Expected::Next, Some(&inside), Some(b',')) => {
                self.at += 1;
                self.skip_space();
                match inside {
                    Inside::Array => self.value().map(Some),
                    Inside::Object => self.name().map(Some),
                }
            }
            (Expected::Next, ..) => Err(self.unexpected()),
            (Expected::FirstName, ..) => self.name().map(Some),
            (Expected::Value | Expected::FirstItem, ..) => self.value().map(Some),
        }
    }

    fn end(&mut self) -> JsonPiece<'a> {
        self.at += 1;
        self.expected = Expected::Next;
        match self.open.pop() {
            Some(Inside::Array) => JsonPiece::EndArray,
            _ => JsonPiece::EndObject,
        }
    }

    fn name(&mut self) -> Result<JsonPiece<'a>, JsonError> {
        if !self.take(b'"') {
            return Err(self.unexpected());
        }
        let name = self.string()?;
        self.skip_space();
        if !self.take(b':') {
            return Err(self.unexpected());
        }
        self.expected = Expected::Value;
        Ok(JsonPiece::Name(name))
    }

    fn value(&mut self) -> Result<JsonPiece<'a>, JsonError> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(self.refusal(Why::Values));
        }
        self.expected = Expected::Next;
        let rest = &self.text.as_bytes()[self.at..];
        for (word, piece) in [
            ("null", JsonPiece::Null),
            ("true", JsonPiece::Bool(true)),
            ("false", JsonPiece::Bool(false)),
        ] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(piece);
            }
        }
        match rest.first() {
            Some(b'"') => {
                self.at += 1;
                self.string().map(JsonPiece::String)
            }
            Some(b'[') => self.begin(Inside::Array, Expected::FirstItem, JsonPiece::BeginArray),
            Some(b'{') => self.begin(Inside::Object, Expected::FirstName, JsonPiece::BeginObject),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected()),
        }
    }

    fn begin(
        &mut self,
        inside: Inside,
        expected: Expected,
        piece: JsonPiece<'a>,
    ) -> Result<JsonPiece<'a>, JsonError> {
        if self.open.len() == DEPTH_MAX {
            return Err(self.refusal(Why::Depth));
        }
        self.at += 1;
        self.open.push(inside);
        self.expected = expected;
        Ok(piece)
    }

    fn number(&mut self) -> Result<JsonPiece<'a>, JsonError> {
        let begin = self.at;
        self.take(b'-');
        if !self.take(b'0') && self.digits() == 0 {
            return Err(self.refusal(Why::Number));
        }
        let mut is_integer = true;
        if self.take(b'.') {
            is_integer = false;
            if self.digits() == 0 {
                return Err(self.refusal(Why::Number));
            }
        }
        if self.take(b'e') || self.take(b'E') {
            is_integer = false;
            let _ = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return Err(self.refusal(Why::Number));
            }
        }
        let text = &self.text[begin..self.at];
        if is_integer && let Ok(integer) = text.parse() {
            return Ok(JsonPiece::Integer(integer));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(JsonPiece::Number(number)),
            _ => Err(JsonError { why: Why::Number, at: begin }),
        }
    }

    fn digits(&mut self) -> usize {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    /// Reads the rest of a string after its opening quote, including the closing one.
    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let plain = self.plain()?;
        if self.take(b'"') {
            return Ok(Cow::Borrowed(plain));
        }
        let mut text = String::from(plain);
        while !self.take(b'"') {
            self.at += 1;
            text.push(self.escape()?);
            text.push_str(self.plain()?);
        }
        Ok(Cow::Owned(text))
    }

    /// Reads up to the next quote or backslash.
    fn plain(&mut self) -> Result<&'a str, JsonError> {
        let rest = &self.text[self.at..];
        let stop = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F));
        let Some(stop) = stop else {
            self.at = self.text.len();
            return Err(self.refusal(Why::Torn));
        };
        self.at += stop;
        if rest.as_bytes()[stop] < 0x20 {
            return Err(self.refusal(Why::Control));
        }
        Ok(&rest[..stop])
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let Some(&kind) = self.text.as_bytes().get(self.at) else {
            return Err(self.refusal(Why::Torn));
        };
        self.at += 1;
        Ok(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{C}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.code_point(),
            _ => return Err(JsonError { why: Why::Escape, at: self.at - 1 }),
        })
    }

    fn code_point(&mut self) -> Result<char, JsonError> {
        let refusal = self.refusal(Why::Escape);
        let rest = &self.text.as_bytes()[self.at..];
        let first = code_unit(rest).ok_or(refusal)?;
        self.at += 4;
        let mut second = None;
        if matches!(first, 0xD800..=0xDBFF) {
            let escape = rest.get(4..6).filter(|escape| escape == b"\\u");
            second = Some(escape.and_then(|_| code_unit(&rest[6..])).ok_or(refusal)?);
            self.at += 6;
        }
        match char::decode_utf16([first].into_iter().chain(second)).next() {
            Some(Ok(point)) => Ok(point),
            _ => Err(refusal),
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_space(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().take_while(is_space).count();
    }

    fn unexpected(&self) -> JsonError {
        let is_torn = self.at >= self.text.len();
        self.refusal(if is_torn { Why::Torn } else { Why::Unexpected })
    }

    fn refusal(&self, why: Why) -> JsonError {
        JsonError { why, at: self.at }
    }
}
