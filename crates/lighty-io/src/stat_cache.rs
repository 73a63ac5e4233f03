//! Caches open files with their metadata and, if small, their contents.
//!
//! A hit costs no system call. `simple` checks a path again when its last check is a second old.
//! `inotify` checks when the kernel reports a change and, for changes without events (a mount,
//! another name, a shared mapping), like `simple`. `disable` keeps nothing. Concurrent requests for
//! a path share one wait. Errors are not cached: a missing file may exist at the next request.
//!
//! Reading order: `entry`, `table` (keys, eviction), `pending` (shared waits), `load` (loading a
//! path as an entry), `watch` (inotify).

mod entry;
mod load;
mod pending;
mod table;
#[cfg(test)]
mod tests;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;

pub use entry::CacheEntry;

use crate::file::{FileEngine, Follow, Root};
use crate::simulated;
use pending::{Join, Pending};
use table::{AsCacheLookup, CacheKey, CacheLookup, CacheSlot, Table};
use watch::{WatchedChange, Watcher, trimmed};

/// Time for which an entry is trusted without a check, in milliseconds.
pub const TRUST_MS: u64 = 1_000;
/// [`StatCache::sweep`] drops entries unused for this long: an open descriptor keeps a deleted file
/// on disk and a file system mounted.
pub const IDLE_MS: u64 = 10_000;
/// Entries that one [`StatCache::sweep`] inspects.
pub const SWEEP_STEPS: usize = 512;

/// Method of detecting changes (`server.stat-cache-engine`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheEngine {
    /// By checking at most once a second.
    #[default]
    Simple,
    /// By kernel events.
    Inotify,
    /// By caching nothing.
    Disable,
}

/// Limits of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum entries, each of which holds a descriptor.
    pub entries_max: usize,
    /// Files up to this size are cached with their contents.
    pub small_file_bytes_max: u64,
    /// Maximum bytes of cached contents.
    pub small_total_bytes_max: u64,
    /// Maximum watched directories. Each costs kernel memory, and users have a limit:
    /// `fs.inotify.max_user_watches`.
    pub watches_max: usize,
}

impl Default for CacheLimits {
    fn default() -> CacheLimits {
        CacheLimits {
            entries_max: 1_024,
            small_file_bytes_max: 16 * 1024,
            small_total_bytes_max: 32 * 1024 * 1024,
            watches_max: 8_192,
        }
    }
}

/// A cache's counters.
#[derive(Debug, Default)]
pub struct CacheCounters {
    /// Look-ups answered without a system call.
    pub hits: Cell<u64>,
    /// Entries checked and found unchanged.
    pub revalidated: Cell<u64>,
    /// Loads: paths opened.
    pub loads: Cell<u64>,
    /// Look-ups that joined a load in progress.
    pub joined: Cell<u64>,
    /// Entries dropped because of an event.
    pub invalidated: Cell<u64>,
    /// Entries dropped to make space.
    pub evicted: Cell<u64>,
}

/// The stat cache of one worker. Clones share it.
#[derive(Clone)]
pub struct StatCache(Rc<StatCacheInner>);

struct StatCacheInner {
    files: FileEngine,
    engine: CacheEngine,
    limits: CacheLimits,
    table: RefCell<Table>,
    pending: RefCell<HashMap<CacheKey, Rc<Pending>, RandomState>>,
    small_bytes: Rc<Cell<u64>>,
    counters: CacheCounters,
    /// `None` unless the engine is inotify and started successfully.
    watcher: Option<Rc<Watcher>>,
    /// The reason why inotify did not start.
    unwatched: Option<String>,
    /// Loads in progress, to be notified of changes that overtake them.
    loading: RefCell<Vec<Rc<CacheLoading>>>,
    /// Number of this process's own changes that were processed.
    applied: Cell<u64>,
}

/// Changes that this process made to files, see [`announce_change`].
static CHANGES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The same for a simulated thread, which counts as a process of its own: changes by other
    /// threads must not affect its replay.
    static SIMULATED_CHANGES: Cell<u64> = const { Cell::new(0) };
}

/// Reports that this process changed files: all workers' caches check their entries again before
/// trusting them.
pub fn announce_change() {
    if simulated::is_on() {
        SIMULATED_CHANGES.set(SIMULATED_CHANGES.get() + 1);
    } else {
        CHANGES.fetch_add(1, Ordering::Release);
    }
}

