//! Fast path: parses a head that arrived in one piece and has the usual form, in one pass.
//!
//! For a head that is unusual (empty lines before the request line, bare line feeds, bytes beyond
//! ASCII in the target, an unknown method), oversized, incomplete or wrong, [`read`] returns
//! `None`, and the exact parser of `scan` and `request` decides. So every rejection has one source,
//! and this parser must never accept a head that the exact one would reject or read differently;
//! the fuzzer and the shredded corpus compare the two.

use lighty_http::fields::{FieldLine, Fields, Section, is_token};
use lighty_http::{Method, Version};

use super::limits::{FIELDS_CAP, Http1Limits};
use super::request_head::RequestHead;
use super::scan::METHOD_BYTES_MAX;

/// Fills request line and fields of an empty `out`; returns the head's length. `None`: `out` is
/// unchanged, and the exact parser must read this head.
pub(super) fn read(buf: &[u8], limits: &Http1Limits, out: &mut RequestHead) -> Option<usize> {
    debug_assert!(out.line.is_empty() && out.fields.is_empty(), "a used head");
    let line = request_line(buf, limits)?;
    let fields_max = FIELDS_CAP.min(limits.fields_max as usize);
    let bytes_max = limits.field_bytes_max.min(limits.head_bytes_max.checked_sub(line.end)?);
    let (section, fields_len) = section(&buf[line.end..], fields_max, bytes_max, &mut out.fields)?;
    section.finish(&buf[line.end..]);
    let end = line.end + fields_len;
    out.line.extend_from_slice(&buf[..line.end - LINE_END.len()]);
    (out.method, out.version) = (Some(line.method), line.version);
    (out.method_len, out.raw_target_len) = (line.method_len, line.target_len);
    debug_assert!(buf[..end + LINE_END.len()].ends_with(b"\r\n\r\n"), "the end of the head");
    Some(end + LINE_END.len())
}

const LINE_END: &[u8] = b"\r\n";

struct WholeRequestLine {
    method: Method,
    method_len: usize,
    target_len: usize,
    version: Version,
    /// End of the line, line feed included.
    end: usize,
}

fn request_line(buf: &[u8], limits: &Http1Limits) -> Option<WholeRequestLine> {
    let (method, method_len) = method(buf)?;
    let target = &buf[method_len + 1..];
    let target_len = visible_len(target);
    if target_len == 0 || target_len > limits.target_bytes_max {
        return None;
    }
    let version = match target[target_len..].first_chunk::<VERSION_BYTES>()? {
        b" HTTP/1.1\r\n" => Version::Http11,
        b" HTTP/1.0\r\n" => Version::Http10,
        _ => return None,
    };
    let end = method_len + 1 + target_len + VERSION_BYTES;
    Some(WholeRequestLine { method, method_len, target_len, version, end })
}

/// The method before the first space, and its length.
#[inline]
fn method(buf: &[u8]) -> Option<(Method, usize)> {
    if buf.starts_with(b"GET ") {
        return Some((Method::Get, 3));
    }
    let len = buf.iter().take(METHOD_BYTES_MAX + 1).position(|&byte| byte == b' ')?;
    Some((Method::from_bytes(&buf[..len])?, len))
}

/// A space, the version, and the line end.
const VERSION_BYTES: usize = 11;

/// Records the field lines up to the empty line that ends them. Also returns their length, without
/// the empty line.
pub(super) fn section<'a>(
    bytes: &[u8],
    fields_max: usize,
    bytes_max: usize,
    fields: &'a mut Fields,
) -> Option<(Section<'a>, usize)> {
    let mut section = fields.section();
    let mut rest = bytes;
    while *rest.first()? != b'\r' {
        if section.len() == fields_max {
            return None;
        }
        let line = field_line(rest)?;
        if !section.push(rest, line) && !is_token(&rest[..line.name_end]) {
            return None;
        }
        rest = &rest[line.end..];
    }
    let len = bytes.len() - rest.len();
    if rest.get(1) != Some(&b'\n') || len > bytes_max {
        return None;
    }
    Some((section, len))
}

