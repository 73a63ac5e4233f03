//! lighttpd's TLS directives.

mod conf_cmd;

use std::sync::Arc;

use lighty_config::{CompileCtx, Kind, NeedKind, Reject, Scope, Value, parse_string, parse_switch};
use lighty_io::tls::Ciphers;

use crate::settings::tls::{ClientAuthSettings, TlsSettings};
use crate::settings::{Directive, Settings};

fn of(settings: &mut Settings) -> &mut TlsSettings {
    settings.module_mut()
}

fn auth(settings: &mut Settings) -> &mut ClientAuthSettings {
    &mut of(settings).client_auth
}

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = listener();
    rows.extend(handshakes());
    rows.extend(certificates());
    rows.extend(client_certificates());
    rows.extend(client_authorities());
    rows.extend(ignored());
    rows.extend(refused());
    let rows = rows.into_iter().map(Directive::for_handshakes);
    rows.map(|row| if row.since.is_empty() { row.since("1.4") } else { row }).collect()
}

fn listener() -> Vec<Directive> {
    vec![
        Directive::bool("ssl.engine", |s, on| {
            of(s).engine = on;
            s.server.speaks_tls = on;
        })
        .scope(Scope::Socket)
        .default("disable")
        .doc(
            "Enables TLS: at the top level for all listeners, in `$SERVER[\"socket\"]` for that \
             one; each needs an `ssl.pemfile`. Protocols are TLS 1.2 and 1.3 with HTTP/2 and \
             HTTP/1.1. See the [manual](../tls.md).",
        )
        .example(
            "$SERVER[\"socket\"] == \":443\" {\n    ssl.engine = \"enable\"\n    ssl.pemfile = \
                 \"/etc/lighty/example.org.pem\"\n}",
        ),
        Directive::parsed(
            "ssl.cipher-list",
            Kind::String,
            parse_cipher_list,
            |s, list: &Option<Ciphers>| {
                of(s).cipher_list = list.clone();
            },
        )
        .default_prose("all that lighty has")
        .doc(
            "Suites of TLS 1.2 as an OpenSSL cipher string; the server's order counts then. \
             `CipherString` of `ssl.openssl.ssl-conf-cmd` takes its place. An empty text stands \
             for the default.",
        )
        .example("ssl.cipher-list = \"EECDH+AESGCM:CHACHA20\""),
        Directive::parsed("ssl.openssl.ssl-conf-cmd", Kind::Map, conf_cmd::parse, |s, conf| {
            of(s).conf_cmd = conf.clone();
        })
        .default("()")
        .doc(conf_cmd::DOC)
        .example(
            "ssl.openssl.ssl-conf-cmd = ( \"MinProtocol\" => \"TLSv1.3\", \"Groups\" => \
             \"X25519MLKEM768:X25519\" )",
        ),
    ]
}

fn handshakes() -> Vec<Directive> {
    vec![
        Directive::int("server.max-handshake-time", 0..=86_400, |s, v| {
            s.server.max_handshake_time_s = v as u32;
        })
        .scope(Scope::Server)
        .default("10")
        .since("lighty 0.1")
        .doc(
            "Seconds from the first byte of a client's TLS handshake to its end; then the \
             connection is closed. 0: no limit.",
        )
        .example("server.max-handshake-time = 5"),
        Directive::int("server.max-handshake-backlog", 0..=1_000_000, |s, v| {
            s.server.max_handshake_backlog = v as u32;
        })
        .scope(Scope::Server)
        .default("1024")
        .since("lighty 0.1")
        .doc(
            "Maximum number of TLS handshakes waiting for a worker, which computes them one by one \
             between requests. At the limit, further clients are rejected immediately, so that a \
             flood of handshakes delays other clients by a fraction of a second. 0: no limit.",
        )
        .example("server.max-handshake-backlog = 200"),
        Directive::string("ssl.acme-tls-1", |s, path| {
            of(s).acme_tls_1 = Some(path).filter(|path| !path.is_empty());
        })
        .needs(NeedKind::ReadDirectory)
        .default_prose("none")
        .doc(
            "Directory in which another program puts proofs for authorities (TLS-ALPN-01, RFC \
             8737): `NAME.crt.pem` and `NAME.key.pem` answer a handshake with `acme-tls/1` for \
             NAME. Certificates of `acme.activate` need no such directory.",
        )
        .example("ssl.acme-tls-1 = \"/var/lib/dehydrated/alpn-certs\""),
    ]
}

