//! The disk below a store: responses that leave memory, and bodies that never fit into it.
//!
//! Reading order: `hash` · `record` and `footer` (formats) · `index` · `segment` and `large`
//! (files) · [`Disk`] · `load` (from the disk) · `writer` (a thread that alone writes, seals and
//! removes segments) · `recovery` · `purge_log`.
//!
//! Small bodies lie one behind the other in segments, large ones in a file each. The oldest segment
//! leaves first; records that were used since they were written are copied into the newest. Nothing
//! is synchronised to the disk: every record proves itself by a checksum, so that after a crash or
//! a loss of power a damaged one is a miss.

mod codec;
mod footer;
pub mod formats;
pub(crate) mod hash;
mod index;
mod large;
mod load;
mod purge_log;
mod record;
mod recovery;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use lighty_http::Fields;
use lighty_io::entropy;
use lighty_io::file::store_dir::{StoreDir, StoreDirFault};

use crate::key::Key;
use crate::object::{BodyCheck, Object, StoredBody, StoredPlace};
use crate::purge::{KeyPlaces, url_hash};
use crate::rules::selecting_key;
use hash::{KeyHash, Seed};
use index::{Entry, Index, Known};
pub(crate) use large::LargeWriter;
use large::OpenFiles;
pub use segment::BodyFile;
use segment::Segment;

/// Bytes of the smallest and of the largest segment.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=256 << 20;

/// Segments that a store is divided into.
const SEGMENTS: u64 = 1_024;

/// Bytes of purge rules that wait for the disk. Beyond, the log is written anew.
const PURGES_QUEUED_BYTES: usize = 64 << 10;

/// First line of a store's description, before its secret.
const DESCRIPTION: &str = "lighty-cache 1";

/// Name of the file with the description.
const DESCRIPTION_NAME: &str = "store";

/// The disk as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimits {
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of the largest body in memory and, if it is smaller, in a segment.
    pub memory_object_bytes: u64,
    /// Bytes of objects that wait for the disk; more are dropped.
    pub queued_bytes: u64,
    /// Part of the file system that stays free, in percent.
    pub free_percent: u8,
    /// Bodies are compared with their checksums each time, not only the first time.
    pub verifies_always: bool,
}

impl DiskLimits {
    /// Bytes of a file system of this size that stay free.
    fn kept_bytes(&self, all: u64) -> u64 {
        all / 100 * u64::from(self.free_percent)
    }

    /// Bytes of a segment. Small stores have at least eight, so that little leaves at a time.
    fn segment_bytes(&self) -> u64 {
        let usual = (self.bytes / SEGMENTS).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        usual.min(self.bytes / 8)
    }
}

/// The largest body in a segment, in bytes.
pub const SEGMENT_OBJECT_BYTES_MAX: u64 = 1 << 20;

/// Counters of a disk.
#[derive(Debug, Default)]
pub struct DiskCounters {
    /// Objects written, and the bytes of their records.
    pub written: AtomicU64,
    /// Bytes written, with files of their own.
    pub written_bytes: AtomicU64,
    /// Calls that wrote them.
    pub writes: AtomicU64,
    /// Objects read.
    pub loaded: AtomicU64,
    /// Objects found damaged.
    pub damaged: AtomicU64,
    /// Records copied from a segment that was removed.
    pub kept: AtomicU64,
    /// Objects that left for lack of room.
    pub evicted: AtomicU64,
    /// Objects that were not written because too many waited.
    pub dropped: AtomicU64,
    /// Errors of the system while writing.
    pub write_errors: AtomicU64,
    /// Errors of the system while reading.
    pub read_errors: AtomicU64,
}

/// State of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskState {
    /// Another process has the directory; nothing is read or written.
    Waiting,
    /// Earlier contents are being read in.
    Recovering,
    /// In use.
    Ready,
    /// Nothing is written for a while after an error.
    Failing,
    /// Nothing is written any more.
    Closed,
}

/// Takes messages for the log.
pub type DiskReport = Box<dyn Fn(&str) + Send + Sync>;

