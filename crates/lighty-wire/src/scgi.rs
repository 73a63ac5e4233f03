//! SCGI: a netstring of variables, then the body. The response is that of a CGI program.
//!
//! Source: the SCGI protocol specification of 2008. Names and values end with NUL; the first is
//! `CONTENT_LENGTH`, and `SCGI` is `1`. An application finds the end of the body by that length, so
//! the length must be known before the request can be written.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use lighty_http::decimal;
use memchr::memchr;

use crate::http1::Head;

lighty_http::fault_table! {
    /// Reason why a request cannot be written, or is rejected by an application.
    ScgiFault {
        Nul = "scgi-nul", "a NUL in a name or value for SCGI";
        Name = "scgi-name", "an SCGI variable without a name";
        HeadTooLarge = "scgi-head-too-large", "the SCGI variables exceed their limit";
        Netstring = "scgi-netstring", "the SCGI variables are not a netstring";
        Pairs = "scgi-pairs", "the SCGI variables are not pairs that end with NUL";
        Duplicate = "scgi-duplicate", "an SCGI variable occurs twice";
        ContentLength = "scgi-content-length", "the first SCGI variable is not CONTENT_LENGTH with a number";
        Version = "scgi-version", "the SCGI variable SCGI is not 1";
    }
}

/// Maximum bytes of all names and values, NULs included, in both directions.
pub const HEAD_BYTES_MAX: usize = 1024 * 1024;

/// Length of the digits of [`HEAD_BYTES_MAX`] and the colon.
const PREFIX_LEN: usize = 8;

const CONTENT_LENGTH: &[u8] = b"CONTENT_LENGTH";
const SCGI: &[u8] = b"SCGI";

/// Writes the variables of a request. `CONTENT_LENGTH` and `SCGI` are written first; pairs of these
/// names are ignored. The caller sends the body after them, unchanged.
#[derive(Debug)]
pub struct HeadWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// Bytes left out beyond the limit.
    omitted_bytes: usize,
    fault: Option<ScgiFault>,
}

impl<'a> HeadWriter<'a> {
    /// Creates a writer that appends to `out`, for a request with `content_length` bytes of body.
    pub fn new(content_length: u64, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_LEN]);
        out.extend_from_slice(b"CONTENT_LENGTH\0");
        decimal::push(content_length, out);
        out.extend_from_slice(b"\0SCGI\x001\0");
        Self { out, start, omitted_bytes: 0, fault: None }
    }

    /// Appends a variable. A fault is kept for [`HeadWriter::finish`].
    pub fn pair(&mut self, name: &[u8], value: &[u8]) {
        if matches!(name, CONTENT_LENGTH | SCGI) {
            return;
        }
        if name.is_empty() {
            self.fault = Some(ScgiFault::Name);
        }
        if memchr(0, name).or(memchr(0, value)).is_some() {
            self.fault = Some(ScgiFault::Nul);
        }
        let bytes = name.len().saturating_add(value.len()).saturating_add(2);
        if self.needed_bytes().saturating_add(bytes) > HEAD_BYTES_MAX {
            self.omitted_bytes = self.omitted_bytes.saturating_add(bytes);
            self.fault.get_or_insert(ScgiFault::HeadTooLarge);
        }
        if self.fault.is_none() {
            for part in [name, value] {
                self.out.extend_from_slice(part);
                self.out.push(0);
            }
        }
    }

    /// Bytes of the variables so far, including ones that did not fit: at most [`HEAD_BYTES_MAX`]
    /// can be sent.
    pub fn needed_bytes(&self) -> usize {
        self.len().saturating_add(self.omitted_bytes)
    }

    /// Ends the variables.
    ///
    /// # Errors
    /// [`ScgiFault::Nul`], [`ScgiFault::Name`], [`ScgiFault::HeadTooLarge`]; nothing is appended
    /// then.
    pub fn finish(self) -> Result<(), ScgiFault> {
        if let Some(fault) = self.fault {
            self.out.truncate(self.start);
            return Err(fault);
        }
        debug_assert!(self.len() <= HEAD_BYTES_MAX && self.omitted_bytes == 0, "{}", self.len());
        let mut prefix = Vec::with_capacity(PREFIX_LEN);
        decimal::push(self.len() as u64, &mut prefix);
        prefix.push(b':');
        self.out.splice(self.start..self.start + PREFIX_LEN, prefix);
        self.out.push(b',');
        Ok(())
    }

    fn len(&self) -> usize {
        self.out.len() - self.start - PREFIX_LEN
    }
}

