//! Checks the directories of the databases that a configuration names.

use std::path::Path;

use lighty_config::Config;
use lighty_core::Settings;
use lighty_io::process::privileges;
use lighty_modules::webdav;

use crate::boot::error::BootError;

/// Returns an error if the directory of a database does not exist. The first request that needs the
/// database creates its file.
pub(crate) fn check_database_directories(config: &Config<Settings>) -> Result<(), BootError> {
    // Privileges are dropped and the root is changed before it is opened.
    let chroot = config.global().server.chroot.as_deref().filter(|_| privileges::is_root());
    for (path, _) in webdav::databases(config) {
        let seen_from_here = format!("{}{path}", chroot.unwrap_or_default());
        let directory = Path::new(&seen_from_here).parent().filter(|p| !p.as_os_str().is_empty());
        if !directory.unwrap_or(Path::new(".")).is_dir() {
            let reason = "the directory does not exist";
            return Err(BootError::value("webdav.sqlite-db-name", &path, &reason));
        }
    }
    Ok(())
}
