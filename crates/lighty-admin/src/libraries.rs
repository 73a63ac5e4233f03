//! C libraries that the program is linked with.

use lighty_io::libraries::Library;
use lighty_modules::{deflate, webdav};

/// Each library with its version and origin, such as `PCRE2 10.46 2025-08-27 (bundled)`.
pub fn lines() -> Vec<String> {
    let mut all = lighty_io::libraries::libraries();
    all.extend(webdav::library());
    all.extend(deflate::libraries());
    all.iter().map(line).collect()
}

fn line(library: &Library) -> String {
    let origin = match library.loaded_from() {
        Some(path) => format!("system: {}", path.display()),
        None => "bundled".to_owned(),
    };
    format!("{} {} ({origin})", library.name, library.version)
}
