//! Hashes that stay the same while the store exists, for keys on the disk.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::key::Key;

/// Secret of a store: strangers cannot find two keys with the same hash.
pub(crate) type Seed = [u8; 16];

/// Hash of a key, or of a key and the selecting values of a variant. Equal hashes of different keys
/// are a miss, because the full key is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyHash([u32; 3]);

/// Bytes of a hash in a file.
pub(crate) const KEY_HASH_BYTES: usize = 12;

impl KeyHash {
    /// The hash of a key.
    pub(crate) fn of(seed: &Seed, key: &Key) -> Self {
        Self::finish(hasher(seed, 1), key)
    }

    /// The hash of a variant.
    pub(crate) fn of_variant(seed: &Seed, key: &Key, selecting: &[u8]) -> Self {
        let mut hasher = hasher(seed, 2);
        hasher.write(&(selecting.len() as u64).to_le_bytes());
        hasher.write(selecting);
        Self::finish(hasher, key)
    }

    fn finish(mut hasher: SipHasher13, key: &Key) -> Self {
        hasher.write(key.as_bytes());
        let hash = hasher.finish128();
        Self([hash.h1 as u32, (hash.h1 >> 32) as u32, hash.h2 as u32])
    }

    /// Part of the hash, for tables.
    pub(crate) fn short(self) -> u64 {
        u64::from(self.0[0]) | u64::from(self.0[1]) << 32
    }

    /// Another part, for choosing a table.
    pub(crate) fn part(self, of: usize) -> usize {
        self.0[2] as usize % of
    }

    pub(crate) fn to_bytes(self) -> [u8; KEY_HASH_BYTES] {
        let mut bytes = [0; KEY_HASH_BYTES];
        for (place, part) in bytes.chunks_exact_mut(4).zip(self.0) {
            place.copy_from_slice(&part.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; KEY_HASH_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Self([
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
            u32::from_le_bytes([i, j, k, l]),
        ])
    }
}

/// A hash of 64 bits of parts with their lengths; `domain` separates uses.
pub(crate) fn short_hash(seed: &Seed, domain: u8, parts: &[&[u8]]) -> u64 {
    let mut hasher = hasher(seed, domain);
    for part in parts {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish128().h1
}

fn hasher(seed: &Seed, domain: u8) -> SipHasher13 {
    let mut hasher = SipHasher13::new_with_key(seed);
    hasher.write(&[domain]);
    hasher
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyWriter;

    #[test]
    fn hashes_depend_on_everything_and_on_nothing_else() {
        let key = |text: &str| KeyWriter::default().part(text.as_bytes()).finish();
        let (one, other) = ([1; 16], [2; 16]);
        let hashes = [
            KeyHash::of(&one, &key("a")),
            KeyHash::of(&one, &key("b")),
            KeyHash::of(&other, &key("a")),
            KeyHash::of_variant(&one, &key("a"), b""),
            KeyHash::of_variant(&one, &key("a"), b"x"),
        ];
        for (at, hash) in hashes.iter().enumerate() {
            assert_eq!(KeyHash::from_bytes(hash.to_bytes()), *hash);
            assert!(!hashes[..at].contains(hash), "{at}");
        }
        assert_eq!(hashes[0], KeyHash::of(&one, &key("a")));
        assert_ne!(short_hash(&one, 3, &[b"ab", b"c"]), short_hash(&one, 3, &[b"a", b"bc"]));
        assert_ne!(short_hash(&one, 3, &[b"a"]), short_hash(&one, 4, &[b"a"]));
    }

    // Files of earlier versions stay readable.
    #[test]
    fn hash_of_a_known_key_does_not_change() {
        let key = KeyWriter::default().part(b"lighty").part(b"/").finish();
        assert_eq!(KeyHash::of(&[7; 16], &key).short(), 13_210_502_625_362_439_980);
    }
}
