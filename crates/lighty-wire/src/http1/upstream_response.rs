//! Parses the response head of a backend strictly: RFC 9112 sections 4 to 6.
//!
//! Lines are parsed as they complete. Each byte is scanned once and copied once, however small the
//! pieces; a complete head in the usual form is parsed in one pass. Text that two parsers could
//! read differently is rejected rather than repaired, since it would reach the client. A line end
//! without CR is unambiguous (RFC 9112 section 2.2): such a line is accepted, unless
//! [`ResponseLimits::strict_lines`] forbids it.

use alloc::vec::Vec;

use lighty_http::fields::{is_token_byte, trim};
use lighty_http::{Fields, Known, Method, Status, Version};
use memchr::memchr;

use super::request::Head;
pub use super::response_fault::ResponseFault;
pub use super::response_framing::ResponseFraming;
use super::response_framing::delimit;
use super::whole;

/// Size limits of a response head. Input is rejected as soon as a byte exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Bytes of status line and header fields together, without the final empty line.
    pub head_bytes_max: usize,
    /// Number of header lines.
    pub fields_max: u32,
    /// True if lines must end with CR LF; otherwise LF suffices.
    pub strict_lines: bool,
}

impl Default for ResponseLimits {
    /// Higher limits than for requests: applications set many cookies and long policies, and are
    /// trusted more than clients.
    fn default() -> Self {
        Self { head_bytes_max: 64 * 1024, fields_max: 200, strict_lines: false }
    }
}

/// A parsed response head. Reusable: parsing clears it and keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    progress: HeadProgress,
    reason: Vec<u8>,
    /// 1.0 or 1.1.
    pub version: Version,
    /// The status. After an interim one (1xx except 101), another head follows.
    pub status: Status,
    /// The header fields in their order and spelling. A `Content-Length` repeated with one value
    /// occurs once.
    pub fields: Fields,
    /// Framing of the body.
    pub framing: ResponseFraming,
    /// True if the connection is reusable after this body.
    pub keep_alive: bool,
    /// True if a tunnel follows: 101, or 2xx to CONNECT. The caller knows whether it asked for one.
    pub upgrade: bool,
}

/// Progress through an incomplete head.
#[derive(Clone, Copy, Debug, Default)]
struct HeadProgress {
    /// Bytes scanned.
    scanned: usize,
    /// Start of the current line.
    line_start: usize,
    field_lines: u32,
}

impl ResponseHead {
    /// An empty head; allocates nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Clears the response and the parse progress; keeps the memory.
    pub fn clear(&mut self) {
        self.progress = HeadProgress::default();
        self.reason.clear();
        (self.version, self.status) = (Version::Http11, Status::OK);
        self.fields.clear();
        self.framing = ResponseFraming::None;
        (self.keep_alive, self.upgrade) = (false, false);
    }

    /// The reason phrase as received; often empty, never meaningful.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        &self.reason
    }

    /// True if another head follows this one: RFC 9110 section 15.2.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        self.status.is_interim() && !self.upgrade
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.reason.capacity() + self.fields.capacity()
    }
}

/// Parses one head from the front of `buf`: the response to a request with `request_method`. HEAD
/// and CONNECT change the framing.
///
/// While it returns [`Head::Partial`], call it again with the same bytes and more, and the same
/// `out`, which holds the progress. After an interim response, call it with the bytes that follow.
///
/// # Errors
/// [`ResponseFault`], as soon as it is certain. The connection is unusable afterwards.
pub fn parse_response(
    buf: &[u8],
    request_method: Option<Method>,
    limits: &ResponseLimits,
    out: &mut ResponseHead,
) -> Result<Head, ResponseFault> {
    let end = match out.take_whole(buf, limits) {
        None => out.advance(buf, limits),
        whole => Ok(whole),
    };
    let result = end.and_then(|end| match end {
        None => Ok(Head::Partial),
        Some(consumed) => out.finish(request_method).map(|()| Head::Complete { consumed }),
    });
    if result != Ok(Head::Partial) {
        out.progress = HeadProgress::default();
    }
    result
}

impl ResponseHead {
    /// Parses a complete head in the usual form. `None`: use the exact parser, which alone explains
    /// rejections. This parser must never accept a head that the exact one would reject or read
    /// differently.
    fn take_whole(&mut self, buf: &[u8], limits: &ResponseLimits) -> Option<usize> {
        if self.progress.scanned != 0 {
            return None;
        }
        self.clear();
        let (version, status, reason) = plain_status_line(buf)?;
        let begin = STATUS_BYTES + reason.len() + 2;
        let lines = &buf[begin..];
        let bytes_max = limits.head_bytes_max.checked_sub(begin)?;
        let fields_max = limits.fields_max as usize;
        let (section, len) = whole::section(lines, fields_max, bytes_max, &mut self.fields)?;
        section.finish_checked(lines);
        (self.version, self.status) = (version, status);
        self.reason.extend_from_slice(reason);
        Some(begin + len + 2)
    }

