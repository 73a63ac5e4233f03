//! All metrics for a collector that they are sent to.

use lighty_core::machine::status_board::{ReportParts, StatusBoard};
use lighty_io::clock::Clock;

use super::exposition;
use super::facts::{Facts, FactsInput};

/// Asks the workers for their figures and writes all metrics as an OTLP request, under the name of
/// a service. `None` if the thread cannot wait for the workers. Blocks for a second at most; call
/// it on no event loop.
pub fn export(board: &StatusBoard, started_s: i64, service: &str) -> Option<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
    let wanted = ReportParts { durations: true, ..ReportParts::default() };
    let (reports, workers) = runtime.block_on(board.ask(wanted));
    let clock = Clock::start();
    let input = FactsInput {
        reports,
        workers,
        started_s,
        now_s: clock.unix_s(),
        modules: Vec::new(),
        sort: false,
        refresh_s: None,
        host: String::new(),
    };
    let now_us = clock.unix_s().unsigned_abs() * 1_000_000 + u64::from(clock.unix_us());
    Some(exposition::write_otlp(&Facts::gather(input, board), service, now_us))
}
