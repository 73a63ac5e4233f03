//! The settings of a block and the blocks around it, for checks without a request.

use lighty_config::Config;
use lighty_core::Settings;

/// Returns the settings that apply if the condition of the block numbered `id`, and every condition
/// around it, is true.
pub fn of(config: &Config<Settings>, id: usize) -> Settings {
    let blocks = config.blocks();
    let around = |id: &usize| match *id {
        0 => None,
        id => Some(blocks[id].parent as usize),
    };
    let mut path: Vec<usize> = std::iter::successors(Some(id), around).collect();
    path.reverse();
    let mut settings = config.global().clone();
    path.iter()
        .flat_map(|id| &blocks[*id].settings)
        .for_each(|setting| setting.apply(&mut settings));
    settings
}
