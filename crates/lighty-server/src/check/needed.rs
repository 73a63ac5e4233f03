//! Files and directories that requests need, though the server starts without them: users, scripts,
//! directories for uploads.

use std::path::Path;

use lighty_config::Value;
use lighty_io::file::small_file::SmallFile;

use super::Check;

/// Directives that name files.
const FILES: [&str; 8] = [
    "auth.backend.plain.userfile",
    "auth.backend.plain.groupfile",
    "auth.backend.htpasswd.userfile",
    "auth.backend.htdigest.userfile",
    "magnet.attract-raw-url-to",
    "magnet.attract-physical-path-to",
    "magnet.attract-response-start-to",
    "magnet.attract-response-content-to",
];

/// How closely files are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Whether they can be read.
    Presence,
    /// Their lines, too. A running server tells of those when a file is first used.
    Content,
}

/// Bytes of such a file that are read at most.
const BYTES_MAX: u64 = 64 << 20;

/// Reports what cannot be opened. Under a chroot, `beneath` is its directory.
pub(super) fn look(check: &mut Check<'_>, beneath: &str, depth: Depth) {
    let config = check.config;
    for name in FILES {
        for value in config.assigned(name) {
            for path in texts(&value.value).filter(|path| !path.is_empty()) {
                let place = format!("{beneath}{path}");
                for fault in faults(name, Path::new(&place), depth) {
                    check.warn(value.span, format!("{name} = \"{path}\": {fault}"));
                }
            }
        }
    }
    for path in config.global().server.upload_dirs.iter() {
        if let Err(error) = std::fs::read_dir(&**path) {
            let text = format!("server.upload-dirs = \"{path}\": {error}");
            // Bodies stay in memory then.
            check.warn(check.place("server.upload-dirs"), text);
        }
    }
}

/// Why the file of a directive cannot be used, or which of its lines cannot.
fn faults(directive: &str, path: &Path, depth: Depth) -> Vec<String> {
    match SmallFile::open(path).and_then(|file| file.read(BYTES_MAX)) {
        Err(error) => vec![error.to_string()],
        Ok(_) if depth == Depth::Presence => Vec::new(),
        Ok(_) if directive.starts_with("magnet.") => no_script(path).into_iter().collect(),
        Ok(text) => lighty_modules::auth::faults_of_users(directive, &text),
    }
}

/// Why a file is no script of Lua.
fn no_script(path: &Path) -> Option<String> {
    crate::scripts::check(path).err().map(|error| error.to_string())
}

/// A text, or the texts of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let listed = value.as_list().unwrap_or_default().iter();
    value.as_str().into_iter().chain(listed.filter_map(|(_, item)| item.value.as_str()))
}
