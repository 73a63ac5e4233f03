//! `-v` and `-V`: the version of this binary, and its features on this machine.

use std::fmt::Write;

/// Returns a line with name and version.
pub(crate) fn version_line() -> String {
    format!("lighty/{} - a light and fast web server", env!("CARGO_PKG_VERSION"))
}

/// Returns features, engines and libraries, one per line: `+` if available here, `-` if not.
pub(crate) fn build_info() -> String {
    let mut text = version_line();
    text.push_str("\n\nFile engines:\n");
    for (name, outcome) in lighty_admin::check::file_engines() {
        let _ = match outcome {
            Ok(why) => writeln!(text, "\t+ {name} ({why})"),
            Err(why) => writeln!(text, "\t- {name} ({why})"),
        };
    }
    text.push_str("\nNetwork backends:\n");
    for (name, available) in lighty_admin::check::network_backends() {
        let _ = writeln!(text, "\t{} {name}", if available { '+' } else { '-' });
    }
    text.push_str("\nSandbox:\n");
    for layer in lighty_admin::check::sandbox_layers() {
        let _ = writeln!(text, "\t{} {layer}", if layer.is_off() { '-' } else { '+' });
    }
    text.push_str("\nFeatures:\n");
    for feature in [
        "HTTP/1.0 and HTTP/1.1",
        "HTTP/2 (TLS and clear text)",
        "TLS 1.2 and 1.3",
        "IPv6 support",
        "unix sockets",
        "inherited sockets (LISTEN_FDS, LISTEN_FDNAMES)",
        "large file support",
        "PCRE support",
        "inotify stat cache",
    ] {
        let _ = writeln!(text, "\t+ {feature}");
    }
    let mark = |is_here: bool| if is_here { '+' } else { '-' };
    let has_acme = cfg!(feature = "acme");
    let _ = writeln!(text, "\t{} certificates by ACME", mark(has_acme));
    let _ =
        writeln!(text, "\t{} scripts: {}", mark(LUA.is_some()), LUA.map_or("none", |lua| lua.0));
    text.push_str("\nFeatures of the build:\n");
    for (feature, is_here) in features() {
        let _ = writeln!(text, "\t{} {feature}", mark(is_here));
    }
    text.push_str("\nModules:\n");
    for module in lighty_server::modules::names() {
        let _ = writeln!(text, "\t+ {module}");
    }
    for module in lighty_server::absent::modules() {
        let _ = writeln!(text, "\t- {module}");
    }
    text.push_str("\nLibraries:\n");
    for library in lighty_admin::libraries::lines() {
        let _ = writeln!(text, "\t+ {library}");
    }
    let lua = LUA.map(|(_, name, source)| (name, source));
    for (name, source) in [("AWS-LC", "aws-lc-sys")].into_iter().chain(lua) {
        let version = locked_version(source).unwrap_or("unknown");
        let _ = writeln!(text, "\t+ {name} of {source} {version} (bundled)");
    }
    for library in LIBRARIES.iter().chain(OPTIONAL_LIBRARIES) {
        let _ = writeln!(text, "\t+ {library} {}", locked_version(library).unwrap_or("unknown"));
    }
    text
}

/// The Lua implementation for scripts: version, name, and source package.
const LUA: Option<(&str, &str, &str)> = if cfg!(feature = "luajit") {
    Some(("LuaJIT 2.1", "LuaJIT", "luajit-src"))
} else if cfg!(feature = "lua54") {
    Some(("Lua 5.4", "Lua", "lua-src"))
} else {
    None
};

/// Returns cargo features that a build may lack, with true for features of this build.
fn features() -> Vec<(&'static str, bool)> {
    let parts = lighty_server::absent::PARTS.iter().filter(|part| part.feature != "luajit");
    let mut all: Vec<(&str, bool)> = parts.map(|part| (part.feature, part.is_here)).collect();
    all.extend(lighty_server::optional_codings());
    all.push(("tools", cfg!(feature = "tools")));
    all.push(("luajit", cfg!(feature = "luajit")));
    all.push(("lua54", cfg!(feature = "lua54")));
    all.sort_unstable();
    all.dedup();
    all
}

/// Rust libraries that determine the server's features or speed.
const LIBRARIES: [&str; 9] =
    ["tokio", "rustls", "io-uring", "rustix", "socket2", "httparse", "regex", "flate2", "clap"];

/// Optional libraries of this kind.
const OPTIONAL_LIBRARIES: &[&str] = &[
    #[cfg(feature = "dns")]
    "hickory-resolver",
    #[cfg(feature = "bzip2")]
    "bzip2",
    #[cfg(feature = "acme")]
    "instant-acme",
];

/// Lists every library of the build with its version.
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
        for library in LIBRARIES.iter().chain(OPTIONAL_LIBRARIES) {
            let version = locked_version(library).expect(library);
            assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
        }
        for source in ["aws-lc-sys", "luajit-src", "lua-src"] {
            assert!(locked_version(source).is_some(), "{source}");
        }
        assert_eq!(locked_version("no-such-library"), None);
    }

    #[test]
    fn features_of_the_build_are_listed() {
        let all = features();
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        let wanted = [
            "acme", "brotli", "bzip2", "dns", "identity", "lua54", "luajit", "tools", "tracing",
            "vhostdb", "webdav", "zstd",
        ];
        assert_eq!(names, wanted);
        assert!(all.contains(&("acme", cfg!(feature = "acme"))));
        assert!(all.contains(&("zstd", cfg!(feature = "zstd"))));
    }
}
