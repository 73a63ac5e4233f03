//! Loads a path as an entry, and checks an entry again.
//!
//! Each step is first tried in the kernel's caches. Only operations that would block go to a task,
//! which outlives the look-up that started it because others may have joined.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::entry::CacheEntry;
use super::pending::{Join, Pending};
use super::table::{AsCacheLookup, CacheKey, CacheLookup, CacheSlot};
use super::watch::{Acquired, Hold};
use super::{CacheEngine, CacheLoading, Lookup, StatCache, TRUST_MS, changes, count};
use crate::clock;
use crate::file::{FileKind, Follow, FsClass, Meta, OpenFile, OwnedBuf, Root};
use crate::simulated;
use crate::threads::panics;

/// A file changed more recently than this when loaded may change again without new times: they
/// advance with the kernel's tick, at most 10 ms.
const RACY_NS: i128 = 20_000_000;
/// Fraction of the entries dropped when descriptors run out (one in this many).
const SHED_FRACTION: usize = 8;

/// A load in progress. Its end, even by a panic, notifies all waiters.
struct CacheLoad {
    cache: StatCache,
    key: CacheKey,
    pending: Rc<Pending>,
    result: Option<io::Result<Rc<CacheEntry>>>,
}

impl Drop for CacheLoad {
    fn drop(&mut self) {
        self.cache.0.pending.borrow_mut().remove(&self.key.lookup() as &dyn AsCacheLookup);
        let broke_off = || Err(io::Error::other("looking the file up broke off"));
        self.pending.finish(self.result.take().unwrap_or_else(broke_off));
    }
}

/// Result of checking an expired entry.
enum Look {
    Unchanged(Rc<CacheEntry>),
    Changed,
}

impl StatCache {
    pub(super) fn look_again_or_load(&self, root: &Rc<Root>, lookup: &CacheLookup<'_>) -> Lookup {
        match self.look_again_now(root, lookup) {
            Some(Look::Unchanged(entry)) => return Lookup::Ready(Ok(entry)),
            Some(Look::Changed) => {}
            None => return self.wait(root, lookup),
        }
        match self.load_now(root, lookup) {
            Some(result) => Lookup::Ready(result),
            None => self.wait(root, lookup),
        }
    }

    /// Checks an old entry's path in the kernel's caches. `None` if they cannot tell.
    fn look_again_now(&self, root: &Root, lookup: &CacheLookup<'_>) -> Option<Look> {
        let Some(entry) = self.old_entry(lookup) else { return Some(Look::Changed) };
        let found = self.0.files.try_stat_cached(root, lookup.rel, lookup.follow)?;
        Some(self.keep_or_drop(root, lookup, entry, found))
    }

    fn old_entry(&self, lookup: &CacheLookup<'_>) -> Option<Rc<CacheEntry>> {
        self.0.table.borrow().get(lookup).map(|slot| slot.entry.clone())
    }

    /// Keeps an unchanged entry for another second, and drops it otherwise.
    fn keep_or_drop(
        &self,
        root: &Root,
        lookup: &CacheLookup<'_>,
        entry: Rc<CacheEntry>,
        found: io::Result<Meta>,
    ) -> Look {
        let mut same = !entry.racy && found.is_ok_and(|meta| meta.same_content(entry.meta()));
        let mut table = self.0.table.borrow_mut();
        if let Some(slot) = table.get(lookup) {
            // An entry loaded before its root moved is watched through the wrong directories.
            same &= slot.watched.is_none() || slot.root_generation == root.generation();
        }
        if same {
            if let Some(slot) = table.get(lookup) {
                slot.valid_until_ms.set(self.valid_until(root));
            }
            count(&self.0.counters.revalidated);
            return Look::Unchanged(entry);
        }
        let gone = table.remove(lookup);
        drop(table);
        drop(gone);
        Look::Changed
    }

    /// Opens a file that will soon be removed, bypassing the cache for its name.
    ///
    /// # Errors
    /// Errors of the open.
    pub async fn open_unkept(
        &self,
        root: &Root,
        rel: &[u8],
        follow: Follow,
    ) -> io::Result<Rc<CacheEntry>> {
        let lookup = CacheLookup { root: root.id(), follow, noatime: false, rel };
        self.open_entry(root, &lookup).await.map(Rc::new)
    }

    /// An entry is valid no longer than its root.
    fn valid_until(&self, root: &Root) -> u64 {
        self.now_ms().min(root.checked_ms()) + TRUST_MS
    }

