//! Base64, hexadecimal digits, and escaping for XML and HTML.

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Appends base64 without padding (RFC 4648 section 4).
pub fn base64_encode(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    encode(BASE64, bytes, out)
}

/// Like [`base64_encode`] with the URL-safe alphabet (RFC 4648 section 5).
pub fn base64url_encode(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    encode(BASE64_URL, bytes, out)
}

/// Appends decoded base64, as leniently as lighttpd: control characters and spaces are skipped, `=`
/// or `.` ends the text at any position, and surplus bits are dropped. False for any other
/// character, for a missing digit, and for a text without digits.
pub fn base64_decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    decode(text, [b'+', b'/'], out)
}

/// Like [`base64_decode`] with the URL-safe alphabet.
pub fn base64url_decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    decode(text, [b'-', b'_'], out)
}

fn encode(alphabet: &[u8; 64], bytes: &[u8], out: &mut Vec<u8>) -> bool {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..=group.len() {
            out.push(alphabet[(bits >> (18 - 6 * place) & 63) as usize]);
        }
    }
    true
}

fn decode(text: &[u8], last_two: [u8; 2], out: &mut Vec<u8>) -> bool {
    let (mut bits, mut digits) = (0u32, 0usize);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            _ if byte == last_two[0] => 62,
            _ if byte == last_two[1] => 63,
            b'=' | b'.' => break,
            1..=b' ' | 0x7F => continue,
            _ => return false,
        };
        bits = bits << 6 | u32::from(value);
        digits += 1;
        if digits.is_multiple_of(4) {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            bits = 0;
        }
    }
    match digits % 4 {
        0 => digits > 0,
        2 => {
            out.push((bits >> 4) as u8);
            true
        }
        3 => {
            out.extend_from_slice(&((bits >> 2) as u16).to_be_bytes());
            true
        }
        _ => false,
    }
}

/// Appends two upper-case digits for each byte.
pub fn hex_encode(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    out.reserve(bytes.len() * 2);
    for &byte in bytes {
        out.extend_from_slice(&hex(byte));
    }
    true
}

/// Appends decoded hexadecimal digits of either case. False for any other character and for an odd
/// number of digits.
pub fn hex_decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    if !text.len().is_multiple_of(2) {
        return false;
    }
    for pair in text.chunks_exact(2) {
        let Some(byte) = hex_byte(pair) else { return false };
        out.push(byte);
    }
    true
}

/// Appends a text with the markup characters of XML and HTML, and control characters, as
/// references: harmless between tags and in quoted attributes.
pub fn xml_encode(text: &[u8], out: &mut Vec<u8>) -> bool {
    for &byte in text {
        match byte {
            0..=0x1F | b'"' | b'&' | b'\'' | b'<' | b'>' | b'`' | 0x7F => {
                out.extend_from_slice(b"&#x");
                out.extend_from_slice(&hex(byte));
                out.push(b';');
            }
            _ => out.push(byte),
        }
    }
    true
}

/// The two upper-case digits of a byte.
pub(super) const fn hex(byte: u8) -> [u8; 2] {
    [HEX[(byte >> 4) as usize], HEX[(byte & 15) as usize]]
}

/// The byte encoded by the first two characters of a text.
pub(super) fn hex_byte(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16).map(|value| value as u8);
    Some(digit(0)? << 4 | digit(1)?)
}
