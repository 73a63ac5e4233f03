//! A policy: the TLS configuration of some connections, built once for all of them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CipherSuite, NamedGroup, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version,
};

use super::certificate::CertificateNames;
use super::client_auth::{ClientAuth, ClientAuthOptions};
use super::compression;
use super::key_log::KeyLog;
use super::materials::Materials;
use super::names;
use super::on_demand::OnDemandPairs;
use super::pem_file::PairFiles;
use super::tickets::TicketKeys;
use super::tls_error::TlsError;
use crate::clock::Clock;

/// The ALPN protocol in which authorities validate a challenge (RFC 8737 section 6.2).
pub(super) const PROOF: &str = "acme-tls/1";

/// Options for building a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyOptions {
    /// The server's certificates, the preferred one first: a client gets the first one with a
    /// signature that it supports. Empty: the server obtains certificates by itself, and chooses by
    /// the name.
    pub pairs: Vec<PairFiles>,
    /// Files of OCSP responses for them, in any order.
    pub staples: Vec<Arc<str>>,
    /// Authorities that complete the chain of a single certificate.
    pub chain_file: Option<Arc<str>>,
    /// TLS 1.2 (RFC 5246) is enabled.
    pub tls12: bool,
    /// TLS 1.3 (RFC 8446) is enabled.
    pub tls13: bool,
    /// The server's order of suites takes precedence over the client's.
    pub prefers_own_order: bool,
    /// Sessions can be resumed.
    pub tickets: bool,
    /// Suites and groups; `None`: all, in the library's order.
    pub ciphers: Ciphers,
    /// Client certificates; `None`: not requested.
    pub client_auth: Option<ClientAuthOptions>,
    /// Protocols offered by ALPN.
    pub alpn: Vec<&'static str>,
    /// The address assumed for clients that send no server name.
    pub unnamed: Option<IpAddr>,
}

/// Suites and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ciphers {
    tls12: Option<Vec<CipherSuite>>,
    tls13: Option<Vec<CipherSuite>>,
    groups: Option<Vec<NamedGroup>>,
}

impl Ciphers {
    /// Sets the TLS 1.2 suites from an OpenSSL cipher string.
    ///
    /// # Errors
    /// A message if none is left.
    pub fn set_tls12(&mut self, text: &str) -> Result<(), TlsError> {
        self.tls12 = Some(names::tls12_suites(text)?);
        Ok(())
    }

    /// Sets the TLS 1.2 suites from `other` if they are not set here.
    pub fn set_default_tls12(&mut self, other: &Ciphers) {
        self.tls12 = self.tls12.take().or_else(|| other.tls12.clone());
    }

    /// Sets the TLS 1.3 suites from a list. Returns the names that lighty does not support.
    ///
    /// # Errors
    /// A message if none is left.
    pub fn set_tls13(&mut self, text: &str) -> Result<Vec<String>, TlsError> {
        let (suites, missing) = names::tls13_suites(text)?;
        self.tls13 = Some(suites);
        Ok(missing)
    }

    /// Sets the key exchange groups from a list. Returns the names that lighty does not support.
    ///
    /// # Errors
    /// A message if none is left.
    pub fn set_groups(&mut self, text: &str) -> Result<Vec<String>, TlsError> {
        let (groups, missing) = names::groups(text)?;
        self.groups = Some(groups);
        Ok(missing)
    }
}

/// TLS configuration of some connections.
#[derive(Debug)]
pub struct Policy {
    pub(super) config: Arc<ServerConfig>,
    pub(super) client_auth: Option<Arc<ClientAuth>>,
    client_auth_options: Option<ClientAuthOptions>,
    /// The enabled versions, for messages.
    pub(super) versions: &'static str,
    /// A session can only be resumed under a policy with the same identity.
    pub(super) identity: String,
}

