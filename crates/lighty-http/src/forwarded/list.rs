//! Splits a line of `Forwarded` into its members, from the right.
//!
//! Read from the left, one stray quote of a client would swallow the entries that proxies append.
//! Read from the right, the last proxy's entry is complete before any older one is parsed: the
//! quote that opens a value follows `=`, and quotes within it follow `\`.

use crate::fields::trim;

/// A quoted value without a beginning. The line to the left of it cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn;

/// The members of one line, last first, trimmed, without empty ones. [`Torn`] is the last item.
#[must_use]
pub fn from_right(line: &[u8]) -> FromRight<'_> {
    FromRight { rest: Some(line) }
}

/// Iterator of [`from_right`].
#[derive(Clone, Debug)]
pub struct FromRight<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for FromRight<'a> {
    type Item = Result<&'a [u8], Torn>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = self.rest.take()?;
            let member = match last_comma(line) {
                Err(torn) => return Some(Err(torn)),
                Ok(None) => line,
                Ok(Some(at)) => {
                    self.rest = Some(&line[..at]);
                    &line[at + 1..]
                }
            };
            let member = trim(member);
            if !member.is_empty() {
                return Some(Ok(member));
            }
        }
    }
}

/// Position of the last comma outside of quotes.
fn last_comma(line: &[u8]) -> Result<Option<usize>, Torn> {
    let mut end = line.len();
    while let Some(at) = line[..end].iter().rposition(|&byte| matches!(byte, b',' | b'"')) {
        if line[at] == b',' {
            return Ok(Some(at));
        }
        end = opening_quote(line, at)?;
    }
    Ok(None)
}

/// Position of the opening quote for the one at `closing`.
fn opening_quote(line: &[u8], closing: usize) -> Result<usize, Torn> {
    let mut end = closing;
    while let Some(at) = line[..end].iter().rposition(|&byte| byte == b'"') {
        match line[..at].last() {
            Some(b'=') => return Ok(at),
            Some(b'\\') => end = at,
            _ => return Err(Torn),
        }
    }
    Err(Torn)
}
