//! What the process's backends do, as figures for the board.

use std::sync::Arc;

use lighty_core::board::Statistics;
use lighty_io::clock::Clock;
use lighty_proxy::registry::Registry;
use lighty_proxy::stats;

/// The figures of all upstreams and of their addresses.
pub(crate) struct UpstreamFigures(pub Arc<Registry>);

impl Statistics for UpstreamFigures {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        let all = stats::figures(&self.0, Clock::start().mono_ms());
        if !all.is_empty() {
            let requests = stats::requests(&all).to_string();
            figures.push(("proxy-core.requests".to_owned(), requests));
        }
        figures.extend(all.iter().flat_map(stats::UpstreamFigures::pairs));
    }
}
