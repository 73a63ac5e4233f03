//! Encodes the head of a response: RFC 9112 section 4.
//!
//! Field values come from configuration, scripts and backends; a line end in a value would let its
//! author write the rest of the response. Encoding rejects it and appends nothing.

use alloc::vec::Vec;

use lighty_http::date::DATE_LEN;
use lighty_http::fields::{control_bytes, is_token};
use lighty_http::{Fields, Known, Status, Version};

/// The interim response for a client that waits before it sends its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Reason why a message cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeFault {
    /// Not a token.
    Name,
    /// CR, LF or NUL.
    Value,
    /// A request's method that is not a token.
    Method,
    /// A request target that is empty or holds a control character, a space or a `#`.
    Target,
    /// A host that holds a control character, a space or a comma.
    Host,
    /// Chunks in an HTTP/1.0 request.
    Framing,
}

impl core::fmt::Display for EncodeFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Name => "a field name that is not a token",
            Self::Value => "a line end or NUL in a field value",
            Self::Method => "a method that is not a token",
            Self::Target => "a control character, a space or a # in a request target, or none",
            Self::Host => "a control character, a space or a comma in a host",
            Self::Framing => "a chunked body in an HTTP/1.0 request",
        })
    }
}

impl core::error::Error for EncodeFault {}

/// Appends a status line, the fields, `Date` unless they contain it, and the empty line.
///
/// `version` is the request's: HTTP/1.0 clients get HTTP/1.0 responses.
///
/// # Errors
/// [`EncodeFault`]; `out` is unchanged then.
pub fn encode_head(
    version: Version,
    status: Status,
    fields: &Fields,
    date: Option<&[u8; DATE_LEN]>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    let start = out.len();
    push_status_line(version, status, out);
    push_fields(fields, out).inspect_err(|_| out.truncate(start))?;
    match date {
        Some(date) if !fields.contains(Known::Date) => push_date_and_end(date, out),
        _ => out.extend_from_slice(b"\r\n"),
    }
    Ok(())
}

const DATE_NAME: &[u8] = b"Date: ";
const DATE_END: &[u8] = b"\r\n\r\n";

/// Appends the date and the empty line, assembled first so that the buffer grows only once.
fn push_date_and_end(date: &[u8; DATE_LEN], out: &mut Vec<u8>) {
    let mut line = [0; DATE_NAME.len() + DATE_LEN + DATE_END.len()];
    let (name, rest) = line.split_at_mut(DATE_NAME.len());
    let (value, end) = rest.split_at_mut(DATE_LEN);
    name.copy_from_slice(DATE_NAME);
    value.copy_from_slice(date);
    end.copy_from_slice(DATE_END);
    out.extend_from_slice(&line);
}

/// Appends `HTTP/1.1 200 OK` or the like, and the line end. The space after the code stays even
/// without a reason.
fn push_status_line(version: Version, status: Status, out: &mut Vec<u8>) {
    if (version, status) == (Version::Http11, Status::OK) {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let version = if version == Version::Http10 { version } else { Version::Http11 };
    out.extend_from_slice(version.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(&status.digits());
    out.push(b' ');
    out.extend_from_slice(status.reason().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends field lines, each with its line end.
///
/// # Errors
/// [`EncodeFault`]; lines appended before the fault stay.
#[inline]
pub fn push_fields(fields: &Fields, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    if !fields.names_are_tokens() && !fields.unknown_names().all(is_token) {
        return Err(EncodeFault::Name);
    }
    let start = out.len();
    fields.write_to(out);
    if fields.values_are_clean() { Ok(()) } else { check_lines(&out[start..], fields.len()) }
}

/// Appends field lines one by one. Checks for forbidden bytes once at the end: one pass over the
/// section is faster than one pass per value.
///
/// # Errors
/// [`EncodeFault`]; appended lines stay.
pub(super) fn push_lines<'a>(
    fields: impl IntoIterator<Item = (Option<Known>, &'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    let start = out.len();
    let mut count = 0;
    for (known, name, value) in fields {
        if known.is_none() && !is_token(name) {
            return Err(EncodeFault::Name);
        }
        push_line(name, value, out);
        count += 1;
    }
    check_lines(&out[start..], count)
}

/// Checks that no value of a section ends a line before its end.
fn check_lines(section: &[u8], count: usize) -> Result<(), EncodeFault> {
    if control_bytes(section) == 2 * count || has_whole_lines(section, count) {
        Ok(())
    } else {
        Err(EncodeFault::Value)
    }
}

/// Appends one field line without a check.
pub(super) fn push_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// True if the only CRs and LFs of a section are its `count` line ends, and it has no NUL. For
/// values with tabs and similar, which [`control_bytes`] counts too.
fn has_whole_lines(section: &[u8], count: usize) -> bool {
    let line_bytes = section.iter().filter(|byte| matches!(byte, b'\r' | b'\n' | 0)).count();
    line_bytes == 2 * count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_written() {
        let mut fields = Fields::new();
        fields.push_known(Known::ContentType, "text/plain");
        fields.push(b"X-A", b"");
        let mut out = b"before".to_vec();
        let date = lighty_http::date::format(0);
        encode_head(Version::Http11, Status::OK, &fields, Some(&date), &mut out).expect("legal");
        let expected = "beforeHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-A: \r\n\
                        Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
        assert_eq!(out, expected.as_bytes());
    }

    #[test]
    fn a_date_of_the_handler_stays_alone() {
        let mut fields = Fields::new();
        fields.push(b"date", b"x");
        let mut out = Vec::new();
        let date = lighty_http::date::format(0);
        let status = Status::new(799).expect("three digits");
        encode_head(Version::Http10, status, &fields, Some(&date), &mut out).expect("legal");
        assert_eq!(out, b"HTTP/1.0 799 \r\ndate: x\r\n\r\n");
    }

    #[test]
    fn responses_cannot_be_split() {
        for (name, value, fault) in [
            (&b"X"[..], &b"a\r\nSet-Cookie: b"[..], EncodeFault::Value),
            (b"X", b"a\nb", EncodeFault::Value),
            (b"X", b"a\rb", EncodeFault::Value),
            (b"Location", b"/\0", EncodeFault::Value),
            (b"X Y", b"a", EncodeFault::Name),
            (b"X:", b"a", EncodeFault::Name),
            (b"X\r\n", b"a", EncodeFault::Name),
            (b"", b"a", EncodeFault::Name),
        ] {
            let mut fields = Fields::new();
            fields.push_known(Known::Server, "lighty");
            fields.push(name, value);
            let mut out = b"before".to_vec();
            let result = encode_head(Version::Http11, Status::OK, &fields, None, &mut out);
            assert_eq!(result, Err(fault), "{name:?}");
            assert_eq!(out, b"before");
        }
    }
}