fn changes() -> u64 {
    if simulated::is_on() { SIMULATED_CHANGES.get() } else { CHANGES.load(Ordering::Acquire) }
}

/// A load in progress.
struct CacheLoading {
    key: CacheKey,
    /// Something changed since it started, so its result is only valid now.
    overtaken: Cell<bool>,
}

/// Result of a look-up.
pub enum Lookup {
    /// Available immediately.
    Ready(io::Result<Rc<CacheEntry>>),
    /// Requires disk access.
    Wait(Pin<Box<dyn Future<Output = io::Result<Rc<CacheEntry>>>>>),
}

impl Lookup {
    /// Waits if necessary.
    ///
    /// # Errors
    /// Errors of the open.
    pub async fn entry(self) -> io::Result<Rc<CacheEntry>> {
        match self {
            Lookup::Ready(result) => result,
            Lookup::Wait(future) => future.await,
        }
    }
}

impl StatCache {
    /// Creates a cache over an engine. Call it inside the worker's runtime.
    pub fn new(files: FileEngine, engine: CacheEngine, limits: CacheLimits) -> StatCache {
        let (watcher, unwatched) = match engine {
            CacheEngine::Inotify => match Watcher::start(limits.watches_max) {
                Ok(watcher) => (Some(watcher), None),
                Err(error) => {
                    (None, Some(format!("inotify is not to be had: {error} (fs.inotify.*)")))
                }
            },
            _ => (None, None),
        };
        StatCache(Rc::new(StatCacheInner {
            watcher,
            unwatched,
            loading: RefCell::default(),
            files,
            engine,
            limits,
            table: RefCell::new(Table::new(limits.entries_max)),
            pending: RefCell::default(),
            small_bytes: Rc::default(),
            counters: CacheCounters::default(),
            applied: Cell::new(changes()),
        }))
    }

    /// Looks up `rel` (no leading slash, no `..`) beneath the root. A hit costs neither a system
    /// call nor an allocation.
    pub fn lookup(&self, root: &Rc<Root>, rel: &[u8], follow: Follow, noatime: bool) -> Lookup {
        let lookup = CacheLookup { root: root.id(), follow, noatime, rel };
        self.take_changes();
        if let Some(entry) = self.hit(root, &lookup) {
            return Lookup::Ready(Ok(entry));
        }
        if let Some(pending) = self.0.pending.borrow().get(&lookup as &dyn AsCacheLookup) {
            count(&self.0.counters.joined);
            return Lookup::Wait(Box::pin(Join(pending.clone())));
        }
        self.look_again_or_load(root, &lookup)
    }

    /// The result of [`lookup`](Self::lookup) if it needs no disk access; `None` if it does, or if
    /// the path does not exist.
    pub fn known(
        &self,
        root: &Rc<Root>,
        rel: &[u8],
        follow: Follow,
        noatime: bool,
    ) -> Option<Rc<CacheEntry>> {
        self.take_changes();
        self.hit(root, &CacheLookup { root: root.id(), follow, noatime, rel })
    }

    /// The engine in use: `Simple` also if inotify was configured but is unavailable, with the
    /// reason.
    pub fn engine(&self) -> (CacheEngine, Option<String>) {
        match &self.0.watcher {
            Some(watcher) if watcher.is_broken() => (CacheEngine::Simple, watcher.why_broken()),
            None if self.0.engine == CacheEngine::Inotify => {
                (CacheEngine::Simple, self.0.unwatched.clone())
            }
            _ => (self.0.engine, None),
        }
    }

    /// Warnings about undetected changes, for the log; each is returned once.
    pub fn take_warnings(&self) -> Option<String> {
        self.0.watcher.as_ref()?.take_warnings()
    }

    /// Number of watched directories.
    pub fn watches(&self) -> usize {
        self.0.watcher.as_ref().map_or(0, |watcher| watcher.len())
    }

    /// The engine used to open files.
    pub fn files(&self) -> &FileEngine {
        &self.0.files
    }

    /// The cache's counters.
    pub fn counters(&self) -> &CacheCounters {
        &self.0.counters
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.table.borrow().len()
    }

    /// True if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of cached contents, including contents that only a request still holds.
    pub fn small_bytes(&self) -> u64 {
        self.0.small_bytes.get()
    }

    /// Drops idle entries. Called by the worker's once-a-second tick.
    pub fn sweep(&self) {
        self.take_changes();
        let before_ms = self.now_ms().saturating_sub(IDLE_MS);
        let gone = self.0.table.borrow_mut().sweep(before_ms, SWEEP_STEPS);
        drop(gone);
    }

