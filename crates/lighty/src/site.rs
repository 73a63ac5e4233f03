//! `lighty serve DIR`: the configuration of a server that nobody configured.

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

/// Only `\"` is an escape in the language.
fn quote(text: &str) -> String {
    text.replace('"', "\\\"")
}

fn split(listen: &str) -> Result<(&str, u16), Failure> {
    if listen.starts_with('/') {
        return Ok((listen, 80));
    }
    let wrong = || {
        Failure::Says(format!("--listen {listen}: expected ADDR:PORT, :PORT, [V6]:PORT or a path"))
    };
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
}
