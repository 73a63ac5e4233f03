//! The names in ARCHITECTURE.md, compared with the tree.

use std::fs;

use super::files::{all_files, workspace};
use super::waits::names_file;

/// Texts in backquotes that look like a constant or a path to a source file.
fn quoted_names(page: &str) -> Vec<&str> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|text| is_constant(text) || is_path(text)).collect()
}

fn is_constant(text: &str) -> bool {
    text.len() > 3
        && text.contains('_')
        && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn is_path(text: &str) -> bool {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/_-.".contains(c));
    is_plain && text.contains('/') && (text.ends_with(".rs") || text.ends_with('/'))
}

#[test]
fn architecture_names_what_exists() {
    let page = fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("the page");
    let names = quoted_names(&page);
    assert!(names.len() > 60, "{names:?}");
    let files = all_files();
    let exists = |name: &str| {
        if is_constant(name) {
            let definitions = [format!("const {name}:"), format!("static {name}:")];
            let defines = |text: &str| definitions.iter().any(|one| text.contains(one));
            return files.iter().any(|file| file.is_rust() && defines(&file.text));
        }
        workspace().join(name).exists()
            || files.iter().any(|file| {
                let below = file.below_src().unwrap_or(&file.path);
                names_file(name, file.crate_name(), below)
            })
    };
    let missing: Vec<_> = names.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:?}");
}

#[test]
fn constants_and_paths_are_read_from_a_page() {
    let page = "`WRITERS`, `CLOCK_READERS` and `io/send/`, `a/b.rs`, `HTTP/2`, `x.rs`, `A_B c`";
    assert_eq!(quoted_names(page), ["CLOCK_READERS", "io/send/", "a/b.rs"]);
}
