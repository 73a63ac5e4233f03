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

/// Reports what cannot be opened. Under a chroot, `beneath` is its directory.
pub(super) fn look(check: &mut Check<'_>, beneath: &str) {
    let config = check.config;
    for name in FILES {
        for value in config.assigned(name) {
            for path in texts(&value.value).filter(|path| !path.is_empty()) {
<<<<<<< HEAD
                if let Err(error) = SmallFile::open(Path::new(&format!("{beneath}{path}"))) {
                    let text = format!("{name} = \"{path}\": {error}");
                    check.warn(value.span, text);
=======
                let file = format!("{beneath}{path}");
                let problem = match SmallFile::open(Path::new(&file)) {
                    Err(error) => Some(error.to_string()),
                    Ok(_) if name.starts_with("magnet.") => no_script(Path::new(&file)),
                    Ok(_) => None,
                };
                if let Some(problem) = problem {
                    let text = format!("{name} = \"{path}\": {problem}");
                    check.say(level, Some(value.span), text);
>>>>>>> d9a4a0fe (lua: give scripts later names of Lua, errors in Lua's words, and check them deeply)
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

/// Why a file is no script of Lua.
fn no_script(path: &Path) -> Option<String> {
    crate::scripts::check(path).err().map(|error| error.to_string())
}

/// A text, or the texts of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let listed = value.as_list().unwrap_or_default().iter();
    value.as_str().into_iter().chain(listed.filter_map(|(_, item)| item.value.as_str()))
}
