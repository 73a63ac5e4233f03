//! Client certificates: requested, verified, and accepted or refused (`ssl.verifyclient.*`).

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertRevocationListError, CertificateError, DigitallySignedStruct, DistinguishedName, Error,
    OtherError, RootCertStore, SignatureScheme,
};

use super::bare_key::{self, SignedIn};
use super::certificate::{allows_usage, key_usage};
use super::materials::Materials;
use super::tls_error::TlsError;
use crate::clock;

/// Options for client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthOptions {
    /// PEM file of the authorities that certificates are verified against.
    pub ca_file: Arc<str>,
    /// PEM file with the authorities whose subjects are sent to clients as hints; `None`:
    /// `ca_file`.
    pub ca_dn_file: Option<Arc<str>>,
    /// PEM file of revocation lists; `None`: revocation is not checked.
    pub crl_file: Option<Arc<str>>,
    /// Fails the handshake without a certificate that can be verified.
    pub is_enforced: bool,
    /// Maximum number of certificates after the leaf in a chain, including the trusted authority.
    pub depth: u8,
}

/// Verifies client certificates by a policy's options.
#[derive(Debug)]
pub(super) struct ClientAuth {
    webpki: Arc<dyn ClientCertVerifier>,
    algorithms: WebPkiSupportedAlgorithms,
    hints: Vec<DistinguishedName>,
    is_enforced: bool,
    depth: u8,
}

/// Result of verifying a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientVerdict {
    /// The client sent none.
    None,
    /// A trusted authority has signed it.
    Verified,
    /// Verification failed with this message, but is not enforced.
    Failed(String),
}

impl ClientAuth {
    pub(super) fn new(
        options: &ClientAuthOptions,
        materials: &Materials,
    ) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(materials.authorities(&options.ca_file));
        if added == 0 {
            return Err(format!("{}: no certificate in it can be used", options.ca_file).into());
        }
        let hints = match &options.ca_dn_file {
            Some(path) => {
                let mut named = RootCertStore::empty();
                named.add_parsable_certificates(materials.authorities(path));
                named.subjects()
            }
            None => roots.subjects(),
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        if let Some(path) = &options.crl_file {
            // Every authority of a chain needs a revocation list that has not expired.
            builder =
                builder.with_crls(materials.revocations(path)).enforce_revocation_expiration();
        }
        let webpki = builder.build().map_err(|error| error.to_string())?;
        let (is_enforced, depth) = (options.is_enforced, options.depth);
        Ok(Self { webpki, algorithms, hints, is_enforced, depth })
    }

    /// Verifies a chain, the leaf first; also one that was stored with a session.
    pub(super) fn judge(&self, chain: Option<&[CertificateDer<'static>]>) -> ClientVerdict {
        let Some([leaf, rest @ ..]) = chain else { return ClientVerdict::None };
        match self.verify(leaf, rest, UnixTime::since_unix_epoch(clock::unix_now())) {
            Ok(_) => ClientVerdict::Verified,
            Err(error) => ClientVerdict::Failed(message(&error)),
        }
    }

    pub(super) fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // rustls does not check keyUsage. OpenSSL requires one of these of clients.
        if !allows_usage(leaf, key_usage::DIGITAL_SIGNATURE | key_usage::KEY_AGREEMENT) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        let signs = |der: &&CertificateDer<'_>| allows_usage(der, key_usage::CERTIFICATE_SIGN);
        let signing: Vec<CertificateDer<'_>> = rest.iter().filter(signs).cloned().collect();
        let rest = &signing[..];
        let verified = self.webpki.verify_client_cert(leaf, rest, now)?;
        // Clients may send more certificates than needed, such as the authority itself.
        let is_within = usize::from(self.depth).checked_sub(1).is_some_and(|most| {
            let fewer = rest.get(..most);
            fewer.is_none_or(|rest| self.webpki.verify_client_cert(leaf, rest, now).is_ok())
        });
        match is_within {
            true => Ok(verified),
            false => Err(CertificateError::Other(OtherError(Arc::new(ChainTooLong))).into()),
        }
    }
}

/// The chain is longer than [`ClientAuthOptions::depth`].
#[derive(Debug, thiserror::Error)]
#[error("certificate chain too long")]
struct ChainTooLong;

fn message(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => certificate_message(why),
        Error::InvalidCertRevocationList(why) => crl_message(why).to_owned(),
        Error::General(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Message for a refused client certificate: OpenSSL's, if it has one.
pub(super) fn certificate_message(why: &CertificateError) -> String {
    use CertificateError as E;
    let message = match why {
        E::UnknownIssuer => "unable to get local issuer certificate",
        E::Expired | E::ExpiredContext { .. } => "certificate has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => "certificate is not yet valid",
        E::Revoked => "certificate revoked",
        E::UnknownRevocationStatus => "unable to get certificate CRL",
        E::ExpiredRevocationList | E::ExpiredRevocationListContext { .. } => "CRL has expired",
        E::BadSignature => "certificate signature failure",
        E::BadEncoding => "the certificate is broken",
        E::UnhandledCriticalExtension => "unhandled critical extension",
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => "unsuitable certificate purpose",
        E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the certificate is signed in a way that is not supported"
        }
        E::Other(other) => return other_message(&other.to_string()),
        _ => "the certificate is not accepted",
    };
    message.to_owned()
}

/// Message for an error of webpki that rustls only wraps, by its name.
fn other_message(debug_text: &str) -> String {
    let message = match debug_text.split(['(', ' ', '{']).next().unwrap_or_default() {
        "CaUsedAsEndEntity" => "the certificate is that of an authority",
        "EndEntityUsedAsCa" => "invalid CA certificate",
        "UnsupportedCertVersion" => {
            "the certificate is of an old version of X.509: version 3 is needed"
        }
        "PathLenConstraintViolated" => "path length constraint exceeded",
        "NameConstraintViolation" => "permitted subtree violation",
        "UnsupportedCriticalExtension" => "unhandled critical extension",
        _ if debug_text.contains(' ') => debug_text,
        _ => "the certificate is not accepted",
    };
    message.to_owned()
}

/// Message about a revocation list that cannot be used.
pub(super) fn crl_message(why: &CertRevocationListError) -> &'static str {
    match why {
        CertRevocationListError::BadSignature => "CRL signature failure",
        CertRevocationListError::IssuerInvalidForCrl => "CRL path validation error",
        _ => "the revocation list cannot be used",
    }
}

impl ClientCertVerifier for ClientAuth {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        self.is_enforced
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.verify(leaf, rest, now) {
            Err(error) if self.is_enforced => Err(error),
            // The failure is reported with the request (SSL_CLIENT_VERIFY).
            _ => Ok(ClientCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        bare_key::verify(message, cert, dss, &self.algorithms, SignedIn::Tls12)
            .unwrap_or_else(|| self.webpki.verify_tls12_signature(message, cert, dss))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        bare_key::verify(message, cert, dss, &self.algorithms, SignedIn::Tls13)
            .unwrap_or_else(|| self.webpki.verify_tls13_signature(message, cert, dss))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