/// Parses one line: RFC 9112 section 5: `field-line = field-name ":" OWS field-value OWS`. The
/// caller checks that the name is a token.
#[inline]
fn field_line(bytes: &[u8]) -> Option<FieldLine> {
    let name_end = colon(bytes)?;
    let mut value = name_end + 1;
    while is_blank(*bytes.get(value)?) {
        value += 1;
    }
    let line_end = value + value_len(&bytes[value..]);
    if bytes.get(line_end..line_end + LINE_END.len())? != LINE_END {
        return None;
    }
    let mut value_end = line_end;
    while value_end > value && is_blank(bytes[value_end - 1]) {
        value_end -= 1;
    }
    debug_assert!(name_end < value && value <= value_end && value_end <= line_end);
    Some(FieldLine { name_end, value, value_end, end: line_end + LINE_END.len() })
}

/// Position of the first colon. Eight bytes at a time, as in [`run_len`].
#[inline]
fn colon(bytes: &[u8]) -> Option<usize> {
    let (blocks, rest) = bytes.as_chunks::<8>();
    for (index, eight) in blocks.iter().enumerate() {
        let word = u64::from_le_bytes(*eight) ^ (LOW_BITS * b':' as u64);
        let found = word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS;
        if found != 0 {
            return Some((index << 3) + (found.trailing_zeros() >> 3) as usize);
        }
    }
    rest.iter().position(|&byte| byte == b':').map(|at| (blocks.len() << 3) + at)
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Number of text bytes at the front: tabs, and all bytes except control characters and DEL.
#[inline]
pub(super) fn value_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    loop {
        len += run_len(&bytes[len..], b' ', 0);
        match bytes.get(len) {
            Some(b'\t') => len += 1,
            _ => return len,
        }
    }
}

/// Number of visible ASCII bytes at the front.
fn visible_len(bytes: &[u8]) -> usize {
    run_len(bytes, b'!', HIGH_BITS)
}

const LOW_BITS: u64 = u64::from_le_bytes([0x01; 8]);
const HIGH_BITS: u64 = u64::from_le_bytes([0x80; 8]);