    /// Opens from the kernel's caches, contents included. `None` if it would block.
    fn load_now(
        &self,
        root: &Root,
        lookup: &CacheLookup<'_>,
    ) -> Option<io::Result<Rc<CacheEntry>>> {
        let Some(watcher) = self.watcher() else { return self.load_unwatched_now(root, lookup) };
        let hold = match watcher.acquire(root, lookup.rel, false) {
            Acquired::Held(hold) => hold,
            Acquired::Unknown => return None,
            Acquired::Never => return self.load_unwatched_now(root, lookup),
        };
        let loading = self.begin(lookup);
        let linkless = CacheLookup { follow: Follow::None, ..*lookup };
        let entry = match self.open_now(root, &linkless)? {
            Err(error) if is_link(&error) => return self.load_unwatched_now(root, lookup),
            Err(error) => return Some(Err(error)),
            Ok(entry) => entry,
        };
        if !can_be_watched(&entry) {
            return Some(Ok(self.keep(root, lookup, entry, None)));
        }
        let hold = match entry.meta().kind {
            FileKind::Directory => match watcher.acquire(root, lookup.rel, true) {
                Acquired::Held(own) => hold.and(own),
                _ => return None,
            },
            _ => hold,
        };
        Some(Ok(self.keep_watched(root, lookup, entry, hold, &loading)))
    }

    fn load_unwatched_now(
        &self,
        root: &Root,
        lookup: &CacheLookup<'_>,
    ) -> Option<io::Result<Rc<CacheEntry>>> {
        let opened = self.open_now(root, lookup)?;
        Some(opened.map(|entry| self.keep(root, lookup, entry, None)))
    }

    fn open_now(&self, root: &Root, lookup: &CacheLookup<'_>) -> Option<io::Result<CacheEntry>> {
        let files = &self.0.files;
        let open = || files.try_open_cached(root, lookup.rel, lookup.follow, lookup.noatime);
        let mut opened = open()?;
        if opened.as_ref().is_err_and(is_out_of_descriptors) {
            self.shed_some();
            opened = open()?;
        }
        let mut entry = match opened {
            Ok(file) => CacheEntry::new(file, false),
            Err(error) => return Some(Err(error)),
        };
        if let Some(length) = self.small_length(entry.file()) {
            let mut bytes = vec![0; length];
            let n = files.try_read(entry.file(), 0, &mut bytes)?;
            entry = self.with_bytes(entry, bytes, n);
        }
        Some(Ok(entry))
    }

    /// Starts a task that checks and loads, and waits for it.
    fn wait(&self, root: &Rc<Root>, lookup: &CacheLookup<'_>) -> Lookup {
        let key = CacheKey::new(*lookup);
        let pending = Rc::new(Pending::default());
        self.0.pending.borrow_mut().insert(key.clone(), pending.clone());
        let (cache, root, task_pending) = (self.clone(), root.clone(), pending.clone());
        tokio::task::spawn_local(async move {
            let latest = changes();
            let mut load = CacheLoad { cache, key, pending: task_pending, result: None };
            panics::point("load");
            let steps = load.cache.look_again_and_load(&root, &load.key);
            let result = load.cache.0.files.urgently(&root, steps).await;
            if changes() != latest {
                // The entry may have been opened before one of the changes.
                load.cache.distrust(&load.key.lookup());
            }
            load.result = Some(result);
        });
        Lookup::Wait(Box::pin(Join(pending)))
    }

    fn distrust(&self, lookup: &CacheLookup<'_>) {
        if let Some(slot) = self.0.table.borrow().get(lookup) {
            slot.valid_until_ms.set(0);
        }
    }

    async fn look_again_and_load(&self, root: &Root, key: &CacheKey) -> io::Result<Rc<CacheEntry>> {
        let lookup = key.lookup();
        if let Some(entry) = self.old_entry(&lookup) {
            let found = self.0.files.stat(root, lookup.rel, lookup.follow).await;
            if let Look::Unchanged(entry) = self.keep_or_drop(root, &lookup, entry, found) {
                return Ok(entry);
            }
        }
        match self.load_watched(root, &lookup).await {
            Ok(Some(entry)) => return Ok(entry),
            Ok(None) => {}
            Err(error) if is_link(&error) => {}
            Err(error) => return Err(error),
        }
        let entry = self.open_entry(root, &lookup).await?;
        Ok(self.keep(root, &lookup, entry, None))
    }

    /// Loads with watches on the path, if possible. `None` if nothing can be watched.
    async fn load_watched(
        &self,
        root: &Root,
        lookup: &CacheLookup<'_>,
    ) -> io::Result<Option<Rc<CacheEntry>>> {
        let Some(watcher) = self.watcher() else { return Ok(None) };
        let files = &self.0.files;
        let linkless = CacheLookup { follow: Follow::None, ..*lookup };
        // Opened a first time to learn its type: a watch is not requested of a file system that may
        // not respond.
        let entry = self.open_entry(root, &linkless).await?;
        if !can_be_watched(&entry) {
            return Ok(Some(self.keep(root, lookup, entry, None)));
        }
        let is_directory = entry.meta().kind == FileKind::Directory;
        let Some(mut hold) = watcher.acquire_by_asking(files, root, lookup.rel, false).await else {
            return Ok(Some(self.keep(root, lookup, entry, None)));
        };
        if is_directory {
            match watcher.acquire_by_asking(files, root, lookup.rel, true).await {
                Some(own) => hold = hold.and(own),
                None => return Ok(Some(self.keep(root, lookup, entry, None))),
            }
        }
        // Changes before the watch show up now; later ones are reported.
        let loading = self.begin(lookup);
        let entry = self.open_entry(root, &linkless).await?;
        if !can_be_watched(&entry) || (entry.meta().kind == FileKind::Directory) != is_directory {
            return Ok(Some(self.keep(root, lookup, entry, None)));
        }
        Ok(Some(self.keep_watched(root, lookup, entry, hold, &loading)))
    }

