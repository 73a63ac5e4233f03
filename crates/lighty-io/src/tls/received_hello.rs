//! Parses a client's hello: for messages about a hello that rustls refuses, and for the offered
//! versions, which rustls does not expose.

use std::borrow::Cow;

use rustls::{Error, PeerIncompatible, PeerMisbehaved};

/// Message if client and server share no version.
pub(super) const NO_VERSION: &str = "no version of TLS in common";

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const SUPPORTED_VERSIONS: u16 = 43;
const TLS12: u16 = 0x0303;

/// Maximum number of versions kept: there are six.
const VERSIONS_MAX: usize = 12;

/// Maximum length of a name in a message.
const NAME_BYTES_MAX: usize = 100;

/// Contents of a client's hello (RFC 8446 section 4.1.2).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReceivedHello {
    /// The version field before the extensions: the latest supported version, up to TLS 1.2.
    legacy_version: u16,
    /// The offered versions, without the reserved values of GREASE (RFC 8701).
    versions: Vec<u16>,
    /// The requested host, unmodified.
    server_name: Option<Vec<u8>>,
}

impl ReceivedHello {
    /// Parses a client's first records; `None` if they do not hold a complete hello.
    pub(super) fn read(records: &[u8]) -> Option<Self> {
        let message = message(records)?;
        let mut rest: &[u8] = message.as_ref();
        let legacy_version = number(take(&mut rest, 2)?);
        take(&mut rest, 32)?;
        let _session = counted(&mut rest, 1)?;
        let _suites = counted(&mut rest, 2)?;
        let _compressions = counted(&mut rest, 1)?;
        let mut received =
            Self { legacy_version, versions: vec![legacy_version], server_name: None };
        let mut extensions = counted(&mut rest, 2).unwrap_or_default();
        while !extensions.is_empty() {
            let kind = number(take(&mut extensions, 2)?);
            let mut body = counted(&mut extensions, 2)?;
            match kind {
                SERVER_NAME => {
                    let mut names = counted(&mut body, 2)?;
                    if take(&mut names, 1)? == [0] {
                        received.server_name = Some(counted(&mut names, 2)?.to_vec());
                    }
                }
                SUPPORTED_VERSIONS => {
                    let (all, _) = counted(&mut body, 1)?.as_chunks::<2>();
                    let all = all.iter().map(|version| u16::from_be_bytes(*version));
                    let meant = all.filter(|version| version & 0x0f0f != 0x0a0a);
                    received.versions = meant.take(VERSIONS_MAX).collect();
                }
                _ => {}
            }
        }
        Some(received)
    }

    /// The alert to send instead of rustls' own: protocol_version (RFC 8446 section 4.2.1), in a
    /// record of a version that the client supports.
    pub(super) fn alert(&self) -> Option<[u8; 7]> {
        let [major, minor] = self.legacy_version.clamp(0x0301, TLS12).to_be_bytes();
        self.is_old().then_some([21, major, minor, 0, 2, 2, 70])
    }

    /// True if it offers only versions that no listener supports.
    fn is_old(&self) -> bool {
        self.versions.iter().all(|version| *version < TLS12)
    }

    /// The offered versions, for a message.
    pub(super) fn versions(&self) -> String {
        let names: Vec<_> = self.versions.iter().map(|version| name(*version)).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    }

    /// The cause and the client's offer for an error for which rustls' own message does not help.
    pub(super) fn message(&self, error: &Error) -> Option<(&'static str, String)> {
        match error {
            Error::PeerIncompatible(PeerIncompatible::SignatureAlgorithmsExtensionRequired) => {
                Some(match self.is_old() {
                    true => (NO_VERSION, self.old_versions()),
                    false => ("the client takes no signature", String::new()),
                })
            }
            Error::PeerMisbehaved(PeerMisbehaved::ServerNameMustContainOneHostName) => {
                let name = self.server_name.as_deref().unwrap_or_default();
                let shown = name[..name.len().min(NAME_BYTES_MAX)].escape_ascii();
                let why = "the client asks for a host by what is no host name (SNI)";
                Some((why, format!("it asks for \"{shown}\"")))
            }
            _ => None,
        }
    }