/// A directive that takes one file or several.
fn files(name: &'static str, all: fn(&mut TlsSettings) -> &mut Vec<Arc<str>>) -> Directive {
    Directive::strings(name, move |s, paths| {
        *all(of(s)) = paths.iter().filter(|path| !path.is_empty()).cloned().collect();
    })
    .needs(NeedKind::Read)
}

fn certificates() -> Vec<Directive> {
    vec![
        files("ssl.pemfile", |tls| {
            tls.is_managed = false;
            &mut tls.pemfiles
        })
        .default_prose("none")
        .doc(
            "PEM file of the server's certificate, followed by the intermediate certificates, and \
             by the private key unless `ssl.privkey` names its file. In `$HTTP[\"host\"]` the \
             certificate applies to that server name (SNI). A changed file is loaded within \
             seconds. A list names certificates with keys of several kinds; each client gets the \
             first one that it supports.",
        )
        .example("ssl.pemfile = ( \"/etc/lighty/ecdsa.pem\", \"/etc/lighty/rsa.pem\" )"),
        files("ssl.privkey", |tls| &mut tls.privkeys)
            .default_prose("in `ssl.pemfile`")
            .doc(
                "File of the private key, in PEM: PKCS#8, PKCS#1 or SEC1, without a password. \
                 Where `ssl.pemfile` is a list, so is this, in the same order.",
            )
            .example("ssl.privkey = \"/etc/lighty/example.org.key\""),
        files("ssl.stapling-file", |tls| &mut tls.staples)
            .default_prose("none")
            .doc(
                "File of the certificate's OCSP response, in DER, which is sent to clients that \
                 request it; a list for several certificates. A changed file is read again within \
                 seconds; an expired response is not sent. A missing or invalid file causes a \
                 warning.",
            )
            .example("ssl.stapling-file = \"/var/lib/ocsp/example.org.der\""),
        Directive::string("ssl.key-log-file", |s, path| {
            of(s).key_log_file = Some(path).filter(|path| !path.is_empty());
        })
        .needs(NeedKind::Log)
        .scope(Scope::Server)
        .default_prose("none")
        .since("lighty 0.1")
        .doc(
            "File to which the secrets of all TLS connections are appended, in the format of \
             `SSLKEYLOGFILE`, for Wireshark. Anybody with the file can decrypt the traffic: use it \
             for tests only. The log warns about it.",
        )
        .example("ssl.key-log-file = \"/root/tls-keys.log\""),
        Directive::string("ssl.stek-file", |s, path| of(s).stek_file = Some(path))
            .needs(NeedKind::Read)
            .scope(Scope::Server)
            .default_prose("none: keys of the process's own, a new one every 8 hours")
            .doc(
                "File of the key that session tickets are sealed with, so that sessions go on at \
                 another process or machine with the same file. It has lighttpd's format of 92 \
                 bytes (version 0, active-from, expires, name, two keys) and is read again when \
                 it has changed; the keys before it stay valid until they expire.",
            )
            .example("ssl.stek-file = \"/run/lighty/stek\""),
        Directive::bool("debug.log-ssl-noise", |s, on| of(s).log_noise = on)
            .default("disable")
            .doc(
                "Logs also clients that go away during the handshake or begin with something \
                 else than TLS or HTTP, as scanners do.",
            )
            .example("debug.log-ssl-noise = \"enable\""),
    ]
}

