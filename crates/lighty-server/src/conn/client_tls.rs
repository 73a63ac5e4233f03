//! What is known of the TLS that protects a client's connection, and what requests learn of it.

use std::rc::Rc;

use lighty_core::exchange::environment::Variables;
use lighty_core::settings::tls::{ClientAuthSettings, TlsSettings};
use lighty_core::{Exchange, Fault};
use lighty_io::tls::{CertificateText, ClientAuthOptions, ClientVerdict, TlsInfo, pem};

use crate::tls::SharedVariables;

/// The TLS of a client's connection: its own, or what a trusted proxy reports.
pub(crate) struct ClientTls {
    /// Variables for programs, backends and logs.
    variables: Rc<Variables>,
    /// The user that the client's certificate names.
    user: Option<Box<[u8]>>,
    /// What the client had to show; `None` if a proxy has asked for it.
    shown: Option<Shown>,
    /// Microseconds of the handshake, if it was ours.
    pub(super) handshake_us: Option<u32>,
}

/// What a client had to show in its handshake.
struct Shown {
    /// `None` if it was not asked for a certificate.
    options: Option<ClientAuthOptions>,
    /// Its certificate was verified.
    is_verified: bool,
}

impl Shown {
    /// Whether a handshake that had to meet `wanted` would have come to the same.
    fn meets(&self, wanted: Option<&ClientAuthOptions>) -> bool {
        let Some(wanted) = wanted else { return true };
        let Some(shown) = &self.options else { return false };
        shown.ca_file == wanted.ca_file
            && shown.crl_file == wanted.crl_file
            && shown.depth <= wanted.depth
            && (self.is_verified || !wanted.is_enforced)
    }
}

impl ClientTls {
    /// What a handshake has settled.
    pub(super) fn of(info: TlsInfo, auth: &ClientAuthSettings) -> Self {
        let bits = info.cipher_bits.to_string();
        let mut variables = Variables::default();
        for (name, value) in [
            ("SSL_PROTOCOL", info.version),
            ("SSL_CIPHER", info.cipher),
            ("SSL_CIPHER_USEKEYSIZE", &bits),
            ("SSL_CIPHER_ALGKEYSIZE", &bits),
        ] {
            variables.set(name.as_bytes(), value.as_bytes());
        }
        let user = certify(&info, auth, &mut variables);
        let options = info.policy.client_auth_options().cloned();
        let is_verified = info.client_verdict == Some(ClientVerdict::Verified);
        let shown = Some(Shown { options, is_verified });
        Self { variables: Rc::new(variables), user, shown, handshake_us: None }
    }

    /// Connections that have the same variables share them.
    pub(super) fn share_variables(&mut self, shared: &SharedVariables) {
        if self.user.is_none() {
            self.variables = shared.share(Rc::clone(&self.variables));
        }
    }

    /// As a trusted proxy reports it: `name` is the common name in a certificate that it has
    /// verified. The variables have the names of lighttpd's `mod_extforward`.
    pub(super) fn reported(name: Option<&[u8]>) -> Self {
        let mut variables = Variables::default();
        if let Some(name) = name {
            variables.set(b"SSL_CLIENT_VERIFY", b"SUCCESS");
            variables.set(b"SSL_CLIENT_S_DN_CN", name);
            variables.set(b"REMOTE_USER", name);
            variables.set(b"AUTH_TYPE", b"SSL_CLIENT_VERIFY");
        }
        let user = name.map(Into::into);
        Self { variables: Rc::new(variables), user, shown: None, handshake_us: None }
    }

    /// True unless it ends at a trusted proxy, which reports it.
    pub(super) fn is_own(&self) -> bool {
        self.shown.is_some()
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
        let is_misdirected = !wanted.is_ok_and(|wanted| shown.meets(wanted.as_ref()));
        if is_misdirected {
            ex.fail(Fault::Misdirected);
        }
        is_misdirected
    }
}

/// Sets the variables of a client's certificate; the user that it names.
fn certify(
    info: &TlsInfo,
    auth: &ClientAuthSettings,
    variables: &mut Variables,
) -> Option<Box<[u8]>> {
    let verdict = match info.client_verdict.as_ref()? {
        ClientVerdict::None => "NONE".to_owned(),
        ClientVerdict::Verified => "SUCCESS".to_owned(),
        ClientVerdict::Failed(why) => format!("FAILED:{why}"),
    };
    variables.set(b"SSL_CLIENT_VERIFY", verdict.as_bytes());
    let certificate = info.client_certificate.as_deref();
    let certificate =
        certificate.filter(|_| info.client_verdict == Some(ClientVerdict::Verified))?;
    let text = CertificateText::read(certificate)?;
    variables.set(b"SSL_CLIENT_S_DN", text.subject.as_bytes());
    for (name, value) in &text.parts {
        // A line end would be one to programs that write or read lines.
        if !value.contains(|c: char| c.is_ascii_control()) {
            variables.set(format!("SSL_CLIENT_S_DN_{name}").as_bytes(), value.as_bytes());
        }
    }
    variables.set(b"SSL_CLIENT_M_SERIAL", text.serial.as_bytes());
    if auth.exports_certificate {
        variables.set(b"SSL_CLIENT_CERT", pem(certificate).as_bytes());
    }
    let wanted = auth.username.as_deref()?.as_bytes();
    let named = variables.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let user: Box<[u8]> = named.map(|(_, value)| value.into())?;
    variables.set(b"REMOTE_USER", &user);
    variables.set(b"AUTH_TYPE", b"SSL_CLIENT_VERIFY");
    Some(user)
}
