//! Structured field values: dictionaries and lists, RFC 9651.
//!
//! A parser accepts a whole field or nothing. Numbers of members, keys and parameters are limited
//! to the sizes that the RFC requires of every implementation.

use alloc::borrow::Cow;
use alloc::vec::Vec;

/// The largest number of members of a dictionary or list: RFC 9651 sections 3.1 and 3.2.
pub const MEMBERS_MAX: usize = 1024;

/// The largest number of parameters of a member, and of items in an inner list.
pub const PARAMETERS_MAX: usize = 256;

/// A field that is not structured as it should be. Its receiver ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructuredFault {
    /// A byte that the grammar does not allow at its place, or a missing one.
    Syntax,
    /// A number with too many digits.
    Number,
    /// More than [`MEMBERS_MAX`] members, or more than [`PARAMETERS_MAX`] parameters or items.
    TooMany,
}

/// A value without parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BareItem<'a> {
    /// Up to fifteen digits.
    Integer(i64),
    /// A decimal number, in thousandths.
    Decimal(i64),
    /// A string without its quotes and escapes.
    String(Cow<'a, [u8]>),
    /// A token.
    Token(&'a [u8]),
    /// The base64 between two colons, of its alphabet only.
    Binary(&'a [u8]),
    /// `?0` or `?1`; also a key without a value.
    Boolean(bool),
    /// `@` and seconds since 1970.
    Date(i64),
    /// `%"..."`, still with its escapes, of valid ones only.
    DisplayString(&'a [u8]),
}

/// Parameters of an item, in order, each key once.
pub type StructuredParameters<'a> = Vec<(&'a [u8], BareItem<'a>)>;

/// A value with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructuredItem<'a> {
    /// The value.
    pub value: BareItem<'a>,
    /// Its parameters.
    pub parameters: StructuredParameters<'a>,
}

/// A member of a dictionary or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StructuredMember<'a> {
    /// A single item.
    Item(StructuredItem<'a>),
    /// Items in parentheses.
    InnerList {
        /// The items.
        items: Vec<StructuredItem<'a>>,
        /// Parameters of the list itself.
        parameters: StructuredParameters<'a>,
    },
}

impl<'a> StructuredMember<'a> {
    /// The value of a single item.
    #[must_use]
    pub const fn item(&self) -> Option<&BareItem<'a>> {
        match self {
            Self::Item(item) => Some(&item.value),
            Self::InnerList { .. } => None,
        }
    }
}

/// Members of a dictionary, in order, each key once.
pub type StructuredDictionary<'a> = Vec<(&'a [u8], StructuredMember<'a>)>;

/// The value of a field with several lines: RFC 9651 section 4.2. Empty lines count, and make the
/// value malformed.
pub fn combine<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Cow<'a, [u8]> {
    let mut combined = Cow::Borrowed(lines.next().unwrap_or_default());
    for line in lines {
        let combined = combined.to_mut();
        combined.extend_from_slice(b", ");
        combined.extend_from_slice(line);
    }
    combined
}

/// Parses a dictionary: RFC 9651 section 4.2.2. Of equal keys the last value counts, at the place
/// of the first.
///
/// # Errors
/// [`StructuredFault`].
pub fn dictionary(text: &[u8]) -> Result<StructuredDictionary<'_>, StructuredFault> {
    let mut parser = StructuredParser::new(text);
    let mut members = Vec::new();
    while !parser.is_empty() {
        let key = parser.key()?;
        let member = if parser.take(b'=') {
            parser.member()?
        } else {
            let parameters = parser.parameters()?;
            StructuredMember::Item(StructuredItem { value: BareItem::Boolean(true), parameters })
        };
        insert(&mut members, key, member, MEMBERS_MAX)?;
        parser.next_member()?;
    }
    Ok(members)
}

/// Parses a list: RFC 9651 section 4.2.1.
///
/// # Errors
/// [`StructuredFault`].
pub fn list(text: &[u8]) -> Result<Vec<StructuredMember<'_>>, StructuredFault> {
    let mut parser = StructuredParser::new(text);
    let mut members = Vec::new();
    while !parser.is_empty() {
        if members.len() == MEMBERS_MAX {
            return Err(StructuredFault::TooMany);
        }
        members.push(parser.member()?);
        parser.next_member()?;
    }
    Ok(members)
}

/// Replaces the value of a key, or appends it.
fn insert<'a, T>(
    pairs: &mut Vec<(&'a [u8], T)>,
    key: &'a [u8],
    value: T,
    pairs_max: usize,
) -> Result<(), StructuredFault> {
    if let Some((_, old)) = pairs.iter_mut().find(|(other, _)| *other == key) {
        *old = value;
        return Ok(());
    }
    if pairs.len() == pairs_max {
        return Err(StructuredFault::TooMany);
    }
    pairs.push((key, value));
    Ok(())
}

/// The unread rest of a field.
struct StructuredParser<'a> {
    rest: &'a [u8],
}

impl<'a> StructuredParser<'a> {
    /// Drops the spaces around the whole value.
    fn new(mut text: &'a [u8]) -> Self {
        while let [b' ', rest @ ..] = text {
            text = rest;
        }
        while let [rest @ .., b' '] = text {
            text = rest;
        }
        Self { rest: text }
    }

