//! Checks the addresses, programs, user files and sockets that a configuration names on this
//! machine. A fault that breaks the start or a whole kind of request is an error. A fault that
//! affects some requests, or may disappear later, is a warning.

use std::io;
use std::path::Path;

use lighty_config::{Span, Spanned, Value};
use lighty_io::listen::{self, BindSpec};
use lighty_io::process::privileges;

use super::{Check, assigned};
use lighty_server::listen::listeners;

/// Directives with hosts that may be programs or sockets.
pub(super) const SERVERS: [&str; 6] = [
    "fastcgi.server",
    "scgi.server",
    "ajp13.server",
    "proxy.server",
    "sockproxy.server",
    "wstunnel.server",
];

/// Runs all checks. Under a chroot, `beneath` is its directory.
pub(super) fn look(check: &mut Check<'_>, beneath: &str) {
    addresses(check);
    let config = check.config;
    for name in SERVERS {
        config.assigned(name).for_each(|value| hosts(check, value, beneath));
    }
    for value in config.assigned("proxy-core.backends") {
        backends(check, value, beneath);
    }
    for value in config.assigned("cgi.assign") {
        interpreters(check, value, beneath);
    }
    for value in config.assigned("alias.url") {
        aliases(check, value, beneath);
    }
    for (prefix, span) in assigned(config, "server.errorfile-prefix") {
        error_pages(check, prefix, span, beneath);
    }
    for (path, span) in assigned(config, "deflate.cache-dir").filter(|(path, _)| !path.is_empty()) {
        if let Err(error) = makes_directory(&format!("{beneath}{path}")) {
            check.warn(span, format!("deflate.cache-dir = \"{path}\": {error}"));
        }
    }
}

/// Returns an error if a directory cannot be read and cannot be created either.
fn makes_directory(path: &str) -> io::Result<()> {
    match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut above = Path::new(path).ancestors().skip(1);
            let is_there = |above: &&Path| above.exists() || above.as_os_str().is_empty();
            let first = above.find(is_there);
            match first.is_some_and(|above| above.is_dir() || above.as_os_str().is_empty()) {
                true => Ok(()),
                false => Err(io::ErrorKind::NotADirectory.into()),
            }
        }
        other => other.map(|_| ()),
    }
}

/// Checks that this machine has the addresses and that this process may listen on them.
fn addresses(check: &mut Check<'_>) {
    let config = check.config;
    let server = &config.global().server;
    // Syntax errors were reported earlier.
    let Ok(wanted) = listeners::wanted(config, server) else { return };
    let sockets = config.listen_sockets();
    let is_inherited = std::env::var_os("LISTEN_FDS").is_some();
    for (index, want) in wanted.iter().enumerate() {
        let written = sockets
            .iter()
            .find(|socket| index > 0 && listeners::name(config, Some(&socket.text)) == want.name);
        let place = match written {
            Some(socket) => Some(socket.span),
            None => check.place("server.bind").or(check.place("server.port")),
        };
        match &want.spec {
            BindSpec::Inet(address) => {
                if !listen::is_of_this_machine(address.ip()) {
                    let text = format!("{}: this machine does not have the address", want.name);
                    check.report(place, text);
                }
                if !is_inherited && !privileges::may_listen_on(address.port()) {
                    let text = format!(
                        "{}: this user may not listen below port {}: that takes root, or the \
                         capability CAP_NET_BIND_SERVICE",
                        want.name,
                        privileges::first_free_port()
                    );
                    check.warn(place, text);
                }
            }
            BindSpec::Unix(path) => {
                let text = path.to_string_lossy();
                if !text.starts_with('@') {
                    check.parent("the socket", &text, place);
                }
            }
        }
    }
}

pub(super) fn items(
    value: &Spanned<Value>,
) -> impl Iterator<Item = (Option<&str>, &Spanned<Value>)> {
    let items = value.value.as_list().unwrap_or_default();
    items.iter().map(|(key, item)| (key.as_deref(), item))
}

/// Checks a host, or any value that contains hosts.
fn hosts(check: &mut Check<'_>, value: &Spanned<Value>, beneath: &str) {
    let text_of = |name: &str| {
        let found =
            items(value).find(|(key, item)| *key == Some(name) && item.value.as_str().is_some());
        found.and_then(|(_, item)| Some((item.value.as_str()?, item.span)))
    };
    match (text_of("bin-path"), text_of("socket")) {
        (Some((command, span)), _) => {
            let program = command.split_ascii_whitespace().next().unwrap_or_default();
            if let Err(why) = executable(program, beneath) {
                check.report(Some(span), format!("bin-path: {program}: {why}"));
            }
        }
        (None, Some((path, span))) => backend_socket(check, path, span, beneath),
        (None, None) => items(value).for_each(|(_, item)| hosts(check, item, beneath)),
    }
}

fn backends(check: &mut Check<'_>, value: &Spanned<Value>, beneath: &str) {
    if let Some(path) = value.value.as_str().and_then(|text| text.strip_prefix("unix:")) {
        backend_socket(check, path, value.span, beneath);
    }
    items(value).for_each(|(_, item)| backends(check, item, beneath));
}

/// Checks a socket that another process creates, perhaps later.
fn backend_socket(check: &mut Check<'_>, path: &str, span: Span, beneath: &str) {
    if path.starts_with('/')
        && let Err(error) = std::fs::metadata(format!("{beneath}{path}"))
    {
        check.warn(span, format!("the backend's socket {path}: {error}"));
    }
}

fn interpreters(check: &mut Check<'_>, value: &Spanned<Value>, beneath: &str) {
    for (_, item) in items(value) {
        let program = item.value.as_str().unwrap_or_default();
        if program.starts_with('/')
            && let Err(why) = executable(program, beneath)
        {
            check.warn(item.span, format!("cgi.assign: {program}: {why}"));
        }
    }
}

/// Returns an error if a file cannot be executed.
fn executable(path: &str, beneath: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let meta = std::fs::metadata(format!("{beneath}{path}"))?;
    if !meta.is_file() {
        return Err(io::Error::other("is no file"));
    }
    match meta.permissions().mode() & 0o111 {
        0 => Err(io::Error::other("may not be executed (chmod +x)")),
        _ => Ok(()),
    }
}

fn aliases(check: &mut Check<'_>, value: &Spanned<Value>, beneath: &str) {
    for (key, item) in items(value) {
        let path = item.value.as_str().unwrap_or_default();
        if path.is_empty() {
            continue;
        }
        if let Err(error) = std::fs::metadata(format!("{beneath}{path}")) {
            let url = key.unwrap_or_default();
            check.warn(item.span, format!("alias.url: \"{url}\" => \"{path}\": {error}"));
        }
    }
}

/// Error pages are named by a prefix before the status.
fn error_pages(check: &mut Check<'_>, prefix: &str, span: Span, beneath: &str) {
    if prefix.is_empty() {
        return;
    }
    let (directory, start) = prefix.rsplit_once('/').unwrap_or((".", prefix));
    let directory = format!("{beneath}{directory}/");
    let is_page = |name: &std::ffi::OsStr| {
        let name = name.to_string_lossy();
        name.starts_with(start) && name.ends_with(".html")
    };
    let text = match std::fs::read_dir(Path::new(&directory)) {
        Err(error) => error.to_string(),
        Ok(mut entries) => match entries.any(|e| e.is_ok_and(|e| is_page(&e.file_name()))) {
            true => return,
            false => format!("no page begins with it (as {start}404.html would)"),
        },
    };
    check.warn(Some(span), format!("server.errorfile-prefix = \"{prefix}\": {text}"));
}
