//! Signers of tokens (JSON Web Signature, RFC 7515), with their public keys.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use aws_lc_rs::{digest, hmac};
use serde_json::{Value, json};

/// A signer with a key of its own.
pub struct TokenSigner {
    name: String,
    algorithm: &'static str,
    key: SigningKey,
}

enum SigningKey {
    Rsa(Box<RsaKeyPair>),
    Ec(Box<EcdsaKeyPair>, &'static str),
    Ed(Box<Ed25519KeyPair>),
    Secret(Vec<u8>),
}

impl TokenSigner {
    /// A new key for RS256, with this `kid`.
    #[must_use]
    pub fn rsa(name: &str) -> Self {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        Self::of(name, "RS256", SigningKey::Rsa(Box::new(key)))
    }

    /// The same key for PS256.
    #[must_use]
    pub fn with_pss(self) -> Self {
        Self { algorithm: "PS256", ..self }
    }

    /// A new key for ES256.
    #[must_use]
    pub fn es256(name: &str) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        Self::of(name, "ES256", SigningKey::Ec(Box::new(key), "P-256"))
    }

    /// A new key for ES384.
    #[must_use]
    pub fn es384(name: &str) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key");
        Self::of(name, "ES384", SigningKey::Ec(Box::new(key), "P-384"))
    }

    /// A new key for EdDSA with Ed25519.
    #[must_use]
    pub fn ed25519(name: &str) -> Self {
        let key = Ed25519KeyPair::generate().expect("a key");
        Self::of(name, "EdDSA", SigningKey::Ed(Box::new(key)))
    }

    /// A secret for HS256.
    #[must_use]
    pub fn secret(secret: &[u8]) -> Self {
        Self::of("secret", "HS256", SigningKey::Secret(secret.to_vec()))
    }

    fn of(name: &str, algorithm: &'static str, key: SigningKey) -> Self {
        Self { name: name.to_owned(), algorithm, key }
    }

    /// The public key as a JSON Web Key (RFC 7517).
    #[must_use]
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.key {
            SigningKey::Rsa(key) => {
                let (n, e) = rsa_numbers(key.public_key().as_ref());
                json!({ "kty": "RSA", "n": base64url(n), "e": base64url(e) })
            }
            SigningKey::Ec(key, curve) => {
                let point = &key.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({ "kty": "EC", "crv": curve, "x": base64url(x), "y": base64url(y) })
            }
            SigningKey::Ed(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(key.public_key().as_ref()) })
            }
            SigningKey::Secret(secret) => json!({ "kty": "oct", "k": base64url(secret) }),
        };
        jwk["kid"] = self.name.as_str().into();
        jwk["alg"] = self.algorithm.into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// A token with these claims, and with `alg` and `kid` in its header.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({ "alg": self.algorithm, "kid": self.name }), claims)
    }

    /// A token with this header. The algorithm is that of the key, whatever the header says.
    #[must_use]
    pub fn sign_with(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// A token of texts that may be no JSON.
    #[must_use]
    pub fn sign_text(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
        let signature = self.signature(message.as_bytes());
        format!("{message}.{}", base64url(&signature))
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            SigningKey::Rsa(key) => {
                let is_pss = self.algorithm == "PS256";
                let encoding: &'static dyn RsaEncoding =
                    if is_pss { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(encoding, &random, message, &mut signature).expect("signed");
                signature
            }
            SigningKey::Ec(key, _) => key.sign(&random, message).expect("signed").as_ref().to_vec(),
            SigningKey::Ed(key) => key.sign(message).as_ref().to_vec(),
            SigningKey::Secret(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                hmac::sign(&key, message).as_ref().to_vec()
            }
        }
    }
}

/// A JSON Web Key Set with the public keys of signers.
#[must_use]
pub fn key_set<'s>(signers: impl IntoIterator<Item = &'s TokenSigner>) -> String {
    let keys: Vec<_> = signers.into_iter().map(TokenSigner::jwk).collect();
    json!({ "keys": keys }).to_string()
}

/// SHA-256 in base64url, as for code challenges (RFC 7636).
#[must_use]
pub fn sha256_base64url(text: &str) -> String {
    base64url(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

/// Encodes bytes in base64url without padding.
#[must_use]
pub fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..=group.len() {
            let digit = bits >> (18 - 6 * at) & 63;
            text.push(char::from(ALPHABET[digit as usize]));
        }
    }
    text
}

/// Modulus and exponent of an `RSAPublicKey` (RFC 8017 appendix A.1.1) in DER.
fn rsa_numbers(der: &[u8]) -> (&[u8], &[u8]) {
    let (members, _) = element(der);
    let (modulus, rest) = element(members);
    let (exponent, _) = element(rest);
    (modulus.strip_prefix(&[0]).unwrap_or(modulus), exponent)
}

/// Content of the first DER element, and the bytes behind it.
fn element(der: &[u8]) -> (&[u8], &[u8]) {
    let (length, start) = match der[1] {
        short @ ..0x80 => (usize::from(short), 2),
        long => {
            let count = usize::from(long & 0x7F);
            let digits = &der[2..2 + count];
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), 2 + count)
        }
    };
    der[start..].split_at(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_that_of_rfc_4648() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (b"\xfb\xff", "-_8")]
        {
            assert_eq!(base64url(bytes), text);
        }
        // RFC 7636 appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(sha256_base64url(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
