//! Suites, groups and versions by OpenSSL's names, which lighttpd's directives use.

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SupportedCipherSuite};

use super::tls_error::TlsError;

/// One suite: OpenSSL's name, its bits, and the classes of `openssl ciphers` that it belongs to.
struct Suite {
    id: CipherSuite,
    name: &'static str,
    bits: u16,
    classes: &'static [&'static str],
}

const fn suite(
    id: CipherSuite,
    name: &'static str,
    bits: u16,
    classes: &'static [&'static str],
) -> Suite {
    Suite { id, name, bits, classes }
}

/// In the order of preference.
const SUITES: [Suite; 9] = [
    suite(CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384", 256, &[]),
    suite(CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256", 128, &[]),
    suite(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256", 256, &[]),
    suite(
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        256,
        &["AECDSA", "ECDSA", "AES", "AES256", "AESGCM", "SHA384"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        128,
        &["AECDSA", "ECDSA", "AES", "AES128", "AESGCM", "SHA256"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        256,
        &["AECDSA", "ECDSA", "CHACHA20", "SHA256"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-RSA-AES256-GCM-SHA384",
        256,
        &["ARSA", "RSA", "AES", "AES256", "AESGCM", "SHA384"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-RSA-AES128-GCM-SHA256",
        128,
        &["ARSA", "RSA", "AES", "AES128", "AESGCM", "SHA256"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-RSA-CHACHA20-POLY1305",
        256,
        &["ARSA", "RSA", "CHACHA20", "SHA256"],
    ),
];

/// Classes that every suite of TLS 1.2 belongs to.
const EVERY: [&str; 12] = [
    "ALL",
    "DEFAULT",
    "HIGH",
    "FIPS",
    "SECURE",
    "EECDH",
    "ECDHE",
    "KECDHE",
    "KEECDH",
    "TLSV1.2",
    "AEAD",
    "COMPLEMENTOFDEFAULT",
];

impl Suite {
    fn is_tls13(&self) -> bool {
        self.name.starts_with("TLS_")
    }

    /// Whether a term of a cipher string means it: a name, a class, or several joined by `+`.
    fn is_meant(&self, term: &str) -> bool {
        term.split('+').all(|part| {
            let part = part.to_ascii_uppercase();
            self.name == part || EVERY.contains(&&*part) || self.classes.contains(&&*part)
        })
    }
}

/// OpenSSL's name of a suite, and its bits; both are unknown for a suite that lighty does not have.
pub(crate) fn suite_name(id: CipherSuite) -> (&'static str, u16) {
    SUITES
        .iter()
        .find(|suite| suite.id == id)
        .map_or(("unknown", 0), |suite| (suite.name, suite.bits))
}

/// OpenSSL's name of a version.
pub(crate) fn version_name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        _ => "TLSv1.3",
    }
}

/// The suites of TLS 1.2 that a cipher string (`CipherString`, `ssl.cipher-list`) leaves, in its
/// order.
///
/// # Errors
/// In words, if none is left.
pub(super) fn tls12_suites(text: &str) -> Result<Vec<CipherSuite>, TlsError> {
    let mut chosen: Vec<&Suite> = Vec::new();
    let mut banned: Vec<CipherSuite> = Vec::new();
    let words = text.split([':', ',', ' ']).map(str::trim).filter(|word| !word.is_empty());
    // What follows "@" says how weak keys may be, or sorts: neither changes the suites here.
    let words = words.filter_map(|word| word.split('@').next()).filter(|word| !word.is_empty());
    for word in words {
        // A distribution's own choice.
        let word = if word.starts_with("PROFILE=") { "DEFAULT" } else { word };
        let (sign, term) = match word.strip_prefix(['!', '-', '+']) {
            Some(term) => (word.as_bytes()[0], term),
            None => (b' ', word),
        };
        let known = SUITES.iter().filter(|suite| !suite.is_tls13());
        let meant: Vec<&Suite> = known.filter(|suite| suite.is_meant(term)).collect();
        let is_meant = |suite: &Suite| meant.iter().any(|other| other.id == suite.id);
        match sign {
            b'!' => banned.extend(meant.iter().map(|suite| suite.id)),
            b'-' => chosen.retain(|suite| !is_meant(suite)),
            b'+' => chosen.sort_by_key(|suite| is_meant(suite)),
            _ => {
                let new = meant.into_iter().filter(|suite| chosen.iter().all(|c| c.id != suite.id));
                chosen.extend(new.collect::<Vec<_>>());
            }
        }
    }
    chosen.retain(|suite| !banned.contains(&suite.id));
    match chosen.is_empty() {
        true => Err("no cipher suite is left; lighty has those with ECDHE and AES-GCM or \
                     ChaCha20-Poly1305"
            .into()),
        false => Ok(chosen.into_iter().map(|suite| suite.id).collect()),
    }
}

/// The suites of TLS 1.3 that a list (`Ciphersuites`) names; those that lighty does not have are in
/// the second list.
///
/// # Errors
/// In words, if none is left.
pub(super) fn tls13_suites(text: &str) -> Result<(Vec<CipherSuite>, Vec<String>), TlsError> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in text.split([':', ',', ' ']).map(str::trim).filter(|name| !name.is_empty()) {
        match SUITES.iter().find(|suite| suite.is_tls13() && suite.name == name) {
            Some(suite) => found.push(suite.id),
            None => missing.push(name.to_owned()),
        }
    }
    match (found.is_empty(), missing.is_empty()) {
        (false, _) => Ok((found, missing)),
        (true, true) => Err("no cipher suite is named".into()),
        (true, false) => Err(format!("unknown cipher suite {}", missing.join(", ")).into()),
    }
}

/// All suites, TLS 1.3 first.
pub(super) fn provider(
    tls12: Option<&[CipherSuite]>,
    tls13: Option<&[CipherSuite]>,
    groups: Option<&[NamedGroup]>,
) -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let default: Vec<CipherSuite> = SUITES.iter().map(|suite| suite.id).collect();
    let (old, new): (Vec<_>, Vec<_>) = default
        .into_iter()
        .partition(|id| SUITES.iter().any(|suite| suite.id == *id && !suite.is_tls13()));
    let wanted = tls13.unwrap_or(&new).iter().chain(tls12.unwrap_or(&old));
    let all = &aws_lc_rs::ALL_CIPHER_SUITES;
    let find = |id: &CipherSuite| -> Option<SupportedCipherSuite> {
        all.iter().find(|suite| suite.suite() == *id).copied()
    };
    provider.cipher_suites = wanted.filter_map(find).collect();
    if let Some(groups) = groups {
        provider.kx_groups = groups.iter().filter_map(|id| group(*id)).collect();
    }
    provider
}

fn group(id: NamedGroup) -> Option<&'static dyn SupportedKxGroup> {
    aws_lc_rs::ALL_KX_GROUPS.iter().find(|group| id == group.name()).copied()
}

/// The groups that a list (`Groups`, `Curves`) names; those that lighty does not have are in the
/// second list.
///
/// # Errors
/// In words, if none is left.
pub(super) fn groups(text: &str) -> Result<(Vec<NamedGroup>, Vec<String>), TlsError> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in text.split([':', ',', ' ', '/']).map(str::trim) {
        let name = name.trim_start_matches(['*', '?', '-']);
        let id = match &*name.to_ascii_uppercase() {
            "" => continue,
            "X25519MLKEM768" => NamedGroup::X25519MLKEM768,
            "SECP256R1MLKEM768" => NamedGroup::secp256r1MLKEM768,
            "X25519" => NamedGroup::X25519,
            "P-256" | "PRIME256V1" | "SECP256R1" => NamedGroup::secp256r1,
            "P-384" | "SECP384R1" => NamedGroup::secp384r1,
            _ => {
                missing.push(name.to_owned());
                continue;
            }
        };
        if group(id).is_some() {
            found.push(id);
        } else {
            missing.push(name.to_owned());
        }
    }
    if found.is_empty() { Err("no group is left".into()) } else { Ok((found, missing)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        tls12_suites(text).expect(text).into_iter().map(|id| suite_name(id).0).collect()
    }

    #[test]
    fn cipher_strings_mean_what_openssl_says() {
        assert_eq!(names("HIGH").len(), 6);
        for text in
            ["DEFAULT@SECLEVEL=1", "HIGH@SECLEVEL=2", "PROFILE=SYSTEM", "DEFAULT:@SECLEVEL=1"]
        {
            assert_eq!(names(text), names("DEFAULT"), "{text}");
        }
        assert_eq!(names("EECDH+AESGCM:CHACHA20:!PSK:!DHE").len(), 6);
        let gcm = ["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"];
        assert_eq!(names("ECDHE+aRSA+AESGCM"), gcm);
        assert_eq!(names("HIGH:!ECDSA:!CHACHA20"), gcm);
        assert_eq!(names("HIGH:-ECDSA:-CHACHA20"), gcm);
        assert_eq!(names("ECDHE-RSA-AES128-GCM-SHA256:HIGH:@STRENGTH")[0], gcm[1]);
        assert_eq!(names("HIGH:+AES256").last(), Some(&gcm[0]));
        for none in ["", "RC4", "DHE-RSA-AES256-GCM-SHA384", "HIGH:!ALL", "AES256-SHA"] {
            assert!(tls12_suites(none).is_err(), "{none}");
        }
    }

    #[test]
    fn lists_name_what_there_is() {
        let (found, missing) =
            tls13_suites("TLS_AES_128_GCM_SHA256:TLS_AES_128_CCM_SHA256").expect("one");
        assert_eq!((found.len(), missing), (1, vec!["TLS_AES_128_CCM_SHA256".to_owned()]));
        assert!(tls13_suites("TLS_AES_128_CCM_SHA256").is_err());
        assert!(tls13_suites("").is_err());
        let (found, missing) = groups("X25519MLKEM768:X25519:P-256:P-384:X448").expect("groups");
        assert_eq!((found.len(), missing), (4, vec!["X448".to_owned()]));
        assert!(groups("X448").is_err());
    }

    #[test]
    fn a_provider_has_what_is_wanted() {
        assert_eq!(provider(None, None, None).cipher_suites.len(), 9);
        let one = [CipherSuite::TLS13_AES_128_GCM_SHA256];
        let few = provider(Some(&[]), Some(&one), Some(&[NamedGroup::X25519]));
        assert_eq!((few.cipher_suites.len(), few.kx_groups.len()), (1, 1));
    }
}
