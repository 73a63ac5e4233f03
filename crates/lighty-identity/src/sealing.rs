//! Sealed texts for cookies: AES-256-GCM under keys of a file or of the process (decision 0045).
//!
//! The context (purpose, host, provider) is authenticated with the text, so a cookie is worthless
//! in another place.

use lighty_io::file::followed::FollowedContents;
use std::fmt;
use std::io;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use base64ct::{Base64UrlUnpadded, Encoding};
use lighty_io::entropy::random_bytes;

use crate::opened_sessions::OpenedSessions;
use crate::session::Session;

/// Maximum size of a file of keys in bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;

/// Maximum number of keys.
pub const SEALING_KEYS_MAX: usize = 8;

/// Minimum size of a key in characters: 128 bits in hexadecimal digits.
pub const KEY_CHARS_MIN: usize = 32;

/// Keys: the first one seals, and each of them opens.
pub struct SealingKeys {
    keys: Vec<RandomizedNonceKey>,
    opened: OpenedSessions,
}

impl FollowedContents for SealingKeys {
    const KIND: &'static str = "keys";

    fn entries(&self) -> u64 {
        self.keys.len() as u64
    }
}

impl fmt::Debug for SealingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKeys({})", self.keys.len())
    }
}

/// A file of keys is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealingKeysError {
    /// No line.
    #[error("it has no key")]
    Empty,
    /// Too many lines.
    #[error("it has more than {SEALING_KEYS_MAX} keys")]
    TooMany,
    /// A line that could be guessed.
    #[error("line {0}: a key has at least {KEY_CHARS_MIN} characters")]
    Short(usize),
    /// The library fails.
    #[error("a key cannot be used")]
    Unusable,
}

impl From<Unspecified> for SealingKeysError {
    fn from(_: Unspecified) -> Self {
        Self::Unusable
    }
}

impl SealingKeys {
    /// Reads the lines of a file: a secret text each. Empty lines and lines that begin with `#` are
    /// skipped.
    ///
    /// # Errors
    /// There is no key, or one that is too short.
    pub fn parse(text: &[u8]) -> Result<Self, SealingKeysError> {
        let mut keys = Vec::new();
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if line.len() < KEY_CHARS_MIN {
                return Err(SealingKeysError::Short(at + 1));
            }
            if keys.len() == SEALING_KEYS_MAX {
                return Err(SealingKeysError::TooMany);
            }
            keys.push(derive(line)?);
        }
        if keys.is_empty() { Err(SealingKeysError::Empty) } else { Ok(Self::of(keys)) }
    }

    /// A new key, for cookies of this process alone.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn random() -> io::Result<Self> {
        let secret: [u8; 32] = random_bytes()?;
        derive(&secret).map(|key| Self::of(vec![key])).map_err(io::Error::other)
    }

    fn of(keys: Vec<RandomizedNonceKey>) -> Self {
        Self { keys, opened: OpenedSessions::default() }
    }

    /// Seals a text for a context.
    ///
    /// # Errors
    /// The library fails.
    pub fn seal(&self, text: &[u8], context: &[&[u8]]) -> Result<String, SealingKeysError> {
        let mut sealed = text.to_vec();
        let nonce = self.keys[0].seal_in_place_append_tag(aad(context), &mut sealed)?;
        Ok(Base64UrlUnpadded::encode_string(&[nonce.as_ref(), &sealed[..]].concat()))
    }

    /// Opens a sealed text. `None` if it is changed, of another context, or of unknown keys.
    #[must_use]
    pub fn open(&self, sealed: &[u8], context: &[&[u8]]) -> Option<Vec<u8>> {
        let sealed = Base64UrlUnpadded::decode_vec(std::str::from_utf8(sealed).ok()?).ok()?;
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        self.keys.iter().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut text = sealed.to_vec();
            let length = key.open_in_place(nonce, aad(context), &mut text).ok()?.len();
            text.truncate(length);
            Some(text)
        })
    }

    /// Opens a sealed session, or returns it if it was opened before.
    #[must_use]
    pub fn open_session(&self, sealed: &[u8], context: &[&[u8]]) -> Option<Arc<Session>> {
        self.opened.find(sealed, &joined(context), || {
            serde_json::from_slice(&self.open(sealed, context)?).ok()
        })
    }
}

/// The boundaries between the parts are authenticated as well.
fn aad(context: &[&[u8]]) -> Aad<Vec<u8>> {
    Aad::from(joined(context))
}

fn joined(context: &[&[u8]]) -> Vec<u8> {
    let mut joined = Vec::new();
    for part in context {
        joined.extend_from_slice(&(part.len() as u64).to_be_bytes());
        joined.extend_from_slice(part);
    }
    joined
}

