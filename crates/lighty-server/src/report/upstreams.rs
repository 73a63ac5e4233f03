//! Backend statistics of the process, for the board.

use std::sync::Arc;

use lighty_core::machine::status_board::{BackendPool, BackendReport, Statistics};
use lighty_io::clock::Clock;
use lighty_proxy::upstream::registry::Registry;
use lighty_proxy::upstream::stats;

/// Statistics of all upstreams and their addresses.
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

    fn collect_pools(&self, pools: &mut Vec<BackendPool>) {
        let all = stats::figures(&self.0, Clock::start().mono_ms());
        pools.extend(all.into_iter().map(|upstream| BackendPool {
            name: upstream.name.to_string(),
            requests: upstream.requests,
            waiting: upstream.backlogged,
            backends: upstream.addresses.into_iter().map(backend).collect(),
        }));
    }
}

fn backend(address: stats::AddressFigures) -> BackendReport {
    BackendReport {
        address: address.text.to_string(),
        state: address.state.word(),
        why: address.last_failure.map_or_else(String::new, |why| why.to_string()),
        in_use: address.load,
        idle: address.idle,
        requests: address.requests,
        failed: address.failed,
        first_byte_us: address.first_byte_us,
        weight: address.weight,
        connections_max: address.connections_max,
        is_added: address.is_added,
    }
}
