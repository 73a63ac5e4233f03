//! uwsgi: a packet of variables, then the body. The response is that of a CGI program, usually with
//! a status line.
//!
//! Source: the uwsgi protocol, as documented by the uWSGI project. All numbers are 16-bit
//! little-endian: larger values cannot be sent. An application finds the end of the body by
//! `CONTENT_LENGTH`.

use alloc::vec::Vec;

use crate::http1::Head;

lighty_http::fault_table! {
    /// Reason why a request cannot be written, or is rejected by an application.
    UwsgiFault {
        TooLarge = "uwsgi-too-large", "the variables exceed the 65535 bytes that a uwsgi packet can hold";
        Truncated = "uwsgi-truncated", "a uwsgi name or value is longer than its packet";
    }
}

/// Maximum bytes of all names and values and their lengths.
pub const VARS_BYTES_MAX: usize = 65_535;

/// Bytes of a packet's header.
pub const HEADER_LEN: usize = 4;

/// Selects the application's plugin for a packet; both are 0 for WSGI variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// The plugin: 0 WSGI, 5 PSGI, 7 Rack, 14 PHP, ...
    pub first: u8,
    /// The plugin's option.
    pub second: u8,
}

/// Writes the variables of a request. The caller sends the body after them, unchanged.
#[derive(Debug)]
pub struct VarsWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    modifiers: Modifiers,
    needed_bytes: usize,
}

impl<'a> VarsWriter<'a> {
    /// Creates a writer that appends to `out`.
    pub fn new(modifiers: Modifiers, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        Self { out, start, modifiers, needed_bytes: 0 }
    }

    /// Appends a variable. A fault is kept for [`VarsWriter::finish`].
    pub fn pair(&mut self, name: &[u8], value: &[u8]) {
        const LENGTHS: usize = 4;
        let parts_len = name.len().saturating_add(value.len()).saturating_add(LENGTHS);
        self.needed_bytes = self.needed_bytes.saturating_add(parts_len);
        if !self.is_too_large() {
            for part in [name, value] {
                // Cannot truncate: shorter than the whole, which fits.
                self.out.extend_from_slice(&(part.len() as u16).to_le_bytes());
                self.out.extend_from_slice(part);
            }
        }
    }

    /// Bytes of the variables so far, including ones that did not fit: at most [`VARS_BYTES_MAX`]
    /// can be sent.
    pub fn needed_bytes(&self) -> usize {
        self.needed_bytes
    }

    /// Ends the variables.
    ///
    /// # Errors
    /// [`UwsgiFault::TooLarge`]; nothing is appended then.
    pub fn finish(self) -> Result<(), UwsgiFault> {
        if self.is_too_large() {
            self.out.truncate(self.start);
            return Err(UwsgiFault::TooLarge);
        }
        debug_assert_eq!(self.out.len() - self.start - HEADER_LEN, self.needed_bytes, "variables");
        let [low, high] = (self.needed_bytes as u16).to_le_bytes();
        let header = [self.modifiers.first, low, high, self.modifiers.second];
        self.out[self.start..][..HEADER_LEN].copy_from_slice(&header);
        Ok(())
    }

    fn is_too_large(&self) -> bool {
        self.needed_bytes > VARS_BYTES_MAX
    }
}

/// The variables of a request, as parsed by an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UwsgiRequest<'a> {
    /// The plugin that the packet is for.
    pub modifiers: Modifiers,
    content: &'a [u8],
}

impl<'a> UwsgiRequest<'a> {
    /// Names and values in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.content;
        core::iter::from_fn(move || Some((split_text(&mut rest)?, split_text(&mut rest)?)))
    }
}

/// Application's side: parses the variables at the front of `buf` into `out`.
///
/// # Errors
/// [`UwsgiFault::Truncated`].
pub fn parse_request<'a>(buf: &'a [u8], out: &mut UwsgiRequest<'a>) -> Result<Head, UwsgiFault> {
    let Some((&[first, low, high, second], rest)) = buf.split_first_chunk() else {
        return Ok(Head::Partial);
    };
    let len = usize::from(u16::from_le_bytes([low, high]));
    let Some(content) = rest.get(..len) else { return Ok(Head::Partial) };
    let mut unread = content;
    while !unread.is_empty() {
        split_text(&mut unread).and(split_text(&mut unread)).ok_or(UwsgiFault::Truncated)?;
    }
    *out = UwsgiRequest { modifiers: Modifiers { first, second }, content };
    Ok(Head::Complete { consumed: HEADER_LEN + len })
}

fn split_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk()?;
    let (text, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    *rest = after;
    Some(text)
}

#[cfg(test)]
#[path = "uwsgi_tests.rs"]
mod tests;
