//! The thread that writes a store: batches of records, seals, purge rules, and the removal of old
//! segments. Nobody else changes files, except large bodies that are arriving.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use lighty_io::file::store_dir::{StoreDir, StoreDirFault};
use lighty_io::threads;

use super::footer::{Footer, ROW_BYTES, Row};
use super::record::{self, BodyPlace, BodySums, Record, RecordPlace, UNIT_BYTES, padded};
use super::segment::{self, Segment};
use super::{Disk, DiskState, large};
use crate::object::{BodyCheck, Content, Object, StoredBody, StoredPlace};
use crate::store::ResponseStore;
use crate::sums::block_sums;

/// Bytes that are written at once.
pub(super) const BATCH_BYTES: usize = 1 << 20;

/// Time for which a few objects wait for others.
const GATHER: Duration = Duration::from_millis(100);

/// Time between two tries to get the directory from another process.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Time for which nothing is written after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 10_000 });

/// Part of a segment that records from a removed one may take: one in so many.
const KEPT_SHARE: u64 = 4;

/// Bytes of the log of purge rules at which it is written anew.
const PURGE_LOG_BYTES: u64 = 4 << 20;

/// Tries to get the directory before a message says that another process has it.
const LOCK_TRIES: u32 = 100;

/// Segments that leave at once for want of free space. Some file systems free it late.
const RECLAIMED_MAX: u32 = 4;

/// Tries to add an object: each one may seal a segment.
const TRIES_MAX: u32 = 4;

/// The thread's state.
pub(super) struct Author {
    pub(super) disk: Arc<Disk>,
    store: Weak<ResponseStore>,
    open: Option<OpenSegment>,
    pub(super) next_segment: u32,
    /// Records that are not written yet.
    out: Vec<u8>,
    rows: Vec<(Row, Option<Written>)>,
    /// Numbers of large files, with the records that name them.
    pub(super) owners: HashMap<u64, RecordPlace, foldhash::fast::RandomState>,
    purge_log_bytes: u64,
    /// Length at which the log of purge rules is written anew; 0: the next time.
    purge_log_max: u64,
    is_reclaiming: bool,
}

/// An object whose record is in the batch.
struct Written {
    object: Arc<Object>,
    sums: Box<[u32]>,
}

struct OpenSegment {
    segment: Arc<Segment>,
    /// End of what is written.
    at: u64,
    footer: Footer,
}

impl Disk {
    /// Begins to store. Earlier contents come back meanwhile.
    ///
    /// # Errors
    /// There can be no thread.
    pub(crate) fn start(self: &Arc<Self>, store: Weak<ResponseStore>) -> io::Result<()> {
        let disk = Arc::clone(self);
        threads::start("cache", None, move || {
            // Ends the waiting of others however the thread ends.
            let end = End(Arc::clone(&disk));
            Author::new(disk, store).run();
            drop(end);
        })
        .map(drop)
    }
}

/// Marks the end of the thread.
struct End(Arc<Disk>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.set_state(DiskState::Closed);
        if let Some(dir) = self.0.dir.get() {
            dir.release();
        }
        self.0.is_ended.store(true, Ordering::Release);
        let _queue = self.0.queue();
        self.0.has_written.notify_all();
    }
}

/// Next work of the thread.
enum Work {
    Batch(VecDeque<Arc<Object>>, Vec<u8>, u64),
    Shrink,
    /// Large bodies could not be written.
    Pause,
    Close,
}

impl Author {
    fn new(disk: Arc<Disk>, store: Weak<ResponseStore>) -> Self {
        Self {
            disk,
            store,
            open: None,
            next_segment: 1,
            out: Vec::new(),
            rows: Vec::new(),
            owners: HashMap::default(),
            purge_log_bytes: 0,
            purge_log_max: PURGE_LOG_BYTES,
            is_reclaiming: false,
        }
    }