    /// Parses the lines that arrived since the last call; returns the end of the head, if reached.
    fn advance(
        &mut self,
        buf: &[u8],
        limits: &ResponseLimits,
    ) -> Result<Option<usize>, ResponseFault> {
        if self.progress.scanned == 0 {
            self.clear();
        }
        let HeadProgress { scanned, line_start, .. } = self.progress;
        debug_assert!(line_start <= scanned && scanned <= buf.len(), "{:?}", self.progress);
        while let Some(len) = memchr(b'\n', &buf[self.progress.scanned..]) {
            let end = self.progress.scanned + len + 1;
            let line = &buf[self.progress.line_start..end];
            if self.progress.line_start == 0 {
                check_size(end, line, limits)?;
                self.take_status_line(without_end(line, limits)?)?;
            } else if line == b"\r\n" || (line == b"\n" && !limits.strict_lines) {
                return Ok(Some(end));
            } else {
                self.count_field(end, limits)?;
                take_field(without_end(line, limits)?, &mut self.fields)?;
            }
            (self.progress.scanned, self.progress.line_start) = (end, end);
        }
        self.progress.scanned = buf.len();
        let line = &buf[self.progress.line_start..];
        match line {
            b"" | b"\r" if self.progress.line_start > 0 => {}
            _ if self.progress.line_start > 0 => check_head_bytes(buf.len(), limits)?,
            _ => check_size(buf.len(), line, limits)?,
        }
        Ok(None)
    }

    fn count_field(&mut self, end: usize, limits: &ResponseLimits) -> Result<(), ResponseFault> {
        check_head_bytes(end, limits)?;
        self.progress.field_lines += 1;
        if self.progress.field_lines > limits.fields_max {
            return Err(ResponseFault::TooManyFields);
        }
        Ok(())
    }

    /// Parses a status line whose shape was checked up to its code.
    fn take_status_line(&mut self, line: &[u8]) -> Result<(), ResponseFault> {
        let Some((&[_, _, _, _, _, _, _, minor, _, a, b, c], rest)) = line.split_first_chunk()
        else {
            return Err(ResponseFault::StatusLine);
        };
        self.version = if minor == b'0' { Version::Http10 } else { Version::Http11 };
        let digit = |byte: u8| u16::from(byte.wrapping_sub(b'0'));
        let code = digit(a) * 100 + digit(b) * 10 + digit(c);
        self.status = Status::new(code).ok_or(ResponseFault::StatusCode)?;
        // Many backends omit the space that is required even without a reason: RFC 9112 section 4.
        let reason = rest.strip_prefix(b" ").unwrap_or(rest);
        if has_control(reason) {
            return Err(if reason.contains(&b'\r') {
                ResponseFault::BareCr
            } else {
                ResponseFault::Reason
            });
        }
        debug_assert!(self.reason.is_empty(), "a second status line");
        self.reason.extend_from_slice(reason);
        Ok(())
    }

    /// Interprets the complete head.
    fn finish(&mut self, request_method: Option<Method>) -> Result<(), ResponseFault> {
        let delimited = delimit(request_method, self.version, self.status, &mut self.fields)?;
        self.framing = delimited.framing;
        (self.keep_alive, self.upgrade) = (delimited.keep_alive, delimited.upgrade);
        Ok(())
    }
}

/// Bytes of `HTTP/1.x ddd `.
const STATUS_BYTES: usize = 13;

/// Version, status and reason of a complete status line.
fn plain_status_line(buf: &[u8]) -> Option<(Version, Status, &[u8])> {
    let (head, rest) = buf.split_first_chunk::<STATUS_BYTES>()?;
    let (version, code) = match head {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', b' ', code @ .., b' '] => {
            (Version::Http11, code)
        }
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0', b' ', code @ .., b' '] => {
            (Version::Http10, code)
        }
        _ => return None,
    };
    let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = *code else { return None };
    let digit = |byte: u8| u16::from(byte - b'0');
    let status = Status::new(digit(a) * 100 + digit(b) * 10 + digit(c))?;
    let reason = &rest[..whole::value_len(rest)];
    rest[reason.len()..].starts_with(b"\r\n").then_some((version, status, reason))
}

