//! Stores of responses on disks, from the start of the process to its end.

use std::time::Duration;

use lighty_config::Config;
use lighty_core::Settings;
use lighty_core::log::{About, Level, Log};
use lighty_modules::cache::{CacheStores, DiskReport};

use super::{BootError, wall_s};
use crate::reload::Plan;

/// Time for which the end of the process waits for what is written at last.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

fn stores(plan: &Plan) -> CacheStores {
    plan.shared.states.of("mod_cache")
}

/// Creates the directories before privileges are dropped, for this user and group.
///
/// # Errors
/// All faults.
pub(super) fn prepare(
    config: &Config<Settings>,
    owner: Option<(u32, u32)>,
) -> Result<(), BootError> {
    let faults = CacheStores::prepare(config, owner);
    if faults.is_empty() { Ok(()) } else { Err(BootError::Files(faults)) }
}

/// Creates the directories for a reload. Returns the faults.
pub(crate) fn faults(config: &Config<Settings>) -> Vec<String> {
    CacheStores::prepare(config, None)
}

/// Opens the stores of a configuration, and closes the ones that it does not have.
///
/// # Errors
/// All faults. A store that is not open keeps its responses in memory.
pub(crate) fn open(plan: &Plan, log: &Log) -> Result<(), BootError> {
    let report = || -> DiskReport {
        let log = log.clone();
        Box::new(move |text| log.line(Level::Warning, wall_s(), text, About::default()))
    };
    let faults = stores(plan).follow(&plan.config, &report);
    if faults.is_empty() { Ok(()) } else { Err(BootError::Files(faults)) }
}

/// Lets a successor have the directories. Responses that are stored can still be read.
pub(super) fn release(plan: &Plan) {
    stores(plan).close(Duration::ZERO);
}

/// Writes what was used, and ends the use of the disks.
pub(super) fn close(plan: &Plan) {
    stores(plan).close(CLOSE_PATIENCE);
}