    fn run(mut self) {
        let Some(dir) = self.open_dir() else { return };
        self.disk.set_state(DiskState::Recovering);
        let Some(store) = self.store.upgrade() else { return };
        match self.disk.read_purges(&dir, &store) {
            Some(bytes) => {
                self.purge_log_bytes = bytes;
                while let Err(error) = self.recover(&dir) {
                    let path = self.disk.path.display();
                    (self.disk.report)(&format!("cache: {path}: {error}; nothing is stored there"));
                    if !self.sleep(ERROR_PAUSE) {
                        return;
                    }
                }
            }
            // The purged responses are unknown, so none can be served.
            None => self.remove_all(&dir),
        }
        self.disk.note_memory();
        store.make_room();
        drop(store);
        let disk = Arc::clone(&self.disk);
        // The thread alone sets it.
        let _ = disk.dir.set(dir);
        let Some(dir) = disk.dir.get() else { return };
        disk.set_state(DiskState::Ready);
        {
            let _queue = disk.queue();
            disk.has_written.notify_all();
        }
        if let Some(store) = self.store.upgrade() {
            store.expire_purges();
        }
        loop {
            let done = match self.wait() {
                Work::Batch(objects, purges, rules) => {
                    let done = self.work(dir, &objects, &purges, rules);
                    done.inspect_err(|_| self.put_back(objects))
                }
                Work::Shrink => {
                    let before = disk.index_bytes();
                    let done = self.shrink(dir);
                    disk.note_memory();
                    // If the figures from before have led to another order, it is void.
                    disk.queue().must_shrink = false;
                    // Another segment, unless this one made the index no smaller.
                    let has_shrunk = disk.index_bytes() < before;
                    if let Some(store) = self.store.upgrade().filter(|_| has_shrunk) {
                        store.make_room();
                    }
                    done
                }
                Work::Pause => Ok(()),
                Work::Close => return self.close(dir),
            };
            if let Err(error) = done {
                self.forget_batch();
                disk.note_write_error(&error);
            }
            if disk.state() == DiskState::Failing && !self.pause(dir) {
                return self.close(dir);
            }
            disk.note_memory();
            disk.end_batch();
            disk.has_written.notify_all();
        }
    }

    /// Gives the batch up, with what a part of it has left behind the end of the segment.
    fn forget_batch(&mut self) {
        self.out.clear();
        self.rows.clear();
        if let Some(open) = &self.open {
            let _ = open.segment.file().truncate(open.at);
        }
    }

    /// Keeps the large bodies of a failed batch for the next one: their files need a record.
    fn put_back(&self, objects: VecDeque<Arc<Object>>) {
        let needs_record = |object: &Arc<Object>| {
            large_number(object).is_some_and(|number| !self.owners.contains_key(&number))
        };
        self.disk.queue().objects.extend(objects.into_iter().filter(needs_record));
    }

    /// Gets the directory. `None` once the disk is to be closed.
    fn open_dir(&self) -> Option<StoreDir> {
        let (mut is_reported, mut tries) = (false, 0);
        loop {
            let fault = match StoreDir::open(&self.disk.path) {
                Ok(dir) => return Some(dir),
                Err(fault) => fault,
            };
            let is_locked = matches!(fault, StoreDirFault::Locked(_));
            let pause = if is_locked { LOCK_PAUSE } else { ERROR_PAUSE };
            tries += 1;
            if !is_reported && (!is_locked || tries > LOCK_TRIES) {
                (self.disk.report)(&format!("cache: {fault}; nothing is stored there"));
                is_reported = true;
            }
            if !self.sleep(pause) {
                return None;
            }
        }
    }

    /// Waits. Returns false if the disk is to be closed.
    fn sleep(&self, time: Duration) -> bool {
        let queue = self.disk.queue();
        let waited = self.disk.has_work.wait_timeout_while(queue, time, |queue| !queue.is_closing);
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !queue.is_closing
    }

