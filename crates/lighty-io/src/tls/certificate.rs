//! Reads the subject, names and validity of certificates (RFC 5280 section 4.1), formatted as by
//! OpenSSL.

/// Fields of a certificate that programs get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateText {
    /// The subject's name on one line: `C = DE, O = "Shop, Inc.", CN = a`.
    pub subject: String,
    /// The parts of that name: OpenSSL's short name, or dotted numbers, and the value.
    pub parts: Vec<(String, String)>,
    /// The serial number, in upper-case hexadecimal digits.
    pub serial: String,
}

impl CertificateText {
    /// Parses a certificate in DER; `None` if it is malformed.
    pub fn read(der: &[u8]) -> Option<Self> {
        let names = CertificateNames::read(der)?;
        let serial = names.serial.strip_prefix(&[0]).filter(|rest| !rest.is_empty());
        let serial = serial.unwrap_or(names.serial);
        let serial = serial.iter().map(|byte| format!("{byte:02X}")).collect();
        let (subject, parts) = one_line(names.subject)?;
        Some(Self { subject, parts, serial })
    }
}

/// True if clients reject the certificate without a stapled OCSP response (must-staple, RFC 7633).
pub(super) fn must_staple(der: &[u8]) -> bool {
    // The extension's identifier, and the feature status_request as the only one in the list; no
    // other part of a certificate contains this sequence of bytes.
    const FEATURE: [u8; 17] = [
        0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x18, 0x04, 0x05, 0x30, 0x03, 0x02,
        0x01, 0x05,
    ];
    der.windows(FEATURE.len()).any(|bytes| bytes == FEATURE)
}

/// Bits of a keyUsage (RFC 5280 section 4.2.1.3), in its first byte.
pub(super) mod key_usage {
    pub(in super::super) const DIGITAL_SIGNATURE: u8 = 0x80;
    pub(in super::super) const KEY_AGREEMENT: u8 = 0x08;
    pub(in super::super) const CERTIFICATE_SIGN: u8 = 0x04;
}

/// True if the certificate's key may be used for one of these. A certificate without keyUsage
/// allows every use, a malformed one none.
pub(super) fn allows_usage(der: &[u8], usages: u8) -> bool {
    let Some(parsed) = CertificateNames::read(der) else { return false };
    for extension in parsed.extensions() {
        match extension {
            Some((KEY_USAGE, value)) => {
                // The first byte counts unused bits.
                let bits = Der(value).next().filter(|(tag, _)| *tag == BITS);
                return bits.is_some_and(|(_, bits)| bits.get(1).is_some_and(|b| b & usages != 0));
            }
            Some(_) => {}
            None => return false,
        }
    }
    true
}

/// A name on one line, and its parts.
fn one_line(name: &[u8]) -> Option<(String, Vec<(String, String)>)> {
    let (mut line, mut parts) = (String::new(), Vec::new());
    let mut sets = Der(name);
    while let Some((SET, set)) = sets.next() {
        let mut separator = if line.is_empty() { "" } else { ", " };
        let mut attributes = Der(set);
        while let Some((SEQUENCE, attribute)) = attributes.next() {
            let mut attribute = Der(attribute);
            let (name, (kind, value)) = (attribute.next()?.1, attribute.next()?);
            let (name, value) = (short_name(name), text(kind, value)?);
            line += separator;
            line += &format!("{name} = {}", quoted(&value));
            separator = " + ";
            parts.push((name, value));
        }
    }
    Some((line, parts))
}

/// Data for planning a certificate's renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Validity period, in seconds since 1970.
    pub valid_s: std::ops::Range<i64>,
    /// The hosts that it is valid for: names and, in canonical form, addresses.
    pub names: Vec<String>,
    /// The serial number, as encoded in the certificate.
    pub serial: Vec<u8>,
    /// The identifier of the authority's key, if the certificate has it.
    pub authority_key: Option<Vec<u8>>,
    /// The issuer's name on one line.
    pub issuer: String,
}