fn client_certificates() -> Vec<Directive> {
    vec![
        Directive::bool("ssl.verifyclient.activate", |s, on| auth(s).is_active = on)
            .default("disable")
            .doc(
                "Requests a certificate from clients; `ssl.verifyclient.ca-file` names the \
                  accepted authorities.",
            )
            .example("ssl.verifyclient.activate = \"enable\""),
        Directive::bool("ssl.verifyclient.enforce", |s, on| auth(s).is_enforced = on)
            .default("enable")
            .doc(
                "Refuses clients without a valid certificate. When disabled, they are admitted, \
                 and `SSL_CLIENT_VERIFY` has the result of the verification: `SUCCESS`, `NONE` or \
                 `FAILED:` with the reason.",
            )
            .example("ssl.verifyclient.enforce = \"disable\""),
        Directive::int("ssl.verifyclient.depth", 0..=255, |s, depth| auth(s).depth = depth as u8)
            .default("9")
            .doc(
                "Maximum number of certificates above the client's own in its chain, including the \
                 authority's. With 1, an authority in `ssl.verifyclient.ca-file` must have signed \
                 the client's certificate itself; 0 refuses every client.",
            )
            .example("ssl.verifyclient.depth = 1"),
        Directive::string("ssl.verifyclient.username", |s, name| {
            auth(s).username = Some(name).filter(|name| !name.is_empty());
        })
        .default_prose("none")
        .doc(
            "The variable of a verified certificate that becomes `REMOTE_USER`, with \
             `AUTH_TYPE` = `SSL_CLIENT_VERIFY`.",
        )
        .example("ssl.verifyclient.username = \"SSL_CLIENT_S_DN_CN\""),
        Directive::bool("ssl.verifyclient.exportcert", |s, on| auth(s).exports_certificate = on)
            .default("disable")
            .doc("Sets `SSL_CLIENT_CERT` to the client's certificate, in PEM.")
            .example("ssl.verifyclient.exportcert = \"enable\""),
    ]
}

fn client_authorities() -> Vec<Directive> {
    let row = |name, set: fn(&mut ClientAuthSettings) -> &mut Option<Arc<str>>| {
        Directive::parsed(
            name,
            Kind::String,
            |value, _| parse_string(value),
            move |s, path: &Arc<str>| {
                *set(auth(s)) = Some(Arc::clone(path)).filter(|path| !path.is_empty());
            },
        )
        .needs(NeedKind::Read)
        .default_prose("none")
    };
    vec![
        row("ssl.verifyclient.ca-file", |auth| &mut auth.ca_file)
            .alias("ssl.ca-file")
            .doc(
                "PEM file of the authorities accepted for client certificates. It also completes \
                 the chain of an `ssl.pemfile` that holds only the site's certificate.",
            )
            .example("ssl.verifyclient.ca-file = \"/etc/lighty/clients-ca.pem\""),
        row("ssl.verifyclient.ca-dn-file", |auth| &mut auth.ca_dn_file)
            .alias("ssl.ca-dn-file")
            .doc(
                "File of the certificates whose subjects are sent to clients as acceptable \
                 authorities, in place of the ones in `ssl.verifyclient.ca-file`.",
            )
            .example("ssl.verifyclient.ca-dn-file = \"/etc/lighty/shown-ca.pem\""),
        row("ssl.verifyclient.ca-crl-file", |auth| &mut auth.crl_file)
            .alias("ssl.ca-crl-file")
            .doc(
                "File of the lists of certificates that the authorities have revoked, in PEM. Each \
                 authority of a chain needs one that is not out of date, or the client is \
                 refused. It is loaded again when it has changed.",
            )
            .example("ssl.verifyclient.ca-crl-file = \"/etc/lighty/clients.crl\""),
    ]
}