    /// The pause after an error. Room is made, for the next try. Returns false if the disk is to be
    /// closed.
    fn pause(&mut self, dir: &StoreDir) -> bool {
        {
            let mut queue = self.disk.queue();
            // Files of their own would have no record.
            queue.objects.retain(|object| large_number(object).is_some());
            (queue.bytes, queue.left_bytes) = (0, 0);
            queue.end_batch();
            self.disk.note_queued(&queue);
            self.disk.has_written.notify_all();
        }
        let goes_on = self.sleep(ERROR_PAUSE);
        if std::mem::take(&mut self.disk.queue().is_full) {
            // An error that persists returns with the next write.
            let _ = self.shrink(dir);
            self.forget_batch();
        }
        self.purge_log_max = 0;
        let queue = self.disk.queue();
        self.disk.set_state(DiskState::Ready);
        drop(queue);
        goes_on
    }

    fn wait(&mut self) -> Work {
        let disk = Arc::clone(&self.disk);
        let is_idle = |queue: &mut super::DiskQueue| {
            queue.objects.is_empty()
                && !queue.has_purges()
                && !queue.must_shrink
                && !queue.wants_room
                && !queue.is_closing
                && disk.state() != DiskState::Failing
        };
        let queue = disk.has_work.wait_while(disk.queue(), is_idle);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        if queue.bytes < BATCH_BYTES as u64 && !queue.has_purges() && !queue.is_closing {
            let gathers = |queue: &mut super::DiskQueue| {
                queue.bytes < BATCH_BYTES as u64
                    && !queue.has_purges()
                    && !queue.must_shrink
                    && !queue.wants_room
                    && !queue.is_closing
                    && disk.state() != DiskState::Failing
            };
            let waited = disk.has_work.wait_timeout_while(queue, GATHER, gathers);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.is_busy = true;
        if disk.state() == DiskState::Failing {
            return Work::Pause;
        }
        if std::mem::take(&mut queue.must_shrink) {
            return Work::Shrink;
        }
        if queue.is_closing && queue.objects.is_empty() && !queue.has_purges() {
            return Work::Close;
        }
        queue.wants_room = false;
        if std::mem::take(&mut queue.has_lost_purges) {
            self.purge_log_max = 0;
        }
        let purges = std::mem::take(&mut queue.purges);
        let objects = queue.begin_batch();
        disk.note_queued(&queue);
        Work::Batch(objects, purges, queue.purges_queued)
    }

    fn work(
        &mut self,
        dir: &StoreDir,
        objects: &VecDeque<Arc<Object>>,
        purges: &[u8],
        rules: u64,
    ) -> io::Result<()> {
        self.write_purges(dir, purges, rules)?;
        for object in objects {
            // A file of its own leaves with its record, even if nobody will read it.
            let number = large_number(object);
            if object.is_obsolete() && number.is_none() || self.add(dir, object)? {
                continue;
            }
            if let Some(number) = number {
                self.disk.abandon_large(number);
            }
        }
        self.flush()?;
        self.make_room(dir)
    }

    /// Adds purge rules to their log, or writes it anew.
    fn write_purges(&mut self, dir: &StoreDir, purges: &[u8], rules: u64) -> io::Result<()> {
        if purges.is_empty() && self.purge_log_max > 0 {
            return Ok(());
        }
        let store = self.store.upgrade().filter(|_| self.purge_log_bytes >= self.purge_log_max);
        if let Some(store) = store {
            store.expire_purges();
            self.purge_log_bytes = self.disk.rewrite_purges(dir, &store)?;
            self.purge_log_max = PURGE_LOG_BYTES.max(2 * self.purge_log_bytes);
        } else {
            let appended = self.disk.append_purges(dir, purges, self.purge_log_bytes);
            // The next write brings the whole log, with these rules.
            self.purge_log_bytes = appended.inspect_err(|_| self.purge_log_max = 0)?;
        }
        self.disk.queue().purges_written = rules;
        self.disk.has_written.notify_all();
        Ok(())
    }

    /// Adds an object to the batch. Returns false if it has no record in the end.
    fn add(&mut self, dir: &StoreDir, object: &Arc<Object>) -> io::Result<bool> {
        let (primary, hash) = self.disk.hashes(object);
        let Some(body) = body_of(object) else { return Ok(false) };
        let file_bytes = match body.place {
            BodyPlace::File { .. } => body.length,
            _ => 0,
        };
        let file = if let BodyPlace::File { number } = body.place { number } else { 0 };
        let record = Record {
            key: object.key.clone(),
            selecting: object.selecting.clone(),
            head: object.head.clone(),
            sent_at: object.sent_at,
            body,
        };
        let pieces = || object.content.pieces().iter().map(|piece| &**piece);
        for _ in 0..TRIES_MAX {
            let place = self.place(dir)?;
            let before = self.out.len();
            let Some(bytes) = record.write(&mut self.out, hash, place, pieces()) else {
                return Ok(false);
            };
            if !self.fits(self.out.len()) {
                self.out.truncate(before);
                self.seal()?;
                continue;
            }
            let Some(open) = &mut self.open else { return Ok(false) };
            let Some(names) = open.footer.names_index(&record.head.names) else {
                self.out.truncate(before);
                self.seal()?;
                continue;
            };
            let url = self.disk.url_of(&object.key);
            // A record is far below 4 GB.
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let unit = place.unit;
            let sent_at = object.sent_at;
            let row = Row { primary, hash, url, unit, bytes, names, file, file_bytes, sent_at };
            let written = Written { object: Arc::clone(object), sums: record.body.sums };
            self.rows.push((row, Some(written)));
            if self.out.len() >= BATCH_BYTES {
                self.flush()?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// The place of the next record.
    fn place(&mut self, dir: &StoreDir) -> io::Result<RecordPlace> {
        if self.open.is_none() {
            self.begin(dir)?;
        }
        let Some(open) = &self.open else { return Err(io::ErrorKind::NotFound.into()) };
        let unit = (open.at + self.out.len() as u64) / UNIT_BYTES;
        let unit = u32::try_from(unit).map_err(|_| io::ErrorKind::StorageFull)?;
        Ok(RecordPlace { segment: open.segment.number, unit })
    }

    /// True if the segment has room for the batch of this length, and for its footer.
    fn fits(&self, batch_bytes: usize) -> bool {
        let Some(open) = &self.open else { return false };
        let rows = (self.rows.len() + 1) * ROW_BYTES;
        let end = open.at + batch_bytes as u64 + open.footer.bytes() + rows as u64;
        let segment_bytes = self.disk.limits().segment_bytes();
        // An empty segment takes any record.
        end <= segment_bytes && open.segment.weight() < segment_bytes
            || open.at == 0 && self.rows.is_empty()
    }

    /// Begins a segment.
    fn begin(&mut self, dir: &StoreDir) -> io::Result<()> {
        self.check_room(dir)?;
        let number = self.next_segment;
        let file = dir.create_file(&segment::name(number))?;
        if let Err(error) = file.preallocate(self.disk.limits().segment_bytes()) {
            let _ = dir.remove(&segment::name(number));
            return Err(error);
        }
        self.next_segment += 1;
        let segment = Segment::new(number, file);
        self.disk.add_segment(&segment);
        self.open = Some(OpenSegment { segment, at: 0, footer: Footer::default() });
        if !self.is_reclaiming {
            self.make_room(dir)?;
        }
        Ok(())
    }

    /// Writes the batch.
    fn flush(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if self.out.is_empty() {
            return Ok(());
        }
        open.segment.file().write_all_at(&self.out, open.at)?;
        let counters = &self.disk.counters;
        counters.writes.fetch_add(1, Ordering::Relaxed);
        counters.written_bytes.fetch_add(self.out.len() as u64, Ordering::Relaxed);
        open.at += self.out.len() as u64;
        open.segment.add_weight(self.out.len() as u64);
        self.out.clear();
        self.out.shrink_to(2 * BATCH_BYTES);
        for (row, written) in self.rows.drain(..) {
            let place = RecordPlace { segment: open.segment.number, unit: row.unit };
            open.segment.add_row(&row);
            open.footer.rows.push(row);
            if row.file != 0 {
                // A file counts once, for its newest record.
                if let Some(before) = self.owners.insert(row.file, place)
                    && let Some(segment) = self.disk.segment(before.segment)
                {
                    segment.lose_weight(row.file_bytes);
                }
                open.segment.add_weight(row.file_bytes);
            }
            let Some(Written { object, sums }) = written else { continue };
            counters.written.fetch_add(1, Ordering::Relaxed);
            let names = &object.head.names;
            let is_known = row.names == 0 || self.disk.index.put_names(row.primary, names, place);
            let store = self.store.upgrade();
            let is_superseded = store.as_ref().is_some_and(|store| store.is_superseded(&object));
            if !is_known || is_superseded || object.is_obsolete() {
                continue;
            }
            self.disk.index.put(row.hash, place, row.bytes, true);
            object.set_on_disk();
            if object.is_obsolete() {
                self.disk.index.remove_at(row.hash, place);
                continue;
            }
            let keeps = object.content.memory_bytes() <= self.disk.limits().memory_object_bytes;
            if !keeps && let Some(store) = store {
                // The body is at the end of its record.
                let body = place.offset() + u64::from(row.bytes) - object.content.len();
                let in_segment = StoredPlace::Segment(place.segment, sums.to_vec().into());
                let mut stored = StoredBody::new(&open.segment.body, body, in_segment);
                if self.disk.limits().verifies_always {
                    stored = stored.with_check(BodyCheck::new(sums, true));
                }
                store.move_to_disk(&object, Content::on_disk(stored, object.content.len()));
            }
        }
        Ok(())
    }

    /// Seals the segment.
    fn seal(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(open) = self.open.take() {
            open.segment.seal(&open.footer, open.at)?;
        }
        Ok(())
    }

    /// Removes old segments until there is room for the next.
    fn make_room(&mut self, dir: &StoreDir) -> io::Result<()> {
        let limits = self.disk.limits();
        while self.disk.bytes() + limits.segment_bytes() > limits.bytes {
            if !self.reclaim(dir)? {
                break;
            }
        }
        Ok(())
    }

    /// Refuses to begin a segment if too little of the file system would stay free.
    fn check_room(&mut self, dir: &StoreDir) -> io::Result<()> {
        let limits = self.disk.limits();
        for _ in 0..RECLAIMED_MAX {
            let (free, all) = dir.room()?;
            if free >= limits.kept_bytes(all) + limits.segment_bytes() {
                return Ok(());
            }
            if self.is_reclaiming || !self.reclaim(dir)? {
                break;
            }
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Removes the oldest segment, even if it is the only one.
    fn shrink(&mut self, dir: &StoreDir) -> io::Result<()> {
        if !self.reclaim(dir)? {
            self.seal()?;
            self.reclaim(dir)?;
        }
        Ok(())
    }

    /// Removes the oldest segment, but keeps what was used lately. Returns false if there is none.
    fn reclaim(&mut self, dir: &StoreDir) -> io::Result<bool> {
        let Some(oldest) = self.disk.oldest_segment() else { return Ok(false) };
        if self.open.as_ref().is_some_and(|open| open.segment.number == oldest.number) {
            return Ok(false);
        }
        let footer = match oldest.footer() {
            Ok(Some(footer)) => footer,
            // It could not be sealed.
            _ => self.disk.scan(&oldest).map(|(footer, _)| footer).unwrap_or_default(),
        };
        self.is_reclaiming = true;
        let kept = self.keep_used(dir, &oldest, &footer);
        self.is_reclaiming = false;
        self.drop_rest(dir, &oldest, &footer);
        self.disk.remove_segment(oldest.number);
        let removed = dir.remove(&segment::name(oldest.number));
        removed.inspect_err(|_| self.disk.keep_rules())?;
        kept.map(|()| true)
    }

    /// Copies the records of a segment that were used since they were written.
    fn keep_used(&mut self, dir: &StoreDir, old: &Segment, footer: &Footer) -> io::Result<()> {
        // Without a segment being written, there is nothing to copy into.
        if self.open.is_none() {
            return Ok(());
        }
        let mut budget = self.disk.limits().segment_bytes() / KEPT_SHARE;
        for row in &footer.rows {
            let from = RecordPlace { segment: old.number, unit: row.unit };
            let is_used = self.disk.index.uses_at(row.hash, from).is_some_and(|uses| uses > 0);
            let bytes = padded(u64::from(row.bytes)).saturating_add(row.file_bytes);
            if !is_used || bytes > budget {
                continue;
            }
            budget -= bytes;
            let Ok(record) = old.file().read_range(from.offset(), row.bytes as usize) else {
                continue;
            };
            self.move_record(dir, *row, footer, &record, from)?;
        }
        self.flush()
    }

    fn move_record(
        &mut self,
        dir: &StoreDir,
        row: Row,
        footer: &Footer,
        record: &[u8],
        from: RecordPlace,
    ) -> io::Result<()> {
        if !self.fits(self.out.len() + record.len()) {
            self.seal()?;
        }
        let place = self.place(dir)?;
        let before = self.out.len();
        if record::write_moved(&mut self.out, record, from, place).is_none() {
            return Ok(());
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let names = footer.names_of(&row).map_or(Some(0), |names| open.footer.names_index(names));
        let Some(names) = names else {
            self.out.truncate(before);
            return Ok(());
        };
        let moved = Row { unit: place.unit, names, ..row };
        self.rows.push((moved, None));
        self.flush()?;
        self.disk.index.move_record(row.hash, from, place);
        if let Some(names) = footer.names_of(&row) {
            self.disk.index.put_names(row.primary, names, place);
        }
        self.disk.counters.kept.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Forgets the records of a segment that are still there, and removes their files.
    fn drop_rest(&mut self, dir: &StoreDir, old: &Segment, footer: &Footer) {
        for row in &footer.rows {
            let place = RecordPlace { segment: old.number, unit: row.unit };
            self.disk.index.remove_names_at(row.primary, place);
            if self.disk.index.remove_at(row.hash, place) {
                self.disk.counters.evicted.fetch_add(1, Ordering::Relaxed);
            }
            if row.file != 0 && self.owners.get(&row.file) == Some(&place) {
                self.owners.remove(&row.file);
                self.disk.files.forget(row.file);
                let _ = dir.remove(&large::name(row.file));
            }
        }
    }

    /// Writes what is left.
    fn close(&mut self, dir: &StoreDir) {
        let store = self.store.upgrade();
        let unsaved = store.as_ref().map(|store| store.unsaved()).unwrap_or_default();
        let saved = unsaved.iter().try_for_each(|object| self.add(dir, object).map(drop));
        if let Err(error) = saved.and_then(|()| self.seal()) {
            self.disk.note_write_error(&error);
        }
        if let Some(store) = store {
            store.expire_purges();
            let _ = self.disk.rewrite_purges(dir, &store);
        }
        // First, so that no large body begins that a successor does not expect.
        self.disk.set_state(DiskState::Closed);
        dir.release();
    }
}

/// The body of an object as its record has it. `None` if it has left the disk.
fn body_of(object: &Object) -> Option<BodySums> {
    let (content, length) = (&object.content, object.content.len());
    let Some(stored) = content.stored() else {
        let sums = block_sums(content.pieces().iter().map(|piece| &**piece));
        return Some(BodySums { place: BodyPlace::Here, length, sums });
    };
    let (place, sums) = match &stored.place {
        StoredPlace::File(number, sum) => (BodyPlace::File { number: *number }, [*sum].into()),
        StoredPlace::Segment(segment, sums) => {
            stored.file()?;
            (BodyPlace::Segment { segment: *segment, offset: stored.offset }, (**sums).into())
        }
    };
    Some(BodySums { place, length, sums })
}

/// The number of the file of an object's body, if it has one of its own.
fn large_number(object: &Object) -> Option<u64> {
    match object.content.stored()?.place {
        StoredPlace::File(number, _) => Some(number),
        StoredPlace::Segment(..) => None,
    }
}
