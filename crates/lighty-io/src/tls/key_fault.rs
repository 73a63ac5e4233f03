//! Explains why a private key cannot be used.

use rustls::pki_types::PrivateKeyDer;

use super::certificate::{Der, INTEGER, SEQUENCE, numbers};

const IDENTIFIER: u8 = 0x06;
const OCTETS: u8 = 0x04;
/// Tag of the curve in a SEC 1 key (RFC 5915).
const PARAMETERS: u8 = 0xa0;

/// Supported sizes of RSA keys.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// PEM labels of unsupported private keys, with their messages.
const LABELS: [(&[u8], &str); 4] = [
    (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", ENCRYPTED),
    (b"Proc-Type: 4,ENCRYPTED", ENCRYPTED),
    (
        b"-----BEGIN OPENSSH PRIVATE KEY-----",
        "the private key has OpenSSH's format, which is not read: PKCS #8 is",
    ),
    (b"-----BEGIN DSA PRIVATE KEY-----", "the private key is of DSA, which TLS has given up"),
];

const ENCRYPTED: &str = "the private key is encrypted, and nobody can be asked for its passphrase: \
                         openssl pkey -in KEY -out NEW decrypts it";

/// Message about an unsupported private key in a file; `None` if there is none, or the cause is
/// unknown.
pub(super) fn of_file(bytes: &[u8]) -> Option<&'static str> {
    let has = |label: &[u8]| bytes.windows(label.len()).any(|part| part == label);
    LABELS.iter().find(|(label, _)| has(label)).map(|(_, why)| *why)
}