/// The disk below a store.
pub struct Disk {
    seed: Seed,
    places: KeyPlaces,
    path: PathBuf,
    limits: Mutex<DiskLimits>,
    index: Index,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    files: OpenFiles,
    next_file: AtomicU64,
    /// Bytes of large bodies that are being written.
    arriving_bytes: AtomicU64,
    /// Bytes of memory of the index and of filters, when they were last summed up.
    memory_bytes: AtomicU64,
    /// The same of the entries in use.
    entry_bytes: AtomicU64,
    /// Bytes of objects and purge rules that wait for the disk.
    queued_bytes: AtomicU64,
    dir: OnceLock<StoreDir>,
    state: AtomicU8,
    /// Files are left that could not be read or removed: no purge rule may go.
    keeps_rules: AtomicBool,
    queue: Mutex<DiskQueue>,
    /// The queue has something, or the disk is to be closed.
    has_work: Condvar,
    /// Something was written, or the thread has ended.
    has_written: Condvar,
    counters: DiskCounters,
    report: DiskReport,
    is_ended: AtomicBool,
}

#[derive(Debug, Default)]
struct DiskQueue {
    objects: VecDeque<Arc<Object>>,
    bytes: u64,
    /// The same of objects that have left memory.
    left_bytes: u64,
    /// Moment of the oldest request in the batch that is being written; 0: no batch.
    batch_oldest: u64,
    /// Bytes of its objects that have left memory.
    batch_bytes: u64,
    /// Purge rules as they are appended to the log.
    purges: Vec<u8>,
    /// There were too many: the log is to be written anew.
    has_lost_purges: bool,
    /// Purge rules so far, and the ones that are in the log.
    purges_queued: u64,
    purges_written: u64,
    /// The oldest segment is to leave, for the index takes too much memory.
    must_shrink: bool,
    /// Old segments are to leave, for large bodies.
    wants_room: bool,
    /// The last error was a full disk.
    is_full: bool,
    is_closing: bool,
    /// The thread is writing.
    is_busy: bool,
}

impl DiskQueue {
    fn has_purges(&self) -> bool {
        !self.purges.is_empty() || self.has_lost_purges
    }

    /// Takes the objects that are written next.
    fn begin_batch(&mut self) -> VecDeque<Arc<Object>> {
        self.batch_oldest = self.oldest_queued();
        self.batch_bytes += std::mem::take(&mut self.left_bytes);
        self.bytes = 0;
        std::mem::take(&mut self.objects)
    }

    fn end_batch(&mut self) {
        self.is_busy = false;
        (self.batch_oldest, self.batch_bytes) = (u64::MAX, 0);
    }

    /// A moment that no request of an object here was sent before.
    fn oldest_moment(&self) -> u64 {
        let queued = self.oldest_queued();
        if self.is_busy { queued.min(self.batch_oldest) } else { queued }
    }

    fn oldest_queued(&self) -> u64 {
        self.objects.iter().map(|object| object.sent_at).min().unwrap_or(u64::MAX)
    }
}

/// Place of a response on the disk.
#[derive(Clone, Debug)]
pub struct DiskPlace {
    entry: Entry,
    key: Key,
    selecting: Box<[u8]>,
}

/// The reason why a directory cannot hold a store.
#[derive(Debug, thiserror::Error)]
pub enum DiskFault {
    /// The directory is not usable.
    #[error(transparent)]
    Dir(#[from] StoreDirFault),
    /// It has files of something else, or of a later version.
    #[error("{}: the file \"store\" is not of a cache of this version", .0.display())]
    Foreign(PathBuf),
}

impl Disk {
    /// Prepares the disk in a directory. Nothing is stored before [`Disk::start`].
    ///
    /// # Errors
    /// The directory cannot be made or used.
    pub fn prepare(
        path: &Path,
        places: KeyPlaces,
        limits: DiskLimits,
        report: DiskReport,
    ) -> Result<Arc<Self>, DiskFault> {
        let seed = read_seed(path)?;
        let system = |error| StoreDirFault::System { path: path.to_owned(), error };
        // No number of an earlier process or of one that is ending occurs again.
        let first_file = u64::from_le_bytes(entropy::random_bytes().map_err(system)?) >> 1;
        Ok(Arc::new(Self {
            seed,
            places,
            path: path.to_owned(),
            limits: Mutex::new(limits),
            index: Index::new(),
            segments: RwLock::default(),
            files: OpenFiles::default(),
            next_file: AtomicU64::new(first_file.max(1)),
            arriving_bytes: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            entry_bytes: AtomicU64::new(0),
            queued_bytes: AtomicU64::new(0),
            dir: OnceLock::new(),
            state: AtomicU8::new(DiskState::Waiting as u8),
            queue: Mutex::default(),
            has_work: Condvar::new(),
            has_written: Condvar::new(),
            counters: DiskCounters::default(),
            report,
            keeps_rules: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        }))
    }

