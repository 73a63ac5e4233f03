//! The stores of the process, by name. All workers and all configurations share them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lighty_cache::store::{ResponseStore, StoreCounters};
use lighty_core::machine::status_board::Statistics;

use super::request_key::KEY_PLACES;
use super::settings::CacheSettings;

/// All stores. Clones share them.
#[derive(Clone, Default)]
pub struct CacheStores(Arc<Mutex<HashMap<Arc<str>, Arc<ResponseStore>>>>);

impl CacheStores {
    /// Names and stores, sorted by name.
    pub fn all(&self) -> Vec<(Arc<str>, Arc<ResponseStore>)> {
        let stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            stores.iter().map(|(name, store)| (Arc::clone(name), Arc::clone(store))).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// The store that settings choose, with their limits. `None` if they choose none.
    fn of(&self, settings: &CacheSettings) -> Option<Arc<ResponseStore>> {
        let spec = settings.stores.iter().find(|spec| spec.name == settings.store)?;
        let limits = spec.limits(settings.variants_max);
        let mut stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let store = stores
            .entry(Arc::clone(&spec.name))
            .or_insert_with(|| ResponseStore::new(limits, KEY_PLACES));
        store.limit(limits);
        Some(Arc::clone(store))
    }
}

/// Sums over all stores, and the extent of each.
impl Statistics for CacheStores {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        let (mut objects, mut bytes, mut flights, mut rules) = (0, 0, 0, 0);
        for (name, store) in self.all() {
            let (count, size) = store.extent();
            figures.push((format!("cache.{name}.objects"), count.to_string()));
            figures.push((format!("cache.{name}.bytes"), size.to_string()));
            objects += count as u64;
            bytes += size;
            flights += store.counters().flights.load(Ordering::Relaxed);
            rules += store.purge_rules() as u64;
        }
        let sums =
            [("objects", objects), ("bytes", bytes), ("flights", flights), ("purge-rules", rules)];
        figures.extend(sums.map(|(name, value)| (format!("cache.{name}"), value.to_string())));
    }

    fn count(&self, counters: &mut Vec<(String, u64)>) {
        let stores = self.all();
        let sum = |of: fn(&StoreCounters) -> &AtomicU64| {
            stores.iter().map(|(_, store)| of(store.counters()).load(Ordering::Relaxed)).sum()
        };
        counters.extend([
            ("cache.stored".to_owned(), sum(|counters| &counters.stored)),
            ("cache.evicted".to_owned(), sum(|counters| &counters.evicted)),
            ("cache.purged".to_owned(), sum(|counters| &counters.purged)),
            ("cache.hits".to_owned(), sum(|counters| &counters.hits)),
            ("cache.misses".to_owned(), sum(|counters| &counters.misses)),
        ]);
    }
}

/// The stores that a worker has used under one configuration.
#[derive(Default)]
pub(super) struct KnownStores {
    all: CacheStores,
    known: RefCell<Vec<(Arc<str>, Arc<ResponseStore>)>>,
}

impl KnownStores {
    pub(super) fn new(all: CacheStores) -> Self {
        Self { all, known: RefCell::default() }
    }

    /// All stores of the process.
    pub(super) fn all(&self) -> Vec<Arc<ResponseStore>> {
        self.all.all().into_iter().map(|(_, store)| store).collect()
    }

    /// The store that settings choose.
    pub(super) fn of(&self, settings: &CacheSettings) -> Option<Arc<ResponseStore>> {
        if settings.store.is_empty() {
            return None;
        }
        let mut known = self.known.borrow_mut();
        if let Some((_, store)) = known.iter().find(|(name, _)| *name == settings.store) {
            return Some(Arc::clone(store));
        }
        let store = self.all.of(settings)?;
        known.push((Arc::clone(&settings.store), Arc::clone(&store)));
        Some(store)
    }
}
