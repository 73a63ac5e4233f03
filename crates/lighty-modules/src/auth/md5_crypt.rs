//! `$1$` of crypt(3), and Apache's `$apr1$`: a thousand rounds of MD5.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64ct::{Base64ShaCrypt, Encoding};
use md5::{Digest, Md5};

/// Base64 alphabet of crypt(3).
pub(super) const ALPHABET: &[u8; 64] =
    b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Maximum length of the salt; further characters are ignored.
const SALT_BYTES_MAX: usize = 8;

/// Characters of the sum.
const SUM_CHARS: usize = 22;

/// Returns true if the text has a magic prefix, a salt and a sum.
pub(super) fn is_well_formed(text: &str) -> bool {
    split(text).is_some_and(|(_, _, sum)| is_sum(sum, SUM_CHARS))
}

/// Returns true if the hash was made from this password.
pub(super) fn verify(text: &str, password: &[u8]) -> bool {
    let Some((magic, salt, sum)) = split(text) else { return false };
    let salt = &salt.as_bytes()[..salt.len().min(SALT_BYTES_MAX)];
    let made = encode(&stretch(magic.as_bytes(), salt, password));
    verify_slices_are_equal(made.as_bytes(), sum.as_bytes()).is_ok()
}

/// Returns true if `sum` consists of exactly `characters` characters of the alphabet.
pub(super) fn is_sum(sum: &str, characters: usize) -> bool {
    sum.len() == characters && sum.bytes().all(|byte| ALPHABET.contains(&byte))
}

fn split(text: &str) -> Option<(&str, &str, &str)> {
    let magic = ["$apr1$", "$1$"].into_iter().find(|magic| text.starts_with(magic))?;
    let (salt, sum) = text[magic.len()..].split_once('$')?;
    Some((magic, salt, sum))
}

fn stretch(magic: &[u8], salt: &[u8], password: &[u8]) -> [u8; 16] {
    let mut sum: [u8; 16] = first(magic, salt, password).finalize().into();
    for round in 0..1000 {
        let mut next = Md5::new();
        let odd = round % 2 == 1;
        next.update(if odd { password } else { &sum });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if odd { &sum } else { password });
        sum = next.finalize().into();
    }
    sum
}

fn first(magic: &[u8], salt: &[u8], password: &[u8]) -> Md5 {
    let mut sum = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    let other = Md5::new().chain_update(password).chain_update(salt).chain_update(password);
    let other = other.finalize();
    for part in password.chunks(other.len()) {
        sum.update(&other[..part.len()]);
    }
    let mut left = password.len();
    while left > 0 {
        // Odd counts add a zero byte: a bug in the original that all implementations share.
        sum.update(if left % 2 == 1 { &[0] } else { &password[..1] });
        left /= 2;
    }
    sum
}

/// Order in which the text has the bytes of a sum.
const ORDER: [usize; 16] = [12, 6, 0, 13, 7, 1, 14, 8, 2, 15, 9, 3, 5, 10, 4, 11];

fn encode(sum: &[u8; 16]) -> String {
    Base64ShaCrypt::encode_string(&ORDER.map(|at| sum[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made with `openssl passwd -apr1` and `-1`.
    #[test]
    fn hashes_of_openssl() {
        for (text, password) in VECTORS {
            assert!(is_well_formed(text), "{text}");
            assert!(verify(text, password.as_bytes()), "{text}");
            assert!(!verify(text, b"wrong"), "{text}");
        }
    }

    const VECTORS: &[(&str, &str)] = &[
        ("$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/", "secret"),
        ("$apr1$x$gaHCXNLMHPYPxs7U6Bv.o.", "a longer password that is more than sixteen bytes"),
        ("$1$saltsalt$9xy1btjgzLYfb7hivXtC//", "secret"),
        ("$1$s$iXWZU0LDEJ7Jjmms7KFsH0", ""),
    ];
}
