//! `webdav` of a build without the module: no configuration names a database.

use std::path::Path;

use lighty_config::{Config, Diagnostic, Span};
use lighty_core::Settings;
use lighty_io::libraries::Library;

/// The databases of all workers: none.
#[derive(Clone, Debug)]
pub struct Stores;

impl Stores {
    /// No database reports anything.
    pub fn new(_: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self
    }

    /// Does nothing.
    pub fn expect(&self, _: &Path) {}

    /// Returns true: none is open.
    pub fn close_others(&self, _: &[&Path]) -> bool {
        true
    }
}

/// None.
pub fn databases(_: &Config<Settings>) -> impl Iterator<Item = (&str, Span)> {
    std::iter::empty()
}

/// Nothing is wrong.
pub fn check(_: &Config<Settings>) -> Vec<Diagnostic> {
    Vec::new()
}

/// None.
pub fn library() -> Option<Library> {
    None
}
