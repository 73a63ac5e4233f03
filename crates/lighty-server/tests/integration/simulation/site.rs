//! Configuration and files of the simulated server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use lighty_config::{Config, FsLoader, LoadOptions, Main, Table, load};
use lighty_core::Settings;
use lighty_core::settings::directives;
use lighty_server::modules;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ED25519, SerialNumber,
};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::rng::body_of;
use super::sabotage::Bug;
use super::scripts;
use super::sim::Sim;

/// Lengths of the files `/s/0`, `/s/1` and so on.
pub(crate) const FILES: &[u64] = &[0, 1, 44, 4_096, 33_000, 70_001, 300_000];

/// Returns the key of a file's bytes.
pub(crate) fn key_of_file(index: usize) -> u64 {
    0xF11E_0000 + index as u64
}

/// Addresses of backends: two of HTTP/1, one of HTTP/2, one of each over TLS, and one of each
/// gateway protocol.
pub(crate) const HTTP: [SocketAddr; 2] = [address(2, 8080), address(3, 8080)];
pub(crate) const FASTCGI: SocketAddr = address(4, 9000);
pub(crate) const HTTP2: SocketAddr = address(5, 8080);
pub(crate) const HTTPS: SocketAddr = address(6, 8443);
pub(crate) const HTTP2_TLS: SocketAddr = address(7, 8443);
pub(crate) const SCGI: SocketAddr = address(8, 4000);
pub(crate) const UWSGI: SocketAddr = address(9, 3031);
pub(crate) const AJP13: SocketAddr = address(10, 8009);

pub(crate) const RAW: SocketAddr = address(11, 25);

/// Backends that accept upgrades: in clear text and over TLS.
pub(crate) const TUNNELS: [SocketAddr; 2] = [address(12, 8080), address(13, 8443)];

/// The service of `auth.forward`.
pub(crate) const AUTH_SERVICE: SocketAddr = address(14, 8080);

/// All addresses that the server may connect to.
pub(crate) const BACKENDS: [SocketAddr; 13] = [
    HTTP[0],
    HTTP[1],
    FASTCGI,
    HTTP2,
    HTTPS,
    HTTP2_TLS,
    SCGI,
    UWSGI,
    AJP13,
    RAW,
    TUNNELS[0],
    TUNNELS[1],
    AUTH_SERVICE,
];

/// Ports of the server: in clear text, with TLS, in clear text in some generations only, behind a
/// PROXY header in clear text and with TLS, and of raw connections in clear text and with TLS.
pub(crate) const CLEAR_PORT: u16 = 80;
pub(crate) const TLS_PORT: u16 = 443;
pub(crate) const CHANGING_PORT: u16 = 8080;
pub(crate) const PROXY_PORTS: [u16; 2] = [81, 444];
pub(crate) const RAW_PORTS: [u16; 2] = [25, 465];

const fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, host)), port)
}

/// Seconds after which the server gives up, as configured below; all waits are shorter than this
/// together.
pub(crate) const PATIENCE_S: u64 = 120;

/// Seconds until a PROXY header or the head of a request must be there.
pub(crate) const HEAD_S: u64 = 4;

/// Seconds that a connection may be idle.
pub(crate) const IDLE_S: u64 = 5;

/// Text around the output of a page's command, and the text in place of an output.
pub(crate) const PAGE: [&str; 2] = ["before ", " after"];
pub(crate) const PAGE_FAILURE: &str = "FAILED";

/// Writes the files.
pub(crate) fn write(root: &Path) {
    std::fs::create_dir_all(root.join("www/s")).expect("a directory");
    std::fs::create_dir_all(root.join("www/d")).expect("a directory");
    std::fs::create_dir_all(root.join("spool")).expect("a directory");
    std::fs::create_dir_all(root.join("www/p")).expect("a directory");
    std::fs::write(root.join("www/p/x.cgi"), "the text of a program").expect("a file");
    std::fs::create_dir_all(root.join("www/i")).expect("a directory");
    let [before, after] = PAGE;
    let message = format!("<!--#config errmsg=\"{PAGE_FAILURE}\" -->");
    let page = format!("{message}{before}<!--#exec cmd=\"report\" -->{after}");
    std::fs::write(root.join("www/i/x.shtml"), page).expect("a file");
    for (index, length) in FILES.iter().enumerate() {
        let bytes = body_of(key_of_file(index), 0, *length);
        let path = root.join(format!("www/s/{index}"));
        std::fs::write(&path, bytes).expect("a file");
        // Equal in every process, and so are its validators.
        let file = std::fs::File::options().write(true).open(path).expect("a file");
        let written = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        file.set_modified(written).expect("a time");
    }
    scripts::write(root);
    write_certificates(root);
}

