//! The stores of the process, by name. All workers and all configurations share them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lighty_cache::disk::{Disk, DiskCounters, DiskReport};
use lighty_cache::store::{ResponseStore, StoreCounters};
use lighty_config::Config;
use lighty_core::Settings;
use lighty_core::machine::status_board::Statistics;
use lighty_io::clock::deadline::Deadline;
use lighty_io::entropy;

use super::request_key::KEY_PLACES;
use super::settings::{CacheSettings, StoreSpec};

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

/// Sums over all stores, and the extent of each.
impl Statistics for CacheStores {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        let (mut objects, mut bytes, mut flights, mut rules) = (0, 0, 0, 0);
        for (name, store) in self.all() {
            let (count, size) = store.extent();
            figures.push((format!("cache.{name}.objects"), count.to_string()));
            figures.push((format!("cache.{name}.bytes"), size.to_string()));
            objects += count as u64;
            if let Some(disk) = store.disk() {
                let name = format!("cache.{name}.disk");
                figures.push((format!("{name}-objects"), disk.count().to_string()));
                figures.push((format!("{name}-bytes"), disk.bytes().to_string()));
                figures.push((format!("{name}-index-bytes"), disk.index_bytes().to_string()));
                figures
                    .push((format!("{name}-state"), format!("{:?}", disk.state()).to_lowercase()));
            }
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
        let disks = || stores.iter().filter_map(|(_, store)| store.disk());
        let sum = |of: fn(&DiskCounters) -> &AtomicU64| {
            disks().map(|disk| of(disk.counters()).load(Ordering::Relaxed)).sum()
        };
        let of: [(&str, fn(&DiskCounters) -> &AtomicU64); 10] = [
            ("written", |counters| &counters.written),
            ("written-bytes", |counters| &counters.written_bytes),
            ("writes", |counters| &counters.writes),
            ("loaded", |counters| &counters.loaded),
            ("damaged", |counters| &counters.damaged),
            ("kept", |counters| &counters.kept),
            ("evicted", |counters| &counters.evicted),
            ("dropped", |counters| &counters.dropped),
            ("write-errors", |counters| &counters.write_errors),
            ("read-errors", |counters| &counters.read_errors),
        ];
        counters.extend(of.map(|(name, of)| (format!("cache.disk-{name}"), sum(of))));
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
