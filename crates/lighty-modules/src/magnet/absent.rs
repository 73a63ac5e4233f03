//! Placeholder for `magnet` in builds without scripts.

use lighty_core::machine::status_board::Statistics;

/// The accounts of scripts: none.
#[derive(Clone, Debug, Default)]
pub struct Accounts;

impl Statistics for Accounts {
    fn collect(&self, _: &mut Vec<(String, String)>) {}
}

impl Accounts {
    /// Returns none.
    pub fn remember(&self) -> Vec<(String, i64)> {
        Vec::new()
    }

    /// Does nothing.
    pub fn recall(&self, _: Vec<(String, i64)>) {}
}