impl CertificateFacts {
    /// Parses a certificate in DER; `None` if it is malformed.
    pub fn read(der: &[u8]) -> Option<Self> {
        let parsed = CertificateNames::read(der)?;
        let (mut names, mut authority_key) = (Vec::new(), None);
        for extension in parsed.extensions() {
            let (id, value) = extension?;
            match id {
                SUBJECT_NAMES => names = alternative_names(value)?,
                AUTHORITY_KEY => {
                    let (tag, key) = Der(Der(value).next()?.1).next()?;
                    authority_key = (tag == KEY_IDENTIFIER).then(|| key.to_vec());
                }
                _ => {}
            }
        }
        Some(Self {
            valid_s: validity(der)?,
            names,
            serial: parsed.serial.to_vec(),
            authority_key,
            issuer: one_line(parsed.issuer)?.0,
        })
    }
}

/// The hosts of a subjectAltName (RFC 5280 section 4.2.1.6).
fn alternative_names(value: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for (tag, name) in Der(Der(value).next()?.1) {
        match (tag, name.len()) {
            (DNS_NAME, _) => names.push(std::str::from_utf8(name).ok()?.to_ascii_lowercase()),
            (IP_ADDRESS, 4) => {
                let octets: [u8; 4] = name.try_into().ok()?;
                names.push(std::net::Ipv4Addr::from(octets).to_string());
            }
            (IP_ADDRESS, 16) => {
                let octets: [u8; 16] = name.try_into().ok()?;
                names.push(std::net::Ipv6Addr::from(octets).to_string());
            }
            _ => {}
        }
    }
    Some(names)
}

/// Validity period of a certificate, in seconds since 1970; `None` if it is malformed.
pub(super) fn validity(der: &[u8]) -> Option<std::ops::Range<i64>> {
    let mut times = Der(CertificateNames::read(der)?.validity);
    let from_s = time(times.next()?)?;
    // The last second is part of the period.
    Some(from_s..time(times.next()?)? + 1)
}

/// Parses UTCTime or GeneralizedTime, both of which end with the seconds and `Z` (RFC 5280 section
/// 4.1.2.5).
pub(super) fn time((kind, text): (u8, &[u8])) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |part: &[u8]| std::str::from_utf8(part).ok()?.parse::<i64>().ok();
    let (year, rest) = match kind {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let [month, day, hour, minute, second] = rest.as_chunks::<2>().0 else { return None };
    let (month, day) = (number(month)?, number(day)?);
    let seconds = number(hour)? * 3_600 + number(minute)? * 60 + number(second)?;
    Some(days_to(year, month, day) * 86_400 + seconds)
}

/// Days from 1970 to a day of the Gregorian calendar.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that a leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Encodes a certificate as PEM.
pub fn pem(der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for digit in 0..4 {
                let index = (bits >> (18 - 6 * digit)) & 63;
                let is_filler = digit > group.len() as u32;
                text.push(if is_filler { '=' } else { char::from(ALPHABET[index as usize]) });
            }
        }
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
pub(super) const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
const KEY_IDENTIFIER: u8 = 0x80;
/// subjectAltName, 2.5.29.17.
const SUBJECT_NAMES: &[u8] = &[0x55, 0x1d, 17];
/// authorityKeyIdentifier, 2.5.29.35.
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 35];
/// keyUsage, 2.5.29.15.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;

/// The names in a certificate, in DER, and its serial number.
pub(super) struct CertificateNames<'a> {
    pub(super) serial: &'a [u8],
    pub(super) issuer: &'a [u8],
    validity: &'a [u8],
    pub(super) subject: &'a [u8],
    public_key: &'a [u8],
    /// The remaining fields: the public key, and the extensions.
    rest: &'a [u8],
}

