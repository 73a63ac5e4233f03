//! Cache of merged settings, one per combination of conditions.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::config::Config;
use crate::evaluate::Active;
use crate::limits::SNAPSHOT_VARIANTS_MAX;

/// Caches the settings of every combination of true conditions that a worker has seen. A cache
/// belongs to one [`Config`]: create a new one after a reload.
pub struct SnapshotCache<S> {
    variants: HashMap<Box<[u64]>, Rc<S>, RandomState>,
    /// The last requested set, and its settings.
    last_bits: Vec<u64>,
    last: Option<Rc<S>>,
    variants_max: usize,
}

impl<S> Default for SnapshotCache<S> {
    fn default() -> Self {
        SnapshotCache::with_limit(SNAPSHOT_VARIANTS_MAX)
    }
}

impl<S> SnapshotCache<S> {
    /// Creates a cache of [`SNAPSHOT_VARIANTS_MAX`] variants.
    pub fn new() -> Self {
        SnapshotCache::default()
    }

    /// Creates a cache that is cleared when it would exceed `variants_max` variants.
    pub fn with_limit(variants_max: usize) -> Self {
        let (variants, last_bits) = (HashMap::default(), Vec::new());
        SnapshotCache { variants, last_bits, last: None, variants_max }
    }

    /// Number of variants held.
    pub fn len(&self) -> usize {
        self.variants.len()
    }

    /// Drops up to `count` variants. Returns the number that is left.
    pub fn shrink(&mut self, count: usize) -> usize {
        self.last = None;
        self.last_bits.clear();
        self.variants.extract_if(|_, _| true).take(count).for_each(drop);
        self.variants.len()
    }

    /// True if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.variants.is_empty()
    }
}

impl<S: Clone> SnapshotCache<S> {
    /// The settings for a set of true conditions. Allocates only for a new set.
    pub fn get(&mut self, config: &Config<S>, active: &Active) -> &Rc<S> {
        if self.last_bits != active.as_bits() {
            self.last = None;
            self.last_bits.clear();
            self.last_bits.extend_from_slice(active.as_bits());
        }
        let (variants, variants_max) = (&mut self.variants, self.variants_max);
        self.last.get_or_insert_with(|| lookup(variants, variants_max, config, active))
    }
}

fn lookup<S: Clone>(
    variants: &mut HashMap<Box<[u64]>, Rc<S>, RandomState>,
    variants_max: usize,
    config: &Config<S>,
    active: &Active,
) -> Rc<S> {
    if let Some(settings) = variants.get(active.as_bits()) {
        return Rc::clone(settings);
    }
    if variants.len() >= variants_max {
        variants.clear();
    }
    let settings = Rc::new(config.settings(active));
    variants.insert(active.as_bits().into(), Rc::clone(&settings));
    settings
}
