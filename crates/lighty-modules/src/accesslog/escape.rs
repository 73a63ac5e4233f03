//! Escapes client data for logs: no request can end a line, close a quote or send control sequences
//! to a terminal.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Escaping of values, set with `accesslog.escaping`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Escaping {
    /// Control characters, quotes, backslashes and everything beyond ASCII as `\xHH`.
    #[default]
    Hex,
    /// JSON string escapes, without the quotes. Invalid UTF-8 becomes U+FFFD.
    Json,
}

impl Escaping {
    /// Values of the directive, in the order of the variants.
    pub(super) const NAMES: &'static [&'static str] = &["default", "json"];

    /// Appends a value.
    pub(super) fn push(self, text: &[u8], out: &mut Vec<u8>) {
        match self {
            Escaping::Hex => push_hex(text, out),
            Escaping::Json => push_json(text, out),
        }
    }
}

fn push_hex(text: &[u8], out: &mut Vec<u8>) {
    let is_escaped = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f | 0x7f..);
    let mut left = text;
    while let Some(at) = left.iter().position(is_escaped) {
        let (plain, escaped) = left.split_at(at);
        let byte = escaped[0];
        let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
        out.extend_from_slice(plain);
        out.extend_from_slice(&[b'\\', b'x', DIGITS[high], DIGITS[low]]);
        left = &escaped[1..];
    }
    out.extend_from_slice(left);
}

fn push_json(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                0..=0x1f | 0x7f => {
                    let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                    out.extend_from_slice(b"\\u00");
                    out.extend_from_slice(&[DIGITS[high], DIGITS[low]]);
                }
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(how: Escaping, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        how.push(text, &mut out);
        out
    }

    #[test]
    fn values_cannot_leave_their_quotes() {
        let nasty = b"a\" \\\n\r\x1b[2J\x00\x7f\xc3\xa4\xff";
        assert_eq!(
            escaped(Escaping::Hex, nasty),
            br"a\x22 \x5c\x0a\x0d\x1b[2J\x00\x7f\xc3\xa4\xff"
        );
        assert_eq!(
            escaped(Escaping::Json, nasty),
            "a\\\" \\\\\\u000a\\u000d\\u001b[2J\\u0000\\u007fä\u{fffd}".as_bytes()
        );
    }

    #[test]
    fn every_byte_stays_on_its_line() {
        for how in [Escaping::Hex, Escaping::Json] {
            for byte in 0..=255u8 {
                let out = escaped(how, &[byte]);
                assert!(out.iter().all(|b| *b >= b' ' && *b != 0x7f), "{how:?} {byte:#x}");
            }
        }
    }
}
