//! `webdav` of a build without the module: no configuration names a database.

use std::path::Path;

use lighty_config::{Config, Diagnostic, Span};
use lighty_core::Settings;
use lighty_io::libraries::Library;

/// The databases of all workers; always empty.
#[derive(Clone, Debug)]
pub struct Stores;

impl Stores {
    /// No database reports anything.
    pub fn new(_: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self
    }

    /// Does nothing.
    pub fn expect(&self, _: &Path) {}

    /// Returns true: no database is open.
    pub fn close_others(&self, _: &[&Path]) -> bool {
        true
    }
}

/// Returns nothing.
pub fn databases(_: &Config<Settings>) -> impl Iterator<Item = (&str, Span)> {
    std::iter::empty()
}

/// Returns no warnings.
pub fn check(_: &Config<Settings>) -> Vec<Diagnostic> {
    Vec::new()
}

/// Returns `None`.
pub fn library() -> Option<Library> {
    None
}
