//! Checks files and directories that requests need, though the server starts without them: users,
//! scripts, directories for uploads.

use std::path::Path;

use lighty_config::{Spanned, Value};
use lighty_io::file::small_file::SmallFile;

use super::machine::{SERVERS, items};
use super::{Check, assigned};

/// Directives that name files.
const FILES: [&str; 12] = [
    "auth.backend.ldap.bind-pw-file",
    "auth.backend.ldap.ca-file",
    "auth.backend.ldap.cert",
    "auth.backend.ldap.key",
    "auth.backend.plain.userfile",
    "auth.backend.plain.groupfile",
    "auth.backend.htpasswd.userfile",
    "auth.backend.htdigest.userfile",
    "magnet.attract-raw-url-to",
    "magnet.attract-physical-path-to",
    "magnet.attract-response-start-to",
    "magnet.attract-response-content-to",
];

/// Depth of the check of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Checks that they can be read.
    Presence,
    /// Checks their lines, too. A running server reports faulty lines on first use of a file.
    Content,
}

/// Limit on the bytes read of such a file.
const BYTES_MAX: u64 = 64 << 20;

/// Reports files that cannot be opened. Under a chroot, `beneath` is its directory.
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
    for service in lighty_modules::auth::pam_services(config) {
        let places = ["/etc/pam.d", "/usr/lib/pam.d"];
        if !places.iter().any(|place| Path::new(place).join(&service).exists()) {
            let text = format!("{}/{service} does not exist: PAM takes {0}/other", places[0]);
            let place = check.place("auth.backend.pam.opts");
            check.warn(place.or(check.place("auth.backend")), text);
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

/// Reports faults that a running server only reports when a request or handshake needs the file.
pub(super) fn look_closely(check: &mut Check<'_>, beneath: &str) {
    let config = check.config;
    // Read before a chroot, and again while the server runs.
    for (path, span) in assigned(config, "ssl.stapling-file").filter(|(path, _)| !path.is_empty()) {
        let read = SmallFile::open(Path::new(path)).and_then(|file| file.read(BYTES_MAX));
        if let Err(error) = read {
            let text = format!("ssl.stapling-file = \"{path}\": {error}: nothing is stapled");
            check.warn(span, text);
        }
    }
    for name in SERVERS {
        config.assigned(name).for_each(|value| sendfile_roots(check, name, value, beneath));
    }
    for name in SENDFILE_ROOTS {
        for value in config.assigned(name) {
            directories(check, name, value, beneath);
        }
    }
    users_without_backend(check);
}

/// Directories that backends and programs may send files from.
const SENDFILE_ROOTS: [&str; 2] = ["proxy-core.x-sendfile-docroot", "cgi.x-sendfile-docroot"];

/// Checks the `x-sendfile-docroot` of a host, or of any value that contains hosts.
fn sendfile_roots(check: &mut Check<'_>, name: &str, value: &Spanned<Value>, beneath: &str) {
    for (key, item) in items(value) {
        match key {
            Some("x-sendfile-docroot") => {
                directories(check, &format!("{name}: x-sendfile-docroot"), item, beneath);
            }
            _ => sendfile_roots(check, name, item, beneath),
        }
    }
}

fn directories(check: &mut Check<'_>, name: &str, value: &Spanned<Value>, beneath: &str) {
    for path in texts(&value.value).filter(|path| !path.is_empty()) {
        check.served(name, path, beneath, value.span);
    }
}

/// Warns of `auth.require` without a backend that knows users: every request for it is refused.
fn users_without_backend(check: &mut Check<'_>) {
    let config = check.config;
    let is_set = |name: &str| assigned(config, name).any(|(text, _)| !text.is_empty());
    if is_set("auth.backend") {
        let directory = assigned(config, "auth.backend").find(|(name, _)| *name == "ldap");
        let needed = ["auth.backend.ldap.hostname", "auth.backend.ldap.filter"];
        for (name, (_, span)) in needed.into_iter().zip(directory.into_iter().cycle()) {
            if !is_set(name) {
                check.warn(span, format!("auth.backend = \"ldap\" needs {name}"));
            }
        }
        return;
    }
    for value in config.assigned("auth.require") {
        let needs = |(_, rule): (Option<&str>, &Spanned<Value>)| {
            let method = items(rule).find(|(key, _)| *key == Some("method"));
            let methods = method.and_then(|(_, method)| method.value.as_str()).unwrap_or_default();
            methods.split('|').any(|method| matches!(method.trim(), "basic" | "digest"))
        };
        if items(value).any(needs) {
            let text = "auth.require without auth.backend: no user can be verified, so every \
                        request for these paths is refused";
            check.warn(value.span, text.to_owned());
        }
    }
}

/// Returns the faults of a directive's file or, at full depth, of its lines.
fn faults(directive: &str, path: &Path, depth: Depth) -> Vec<String> {
    match SmallFile::open(path).and_then(|file| file.read(BYTES_MAX)) {
        Err(error) => vec![error.to_string()],
        Ok(_) if depth == Depth::Presence => Vec::new(),
        Ok(_) if directive.starts_with("magnet.") => no_script(path).into_iter().collect(),
        Ok(text) => lighty_modules::auth::faults_of_users(directive, &text),
    }
}

/// Returns the reason why a file is not a Lua script.
fn no_script(path: &Path) -> Option<String> {
    crate::scripts::check(path).err().map(|error| error.to_string())
}

/// Returns a text, or the texts of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let listed = value.as_list().unwrap_or_default().iter();
    value.as_str().into_iter().chain(listed.filter_map(|(_, item)| item.value.as_str()))
}
