//! OpenSSL's names of suites, groups and versions, as used in lighttpd's directives.

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SupportedCipherSuite};

use super::tls_error::TlsError;

/// A suite: OpenSSL's name, its bits, and the keywords of `openssl ciphers` that select it and
/// not all of lighty's TLS 1.2 suites.
struct Suite {
    id: CipherSuite,
    name: &'static str,
    bits: u16,
    keywords: &'static [&'static str],
}

const fn suite(
    id: CipherSuite,
    name: &'static str,
    bits: u16,
    keywords: &'static [&'static str],
) -> Suite {
    Suite { id, name, bits, keywords }
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
        &["aECDSA", "ECDSA", "AES", "AES256", "AESGCM", "FIPS"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        128,
        &["aECDSA", "ECDSA", "AES", "AES128", "AESGCM", "FIPS"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        256,
        &["aECDSA", "ECDSA", "CHACHA20"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-RSA-AES256-GCM-SHA384",
        256,
        &["aRSA", "AES", "AES256", "AESGCM", "FIPS"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-RSA-AES128-GCM-SHA256",
        128,
        &["aRSA", "AES", "AES128", "AESGCM", "FIPS"],
    ),
    suite(
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-RSA-CHACHA20-POLY1305",
        256,
        &["aRSA", "CHACHA20"],
    ),
];

/// Keywords that select every TLS 1.2 suite. They exclude those for the message digest, which these
/// suites do not have (`SHA256` and `SHA384` in their names are for the key derivation), and those
/// for RSA key exchange.
const EVERY: [&str; 8] = ["ALL", "HIGH", "ECDH", "EECDH", "ECDHE", "kECDHE", "kEECDH", "TLSv1.2"];

/// Prefixes of a string: OpenSSL's default, or that of a distribution that patched OpenSSL.
const DEFAULTS: [&str; 2] = ["DEFAULT", "PROFILE=SYSTEM"];

/// With Suite B (RFC 6460) at its beginning, the rest of a string is ignored.
const SUITE_B: [(&str, &str); 4] = [
    ("SUITEB128ONLY", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ("SUITEB128C2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("SUITEB128", "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("SUITEB192", "ECDHE-ECDSA-AES256-GCM-SHA384"),
];

impl Suite {
    fn is_tls13(&self) -> bool {
        self.name.starts_with("TLS_")
    }

    /// Returns true if an item of a cipher string selects this suite: a name, a word, or several
    /// joined by `+`.
    fn is_meant(&self, item: &str) -> bool {
        item.split('+')
            .all(|part| self.name == part || EVERY.contains(&part) || self.keywords.contains(&part))
    }

    /// Sort key: OpenSSL's order of the suites that a word selects.
    fn rank(&self) -> (bool, bool, bool) {
        (self.bits < 256, self.keywords.contains(&"CHACHA20"), self.keywords.contains(&"aRSA"))
    }
}

/// OpenSSL's name of a suite, and its bits; unknown for a suite that lighty does not have.
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

/// The TLS 1.2 suites that a cipher string (`CipherString`, `ssl.cipher-list`) selects, in its
/// order: the result of `openssl ciphers -tls1_2`, which ignores unknown keywords.
///
/// # Errors
/// A message if none is left or the string is malformed.
pub(super) fn tls12_suites(text: &str) -> Result<Vec<CipherSuite>, TlsError> {
    let suite_b = SUITE_B.iter().find(|(word, _)| text.starts_with(word));
    let text = suite_b.map_or(text, |(_, meant)| meant);
    let mut choice = Choice::default();
    let default = DEFAULTS.iter().find_map(|word| text.strip_prefix(word));
    if default.is_some() {
        choice.apply(b' ', "ALL");
    }
    let mut rest = default.unwrap_or(text);
    loop {
        rest = rest.trim_start_matches([':', ',', ' ', ';']);
        if rest.is_empty() {
            break;
        }
        rest = choice.take_item(rest)?;
    }
    match choice.0.is_empty() {
        true => Err("no cipher suite is left; lighty has those with ECDHE and AES-GCM or \
                     ChaCha20-Poly1305"
            .into()),
        false => Ok(choice.0.into_iter().map(|suite| suite.id).collect()),
    }
}

/// Suites selected by a cipher string so far, and suites that it has banned.
#[derive(Default)]
struct Choice(Vec<&'static Suite>, Vec<&'static Suite>);

impl Choice {
    /// Applies the item at the beginning of a string. Returns the rest.
    fn take_item<'t>(&mut self, text: &'t str) -> Result<&'t str, TlsError> {
        let (sign, body) = match text.strip_prefix(['!', '-', '+', '@']) {
            Some(body) => (text.as_bytes()[0], body),
            None => (b' ', text),
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '=' | '_');
        let is_item = |c: char| is_word(c) || sign != b'@' && c == '+';
        let len = body.find(|c| !is_item(c)).unwrap_or(body.len());
        let (item, rest) = body.split_at(len);
        if !item.starts_with(is_word) {
            return Err(format!("nothing can be made of \"{text}\" in a list of ciphers").into());
        }
        match sign {
            // The other commands with "@" limit the strength of keys, which affects no suite here.
            b'@' if item == "STRENGTH" => self.0.sort_by_key(|suite| 256 - suite.bits),
            b'@' => {}
            sign => self.apply(sign, item),
        }
        Ok(rest)
    }

    fn apply(&mut self, sign: u8, item: &str) {
        let is_meant = |suite: &&'static Suite| suite.is_meant(item);
        let known = SUITES.iter().filter(|suite| !suite.is_tls13());
        let Self(chosen, banned) = self;
        match sign {
            b'!' => {
                chosen.retain(|suite| !is_meant(suite));
                banned.extend(known.filter(is_meant));
            }
            b'-' => chosen.retain(|suite| !is_meant(suite)),
            b'+' => chosen.sort_by_key(is_meant),
            _ => {
                let is_in = |list: &[&Suite], suite: &Suite| list.iter().any(|s| s.id == suite.id);
                let new = known
                    .filter(is_meant)
                    .filter(|suite| !is_in(chosen, suite) && !is_in(banned, suite));
                let mut new: Vec<_> = new.collect();
                new.sort_by_key(|suite| suite.rank());
                chosen.extend(new);
            }
        }
    }
}

/// The TLS 1.3 suites in a list (`Ciphersuites`). The second list has the names that lighty does
/// not support.
///
/// # Errors
/// A message if none is left.
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

/// A provider with these suites and groups, TLS 1.3 first; `None` means all.
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

/// The groups in a list (`Groups`, `Curves`). The second list has the names that lighty does not
/// support.
///
/// # Errors
/// A message if none is left.
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

    /// The suites that a string selects, abbreviated to key and cipher.
    fn names(text: &str) -> String {
        let short = |id| {
            let name = suite_name(id).0.trim_start_matches("ECDHE-").replace("-GCM", "");
            let name = name.replace("ECDSA-", "E").replace("RSA-", "R").replace("AES", "");
            name.split('-').next().unwrap_or_default().replace("CHACHA20", "C")
        };
        let suites = tls12_suites(text).unwrap_or_default();
        suites.into_iter().map(short).collect::<Vec<_>>().join(" ")
    }

    /// Cipher strings, with the subset of lighty's suites in the result of OpenSSL 3.0's
    /// `openssl ciphers -tls1_2`.
    const STRINGS: &[(&str, &str)] = &[
        ("ALL", "E256 R256 EC RC E128 R128"),
        ("DEFAULT", "E256 R256 EC RC E128 R128"),
        ("HIGH", "E256 R256 EC RC E128 R128"),
        ("ECDH", "E256 R256 EC RC E128 R128"),
        ("kEECDH", "E256 R256 EC RC E128 R128"),
        ("TLSv1.2", "E256 R256 EC RC E128 R128"),
        ("COMPLEMENTOFDEFAULT", ""),
        ("COMPLEMENTOFALL", ""),
        ("RSA", ""),
        ("kRSA", ""),
        ("aRSA", "R256 RC R128"),
        ("ECDSA", "E256 EC E128"),
        ("aECDSA", "E256 EC E128"),
        ("AECDH", ""),
        ("AES", "E256 R256 E128 R128"),
        ("AES128", "E128 R128"),
        ("AES256", "E256 R256"),
        ("AESGCM", "E256 R256 E128 R128"),
        ("AESCCM", ""),
        ("CHACHA20", "EC RC"),
        ("SHA", ""),
        ("SHA1", ""),
        ("SHA256", ""),
        ("SHA384", ""),
        ("MEDIUM", ""),
        ("FIPS", "E256 R256 E128 R128"),
        ("SUITEB128", "E128 E256"),
        ("SUITEB128ONLY", "E128"),
        ("SUITEB128C2", "E256"),
        ("SUITEB192", "E256"),
        ("AEAD", ""),
        ("SECURE", ""),
        ("TLSv1", ""),
        ("ecdhe", ""),
        ("RC4", ""),
        ("", ""),
        ("ECDHE-RSA-AES128-GCM-SHA256", "R128"),
        ("ECDHE-RSA-AES128-GCM-SHA256+AES:CHACHA20", "R128 EC RC"),
        ("DHE-RSA-AES256-GCM-SHA384", ""),
        ("AES256-SHA", ""),
        ("@SECLEVEL=2:HIGH", "E256 R256 EC RC E128 R128"),
        ("HIGH@SECLEVEL=2", "E256 R256 EC RC E128 R128"),
        ("DEFAULT@SECLEVEL=1", "E256 R256 EC RC E128 R128"),
        ("DEFAULT:!DEFAULT", "E256 R256 EC RC E128 R128"),
        ("RSA:DEFAULT", ""),
        ("ECDHE:SUITEB128", "E256 R256 EC RC E128 R128"),
        ("HIGH:+SUITEB192", "E256 R256 EC RC E128 R128"),
        ("HIGH +AES256", "EC RC E128 R128 E256 R256"),
        ("HIGH;AES", "E256 R256 EC RC E128 R128"),
        ("ECDHE:!AEAD", "E256 R256 EC RC E128 R128"),
        ("kECDHE+aRSA", "R256 RC R128"),
        ("ECDHE+aRSA+AESGCM", "R256 R128"),
        ("ALL:!COMPLEMENTOFDEFAULT:!eNULL", "E256 R256 EC RC E128 R128"),
        ("HIGH:!RSA", "E256 R256 EC RC E128 R128"),
        ("ECDH+AESGCM:RSA+AESGCM", "E256 R256 E128 R128"),
        ("ECDH+AESGCM:ECDH+CHACHA20:!SHA", "E256 R256 E128 R128 EC RC"),
        ("EECDH+AESGCM:AES256+EECDH:CHACHA20:!SHA1:!SHA256:!SHA384", "E256 R256 E128 R128 EC RC"),
        ("EECDH+AESGCM:!SHA384", "E256 R256 E128 R128"),
        ("ECDHE:!SHA256", "E256 R256 EC RC E128 R128"),
        ("FIPS:!aRSA", "E256 E128"),
        ("HIGH:!FIPS", "EC RC"),
        ("AES+SHA384", ""),
        ("ECDHE+XYZ:AES256", "E256 R256"),
        ("!XYZ:HIGH", "E256 R256 EC RC E128 R128"),
        ("HIGH:!ALL", ""),
        ("!AES:HIGH", "EC RC"),
        ("HIGH:-ALL:AES128", "E128 R128"),
        ("+HIGH:AES256", "E256 R256"),
        ("AES128:AES256:@STRENGTH", "E256 R256 E128 R128"),
        ("ALL:+ECDSA:@STRENGTH", "R256 RC E256 EC R128 E128"),
        ("HIGH:!kECDHE", ""),
        ("HIGH:-ECDSA:-CHACHA20", "R256 R128"),
        ("CHACHA20:AESGCM:-CHACHA20:CHACHA20", "E256 R256 E128 R128 EC RC"),
        ("ECDHE-RSA-AES128-GCM-SHA256:HIGH", "R128 E256 R256 EC RC E128"),
    ];

    #[test]
    fn cipher_strings_mean_what_openssl_says() {
        for (text, meant) in STRINGS {
            assert_eq!(names(text), *meant, "{text}");
        }
        assert_eq!(names("PROFILE=SYSTEM"), names("DEFAULT"));
        for malformed in ["HIGH:!", "HIGH:?", "@", "+"] {
            assert!(tls12_suites(malformed).is_err(), "{malformed}");
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
