//! Requests of a configuration for certificates.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use lighty_io::tls::KeyType;

use crate::dns_hook::DnsHook;
use crate::standing_record;

/// Maximum length of a host name (RFC 1035 section 2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// Maximum length of a label of it.
const LABEL_BYTES_MAX: usize = 63;

/// Error in a request, with the text concerned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateSpecError {
    /// An address instead of a name.
    #[error("\"{0}\" is an address, and only a name can stand here")]
    Address(String),
    /// An invalid host name.
    #[error("\"{0}\" is not the name of a host")]
    NoHost(String),
    /// A name without a dot, for which no authority signs.
    #[error("\"{0}\" has no dot: no authority signs for it")]
    NoDot(String),
    /// Neither the name of an authority nor a URL.
    #[error(
        "\"{0}\" is neither an https:// URL nor one of {issuer_names}",
        issuer_names = Issuer::issuer_names().collect::<Vec<_>>().join(", ")
    )]
    Issuer(String),
    /// Not a URL.
    #[error("\"{0}\" is no URL")]
    Url(String),
}

/// A requested certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSpec {
    /// The hosts that it is for: names in lower case, and addresses in canonical form. The first
    /// one names its file.
    pub names: Arc<[String]>,
    /// Options for obtaining it.
    pub options: Arc<CertificateOptions>,
}

/// Options for obtaining certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateOptions {
    /// Contact addresses for the authority.
    pub contact: Vec<String>,
    /// Authorities, in order of preference.
    pub issuers: Vec<Issuer>,
    /// The external account to bind the account to (RFC 8555 section 7.3.4).
    pub external_account: Option<ExternalAccount>,
    /// The certificate profile, by the authority's name for it.
    pub profile: Option<String>,
    /// Type of the private key.
    pub key_type: KeyType,
    /// Method of proving control over a name.
    pub challenge: ChallengeKind,
    /// Hook that sets and removes DNS records.
    pub dns_hook: Option<DnsHook>,
    /// Authorities trusted for the ACME servers' certificates; `None`: the system's.
    pub ca_file: Option<PathBuf>,
}

/// An authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// Its name in the configuration, or the host of its directory.
    pub name: String,
    /// URL of its directory (RFC 8555 section 7.1.1).
    pub directory: String,
    /// URL of the staging directory, if it has one.
    pub staging: Option<String>,
}

impl Issuer {
    /// Known authorities, with their directories for production and staging.
    const KNOWN: [(&'static str, &'static str, Option<&'static str>); 4] = [
        (
            "letsencrypt",
            "https://acme-v02.api.letsencrypt.org/directory",
            Some("https://acme-staging-v02.api.letsencrypt.org/directory"),
        ),
        ("letsencrypt-staging", "https://acme-staging-v02.api.letsencrypt.org/directory", None),
        ("zerossl", "https://acme.zerossl.com/v2/DV90", None),
        (
            "google",
            "https://dv.acme-v02.api.pki.goog/directory",
            Some("https://dv.acme-v02.test-api.pki.goog/directory"),
        ),
    ];

    /// Names of the known authorities.
    pub fn issuer_names() -> impl Iterator<Item = &'static str> {
        Self::KNOWN.iter().map(|(word, ..)| *word)
    }

    /// The authority with this name, or with this directory URL.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, CertificateSpecError> {
        if let Some((word, directory, staging)) = Self::KNOWN.iter().find(|row| row.0 == text) {
            let staging = staging.map(str::to_owned);
            return Ok(Self { name: (*word).to_owned(), directory: (*directory).into(), staging });
        }
        let rest = text.strip_prefix("https://");
        let rest = rest.ok_or_else(|| CertificateSpecError::Issuer(text.to_owned()))?;
        let host = rest.split('/').next().unwrap_or_default();
        match host.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            true => Err(CertificateSpecError::Url(text.to_owned())),
            false => Ok(Self { name: host.to_owned(), directory: text.to_owned(), staging: None }),
        }
    }
}

/// An account that the operator already has with an authority.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The key's identifier.
    pub kid: String,
    /// The key.
    pub hmac: Vec<u8>,
}

/// Omits the key.
impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExternalAccount").field(&self.kid).finish()
    }
}

