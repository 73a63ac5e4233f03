//! Verifies handshake signatures by certificates that rustls cannot parse: versions before X.509
//! version 3, or with unsupported content. Trust in them is decided elsewhere.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};

use super::certificate::CertificateNames;

/// The version of TLS of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignedIn {
    Tls12,
    Tls13,
}

/// Verifies a signature by the key in a certificate that rustls cannot parse; `None` if it can.
pub(super) fn verify(
    message: &[u8],
    cert: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
    version: SignedIn,
) -> Option<Result<HandshakeSignatureValid, Error>> {
    let is_readable = ParsedCertificate::try_from(cert).is_ok();
    (!is_readable).then(|| verify_by_key(message, cert, signed, algorithms, version))
}

fn verify_by_key(
    message: &[u8],
    cert: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
    version: SignedIn,
) -> Result<HandshakeSignatureValid, Error> {
    let names = CertificateNames::read(cert).ok_or(CertificateError::BadEncoding)?;
    let (kind, key) = names.key().ok_or(CertificateError::BadEncoding)?;
    let known = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
    let fits = known.map_or(&[][..], |(_, algorithms)| *algorithms);
    let fits = match version {
        SignedIn::Tls12 => fits,
        // In TLS 1.3 a scheme implies one curve, that of the first algorithm.
        SignedIn::Tls13 if is_in_tls13(signed.scheme) => &fits[..fits.len().min(1)],
        SignedIn::Tls13 => &[],
    };
    if fits.is_empty() {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    let mut fits = fits.iter().filter(|algorithm| algorithm.public_key_alg_id().as_ref() == kind);
    match fits.any(|fit| fit.verify_signature(key, message, signed.signature()).is_ok()) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}

/// RFC 8446 section 4.2.3: no PKCS #1 and no SHA-1.
fn is_in_tls13(scheme: SignatureScheme) -> bool {
    use SignatureScheme as S;
    matches!(
        scheme,
        S::ECDSA_NISTP256_SHA256
            | S::ECDSA_NISTP384_SHA384
            | S::ECDSA_NISTP521_SHA512
            | S::RSA_PSS_SHA256
            | S::RSA_PSS_SHA384
            | S::RSA_PSS_SHA512
            | S::ED25519
            | S::ED448
    )
}
