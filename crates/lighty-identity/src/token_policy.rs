//! Conditions that a token with a right signature must meet (RFC 8725).

use crate::signature_algorithm::SignatureAlgorithm;
use crate::token::{TOKEN_BYTES_MAX, TokenError, VerifiedToken};

/// Default difference between clocks, in seconds.
pub const LEEWAY_S: u32 = 60;

/// The conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPolicy {
    /// Permitted algorithms; empty: all that a key set verifies.
    pub algorithms: Vec<SignatureAlgorithm>,
    /// Permitted issuers; empty: any.
    pub issuers: Vec<String>,
    /// Audiences, of which a token must name one; empty: any.
    pub audiences: Vec<String>,
    /// Permitted types, without `application/`; empty: any.
    pub types: Vec<String>,
    /// Difference between the clocks of issuer and server, in seconds.
    pub leeway_s: u32,
    /// Maximum size of the token in bytes.
    pub bytes_max: usize,
}

impl Default for TokenPolicy {
    fn default() -> Self {
        Self {
            algorithms: Vec::new(),
            issuers: Vec::new(),
            audiences: Vec::new(),
            types: Vec::new(),
            leeway_s: LEEWAY_S,
            bytes_max: TOKEN_BYTES_MAX,
        }
    }
}

impl TokenPolicy {
    /// True if tokens may be signed in this way.
    #[must_use]
    pub fn permits(&self, algorithm: SignatureAlgorithm) -> bool {
        self.algorithms.is_empty() || self.algorithms.contains(&algorithm)
    }

    /// Checks the size of a token, before anything else.
    ///
    /// # Errors
    /// It is too long.
    pub fn check_size(&self, token: &[u8]) -> Result<(), TokenError> {
        match token.len() > self.bytes_max {
            true => Err(TokenError::TooLong(self.bytes_max)),
            false => Ok(()),
        }
    }

    /// Checks a token.
    ///
    /// # Errors
    /// The first condition that it does not meet.
    pub fn check(&self, token: &VerifiedToken, now_s: i64) -> Result<(), TokenError> {
        if !self.permits(token.algorithm) {
            return Err(TokenError::Algorithm);
        }
        if !self.types.is_empty() {
            let given = token.typ.as_deref().map(bare_type).unwrap_or_default();
            if !self.types.iter().any(|known| bare_type(known).eq_ignore_ascii_case(given)) {
                return Err(TokenError::Type);
            }
        }
        let claims = token.claims();
        let is_one_of = |known: &[String], given: &str| known.iter().any(|known| known == given);
        if !self.issuers.is_empty()
            && !claims.text("iss").is_some_and(|given| is_one_of(&self.issuers, given))
        {
            return Err(TokenError::Issuer);
        }
        if !self.audiences.is_empty()
            && !claims.texts("aud").any(|given| is_one_of(&self.audiences, given))
        {
            return Err(TokenError::Audience);
        }
        self.check_dates(token, now_s)
    }

    fn check_dates(&self, token: &VerifiedToken, now_s: i64) -> Result<(), TokenError> {
        let date = |name| token.claims.date_s(name).map_err(|_| TokenError::Date(name));
        let leeway_s = i64::from(self.leeway_s);
        for name in ["nbf", "iat"] {
            if date(name)?.is_some_and(|at_s| at_s > now_s + leeway_s) {
                return Err(TokenError::Early(name));
            }
        }
        let expires_s = date("exp")?.ok_or(TokenError::Date("exp"))?;
        if now_s >= expires_s + leeway_s { Err(TokenError::Expired) } else { Ok(()) }
    }
}

/// A type without its prefix (RFC 7515 section 4.1.9).
fn bare_type(typ: &str) -> &str {
    let prefix = "application/";
    match typ.get(..prefix.len()) {
        Some(start) if start.eq_ignore_ascii_case(prefix) => &typ[prefix.len()..],
        _ => typ,
    }
}
