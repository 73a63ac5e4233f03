//! A client's offer, for messages about a failed handshake.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;

use rustls::server::ClientHello;
use rustls::{CipherSuite, Error, NamedGroup, PeerIncompatible, SignatureScheme};

use super::policy::Policy;
use super::received_hello::{NO_VERSION, ReceivedHello};

/// Maximum number of names of one kind in a message.
const NAMES_MAX: usize = 12;

/// A client's offer, and the policy that it did not match.
pub(super) struct Offer {
    suites: Vec<CipherSuite>,
    groups: Vec<NamedGroup>,
    schemes: Vec<SignatureScheme>,
    protocols: Vec<Vec<u8>>,
    received: Option<ReceivedHello>,
    policy: Arc<Policy>,
}

/// Message about a missing common parameter; `None` for other errors.
pub(super) fn message(why: &PeerIncompatible) -> Option<&'static str> {
    match why {
        PeerIncompatible::NoCipherSuitesInCommon => Some("no cipher suite in common"),
        PeerIncompatible::NoKxGroupsInCommon => Some("no group in common"),
        PeerIncompatible::NoSignatureSchemesInCommon => {
            Some("the client takes no signature of the certificate")
        }
        PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled => Some(NO_VERSION),
        _ => None,
    }
}

impl Offer {
    /// Creates the offer from a hello, and from the `records` that contained it.
    pub(super) fn new(hello: &ClientHello<'_>, records: &[u8], policy: &Arc<Policy>) -> Self {
        let protocols = hello.alpn().map(|names| names.map(<[u8]>::to_vec).collect());
        Self {
            suites: hello.cipher_suites().to_vec(),
            groups: hello.named_groups().unwrap_or_default().to_vec(),
            schemes: hello.signature_schemes().to_vec(),
            protocols: protocols.unwrap_or_default(),
            received: ReceivedHello::read(records),
            policy: Arc::clone(policy),
        }
    }

    /// The offered and the required parameters, if the error is about them; otherwise empty.
    pub(super) fn message(&self, error: &Error) -> String {
        let config = &self.policy.config;
        let provider = config.crypto_provider();
        match error {
            Error::NoApplicationProtocol => {
                both(&text(&self.protocols), &text(&config.alpn_protocols))
            }
            Error::PeerIncompatible(PeerIncompatible::NoKxGroupsInCommon) => {
                let own = provider.kx_groups.iter().map(|group| group.name());
                both(&self.groups, &own.collect::<Vec<_>>())
            }
            Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon) => {
                format!("the client offers {}", list(&self.schemes))
            }
            // The client supports no signature of the certificate's key.
            Error::General(_) => format!("the client offers {}", list(&self.schemes)),
            Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
                let own = provider.cipher_suites.iter().map(|suite| suite.suite());
                both(&self.suites, &own.collect::<Vec<_>>())
            }
            Error::PeerIncompatible(why) if message(why).is_some() => {
                let offered =
                    self.received.as_ref().map(ReceivedHello::versions).unwrap_or_default();
                format!("the client offers {offered}; the server speaks {}", self.policy.versions)
            }
            _ => String::new(),
        }
    }
}

fn both<T: Debug>(offered: &[T], wanted: &[T]) -> String {
    format!("the client offers {}; the server has {}", list(offered), list(wanted))
}

fn text(names: &[Vec<u8>]) -> Vec<String> {
    names.iter().map(|name| name.escape_ascii().to_string()).collect()
}

fn list<T: Debug>(names: &[T]) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().take(NAMES_MAX).enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{name:?}");
    }
    match names.len() {
        0 => "nothing".to_owned(),
        count if count > NAMES_MAX => format!("{text} and {} more", count - NAMES_MAX),
        _ => text,
    }
}
