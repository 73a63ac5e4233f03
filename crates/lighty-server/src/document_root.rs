//! The directory that is served.

use lighty_core::Settings;
use lighty_io::process::privileges;
use lighty_proxy::route::settings::ProxySettings;

use crate::boot_error::BootError;

/// Errors if the document root is not a directory, or is needed and not set.
pub(crate) fn check_document_root(global: &Settings) -> Result<(), BootError> {
    let root = &*global.core.document_root;
    // Privileges are dropped and the root is changed before anything is served.
    let chroot = global.server.chroot.as_deref().filter(|_| privileges::is_root());
    let seen_from_here = format!("{}{root}", chroot.unwrap_or_default());
    if root.is_empty() && ProxySettings::routes(global).core.is_some() {
        return Ok(());
    }
    if root.is_empty() {
        return Err(BootError(
            "server.document-root is not set: which directory is to be served?".into(),
        ));
    }
    match std::fs::metadata(&seen_from_here) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(BootError(format!("server.document-root = \"{root}\" is not a directory"))),
        Err(error) => Err(BootError(format!("server.document-root = \"{root}\": {error}"))),
    }
}
