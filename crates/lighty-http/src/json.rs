//! Escapes text for JSON strings: RFC 8259 section 7. Lines of the access log are written with it;
//! other JSON derives `Serialize`.

use alloc::vec::Vec;

/// Appends text as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. `<` is
/// escaped too, so that the result is harmless inside a `<script>`.
pub fn push_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            push_byte(byte, out);
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{FFFD}".as_bytes());
        }
    }
    out.push(b'"');
}

fn push_byte(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        0x08 => out.extend_from_slice(b"\\b"),
        0x0C => out.extend_from_slice(b"\\f"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0..=0x1F | b'<' | 0x7F => {
            out.extend_from_slice(b"\\u00");
            out.push(DIGITS[usize::from(byte >> 4)]);
            out.push(DIGITS[usize::from(byte & 15)]);
        }
        _ => out.push(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_and_escaped() {
        let mut out = Vec::new();
        push_string(b"a\"\\\n\x01</script>\xC3\xA4\xFF", &mut out);
        let expected = "\"a\\\"\\\\\\n\\u0001\\u003c/script>ä\u{FFFD}\"";
        assert_eq!(out, expected.as_bytes());
    }
}
