//! `-v` and `-V`: what this binary is and can do on this machine.

use std::fmt::Write;

/// One line: name and version.
pub(crate) fn version_line() -> String {
    format!("lighty/{} - a light and fast web server", env!("CARGO_PKG_VERSION"))
}

/// Features, engines and libraries, one per line, `+` where available here and `-` where not.
pub(crate) fn build_info() -> String {
    let mut text = version_line();
    text.push_str("\n\nFile engines:\n");
    for (name, outcome) in lighty_server::check::file_engines() {
        let _ = match outcome {
            Ok(why) => writeln!(text, "\t+ {name} ({why})"),
            Err(why) => writeln!(text, "\t- {name} ({why})"),
        };
    }
    text.push_str("\nNetwork backends:\n");
    for (name, available) in lighty_server::check::network_backends() {
        let _ = writeln!(text, "\t{} {name}", if available { '+' } else { '-' });
    }
    text.push_str("\nFeatures:\n");
    for feature in [
        "HTTP/1.0 and HTTP/1.1",
        "HTTP/2 (TLS and clear text)",
        "TLS 1.2 and 1.3",
        "certificates by ACME",
        "IPv6 support",
        "unix sockets",
        "inherited sockets (LISTEN_FDS, LISTEN_FDNAMES)",
        "large file support",
        "PCRE support",
        "inotify stat cache",
    ] {
        let _ = writeln!(text, "\t+ {feature}");
    }
    let _ = writeln!(text, "\t+ scripts: {}", lighty_server::scripts::LUA);
    text.push_str("\nModules:\n");
    for module in lighty_server::modules::names() {
        let _ = writeln!(text, "\t+ {module}");
    }
    text.push_str("\nLibraries:\n");
    for library in lighty_server::libraries::lines() {
        let _ = writeln!(text, "\t+ {library}");
    }
    let (lua, source) = match cfg!(feature = "luajit") {
        true => ("LuaJIT", "luajit-src"),
        false => ("Lua", "lua-src"),
    };
    for (name, source) in [("AWS-LC", "aws-lc-sys"), (lua, source)] {
        let version = locked_version(source).unwrap_or("unknown");
        let _ = writeln!(text, "\t+ {name} of {source} {version} (bundled)");
    }
    for library in LIBRARIES {
        let _ = writeln!(text, "\t+ {library} {}", locked_version(library).unwrap_or("unknown"));
    }
    text
}

/// Libraries in Rust that decide what the server can do, or how fast.
const LIBRARIES: [&str; 13] = [
    "tokio",
    "rustls",
    "io-uring",
    "rustix",
    "socket2",
    "httparse",
    "regex",
    "hickory-resolver",
    "flate2",
    "brotli",
    "bzip2",
    "instant-acme",
    "clap",
];

/// Every library of the build with its version.
const LOCKED: &str = include_str!("../../../Cargo.lock");

fn locked_version(library: &str) -> Option<&'static str> {
    let mut lines = LOCKED.lines();
    lines.find(|line| {
        line.strip_prefix("name = ").is_some_and(|name| name.trim_matches('"') == library)
    })?;
    lines.next()?.strip_prefix("version = ").map(|version| version.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_has_a_version() {
        for library in LIBRARIES {
            let version = locked_version(library).expect(library);
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
        }
        for source in ["aws-lc-sys", "luajit-src", "lua-src"] {
            assert!(locked_version(source).is_some(), "{source}");
        }
        assert_eq!(locked_version("no-such-library"), None);
    }
}
