//! TLS properties of a client's connection, for requests, programs, backends and logs.

use std::rc::Rc;

use lighty_core::exchange::environment::Variables;
use lighty_core::settings::tls::{ClientAuthSettings, TlsSettings};
use lighty_core::{Exchange, Fault};
use lighty_io::tls::{CertificateText, ClientAuthOptions, ClientVerdict, TlsInfo, pem};

use crate::tls::SharedVariables;

/// The TLS of a client's connection: its own, or as a trusted proxy reports it.
pub(crate) struct ClientTls {
    /// Variables for programs, backends and logs.
    variables: Rc<Variables>,
    /// The user that the client's certificate names.
    user: Option<Box<[u8]>>,
    /// Client authentication in the handshake; `None` if a proxy terminated TLS.
    shown: Option<ShownCertificate>,
    /// Microseconds of the handshake, if it was ours.
    pub(super) handshake_us: Option<u32>,
}

/// Client authentication that a handshake required.
struct ShownCertificate {
    /// `None` if the server requested no certificate.
    options: Option<ClientAuthOptions>,
    /// Its certificate was verified.
    is_verified: bool,
}

impl ShownCertificate {
    /// Returns true if a handshake that required `wanted` would have had the same result.
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
    /// Creates the description of a finished handshake.
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
        let shown = Some(ShownCertificate { options, is_verified });
        Self { variables: Rc::new(variables), user, shown, handshake_us: None }
    }

    /// Shares the variables with connections that have the same ones.
    pub(super) fn share_variables(&mut self, shared: &SharedVariables) {
        if self.user.is_none() {
            self.variables = shared.share(Rc::clone(&self.variables));
        }
    }

    /// Creates the TLS state that a trusted proxy reports. `name` is the common name in a
    /// certificate that the proxy has verified. The variables have the names of lighttpd's
    /// `mod_extforward`.
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

    /// Returns true if lighty terminates TLS itself, false if a trusted proxy reports it.
    pub(super) fn is_own(&self) -> bool {
        self.shown.is_some()
    }

    /// Copies the TLS properties into a request before its settings are known.
    #[cold]
    pub(super) fn describe(&self, ex: &mut Exchange) {
        ex.environment.set_base(&self.variables);
        if let Some(user) = &self.user {
            ex.request.remote_user.extend_from_slice(user);
        }
    }

    /// Returns true if the request requires more client authentication than the handshake did: its
    /// host is not the one that the handshake was for (RFC 9110 section 15.5.20).
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

/// Sets the variables of a client's certificate. Returns the user that the certificate names.
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
        // Programs that read or write lines would take it for a line end.
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
