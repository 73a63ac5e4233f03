//! TLS configuration for one server: trust, client certificate, sessions to resume.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::bare_key::{self, SignedIn};
use super::certificate;
use super::materials::Materials;
use super::names;
use super::pem_file::PairFiles;
use super::tls_error::TlsError;

/// Sessions kept per server: as many tickets as rustls keeps for a name.
const SESSIONS_MAX: usize = 8;

/// Bundles of trusted authorities of the system: Debian, Fedora, openSUSE, Alpine.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file of authorities that the system trusts, `SSL_CERT_FILE` first; `None` if it has none.
/// Searched for once, so that a later chroot does not hide it.
pub fn system_authorities() -> Option<&'static Arc<str>> {
    static FOUND: OnceLock<Option<Arc<str>>> = OnceLock::new();
    let look = || {
        let named = std::env::var("SSL_CERT_FILE").ok();
        let known = SYSTEM_AUTHORITIES.into_iter().map(str::to_owned);
        let mut files = named.into_iter().chain(known);
        files.find(|path| Path::new(path).is_file()).map(Arc::from)
    };
    FOUND.get_or_init(look).as_ref()
}

/// Options for building a [`ClientPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientOptions {
    /// The name or the address that the server's certificate must be for. A name is sent to the
    /// server (SNI, RFC 6066 section 3).
    pub server_name: Arc<str>,
    /// PEM file of the trusted authorities; `None`: [`system_authorities`].
    pub ca_file: Option<Arc<str>>,
    /// Verify the certificate.
    pub is_verified: bool,
    /// The client's certificate, for a server that requests one.
    pub pair: Option<PairFiles>,
    /// Protocols offered by ALPN.
    pub alpn: &'static [&'static str],
}

impl ClientOptions {
    /// The file of trusted authorities, if certificates are verified and there is one.
    pub fn authorities(&self) -> Option<&Arc<str>> {
        let file = self.ca_file.as_ref().or_else(|| system_authorities());
        file.filter(|_| self.is_verified)
    }
}

/// TLS configuration for one server, with the sessions to resume.
#[derive(Debug)]
pub struct ClientPolicy {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl ClientPolicy {
    /// Builds a policy from loaded materials.
    ///
    /// # Errors
    /// A message: a file in the options is not loaded or cannot be used.
    pub fn new(options: &ClientOptions, materials: &Materials) -> Result<Self, TlsError> {
        let name = ServerName::try_from(options.server_name.as_ref().to_owned());
        let name = name.map_err(|_| format!("{}: it is no host name", options.server_name))?;
        let provider = Arc::new(names::provider(None, None, None));
        let verifier: Arc<dyn ServerCertVerifier> = match options.is_verified {
            true => {
                let file = options.authorities().ok_or("the system has no file of authorities")?;
                Arc::new(Verified::new(file, materials.authorities(file), &provider)?)
            }
            false => Arc::new(Unverified(Arc::clone(&provider))),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &options.pair {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let pair = materials.pair(files);
                let pair = pair.ok_or_else(|| format!("{}: not loaded", files.chain))?;
                let pair = SingleCertAndKey::from((*pair).clone());
                builder.with_client_cert_resolver(Arc::new(pair))
            }
        };
        config.alpn_protocols = options.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        config.enable_secret_extraction = true;
        Ok(Self { config: Arc::new(config), name })
    }
}

/// Accepts certificates signed by a trusted authority, and certificates that are in the file
/// themselves.
#[derive(Debug)]
pub(super) struct Verified {
    webpki: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Verified {
    /// Trusts the certificates read from `file`.
    pub(super) fn new(
        file: &str,
        trusted: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(trusted.iter().cloned());
        if added == 0 {
            return Err(format!("{file}: no certificate in it can be used").into());
        }
        let webpki =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let webpki = webpki.build().map_err(|error| error.to_string())?;
        Ok(Self { webpki, trusted })
    }

    /// Accepts a server's own certificate that is in the file: self-signed ones are not
    /// authorities.
    fn verify_known(
        &self,
        leaf: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Option<Result<ServerCertVerified, Error>> {
        self.trusted.iter().find(|known| known.as_ref() == leaf.as_ref())?;
        let valid = certificate::validity(leaf)?;
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let verdict = match now_s {
            now_s if now_s < valid.start => Err(CertificateError::NotValidYet.into()),
            now_s if now_s >= valid.end => Err(CertificateError::Expired.into()),
            _ => ParsedCertificate::try_from(leaf)
                .and_then(|parsed| verify_server_name(&parsed, name)),
        };
        Some(verdict.map(|()| ServerCertVerified::assertion()))
    }
}

impl ServerCertVerifier for Verified {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let by_authority = self.webpki.verify_server_cert(leaf, rest, name, ocsp, now);
        by_authority.or_else(|error| self.verify_known(leaf, name, now).unwrap_or(Err(error)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Accepts any certificate whose key signs the handshake.
#[derive(Debug)]
pub(super) struct Unverified(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        bare_key::verify(message, leaf, signed, algorithms, SignedIn::Tls12)
            .unwrap_or_else(|| verify_tls12_signature(message, leaf, signed, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        bare_key::verify(message, leaf, signed, algorithms, SignedIn::Tls13)
            .unwrap_or_else(|| verify_tls13_signature(message, leaf, signed, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
