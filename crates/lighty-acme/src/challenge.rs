//! Proofs of control over a name: published where the authority looks for them, and removed again.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use instant_acme::{ChallengeType, KeyAuthorization};
use lighty_io::tls::challenge_certificate;

use crate::dns_hook::{DnsHook, Leftovers, SetRecord, TxtRecord};
use crate::error::OrderError;
use crate::store::{self, Store};
use crate::wanted::{ChallengeKind, address};

/// Maximum length of a token used as a file name: authorities use 43 bytes.
const TOKEN_BYTES_MAX: usize = 128;

impl ChallengeKind {
    pub(crate) fn acme(self) -> ChallengeType {
        match self {
            Self::Http01 => ChallengeType::Http01,
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
            Self::Dns01 => ChallengeType::Dns01,
            Self::DnsPersist01 => ChallengeType::Unknown(self.word().to_owned()),
        }
    }
}

/// A published proof.
pub(crate) enum Proof {
    File(ProofFile),
    Record(SetRecord),
    /// The operator has published it for all orders.
    Standing,
}

/// A proof's file, removed on drop.
pub(crate) struct ProofFile(PathBuf);

impl Drop for ProofFile {
    fn drop(&mut self) {
        store::remove(&self.0);
    }
}

impl Proof {
    /// Publishes the proof for a host.
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
                // The token is untrusted and becomes part of a path.
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
                let requested = address(host).map_or_else(|| host.to_owned(), reverse_name);
                put(store.handshake_challenge(&requested), pem.as_bytes())
            }
            ChallengeKind::Dns01 => {
                let missing = OrderError::Malformed("dns-01 needs acme.dns-hook");
                let hook = hook.ok_or(missing)?.clone();
                let (name, value) = (format!("_acme-challenge.{host}"), key.dns_value());
                let record = TxtRecord { hook, name, value };
                Ok(Self::Record(SetRecord::set(record, leftovers).await?))
            }
            ChallengeKind::DnsPersist01 => Ok(Self::Standing),
        }
    }

    /// Removes the proof. Returns errors.
    pub(crate) async fn remove(self) -> Result<(), OrderError> {
        match self {
            Self::File(file) => {
                drop(file);
                Ok(())
            }
            Self::Record(record) => record.clean_up().await,
            Self::Standing => Ok(()),
        }
    }
}

/// The server name by which an authority asks for the proof of an address in a handshake (RFC 8738
/// section 6), because SNI cannot contain addresses.
fn reverse_name(address: IpAddr) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    match address {
        IpAddr::V4(address) => {
            for octet in address.octets().iter().rev() {
                let _ = write!(out, "{octet}.");
            }
            out + "in-addr.arpa"
        }
        IpAddr::V6(address) => {
            for octet in address.octets().iter().rev() {
                let _ = write!(out, "{:x}.{:x}.", octet & 15, octet >> 4);
            }
            out + "ip6.arpa"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_asked_for_backwards() {
        let of = |text: &str| reverse_name(text.parse().expect("an address"));
        assert_eq!(of("192.0.2.7"), "7.2.0.192.in-addr.arpa");
        // RFC 3596 section 2.5.
        let wanted = "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2.3.4.ip6.arpa";
        assert_eq!(of("4321:0:1:2:3:4:567:89ab"), wanted);
    }
}