impl Policy {
    /// Builds a policy from loaded materials.
    ///
    /// # Errors
    /// A message: a file in the options is not loaded or cannot be used.
    pub fn new(
        options: &PolicyOptions,
        materials: &Materials,
        tickets: &TicketKeys,
    ) -> Result<Self, TlsError> {
        let ciphers = &options.ciphers;
        let provider = names::provider(
            ciphers.tls12.as_deref(),
            ciphers.tls13.as_deref(),
            ciphers.groups.as_deref(),
        );
        let resolver = resolver(options, materials, &provider)?;
        let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
        versions.extend(options.tls13.then_some(&version::TLS13));
        versions.extend(options.tls12.then_some(&version::TLS12));
        let builder = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .map_err(|error| error.to_string())?;
        let client_auth = options.client_auth.as_ref();
        let client_auth = client_auth.map(|auth| ClientAuth::new(auth, materials).map(Arc::new));
        let client_auth = client_auth.transpose()?;
        let builder = match &client_auth {
            Some(auth) => builder.with_client_cert_verifier(Arc::clone(auth) as _),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(resolver);
        let identity = identity(options);
        config.ignore_client_order = options.prefers_own_order;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = options.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.enable_secret_extraction = true;
        config.cert_compressors = compression::compressors();
        // Compressed client certificates are not accepted.
        config.cert_decompressors = Vec::new();
        if options.tickets {
            config.ticketer = tickets.for_policy(&identity);
        } else {
            config.send_tls13_tickets = 0;
        }
        let client_auth_options = options.client_auth.clone();
        let versions = match (options.tls12, options.tls13) {
            (true, true) => "TLS 1.2 and 1.3",
            (true, false) => "TLS 1.2",
            (false, _) => "TLS 1.3",
        };
        Ok(Self { config: Arc::new(config), client_auth, client_auth_options, versions, identity })
    }

    /// Writes the secrets of connections to a file, if there is one.
    #[must_use]
    pub fn logging_keys_to(mut self, key_log: Option<&KeyLog>) -> Self {
        if let (Some(key_log), Some(config)) = (key_log, Arc::get_mut(&mut self.config)) {
            config.key_log = key_log.for_policy();
        }
        self
    }

    /// A policy for the handshake in which an authority validates a challenge: the certificate is
    /// the proof, and no data follows.
    ///
    /// # Errors
    /// A message: the files cannot be read, or do not hold a certificate and its key.
    pub fn of_proof(files: PairFiles) -> Result<Self, TlsError> {
        let materials = Materials::default();
        materials.load_pair(&files)?;
        let options = PolicyOptions {
            pairs: vec![files],
            staples: Vec::new(),
            chain_file: None,
            tls12: true,
            tls13: true,
            prefers_own_order: false,
            tickets: false,
            ciphers: Ciphers::default(),
            client_auth: None,
            alpn: vec![PROOF],
            unnamed: None,
        };
        Self::new(&options, &materials, &TicketKeys::default())
    }

    /// Options for client certificates, if they are requested.
    pub fn client_auth_options(&self) -> Option<&ClientAuthOptions> {
        self.client_auth_options.as_ref()
    }

    /// True if a session of one may be resumed under the other: both demand the same of clients.
    pub fn admits_sessions_of(&self, other: &Policy) -> bool {
        self.identity == other.identity
    }
}

/// The options that must be the same for resuming a session under another policy.
fn identity(options: &PolicyOptions) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{:?} {:?}", options.client_auth, options.alpn);
    text
}

/// Completes the chain of a single certificate with the authorities in the file, without the root.
fn complete(
    pair: Arc<CertifiedKey>,
    chain_file: Option<&str>,
    materials: &Materials,
) -> Arc<CertifiedKey> {
    let ([leaf], Some(chain_file)) = (&pair.cert[..], chain_file) else { return pair };
    let authorities = materials.authorities(chain_file);
    let mut chain = vec![leaf.clone()];
    while let Some(names) = chain.last().and_then(|last| CertificateNames::read(last))
        && names.issuer != names.subject
        && chain.len() <= authorities.len()
    {
        // The root is left out: clients that trust it have it, and others gain nothing from it.
        let is_issuer = |one: &&CertificateDer<'_>| {
            CertificateNames::read(one)
                .is_some_and(|other| other.subject == names.issuer && other.issuer != other.subject)
        };
        let Some(issuer) = authorities.iter().find(is_issuer) else { break };
        chain.push(issuer.clone());
    }
    Arc::new(CertifiedKey { cert: chain, key: Arc::clone(&pair.key), ocsp: pair.ocsp.clone() })
}

fn resolver(
    options: &PolicyOptions,
    materials: &Materials,
    provider: &CryptoProvider,
) -> Result<Arc<dyn ResolvesServerCert>, TlsError> {
    if options.pairs.is_empty() {
        let by_name = ByName::new(materials.managed(), materials.on_demand(), options.unnamed);
        return Ok(Arc::new(by_name.ok_or("ssl.pemfile is not set")?));
    }
    Ok(Arc::new(CertificateChoice::new(options, materials, provider)?))
}

/// Chooses the certificate for the requested name, or the first one.
#[derive(Debug)]
struct ByName {
    names: HashMap<String, Arc<CertifiedKey>>,
    on_demand: OnDemandPairs,
    first: Arc<CertifiedKey>,
    /// For clients that send no server name.
    unnamed: Arc<CertifiedKey>,
}

impl ByName {
    fn new(
        pairs: Vec<(Arc<[String]>, Arc<CertifiedKey>)>,
        on_demand: &OnDemandPairs,
        unnamed: Option<IpAddr>,
    ) -> Option<Self> {
        let first = Arc::clone(&pairs.first()?.1);
        let mut names = HashMap::new();
        for (own, pair) in &pairs {
            for name in own.iter() {
                names.entry(name.clone()).or_insert_with(|| Arc::clone(pair));
            }
        }
        let unnamed = unnamed.and_then(|address| names.get(&address.to_string()));
        let unnamed = Arc::clone(unnamed.unwrap_or(&first));
        Some(Self { names, on_demand: on_demand.clone(), first, unnamed })
    }

