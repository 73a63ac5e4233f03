//! The directory that is served.

use lighty_core::Settings;
use lighty_io::process::privileges;
use lighty_proxy::route::settings::ProxySettings;

use crate::boot_error::BootError;

/// Errors if the document root is needed and not set.
pub(crate) fn check_document_root(global: &Settings) -> Result<(), BootError> {
    if global.core.document_root.is_empty() && ProxySettings::routes(global).core.is_none() {
        return Err(BootError(
            "server.document-root is not set: which directory is to be served?".into(),
        ));
    }
    Ok(())
}

/// Why the document root cannot be served at present. It may be mounted later.
pub(crate) fn missing_document_root(global: &Settings) -> Option<String> {
    let root = &*global.core.document_root;
    if root.is_empty() {
        return None;
    }
    // Privileges are dropped and the root is changed before anything is served.
    let chroot = global.server.chroot.as_deref().filter(|_| privileges::is_root());
    match std::fs::metadata(format!("{}{root}", chroot.unwrap_or_default())) {
        Ok(meta) if meta.is_dir() => None,
        Ok(_) => Some(format!("server.document-root = \"{root}\" is not a directory")),
        Err(error) => Some(format!("server.document-root = \"{root}\": {error}")),
    }
}