    async fn open_entry(&self, root: &Root, lookup: &CacheLookup<'_>) -> io::Result<CacheEntry> {
        let files = &self.0.files;
        let mut opened = files.open(root, lookup.rel, lookup.follow, lookup.noatime).await;
        if opened.as_ref().is_err_and(is_out_of_descriptors) {
            self.shed_some();
            opened = files.open(root, lookup.rel, lookup.follow, lookup.noatime).await;
        }
        self.with_small_bytes(CacheEntry::new(opened?, false)).await
    }

    async fn with_small_bytes(&self, entry: CacheEntry) -> io::Result<CacheEntry> {
        let Some(length) = self.small_length(entry.file()) else { return Ok(entry) };
        let file = entry.file().clone();
        let (buf, n) = self.0.files.read(&file, 0, OwnedBuf::zeroed(length)).await;
        let bytes = match buf {
            OwnedBuf::Heap(bytes) => bytes,
            OwnedBuf::Pooled(buf) => buf.to_vec(),
        };
        // Unreadable data fails here, as sending it would.
        let n = n?;
        Ok(self.with_bytes(entry, bytes, Ok(n)))
    }

    /// Attaches the contents if their length matches the metadata; a file being modified is served
    /// from its descriptor.
    fn with_bytes(&self, entry: CacheEntry, bytes: Vec<u8>, n: io::Result<usize>) -> CacheEntry {
        let whole = n.is_ok_and(|n| n == bytes.len());
        if whole { entry.with_small(Bytes::from(bytes), &self.0.small_bytes) } else { entry }
    }

    /// Bytes of a file to cache; `None` if it is not small, or not at the moment.
    fn small_length(&self, file: &OpenFile) -> Option<usize> {
        let (limits, size) = (&self.0.limits, file.meta().size);
        let small = self.0.engine != CacheEngine::Disable
            && file.meta().kind == FileKind::File
            && size <= limits.small_file_bytes_max
            && self.0.small_bytes.get() + size <= limits.small_total_bytes_max;
        small.then_some(size as usize)
    }

    /// Stores a watched entry, unless a change has overtaken the load.
    fn keep_watched(
        &self,
        root: &Root,
        lookup: &CacheLookup<'_>,
        entry: CacheEntry,
        hold: Hold,
        loading: &LoadGuard,
    ) -> Rc<CacheEntry> {
        self.take_changes();
        if loading.0.overtaken.get() {
            count(&self.0.counters.loads);
            return Rc::new(entry);
        }
        self.keep(root, lookup, entry, Some(hold))
    }

    fn begin(&self, lookup: &CacheLookup<'_>) -> LoadGuard {
        let loading =
            Rc::new(CacheLoading { key: CacheKey::new(*lookup), overtaken: false.into() });
        self.0.loading.borrow_mut().push(loading.clone());
        LoadGuard(loading, self.clone())
    }

    fn keep(
        &self,
        root: &Root,
        lookup: &CacheLookup<'_>,
        mut entry: CacheEntry,
        watched: Option<Hold>,
    ) -> Rc<CacheEntry> {
        count(&self.0.counters.loads);
        entry.racy = is_racy(entry.meta());
        let entry = Rc::new(entry);
        if self.0.engine == CacheEngine::Disable {
            return entry;
        }
        let now_ms = self.now_ms();
        let slot = CacheSlot {
            key: CacheKey::new(*lookup),
            entry: entry.clone(),
            valid_until_ms: self.valid_until(root).into(),
            root_generation: watched
                .as_ref()
                .and_then(Hold::root_generation)
                .unwrap_or_else(|| root.generation()),
            watched,
            used_ms: now_ms.into(),
            referenced: false.into(),
        };
        let gone = self.0.table.borrow_mut().insert(slot);
        if gone.is_some() {
            count(&self.0.counters.evicted);
        }
        drop(gone);
        entry
    }

    fn shed_some(&self) {
        self.shed((self.len() / SHED_FRACTION).max(1));
    }
}

/// A load that is notified of changes while it lives.
struct LoadGuard(Rc<CacheLoading>, StatCache);

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.1.0.loading.borrow_mut().retain(|loading| !Rc::ptr_eq(loading, &self.0));
    }
}

/// True if watching the directories reports all changes of an entry: not if another machine can
/// make them, or if they can be made under another name.
fn can_be_watched(entry: &CacheEntry) -> bool {
    let meta = entry.meta();
    let one_name = meta.kind == FileKind::Directory || meta.links == 1;
    one_name && entry.file().fs() != FsClass::Remote
}

fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// False on a simulated thread: the times of files are the machine's, and a run must not depend on
/// the time that it takes.
fn is_racy(meta: &Meta) -> bool {
    if simulated::is_on() {
        return false;
    }
    let age_ns = clock::unix_now().as_nanos() as i128 - meta.changed_ns();
    age_ns < RACY_NS
}