/// Directives of lighttpd's configurations that have no effect here.
fn ignored() -> Vec<Directive> {
    let switch = |name: &'static str, doc, example| {
        Directive::bool(name, |_, _| {}).default("disable").doc(doc).example(example)
    };
    vec![
        switch(
            "ssl.read-ahead",
            "Has lighttpd's TLS read larger pieces at once. It has no effect here.",
            "ssl.read-ahead = \"enable\"",
        ),
        switch(
            "ssl.use-compression",
            "It has no effect, as in lighttpd since 1.4.57: compression in TLS gives secrets away \
             (CRIME).",
            "ssl.use-compression = \"disable\"",
        ),
        switch(
            "ssl.disable-client-renegotiation",
            "It has no effect: no client can renegotiate.",
            "ssl.disable-client-renegotiation = \"enable\"",
        )
        .default("enable"),
        switch(
            "ssl.honor-cipher-order",
            "It has no effect, as in lighttpd since 1.4.68: `Options` of \
             `ssl.openssl.ssl-conf-cmd` may have `ServerPreference`.",
            "ssl.honor-cipher-order = \"enable\"",
        ),
        switch(
            "ssl.empty-fragments",
            "It has no effect, as in lighttpd since 1.4.68: no suite needs them.",
            "ssl.empty-fragments = \"disable\"",
        ),
        ignored_text(
            "ssl.dh-file",
            "It has no effect, as in lighttpd since 1.4.68: keys are exchanged over elliptic \
             curves and ML-KEM alone.",
            "ssl.dh-file = \"/etc/lighty/dh.pem\"",
        ),
        ignored_text(
            "ssl.ec-curve",
            "It has no effect, as in lighttpd since 1.4.68: see `Groups` in \
             `ssl.openssl.ssl-conf-cmd`.",
            "ssl.ec-curve = \"prime256v1\"",
        ),
    ]
}

/// Directives that cannot be supported. A warning explains it.
fn refused() -> Vec<Directive> {
    vec![
        refused_switch("ssl.use-sslv2", "ssl.use-sslv2 = \"disable\""),
        refused_switch("ssl.use-sslv3", "ssl.use-sslv3 = \"disable\""),
        refused_hellos("ssl.ech-opts", "ssl.ech-opts = ()"),
        refused_hellos("ssl.ech-public-name", "ssl.ech-public-name = \"\""),
    ]
}

/// A directive about encrypted client hello.
fn refused_hellos(name: &'static str, example: &'static str) -> Directive {
    let parse = |value: &Value, _: &CompileCtx| {
        let is_empty = value.as_str().is_some_and(str::is_empty)
            || value.as_list().is_some_and(<[_]>::is_empty);
        let message = "cannot be had: servers on rustls have no encrypted client hello (RFC 9849), \
                     so the names that clients ask for are readable on the way";
        if is_empty { Ok(()) } else { Err(Reject::new(message)) }
    };
    Directive::parsed(name, Kind::Map, parse, |_, ()| {})
        .default_prose("none")
        .doc("Encrypted client hello (RFC 9849) is not supported; a value is refused.")
        .example(example)
}

fn refused_switch(name: &'static str, example: &'static str) -> Directive {
    let parse = |value: &Value, ctx: &CompileCtx| match parse_switch(value, ctx)? {
        true => Err(Reject::new("cannot be enabled: TLS 1.2 is the oldest protocol here")),
        false => Ok(()),
    };
    Directive::parsed(name, Kind::Bool, parse, |_, ()| {})
        .default("disable")
        .doc("The protocol is insecure and not supported.")
        .example(example)
}

fn ignored_text(name: &'static str, doc: &'static str, example: &'static str) -> Directive {
    let row = Directive::string(name, |_, _| {}).default_prose("none").doc(doc).example(example);
    row.needs(NeedKind::Nothing)
}

/// Parses a cipher list; an empty one counts as unset, as in lighttpd.
fn parse_cipher_list(value: &Value, _: &CompileCtx) -> Result<Option<Ciphers>, Reject> {
    let text = parse_string(value)?;
    if text.is_empty() {
        return Ok(None);
    }
    let mut ciphers = Ciphers::default();
    let set = ciphers.set_tls12(&text);
    set.map_err(|why| Reject::new(format!("cannot be met: {why}")))?;
    Ok(Some(ciphers))
}
