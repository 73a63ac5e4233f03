//! Base64 (RFC 4648): the common alphabet with padding (section 4), and the URL-safe alphabet
//! without padding (section 5). The time taken depends only on the length, because texts can be
//! credentials.

use alloc::vec::Vec;

use base64ct::{Base64, Base64Unpadded, Base64UrlUnpadded, Encoding};

/// Appends the encoding of `bytes`, padded.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(Base64::encode_string(bytes).as_bytes());
}

/// Appends the URL-safe encoding of `bytes`.
pub fn encode_url(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(Base64UrlUnpadded::encode_string(bytes).as_bytes());
}

/// Decodes `text` in the common alphabet. `None` if it has a foreign character, an impossible
/// length, or bits that no encoder sets. Padding is accepted and may be missing.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    decode_unpadded::<Base64Unpadded>(text)
}

/// Decodes URL-safe `text`; otherwise like [`decode`].
#[must_use]
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    decode_unpadded::<Base64UrlUnpadded>(text)
}

fn decode_unpadded<E: Encoding>(text: &[u8]) -> Option<Vec<u8>> {
    let padded = text.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let text = &text[..text.len() - padded];
    let mut out = alloc::vec![0; text.len() / 4 * 3 + 2];
    let length = E::decode(text, &mut out).ok()?.len();
    out.truncate(length);
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_vectors_of_the_specification() {
        // RFC 4648 section 10, with and without padding.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            encode_url(bytes.as_bytes(), &mut out);
            assert_eq!(out, text.as_bytes());
            let mut padded = Vec::new();
            encode(bytes.as_bytes(), &mut padded);
            assert_eq!((padded.len() % 4, padded.starts_with(&out)), (0, true));
            assert!(padded[out.len()..].iter().all(|byte| *byte == b'='));
            assert_eq!(decode_url(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(decode(&padded).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(decode_url(b"-_8=").as_deref(), Some(&b"\xfb\xff"[..]));
        let mut common = Vec::new();
        encode(b"\xfb\xff", &mut common);
        assert_eq!(common, b"+/8=");
        assert_eq!(decode(b"+/8").as_deref(), Some(&b"\xfb\xff"[..]), "padding may be missing");
    }

    #[test]
    fn base64_that_no_encoder_writes_is_refused() {
        for bad in ["A", "AAAAA", "Zh", "Zm9=v", "a+b/", "Zg=a"] {
            assert_eq!(decode_url(bad.as_bytes()), None, "{bad}");
        }
        for bad in ["A", "Zh", "a-b_", "Zm9v====", "Zg= ", "Zg\n"] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        /// A text is decoded exactly if it is the encoding of the result.
        #[test]
        fn only_encodings_are_decoded(text in "[A-Ha-h0-9+/_-]{0,9}={0,2}") {
            let unpadded = text.trim_end_matches('=');
            let mut out = Vec::new();
            if let Some(bytes) = decode_url(text.as_bytes()) {
                encode_url(&bytes, &mut out);
                prop_assert_eq!(&out, unpadded.as_bytes());
            } else if !unpadded.contains(['+', '/']) {
                prop_assert!(unpadded.len() % 4 == 1 || sets_more_bits(unpadded), "{}", text);
            }
            out.clear();
            if let Some(bytes) = decode(text.as_bytes()) {
                encode(&bytes, &mut out);
                prop_assert_eq!(&out[..unpadded.len()], unpadded.as_bytes());
            } else if !unpadded.contains(['-', '_']) {
                prop_assert!(unpadded.len() % 4 == 1 || sets_more_bits(unpadded), "{}", text);
            }
        }

        #[test]
        fn bytes_survive_both_alphabets(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
            let (mut common, mut url) = (Vec::new(), Vec::new());
            encode(&bytes, &mut common);
            encode_url(&bytes, &mut url);
            prop_assert_eq!(decode(&common), Some(bytes.clone()));
            prop_assert_eq!(decode_url(&url), Some(bytes));
        }
    }

    /// True if the last character has bits beyond the last byte. Positions in the alphabet, not
    /// the code under test, decide.
    fn sets_more_bits(text: &str) -> bool {
        let unused = match text.len() % 4 {
            2 => 15,
            3 => 3,
            _ => 0,
        };
        let value = match text.bytes().last() {
            Some(byte @ b'A'..=b'Z') => byte - b'A',
            Some(byte @ b'a'..=b'z') => byte - b'a' + 26,
            Some(byte @ b'0'..=b'9') => byte - b'0' + 52,
            Some(b'+' | b'-') => 62,
            _ => 63,
        };
        value & unused != 0
    }
}
