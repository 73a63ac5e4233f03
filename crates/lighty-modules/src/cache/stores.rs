//! The stores of the process, by name. All workers and all configurations share them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lighty_cache::disk::{Disk, DiskReport};
use lighty_cache::store::ResponseStore;
use lighty_config::Config;
use lighty_core::Settings;
use lighty_core::machine::status_board::Statistics;
use lighty_core::module::PurgeRefusal;
use lighty_io::clock::deadline::Deadline;
use lighty_io::entropy;

use super::outcome::CacheWord;
use super::purging::{self, PurgeWord};
use super::request_key::KEY_PLACES;
use super::settings::{CacheSettings, StoreSpec};

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

    /// The store that settings choose, with their limits. `None` if they choose none. One on a disk
    /// that could not be opened is in memory.
    fn of(&self, settings: &CacheSettings) -> Option<Arc<ResponseStore>> {
        let spec = settings.stores.iter().find(|spec| spec.name == settings.store)?;
        let mut stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let store = stores.entry(Arc::clone(&spec.name)).or_insert_with(|| {
            let limits = spec.memory_limits(settings.variants_max);
            ResponseStore::new(limits, KEY_PLACES, secret())
        });
        store.limit(match store.disk() {
            Some(_) => spec.limits(settings.variants_max),
            None => spec.memory_limits(settings.variants_max),
        });
        Some(Arc::clone(store))
    }

    /// Makes the directories of a configuration's stores, for a user and a group if they are given.
    /// Blocks. Returns the faults.
    pub fn prepare(config: &Config<Settings>, owner: Option<(u32, u32)>) -> Vec<String> {
        let stores = &config.global().module::<CacheSettings>().stores;
        let prepare = |spec: &StoreSpec| {
            let made = Disk::found(Path::new(&*spec.path), owner);
            made.err().map(|fault| format!("cache.stores: {fault}"))
        };
        stores.iter().filter(|spec| spec.is_on_disk()).filter_map(prepare).collect()
    }

    /// Opens the stores of a configuration, changes the limits of known ones, and closes the others
    /// in the background. `report` makes what takes the messages of a store. Blocks for reading a
    /// small file of each new store. Returns the faults.
    pub fn follow(
        &self,
        config: &Config<Settings>,
        report: &dyn Fn() -> DiskReport,
    ) -> Vec<String> {
        let settings = config.global().module::<CacheSettings>();
        let mut stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = |name: &Arc<str>, store: &mut Arc<ResponseStore>| {
            let spec = settings.stores.iter().find(|spec| spec.name == *name);
            let path = store.disk().map(|disk| disk.path());
            spec.is_some_and(|spec| spec.is_on_disk().then_some(Path::new(&*spec.path)) == path)
        };
        for (_, store) in stores.extract_if(|name, store| !is_kept(name, store)) {
            store.close(Duration::ZERO);
        }
        let mut faults = Vec::new();
        for spec in settings.stores.iter().filter(|spec| spec.is_on_disk()) {
            if let Some(disk) = stores.get(&spec.name).and_then(|store| store.disk()) {
                disk.limit(spec.disk_limits());
                continue;
            }
            let limits = spec.limits(settings.variants_max);
            let path = Path::new(&*spec.path);
            let opened = Disk::prepare(path, KEY_PLACES, spec.disk_limits(), report())
                .map_err(|fault| fault.to_string())
                .and_then(|disk| {
                    let store = ResponseStore::on_disk(limits, KEY_PLACES, disk);
                    store.map_err(|error| error.to_string())
                });
            match opened {
                Ok(store) => drop(stores.insert(Arc::clone(&spec.name), store)),
                Err(fault) => faults.push(format!("cache.stores: {fault}")),
            }
        }
        faults
    }

    /// Ends the use of all disks: writes what was used, and lets another process have the
    /// directories. Waits at most this time for all of them.
    pub fn close(&self, wait: Duration) {
        let stores = self.all();
        // All of them begin at once.
        stores.iter().for_each(|(_, store)| store.close(Duration::ZERO));
        let deadline = Deadline::after(wait);
        stores.iter().for_each(|(_, store)| store.close(deadline.left()));
    }
}

/// A secret for the hashes of a store.
fn secret() -> [u8; 16] {
    // Without random bytes, strangers could at most make others' purges cover too much.
    entropy::random_bytes().unwrap_or_default()
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

/// Figures of a disk that rise and fall.
fn disk_gauges(disk: &Disk) -> [(&'static str, u64); 4] {
    [
        ("disk-objects", disk.count() as u64),
        ("disk-bytes", disk.bytes()),
        ("disk-index-bytes", disk.index_bytes()),
        // Zero while another process has the directory, and after an error.
        ("disk-ready", u64::from(disk.is_ready())),
    ]
}

/// Counters of a disk.
fn disk_counters(disk: &Disk) -> impl Iterator<Item = (&'static str, u64)> {
    let counters = disk.counters();
    [
        ("disk-written", &counters.written),
        ("disk-written-bytes", &counters.written_bytes),
        ("disk-writes", &counters.writes),
        ("disk-loaded", &counters.loaded),
        ("disk-damaged", &counters.damaged),
        ("disk-kept", &counters.kept),
        ("disk-evicted", &counters.evicted),
        ("disk-dropped", &counters.dropped),
        ("disk-write-errors", &counters.write_errors),
        ("disk-read-errors", &counters.read_errors),
    ]
    .into_iter()
    .map(|(figure, value)| (figure, value.load(Ordering::Relaxed)))
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
        ("encoded-hits", &own.form_hits),
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
            figures.extend(store.disk().into_iter().flat_map(|disk| disk_gauges(disk)).map(named));
        }
    }

    fn count(&self, figures: &mut Vec<(String, u64)>) {
        for (name, store) in self.all() {
            let named = |(figure, value)| (format!("cache.{name}.{figure}"), value);
            figures.extend(counters(&store).map(named));
            figures
                .extend(store.disk().into_iter().flat_map(|disk| disk_counters(disk)).map(named));
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
