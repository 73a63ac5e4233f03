//! Certificates of clients: asked for, verified, and let through or not (`ssl.verifyclient.*`).

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::materials::Materials;
use super::tls_error::TlsError;

/// How clients' certificates are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthOptions {
    /// PEM file of the authorities that certificates are verified against.
    pub ca_file: Arc<str>,
    /// PEM file whose subjects are named to clients; `None`: those of `ca_file`.
    pub ca_dn_file: Option<Arc<str>>,
    /// PEM file of revocation lists; `None`: revocation is not checked.
    pub crl_file: Option<Arc<str>>,
    /// Whether a handshake fails without a certificate that can be verified.
    pub is_enforced: bool,
    /// Certificates that a chain may have behind the leaf.
    pub depth: u8,
}

/// Verifies clients' certificates as a policy says.
#[derive(Debug)]
pub(super) struct ClientAuth {
    webpki: Arc<dyn ClientCertVerifier>,
    hints: Vec<DistinguishedName>,
    is_enforced: bool,
    depth: u8,
}

/// What became of a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientVerdict {
    /// It has sent none.
    None,
    /// An authority that is trusted has signed it.
    Verified,
    /// It is let through all the same, because nothing is enforced.
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
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        if let Some(path) = &options.crl_file {
            builder =
                builder.with_crls(materials.revocations(path)).allow_unknown_revocation_status();
        }
        let webpki = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { webpki, hints, is_enforced: options.is_enforced, depth: options.depth })
    }

    /// Judges a chain, the leaf first; also one that was remembered with a session.
    pub(super) fn judge(&self, chain: Option<&[CertificateDer<'static>]>) -> ClientVerdict {
        let Some([leaf, rest @ ..]) = chain else { return ClientVerdict::None };
        match self.verify(leaf, rest, UnixTime::now()) {
            Ok(_) => ClientVerdict::Verified,
            Err(error) => ClientVerdict::Failed(words(&error)),
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
        if rest.len() > usize::from(self.depth) {
            return Err(Error::General("certificate chain too long".to_owned()));
        }
        self.webpki.verify_client_cert(leaf, rest, now)
    }
}

fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) => {
            "unable to get local issuer certificate".to_owned()
        }
        Error::InvalidCertificate(
            rustls::CertificateError::Expired | rustls::CertificateError::ExpiredContext { .. },
        ) => "certificate has expired".to_owned(),
        Error::InvalidCertificate(
            rustls::CertificateError::NotValidYet
            | rustls::CertificateError::NotValidYetContext { .. },
        ) => "certificate is not yet valid".to_owned(),
        Error::InvalidCertificate(rustls::CertificateError::Revoked) => {
            "certificate revoked".to_owned()
        }
        Error::General(text) => text.clone(),
        other => other.to_string(),
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
            // What failed is said of the request (SSL_CLIENT_VERIFY).
            _ => Ok(ClientCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