impl<'a> CertificateNames<'a> {
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        let (SEQUENCE, certificate) = Der(der).next()? else { return None };
        let (SEQUENCE, signed) = Der(certificate).next()? else { return None };
        let mut signed = Der(signed);
        let mut first = signed.next()?;
        if first.0 == VERSION {
            first = signed.next()?;
        }
        let (INTEGER, serial) = first else { return None };
        let (SEQUENCE, _algorithm) = signed.next()? else { return None };
        let (SEQUENCE, issuer) = signed.next()? else { return None };
        let (SEQUENCE, validity) = signed.next()? else { return None };
        let (SEQUENCE, subject) = signed.next()? else { return None };
        let (SEQUENCE, public_key) = signed.next()? else { return None };
        Some(Self { serial, issuer, validity, subject, public_key, rest: signed.0 })
    }

    /// Identifiers and values of the extensions, `None` for a malformed one.
    fn extensions(&self) -> impl Iterator<Item = Option<(&'a [u8], &'a [u8])>> + use<'a> {
        let of = |(tag, value)| (tag == EXTENSIONS).then(|| Der(value).next()).flatten();
        let list = Der(self.rest).find_map(of).map_or(&[][..], |(_, list)| list);
        Der(list).take_while(|(tag, _)| *tag == SEQUENCE).map(|(_, extension)| {
            let mut parts = Der(extension);
            let (_, id) = parts.next()?;
            // The critical flag is optional and precedes the value.
            match parts.next()? {
                (OCTETS, value) => Some((id, value)),
                _ => Some((id, parts.next()?.1)),
            }
        })
    }

    /// The algorithm of the public key, without the sequence around it, and the key.
    pub(super) fn key(&self) -> Option<(&'a [u8], &'a [u8])> {
        let mut parts = Der(self.public_key);
        let (SEQUENCE, algorithm) = parts.next()? else { return None };
        let (BITS, key) = parts.next()? else { return None };
        // No bits of the last byte are unused.
        Some((algorithm, key.strip_prefix(&[0])?))
    }

    /// True if the certificate is for this public key, a SubjectPublicKeyInfo in DER.
    pub(super) fn has_public_key(&self, der: &[u8]) -> bool {
        Der(der).next() == Some((SEQUENCE, self.public_key))
    }
}

/// A series of values in DER: the tag and content of each.
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Der<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, short], mut rest) = self.0.split_first_chunk()?;
        let mut length = usize::from(short);
        if short >= 0x80 {
            let (bytes, behind) = rest.split_at_checked(usize::from(short & 0x7f))?;
            if bytes.is_empty() || bytes.len() > 4 {
                return None;
            }
            length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            rest = behind;
        }
        let (value, behind) = rest.split_at_checked(length)?;
        self.0 = behind;
        Some((tag, value))
    }
}

/// Decodes a string of one of the types in names (RFC 5280 section 4.1.2.4).
fn text(kind: u8, value: &[u8]) -> Option<String> {
    match kind {
        // UTF8String, NumericString, PrintableString, IA5String.
        0x0c | 0x12 | 0x13 | 0x16 => String::from_utf8(value.to_vec()).ok(),
        // TeletexString, which is Latin 1 in practice.
        0x14 => Some(value.iter().map(|byte| char::from(*byte)).collect()),
        // BMPString.
        0x1e => {
            let units = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            String::from_utf16(&units.collect::<Vec<_>>()).ok()
        }
        _ => None,
    }
}

/// Formats a value as OpenSSL does on one line: in quotes if it contains separators, and with
/// control characters in hexadecimal.
fn quoted(value: &str) -> String {
    let needs_quotes = value.contains([',', '+', '<', '>', ';'])
        || value.starts_with([' ', '#'])
        || value.ends_with(' ');
    let mut text = String::new();
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            _ if character.is_ascii_control() => text += &format!("\\{:02X}", character as u32),
            _ => text.push(character),
        }
    }
    if needs_quotes { format!("\"{text}\"") } else { text }
}

