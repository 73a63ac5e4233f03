//! Sources of keys: a file, a secret in a file, or a URL. Each has a cache of the tokens that its
//! keys have verified.

use std::io;
use std::path::Path;
use std::sync::Arc;

use lighty_io::file::followed::Followed;

use crate::key_set::{KEY_SET_BYTES_MAX, KeySet, SECRET_BYTES_MAX};
use crate::remote_keys::{RemoteKeys, RemoteKeysError};
use crate::token::{TokenError, UnverifiedToken, VerifiedToken};
use crate::token_policy::TokenPolicy;
use crate::verified_tokens::VerifiedTokens;

/// A source of keys.
pub struct KeySource {
    origin: KeyOrigin,
    verified: VerifiedTokens,
}

enum KeyOrigin {
    File(Arc<Followed<KeySet>>),
    Remote(Arc<RemoteKeys>),
}

/// Time at which a token is verified, by the clocks of the caller.
#[derive(Clone, Copy, Debug)]
pub struct TokenTime {
    /// Seconds since 1970.
    pub unix_s: i64,
    /// Monotonic milliseconds.
    pub mono_ms: u64,
}

impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeySource").field(&self.name()).finish()
    }
}

impl KeySource {
    /// A file with a JSON Web Key Set. It is not read yet.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        let parse = |bytes: Vec<u8>| KeySet::parse(&bytes).map_err(io::Error::other);
        Self::of(KeyOrigin::File(Followed::at(path, KEY_SET_BYTES_MAX as u64, parse)))
    }

    /// A file with a secret. It is not read yet.
    #[must_use]
    pub fn secret_file(path: &Path) -> Self {
        // One byte more than a secret may have, so that the message is about secrets.
        let bytes_max = SECRET_BYTES_MAX as u64 + 3;
        let parse = |bytes: Vec<u8>| KeySet::of_secret(&bytes).map_err(io::Error::other);
        Self::of(KeyOrigin::File(Followed::at(path, bytes_max, parse)))
    }

    /// A URL of a JSON Web Key Set, whose server the authorities in a file vouch for, or the
    /// system's. It is fetched once [`crate::remote_keys::fetch_all`] is called.
    ///
    /// # Errors
    /// The URL is not one of `https`, or of `http` on this machine.
    pub fn url(url: &str, ca_file: Option<&Path>) -> Result<Self, RemoteKeysError> {
        Ok(Self::of(KeyOrigin::Remote(RemoteKeys::at(url, ca_file)?)))
    }

    fn of(origin: KeyOrigin) -> Self {
        Self { origin, verified: VerifiedTokens::default() }
    }

    /// The path or URL.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.origin {
            KeyOrigin::File(file) => file.path().display().to_string(),
            KeyOrigin::Remote(remote) => remote.url().to_owned(),
        }
    }

    /// Reads the file if it has changed. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or has no usable keys. Never for a URL.
    pub fn read(&self) -> io::Result<()> {
        match &self.origin {
            KeyOrigin::File(file) => file.read(),
            KeyOrigin::Remote(_) => Ok(()),
        }
    }

    /// The current keys; `None` if there are none yet, or none any more.
    #[must_use]
    pub fn keys(&self) -> Option<Arc<KeySet>> {
        match &self.origin {
            KeyOrigin::File(file) => file.contents(),
            KeyOrigin::Remote(remote) => remote.keys(),
        }
    }

    /// The token, if it was verified before and still meets the policy. `None` if it has to be
    /// verified.
    ///
    /// # Errors
    /// It does not meet the policy.
    pub fn find(
        &self,
        token: &[u8],
        policy: &TokenPolicy,
        now: TokenTime,
    ) -> Result<Option<Arc<VerifiedToken>>, TokenError> {
        let found = self.keys().and_then(|keys| self.verified.find(token, &keys));
        if let Some(found) = &found {
            policy.check(found, now.unix_s)?;
        }
        Ok(found)
    }

    /// Verifies a token. If its key is unknown, the keys are fetched again and the caller waits up
    /// to [`crate::remote_keys::WAIT`].
    ///
    /// # Errors
    /// It is refused.
    pub async fn verify(
        &self,
        token: &[u8],
        policy: &TokenPolicy,
        now: TokenTime,
    ) -> Result<Arc<VerifiedToken>, TokenError> {
        policy.check_size(token)?;
        if let Some(found) = self.find(token, policy, now)? {
            return Ok(found);
        }
        let unverified = UnverifiedToken::parse(token)?;
        if !policy.permits(unverified.algorithm()) {
            return Err(TokenError::Algorithm);
        }
        let verified = match self.verify_now(token, &unverified, now) {
            Err(TokenError::UnknownKey | TokenError::NoKeys) if self.renew(now.mono_ms).await => {
                self.verify_now(token, &unverified, now)
            }
            verified => verified,
        }?;
        policy.check(&verified, now.unix_s)?;
        Ok(verified)
    }

    /// Waits for keys that were fetched later. Returns false if they are not fetched now.
    async fn renew(&self, now_ms: u64) -> bool {
        match &self.origin {
            KeyOrigin::File(_) => false,
            KeyOrigin::Remote(remote) => remote.renew(now_ms).await,
        }
    }

    fn verify_now(
        &self,
        text: &[u8],
        unverified: &UnverifiedToken<'_>,
        now: TokenTime,
    ) -> Result<Arc<VerifiedToken>, TokenError> {
        let keys = self.keys().ok_or(TokenError::NoKeys)?;
        let token = Arc::new(unverified.verify(&keys)?);
        self.verified.keep(text, &token, &keys, now.unix_s);
        Ok(token)
    }
}
