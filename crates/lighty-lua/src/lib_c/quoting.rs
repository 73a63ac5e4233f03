//! Quoted strings of HTTP fields, and backslash escapes of programs and of JSON.

use super::encoding::{hex, hex_byte};

/// Appends a quoted string (RFC 9110 section 5.6.4), `"` and `\` escaped.
pub fn quoted_encode(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.push(b'"');
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    true
}

/// Appends the content of a quoted string; a text that does not begin with `"` is copied unchanged.
/// False if the string does not end with the text.
pub fn quoted_decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let [b'"', inner @ ..] = text else {
        out.extend_from_slice(text);
        return true;
    };
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => return bytes.as_slice().is_empty(),
            b'\\' => match bytes.next() {
                Some(&escaped) => out.push(escaped),
                None => return false,
            },
            _ => out.push(byte),
        }
    }
    false
}

/// Appends a text with `"`, `\` and everything except printable ASCII escaped as in C.
pub fn backslash_encode(text: &[u8], out: &mut Vec<u8>) -> bool {
    for &byte in text {
        match short_escape(byte) {
            Some(escape) => out.extend_from_slice(&[b'\\', escape]),
            None if matches!(byte, b' '..=b'~') => out.push(byte),
            None => {
                out.extend_from_slice(b"\\x");
                out.extend_from_slice(&hex(byte));
            }
        }
    }
    true
}

/// Appends a text with characters escaped that a JSON string must not contain (RFC 8259 section 7).
/// Bytes of UTF-8 stay; the caller adds the quotes.
pub fn json_encode(text: &[u8], out: &mut Vec<u8>) -> bool {
    for &byte in text {
        match short_escape(byte) {
            // JSON has no letter escape for these two.
            Some(escape) if !matches!(escape, b'a' | b'v') => {
                out.extend_from_slice(&[b'\\', escape]);
            }
            _ if byte < b' ' => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&hex(byte));
            }
            _ => out.push(byte),
        }
    }
    true
}

const fn short_escape(byte: u8) -> Option<u8> {
    match byte {
        b'"' | b'\\' => Some(byte),
        0x07 => Some(b'a'),
        0x08 => Some(b'b'),
        b'\t' => Some(b't'),
        b'\n' => Some(b'n'),
        0x0B => Some(b'v'),
        0x0C => Some(b'f'),
        b'\r' => Some(b'r'),
        _ => None,
    }
}

/// Appends a text with its escapes decoded, those of C and of JSON alike: `\xHH`, `\ooo`, `\uHHHH`
/// (two of them for a surrogate pair) and letters. An invalid escape becomes the character after
/// its backslash. Quotes around the whole text are removed.
pub fn backslash_decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let mut rest = match text {
        [b'"', inner @ .., b'"'] => inner,
        _ => text,
    };
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.first() {
            Some(&kind) => rest = &rest[push_escape(kind, &rest[1..], out) + 1..],
            None => out.push(b'\\'),
        }
    }
    out.extend_from_slice(rest);
    true
}

/// Appends a decoded escape, and returns the number of bytes of `rest` that belong to it.
fn push_escape(kind: u8, rest: &[u8], out: &mut Vec<u8>) -> usize {
    let (byte, used) = match kind {
        b'a' => (0x07, 0),
        b'b' => (0x08, 0),
        b't' => (b'\t', 0),
        b'n' => (b'\n', 0),
        b'v' => (0x0B, 0),
        b'f' => (0x0C, 0),
        b'r' => (b'\r', 0),
        b'x' => hex_byte(rest).map_or((kind, 0), |byte| (byte, 2)),
        b'u' => return push_code_point(rest, out),
        b'0'..=b'3' => octal(kind, rest).unwrap_or((kind - u8::from(kind == b'0') * b'0', 0)),
        other => (other, 0),
    };
    out.push(byte);
    used
}

fn octal(first: u8, rest: &[u8]) -> Option<(u8, usize)> {
    let [second @ b'0'..=b'7', third @ b'0'..=b'7', ..] = *rest else { return None };
    Some(((first - b'0') << 6 | (second - b'0') << 3 | (third - b'0'), 2))
}

fn push_code_point(rest: &[u8], out: &mut Vec<u8>) -> usize {
    let Some(first) = code_unit(rest) else {
        out.push(b'u');
        return 0;
    };
    let second =
        rest.get(4..6).filter(|escape| escape == b"\\u").and_then(|_| code_unit(&rest[6..]));
    let (units, used) = match (first, second) {
        (0xD800..=0xDBFF, Some(second @ 0xDC00..=0xDFFF)) => (vec![first, second], 10),
        _ => (vec![first], 4),
    };
    let mut utf8 = [0; 4];
    for point in char::decode_utf16(units) {
        let point = point.unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend_from_slice(point.encode_utf8(&mut utf8).as_bytes());
    }
    used
}

/// The UTF-16 code unit of four digits.
pub(crate) fn code_unit(digits: &[u8]) -> Option<u16> {
    let (high, low) = (hex_byte(digits)?, hex_byte(digits.get(2..)?)?);
    Some(u16::from(high) << 8 | u16::from(low))
}
