//! Proofs of control over a name: put where the authority looks for them, and taken away again.

use std::path::PathBuf;

use instant_acme::{ChallengeType, KeyAuthorization};
use lighty_io::tls::challenge_certificate;

use crate::dns_hook::{DnsHook, Leftovers, Record, SetRecord};
use crate::error::OrderError;
use crate::store::{self, Store};
use crate::wanted::ChallengeKind;

/// Longest token that becomes a file's name: authorities use 43 bytes.
const TOKEN_BYTES_MAX: usize = 128;

impl ChallengeKind {
    pub(crate) fn acme(self) -> ChallengeType {
        match self {
            Self::Http01 => ChallengeType::Http01,
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
            Self::Dns01 => ChallengeType::Dns01,
        }
    }
}

/// A proof that was put somewhere.
pub(crate) enum Proof {
    File(ProofFile),
    Record(SetRecord),
}

/// A proof's file, which goes with it.
pub(crate) struct ProofFile(PathBuf);

impl Drop for ProofFile {
    fn drop(&mut self) {
        store::remove(&self.0);
    }
}

impl Proof {
    /// Puts the proof for a host where it is looked for.
    pub(crate) async fn present(
        kind: ChallengeKind,
        (hook, leftovers): (Option<&DnsHook>, &Leftovers),
        store: &Store,
        (host, token): (&str, &str),
        key: &KeyAuthorization,
    ) -> Result<Self, OrderError> {
        let put = |path: PathBuf, bytes: &[u8]| match store::write(&path, bytes) {
            Ok(()) => Ok(Self::File(ProofFile(path))),
            Err(error) => Err(OrderError::Store(error)),
        };
        match kind {
            ChallengeKind::Http01 => {
                // It comes from elsewhere and becomes part of a path.
                let is_sound =
                    token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
                if !is_sound || !(1..=TOKEN_BYTES_MAX).contains(&token.len()) {
                    return Err(OrderError::Malformed("the authority's token is malformed"));
                }
                put(store.http_challenges().join(token), key.as_str().as_bytes())
            }
            ChallengeKind::TlsAlpn01 => {
                let pem = challenge_certificate(host, key.digest().as_ref());
                let pem = pem.map_err(OrderError::Tls)?;
                put(store.handshake_challenge(host), pem.as_bytes())
            }
            ChallengeKind::Dns01 => {
                let missing = OrderError::Malformed("dns-01 needs acme.dns-hook");
                let hook = hook.ok_or(missing)?.clone();
                let (name, value) = (format!("_acme-challenge.{host}"), key.dns_value());
                let record = Record { hook, name, value };
                Ok(Self::Record(SetRecord::set(record, leftovers).await?))
            }
        }
    }

    /// Takes it away. What goes wrong is told.
    pub(crate) async fn remove(self) -> Result<(), OrderError> {
        match self {
            Self::File(file) => {
                drop(file);
                Ok(())
            }
            Self::Record(record) => record.clean_up().await,
        }
    }
}
