//! Base64: RFC 4648, with the common alphabet and padding (section 4), and with the URL-safe
//! alphabet without padding (section 5).

use alloc::vec::Vec;

const COMMON: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Appends the encoding of `bytes`, padded.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    encode_with(COMMON, bytes, out);
    out.resize(out.len() + (3 - bytes.len() % 3) % 3, b'=');
}

/// Appends the URL-safe encoding of `bytes`.
pub fn encode_url(bytes: &[u8], out: &mut Vec<u8>) {
    encode_with(URL, bytes, out);
}

fn encode_with(alphabet: &[u8; 64], bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..=group.len() {
            out.push(alphabet[(bits >> (18 - 6 * place) & 63) as usize]);
        }
    }
}

/// Decodes URL-safe `text`. `None` if it has a foreign character, an impossible length, or bits
/// that no encoder sets. Padding is accepted.
#[must_use]
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    let padded = text.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let text = &text[..text.len() - padded];
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for &byte in group {
            bits = bits << 6 | u32::from(value(byte)?);
        }
        let rest = match group.len() {
            4 => 3,
            3 if bits & 3 == 0 => 2,
            2 if bits & 15 == 0 => 1,
            _ => return None,
        };
        let bytes = (bits << (6 * (4 - group.len()))).to_be_bytes();
        out.extend_from_slice(&bytes[1..=rest]);
    }
    Some(out)
}

const fn value(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{decode_url, encode, encode_url};

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
            let mut out = alloc::vec::Vec::new();
            encode_url(bytes.as_bytes(), &mut out);
            assert_eq!(out, text.as_bytes());
            let mut padded = alloc::vec::Vec::new();
            encode(bytes.as_bytes(), &mut padded);
            assert_eq!((padded.len() % 4, padded.starts_with(&out)), (0, true));
            assert!(padded[out.len()..].iter().all(|byte| *byte == b'='));
            assert_eq!(decode_url(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(decode_url(b"-_8=").as_deref(), Some(&b"\xfb\xff"[..]));
        let mut common = alloc::vec::Vec::new();
        encode(b"\xfb\xff", &mut common);
        assert_eq!(common, b"+/8=");
    }

    #[test]
    fn what_no_encoder_writes_is_refused() {
        for bad in ["A", "AAAAA", "Zh", "Zm9=v", "a+b/", "Zg=a"] {
            assert_eq!(decode_url(bad.as_bytes()), None, "{bad}");
        }
    }
}
