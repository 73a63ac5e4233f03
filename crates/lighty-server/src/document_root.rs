//! The directory that is served.

use lighty_core::Settings;
use lighty_io::process::privileges;
use lighty_proxy::route::settings::ProxySettings;

use crate::boot_error::BootError;

/// Why the document root cannot be served at present: it may be mounted later.
///
/// # Errors
/// It is needed and not set.
pub(crate) fn check_document_root(global: &Settings) -> Result<Option<String>, BootError> {
    let root = &*global.core.document_root;
    if root.is_empty() && ProxySettings::routes(global).core.is_some() {
        return Ok(None);
    }
    if root.is_empty() {
        return Err(BootError(
            "server.document-root is not set: which directory is to be served?".into(),
        ));
    }
    // Privileges are dropped and the root is changed before anything is served.
    let chroot = global.server.chroot.as_deref().filter(|_| privileges::is_root());
    Ok(match std::fs::metadata(format!("{}{root}", chroot.unwrap_or_default())) {
        Ok(meta) if meta.is_dir() => None,
        Ok(_) => Some(format!("server.document-root = \"{root}\" is not a directory")),
        Err(error) => Some(format!("server.document-root = \"{root}\": {error}")),
    })
}
