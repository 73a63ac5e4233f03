//! Digests by name, in upper-case hexadecimal, and constant-time comparisons.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::digest::Digest;
use sha2::{Sha256, Sha512};

use super::encoding::{hex_decode, hex_encode};

/// Bytes of the longest digest.
const DIGEST_BYTES_MAX: usize = 64;

/// The digest `md5`, `sha1`, `sha256` or `sha512` of some bytes; `None` for another name.
#[must_use]
pub fn digest(name: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    match name {
        b"md5" => Some(digits(&Md5::digest(bytes))),
        b"sha1" => Some(digits(&Sha1::digest(bytes))),
        b"sha256" => Some(digits(&Sha256::digest(bytes))),
        b"sha512" => Some(digits(&Sha512::digest(bytes))),
        _ => None,
    }
}

/// The authentication code of some bytes (RFC 2104) with the digest of that name.
#[must_use]
pub fn hmac(name: &[u8], secret: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    match name {
        b"md5" => keyed::<Hmac<Md5>>(secret, bytes),
        b"sha1" => keyed::<Hmac<Sha1>>(secret, bytes),
        b"sha256" => keyed::<Hmac<Sha256>>(secret, bytes),
        b"sha512" => keyed::<Hmac<Sha512>>(secret, bytes),
        _ => None,
    }
}

fn keyed<M: Mac + KeyInit>(secret: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let mac = <M as KeyInit>::new_from_slice(secret).ok()?;
    Some(digits(&mac.chain_update(bytes).finalize().into_bytes()))
}

fn digits(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    hex_encode(bytes, &mut out);
    out
}

/// True if two texts of hexadecimal digits, of either case, are the same digest. The time depends
/// on their lengths only.
#[must_use]
pub fn equal_digests(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() || one.len() > 2 * DIGEST_BYTES_MAX {
        return false;
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    hex_decode(one, &mut left)
        && hex_decode(other, &mut right)
        && verify_slices_are_equal(&left, &right).is_ok()
}

/// True if two texts are equal. The time does not even reveal a difference of their lengths.
#[must_use]
pub fn equal_secrets(one: &[u8], other: &[u8]) -> bool {
    // The digests have equal lengths, and a caller cannot choose where they differ.
    verify_slices_are_equal(&Sha256::digest(one), &Sha256::digest(other)).is_ok()
}
