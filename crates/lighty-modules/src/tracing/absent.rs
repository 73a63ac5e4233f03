//! `tracing` of a build without the module: nothing is exported.

use std::sync::Arc;
use std::time::Duration;

use lighty_core::Settings;
use lighty_core::log::Log;
use lighty_core::machine::status_board::Statistics;

/// The exporters of the process; always empty.
#[derive(Clone, Debug, Default)]
pub struct Exporters;

impl Exporters {
    /// Returns immediately.
    pub fn finish(&self, _: Duration) {}
}

impl Statistics for Exporters {
    fn collect(&self, _: &mut Vec<(String, String)>) {}
}

/// Makes a request with all metrics; never called.
pub type MetricsSource = Arc<dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync>;

/// The exports of a process; none.
#[derive(Default)]
pub struct Telemetry(());

impl Telemetry {
    /// Exports nothing.
    pub fn follow(&mut self, _: &Settings, _: &Exporters, _: &Log, _: MetricsSource) {}

    /// Does nothing.
    pub fn end_metrics(&mut self) {}

    /// Returns immediately.
    pub fn end(&mut self, _: &Log) {}
}
