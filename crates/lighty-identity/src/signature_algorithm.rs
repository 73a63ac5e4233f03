//! Algorithms of signatures (RFC 7518 section 3, RFC 8037). `none` is not among them.

use jsonwebtoken::Algorithm;

/// An algorithm by which tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureAlgorithm(&'static AlgorithmRow);

/// The row of an algorithm.
#[derive(Debug, PartialEq, Eq)]
struct AlgorithmRow {
    name: &'static str,
    library: Algorithm,
    kind: KeyKind,
}

/// The kind of key that an algorithm needs: type and curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Rsa,
    P256,
    P384,
    Ed25519,
    /// A secret of at least so many bytes (RFC 7518 section 3.2).
    Secret(usize),
}

static TABLE: [AlgorithmRow; 12] = [
    row("RS256", Algorithm::RS256, KeyKind::Rsa),
    row("RS384", Algorithm::RS384, KeyKind::Rsa),
    row("RS512", Algorithm::RS512, KeyKind::Rsa),
    row("PS256", Algorithm::PS256, KeyKind::Rsa),
    row("PS384", Algorithm::PS384, KeyKind::Rsa),
    row("PS512", Algorithm::PS512, KeyKind::Rsa),
    row("ES256", Algorithm::ES256, KeyKind::P256),
    row("ES384", Algorithm::ES384, KeyKind::P384),
    row("EdDSA", Algorithm::EdDSA, KeyKind::Ed25519),
    row("HS256", Algorithm::HS256, KeyKind::Secret(32)),
    row("HS384", Algorithm::HS384, KeyKind::Secret(48)),
    row("HS512", Algorithm::HS512, KeyKind::Secret(64)),
];

const fn row(name: &'static str, library: Algorithm, kind: KeyKind) -> AlgorithmRow {
    AlgorithmRow { name, library, kind }
}

impl SignatureAlgorithm {
    /// The algorithm of this name, as written in tokens and keys.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.name == name).map(Self)
    }

    /// Every algorithm.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(Self)
    }

    /// Its name in tokens and keys.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// True if signer and verifier share a secret.
    #[must_use]
    pub fn is_symmetric(self) -> bool {
        matches!(self.0.kind, KeyKind::Secret(_))
    }

    pub(crate) fn kind(self) -> KeyKind {
        self.0.kind
    }

    pub(crate) fn library(self) -> Algorithm {
        self.0.library
    }
}
