//! The MAC of a link: plain MD5 as in older versions, or HMAC (RFC 2104).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use hmac::{Hmac, KeyInit, Mac};
use lighty_http::base64;
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;

/// The algorithm of a MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MacAlgorithm {
    Md5,
    HmacSha1,
    HmacSha256,
}

impl MacAlgorithm {
    pub(super) const NAMES: &'static [&'static str] = &["md5", "hmac-sha1", "hmac-sha256"];
    pub(super) const ALL: [Self; 3] = [Self::Md5, Self::HmacSha1, Self::HmacSha256];

    /// Length of a MAC in characters.
    pub(super) const fn mac_length(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::HmacSha1 => 27,
            Self::HmacSha256 => 43,
        }
    }

    /// Returns true if the text has only characters of this algorithm's encoding.
    pub(super) fn is_alphabet(self, mac: &[u8]) -> bool {
        let base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match self {
            Self::Md5 => mac.iter().all(u8::is_ascii_hexdigit),
            Self::HmacSha1 | Self::HmacSha256 => mac.iter().all(base64),
        }
    }

    /// Verifies a link's MAC against the secret. The comparison takes constant time.
    pub(super) fn verify(self, secret: &[u8], time: &[u8], path: &[u8], mac: &[u8]) -> bool {
        match self {
            Self::Md5 => {
                let sum = Md5::new().chain_update(secret).chain_update(path).chain_update(time);
                let given = decode_hex(mac);
                verify_slices_are_equal(&sum.finalize(), &given).is_ok()
            }
            Self::HmacSha1 => verify_hmac::<Hmac<Sha1>>(secret, time, path, mac),
            Self::HmacSha256 => verify_hmac::<Hmac<Sha256>>(secret, time, path, mac),
        }
    }
}

fn verify_hmac<M: Mac + KeyInit>(secret: &[u8], time: &[u8], path: &[u8], mac: &[u8]) -> bool {
    let (Some(given), Ok(mut hmac)) =
        (base64::decode_url(mac), <M as KeyInit>::new_from_slice(secret))
    else {
        return false;
    };
    for part in [b"/", time, path] {
        hmac.update(part);
    }
    hmac.verify_slice(&given).is_ok()
}

/// Decodes pairs of hexadecimal digits; skips invalid pairs.
fn decode_hex(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    text.chunks(2).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Test vectors made with Python's hashlib, hmac and base64.
    const SECRET: &[u8] = b"verysecret";
    const TIME: &[u8] = b"5f5e1000";
    const PATH: &[u8] = b"/dir/file.txt";

    #[test]
    fn macs_of_another_implementation_are_good() {
        for (algorithm, mac) in [
            (MacAlgorithm::Md5, "1fc6209a330a9827691d145ef6c7a8fd"),
            (MacAlgorithm::HmacSha1, "1A1kMUoeXJbGwICvTumxlpzG1aM"),
            (MacAlgorithm::HmacSha256, "3f5lxasVquXn9QXD3V0VTl5Upqy48GfBc8860fYNQL8"),
        ] {
            let mac = mac.as_bytes();
            assert_eq!(mac.len(), algorithm.mac_length());
            assert!(algorithm.is_alphabet(mac));
            assert!(algorithm.verify(SECRET, TIME, PATH, mac), "{algorithm:?}");
            assert!(!algorithm.verify(b"other", TIME, PATH, mac));
            assert!(!algorithm.verify(SECRET, b"5f5e1001", PATH, mac));
            assert!(!algorithm.verify(SECRET, TIME, b"/dir/file.txs", mac));
            let mut forged = mac.to_vec();
            forged[0] = if forged[0] == b'0' { b'1' } else { b'0' };
            assert!(!algorithm.verify(SECRET, TIME, PATH, &forged));
        }
    }
}