/// The variables of a request, as parsed by an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScgiRequest<'a> {
    /// Length of the body that follows, in bytes.
    pub content_length: u64,
    content: &'a [u8],
}

impl<'a> ScgiRequest<'a> {
    /// Names and values in order, `CONTENT_LENGTH` and `SCGI` included.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.content;
        core::iter::from_fn(move || Some((split_nul(&mut rest)?, split_nul(&mut rest)?)))
    }
}

/// Application's side: parses the variables at the front of `buf` into `out`.
///
/// # Errors
/// [`ScgiFault`], as soon as it is certain.
pub fn parse_request<'a>(buf: &'a [u8], out: &mut ScgiRequest<'a>) -> Result<Head, ScgiFault> {
    let prefix = &buf[..buf.len().min(PREFIX_LEN)];
    let Some(colon) = memchr(b':', prefix) else {
        check_size_digits(prefix)?;
        return if prefix.len() < PREFIX_LEN {
            Ok(Head::Partial)
        } else {
            Err(ScgiFault::Netstring)
        };
    };
    let len = check_size_digits(&prefix[..colon])?;
    let start = colon + 1;
    // Both are small: the sum cannot overflow.
    let end = start + len;
    let Some(comma) = buf.get(end) else { return Ok(Head::Partial) };
    if *comma != b',' {
        return Err(ScgiFault::Netstring);
    }
    *out = read_variables(&buf[start..end])?;
    Ok(Head::Complete { consumed: end + 1 })
}

/// Checks the received digits of a netstring's length, one by one: the result for the first ones
/// must not depend on later ones.
fn check_size_digits(digits: &[u8]) -> Result<usize, ScgiFault> {
    let mut len = 0;
    for (index, digit) in digits.iter().enumerate() {
        // Leading zeros are not allowed.
        if !digit.is_ascii_digit() || (index > 0 && len == 0) {
            return Err(ScgiFault::Netstring);
        }
        len = len * 10 + usize::from(digit - b'0');
        if len > HEAD_BYTES_MAX {
            return Err(ScgiFault::HeadTooLarge);
        }
    }
    Ok(len)
}

fn read_variables(content: &[u8]) -> Result<ScgiRequest<'_>, ScgiFault> {
    let nuls = content.iter().filter(|byte| **byte == 0).count();
    if content.last() != Some(&0) || nuls % 2 != 0 {
        return Err(ScgiFault::Pairs);
    }
    let request = ScgiRequest { content_length: 0, content };
    let first = request.pairs().next().filter(|(name, _)| *name == CONTENT_LENGTH);
    let length = first.and_then(|(_, value)| decimal::parse(value));
    let content_length = length.ok_or(ScgiFault::ContentLength)?;
    let (mut names, mut version) = (BTreeSet::new(), None);
    for (name, value) in request.pairs() {
        if name.is_empty() {
            return Err(ScgiFault::Name);
        }
        if !names.insert(name) {
            return Err(ScgiFault::Duplicate);
        }
        version = if name == SCGI { Some(value) } else { version };
    }
    if version != Some(b"1") {
        return Err(ScgiFault::Version);
    }
    Ok(ScgiRequest { content_length, ..request })
}

fn split_nul<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let at = memchr(0, rest)?;
    let text = &rest[..at];
    *rest = &rest[at + 1..];
    Some(text)
}

#[cfg(test)]
#[path = "scgi_tests.rs"]
mod tests;