/// Method of proving control over a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChallengeKind {
    /// By a response on port 80 (RFC 8555 section 8.3).
    #[default]
    Http01,
    /// By a handshake on port 443 (RFC 8737).
    TlsAlpn01,
    /// By a DNS record (RFC 8555 section 8.4).
    Dns01,
    /// By a DNS record that stays (draft-ietf-acme-dns-persist).
    DnsPersist01,
}

impl ChallengeKind {
    /// All methods, in the order of [`NAMES`](Self::NAMES).
    pub const ALL: [Self; 4] = [Self::Http01, Self::TlsAlpn01, Self::Dns01, Self::DnsPersist01];

    /// Their names in configurations.
    pub const NAMES: &'static [&'static str] =
        &["http-01", "tls-alpn-01", "dns-01", standing_record::KIND];

    /// True for proofs in the DNS, which addresses have none in.
    pub fn is_by_dns(self) -> bool {
        matches!(self, Self::Dns01 | Self::DnsPersist01)
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Dns01 => "dns-01",
            Self::DnsPersist01 => standing_record::KIND,
        }
    }
}

/// A host in the form used in certificates: a name, or an address (RFC 8738).
///
/// # Errors
/// No authority signs for it.
pub fn public_host(text: &str) -> Result<String, CertificateSpecError> {
    address(text).map_or_else(|| public_name(text), |address| Ok(address.to_string()))
}

/// The address, if the text is one. An IPv6 address may be in brackets, as in URLs.
pub fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let parsed = match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    };
    parsed.map(|address: IpAddr| address.to_canonical())
}

/// The name in the form used in certificates.
///
/// # Errors
/// No authority signs for it.
pub fn public_name(text: &str) -> Result<String, CertificateSpecError> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    check_name(&name)?;
    Ok(name)
}

/// Checks that an authority may sign for a name: a host name with a dot, optionally after `*.`.
fn check_name(name: &str) -> Result<(), CertificateSpecError> {
    let host = name.strip_prefix("*.").unwrap_or(name);
    let is_label = |label: &str| {
        let is_sound = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let edges = label.starts_with('-') || label.ends_with('-');
        is_sound && !edges && (1..=LABEL_BYTES_MAX).contains(&label.len())
    };
    if host.parse::<std::net::IpAddr>().is_ok() || host.contains(':') {
        return Err(CertificateSpecError::Address(name.to_owned()));
    }
    if name.len() > NAME_BYTES_MAX || !host.split('.').all(is_label) {
        return Err(CertificateSpecError::NoHost(name.to_owned()));
    }
    match host.contains('.') {
        true => Ok(()),
        false => Err(CertificateSpecError::NoDot(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hosts() {
        for good in ["a.test", "*.a.test", "xn--bcher-kva.example", "a-b.c1.test", "A.Test."] {
            assert!(public_name(good).is_ok(), "{good}");
        }
        assert_eq!(public_name("A.Test."), Ok("a.test".to_owned()));
        let long = format!("{}.test", "a.".repeat(130));
        let label = format!("{}.test", "a".repeat(64));
        for bad in [
            "",
            "localhost",
            "*",
            "*.",
            "a..test",
            "-a.test",
            "a-.test",
            "a_b.test",
            "a.test/x",
            "127.0.0.1",
            "::1",
            "*.*.test",
            "../a.test",
            "bücher.test",
            &long,
            &label,
        ] {
            assert!(public_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_hosts_in_their_usual_form() {
        for (text, wanted) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("2001:DB8:0::7", Some("2001:db8::7")),
            ("[2001:db8::7]", Some("2001:db8::7")),
            ("::ffff:192.0.2.7", Some("192.0.2.7")),
            ("A.Test.", Some("a.test")),
            ("[192.0.2.7]", None),
            ("*.192.0.2.7", None),
            ("192.0.2.7:443", None),
            ("fe80::1%eth0", None),
        ] {
            assert_eq!(public_host(text).ok().as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn issuers_are_words_or_urls() {
        let known = Issuer::parse("letsencrypt").expect("a word");
        assert!(known.staging.is_some_and(|url| url.contains("staging")));
        let own = Issuer::parse("https://ca.test:14000/dir").expect("a URL");
        assert_eq!((&*own.name, &*own.directory), ("ca.test:14000", "https://ca.test:14000/dir"));
        for bad in ["letsencript", "http://ca.test/dir", "https://", "https://a b/"] {
            assert!(Issuer::parse(bad).is_err(), "{bad}");
        }
    }
}
