//! Settings of TLS: what `ssl.*` says for a listener and for the host that a client names.

use std::sync::Arc;

use lighty_io::tls::{Ciphers, ClientAuthOptions, PairFiles, PolicyOptions};

use crate::module_settings;

/// What `ssl.*` says.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// The listener speaks TLS.
    pub engine: bool,
    /// `ssl.pemfile`: certificates with their chains, in PEM, the preferred one first.
    pub pemfiles: Vec<Arc<str>>,
    /// `ssl.privkey`: their keys in the same order, in PEM; what is missing is in its `pemfile`.
    pub privkeys: Vec<Arc<str>>,
    /// `ssl.stapling-file`: OCSP responses about them, in DER.
    pub staples: Vec<Arc<str>>,
    /// The server gets the certificate by itself: `acme.activate` stands behind `ssl.pemfile`.
    pub is_managed: bool,
    /// `ssl.verifyclient.*`.
    pub client_auth: ClientAuthSettings,
    /// `ssl.openssl.ssl-conf-cmd`.
    pub conf_cmd: ConfCmd,
    /// `ssl.cipher-list`, which `CipherString` in `ssl.openssl.ssl-conf-cmd` replaces.
    pub cipher_list: Option<Ciphers>,
    /// `ssl.acme-tls-1`: directory of proofs that another program gives to authorities.
    pub acme_tls_1: Option<Arc<str>>,
    /// Keys of session tickets; outside all conditions.
    pub stek_file: Option<Arc<str>>,
    /// `ssl.key-log-file`: the secrets of all connections are written there; outside all
    /// conditions.
    pub key_log_file: Option<Arc<str>>,
    /// Clients that break a handshake off are logged too.
    pub log_noise: bool,
}

module_settings!(TlsSettings);

/// `ssl.verifyclient.*`: what is to become of clients' certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthSettings {
    /// Certificates are asked for.
    pub is_active: bool,
    /// A handshake without a certificate that can be verified fails.
    pub is_enforced: bool,
    /// Certificates that a chain may have behind the leaf.
    pub depth: u8,
    /// PEM file of the authorities that certificates are verified against.
    pub ca_file: Option<Arc<str>>,
    /// PEM file whose subjects are named to clients; `None`: those of `ca_file`.
    pub ca_dn_file: Option<Arc<str>>,
    /// PEM file of revocation lists; `None`: revocation is not checked.
    pub crl_file: Option<Arc<str>>,
    /// The variable whose value becomes the user.
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
    /// Whether TLS 1.2 (RFC 5246) is spoken.
    pub tls12: bool,
    /// Whether TLS 1.3 (RFC 8446) is spoken.
    pub tls13: bool,
    /// Suites and groups.
    pub ciphers: Ciphers,
    /// Whether the server's order of suites counts, and not the client's.
    pub prefers_own_order: bool,
    /// Whether sessions can be resumed by tickets.
    pub tickets: bool,
}

impl Default for ConfCmd {
    fn default() -> Self {
        let ciphers = Ciphers::default();
        Self { tls12: true, tls13: true, ciphers, prefers_own_order: false, tickets: true }
    }
}

impl TlsSettings {
    /// The certificates that are named, and their keys.
    pub fn pairs(&self) -> Vec<PairFiles> {
        let key_of = |index| self.privkeys.get(index).cloned();
        let pair = |(index, chain)| PairFiles { chain: Arc::clone(chain), key: key_of(index) };
        self.pemfiles.iter().enumerate().map(pair).collect()
    }

    /// How connections under these settings are to be; `alpn` names the protocols above TLS.
    ///
    /// # Errors
    /// In words: a directive that is missing.
    pub fn policy_options(&self, alpn: Vec<&'static str>) -> Result<PolicyOptions, &'static str> {
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

impl ClientAuthSettings {
    /// `None` if no certificates are asked for.
    ///
    /// # Errors
    /// In words: a directive that is missing.
    pub fn options(&self) -> Result<Option<ClientAuthOptions>, &'static str> {
        if !self.is_active {
            return Ok(None);
        }
        let missing = "ssl.verifyclient.activate needs ssl.verifyclient.ca-file, which says whose \
                       certificates count";
        Ok(Some(ClientAuthOptions {
            ca_file: Arc::clone(self.ca_file.as_ref().ok_or(missing)?),
            ca_dn_file: self.ca_dn_file.clone(),
            crl_file: self.crl_file.clone(),
            is_enforced: self.is_enforced,
            depth: self.depth,
        }))
    }
}
