//! The files of the workspace, by their paths below its root.

use std::path::{Path, PathBuf};

/// A file and its text.
pub(super) struct TextFile {
    /// Relative to the workspace, with slashes.
    pub(super) path: String,
    pub(super) text: String,
}

impl TextFile {
    pub(super) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The crate that the file belongs to; empty outside of `crates/`.
    pub(super) fn crate_name(&self) -> &str {
        let below = self.path.strip_prefix("crates/").unwrap_or_default();
        below.split_once('/').map_or("", |(name, _)| name)
    }

    /// The path below the `src` of the crate; `None` for examples, tests and build scripts.
    pub(super) fn below_src(&self) -> Option<&str> {
        let below = self.path.strip_prefix("crates/")?.split_once('/')?.1;
        below.strip_prefix("src/")
    }

    /// True for files that hold nothing but tests.
    pub(super) fn is_test(&self) -> bool {
        let stem = self.stem();
        stem == "tests" || stem.ends_with("_tests") || self.path.split('/').any(|c| c == "tests")
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(super) fn is_crate_root(&self) -> bool {
        matches!(self.below_src(), Some("lib.rs" | "main.rs"))
    }

    pub(super) fn stem(&self) -> &str {
        Path::new(&self.path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
    }
}

pub(super) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// The names of the directories below `crates/`.
pub(super) fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(workspace().join("crates")).expect("the crates");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let crates = paths.filter(|path| path.join("Cargo.toml").exists());
    let mut names: Vec<_> =
        crates.map(|path| path.file_name().unwrap_or_default().to_string_lossy().into()).collect();
    names.sort();
    assert!(names.len() >= 15, "only {} crates were found", names.len());
    names
}

/// All text files of the workspace, without build output.
pub(super) fn all_files() -> Vec<TextFile> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(workspace()).expect("the workspace").flatten() {
        if entry.file_name() != ".git" {
            collect(&entry.path(), &mut paths);
        }
    }
    let files = read(paths);
    assert!(files.len() > 1000, "only {} files were found", files.len());
    files
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_symlink() {
        return;
    }
    if !path.is_dir() {
        files.push(path.to_owned());
        return;
    }
    if path.file_name().is_some_and(|name| name == "target") {
        return;
    }
    for entry in std::fs::read_dir(path).expect("a directory").flatten() {
        collect(&entry.path(), files);
    }
}

/// Reads files; skips binary ones.
fn read(mut paths: Vec<PathBuf>) -> Vec<TextFile> {
    let root = workspace();
    paths.sort();
    let file = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        let relative = path.strip_prefix(&root).expect("a file of the workspace");
        Some(TextFile { path: relative.to_string_lossy().into_owned(), text })
    };
    paths.iter().filter_map(file).collect()
}
