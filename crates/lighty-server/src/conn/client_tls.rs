//! What is known of the TLS that protects a client's connection, and what requests learn of it.

use std::rc::Rc;

use lighty_core::exchange::environment::Variables;
use lighty_core::settings::tls::{ClientAuthSettings, TlsSettings};
use lighty_core::{Exchange, Fault};
use lighty_io::tls::{ClientAuthOptions, TlsInfo};

/// The TLS of a client's connection: its own, or what a trusted proxy reports.
pub(crate) struct ClientTls {
    /// Variables for programs, backends and logs.
    variables: Rc<Variables>,
    /// The user that the client's certificate names.
    user: Option<Box<[u8]>>,
    /// What the client had to show; `None` if a proxy has asked for it.
    shown: Option<Option<ClientAuthOptions>>,
}

impl ClientTls {
    /// What a handshake has settled.
    pub(super) fn of(info: TlsInfo, _auth: &ClientAuthSettings) -> Self {
        let bits = info.cipher_bits.to_string();
        let mut variables = Variables::default();
        for (name, value) in [
            ("SSL_PROTOCOL", info.version),
            ("SSL_CIPHER", info.cipher),
            ("SSL_CIPHER_USEKEYSIZE", &bits),
            ("SSL_CIPHER_ALGKEYSIZE", &bits),
        ] {
            variables.push(name.as_bytes(), value.as_bytes());
        }
        let shown = Some(info.policy.client_auth_options().cloned());
        Self { variables: Rc::new(variables), user: None, shown }
    }

    /// As a trusted proxy reports it: `name` is the common name in a certificate that it has
    /// verified. The variables have the names of lighttpd's `mod_extforward`.
    pub(super) fn reported(name: Option<&[u8]>) -> Self {
        let mut variables = Variables::default();
        if let Some(name) = name {
            variables.push(b"SSL_CLIENT_VERIFY", b"SUCCESS");
            variables.push(b"SSL_CLIENT_S_DN_CN", name);
            variables.push(b"REMOTE_USER", name);
            variables.push(b"AUTH_TYPE", b"SSL_CLIENT_VERIFY");
        }
        let user = name.map(Into::into);
        Self { variables: Rc::new(variables), user, shown: None }
    }

    /// Tells a request, whose settings are not known yet.
    #[cold]
    pub(super) fn describe(&self, ex: &mut Exchange) {
        ex.environment.set_base(&self.variables);
        if let Some(user) = &self.user {
            ex.request.remote_user.extend_from_slice(user);
        }
    }

    /// Whether the request wants more of the client than it had to show for this connection: the
    /// host that it names is not the one that the handshake was for (RFC 9110 section 15.5.20).
    #[cold]
    pub(super) fn is_misdirected(&self, ex: &mut Exchange) -> bool {
        let Some(shown) = &self.shown else { return false };
        let wanted = ex.settings.module::<TlsSettings>().client_auth.options();
        let is_misdirected = wanted.as_ref() != Ok(shown);
        if is_misdirected {
            ex.fail(Fault::Misdirected);
        }
        is_misdirected
    }
}