    /// Drops up to `n` entries to free their descriptors.
    pub fn shed(&self, n: usize) {
        let gone: Vec<CacheSlot> = {
            let mut table = self.0.table.borrow_mut();
            (0..n).map_while(|_| table.evict()).collect()
        };
        add(&self.0.counters.evicted, gone.len() as u64);
        drop(gone);
    }

    /// Drops all entries.
    pub fn clear(&self) {
        let gone = self.0.table.borrow_mut().remove_where(|_| true);
        drop(gone);
    }
}

impl StatCache {
    fn now_ms(&self) -> u64 {
        self.0.files.now_ms()
    }

    fn hit(&self, root: &Root, lookup: &CacheLookup<'_>) -> Option<Rc<CacheEntry>> {
        let table = self.0.table.borrow();
        let slot = table.get(lookup)?;
        let now_ms = self.now_ms();
        slot.referenced.set(true);
        slot.used_ms.set(now_ms);
        if !self.is_valid(slot, root, now_ms) {
            return None;
        }
        count(&self.0.counters.hits);
        Some(slot.entry.clone())
    }

    fn is_valid(&self, slot: &CacheSlot, root: &Root, now_ms: u64) -> bool {
        if slot.watched.is_some() && self.watcher().is_some() {
            // The root's own path is checked once a second.
            let current = self.0.files.root_is_current(root);
            if !current || slot.root_generation != root.generation() {
                return false;
            }
        }
        now_ms < slot.valid_until_ms.get()
    }

    fn watcher(&self) -> Option<&Rc<Watcher>> {
        self.0.watcher.as_ref().filter(|watcher| !watcher.is_broken())
    }

    /// Limits the number of entries; those beyond it are dropped.
    pub fn limit_entries(&self, entries_max: usize) {
        let gone = self.0.table.borrow_mut().limit(entries_max);
        add(&self.0.counters.evicted, gone.len() as u64);
    }

    /// Distrusts every check older than this process's latest change.
    fn apply_own_changes(&self) {
        let latest = changes();
        if self.0.applied.replace(latest) != latest {
            self.0.table.borrow().each(|slot| slot.valid_until_ms.set(0));
            self.0.loading.borrow().iter().for_each(|load| load.overtaken.set(true));
        }
    }

    /// Drops entries changed according to the kernel or by this process.
    fn take_changes(&self) {
        self.apply_own_changes();
        let Some(watcher) = self.watcher() else { return };
        for change in watcher.take_changes() {
            match change {
                WatchedChange::Anything => self.invalidate_all(),
                WatchedChange::At { root, path, below } => self.invalidate(root, &path, below),
            }
        }
    }

    fn invalidate(&self, root: u64, path: &[u8], below: bool) {
        for load in &*self.0.loading.borrow() {
            let key = load.key.lookup();
            if key.root == root && concerns(path, below, key.rel) {
                load.overtaken.set(true);
            }
        }
        let gone = if below {
            let pick = |slot: &CacheSlot| {
                let key = slot.key.lookup();
                key.root == root && concerns(path, true, key.rel)
            };
            self.0.table.borrow_mut().remove_where(pick)
        } else {
            self.0.table.borrow_mut().remove_variants(root, path)
        };
        add(&self.0.counters.invalidated, gone.len() as u64);
    }

    fn invalidate_all(&self) {
        for load in &*self.0.loading.borrow() {
            load.overtaken.set(true);
        }
        let gone = self.0.table.borrow_mut().remove_where(|_| true);
        add(&self.0.counters.invalidated, gone.len() as u64);
    }
}

/// True if a change at `path` (and beneath it if `below`) affects `rel`.
fn concerns(path: &[u8], below: bool, rel: &[u8]) -> bool {
    let rel = trimmed(rel);
    if rel == path {
        return true;
    }
    below && (path.is_empty() || rel.strip_prefix(path).is_some_and(|rest| rest[0] == b'/'))
}

fn count(counter: &Cell<u64>) {
    add(counter, 1);
}

fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get().wrapping_add(n));
}

impl fmt::Debug for StatCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatCache")
            .field("engine", &self.0.engine)
            .field("entries", &self.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lookup::Ready(result) => f.debug_tuple("Ready").field(result).finish(),
            Lookup::Wait(_) => f.write_str("Wait"),
        }
    }
}