    fn old_versions(&self) -> String {
        format!("the client offers {}; the server speaks none before TLS 1.2", self.versions())
    }
}

/// The body of the hello, which may be spread over several records.
fn message(mut records: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut whole: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    loop {
        let [HANDSHAKE, _, _] = take(&mut records, 3)? else { return None };
        let part = counted(&mut records, 2)?;
        match whole.is_empty() {
            true => whole = Cow::Borrowed(part),
            false => whole.to_mut().extend_from_slice(part),
        }
        if let &[kind, high, middle, low, ..] = &*whole {
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            match kind {
                CLIENT_HELLO if whole.len() < 4 + length => {}
                CLIENT_HELLO => return Some(slice(whole, 4..4 + length)),
                _ => return None,
            }
        }
    }
}

fn slice(whole: Cow<'_, [u8]>, range: std::ops::Range<usize>) -> Cow<'_, [u8]> {
    match whole {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[range]),
        Cow::Owned(bytes) => Cow::Owned(bytes[range].to_vec()),
    }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(taken)
}

/// Reads a length of `width` bytes, and that many bytes after it.
fn counted<'a>(from: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let count = number(take(from, width)?);
    take(from, count.into())
}

fn number(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |number, byte| number << 8 | u16::from(*byte))
}

fn name(version: u16) -> String {
    match version {
        0x0300 => "SSL 3.0".to_owned(),
        0x0301..=0x0304 => format!("TLS 1.{}", version - 0x0301),
        other => format!("{other:#06x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello with these extensions, in records of at most `piece` bytes.
    fn hello(version: u16, extensions: &[u8], piece: usize) -> Vec<u8> {
        let mut body = version.to_be_bytes().to_vec();
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0, 0x2f, 1, 0]);
        if !extensions.is_empty() {
            body.extend((extensions.len() as u16).to_be_bytes());
            body.extend(extensions);
        }
        let mut message = vec![1, 0, 0, body.len() as u8];
        message.extend(body);
        let records = message.chunks(piece);
        records.flat_map(|part| [&[22, 3, 1, 0, part.len() as u8][..], part].concat()).collect()
    }

    const VERSIONS: &[u8] = &[0, 43, 0, 7, 6, 0x2a, 0x2a, 3, 2, 3, 1];
    const NAME: &[u8] = &[0, 0, 0, 8, 0, 6, 0, 0, 3, b'*', b'.', 0xfc];

    #[test]
    fn versions_and_name_are_read_from_one_record_and_from_many() {
        let extensions = [VERSIONS, NAME].concat();
        for piece in [1, 3, 50, 255] {
            let received =
                ReceivedHello::read(&hello(0x0303, &extensions, piece)).expect("a hello");
            assert_eq!(received.versions(), "TLS 1.1, TLS 1.0", "{piece}");
            let sni = Error::PeerMisbehaved(PeerMisbehaved::ServerNameMustContainOneHostName);
            let message = received.message(&sni).expect("words");
            assert_eq!(message.1, "it asks for \"*.\\xfc\"");
        }
    }

    #[test]
    fn the_alert_of_old_clients_has_their_version() {
        let alert = |version, extensions| {
            ReceivedHello::read(&hello(version, extensions, 255)).expect("a hello").alert()
        };
        assert_eq!(alert(0x0300, &[]), Some([21, 3, 1, 0, 2, 2, 70]));
        assert_eq!(alert(0x0302, &[]), Some([21, 3, 2, 0, 2, 2, 70]));
        assert_eq!(alert(0x0303, VERSIONS), Some([21, 3, 3, 0, 2, 2, 70]));
        assert_eq!(alert(0x0303, &[]), None);
    }

    #[test]
    fn truncated_hello_is_none_and_a_changed_one_no_panic() {
        let whole = hello(0x0303, &[VERSIONS, NAME].concat(), 255);
        for end in 0..whole.len() {
            assert_eq!(ReceivedHello::read(&whole[..end]), None, "{end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = ReceivedHello::read(&changed);
        }
    }
}