/// Checks the beginning of the status line against its form and the limit, so that the first wrong
/// byte decides the fault.
fn check_size(end: usize, line: &[u8], limits: &ResponseLimits) -> Result<(), ResponseFault> {
    let seen = line.len().min(limits.head_bytes_max.saturating_add(1));
    check_shape(&line[..seen])?;
    check_head_bytes(end, limits)
}

fn check_head_bytes(end: usize, limits: &ResponseLimits) -> Result<(), ResponseFault> {
    if end > limits.head_bytes_max { Err(ResponseFault::HeadTooLarge) } else { Ok(()) }
}

/// Checks for `HTTP/1.x ddd` and a space or the end. Another protocol is rejected at its first
/// wrong byte.
fn check_shape(line: &[u8]) -> Result<(), ResponseFault> {
    const CODE_END: usize = 12;
    for (index, &byte) in line.iter().take(CODE_END + 1).enumerate() {
        let fault = match (index, byte) {
            (0..5, _) if byte == b"HTTP/"[index] => continue,
            (5, b'1') | (6, b'.') | (7, b'0' | b'1') | (8, b' ') => continue,
            (9, b'1'..=b'9') | (10 | 11, b'0'..=b'9') => continue,
            (CODE_END, b' ' | b'\r' | b'\n') => continue,
            (5 | 7, b'0'..=b'9') => ResponseFault::Version,
            (9..=CODE_END, _) => ResponseFault::StatusCode,
            _ => ResponseFault::StatusLine,
        };
        return Err(fault);
    }
    Ok(())
}

/// The protocol that a rejected response's first bytes suggest, for the log.
#[must_use]
pub fn other_protocol(answer: &[u8]) -> Option<&'static str> {
    match answer {
        // RFC 8446 section 5.1: a record of type alert or handshake.
        [0x15 | 0x16, 0x03, ..] => Some("the backend speaks TLS, and is spoken to in the clear"),
        // RFC 9113 sections 3.4 and 6.5: SETTINGS on stream 0 come first.
        [0, _, _, 4, _, 0, 0, 0, 0, ..] | [b'P', b'R', b'I', b' ', b'*', b' ', ..] => {
            Some("the backend speaks HTTP/2, and is spoken to in HTTP/1")
        }
        _ => None,
    }
}

/// A line without its line end.
fn without_end<'a>(line: &'a [u8], limits: &ResponseLimits) -> Result<&'a [u8], ResponseFault> {
    match line.strip_suffix(b"\r\n") {
        Some(text) => Ok(text),
        None if limits.strict_lines => Err(ResponseFault::BareLf),
        None => Ok(&line[..line.len() - 1]),
    }
}

/// Parses one complete line, without its end.
fn take_field(line: &[u8], fields: &mut Fields) -> Result<(), ResponseFault> {
    let colon = line.iter().position(|&byte| byte == b':').ok_or_else(|| explain(line))?;
    // RFC 9112 section 5.1: a proxy removes white space before the colon of a response's field.
    let (name, value) = (trim_end(&line[..colon]), trim(&line[colon + 1..]));
    let known = Known::from_bytes(name);
    let is_name = known.is_some() || (!name.is_empty() && name.iter().all(|&b| is_token_byte(b)));
    if !is_name || has_control(value) {
        return Err(explain(line));
    }
    fields.push_looked_up(known, name, value);
    Ok(())
}

/// The name without trailing spaces and tabs.
fn trim_end(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'));
    end.map_or(&[], |last| &name[..=last])
}

/// True if there is a control character other than tab. Branchless, so that the compiler vectorises
/// it.
fn has_control(text: &[u8]) -> bool {
    text.iter()
        .fold(false, |found, &byte| found | ((byte < b' ') & (byte != b'\t')) | (byte == 0x7F))
}

/// Finds the fault of a line. Runs for rejected responses only, so it may be slow.
fn explain(line: &[u8]) -> ResponseFault {
    let (name, value) = line.split_at(memchr(b':', line).unwrap_or(line.len()));
    match name {
        [b' ' | b'\t', ..] => ResponseFault::ObsoleteFolding,
        _ if line.contains(&b'\r') => ResponseFault::BareCr,
        _ if value.is_empty() => ResponseFault::NoColon,
        [] => ResponseFault::FieldName,
        _ if name.iter().all(|&byte| is_token_byte(byte)) => ResponseFault::FieldValue,
        _ => ResponseFault::FieldName,
    }
}

#[cfg(test)]
#[path = "upstream_response_tests.rs"]
mod tests;