    const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Skips a byte if it is the next one.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), StructuredFault> {
        if self.take(byte) { Ok(()) } else { Err(StructuredFault::Syntax) }
    }

    /// The longest prefix of bytes that pass.
    fn take_while(&mut self, passes: impl Fn(u8) -> bool) -> &'a [u8] {
        let len = self.rest.iter().position(|&byte| !passes(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// Moves past the comma to the next member, or to the end. A trailing comma is a fault.
    fn next_member(&mut self) -> Result<(), StructuredFault> {
        self.take_while(is_blank);
        if self.is_empty() {
            return Ok(());
        }
        self.expect(b',')?;
        self.take_while(is_blank);
        if self.is_empty() { Err(StructuredFault::Syntax) } else { Ok(()) }
    }

    fn key(&mut self) -> Result<&'a [u8], StructuredFault> {
        let starts = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'*';
        if !self.rest.first().is_some_and(starts) {
            return Err(StructuredFault::Syntax);
        }
        Ok(self.take_while(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
        }))
    }

    fn member(&mut self) -> Result<StructuredMember<'a>, StructuredFault> {
        if !self.take(b'(') {
            return self.item().map(StructuredMember::Item);
        }
        let mut items = Vec::new();
        loop {
            self.take_while(|byte| byte == b' ');
            if self.take(b')') {
                return Ok(StructuredMember::InnerList { items, parameters: self.parameters()? });
            }
            if items.len() == PARAMETERS_MAX {
                return Err(StructuredFault::TooMany);
            }
            items.push(self.item()?);
            if !matches!(self.rest.first(), Some(b' ' | b')')) {
                return Err(StructuredFault::Syntax);
            }
        }
    }

    fn item(&mut self) -> Result<StructuredItem<'a>, StructuredFault> {
        Ok(StructuredItem { value: self.bare_item()?, parameters: self.parameters()? })
    }

    fn parameters(&mut self) -> Result<StructuredParameters<'a>, StructuredFault> {
        let mut parameters = Vec::new();
        while self.take(b';') {
            self.take_while(|byte| byte == b' ');
            let key = self.key()?;
            let value = if self.take(b'=') { self.bare_item()? } else { BareItem::Boolean(true) };
            insert(&mut parameters, key, value, PARAMETERS_MAX)?;
        }
        Ok(parameters)
    }

    fn bare_item(&mut self) -> Result<BareItem<'a>, StructuredFault> {
        match *self.rest.first().ok_or(StructuredFault::Syntax)? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b':' => self.binary(),
            b'?' => self.boolean(),
            b'@' => self.date(),
            b'%' => self.display_string(),
            byte if byte.is_ascii_alphabetic() || byte == b'*' => {
                let is_part =
                    |byte| crate::fields::is_token_byte(byte) || matches!(byte, b':' | b'/');
                Ok(BareItem::Token(self.take_while(is_part)))
            }
            _ => Err(StructuredFault::Syntax),
        }
    }

    /// Up to fifteen digits; or twelve, a point, and up to three.
    fn number(&mut self) -> Result<BareItem<'a>, StructuredFault> {
        let sign = if self.take(b'-') { -1 } else { 1 };
        let whole = self.take_while(|byte| byte.is_ascii_digit());
        let read = |digits: &[u8]| {
            digits.iter().fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'))
        };
        match (whole.len(), self.rest.first()) {
            (0, _) => Err(StructuredFault::Syntax),
            (1..=12, Some(b'.')) => {
                self.rest = &self.rest[1..];
                let decimals = self.take_while(|byte| byte.is_ascii_digit());
                let scale = match decimals.len() {
                    0 => return Err(StructuredFault::Syntax),
                    1 => 100,
                    2 => 10,
                    3 => 1,
                    _ => return Err(StructuredFault::Number),
                };
                Ok(BareItem::Decimal(sign * (read(whole) * 1000 + read(decimals) * scale)))
            }
            (1..=15, next) if next != Some(&b'.') => Ok(BareItem::Integer(sign * read(whole))),
            _ => Err(StructuredFault::Number),
        }
    }

    fn string(&mut self) -> Result<BareItem<'a>, StructuredFault> {
        self.expect(b'"')?;
        let mut end = 0;
        loop {
            match self.rest.get(end) {
                Some(b'"') => break,
                Some(b'\\') if matches!(self.rest.get(end + 1), Some(b'"' | b'\\')) => end += 2,
                Some(b' '..=b'[' | b']'..=b'~') => end += 1,
                _ => return Err(StructuredFault::Syntax),
            }
        }
        let inner = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(BareItem::String(crate::quoted::unescape(inner)))
    }

    fn binary(&mut self) -> Result<BareItem<'a>, StructuredFault> {
        self.expect(b':')?;
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        let text = self.take_while(is_base64);
        self.expect(b':')?;
        Ok(BareItem::Binary(text))
    }

    fn boolean(&mut self) -> Result<BareItem<'a>, StructuredFault> {
        self.expect(b'?')?;
        if self.take(b'1') {
            return Ok(BareItem::Boolean(true));
        }
        self.expect(b'0')?;
        Ok(BareItem::Boolean(false))
    }

    fn date(&mut self) -> Result<BareItem<'a>, StructuredFault> {
        self.expect(b'@')?;
        match self.number()? {
            BareItem::Integer(seconds) => Ok(BareItem::Date(seconds)),
            _ => Err(StructuredFault::Syntax),
        }
    }

    fn display_string(&mut self) -> Result<BareItem<'a>, StructuredFault> {
        self.expect(b'%')?;
        self.expect(b'"')?;
        let mut end = 0;
        let is_hex =
            |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        loop {
            match self.rest.get(end) {
                Some(b'"') => break,
                Some(b'%') => {
                    let valid = is_hex(self.rest.get(end + 1)) && is_hex(self.rest.get(end + 2));
                    end += if valid { 3 } else { return Err(StructuredFault::Syntax) };
                }
                Some(b' '..=b'~') => end += 1,
                _ => return Err(StructuredFault::Syntax),
            }
        }
        let inner = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(BareItem::DisplayString(inner))
    }
}

/// Optional whitespace between members.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
#[path = "structured_tests.rs"]
mod tests;
