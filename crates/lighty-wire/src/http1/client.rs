//! Encodes the head of a request to a backend: RFC 9112 section 3, without ambiguities.
//!
//! Host and framing are written once, from [`RequestLine`]; fields that would repeat them are
//! dropped. Target and fields come from clients and rewrite rules: text that could end a line early
//! is rejected, and nothing is appended.

use alloc::vec::Vec;

use lighty_http::fields::{control_bytes, is_token};
use lighty_http::{Fields, Known, Version, decimal};

use super::framing::BodyFraming;
use super::response::{EncodeFault, push_line, push_lines};

/// The request line's data, the host, and how the body is delimited.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// A token; its case is kept.
    pub method: &'a [u8],
    /// The target in the form that the backend expects, still percent-encoded.
    pub target: &'a [u8],
    /// [`Version::Http10`], or any other for HTTP/1.1.
    pub version: Version,
    /// Host with optional port, for the `Host` line, which comes first. Empty for a target without
    /// an authority: HTTP/1.0 then omits the line.
    pub host: &'a [u8],
    /// Framing of the body: `Content-Length`, `Transfer-Encoding: chunked` or neither.
    pub framing: BodyFraming,
}

/// Fields written from [`RequestLine`].
const STATED: [Known; 3] = [Known::Host, Known::ContentLength, Known::TransferEncoding];

/// Appends the head of a request: request line, `Host`, `fields` except the ones that `line`
/// states, the framing and the empty line.
///
/// `fields` have the form of [`Fields::iter_known`]. The caller removes hop-by-hop fields.
///
/// # Errors
/// [`EncodeFault`]; `out` is as before then.
pub fn encode_request<'a>(
    line: &RequestLine<'_>,
    fields: impl IntoIterator<Item = (Option<Known>, &'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    encode_around(line, out, |out| push_lines(others(fields), out))
}

/// Like [`encode_request`], for a forwarded request: `client` are the client's fields, `ours` are
/// added ones, and `hop` are hop-by-hop fields for the backend.
///
/// # Errors
/// [`EncodeFault`]; `out` is as before then.
pub fn encode_passed_on<'a>(
    line: &RequestLine<'_>,
    client: impl IntoIterator<Item = (Option<Known>, &'a [u8], &'a [u8])>,
    ours: &Fields,
    hop: impl IntoIterator<Item = (Option<Known>, &'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    encode_around(line, out, |out| {
        push_lines(others(client), out)?;
        push_list(ours, out)?;
        push_lines(others(hop), out)
    })
}

/// The fields that are not written from [`RequestLine`].
fn others<'a>(
    fields: impl IntoIterator<Item = (Option<Known>, &'a [u8], &'a [u8])>,
) -> impl Iterator<Item = (Option<Known>, &'a [u8], &'a [u8])> {
    fields.into_iter().filter(|(known, name, _)| {
        let known = known.or_else(|| Known::from_bytes(name));
        known.is_none_or(|known| !STATED.contains(&known))
    })
}

/// Like [`encode_request`], for a whole list of fields. A list whose buffer already has the wire
/// format is appended in one piece.
///
/// # Errors
/// [`EncodeFault`]; `out` is as before then.
pub fn encode_request_fields(
    line: &RequestLine<'_>,
    fields: &Fields,
    out: &mut Vec<u8>,
) -> Result<(), EncodeFault> {
    encode_around(line, out, |out| push_list(fields, out))
}

/// Appends the fields of a list that are not written from [`RequestLine`], in one piece if their
/// buffer has the wire format.
fn push_list(fields: &Fields, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    match fields.as_wire() {
        Some(section)
            if fields.names_are_tokens()
                && !fields.contains_any(&STATED)
                && (fields.values_are_clean() || control_bytes(section) == 2 * fields.len()) =>
        {
            out.extend_from_slice(section);
            Ok(())
        }
        _ => push_lines(others(fields.iter_known()), out),
    }
}

fn encode_around(
    line: &RequestLine<'_>,
    out: &mut Vec<u8>,
    push_section: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeFault>,
) -> Result<(), EncodeFault> {
    check(line)?;
    let start = out.len();
    push_request_line(line, out);
    if !line.host.is_empty() || line.version != Version::Http10 {
        push_line(b"Host", line.host, out);
    }
    push_section(out).inspect_err(|_| out.truncate(start))?;
    push_framing(line.framing, out);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn check(line: &RequestLine<'_>) -> Result<(), EncodeFault> {
    if !is_token(line.method) {
        return Err(EncodeFault::Method);
    }
    // A fragment is for the client alone (RFC 9110 section 7.1), and parsers disagree about its
    // start.
    if line.target.is_empty() || has_any(line.target, NOT_IN_TARGET) {
        return Err(EncodeFault::Target);
    }
    if has_any(line.host, NOT_IN_HOST) {
        return Err(EncodeFault::Host);
    }
    if line.version == Version::Http10 && line.framing == BodyFraming::Chunked {
        return Err(EncodeFault::Framing);
    }
    Ok(())
}

const NOT_IN_TARGET: u8 = 1;
const NOT_IN_HOST: u8 = 2;

/// Bytes that targets or hosts must not contain.
static UNFIT: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte <= b' ' as usize {
        table[byte] = NOT_IN_TARGET | NOT_IN_HOST;
        byte += 1;
    }
    table[0x7F] = NOT_IN_TARGET | NOT_IN_HOST;
    table[b'#' as usize] = NOT_IN_TARGET;
    table[b',' as usize] = NOT_IN_HOST;
    table
};

fn has_any(text: &[u8], unfit: u8) -> bool {
    text.iter().fold(0, |seen, &byte| seen | UNFIT[byte as usize]) & unfit != 0
}

fn push_request_line(line: &RequestLine<'_>, out: &mut Vec<u8>) {
    let version = if line.version == Version::Http10 { Version::Http10 } else { Version::Http11 };
    out.extend_from_slice(line.method);
    out.push(b' ');
    out.extend_from_slice(line.target);
    out.push(b' ');
    out.extend_from_slice(version.as_str().as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn push_framing(framing: BodyFraming, out: &mut Vec<u8>) {
    match framing {
        BodyFraming::None => {}
        BodyFraming::Chunked => push_line(b"Transfer-Encoding", b"chunked", out),
        BodyFraming::Length(bytes) => {
            out.extend_from_slice(b"Content-Length: ");
            decimal::push(bytes, out);
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
