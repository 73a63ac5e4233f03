//! Cache of verified tokens: a signature takes 20 to 100 times as long to verify as a hash.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use foldhash::fast::RandomState;

use crate::key_set::KeySet;
use crate::token::VerifiedToken;

/// Maximum number of tokens.
pub(crate) const TOKENS_MAX: usize = 4096;

/// Tokens that one set of keys has verified.
#[derive(Default)]
pub(crate) struct VerifiedTokens(Mutex<HashMap<[u8; 32], CachedToken, RandomState>>);

struct CachedToken {
    token: Arc<VerifiedToken>,
    /// The keys at that time: a token of a key that was withdrawn is verified again.
    keys: Arc<KeySet>,
    expires_s: i64,
}

fn key_of(token: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, token).as_ref());
    key
}

impl VerifiedTokens {
    /// The token, if these keys have verified it.
    pub(crate) fn find(&self, token: &[u8], keys: &Arc<KeySet>) -> Option<Arc<VerifiedToken>> {
        let key = key_of(token);
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cached.get(&key).filter(|found| Arc::ptr_eq(&found.keys, keys))?;
        Some(Arc::clone(&found.token))
    }

    /// Keeps a verified token until it expires. If the cache is full, expired tokens and tokens of
    /// former keys make room, then any.
    pub(crate) fn keep(
        &self,
        text: &[u8],
        token: &Arc<VerifiedToken>,
        keys: &Arc<KeySet>,
        now_s: i64,
    ) {
        let Ok(Some(expires_s)) = token.claims.date_s("exp") else { return };
        if expires_s <= now_s || text.len() > crate::token::TOKEN_BYTES_MAX {
            return;
        }
        let key = key_of(text);
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= TOKENS_MAX && !cached.contains_key(&key) {
            cached.retain(|_, one| one.expires_s > now_s && Arc::ptr_eq(&one.keys, keys));
            let any = (cached.len() >= TOKENS_MAX).then(|| cached.keys().next().copied());
            if let Some(any) = any.flatten() {
                cached.remove(&any);
            }
        }
        let (token, keys) = (Arc::clone(token), Arc::clone(keys));
        cached.insert(key, CachedToken { token, keys, expires_s });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Claims;
    use crate::signature_algorithm::SignatureAlgorithm;

    fn keys() -> Arc<KeySet> {
        Arc::new(KeySet::of_secret(&[b'k'; 32]).expect("a secret"))
    }

    fn token(expires_s: usize) -> Arc<VerifiedToken> {
        let claims = format!("{{\"exp\":{expires_s}}}");
        Arc::new(VerifiedToken {
            algorithm: SignatureAlgorithm::of_name("HS256").expect("known"),
            typ: None,
            claims: Claims::parse(claims.as_bytes()).expect("claims"),
        })
    }

    fn count(cache: &VerifiedTokens) -> usize {
        cache.0.lock().expect("unpoisoned").len()
    }

    #[test]
    fn tokens_belong_to_the_keys_that_verified_them() {
        let (cache, one, other) = (VerifiedTokens::default(), keys(), keys());
        cache.keep(b"a", &token(10), &one, 0);
        assert!(cache.find(b"a", &one).is_some());
        assert!(cache.find(b"b", &one).is_none() && cache.find(b"a", &other).is_none());
        cache.keep(b"c", &token(10), &one, 10);
        assert!(cache.find(b"c", &one).is_none(), "it has expired");
    }

    #[test]
    fn number_of_tokens_has_a_limit() {
        let (cache, keys) = (VerifiedTokens::default(), keys());
        let keep = |number: usize, expires_s, now_s| {
            cache.keep(&number.to_be_bytes(), &token(expires_s), &keys, now_s);
        };
        (0..TOKENS_MAX).for_each(|number| keep(number, 100, 0));
        assert_eq!(count(&cache), TOKENS_MAX);
        keep(TOKENS_MAX, 200, 1);
        assert_eq!(count(&cache), TOKENS_MAX, "one makes room");
        keep(TOKENS_MAX + 1, 200, 100);
        assert_eq!(count(&cache), 2, "expired ones make room");
    }
}
