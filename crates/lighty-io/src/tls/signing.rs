//! Generates keys, and signs with them: certificate requests, placeholder certificates, and
//! certificates for challenges in a handshake.

use std::sync::Arc;

use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::tls_error::TlsError;

/// Type of a site's private key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyType {
    /// ECDSA over P-256.
    #[default]
    P256,
    /// ECDSA over P-384.
    P384,
    /// RSA with 2048 bits.
    Rsa2048,
    /// RSA with 3072 bits.
    Rsa3072,
    /// RSA with 4096 bits.
    Rsa4096,
}

impl KeyType {
    /// All types, in the order of [`NAMES`](Self::NAMES).
    pub const ALL: [Self; 5] =
        [Self::P256, Self::P384, Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// Their names in configurations.
    pub const NAMES: &'static [&'static str] = &["p256", "p384", "rsa2048", "rsa3072", "rsa4096"];

    fn make(self) -> Result<KeyPair, rcgen::Error> {
        match self {
            Self::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            Self::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
            Self::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            Self::Rsa3072 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_3072),
            Self::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
        }
    }
}

/// A new key, and a certificate request for it (RFC 2986).
pub struct SigningRequest {
    /// The private key, in PEM.
    pub key_pem: String,
    /// The request, in DER.
    pub der: Vec<u8>,
}

impl SigningRequest {
    /// Generates a key and a request for these names.
    ///
    /// # Errors
    /// A message: a name is invalid, or no key can be generated.
    pub fn new(names: &[String], key_type: KeyType) -> Result<Self, TlsError> {
        let text = |error: rcgen::Error| error.to_string();
        let key = key_type.make().map_err(text)?;
        let mut params = CertificateParams::new(names).map_err(text)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(text)?;
        Ok(Self { key_pem: key.serialize_pem(), der: request.der().to_vec() })
    }
}

/// A self-signed certificate for a site until its own arrives. Clients do not trust it.
///
/// # Errors
/// A message: a name is invalid, or no key can be generated.
pub(super) fn placeholder(names: &[String]) -> Result<Arc<CertifiedKey>, TlsError> {
    let text = |error: rcgen::Error| error.to_string();
    let key = KeyType::default().make().map_err(text)?;
    let mut params = CertificateParams::new(names).map_err(text)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "lighty: the certificate is on its way");
    let own = params.self_signed(&key).map_err(text)?;
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = aws_lc_rs::sign::any_supported_type(&der).map_err(|error| error.to_string())?;
    Ok(Arc::new(CertifiedKey::new(vec![own.der().clone()], signing)))
}

/// The certificate, with its key, that proves control of a name in a handshake (RFC 8737 section
/// 3), in PEM. `digest` is the SHA-256 of the key authorization.
///
/// # Errors
/// A message: the name is invalid, or no key can be generated.
pub fn challenge_certificate(name: &str, digest: &[u8]) -> Result<String, TlsError> {
    let text = |error: rcgen::Error| error.to_string();
    let key = KeyType::default().make().map_err(text)?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(text)?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let own = params.self_signed(&key).map_err(text)?;
    Ok(own.pem() + &key.serialize_pem())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::super::certificate::CertificateFacts;
    use super::*;

    #[test]
    fn keys_are_of_the_kind_that_is_wanted() {
        let names = ["a.test".to_owned(), "*.b.test".to_owned()];
        for kind in [KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
            let request = SigningRequest::new(&names, kind).expect("a request");
            let key = PrivateKeyDer::from_pem_slice(request.key_pem.as_bytes()).expect("PEM");
            aws_lc_rs::sign::any_supported_type(&key).expect("a key");
            let has = |name: &[u8]| request.der.windows(name.len()).any(|part| part == name);
            assert!(has(b"a.test") && has(b"*.b.test"));
        }
        assert!(SigningRequest::new(&["ä".to_owned()], KeyType::P256).is_err());
        assert_eq!(KeyType::ALL.len(), KeyType::NAMES.len());
    }

    #[test]
    fn a_placeholder_is_for_its_names_and_does_not_expire() {
        let pair = placeholder(&["a.test".to_owned()]).expect("a certificate");
        let facts = CertificateFacts::read(&pair.cert[0]).expect("facts");
        assert_eq!(facts.names, ["a.test"]);
        assert!(facts.valid_s.end > 4_000_000_000);
    }

    #[test]
    fn a_challenge_is_answered_in_an_extension() {
        let pem = challenge_certificate("a.test", &[7; 32]).expect("a certificate");
        let der = rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
        // 1.3.6.1.5.5.7.1.31, critical, an OCTET STRING in an OCTET STRING.
        let wanted = [&[0x2b, 6, 1, 5, 5, 7, 1, 0x1f, 1, 1, 0xff, 4, 34, 4, 32][..], &[7; 32]];
        let wanted = wanted.concat();
        assert!(der.windows(wanted.len()).any(|part| part == wanted));
    }
}
