//! `outside` of a build without the feature `identity`: all users are in files.

#[path = "address.rs"]
mod address;

use lighty_config::{Config, Directive};
use lighty_core::{Exchange, Settings};

pub use address::DirectoryAddress;

use super::backend::OutsideBackend;
use super::require::Rule;
use super::settings::AuthSettings;
use super::{Auth, Verdict};

/// No state.
#[derive(Default)]
pub(super) struct OutsideUsers {}

/// Returns no rows.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    Vec::new()
}

/// Returns no addresses.
#[must_use]
pub fn directory_addresses(_: &str) -> Vec<DirectoryAddress> {
    Vec::new()
}

/// Returns no services.
pub fn pam_services(_: &Config<Settings>) -> Vec<String> {
    Vec::new()
}

impl Auth {
    /// Returns false.
    pub(super) fn is_known_outside(
        &self,
        _: &Exchange,
        _: &AuthSettings,
        _: &Rule,
        _: &[u8],
        _: &[u8],
    ) -> bool {
        false
    }

    /// Cannot be called.
    pub(super) async fn basic_outside(
        &self,
        _: &Exchange,
        _: &AuthSettings,
        _: &Rule,
        backend: OutsideBackend,
        _: Vec<u8>,
        _: Vec<u8>,
    ) -> Verdict {
        match backend {}
    }
}