    /// Makes the directory of a store, for a user and a group if they are given.
    ///
    /// # Errors
    /// The directory cannot be made or used.
    pub fn found(path: &Path, owner: Option<(u32, u32)>) -> Result<(), DiskFault> {
        read_seed(path)?;
        let system = |error| StoreDirFault::System { path: path.to_owned(), error };
        if let Some(owner) = owner {
            StoreDir::give(path, DESCRIPTION_NAME, owner).map_err(system)?;
        }
        Ok(())
    }

    /// The secret of its hashes.
    pub(crate) fn seed(&self) -> Seed {
        self.seed
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its limits.
    pub fn limits(&self) -> DiskLimits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes its limits.
    pub fn limit(&self, limits: DiskLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        self.want_room();
    }

    /// Has old segments leave if the files take too much.
    fn want_room(&self) {
        self.queue().wants_room = true;
        self.has_work.notify_all();
    }

    /// Its counters.
    pub fn counters(&self) -> &DiskCounters {
        &self.counters
    }

    /// Its state.
    pub fn state(&self) -> DiskState {
        const STATES: [DiskState; 5] = [
            DiskState::Waiting,
            DiskState::Recovering,
            DiskState::Ready,
            DiskState::Failing,
            DiskState::Closed,
        ];
        let state = usize::from(self.state.load(Ordering::Relaxed));
        STATES.get(state).copied().unwrap_or(DiskState::Closed)
    }

    /// True if large bodies can be written now.
    pub fn is_ready(&self) -> bool {
        self.state() == DiskState::Ready
    }

    fn set_state(&self, state: DiskState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let arriving = self.arriving_bytes.load(Ordering::Relaxed);
        segments.values().fold(arriving, |sum, segment| sum.saturating_add(segment.weight()))
    }

    /// Number of entries in the index.
    pub fn count(&self) -> usize {
        self.index.extent().0
    }

    /// Bytes of memory of its index.
    pub fn index_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the entries in use take: the ones of removed segments are used again.
    pub(crate) fn entry_bytes(&self) -> u64 {
        self.entry_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that wait for the disk.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Sums up the memory that waits for the disk.
    fn note_queued(&self, queue: &DiskQueue) {
        let bytes = queue.left_bytes + queue.batch_bytes + queue.purges.len() as u64;
        self.queued_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A batch has been written, or given up.
    fn end_batch(&self) {
        let mut queue = self.queue();
        queue.end_batch();
        self.note_queued(&queue);
    }

    /// Sums up the memory of the index.
    fn note_memory(&self) {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let urls: u64 = segments.values().map(|segment| segment.memory_bytes()).sum();
        self.memory_bytes.store(self.index.memory_bytes() + urls, Ordering::Relaxed);
        self.entry_bytes.store(self.index.extent().1 + urls, Ordering::Relaxed);
    }

    fn queue(&self) -> MutexGuard<'_, DiskQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.get(&number).cloned()
    }

    fn oldest_segment(&self) -> Option<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.first_key_value().map(|(_, segment)| Arc::clone(segment))
    }

    fn add_segment(&self, segment: &Arc<Segment>) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        segments.insert(segment.number, Arc::clone(segment));
    }

