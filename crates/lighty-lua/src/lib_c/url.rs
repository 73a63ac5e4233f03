//! URLs: percent-encoding of paths, queries as pairs, normalisation.

use super::encoding::{hex, hex_byte};
use super::path;

/// Appends a path with its escapes decoded. An escaped control character becomes `_`; a malformed
/// escape stays.
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        match hex_byte(rest) {
            Some(byte) => {
                out.push(if byte.is_ascii_control() { b'_' } else { byte });
                rest = &rest[2..];
            }
            None => out.push(b'%'),
        }
    }
    out.extend_from_slice(rest);
    true
}

/// Appends a path with everything encoded except letters, digits, `/` and `! ( ) * - . _ ~`.
pub fn encode(path: &[u8], out: &mut Vec<u8>) -> bool {
    for &byte in path {
        let stays = byte.is_ascii_alphanumeric()
            || matches!(byte, b'/' | b'!' | b'(' | b')' | b'*' | b'-' | b'.' | b'_' | b'~');
        if stays { out.push(byte) } else { push_encoded(byte, out) }
    }
    true
}

/// Names and values of a query, decoded, with `+` as a space. A pair without `=` has no value.
pub fn query_pairs(query: &[u8]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = match at {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        (decoded_part(name), decoded_part(value))
    })
}

fn decoded_part(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
    let mut out = Vec::with_capacity(spaced.len());
    decode(&spaced, &mut out);
    out
}

/// Appends a pair to a query, with `&` before it unless the query is empty.
pub fn push_query_pair(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b'&');
    }
    push_query_part(name, true, out);
    out.push(b'=');
    push_query_part(value, false, out);
}

fn push_query_part(text: &[u8], is_name: bool, out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b' ' => out.push(b'+'),
            b'=' if is_name => push_encoded(byte, out),
            b'!' | b'$' | b'(' | b')' | b'*' | b',' | b'-' | b'.' | b'/' => out.push(byte),
            b':' | b'=' | b'?' | b'@' | b'_' | b'~' => out.push(byte),
            _ if byte.is_ascii_alphanumeric() => out.push(byte),
            _ => push_encoded(byte, out),
        }
    }
}

/// Appends a normalised URL: unnecessary escapes are decoded, others have upper-case digits, `%2F`
/// in the path becomes a slash, its dot segments are resolved, a space in the query becomes `+`,
/// and a fragment is removed. The query begins after the first `?`.
pub fn normalize(url: &[u8], out: &mut Vec<u8>) -> bool {
    let url = url.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mark = url.iter().position(|byte| *byte == b'?');
    let (before, query) = url.split_at(mark.unwrap_or(url.len()));
    let mut recoded = Vec::with_capacity(before.len());
    recode(before, UrlPart::Path, &mut recoded);
    path::simplify(&recoded, out);
    recode(query, UrlPart::Query, out);
    true
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Path,
    Query,
}

fn recode(text: &[u8], part: UrlPart, out: &mut Vec<u8>) {
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        let byte = *byte;
        rest = tail;
        let escaped = if byte == b'%' { hex_byte(tail) } else { None };
        let Some(escaped) = escaped else {
            match byte {
                b' ' if part == UrlPart::Query => out.push(b'+'),
                _ if must_encode(byte) => push_encoded(byte, out),
                _ => out.push(byte),
            }
            continue;
        };
        rest = &tail[2..];
        match (part, escaped) {
            (UrlPart::Path, b'?') => push_encoded(escaped, out),
            (UrlPart::Query, b' ') => out.push(b'+'),
            (UrlPart::Query, b'&' | b'=' | b';' | b'+') => push_encoded(escaped, out),
            _ if must_encode(escaped) => push_encoded(escaped, out),
            _ => out.push(escaped),
        }
    }
}

/// Bytes that RFC 3986 does not permit unencoded anywhere.
const fn must_encode(byte: u8) -> bool {
    !matches!(byte, 0x21..=0x7E)
        || matches!(byte, b'"' | b'#' | b'%' | b'<' | b'>' | b'[' | b'\\')
        || matches!(byte, b']' | b'^' | b'`' | b'{' | b'|' | b'}')
}

fn push_encoded(byte: u8, out: &mut Vec<u8>) {
    out.push(b'%');
    out.extend_from_slice(&hex(byte));
}
