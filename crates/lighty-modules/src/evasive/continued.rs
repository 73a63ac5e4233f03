//! Counts that limits of the next configuration continue.

use std::collections::HashMap;

use lighty_config::Config;
use lighty_core::Settings;

use super::settings::LimitSettings;

/// Directives whose limits count.
const COUNTING: &[&str] =
    &["evasive.max-conns-per-ip", "limit.requests", "limit.connections", "limit.bandwidth"];

/// Place of a limit: the conditions around it, its directive, and its number among those of the
/// same place.
pub(super) type LimitPlace = (String, &'static str, usize);

/// Has the limits of the next configuration continue the counts of those that are at the same place
/// and count by the same key. Called before the next configuration is in use.
pub fn continue_counts(present: &Config<Settings>, next: &Config<Settings>) {
    let before = limits_of(present);
    if before.is_empty() {
        return;
    }
    for (place, limit) in limits_of(next) {
        if let Some(known) = before.get(&place) {
            limit.continue_from(known);
        }
    }
}

/// The limits of a configuration by their places.
pub(super) fn limits_of(config: &Config<Settings>) -> HashMap<LimitPlace, LimitSettings> {
    let mut found = HashMap::new();
    for (id, block) in config.blocks().iter().enumerate() {
        for setting in block.settings.iter().filter(|one| COUNTING.contains(&one.name)) {
            let mut settings = Settings::default();
            setting.apply(&mut settings);
            let limit = settings.module::<LimitSettings>().clone();
            let place = place(config, id);
            let number =
                (0..).find(|number| !found.contains_key(&(place.clone(), setting.name, *number)));
            found.insert((place, setting.name, number.unwrap_or(0)), limit);
        }
    }
    found
}

/// The heads of a block and of those around it, the innermost first.
fn place(config: &Config<Settings>, id: usize) -> String {
    let blocks = config.blocks();
    let around = |id: &usize| Some(blocks.get(*id)?.parent as usize).filter(|id| *id != 0);
    let ids = std::iter::successors(Some(id).filter(|id| *id != 0), around);
    ids.map(|id| blocks[id].head()).collect::<Vec<_>>().join(" in ")
}
