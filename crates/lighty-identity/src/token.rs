//! Signed tokens: JSON Web Tokens (RFC 7519) in the compact form of RFC 7515.
//!
//! The header only selects among keys that the operator has configured. `jku`, `jwk`, `x5u` and
//! `x5c` are ignored.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use jsonwebtoken::crypto;

use crate::claims::Claims;
use crate::key_set::{Fitting, KeySet};
use crate::signature_algorithm::SignatureAlgorithm;
use crate::strict_json;

/// Maximum size in bytes of a token in a request.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Maximum size in bytes of a token that its issuer has sent to the server: users of a company may
/// have hundreds of groups.
pub const ISSUED_TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of a token's header in bytes.
pub const HEADER_BYTES_MAX: usize = 1024;

/// The reason why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Longer than the limit.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// Not three parts of base64url.
    #[error("not three parts of base64url with dots between them")]
    Malformed,
    /// The header is too long, or no JSON object with `alg`.
    #[error("a malformed header, or one of more than {HEADER_BYTES_MAX} bytes")]
    Header,
    /// The header demands an extension.
    #[error("its header has \"crit\"")]
    Critical,
    /// `none`, an algorithm that is not known, or one that is not permitted.
    #[error("an algorithm that is not permitted")]
    Algorithm,
    /// No key has the name of the header, or fits its algorithm.
    #[error("signed with an unknown key")]
    UnknownKey,
    /// The signature is wrong.
    #[error("a wrong signature")]
    Signature,
    /// The claims are no JSON object.
    #[error("malformed claims")]
    Claims,
    /// A date is missing or no number.
    #[error("\"{0}\" is not a number of seconds")]
    Date(&'static str),
    /// `exp` has passed.
    #[error("it has expired")]
    Expired,
    /// `nbf` or `iat` is ahead.
    #[error("\"{0}\" is in the future")]
    Early(&'static str),
    /// Another issuer.
    #[error("another issuer")]
    Issuer,
    /// Another audience.
    #[error("another audience")]
    Audience,
    /// Another type.
    #[error("another type")]
    Type,
    /// There are no keys.
    #[error("there are no keys")]
    NoKeys,
}

/// A token with a right signature. Its dates and its issuer are not checked yet.
#[derive(Debug)]
pub struct VerifiedToken {
    pub(crate) algorithm: SignatureAlgorithm,
    pub(crate) typ: Option<String>,
    pub(crate) claims: Claims,
}

impl VerifiedToken {
    /// Its claims.
    #[must_use]
    pub fn claims(&self) -> &Claims {
        &self.claims
    }
}

/// A token as received.
pub struct UnverifiedToken<'t> {
    algorithm: SignatureAlgorithm,
    key_name: Option<String>,
    typ: Option<String>,
    /// Header and claims, which are signed.
    message: &'t str,
    claims: &'t str,
    signature: &'t str,
}

/// Omits the token: it is good somewhere.
impl fmt::Debug for UnverifiedToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = self.algorithm.name();
        f.debug_struct("UnverifiedToken").field("algorithm", &algorithm).finish_non_exhaustive()
    }
}

impl<'t> UnverifiedToken<'t> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// It is too long, malformed, or needs an unknown algorithm or extension.
    pub fn parse(token: &'t [u8]) -> Result<Self, TokenError> {
        if token.len() > ISSUED_TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong(ISSUED_TOKEN_BYTES_MAX));
        }
        let token = std::str::from_utf8(token).map_err(|_| TokenError::Malformed)?;
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Malformed);
        };
        let json = Base64UrlUnpadded::decode_vec(header).map_err(|_| TokenError::Malformed)?;
        if json.len() > HEADER_BYTES_MAX {
            return Err(TokenError::Header);
        }
        let members = strict_json::parse_object(&json).ok_or(TokenError::Header)?;
        if members.contains_key("crit") {
            return Err(TokenError::Critical);
        }
        let text = |name: &str| match members.get(name) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or(TokenError::Header),
        };
        let name = text("alg")?.ok_or(TokenError::Header)?;
        Ok(Self {
            algorithm: SignatureAlgorithm::of_name(name).ok_or(TokenError::Algorithm)?,
            key_name: text("kid")?.map(str::to_owned),
            typ: text("typ")?.map(str::to_owned),
            message: &token[..header.len() + 1 + claims.len()],
            claims,
            signature,
        })
    }

    /// The algorithm that the header names.
    #[must_use]
    pub fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }

    /// Verifies the signature.
    ///
    /// # Errors
    /// No key fits, the signature is wrong, or the claims are malformed.
    pub fn verify(&self, keys: &KeySet) -> Result<VerifiedToken, TokenError> {
        let keys = match keys.fitting(self.algorithm, self.key_name.as_deref()) {
            Fitting::Keys(keys) => keys,
            Fitting::OtherAlgorithm => return Err(TokenError::Algorithm),
            Fitting::Unknown => return Err(TokenError::UnknownKey),
        };
        let is_signed = |key: &&jsonwebtoken::DecodingKey| {
            let (message, algorithm) = (self.message.as_bytes(), self.algorithm.library());
            crypto::verify(self.signature, message, key, algorithm).unwrap_or(false)
        };
        if !keys.iter().any(is_signed) {
            return Err(TokenError::Signature);
        }
        let json = Base64UrlUnpadded::decode_vec(self.claims).map_err(|_| TokenError::Malformed)?;
        let claims = Claims::parse(&json).ok_or(TokenError::Claims)?;
        Ok(VerifiedToken { algorithm: self.algorithm, typ: self.typ.clone(), claims })
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
