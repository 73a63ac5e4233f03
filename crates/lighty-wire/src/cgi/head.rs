//! The response head of a program: RFC 3875 section 6.
//!
//! Lines may end with LF or CR LF. Nothing else is tolerated, because the fields reach the client
//! unchanged.

use alloc::vec::Vec;

use lighty_http::decimal;
use lighty_http::fields::{is_token_byte, list_items, trim};
use lighty_http::{Fields, Known, Status};
use memchr::memchr;

use super::CgiFault;
use crate::http1::Head;

/// Bytes of a response head, up to its empty line.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Lines of a response head.
pub const HEAD_LINES_MAX: u32 = 256;

/// Size limits of a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes up to the final empty line, line ends included: [`CgiFault::HeadTooLarge`].
    pub head_bytes_max: usize,
    /// Number of header lines: [`CgiFault::TooManyFields`].
    pub fields_max: u32,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { head_bytes_max: HEAD_BYTES_MAX, fields_max: HEAD_LINES_MAX }
    }
}

/// A parsed head. Reusable: `clear` keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct CgiHead {
    scan: Scan,
    has_status: bool,
    /// From `Status` or a status line; else 302 with `Location` (RFC 3875 section 6.2), else 200.
    pub status: Status,
    /// The fields for the client, without `Status`, `Content-Length` and hop-by-hop fields (RFC
    /// 9110 section 7.6.1).
    pub fields: Fields,
    /// The `Upgrade` field; meaningful with a 101 only.
    pub upgrade: Option<Vec<u8>>,
    /// The announced body length: a body that ends earlier is truncated. Never set with
    /// [`CgiHead::is_chunked`], which takes precedence (RFC 9112 section 6.3).
    pub content_length: Option<u64>,
    /// The body is chunked, as if the program spoke to the client directly.
    pub is_chunked: bool,
    /// True if the only field is a `Location` with a local path (RFC 3875 section 6.2.2): the
    /// program wants the server to respond with that path instead. The caller decides whether to
    /// comply; the status is 302 either way.
    pub is_local_redirect: bool,
}

/// Progress through an incomplete head.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    /// Bytes scanned.
    scanned: usize,
    /// Start of the current line.
    line_start: usize,
    lines: u32,
    is_complete: bool,
}

impl CgiHead {
    /// An empty head; allocates nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Clears the response and keeps the memory.
    pub fn clear(&mut self) {
        self.fields.clear();
        let fields = core::mem::take(&mut self.fields);
        *self = Self { fields, ..Self::default() };
    }

    /// An authorizer's variables (FastCGI 1.0 section 6.3): its `Variable-NAME` fields, without the
    /// prefix.
    pub fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().filter_map(|(name, value)| Some((variable_name(name)?, value)))
    }

    /// True if another head follows (RFC 9110 section 15.2). A 101 is not interim: no other head
    /// follows it.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        self.status.is_interim() && self.status != Status::SWITCHING_PROTOCOLS
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), CgiFault> {
        match line {
            [b' ' | b'\t', ..] => Err(CgiFault::ObsoleteFolding),
            [b'H', b'T', b'T', b'P', b'/', rest @ ..] if self.scan.lines == 0 => {
                self.set_status(read_status_line(rest)?, CgiFault::StatusLine)
            }
            _ => self.take_field(line),
        }
    }

    fn take_field(&mut self, line: &[u8]) -> Result<(), CgiFault> {
        let (name, value) = line.split_at(memchr(b':', line).ok_or(CgiFault::NoColon)?);
        // White space before the colon is removed, as from an HTTP backend (RFC 9112 section 5.1).
        let end = name.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'));
        let name = end.map_or(&name[..0], |last| &name[..=last]);
        if name.is_empty() || !name.iter().all(|&byte| is_token_byte(byte)) {
            return Err(CgiFault::FieldName);
        }
        let value = trim(&value[1..]);
        check_value(value)?;
        match Known::from_bytes(name) {
            Some(Known::Status) => self.take_status(value),
            Some(Known::ContentLength) => self.take_content_length(value),
            Some(Known::Upgrade) => {
                self.take_upgrade(value);
                Ok(())
            }
            Some(Known::TransferEncoding) => self.take_coding(value),
            Some(known) if is_of_the_connection(known) => Ok(()),
            _ => {
                self.fields.push(name, value);
                Ok(())
            }
        }
    }

    fn take_status(&mut self, value: &[u8]) -> Result<(), CgiFault> {
        let status = read_code(value).ok_or(CgiFault::Status)?;
        self.set_status(status, CgiFault::StatusConflict)
    }

    /// Sets the status. Rejects two different ones: readers could disagree about the valid one.
    fn set_status(&mut self, status: Status, conflict: CgiFault) -> Result<(), CgiFault> {
        if self.has_status && self.status != status {
            return Err(conflict);
        }
        (self.status, self.has_status) = (status, true);
        Ok(())
    }

    fn take_upgrade(&mut self, value: &[u8]) {
        let list = self.upgrade.get_or_insert_default();
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(value);
    }

    fn take_coding(&mut self, value: &[u8]) -> Result<(), CgiFault> {
        for coding in list_items(value) {
            match coding {
                _ if coding.eq_ignore_ascii_case(b"identity") => {}
                _ if coding.eq_ignore_ascii_case(b"chunked") && !self.is_chunked => {
                    self.is_chunked = true;
                }
                _ => return Err(CgiFault::TransferCoding),
            }
        }
        Ok(())
    }

    fn take_content_length(&mut self, value: &[u8]) -> Result<(), CgiFault> {
        let length = decimal::parse(value).ok_or(CgiFault::ContentLength)?;
        match self.content_length {
            Some(other) if other != length => Err(CgiFault::ContentLengthConflict),
            _ => {
                self.content_length = Some(length);
                Ok(())
            }
        }
    }

    fn finish(&mut self) -> Result<(), CgiFault> {
        if self.scan.lines == 0 {
            return Err(CgiFault::Empty);
        }
        if !self.has_status
            && let Some(location) = self.fields.get(Known::Location)
            && !location.is_empty()
        {
            // `//host/path` counts as a path too: RFC 3875 section 6.2 has no URL without a scheme,
            // and a program that repeats a client's path must not redirect others to another host.
            let is_path = location.starts_with(b"/");
            let is_alone = self.fields.len() == 1
                && self.content_length.is_none()
                && !self.is_chunked
                && self.upgrade.is_none();
            self.is_local_redirect = is_path && is_alone;
            self.status = Status::FOUND;
        }
        if self.is_chunked {
            self.content_length = None;
        }
        self.scan.is_complete = true;
        Ok(())
    }
}

