//! Cache of verified passwords. Hashing the password for every request would cost a hundred times
//! as much as the request.
//!
//! Names and passwords are not stored, only a keyed hash of them; the key lives as long as the
//! process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Maximum number of entries. Each is a recently active user.
pub(super) const ENTRIES_MAX: usize = 8192;

/// A keyed hash of user file, realm and credentials.
pub(super) type Key = [u8; 32];

/// The cache.
pub(super) struct Verified {
    secret: [u8; 32],
    entries: Mutex<HashMap<Key, VerifiedEntry, foldhash::fast::RandomState>>,
}

#[derive(Clone, Copy)]
struct VerifiedEntry {
    generation: u64,
    made_ms: u64,
}

impl Verified {
    /// Creates an empty cache.
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret, entries: Mutex::default() }
    }

    /// Returns the key of credentials. The boundaries between the parts are part of the key.
    pub(super) fn key(&self, parts: &[&[u8]]) -> Key {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.secret)
            .expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// True if the credentials were verified within `age_ms` against this generation of the users.
    pub(super) fn contains(&self, key: &Key, generation: u64, now_ms: u64, age_ms: u64) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).is_some_and(|entry| {
            entry.generation == generation && now_ms.saturating_sub(entry.made_ms) < age_ms
        })
    }

    /// Adds credentials. If the cache is full, expired entries are evicted first, then any.
    pub(super) fn insert(&self, key: Key, generation: u64, now_ms: u64, age_ms: u64) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(&key) {
            entries.retain(|_, entry| now_ms.saturating_sub(entry.made_ms) < age_ms);
        }
        if entries.len() >= ENTRIES_MAX
            && !entries.contains_key(&key)
            && let Some(any) = entries.keys().next().copied()
        {
            entries.remove(&any);
        }
        entries.insert(key, VerifiedEntry { generation, made_ms: now_ms });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_password_expires_by_age_and_by_change() {
        let cache = Verified::new([7; 32]);
        let key = cache.key(&[b"file", b"kim", b"secret"]);
        assert_ne!(key, cache.key(&[b"file", b"kimsecret", b""]));
        cache.insert(key, 3, 1000, 500);
        assert!(cache.contains(&key, 3, 1499, 500));
        assert!(!cache.contains(&key, 3, 1500, 500), "too old");
        assert!(!cache.contains(&key, 4, 1000, 500), "the file has changed");
        assert!(!cache.contains(&key, 3, 1000, 0), "off");
    }

    #[test]
    fn cache_has_a_maximum_number_of_entries() {
        let cache = Verified::new([7; 32]);
        let keys: Vec<Key> =
            (0..=ENTRIES_MAX).map(|n| cache.key(&[b"", b"", &n.to_be_bytes()])).collect();
        for key in &keys {
            cache.insert(*key, 0, 0, 1000);
        }
        let left = keys.iter().filter(|key| cache.contains(key, 0, 0, 1000)).count();
        assert_eq!(left, ENTRIES_MAX);
        cache.insert([1; 32], 0, 1000, 1000);
        let left = keys.iter().filter(|key| cache.contains(key, 0, 0, 1000)).count();
        assert_eq!(left, 0, "the old make room");
    }
}
