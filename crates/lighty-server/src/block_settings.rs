//! The settings of a block and those around it, for what is looked at before a request is there.

use lighty_config::Config;
use lighty_core::Settings;

/// What holds where every condition around the block with this number holds, and its own.
pub(crate) fn of(config: &Config<Settings>, id: usize) -> Settings {
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
