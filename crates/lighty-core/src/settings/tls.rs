//! TLS settings: the `ssl.*` directives for a listener and for the host that a client names.

use std::sync::Arc;

use lighty_io::tls::{Ciphers, ClientAuthOptions, PairFiles, PolicyOptions};

use crate::module_settings;

/// Settings from `ssl.*`.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// The listener uses TLS.
    pub engine: bool,
    /// `ssl.pemfile`: certificates with their chains, in PEM, the preferred one first.
    pub pemfiles: Vec<Arc<str>>,
    /// `ssl.privkey`: the private keys in the same order, in PEM. A missing key is in its
    /// `pemfile`.
    pub privkeys: Vec<Arc<str>>,
    /// `ssl.stapling-file`: OCSP responses for the certificates, in DER.
    pub staples: Vec<Arc<str>>,
    /// The server obtains the certificate itself: `acme.activate` follows `ssl.pemfile`.
    pub is_managed: bool,
    /// `ssl.verifyclient.*`.
    pub client_auth: ClientAuthSettings,
    /// `ssl.openssl.ssl-conf-cmd`.
    pub conf_cmd: ConfCmd,
    /// `ssl.cipher-list`, which `CipherString` in `ssl.openssl.ssl-conf-cmd` replaces.
    pub cipher_list: Option<Ciphers>,
    /// `ssl.acme-tls-1`: directory of challenge certificates (tls-alpn-01) from another program.
    pub acme_tls_1: Option<Arc<str>>,
    /// `ssl.stek-file`: keys of session tickets; outside all conditions.
    pub stek_file: Option<Arc<str>>,
    /// `ssl.key-log-file`: file for the secrets of all connections; outside all conditions.
    pub key_log_file: Option<Arc<str>>,
    /// Aborted handshakes are logged too.
    pub log_noise: bool,
}

module_settings!(TlsSettings);

/// `ssl.verifyclient.*`: treatment of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthSettings {
    /// The server requests certificates.
    pub is_active: bool,
    /// Handshakes without a valid certificate fail.
    pub is_enforced: bool,
    /// Maximum certificates of a chain after the leaf.
    pub depth: u8,
    /// PEM file of the authorities that certificates are verified against.
    pub ca_file: Option<Arc<str>>,
    /// PEM file of the CA names sent to clients; `None`: the names in `ca_file`.
    pub ca_dn_file: Option<Arc<str>>,
    /// PEM file of revocation lists; `None`: revocation is not checked.
    pub crl_file: Option<Arc<str>>,
    /// The variable that holds the user name.
    pub username: Option<Arc<str>>,
    /// The certificate is passed to programs and backends as SSL_CLIENT_CERT.
    pub exports_certificate: bool,
}

impl Default for ClientAuthSettings {
    fn default() -> Self {
        Self {
            is_active: false,
            is_enforced: true,
            depth: 9,
            ca_file: None,
            ca_dn_file: None,
            crl_file: None,
            username: None,
            exports_certificate: false,
        }
    }
}

/// `ssl.openssl.ssl-conf-cmd`: versions, suites and options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfCmd {
    /// Allows TLS 1.2 (RFC 5246).
    pub tls12: bool,
    /// Allows TLS 1.3 (RFC 8446).
    pub tls13: bool,
    /// Suites and groups.
    pub ciphers: Ciphers,
    /// Prefers the server's order of suites to the client's.
    pub prefers_own_order: bool,
    /// Allows session resumption by tickets.
    pub tickets: bool,
}

impl Default for ConfCmd {
    fn default() -> Self {
        let ciphers = Ciphers::default();
        Self { tls12: true, tls13: true, ciphers, prefers_own_order: false, tickets: true }
    }
}

impl TlsSettings {
    /// The configured certificates and their keys.
    pub fn pairs(&self) -> Vec<PairFiles> {
        let key_of = |index| self.privkeys.get(index).cloned();
        let pair = |(index, chain)| PairFiles { chain: Arc::clone(chain), key: key_of(index) };
        self.pemfiles.iter().enumerate().map(pair).collect()
    }

    /// Options of connections under these settings; `alpn` lists the protocols above TLS.
    ///
    /// # Errors
    /// A directive is missing.
    pub fn policy_options(
        &self,
        alpn: Vec<&'static str>,
    ) -> Result<PolicyOptions, ClientAuthError> {
        let conf = &self.conf_cmd;
        let mut ciphers = conf.ciphers.clone();
        if let Some(list) = &self.cipher_list {
            ciphers.set_default_tls12(list);
        }
        Ok(PolicyOptions {
            pairs: if self.is_managed { Vec::new() } else { self.pairs() },
            staples: self.staples.clone(),
            chain_file: self.client_auth.ca_file.clone(),
            tls12: conf.tls12,
            tls13: conf.tls13,
            prefers_own_order: conf.prefers_own_order || self.cipher_list.is_some(),
            tickets: conf.tickets,
            ciphers,
            client_auth: self.client_auth.options()?,
            alpn,
            unnamed: None,
        })
    }
}

/// Reason why the settings of client authentication cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientAuthError {
    /// `ssl.verifyclient.ca-file` is missing.
    #[error(
        "ssl.verifyclient.activate needs ssl.verifyclient.ca-file, which says whose certificates \
         count"
    )]
    NoCaFile,
}

impl ClientAuthSettings {
    /// Options of client authentication; `None` if no certificates are requested.
    ///
    /// # Errors
    /// A directive is missing.
    pub fn options(&self) -> Result<Option<ClientAuthOptions>, ClientAuthError> {
        if !self.is_active {
            return Ok(None);
        }
        Ok(Some(ClientAuthOptions {
            ca_file: Arc::clone(self.ca_file.as_ref().ok_or(ClientAuthError::NoCaFile)?),
            ca_dn_file: self.ca_dn_file.clone(),
            crl_file: self.crl_file.clone(),
            is_enforced: self.is_enforced,
            depth: self.depth,
        }))
    }
}
