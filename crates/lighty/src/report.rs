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
        "IPv6 support",
        "unix sockets",
        "inherited sockets (LISTEN_FDS, LISTEN_FDNAMES)",
        "large file support",
        "inotify stat cache",
    ] {
        let _ = writeln!(text, "\t+ {feature}");
    }
    text.push_str("\nModules:\n");
    for module in lighty_server::modules::BUILT_IN {
        let _ = writeln!(text, "\t+ {module}");
    }
    text.push_str("\nLibraries:\n");
    for library in ["tokio", "io-uring", "rustix", "httparse", "regex", "mimalloc"] {
        let _ = writeln!(text, "\t+ {library}");
    }
    text
}
