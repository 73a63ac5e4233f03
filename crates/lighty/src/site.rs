//! `lighty serve DIR` and `lighty proxy --to BACKEND`: the configuration of a server that nobody
//! configured.

use std::path::Path;

use crate::commands::Failure;

/// Configuration text for a directory.
pub(crate) fn configuration(dir: &Path, listen: &str, browse: bool) -> Result<String, Failure> {
    let says = |text: String| Failure::Says(text);
    let root =
        std::fs::canonicalize(dir).map_err(|error| says(format!("{}: {error}", dir.display())))?;
    if !root.is_dir() {
        return Err(says(format!("{} is not a directory", dir.display())));
    }
    let root = root.to_str().ok_or_else(|| says("the directory's name is not UTF-8".into()))?;
    let (bind, port) = split(listen)?;
    let browse = if browse { "enable" } else { "disable" };
    Ok(format!(
        "server.document-root = \"{}\"\nserver.bind = \"{}\"\nserver.port = {port}\n\
         server.errorlog-level = \"notice\"\n\
         index-file.names = ( \"index.html\", \"index.htm\" )\ndir-listing.activate = \"{browse}\"\n",
        quote(root),
        quote(bind),
    ))
}

/// Configuration text for a server that only passes requests on.
pub(crate) fn proxy(from: &str, to: &[String], protocol: &str) -> Result<String, Failure> {
    let (bind, port) =
        split(from).map_err(|_| Failure::Says(format!("--from {from}: {LISTEN_FORMS}")))?;
    let backends: Vec<String> = to.iter().map(|to| format!("\"{}\"", backend(to))).collect();
    Ok(format!(
        "server.bind = \"{}\"\nserver.port = {port}\nserver.errorlog-level = \"notice\"\n\
         proxy-core.protocol = \"{}\"\nproxy-core.balancer = \"sqf\"\n\
         proxy-core.upgrade = \"{}\"\nproxy-core.backends = ( {} )\n",
        quote(bind),
        quote(protocol),
        if protocol == "http" { "enable" } else { "disable" },
        backends.join(", "),
    ))
}

/// A backend as the language has it: a port alone is one of this machine.
fn backend(to: &str) -> String {
    let bare = to.strip_prefix("http://").map_or(to, |rest| rest.trim_end_matches('/'));
    match bare.strip_prefix(':') {
        Some(port) if !port.contains(':') => format!("127.0.0.1:{}", quote(port)),
        _ => quote(bare),
    }
}

const LISTEN_FORMS: &str = "expected ADDR:PORT, :PORT, [V6]:PORT or a path";

/// Only `\"` is an escape in the language.
fn quote(text: &str) -> String {
    text.replace('"', "\\\"")
}

fn split(listen: &str) -> Result<(&str, u16), Failure> {
    if listen.starts_with('/') {
        return Ok((listen, 80));
    }
    let wrong = || Failure::Says(format!("--listen {listen}: {LISTEN_FORMS}"));
    let (host, port) = match listen.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => return Err(wrong()),
    };
    Ok((host, port.parse().map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_split() {
        let split = |text| split(text).ok();
        assert_eq!(split("127.0.0.1:8080"), Some(("127.0.0.1", 8080)));
        assert_eq!(split(":81"), Some(("", 81)));
        assert_eq!(split("[::1]:82"), Some(("[::1]", 82)));
        assert_eq!(split("/run/x.sock"), Some(("/run/x.sock", 80)));
        assert_eq!(split("::1"), None);
        assert_eq!(split("host"), None);
        assert_eq!(split("host:70000"), None);
    }

    #[test]
    fn a_proxy_is_a_configuration() {
        let to = [":3000".to_owned(), "http://app:81/".to_owned(), "unix:/run/a\"b".to_owned()];
        let text = proxy(":8080", &to, "http").ok().expect("a text");
        let backends = "( \"127.0.0.1:3000\", \"app:81\", \"unix:/run/a\\\"b\" )";
        assert!(text.contains(backends), "{text}");
        assert!(text.contains("server.port = 8080"), "{text}");
        assert!(proxy("8080", &to, "http").is_err());
    }
}