fn derive(secret: &[u8]) -> Result<RandomizedNonceKey, Unspecified> {
    let extracted = Salt::new(HKDF_SHA256, b"lighty sign-in").extract(secret);
    let expanded = extracted.expand(&[b"AES-256-GCM of cookies"], HKDF_SHA256)?;
    let mut key = [0; 32];
    expanded.fill(&mut key)?;
    RandomizedNonceKey::new(&AES_256_GCM, &key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "0123456789abcdef0123456789abcdef";
    const NEW: &str = "fedcba9876543210fedcba9876543210";

    fn keys(lines: &[&str]) -> SealingKeys {
        SealingKeys::parse(lines.join("\n").as_bytes()).expect("keys")
    }

    #[test]
    fn sealed_text_opens_in_its_context_alone() {
        let keys = keys(&[OLD]);
        let context: [&[u8]; 3] = [b"session", b"a.example", b"corp"];
        let sealed = keys.seal(b"kim", &context).expect("sealed");
        assert_eq!(keys.open(sealed.as_bytes(), &context).as_deref(), Some(&b"kim"[..]));
        assert_ne!(sealed, keys.seal(b"kim", &context).expect("sealed"), "a nonce of its own");
        for other in [
            [&b"state"[..], b"a.example", b"corp"],
            [b"session", b"b.example", b"corp"],
            [b"session", b"a.example", b"other"],
            [b"session", b"a.examplec", b"orp"],
        ] {
            assert_eq!(keys.open(sealed.as_bytes(), &other), None);
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(keys.open(&changed, &context), None, "{at}");
        }
        for cut in [0, 5, 16, 20, sealed.len() - 1] {
            assert_eq!(keys.open(&sealed.as_bytes()[..cut], &context), None);
        }
    }

    #[test]
    fn session_opens_in_its_context_alone_however_often_it_was_opened() {
        let (keys, others) = (keys(&[OLD]), keys(&[NEW]));
        let context: [&[u8]; 2] = [b"session", b"a.example"];
        let text = serde_json::to_vec(&Session { user: "kim".into(), ..Session::default() });
        let sealed = keys.seal(&text.expect("JSON"), &context).expect("sealed");
        let open = |keys: &SealingKeys, sealed: &str, context: &[&[u8]]| {
            keys.open_session(sealed.as_bytes(), context).map(|session| session.user.clone())
        };
        for _ in 0..2 {
            assert_eq!(open(&keys, &sealed, &context).as_deref(), Some("kim"));
            for other in [&[&b"session"[..], b"b.example"], &[&b"sessiona"[..], b".example"]] {
                assert_eq!(open(&keys, &sealed, other), None);
            }
            assert_eq!(open(&others, &sealed, &context), None);
            let changed =
                format!("{}{}", if sealed.starts_with('A') { 'B' } else { 'A' }, &sealed[1..]);
            assert_eq!(open(&keys, &changed, &context), None);
        }
        let no_session = keys.seal(b"kim", &context).expect("sealed");
        assert_eq!(open(&keys, &no_session, &context), None);
    }

    #[test]
    #[ignore = "measures"]
    fn cost_of_a_session() {
        let (keys, context) = (keys(&[OLD]), [&b"session"[..], b"a.example", b"corp"]);
        let claims = br#"{"sub":"kim","email":"kim@example.org","groups":["staff","ops","dev"],
            "name":"Kim Example","preferred_username":"kim","email_verified":true}"#;
        let session = Session {
            user: "kim".into(),
            claims: crate::claims::Claims::parse(claims).expect("claims"),
            id_token: Some("x".repeat(600)),
            ..Session::begin().expect("random bytes")
        };
        let text = serde_json::to_vec(&session).expect("JSON");
        let sealed = keys.seal(&text, &context).expect("sealed");
        let took_us = |open: &dyn Fn() -> Option<Arc<Session>>| {
            let (rounds, began) = (20_000, std::time::Instant::now());
            (0..rounds).for_each(|_| assert!(open().is_some()));
            began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
        };
        let fresh = || serde_json::from_slice(&keys.open(sealed.as_bytes(), &context)?).ok();
        println!(
            "{} bytes: opened {:.2} us, known {:.2} us",
            sealed.len(),
            took_us(&|| fresh().map(Arc::new)),
            took_us(&|| keys.open_session(sealed.as_bytes(), &context))
        );
    }

    #[test]
    fn keys_are_rotated() {
        let (before, during, after) = (keys(&[OLD]), keys(&["# new", NEW, "", OLD]), keys(&[NEW]));
        let sealed = before.seal(b"kim", &[]).expect("sealed");
        assert!(during.open(sealed.as_bytes(), &[]).is_some());
        assert!(after.open(sealed.as_bytes(), &[]).is_none());
        let resealed = during.seal(b"kim", &[]).expect("sealed");
        assert!(after.open(resealed.as_bytes(), &[]).is_some());
        let own = SealingKeys::random().expect("random bytes");
        assert!(own.open(resealed.as_bytes(), &[]).is_none());
    }

    #[test]
    fn weak_files_are_refused() {
        let error = |text: &str| SealingKeys::parse(text.as_bytes()).expect_err(text);
        assert_eq!(error("\n# none\n"), SealingKeysError::Empty);
        assert_eq!(error(&format!("{OLD}\n{}", &NEW[1..])), SealingKeysError::Short(2));
        assert_eq!(error(&format!("{OLD}\n").repeat(9)), SealingKeysError::TooMany);
        assert!(SealingKeys::parse(format!("{OLD}\n").repeat(8).as_bytes()).is_ok());
    }
}