    fn find(&self, wanted: Option<&str>) -> Arc<CertifiedKey> {
        let Some(wanted) = wanted else { return Arc::clone(&self.unnamed) };
        let wanted = wanted.to_ascii_lowercase();
        let wildcard = || self.names.get(&format!("*.{}", wanted.split_once('.')?.1));
        let configured = self.names.get(&wanted).or_else(wildcard).cloned();
        let found = configured.or_else(|| self.on_demand.find(&wanted));
        found.unwrap_or_else(|| Arc::clone(&self.first))
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let pair = self.find(hello.server_name());
        pair.key.choose_scheme(hello.signature_schemes())?;
        Some(pair)
    }
}

/// Chooses the first certificate whose signatures the client can verify.
#[derive(Debug)]
struct CertificateChoice {
    all: Vec<Arc<CertifiedKey>>,
    /// The enabled suites.
    suites: Vec<SupportedCipherSuite>,
}

impl CertificateChoice {
    fn new(
        options: &PolicyOptions,
        materials: &Materials,
        provider: &CryptoProvider,
    ) -> Result<Self, TlsError> {
        let (chain_file, now_s) = (options.chain_file.as_deref(), Clock::start().unix_s());
        let pairs = options.pairs.iter().map(|files| {
            let pair = materials.pair(files);
            let pair = pair.ok_or_else(|| format!("{}: not loaded", files.chain))?;
            let mut pair = complete(pair, chain_file, materials);
            let leaf = pair.cert.first();
            let staple = leaf.and_then(|leaf| materials.staple(&options.staples, leaf, now_s));
            if staple.is_some() {
                Arc::make_mut(&mut pair).ocsp = staple;
            }
            Ok(pair)
        });
        let all = pairs.collect::<Result<_, TlsError>>()?;
        let is_spoken = |suite: &&SupportedCipherSuite| match suite {
            SupportedCipherSuite::Tls12(_) => options.tls12,
            SupportedCipherSuite::Tls13(_) => options.tls13,
        };
        let suites = provider.cipher_suites.iter().filter(is_spoken).copied().collect();
        Ok(Self { all, suites })
    }

    /// True if client and server share a suite for the key. In TLS 1.3 suites work with every key.
    fn has_suite(&self, hello: &ClientHello<'_>, pair: &CertifiedKey) -> bool {
        let algorithm = pair.key.algorithm();
        self.suites.iter().any(|suite| {
            suite.usable_for_signature_algorithm(algorithm)
                && hello.cipher_suites().contains(&suite.suite())
        })
    }
}

impl ResolvesServerCert for CertificateChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_verified =
            |pair: &&Arc<CertifiedKey>| pair.key.choose_scheme(hello.signature_schemes()).is_some();
        let mut all = self.all.iter().filter(is_verified);
        let first = all.clone().next();
        // Without a common signature or suite, rustls reports the error and sends the alert.
        all.find(|pair| self.has_suite(&hello, pair)).or(first).or(self.all.first()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_before_wildcards_and_others_get_the_first() {
        let materials = Materials::default();
        for names in [&["a.test", "www.a.test"][..], &["*.b.test"], &["c.b.test"], &["192.0.2.7"]] {
            let names: Arc<[String]> = names.iter().map(|name| (*name).to_owned()).collect();
            let file = format!("/none/{}", names[0]).into();
            materials.load_managed(&names, &file, &Materials::default()).expect("a placeholder");
        }
        assert!(materials.has_managed());
        let all = materials.managed();
        let make =
            |address: &str| ByName::new(all.clone(), materials.on_demand(), address.parse().ok());
        let by_name = make("").expect("certificates");
        for (wanted, at) in [
            (Some("a.test"), 0),
            (Some("WWW.a.test"), 0),
            (Some("x.b.test"), 1),
            (Some("c.b.test"), 2),
            (Some("b.test"), 0),
            (Some("x.y.b.test"), 0),
            (Some("other"), 0),
            (None, 0),
        ] {
            assert!(Arc::ptr_eq(&by_name.find(wanted), &all[at].1), "{wanted:?}");
        }
        for (address, at) in [("192.0.2.7", 3), ("192.0.2.8", 0)] {
            let by_name = make(address).expect("certificates");
            assert!(Arc::ptr_eq(&by_name.find(None), &all[at].1), "{address}");
            assert!(Arc::ptr_eq(&by_name.find(Some("other")), &all[0].1));
        }
        assert!(ByName::new(Vec::new(), materials.on_demand(), None).is_none());
    }
}
