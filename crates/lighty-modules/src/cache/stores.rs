//! The stores of the process, by name. All workers and all configurations share them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_cache::store::ResponseStore;
use lighty_core::machine::status_board::Statistics;
use lighty_core::module::PurgeRefusal;

use super::outcome::CacheWord;
use super::purging::{self, PurgeWord};
use super::request_key::KEY_PLACES;
use super::settings::CacheSettings;

/// A name, and figures by name.
pub type NamedFigures = (Arc<str>, Vec<(&'static str, u64)>);

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

    /// Names of the stores, sorted, and the figures of each by name.
    pub fn figures(&self) -> Vec<NamedFigures> {
        let all = self.all().into_iter();
        all.map(|(name, store)| {
            let figures = gauges(&store).into_iter().chain(counters(&store)).collect();
            (name, figures)
        })
        .collect()
    }

    /// Removes responses of all stores. Returns a description.
    ///
    /// # Errors
    /// The value does not fit the scope.
    pub fn purge(
        &self,
        scope: PurgeWord,
        value: &str,
        is_soft: bool,
    ) -> Result<String, PurgeRefusal> {
        let stores: Vec<_> = self.all().into_iter().map(|(_, store)| store).collect();
        purging::purge_named(scope, value, is_soft, &stores)
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

/// Figures of a store that rise and fall.
fn gauges(store: &ResponseStore) -> [(&'static str, u64); 5] {
    let (count, size) = store.extent();
    let counters = store.counters();
    [
        ("objects", count as u64),
        ("bytes", size),
        ("flights", counters.flights.load(Ordering::Relaxed)),
        ("waiting", counters.waiting.load(Ordering::Relaxed)),
        ("purge-rules", store.purge_rules() as u64),
    ]
}

/// Counters of a store.
fn counters(store: &ResponseStore) -> impl Iterator<Item = (&'static str, u64)> {
    let own = store.counters();
    let results = CacheWord::ALL.into_iter().map(CacheWord::as_str).zip(&own.results);
    let others = [
        ("stored", &own.stored),
        ("evicted", &own.evicted),
        ("dropped", &own.purged),
        ("fetches", &own.misses),
        ("saved-bytes", &own.saved_bytes),
    ];
    results.chain(others).map(|(figure, value)| (figure, value.load(Ordering::Relaxed)))
}

/// Figures of each store, under the name `cache.STORE.FIGURE`.
impl Statistics for CacheStores {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        for (name, store) in self.all() {
            let named = |(figure, value): (&str, u64)| {
                (format!("cache.{name}.{figure}"), value.to_string())
            };
            figures.extend(gauges(&store).map(named));
        }
    }

    fn count(&self, figures: &mut Vec<(String, u64)>) {
        for (name, store) in self.all() {
            let named = |(figure, value)| (format!("cache.{name}.{figure}"), value);
            figures.extend(counters(&store).map(named));
        }
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
