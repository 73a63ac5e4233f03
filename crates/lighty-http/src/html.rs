//! Escapes text for HTML.

use alloc::vec::Vec;

/// Appends text, escaped for an element or a quoted attribute. Bytes that are not UTF-8 pass
/// through unchanged: only five ASCII characters are escaped, and browsers show broken text as
/// such.
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        let mut out = Vec::new();
        escape(b"<a href=\"x\" b='y'>&\xC3\xA4\xFF", &mut out);
        assert_eq!(out, b"&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;\xC3\xA4\xFF");
    }
}
