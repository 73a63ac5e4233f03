//! Quoted strings: RFC 9110 section 5.6.4.

use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Splits the rest of a quoted string, escapes included, from the text after its closing quote.
/// `bytes` begins after the opening quote. `None` if the string does not end, or has invalid bytes.
#[must_use]
pub fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            b'"' => return Some((&bytes[..at], &bytes[at + 1..])),
            b'\\' => {
                at += 1;
                is_text(*bytes.get(at)?).then_some(())?;
            }
            byte => is_text(byte).then_some(())?,
        }
        at += 1;
    }
}

/// The text of a string, unescaped; copied only if it has escapes.
#[must_use]
pub fn unescape(inner: &[u8]) -> Cow<'_, [u8]> {
    if !inner.contains(&b'\\') {
        return Cow::Borrowed(inner);
    }
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        text.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
    }
    Cow::Owned(text)
}

/// True if a byte is permitted in a quoted string, possibly after a backslash.
pub(crate) const fn is_text(byte: u8) -> bool {
    !byte.is_ascii_control() || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_a_quote_that_is_not_escaped() {
        for (bytes, split_up) in [
            (&b"\""[..], Some((&b""[..], &b""[..]))),
            (b"a\", b", Some((b"a", b", b"))),
            (b"a\\\"b\"c", Some((b"a\\\"b", b"c"))),
            (b"a\\\\\"c", Some((b"a\\\\", b"c"))),
            (b"\t\xff \"", Some((b"\t\xff ", b""))),
            (b"", None),
            (b"a", None),
            (b"a\\", None),
            (b"a\\\"", None),
            (b"a\n\"", None),
            (b"a\\\n\"", None),
            (b"\x7f\"", None),
        ] {
            assert_eq!(split(bytes), split_up, "{bytes:?}");
        }
    }

    #[test]
    fn a_backslash_gives_way_to_what_follows() {
        assert!(matches!(unescape(b"plain"), Cow::Borrowed(b"plain")));
        for (inner, text) in [
            (&b"a\\\"b"[..], &b"a\"b"[..]),
            (b"\\\\", b"\\"),
            (b"\\a\\b", b"ab"),
            (b"torn\\", b"torn\\"),
        ] {
            assert_eq!(&*unescape(inner), text, "{inner:?}");
        }
    }
}