/// Number of bytes at the front that are not below `least` (at most 128), not DEL, and have none of
/// the bits of `refused` (a byte repeated).
///
/// Eight at a time: subtracting from a byte that is too small borrows from the next one and sets
/// the highest bit. A borrow can only cause a false hit after the first true one, and only the
/// first hit counts.
#[inline(always)]
fn run_len(bytes: &[u8], least: u8, refused: u64) -> usize {
    let (blocks, rest) = bytes.as_chunks::<8>();
    for (index, eight) in blocks.iter().enumerate() {
        let word = u64::from_le_bytes(*eight);
        let del = word ^ (LOW_BITS * 0x7F);
        let small = word.wrapping_sub(LOW_BITS * u64::from(least)) & !word;
        let zero = del.wrapping_sub(LOW_BITS) & !del;
        let found = (small | zero | word & refused) & HIGH_BITS;
        if found != 0 {
            return (index << 3) + (found.trailing_zeros() >> 3) as usize;
        }
    }
    let stops = |byte: u8| byte < least || byte == 0x7F || byte & refused as u8 != 0;
    (blocks.len() << 3) + rest.iter().position(|&byte| stops(byte)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn accepted(head: &[u8], limits: &Http1Limits) -> Option<RequestHead> {
        let mut out = RequestHead::new();
        let read = read(head, limits, &mut out);
        assert!(read.is_none_or(|len| len == head.len()));
        assert!(read.is_some() || (out.fields.is_empty() && out.line().is_empty()));
        read.map(|_| out)
    }

    #[test]
    fn plain_head_of_a_client_is_read() {
        let head = b"GET /a?b HTTP/1.0\r\nHost: x\r\nAccept:*/*\r\nA:\r\nB: \t c\td \r\n\r\n";
        let head = accepted(head, &Http1Limits::default()).expect("a plain head");
        assert_eq!((head.method, head.version), (Some(Method::Get), Version::Http10));
        assert_eq!((head.line(), head.target_raw()), (&b"GET /a?b HTTP/1.0"[..], &b"/a?b"[..]));
        let fields: Vec<_> = head.fields.iter().collect();
        let expected: [(&[u8], &[u8]); 4] =
            [(b"Host", b"x"), (b"Accept", b"*/*"), (b"A", b""), (b"B", b"c\td")];
        assert_eq!(fields, expected);
    }

    #[test]
    fn unusual_heads_are_left_to_the_exact_reader() {
        for head in [
            &b""[..],
            b"GET",
            b"GET / HTTP/1.1\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n\r",
            b"GET / HTTP/1.1\r\nA: b\n\r\n",
            b"GET / HTTP/1.1\nA: b\r\n\r\n",
            b"\r\nGET / HTTP/1.1\r\n\r\n",
            b"get / HTTP/1.1\r\n\r\n",
            b"GET  / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1 \r\n\r\n",
            b"GET / HTTP/2.0\r\n\r\n",
            b"GET /\xC3\xA4 HTTP/1.1\r\n\r\n",
            b"GET /\x7F HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: \0\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        ] {
            assert!(accepted(head, &Http1Limits::default()).is_none(), "{:?}", head.escape_ascii());
        }
    }

    #[test]
    fn limits_are_kept() {
        let head = b"GET /abc HTTP/1.1\r\nA: b\r\nC: d\r\n\r\n";
        let exact = Http1Limits {
            head_bytes_max: head.len() - 2,
            field_bytes_max: 12,
            fields_max: 2,
            target_bytes_max: 4,
        };
        assert!(accepted(head, &exact).is_some());
        for less in [
            Http1Limits { head_bytes_max: exact.head_bytes_max - 1, ..exact },
            Http1Limits { field_bytes_max: exact.field_bytes_max - 1, ..exact },
            Http1Limits { fields_max: exact.fields_max - 1, ..exact },
            Http1Limits { target_bytes_max: exact.target_bytes_max - 1, ..exact },
        ] {
            assert!(accepted(head, &less).is_none(), "{less:?}");
        }
    }

    #[test]
    fn names_end_at_the_first_colon() {
        for byte in 0..=u8::MAX {
            for at in 0..20 {
                let mut text = [b'a'; 20];
                (text[at], text[19]) = (byte, b':');
                let found = if byte == b':' { at } else { 19 };
                assert_eq!(colon(&text), Some(found), "{byte} at {at}");
                let there = (found < 19).then_some(found);
                assert_eq!(colon(&text[..19]), there, "{byte} at {at}");
            }
        }
        assert_eq!((colon(b""), colon(b":")), (None, Some(0)));
    }

    #[test]
    fn names_are_tokens() {
        for byte in 0..=u8::MAX {
            let head = [b"GET / HTTP/1.1\r\nHost: x\r\nA", &[byte][..], b"b: c\r\n\r\n"].concat();
            let is_accepted = accepted(&head, &Http1Limits::default()).is_some();
            assert_eq!(is_accepted, byte == b':' || is_token(&[byte]), "{byte}");
        }
    }

    #[test]
    fn each_byte_stops_a_run_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for at in 0..20 {
                let mut text = [b'a'; 20];
                text[at] = byte;
                let text_byte = matches!(byte, b'\t' | b' '..=0x7E | 0x80..);
                assert_eq!(value_len(&text), if text_byte { 20 } else { at }, "{byte}");
                assert_eq!(visible_len(&text), if byte.is_ascii_graphic() { 20 } else { at });
                // Bytes after the first stop do not matter.
                if let Some(next) = text.get_mut(at + 1) {
                    *next = 0;
                    assert_eq!(value_len(&text), if text_byte { at + 1 } else { at }, "{byte}");
                }
            }
        }
    }
}