/// Object identifiers in DER, and OpenSSL's short names.
const SHORT_NAMES: [(&[u8], &str); 21] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 13], "description"),
    (&[0x55, 4, 17], "postalCode"),
    (&[0x55, 4, 41], "name"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 43], "initials"),
    (&[0x55, 4, 46], "dnQualifier"),
    (&[0x55, 4, 65], "pseudonym"),
    (&[0x55, 4, 97], "organizationIdentifier"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

fn short_name(id: &[u8]) -> String {
    let known = SHORT_NAMES.iter().find(|(known, _)| *known == id);
    known.map_or_else(|| numbers(id), |(_, name)| (*name).to_owned())
}

/// An object identifier in numbers: `1.2.3`.
pub(super) fn numbers(id: &[u8]) -> String {
    let mut all: Vec<u64> = Vec::new();
    let mut number = 0_u64;
    for byte in id {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            all.push(std::mem::take(&mut number));
        }
    }
    if let Some(first) = all.first().copied() {
        let root = (first / 40).min(2);
        all.splice(0..1, [root, first - 40 * root]);
    }
    all.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SerialNumber};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn certificate(parts: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.serial_number = Some(SerialNumber::from(vec![0x8a, 0xbc, 0x01]));
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("signed").der().to_vec()
    }

    #[test]
    fn a_name_is_written_as_openssl_does() {
        let der = certificate(&[
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "Prüf, \"Stelle\""),
            (DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), "a\nb@c.test"),
            (DnType::CustomDnType(vec![2, 999, 3]), "x"),
            (DnType::CommonName, " a"),
        ]);
        let text = CertificateText::read(&der).expect("a certificate");
        let wanted = "C = DE, O = \"Prüf, \\\"Stelle\\\"\", emailAddress = a\\0Ab@c.test, \
                      2.999.3 = x, CN = \" a\"";
        assert_eq!(text.subject, wanted);
        assert_eq!(text.parts[0], ("C".to_owned(), "DE".to_owned()));
        assert_eq!(text.serial, "8ABC01");
    }

    #[test]
    fn broken_certificates_cause_no_panic() {
        let der = certificate(&[(DnType::CommonName, "a")]);
        for end in 0..der.len() {
            // The certificate ends with its signature, which is not parsed.
            let _ = CertificateText::read(&der[..end]);
        }
        for at in 0..der.len() {
            let mut changed = der.clone();
            changed[at] ^= 0xff;
            let _ = CertificateText::read(&changed);
        }
        assert_eq!(CertificateText::read(b""), None);
        assert_eq!(CertificateText::read(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn hosts_and_the_authoritys_key_are_found() {
        let authority = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = rcgen::Issuer::from_params(&params, &authority);
        let names = ["A.test", "*.b.test", "192.0.2.1", "2001:db8::1"].map(str::to_owned);
        let mut leaf = CertificateParams::new(names).expect("parameters");
        leaf.serial_number = Some(SerialNumber::from(vec![0x8a, 0xbc]));
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        let leaf = leaf.signed_by(&KeyPair::generate().expect("a key"), &issuer).expect("signed");
        let facts = CertificateFacts::read(leaf.der()).expect("facts");
        assert_eq!(facts.names, ["a.test", "*.b.test", "192.0.2.1", "2001:db8::1"]);
        assert_eq!(facts.serial, [0, 0x8a, 0xbc], "with its sign");
        assert_eq!(facts.authority_key.map(|key| key.len()), Some(20));
        assert_eq!(facts.issuer, "CN = rcgen self signed cert");
        for at in 0..leaf.der().len() {
            let mut changed = leaf.der().to_vec();
            changed[at] ^= 0xff;
            let _ = CertificateFacts::read(&changed);
        }
        assert_eq!(CertificateFacts::read(b"0"), None);
    }

    #[test]
    fn times_are_seconds_since_1970() {
        for (kind, text, wanted) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20000229120000Z", Some(951_825_600)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "2050010100Z", None),
            (UTC_TIME, "70010100000xZ", None),
            (INTEGER, "700101000000Z", None),
        ] {
            assert_eq!(time((kind, text.as_bytes())), wanted, "{text}");
        }
    }

    #[test]
    fn pem_is_what_it_was_made_of() {
        for length in [1, 2, 3, 47, 48, 49, 500] {
            let der: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let read = CertificateDer::from_pem_slice(pem(&der).as_bytes()).expect("PEM");
            assert_eq!(read.as_ref(), der);
        }
    }
}
