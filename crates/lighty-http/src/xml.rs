//! Escapes text for XML 1.0 (WebDAV responses).

use alloc::vec::Vec;

/// Appends text as character data or attribute value. Characters that XML does not permit (most
/// control characters, bytes that are not UTF-8) become U+FFFD, because one of them would make the
/// whole document unreadable.
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            push_char(character, out);
        }
        if !chunk.invalid().is_empty() {
            push_char(char::REPLACEMENT_CHARACTER, out);
        }
    }
}

fn push_char(character: char, out: &mut Vec<u8>) {
    match character {
        '&' => out.extend_from_slice(b"&amp;"),
        '<' => out.extend_from_slice(b"&lt;"),
        '>' => out.extend_from_slice(b"&gt;"),
        '"' => out.extend_from_slice(b"&quot;"),
        '\'' => out.extend_from_slice(b"&apos;"),
        '\t' | '\n' => out.push(character as u8),
        // A literal CR would be read as LF.
        '\r' => out.extend_from_slice(b"&#13;"),
        '\0'..='\x1F' | '\u{FFFE}' | '\u{FFFF}' => {
            out.extend_from_slice("\u{FFFD}".as_bytes());
        }
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_stays_readable() {
        let mut out = Vec::new();
        escape(b"a<&>\"'\r\n\x01\xFFz", &mut out);
        let expected = "a&lt;&amp;&gt;&quot;&apos;&#13;\n\u{FFFD}\u{FFFD}z";
        assert_eq!(out, expected.as_bytes());
    }
}