/// Parses one head from the front of `buf`.
///
/// While it returns [`Head::Partial`], call it again with the same bytes and more, and the same
/// `out`, which holds the progress: no byte is scanned twice. The next call after a complete head
/// starts with a new one; after an interim head, pass the bytes that follow. After a fault, `out`
/// must be cleared.
///
/// # Errors
/// [`CgiFault`], as soon as it is certain.
pub fn parse_head(buf: &[u8], limits: &HeadLimits, out: &mut CgiHead) -> Result<Head, CgiFault> {
    if out.scan.is_complete {
        out.clear();
    }
    debug_assert!(out.scan.scanned <= buf.len(), "{} of {}", out.scan.scanned, buf.len());
    debug_assert!(out.scan.line_start <= out.scan.scanned, "{:?}", out.scan);
    while let Some(len) = memchr(b'\n', &buf[out.scan.scanned..]) {
        let end = out.scan.scanned + len;
        let line = &buf[out.scan.line_start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            out.finish()?;
            return Ok(Head::Complete { consumed: end + 1 });
        }
        if end >= limits.head_bytes_max {
            return Err(CgiFault::HeadTooLarge);
        }
        if out.scan.lines >= limits.fields_max {
            return Err(CgiFault::TooManyFields);
        }
        out.take_line(line)?;
        out.scan.lines += 1;
        (out.scan.scanned, out.scan.line_start) = (end + 1, end + 1);
    }
    out.scan.scanned = buf.len();
    let may_be_blank = matches!(&buf[out.scan.line_start..], b"" | b"\r");
    if buf.len() > limits.head_bytes_max && !may_be_blank {
        return Err(CgiFault::HeadTooLarge);
    }
    Ok(Head::Partial)
}

/// Parses the part of a status line after `HTTP/`. Non-parsed-header programs begin with such a
/// line.
fn read_status_line(rest: &[u8]) -> Result<Status, CgiFault> {
    let [b'1', b'.', b'0'..=b'9', b' ', code @ ..] = rest else {
        return Err(CgiFault::StatusLine);
    };
    check_value(code)?;
    read_code(code).ok_or(CgiFault::StatusLine)
}

/// Parses three digits, optionally followed by a space and a reason.
fn read_code(text: &[u8]) -> Option<Status> {
    let (digits, rest) = text.split_first_chunk::<3>()?;
    if !digits.iter().all(u8::is_ascii_digit) || !matches!(rest, [] | [b' ' | b'\t', ..]) {
        return None;
    }
    let digit = |index: usize| u16::from(digits[index] - b'0');
    Status::new(digit(0) * 100 + digit(1) * 10 + digit(2)).filter(|status| status.code() >= 100)
}

fn check_value(value: &[u8]) -> Result<(), CgiFault> {
    match value.iter().find(|byte| byte.is_ascii_control() && **byte != b'\t') {
        None => Ok(()),
        Some(b'\r') => Err(CgiFault::BareCr),
        Some(_) => Err(CgiFault::FieldValue),
    }
}

/// True for fields about the client's connection, which the program does not control.
const fn is_of_the_connection(name: Known) -> bool {
    use Known as K;
    matches!(name, K::Connection | K::KeepAlive | K::ProxyConnection | K::Te | K::Trailer)
}

fn variable_name(name: &[u8]) -> Option<&[u8]> {
    const PREFIX: &[u8] = b"Variable-";
    let (prefix, rest) = name.split_at_checked(PREFIX.len())?;
    (prefix.eq_ignore_ascii_case(PREFIX) && !rest.is_empty()).then_some(rest)
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
