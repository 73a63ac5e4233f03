//! Resource usage of scripts and the counters that scripts maintain, for the statistics.

use lighty_core::machine::status_board::Statistics;

/// The accounts of the process.
#[derive(Clone, Debug, Default)]
pub struct Accounts(pub(super) lighty_lua::accounts::Accounts);

impl Statistics for Accounts {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        figures.append(&mut self.0.figures());
    }
}
