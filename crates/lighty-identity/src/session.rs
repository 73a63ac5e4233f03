//! Sessions of signed-in users, and sign-ins that have begun. Both are sealed in cookies.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use base64ct::{Base64UrlUnpadded, Encoding};
use lighty_http::uri::encode_component;
use lighty_io::entropy::random_bytes;
use serde::{Deserialize, Serialize};

use crate::claims::Claims;
use crate::provider_spec::{DiscoveredUrls, ProviderSpec};
use crate::revocations::SESSION_PREFIX;

/// Time within which a sign-in must be completed, in seconds.
pub const SIGN_IN_S: i64 = 600;

/// The longest time of a session, in seconds.
pub const SESSION_S_MAX: i64 = 30 * 24 * 3600;

/// A sign-in that has begun.
#[derive(Clone, Serialize, Deserialize)]
pub struct PendingSignIn {
    /// Binds the provider's response to this browser.
    pub state: String,
    /// Binds the token to this sign-in.
    pub nonce: String,
    /// Proves that the code was requested here (RFC 7636).
    pub verifier: String,
    /// Path and query to return to.
    pub target: String,
    /// The second in which it began.
    pub began_s: i64,
}

fn random_text() -> std::io::Result<String> {
    let bytes: [u8; 32] = random_bytes()?;
    Ok(Base64UrlUnpadded::encode_string(&bytes))
}

/// Omits the secrets.
impl fmt::Debug for PendingSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSignIn").field("target", &self.target).finish_non_exhaustive()
    }
}

impl PendingSignIn {
    /// Begins a sign-in that returns to a local target.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn begin(target: &str, now_s: i64) -> std::io::Result<Self> {
        Ok(Self {
            state: random_text()?,
            nonce: random_text()?,
            verifier: random_text()?,
            target: target.to_owned(),
            began_s: now_s,
        })
    }

    /// True if it may still be completed.
    #[must_use]
    pub fn is_current(&self, now_s: i64) -> bool {
        (self.began_s..self.began_s + SIGN_IN_S).contains(&now_s)
    }

    /// The URL of the provider's page (RFC 6749 section 4.1.1, RFC 7636 section 4.3).
    #[must_use]
    pub fn url(&self, urls: &DiscoveredUrls, spec: &ProviderSpec, redirect_uri: &str) -> String {
        let challenge = digest(&SHA256, self.verifier.as_bytes());
        let challenge = Base64UrlUnpadded::encode_string(challenge.as_ref());
        let mut url = urls.authorization.clone().into_bytes();
        let mut separator = if urls.authorization.contains('?') { b'&' } else { b'?' };
        for (name, value) in [
            ("response_type", "code"),
            ("client_id", &*spec.client_id),
            ("redirect_uri", redirect_uri),
            ("scope", &*spec.scopes),
            ("state", &*self.state),
            ("nonce", &*self.nonce),
            ("code_challenge", &*challenge),
            ("code_challenge_method", "S256"),
        ] {
            url.push(separator);
            url.extend_from_slice(name.as_bytes());
            url.push(b'=');
            encode_component(value.as_bytes(), &mut url);
            separator = b'&';
        }
        String::from_utf8(url).unwrap_or_default()
    }
}

/// The session of a signed-in user.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its own name.
    pub id: String,
    /// The user's name.
    pub user: String,
    /// Claims of the provider about the user.
    pub claims: Claims,
    /// The second in which it began.
    pub began_s: i64,
    /// The second in which it ends in any case.
    pub ends_s: i64,
    /// The second from which it is refreshed.
    pub refresh_s: Option<i64>,
    /// The token for that.
    pub refresh_token: Option<String>,
    /// Number of refreshes.
    pub refreshes: u32,
    /// The provider's token, for the end of the session there.
    pub id_token: Option<String>,
}

/// Omits tokens and claims.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Session {
    /// A session with a new name.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn begin() -> std::io::Result<Self> {
        Ok(Self { id: random_text()?, ..Self::default() })
    }

    /// The name of this session alone.
    #[must_use]
    pub fn own_name(&self) -> String {
        format!("{SESSION_PREFIX}{}", self.id)
    }

    /// The names under which it may be ended: its own, the provider's, and the user's.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let claim = |name: &str| self.claims.text(name).map(|text| format!("{name}:{text}"));
        [Some(self.own_name()), claim("sid"), claim("sub")].into_iter().flatten().collect()
    }

    /// True if it has a refresh token that is to be used now.
    #[must_use]
    pub fn is_due(&self, now_s: i64) -> bool {
        self.refresh_token.is_some() && self.refresh_s.is_some_and(|at_s| at_s <= now_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let session = Session {
            user: "kim".to_owned(),
            refresh_token: Some("hush".to_owned()),
            id_token: Some("hush".to_owned()),
            ..Session::begin().expect("random bytes")
        };
        let shown = format!("{session:?}");
        assert!(shown.contains("kim") && !shown.contains("hush") && !shown.contains(&session.id));
        let pending = PendingSignIn::begin("/a", 0).expect("random bytes");
        let shown = format!("{pending:?}");
        assert!(!shown.contains(&pending.verifier) && !shown.contains(&pending.state), "{shown}");
    }

    #[test]
    fn sign_in_has_its_time() {
        let pending = PendingSignIn::begin("/a", 1000).expect("random bytes");
        for (now_s, is_current) in [(999, false), (1000, true), (1599, true), (1600, false)] {
            assert_eq!(pending.is_current(now_s), is_current, "{now_s}");
        }
        let other = PendingSignIn::begin("/a", 1000).expect("random bytes");
        assert!(pending.state != other.state && pending.nonce != other.nonce);
    }

    #[test]
    fn session_is_due_with_a_refresh_token() {
        let session = Session { refresh_s: Some(10), ..Session::default() };
        assert!(!session.is_due(10));
        let session = Session { refresh_token: Some("r".to_owned()), ..session };
        assert!(session.is_due(10) && !session.is_due(9));
    }
}
