//! What scripts have used, and the counters that they keep themselves: for the statistics.

use lighty_core::machine::status_board::Statistics;

/// The accounts of the process.
#[derive(Clone, Debug, Default)]
pub struct Accounts(pub(super) lighty_lua::accounts::Accounts);

impl Statistics for Accounts {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        figures.append(&mut self.0.figures());
    }
}
