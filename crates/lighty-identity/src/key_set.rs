//! Sets of keys that verify tokens: JSON Web Key Sets (RFC 7517), or one shared secret.

use lighty_io::file::followed::FollowedContents;
use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use jsonwebtoken::DecodingKey;
use serde_json::{Map, Value};

use crate::signature_algorithm::{KeyKind, SignatureAlgorithm};
use crate::strict_json;

/// Maximum size of a key set in bytes.
pub const KEY_SET_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of keys in a set.
pub const KEYS_MAX: usize = 100;

/// Maximum size of a secret in bytes.
pub const SECRET_BYTES_MAX: usize = 4096;

/// Sizes of RSA keys, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Keys that are tried for a token without a key's name.
const UNNAMED_TRIES: usize = 4;

/// Keys that verify tokens.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<VerificationKey>,
    /// A secret verifies whatever key a token names.
    has_names: bool,
}

impl FollowedContents for KeySet {
    const KIND: &'static str = "keys";

    fn entries(&self) -> u64 {
        self.keys.len() as u64
    }
}

/// A key and the algorithms for which it may be used.
struct VerificationKey {
    name: Option<String>,
    algorithms: Vec<SignatureAlgorithm>,
    key: DecodingKey,
}

/// Omits the key, which may be a secret.
impl fmt::Debug for VerificationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, algorithms, key: _ } = self;
        f.debug_tuple("VerificationKey").field(name).field(algorithms).finish()
    }
}

/// A set cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// Not a JSON object with an array `keys`.
    #[error("it is no JSON Web Key Set: an object with an array \"keys\" is expected")]
    Malformed,
    /// More keys than the limit.
    #[error("it has more than {KEYS_MAX} keys")]
    TooManyKeys,
    /// No key verifies signatures.
    #[error("none of its keys can verify tokens{0}")]
    NoUsableKey(Reasons),
    /// A secret that is too short.
    #[error("the secret is shorter than 32 bytes, or longer than {SECRET_BYTES_MAX}")]
    SecretSize,
}

/// Faults of the keys of a set, by position.
#[derive(Debug, PartialEq, Eq)]
pub struct Reasons(Vec<KeyFault>);

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate().take(3) {
            let before = if at == 0 { ": " } else { "; " };
            write!(f, "{before}key {}: {fault}", at + 1)?;
        }
        Ok(())
    }
}

/// The reason why a key is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum KeyFault {
    #[error("not an object with \"kty\"")]
    Malformed,
    #[error("its use is not \"sig\"")]
    OtherUse,
    #[error("its key_ops lack \"verify\"")]
    OtherOperations,
    #[error("an unknown type or curve")]
    UnknownKind,
    #[error("secrets do not belong into a key set")]
    Secret,
    #[error("its \"alg\" does not fit its type")]
    OtherAlgorithm,
    #[error("RSA keys have 2048 to 8192 bits")]
    RsaSize,
    #[error("its coordinates are malformed")]
    Coordinates,
}

/// Keys for a token.
pub(crate) enum Fitting<'k> {
    /// Keys to try.
    Keys(Vec<&'k DecodingKey>),
    /// The named key is for other algorithms.
    OtherAlgorithm,
    /// The set has no key of this name, or none for this algorithm.
    Unknown,
}

impl KeySet {
    /// Reads a JSON Web Key Set. Keys that cannot verify signatures are left out, and so are
    /// secrets.
    ///
    /// # Errors
    /// It is malformed, or has no usable key.
    pub fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        let mut set = strict_json::parse_object(json).ok_or(KeySetError::Malformed)?;
        let Some(Value::Array(listed)) = set.remove("keys") else {
            return Err(KeySetError::Malformed);
        };
        if listed.len() > KEYS_MAX {
            return Err(KeySetError::TooManyKeys);
        }
        let (mut keys, mut faults) = (Vec::new(), Vec::new());
        for item in &listed {
            match item.as_object().ok_or(KeyFault::Malformed).and_then(parse_key) {
                Ok(key) => keys.push(key),
                Err(fault) => faults.push(fault),
            }
        }
        match keys.is_empty() {
            true => Err(KeySetError::NoUsableKey(Reasons(faults))),
            false => Ok(Self { keys, has_names: true }),
        }
    }

    /// A set of one secret, as in a file: a line break at its end does not belong to it.
    ///
    /// # Errors
    /// The secret is too short.
    pub fn of_secret(text: &[u8]) -> Result<Self, KeySetError> {
        let secret = text.strip_suffix(b"\n").unwrap_or(text);
        let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
        let is_long_enough = |kind| matches!(kind, KeyKind::Secret(least) if secret.len() >= least);
        let algorithms: Vec<_> =
            SignatureAlgorithm::all().filter(|one| is_long_enough(one.kind())).collect();
        if algorithms.is_empty() || secret.len() > SECRET_BYTES_MAX {
            return Err(KeySetError::SecretSize);
        }
        let key = DecodingKey::from_secret(secret);
        Ok(Self { keys: vec![VerificationKey { name: None, algorithms, key }], has_names: false })
    }

    /// Number of usable keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if there are no keys; never, because such a set cannot be made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys to try for a token with this algorithm and key's name.
    pub(crate) fn fitting(&self, algorithm: SignatureAlgorithm, name: Option<&str>) -> Fitting<'_> {
        let name = name.filter(|_| self.has_names);
        let is_named = |key: &&VerificationKey| name.is_none() || key.name.as_deref() == name;
        let mut named = self.keys.iter().filter(is_named).peekable();
        let is_known = named.peek().is_some() && name.is_some();
        let fitting = named.filter(|key| key.algorithms.contains(&algorithm));
        let keys: Vec<_> = fitting.take(UNNAMED_TRIES).map(|key| &key.key).collect();
        match keys.is_empty() {
            false => Fitting::Keys(keys),
            true if is_known => Fitting::OtherAlgorithm,
            true => Fitting::Unknown,
        }
    }
}

