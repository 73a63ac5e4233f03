//! `proxy-core.tls-*`: TLS with backends.

use std::sync::Arc;

use lighty_config::{Kind, NeedKind, Reject, Value};
use lighty_core::Settings;
use lighty_core::settings::Directive;
use lighty_io::tls::{ClientOptions, PairFiles};

use super::of;
use super::parts::TlsParts;
use super::place::BackendLocation;
use super::values::optional;
use crate::upstream::protocol::ProtocolName;

/// Returns the ALPN protocols offered to backends.
fn alpn(speaks: ProtocolName) -> &'static [&'static str] {
    match speaks {
        ProtocolName::Http2 => &["h2"],
        _ => &["http/1.1"],
    }
}

/// Default port of backends with TLS.
pub(super) const PORT: u16 = 443;

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = trust();
    rows.extend(own());
    rows
}

fn text(name: &'static str, set: fn(&mut TlsParts, Option<Arc<str>>)) -> Directive {
    Directive::parsed(name, Kind::String, optional, move |s: &mut Settings, text| {
        set(&mut of(s).shared.tls, text.clone());
    })
    .default("")
    .since("lighty 0.1")
}

fn trust() -> Vec<Directive> {
    vec![
        text("proxy-core.tls-ca-file", |tls, path| tls.ca_file = path)
            .needs(NeedKind::Read)
            .doc(
                "PEM file of the authorities that may sign the certificates of backends with \
                 `https://`; also certificates of backends themselves, which are then trusted as \
                 they are. Empty: the authorities of the system (`SSL_CERT_FILE`, or \
                 `/etc/ssl/certs/ca-certificates.crt` and its like). Read again when it changes.",
            )
            .example(
                "proxy-core.protocol = \"http\"\n\
                 proxy-core.backends = ( \"https://app.example.org\" )\n\
                 proxy-core.tls-ca-file = \"/etc/lighty/backends.pem\"",
            ),
        Directive::bool("proxy-core.tls-verify", |s, on| of(s).shared.tls.is_verified = on)
            .default("enable")
            .since("lighty 0.1")
            .doc(
                "Verifies the certificates of backends: authority, validity period, and name or \
                 address. When disabled, an attacker on the path can read and change everything; \
                 the log warns at start.",
            )
            .example("proxy-core.tls-verify = \"disable\""),
        Directive::parsed("proxy-core.tls-server-name", Kind::String, server_name, |s, name| {
            of(s).shared.tls.server_name = name.clone();
        })
        .default("")
        .since("lighty 0.1")
        .doc(
            "Server name sent to backends with `https://` (SNI), which their certificates must \
             contain. Empty: the name or the address in the URL. A backend at a unix socket or \
             behind `srv:` needs it.",
        )
        .example("proxy-core.tls-server-name = \"app.internal\""),
    ]
}

fn own() -> Vec<Directive> {
    vec![
        text("proxy-core.tls-cert", |tls, path| tls.cert = path)
            .needs(NeedKind::Read)
            .doc(
                "PEM file of the certificate that is shown to backends that ask for one, with its \
                 chain behind it, and its key unless `proxy-core.tls-key` names it. Read again \
                 when it changes.",
            )
            .example(
                "proxy-core.protocol = \"http\"\n\
                 proxy-core.backends = ( \"https://10.0.0.7:8443\" )\n\
                 proxy-core.tls-cert = \"/etc/lighty/client.pem\"",
            ),
        text("proxy-core.tls-key", |tls, path| tls.key = path)
            .needs(NeedKind::Read)
            .doc("PEM file of the key of `proxy-core.tls-cert`. Empty: it is in that file.")
            .example(
                "proxy-core.tls-cert = \"/etc/lighty/client.pem\"\n\
                 proxy-core.tls-key = \"/etc/lighty/client.key\"",
            ),
    ]
}

/// Reads a host name or an address.
fn server_name(value: &Value, _: &lighty_config::CompileCtx) -> Result<Option<Arc<str>>, Reject> {
    let Some("") = value.as_str() else {
        let text = lighty_config::parse_string(value)?;
        return match BackendLocation::parse(&text) {
            Ok(place @ (BackendLocation::Ip(_, None) | BackendLocation::Name(_, None))) => {
                Ok(place.server_name())
            }
            _ => Err(Reject::new("must be a host name or an address, without a port")),
        };
    };
    Ok(None)
}

impl TlsParts {
    /// Returns true if the certificate's name for this place is known.
    pub(super) fn names(&self, place: &BackendLocation) -> bool {
        self.server_name.is_some() || place.server_name().is_some()
    }

    /// Returns the TLS options of the backend at this place; `None` if it has no name.
    pub(super) fn options(
        &self,
        place: &BackendLocation,
        speaks: ProtocolName,
    ) -> Option<Arc<ClientOptions>> {
        let server_name = self.server_name.clone().or_else(|| place.server_name())?;
        let pair = self.cert.as_ref();
        let pair = pair.map(|chain| PairFiles { chain: Arc::clone(chain), key: self.key.clone() });
        let (ca_file, is_verified) = (self.ca_file.clone(), self.is_verified);
        let alpn = alpn(speaks);
        Some(Arc::new(ClientOptions { server_name, ca_file, is_verified, pair, alpn }))
    }
}