/// Writes an authority and the site's certificate. Their keys are of Ed25519: all signatures have
/// one length, so handshakes of different runs have equal lengths.
fn write_certificates(root: &Path) {
    let key = || KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let params = |names: &[String]| {
        let mut params = CertificateParams::new(names).expect("parameters");
        params.serial_number = Some(SerialNumber::from(vec![1, 2, 3]));
        params
    };
    let mut authority = params(&[]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(authority, key()).expect("an authority");
    let own = key();
    let leaf = params(&["simulated".to_owned()]).signed_by(&own, &issuer).expect("a certificate");
    std::fs::write(root.join("ca.pem"), issuer.pem()).expect("a file");
    std::fs::write(root.join("site.pem"), leaf.pem() + &own.serialize_pem()).expect("a file");
}

/// Returns the configuration of a TLS client that offers these protocols. It resumes no session,
/// which would depend on earlier runs.
pub(crate) fn tls_client(root: &Path, alpn: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(root.join("ca.pem")).expect("a certificate");
    roots.add(authority).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Returns the path of the upload with this number.
pub(crate) fn upload(root: &Path, number: u64) -> std::path::PathBuf {
    root.join(format!("www/d/{number}"))
}

/// Removes the clients' uploads.
pub(crate) fn clean(root: &Path) {
    for entry in std::fs::read_dir(root.join("www/d")).expect("a directory") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("a file");
    }
}

/// Returns the configuration of a backend that speaks TLS. It resumes no session.
pub(crate) fn tls_server(root: &Path) -> Arc<ServerConfig> {
    let leaf = CertificateDer::from_pem_file(root.join("site.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(root.join("site.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let config = builder.with_no_client_auth().with_single_cert(vec![leaf], key);
    let mut config = config.expect("a server");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// Network backends that need neither a ring nor threads of the C library.
pub(crate) const NETWORK_BACKENDS: &[&str] = &[
    "auto",
    "auto",
    "writev",
    "write",
    "linux-sendfile",
    "io-uring",
    "gthread-aio",
    "gthread-sendfile",
];

/// Modules of some URLs, and hosts with a minimum rate.
const PLACES: &str = r#"
scgi.server = ( "/c/" => ( ( "host" => "10.0.1.8", "port" => 4000,
                            "check-local" => "disable" ) ) )
ajp13.server = ( "/j/" => ( ( "host" => "10.0.1.10", "port" => 8009,
                             "check-local" => "disable" ) ) )
ssi.extension = ( ".shtml" )
ssi.exec = "enable"
ssi.exec-timeout = 20
cgi.assign = ( ".cgi" => "" )
cgi.limits = ( "read-timeout" => 4, "write-timeout" => 4, "exit-timeout" => 3 )
$HTTP["url"] =~ "^/2/" {
    proxy-core.protocol = "h2"
    proxy-core.backends = ( "10.0.1.5:8080" )
}
$HTTP["url"] =~ "^/3/" {
    proxy-core.protocol = "http"
    proxy-core.backends = ( "https://10.0.1.6:8443" )
    proxy-core.tls-verify = "disable"
}
$HTTP["url"] =~ "^/4/" {
    proxy-core.protocol = "h2"
    proxy-core.backends = ( "https://10.0.1.7:8443" )
    proxy-core.tls-verify = "disable"
}
$HTTP["url"] =~ "^/t/" {
    proxy-core.protocol = "http"
    proxy-core.upgrade = "enable"
    proxy-core.backends = ( "10.0.1.12:8080" )
}
$HTTP["url"] =~ "^/v/" {
    proxy-core.protocol = "http"
    proxy-core.upgrade = "enable"
    proxy-core.backends = ( "https://10.0.1.13:8443" )
    proxy-core.tls-verify = "disable"
}
auth.forward = ( "/a/" => ( "url" => "http://10.0.1.14:8080/auth", "timeout" => "4s",
                            "response-headers" => ( "X-User" ) ) )
$HTTP["url"] =~ "^/a/" {
    proxy-core.protocol = "http"
    proxy-core.backends = ( "10.0.1.2:8080" )
}
$HTTP["url"] =~ "^/u/" {
    proxy-core.protocol = "uwsgi"
    proxy-core.backends = ( "10.0.1.9:3031" )
}
$HTTP["url"] =~ "^/d/" {
    webdav.activate = "enable"
}
$HTTP["url"] =~ "^/h/slow" {
    connection.kbytes-per-second = 64
}
$HTTP["host"] == "at-least-2500" { server.min-write-rate = 2500 }
$HTTP["host"] == "at-least-6000" { server.min-write-rate = 6000 }
"#;

/// Returns the configuration of the listeners. One of them changes between TLS and clear text.
fn listeners(root: &Path, changing: &str) -> String {
    let root = root.display();
    format!(
        r#"$SERVER["socket"] == "10.0.0.1:443" {{
    ssl.engine = "enable"
    ssl.pemfile = "{root}/site.pem"
}}
$SERVER["socket"] == "10.0.0.1:8080" {{
    ssl.engine = "{changing}"
    ssl.pemfile = "{root}/site.pem"
}}
$SERVER["socket"] == "10.0.0.1:81" {{
    extforward.hap-PROXY = "enable"
    extforward.forwarder = ( "10.0.2.0/24" => "trust" )
}}
$SERVER["socket"] == "10.0.0.1:444" {{
    extforward.hap-PROXY = "enable"
    extforward.forwarder = ( "10.0.2.0/24" => "trust" )
    ssl.engine = "enable"
    ssl.pemfile = "{root}/site.pem"
}}
$SERVER["socket"] == "10.0.0.1:25" {{
    sockproxy.server = ( "" => ( ( "host" => "10.0.1.11", "port" => 25 ) ) )
}}
$SERVER["socket"] == "10.0.0.1:465" {{
    ssl.engine = "enable"
    ssl.pemfile = "{root}/site.pem"
    sockproxy.server = ( "" => ( ( "host" => "10.0.1.11", "port" => 25 ) ) )
}}
"#
    )
}

/// Returns the configuration. Variants differ in a header, in limits and in a backend.
pub(crate) fn config(sim: &Sim, variant: u64) -> Arc<Config<Settings>> {
    let (root, backend, bulk_reads) = (sim.root.display(), sim.network_backend, sim.bulk_reads);
    let limit_s = if sim.bug == Some(Bug::MissingTimeout) { 0 } else { 6 };
    let pool = 3 + variant;
    let second = if variant == 1 { 2 } else { 3 };
    let scripts = scripts::config(sim, variant);
    let changing = if variant == 1 { "disable" } else { "enable" };
    let listeners = listeners(&sim.root, changing);
    let programs = if variant == 2 && !sim.is_calm { 2 } else { 100 };
    let text = format!(
        r#"
server.document-root = "{root}/www"
server.port = 80
server.modules = ( "mod_proxy_core", "mod_deflate", "mod_cgi", "mod_webdav",
                   "mod_magnet", "mod_ssi", "mod_extforward", "mod_auth_forward" )
ssi.max-processes = {programs}
deflate.mimetypes = ( "text/" )
deflate.allowed-encodings = ( "gzip" )
server.io-engine = "threads"
server.network-backend = "{backend}"
server.max-bulk-reads = {bulk_reads}
server.errorlog-level = "debug"
server.upload-dirs = ( "{root}/spool" )
server.max-keep-alive-idle = {IDLE_S}
server.max-connection-idle = {IDLE_S}
server.max-head-time = {HEAD_S}
server.max-handshake-time = 6
server.max-read-idle = {limit_s}
server.max-write-idle = {limit_s}
etag.use-inode = "disable"
etag.use-mtime = "disable"
server.tag = "simulated/{variant}"
proxy-core.connect-timeout = 2
proxy-core.read-timeout = 4
proxy-core.write-timeout = 4
proxy-core.backlog-timeout = 5
proxy-core.tunnel-timeout = 6
proxy-core.max-pool-size = {pool}
proxy-core.max-disable-time = 2
proxy-core.max-idle-time = 3
proxy.server = ( "/h/" => ( ( "host" => "10.0.1.2", "port" => 8080 ),
                            ( "host" => "10.0.1.{second}", "port" => 8080 ) ) )
fastcgi.server = ( "/f/" => ( ( "host" => "10.0.1.4", "port" => 9000,
                               "check-local" => "disable" ) ) )
cgi.max-processes = {programs}
{listeners}{PLACES}{scripts}"#
    );
    let table: Table<Settings> = Table::new()
        .rows(modules::directives())
        .planned(directives::PLANNED.iter().copied())
        .removed(directives::REMOVED.iter().copied());
    let main = Main::Text { name: "simulation", text: text.as_bytes() };
    let (config, findings, _) = load(&FsLoader, &main, &table, LoadOptions { strict: false });
    Arc::new(config.unwrap_or_else(|| panic!("a bad configuration: {findings:?}")))
}