fn parse_key(members: &Map<String, Value>) -> Result<VerificationKey, KeyFault> {
    if members.get("use").is_some_and(|usage| usage != "sig") {
        return Err(KeyFault::OtherUse);
    }
    if let Some(operations) = members.get("key_ops")
        && !operations.as_array().is_some_and(|all| all.iter().any(|one| one == "verify"))
    {
        return Err(KeyFault::OtherOperations);
    }
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let kind = match (text("kty").ok_or(KeyFault::Malformed)?, text("crv")) {
        ("RSA", _) => KeyKind::Rsa,
        ("EC", Some("P-256")) => KeyKind::P256,
        ("EC", Some("P-384")) => KeyKind::P384,
        ("OKP", Some("Ed25519")) => KeyKind::Ed25519,
        ("oct", _) => return Err(KeyFault::Secret),
        _ => return Err(KeyFault::UnknownKind),
    };
    let is_own = |one: &SignatureAlgorithm| match members.get("alg") {
        None => true,
        // RFC 9864 gives EdDSA with this curve a name of its own.
        Some(Value::String(name)) => {
            SignatureAlgorithm::of_name(name) == Some(*one)
                || kind == KeyKind::Ed25519 && name == "Ed25519"
        }
        Some(_) => false,
    };
    let of_kind = SignatureAlgorithm::all().filter(|one| one.kind() == kind);
    let algorithms: Vec<_> = of_kind.filter(is_own).collect();
    if algorithms.is_empty() {
        return Err(KeyFault::OtherAlgorithm);
    }
    let number = |name: &str| {
        let decoded = text(name).and_then(|text| Base64UrlUnpadded::decode_vec(text).ok());
        decoded.ok_or(KeyFault::Coordinates)
    };
    let key = match kind {
        KeyKind::Rsa => rsa_key(&number("n")?, &number("e")?)?,
        KeyKind::Ed25519 => {
            let x = number("x")?;
            if x.len() != 32 {
                return Err(KeyFault::Coordinates);
            }
            DecodingKey::from_ed_der(&x)
        }
        _ => point_key(kind, &number("x")?, &number("y")?)?,
    };
    Ok(VerificationKey { name: text("kid").map(str::to_owned), algorithms, key })
}

fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Result<DecodingKey, KeyFault> {
    let without_zeros = |number: &[u8]| {
        let start = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
        number[start..].to_vec()
    };
    let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) {
        return Err(KeyFault::RsaSize);
    }
    // RFC 8725 section 3.4; an exponent of 1 makes every signature valid.
    let is_sound = match &*exponent {
        [] => false,
        [only] => *only >= 3 && only % 2 == 1,
        [.., last] => exponent.len() <= 8 && last % 2 == 1,
    };
    match is_sound {
        true => Ok(DecodingKey::from_rsa_raw_components(&modulus, &exponent)),
        false => Err(KeyFault::Coordinates),
    }
}

fn point_key(kind: KeyKind, x: &[u8], y: &[u8]) -> Result<DecodingKey, KeyFault> {
    let bytes = if kind == KeyKind::P256 { 32 } else { 48 };
    if x.len() != bytes || y.len() != bytes {
        return Err(KeyFault::Coordinates);
    }
    // The uncompressed form of a point (SEC 1 section 2.3.3).
    Ok(DecodingKey::from_ec_der(&[&[4], x, y].concat()))
}
