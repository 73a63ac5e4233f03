//! Data from which workers make a generation.

use std::sync::Arc;

use lighty_config::Config;
use lighty_core::Settings;

use crate::listen::planned::PlannedSockets;
use crate::modules::Shared;
use crate::worker::shares::WorkerShares;

/// A configuration with the state that all workers share under it.
pub(crate) struct Plan {
    /// 0 for the first configuration.
    pub number: u64,
    pub config: Arc<Config<Settings>>,
    pub shared: Shared,
    pub shares: WorkerShares,
    /// The listeners of each worker.
    pub sockets: PlannedSockets,
}