/// Message about a private key that cannot be used.
pub(super) fn of_key(key: &PrivateKeyDer<'_>) -> String {
    let why = match key {
        PrivateKeyDer::Pkcs1(key) => rsa(key.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(key) => sec1(key.secret_sec1_der()),
        PrivateKeyDer::Pkcs8(key) => pkcs8(key.secret_pkcs8_der()),
        _ => None,
    };
    why.unwrap_or_else(|| "it is broken, or of a kind that is not taken".to_owned())
}

/// RFC 5208 section 5.
fn pkcs8(der: &[u8]) -> Option<String> {
    let mut parts = sequence(der)?;
    let (INTEGER, _version) = parts.next()? else { return None };
    let (SEQUENCE, algorithm) = parts.next()? else { return None };
    let (OCTETS, key) = parts.next()? else { return None };
    let mut algorithm = Der(algorithm);
    let (IDENTIFIER, id) = algorithm.next()? else { return None };
    match &*numbers(id) {
        "1.2.840.113549.1.1.1" => rsa(key),
        "1.2.840.10045.2.1" => curve(algorithm.next()?),
        "1.2.840.10040.4.1" => Some("it is of DSA, which TLS has given up".to_owned()),
        "1.2.840.113549.1.1.10" => Some("it is of RSA-PSS alone; RSA is taken".to_owned()),
        "1.3.101.113" => Some("it is of Ed448; Ed25519 is taken".to_owned()),
        "1.3.101.112" => None,
        other => Some(format!("it is of an algorithm that is not known here ({other})")),
    }
}

/// RFC 8017 appendix A.1.2.
fn rsa(der: &[u8]) -> Option<String> {
    let mut parts = sequence(der)?;
    let (INTEGER, _version) = parts.next()? else { return None };
    let (INTEGER, modulus) = parts.next()? else { return None };
    let zeros = modulus.iter().position(|byte| *byte != 0)?;
    let bits = (modulus.len() - zeros) * 8 - modulus[zeros].leading_zeros() as usize;
    (!RSA_BITS.contains(&bits)).then(|| {
        format!(
            "it is of RSA with {bits} bits; {} to {} are taken",
            RSA_BITS.start(),
            RSA_BITS.end()
        )
    })
}

/// RFC 5915 section 3.
fn sec1(der: &[u8]) -> Option<String> {
    let mut parts = sequence(der)?;
    let (_, parameters) = parts.find(|(tag, _)| *tag == PARAMETERS)?;
    curve(Der(parameters).next()?)
}

fn curve(parameters: (u8, &[u8])) -> Option<String> {
    let name = match parameters {
        (IDENTIFIER, id) => numbers(id),
        _ => "with parameters of its own".to_owned(),
    };
    let name = match &*name {
        "1.2.840.10045.3.1.7" | "1.3.132.0.34" | "1.3.132.0.35" => return None,
        "1.3.132.0.10" => "secp256k1",
        other => other,
    };
    Some(format!("it is on the curve {name}; P-256, P-384 and P-521 are taken"))
}

fn sequence(der: &[u8]) -> Option<Der<'_>> {
    match Der(der).next()? {
        (SEQUENCE, parts) => Some(Der(parts)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let size = content.len() as u16;
        [&[tag, 0x82], &size.to_be_bytes()[..], &content].concat()
    }

    /// An RSA private key, up to the parts that are parsed.
    fn rsa_key(modulus: &[u8]) -> Vec<u8> {
        value(SEQUENCE, &[&value(INTEGER, &[&[0]]), &value(INTEGER, &[modulus])])
    }

    fn in_pkcs8(algorithm: &[&[u8]], key: &[u8]) -> Vec<u8> {
        let version = value(INTEGER, &[&[0]]);
        value(SEQUENCE, &[&version, &value(SEQUENCE, algorithm), &value(OCTETS, &[key])])
    }

    #[test]
    fn fault_of_a_key_is_described() {
        let id = |bytes: &[u8]| value(IDENTIFIER, &[bytes]);
        let small = rsa_key(&[&[0][..], &[0xff; 128]].concat());
        let of_rsa = id(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]);
        let of_dsa = id(&[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1]);
        let of_ec = id(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]);
        let secp256k1 = id(&[0x2b, 0x81, 4, 0, 10]);
        for (der, wanted) in [
            (in_pkcs8(&[&of_rsa], &small), "RSA with 1024 bits; 2048 to 8192 are taken"),
            (in_pkcs8(&[&of_rsa], &rsa_key(&[0x7f; 1025])), "RSA with 8199 bits"),
            (in_pkcs8(&[&of_rsa], &rsa_key(&[0x80; 256])), "it is broken, or of a kind"),
            (in_pkcs8(&[&of_dsa], &[]), "it is of DSA"),
            (in_pkcs8(&[&of_ec, &secp256k1], &[]), "on the curve secp256k1; P-256"),
            (in_pkcs8(&[&of_ec, &id(&[0x2b, 1])], &[]), "on the curve 1.3.1;"),
            (in_pkcs8(&[&id(&[0x2b, 0x65, 0x71])], &[]), "Ed448"),
            (in_pkcs8(&[&id(&[0x2b, 2])], &[]), "an algorithm that is not known here (1.3.2)"),
            (vec![SEQUENCE, 0], "it is broken"),
        ] {
            let description = of_key(&PrivateKeyDer::Pkcs8(der.into()));
            assert!(description.contains(wanted), "{description}, not {wanted}");
        }
        assert!(of_key(&PrivateKeyDer::Pkcs1(small.into())).contains("1024 bits"));
        let parts =
            [value(INTEGER, &[&[1]]), value(OCTETS, &[&[7]]), value(PARAMETERS, &[&secp256k1])];
        let sec1 = value(SEQUENCE, &[&parts.concat()]);
        assert!(of_key(&PrivateKeyDer::Sec1(sec1.into())).contains("secp256k1"));
    }

    #[test]
    fn keys_that_are_not_read_are_named() {
        for (text, wanted) in [
            ("x\n-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA", Some("openssl pkey")),
            ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n", Some("openssl pkey")),
            ("-----BEGIN OPENSSH PRIVATE KEY-----", Some("PKCS #8")),
            ("-----BEGIN DSA PRIVATE KEY-----", Some("DSA")),
            ("-----BEGIN PRIVATE KEY-----", None),
        ] {
            let description = of_file(text.as_bytes());
            assert_eq!(description.is_some(), wanted.is_some(), "{text}");
            assert!(
                description.unwrap_or_default().contains(wanted.unwrap_or_default()),
                "{description:?}"
            );
        }
    }
}
