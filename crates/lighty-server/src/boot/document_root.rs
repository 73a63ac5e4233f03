//! Checks the document root.

use lighty_config::Config;
use lighty_core::Settings;
use lighty_io::process::privileges;

use crate::boot::error::BootError;

/// Directives that serve requests without the server's document root: by a backend, a redirect or
/// another directory.
const SERVE_WITHOUT_ROOT: &[&str] = &[
    "ajp13.server",
    "alias.url",
    "evhost.path-pattern",
    "fastcgi.server",
    "proxy-core.backends",
    "proxy.server",
    "scgi.server",
    "simple-vhost.server-root",
    "sockproxy.server",
    "url.redirect",
    "wstunnel.server",
];

/// Returns true if the document root must be set, because no directive can serve a request without
/// it. Otherwise, requests that reach the files all the same get 404.
pub fn needs_document_root(config: &Config<Settings>) -> bool {
    let is_set = |name: &str| config.assigned(name).next().is_some();
    // A document root set anywhere belongs to a virtual host.
    !is_set("server.document-root") && !SERVE_WITHOUT_ROOT.iter().any(|name| is_set(name))
}

/// Returns the reason why the document root cannot be served at present: it may be mounted later.
///
/// # Errors
/// The document root is needed and not set.
pub(crate) fn check_document_root(config: &Config<Settings>) -> Result<Option<String>, BootError> {
    let global = config.global();
    let root = &*global.core.document_root;
    if root.is_empty() && !needs_document_root(config) {
        return Ok(None);
    }
    if root.is_empty() {
        return Err(BootError::NoDocumentRoot);
    }
    // Privileges are dropped and the root is changed before anything is served.
    let chroot = global.server.chroot.as_deref().filter(|_| privileges::is_root());
    Ok(match std::fs::metadata(format!("{}{root}", chroot.unwrap_or_default())) {
        Ok(meta) if meta.is_dir() => None,
        Ok(_) => Some(format!("server.document-root = \"{root}\" is not a directory")),
        Err(error) => Some(format!("server.document-root = \"{root}\": {error}")),
    })
}
