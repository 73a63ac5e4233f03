//! Sessions of signed-in users, and sign-ins that have begun. Both are sealed in cookies.

use aws_lc_rs::digest::{SHA256, digest};
use base64ct::{Base64UrlUnpadded, Encoding};
use lighty_http::uri::encode_component;
use lighty_io::entropy::random_bytes;
use serde::{Deserialize, Serialize};

use crate::claims::Claims;
use crate::provider_spec::{DiscoveredUrls, ProviderSpec};

/// Time within which a sign-in must be completed, in seconds.
pub const SIGN_IN_S: i64 = 600;

/// A sign-in that has begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

impl Session {
    /// A session with a new name.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn begin() -> std::io::Result<Self> {
        Ok(Self { id: random_text()?, ..Self::default() })
    }

    /// The names under which it may be ended: its own, the provider's, and the user's.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let claim = |name: &str| self.claims.text(name).map(|text| format!("{name}:{text}"));
        [Some(format!("id:{}", self.id)), claim("sid"), claim("sub")]
            .into_iter()
            .flatten()
            .collect()
    }

    /// True if it has a refresh token that is to be used now.
    #[must_use]
    pub fn is_due(&self, now_s: i64) -> bool {
        self.refresh_token.is_some() && self.refresh_s.is_some_and(|at_s| at_s <= now_s)
    }
}
