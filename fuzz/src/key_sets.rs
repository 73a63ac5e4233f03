//! Sets of keys from issuers: takes any bytes, and panics when a promise is broken.

use lighty_identity::key_set::{KEYS_MAX, KeySet};
use lighty_identity::token::UnverifiedToken;

/// Tokens with a signature of zeros, for RSA and the two curves of ECDSA.
const UNSIGNED: [(&str, usize); 4] = [
    // {"alg":"RS256"}, {"alg":"PS256"}, {"alg":"ES256"}, {"alg":"ES384"}
    ("eyJhbGciOiJSUzI1NiJ9.e30.", 342),
    ("eyJhbGciOiJQUzI1NiJ9.e30.", 342),
    ("eyJhbGciOiJFUzI1NiJ9.e30.", 86),
    ("eyJhbGciOiJFUzM4NCJ9.e30.", 128),
];

/// A set has a limited number of keys and at least one. No key verifies a signature of zeros, and
/// none fails in another way than by an error. A refusal is described without the set's contents.
pub fn jwks(data: &[u8]) {
    let set = match KeySet::parse(data) {
        Ok(set) => set,
        Err(error) => {
            assert!(error.to_string().len() < 512, "{error}");
            return;
        }
    };
    assert!(!set.is_empty() && set.len() <= KEYS_MAX);
    assert!(KeySet::parse(data).is_ok_and(|again| again.len() == set.len()));
    for (start, digits) in UNSIGNED {
        let token = format!("{start}{}", "A".repeat(digits));
        let token = UnverifiedToken::parse(token.as_bytes()).expect("a well-formed token");
        assert!(token.verify(&set).is_err());
    }
    // Points of small order verify some signatures for every content, so only panics count here.
    let token = format!("eyJhbGciOiJFZERTQSJ9.e30.{}", "A".repeat(86));
    let token = UnverifiedToken::parse(token.as_bytes()).expect("a well-formed token");
    let _ = token.verify(&set);
}
