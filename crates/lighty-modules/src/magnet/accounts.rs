//! Resource usage of scripts and the counters that scripts maintain, for the statistics.

use lighty_core::machine::status_board::Statistics;

/// The accounts of the process.
#[derive(Clone, Debug, Default)]
pub struct Accounts(pub(super) lighty_lua::accounts::Accounts);

impl Statistics for Accounts {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        figures.append(&mut self.0.figures());
    }

    fn count(&self, counters: &mut Vec<(String, u64)>) {
        counters.append(&mut self.0.sums());
    }
}

impl Accounts {
    /// The counters of scripts, for the process that takes this one's place.
    pub fn remember(&self) -> Vec<(String, i64)> {
        self.0.remember()
    }

    /// Continues the counters of the process before this one.
    pub fn recall(&self, counters: Vec<(String, i64)>) {
        self.0.recall(counters);
    }
}
