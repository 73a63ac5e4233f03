//! Configuration and files of the simulated server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use lighty_config::{Config, FsLoader, LoadOptions, Main, Table, load};
use lighty_core::Settings;
use lighty_core::settings::directives;
use lighty_server::modules;

use super::rng::body_of;

/// Lengths of the files `/s/0`, `/s/1` and so on.
pub(crate) const FILES: &[u64] = &[0, 1, 44, 4_096, 33_000, 70_001, 300_000];

/// Returns the key of a file's bytes.
pub(crate) fn key_of_file(index: usize) -> u64 {
    0xF11E_0000 + index as u64
}

/// Addresses of two HTTP backends, and of a FastCGI backend.
pub(crate) const HTTP: [SocketAddr; 2] = [address(2, 8080), address(3, 8080)];
pub(crate) const FASTCGI: SocketAddr = address(4, 9000);

const fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, host)), port)
}

/// Seconds after which the server gives up, as configured below; all waits are shorter than this
/// together.
pub(crate) const PATIENCE_S: u64 = 120;

/// Seconds that a connection may be idle.
pub(crate) const IDLE_S: u64 = 5;

/// Writes the files.
pub(crate) fn write(root: &Path) {
    std::fs::create_dir_all(root.join("www/s")).expect("a directory");
    std::fs::create_dir_all(root.join("www/d")).expect("a directory");
    std::fs::create_dir_all(root.join("spool")).expect("a directory");
    for (index, length) in FILES.iter().enumerate() {
        let bytes = body_of(key_of_file(index), 0, *length);
        let path = root.join(format!("www/s/{index}"));
        std::fs::write(&path, bytes).expect("a file");
        // Equal in every process, and so are its validators.
        let file = std::fs::File::options().write(true).open(path).expect("a file");
        let written = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        file.set_modified(written).expect("a time");
    }
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

/// Returns the configuration. Variants differ in a header, in limits and in a backend.
pub(crate) fn config(root: &Path, backend: &str, variant: u64) -> Arc<Config<Settings>> {
    let root = root.display();
    let pool = 3 + variant;
    let second = if variant == 1 { 2 } else { 3 };
    let text = format!(
        r#"
server.document-root = "{root}/www"
server.port = 80
server.modules = ( "mod_proxy_core", "mod_deflate", "mod_webdav" )
deflate.mimetypes = ( "text/" )
deflate.allowed-encodings = ( "gzip" )
server.io-engine = "threads"
server.network-backend = "{backend}"
server.errorlog-level = "debug"
server.upload-dirs = ( "{root}/spool" )
server.max-keep-alive-idle = {IDLE_S}
server.max-connection-idle = {IDLE_S}
server.max-head-time = 4
server.max-read-idle = 6
server.max-write-idle = 6
etag.use-inode = "disable"
etag.use-mtime = "disable"
server.tag = "simulated/{variant}"
proxy-core.connect-timeout = 2
proxy-core.read-timeout = 4
proxy-core.write-timeout = 4
proxy-core.backlog-timeout = 5
proxy-core.max-pool-size = {pool}
proxy-core.max-disable-time = 2
proxy-core.max-idle-time = 3
proxy.server = ( "/h/" => ( ( "host" => "10.0.1.2", "port" => 8080 ),
                            ( "host" => "10.0.1.{second}", "port" => 8080 ) ) )
fastcgi.server = ( "/f/" => ( ( "host" => "10.0.1.4", "port" => 9000,
                               "check-local" => "disable" ) ) )
$HTTP["url"] =~ "^/d/" {{
    webdav.activate = "enable"
}}
$HTTP["url"] =~ "^/h/slow" {{
    connection.kbytes-per-second = 64
}}
"#
    );
    let table: Table<Settings> = Table::new()
        .rows(modules::directives())
        .planned(directives::PLANNED.iter().copied())
        .removed(directives::REMOVED.iter().copied());
    let main = Main::Text { name: "simulation", text: text.as_bytes() };
    let (config, findings, _) = load(&FsLoader, &main, &table, LoadOptions { strict: false });
    Arc::new(config.unwrap_or_else(|| panic!("a bad configuration: {findings:?}")))
}
