//! Directives of `Cache-Control` and `Pragma`: RFC 9111 section 5.2.

use crate::fields::{is_token, is_token_byte, list_items, trim};
use crate::quoted;

/// The largest number of seconds in a field of a cache. Larger ones count as this one: RFC 9111
/// section 1.2.2.
pub const SECONDS_MAX: u32 = 1 << 31;

/// A directive of a `Cache-Control` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheDirective<'a> {
    /// The name, in any case.
    pub name: &'a [u8],
    /// The part after `=`.
    pub argument: DirectiveArgument<'a>,
}

/// The argument of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectiveArgument<'a> {
    /// There is no `=`.
    Absent,
    /// A token.
    Token(&'a [u8]),
    /// The inner part of a quoted string, with its escapes.
    Quoted(&'a [u8]),
    /// Anything else, such as a token after a space.
    Malformed,
}

impl CacheDirective<'_> {
    /// True if the directive has this name.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

impl<'a> DirectiveArgument<'a> {
    /// A number of seconds, as a token or a quoted string, at most [`SECONDS_MAX`]. `None` if it is
    /// absent or malformed.
    #[must_use]
    pub fn seconds(&self) -> Option<u32> {
        match self {
            Self::Token(digits) | Self::Quoted(digits) => seconds(digits),
            Self::Absent | Self::Malformed => None,
        }
    }

    /// The field names of `no-cache="a, b"` or `private="a, b"`. `None` unless it is a quoted list
    /// of tokens that is not empty; the directive then concerns the whole response.
    pub fn field_names(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        let Self::Quoted(list) = *self else { return None };
        let names = || list_items(list);
        (names().next().is_some() && names().all(is_token)).then(names)
    }
}

/// Parses a number of seconds that consists of digits only; larger numbers become [`SECONDS_MAX`].
#[must_use]
pub fn seconds(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u32, digit: &u8| {
        sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')).min(SECONDS_MAX)
    };
    Some(digits.iter().fold(0, add))
}

/// The directives of one line of the field, in order.
///
/// Commas within quoted strings do not separate. A quote that is never closed is malformed up to
/// the next comma. Empty members are skipped.
pub fn directives(line: &[u8]) -> impl Iterator<Item = CacheDirective<'_>> {
    let mut rest = line;
    core::iter::from_fn(move || {
        loop {
            while let [b' ' | b'\t' | b',', tail @ ..] = rest {
                rest = tail;
            }
            if rest.is_empty() {
                return None;
            }
            let (directive, tail) = split_directive(rest);
            rest = tail;
            if !directive.name.is_empty() {
                return Some(directive);
            }
        }
    })
}

/// Splits the first directive from the text after its comma.
fn split_directive(text: &[u8]) -> (CacheDirective<'_>, &[u8]) {
    let name_len = text.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(text.len());
    let (name, rest) = text.split_at(name_len);
    let (argument, rest) = match rest {
        [b'=', b'"', value @ ..] => match quoted::split(value) {
            Some((inner, after)) => {
                let (remainder, rest) = split_comma(after);
                let is_whole = trim(remainder).is_empty();
                (if is_whole { DirectiveArgument::Quoted(inner) } else { MALFORMED }, rest)
            }
            None => (MALFORMED, split_comma(value).1),
        },
        [b'=', value @ ..] => {
            let (value, rest) = split_comma(value);
            let has_blank = matches!(value, [b' ' | b'\t', ..]);
            let value = trim(value);
            let is_valid = !has_blank && is_token(value);
            (if is_valid { DirectiveArgument::Token(value) } else { MALFORMED }, rest)
        }
        other => {
            let (remainder, rest) = split_comma(other);
            let is_whole = trim(remainder).is_empty();
            (if is_whole { DirectiveArgument::Absent } else { MALFORMED }, rest)
        }
    };
    (CacheDirective { name, argument }, rest)
}

const MALFORMED: DirectiveArgument<'static> = DirectiveArgument::Malformed;

/// Splits at the first comma, which is dropped.
fn split_comma(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b',', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

#[cfg(test)]
#[path = "cache_control_tests.rs"]
mod tests;