    fn remove_segment(&self, number: u32) {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// The hashes of an object: of its key, and of the variant.
    fn hashes(&self, object: &Object) -> (KeyHash, KeyHash) {
        let primary = KeyHash::of(&self.seed, &object.key);
        if object.head.names.is_empty() {
            return (primary, primary);
        }
        (primary, KeyHash::of_variant(&self.seed, &object.key, &object.selecting))
    }

    /// Looks up where the response to a request lies. No I/O.
    pub(crate) fn locate(&self, key: &Key, request: &Fields) -> Option<DiskPlace> {
        let (entry, selecting) = match self.index.get(KeyHash::of(&self.seed, key))? {
            Known::Response(entry) => (entry, Vec::new()),
            Known::Varies(names) => {
                let selecting = selecting_key(&names, request);
                let hash = KeyHash::of_variant(&self.seed, key, &selecting);
                match self.index.get(hash)? {
                    Known::Response(entry) => (entry, selecting),
                    Known::Varies(_) => return None,
                }
            }
        };
        Some(DiskPlace { entry, key: key.clone(), selecting: selecting.into() })
    }

    /// True if a response with this URL may be on the disk.
    pub(crate) fn may_have_url(&self, url: u64) -> bool {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.values().any(|segment| segment.may_have(url))
    }

    /// True if an object is on the disk. Counts its uses there.
    pub(crate) fn has(&self, object: &Object) -> bool {
        let (_, hash) = self.hashes(object);
        let is_there =
            object.is_on_disk() && matches!(self.index.get(hash), Some(Known::Response(_)));
        if is_there && object.was_used() {
            self.index.touch(hash);
        }
        is_there
    }

    /// Removes an object that was replaced or is not valid any more.
    pub(crate) fn forget(&self, object: &Object) {
        self.index.remove(self.hashes(object).1);
    }

    /// Removes a response that is no longer valid.
    pub(crate) fn forget_place(&self, place: &DiskPlace) {
        self.index.remove_at(place.entry.hash, place.entry.place);
    }

    /// Has an object written. Drops it, and returns false, if too many wait. Bodies that are on the
    /// disk always have room.
    pub(crate) fn save(&self, object: &Arc<Object>) -> bool {
        let mut queue = self.queue();
        let bytes = object.bytes();
        let has_room = object.content.stored().is_some()
            || queue.objects.is_empty()
            || queue.bytes + bytes <= self.limits().queued_bytes;
        let is_open = !matches!(self.state(), DiskState::Failing | DiskState::Closed);
        if queue.is_closing || !has_room || !is_open {
            drop(queue);
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        // The thread gathers for a moment, and wakes up for a whole batch.
        let is_due = queue.objects.is_empty() || queue.bytes + bytes >= writer::BATCH_BYTES as u64;
        queue.bytes += bytes;
        if object.is_removed() {
            queue.left_bytes += bytes;
        }
        queue.objects.push_back(Arc::clone(object));
        self.note_queued(&queue);
        if is_due {
            self.has_work.notify_all();
        }
        true
    }

    /// Has the oldest segment leave, for want of memory.
    pub(crate) fn shrink(&self) {
        self.queue().must_shrink = true;
        self.has_work.notify_all();
    }

    /// Begins a body in a file of its own. `None` if nothing is written now.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn begin_large(&self) -> io::Result<Option<LargeWriter>> {
        let Some(dir) = self.dir.get().filter(|_| self.state() == DiskState::Ready) else {
            return Ok(None);
        };
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        LargeWriter::create(dir, number).map(Some)
    }

    /// Counts the bytes of a large body that was written.
    pub(crate) fn count_arriving(&self, bytes: u64) {
        self.arriving_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.bytes() > self.limits().bytes {
            self.want_room();
        }
    }

    /// True if a large body may grow: the ones that arrive take at most half of the store, and
    /// enough of the file system stays free.
    pub(crate) fn has_room(&self) -> bool {
        let limits = self.limits();
        let Some(room) = self.dir.get().and_then(|dir| dir.room().ok()) else { return false };
        let has_room = room.0 > limits.kept_bytes(room.1);
        if !has_room {
            self.want_room();
        }
        has_room && self.arriving_bytes.load(Ordering::Relaxed) <= limits.bytes / 2
    }

    /// Counts them no longer.
    pub(crate) fn discount_arriving(&self, bytes: u64) {
        self.arriving_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Completes a body in a file of its own.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn finish_large(&self, writer: LargeWriter) -> io::Result<StoredBody> {
        let dir = self.dir.get().ok_or_else(|| io::Error::other("the store is closed"))?;
        let number = writer.number;
        let (body, sums, sum) = writer.finish(dir)?;
        self.files.keep(number, &body);
        let stored = StoredBody::new(&body, 0, StoredPlace::File(number, sum));
        Ok(match self.limits().verifies_always {
            true => stored.with_check(BodyCheck::new(sums, true)),
            false => stored,
        })
    }

    /// Removes a body that is not stored in the end.
    pub(crate) fn abandon_large(&self, number: u64) {
        if let Some(dir) = self.dir.get() {
            let removed = dir.remove(&large::part_name(number));
            if removed.is_err() {
                let _ = dir.remove(&large::name(number));
            }
        }
        self.files.forget(number);
    }

    /// An error while a body was written: nothing is stored for a while.
    pub(crate) fn note_write_error(&self, error: &io::Error) {
        self.counters.write_errors.fetch_add(1, Ordering::Relaxed);
        let is_full =
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        {
            let mut queue = self.queue();
            queue.is_full |= is_full;
            if self.state() != DiskState::Ready {
                return;
            }
            self.set_state(DiskState::Failing);
            self.has_work.notify_all();
        }
        let path = self.path.display();
        (self.report)(&format!("cache: {path}: {error}; nothing is stored there for 10 seconds"));
    }

    /// Waits until all that was queued is written. For tests.
    #[cfg(test)]
    pub(crate) fn settle(&self) {
        let mut queue = self.queue();
        self.has_work.notify_all();
        while !(queue.objects.is_empty() && !queue.is_busy && !queue.must_shrink) {
            queue = self.has_written.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has a purge rule appended to the log.
    pub(crate) fn log_purge(&self, rule: &[u8]) {
        let mut queue = self.queue();
        if queue.purges.len() + rule.len() > PURGES_QUEUED_BYTES {
            queue.purges = Vec::new();
            queue.has_lost_purges = true;
        }
        if !queue.has_lost_purges {
            queue.purges.extend_from_slice(rule);
        }
        queue.purges_queued += 1;
        self.note_queued(&queue);
        self.has_work.notify_all();
    }

    /// Waits until all purge rules so far are in the log, so that they hold after a crash. Returns
    /// at once if nothing can be written.
    pub(crate) fn wait_for_purges(&self) {
        let mut queue = self.queue();
        let wanted = queue.purges_queued;
        while queue.purges_written < wanted
            && !matches!(self.state(), DiskState::Failing | DiskState::Closed)
            && !self.is_ended.load(Ordering::Acquire)
        {
            let (next, timeout) = self
                .has_written
                .wait_timeout(queue, std::time::Duration::from_secs(5))
                .unwrap_or_else(PoisonError::into_inner);
            queue = next;
            if timeout.timed_out() {
                break;
            }
        }
    }

    /// Writes what is queued, seals the segment, and lets another process have the directory.
    /// Responses on the disk can still be read. Waits at most this time.
    pub fn close(&self, wait: std::time::Duration) {
        self.queue().is_closing = true;
        self.has_work.notify_all();
        let queue = self.queue();
        let is_open = |_: &mut DiskQueue| !self.is_ended.load(Ordering::Acquire);
        drop(self.has_written.wait_timeout_while(queue, wait, is_open));
    }

    /// The hash of a URL of a key, for filters of segments.
    fn url_of(&self, key: &Key) -> u64 {
        let (host, target) = self.places.of(key);
        url_hash(&self.seed, host, target)
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("path", &self.path).field("state", &self.state()).finish()
    }
}

/// Reads the secret of a store, or makes one. Another process may be doing the same.
fn read_seed(path: &Path) -> Result<Seed, DiskFault> {
    let system = |error| StoreDirFault::System { path: path.to_owned(), error };
    for _ in 0..2 {
        let found = StoreDir::peek(path, DESCRIPTION_NAME, 4096).map_err(system)?;
        if let Some(text) = found {
            return parse_seed(&text).ok_or_else(|| DiskFault::Foreign(path.to_owned()));
        }
        let seed: Seed = entropy::random_bytes().map_err(system)?;
        let hex: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("{DESCRIPTION}\n{hex}\n");
        StoreDir::found(path, DESCRIPTION_NAME, text.as_bytes()).map_err(system)?;
    }
    Err(DiskFault::Foreign(path.to_owned()))
}

fn parse_seed(text: &[u8]) -> Option<Seed> {
    let text = std::str::from_utf8(text).ok()?;
    let hex = text.strip_prefix(DESCRIPTION)?.strip_prefix('\n')?.strip_suffix('\n')?;
    let digits = hex.as_bytes();
    let mut seed = Seed::default();
    if digits.len() != 2 * seed.len() {
        return None;
    }
    for (place, digits) in seed.iter_mut().zip(digits.chunks_exact(2)) {
        *place = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(seed)
}
