//! The store and the disk below it: responses that come from there, and ones that go there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lighty_http::Fields;
use lighty_io::clock;

use super::{ResponseStore, unpoisoned};
use crate::disk::{Disk, DiskPlace};
use crate::key::Key;
use crate::object::{Content, Object};
use crate::purge::PurgeEntry;

/// True if a response can be of use to later requests.
fn is_worth_keeping(object: &Object) -> bool {
    let now_s = i64::try_from(clock::shared_unix_s()).unwrap_or(i64::MAX);
    object.head.freshness.is_worth_keeping(now_s)
}

impl ResponseStore {
    /// Looks up where the response to a request lies on the disk. No I/O.
    pub fn locate(&self, key: &Key, request: &Fields) -> Option<DiskPlace> {
        self.disk.as_ref()?.locate(key, request)
    }

    /// Reads a response from the disk, unless another request has done so meanwhile. `None` if it
    /// is not there any more. For threads that may wait for the disk.
    pub fn load(&self, key: &Key, request: &Fields, place: &DiskPlace) -> Option<Arc<Object>> {
        if let Some(object) = self.find(key, request) {
            return Some(object);
        }
        let object = self.load_from(place)?;
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        Some(object)
    }

    /// Reads an object from the disk into memory, unless it was purged.
    pub(super) fn load_from(&self, place: &DiskPlace) -> Option<Arc<Object>> {
        let disk = self.disk.as_ref()?;
        // Until it is counted, no rule goes that it may be too old for.
        self.moments.note_load(true);
        let object = self.read_from(disk, place);
        self.moments.note_load(false);
        object
    }

    fn read_from(&self, disk: &Disk, place: &DiskPlace) -> Option<Arc<Object>> {
        let object = disk.load(place)?;
        let purged = self.purges.compare(&object.key, &object.head.tags, object.sent_at);
        // The rules since a later moment than now are lost.
        if purged.hard || object.sent_at > self.purges.now() {
            self.counters.purged.fetch_add(1, Ordering::Relaxed);
            disk.forget_place(place);
            return None;
        }
        if purged.soft {
            object.make_stale();
        }
        let object = Arc::new(object);
        self.adopt(&object);
        Some(object)
    }

    /// Puts an object from the disk into the index, unless a newer one is there.
    fn adopt(&self, object: &Arc<Object>) {
        let variants = unpoisoned(&self.limits).variants;
        let mut gone = Vec::new();
        {
            let mut shard = unpoisoned(self.shard(&object.key));
            let resource = shard.resources.entry(object.key.clone()).or_default();
            let is_known =
                resource.variants.iter().any(|known| known.selecting == object.selecting);
            let has_other_names =
                !resource.variants.is_empty() && resource.names != object.head.names;
            if is_known || has_other_names {
                return;
            }
            resource.names.clone_from(&object.head.names);
            while resource.variants.len() >= variants.max(1) {
                gone.push(resource.variants.remove(0));
            }
            resource.variants.push(Arc::clone(object));
        }
        self.hold(object, &gone);
        self.make_room();
    }

    /// True if another object has taken the place of this one in memory.
    pub(crate) fn is_superseded(&self, object: &Arc<Object>) -> bool {
        let shard = unpoisoned(self.shard(&object.key));
        shard.resources.get(&object.key).is_some_and(|resource| {
            let mut variants = resource.variants.iter();
            variants.any(|known| known.selecting == object.selecting && !Arc::ptr_eq(known, object))
        })
    }

    /// Takes an object out of memory whose body has left the disk, or is damaged.
    pub fn drop_from_memory(&self, object: &Arc<Object>) {
        self.drop_from_index(object);
        let url = self.purges.url(&object.key);
        self.release(&mut unpoisoned(&self.held), object, url);
    }

    /// Removes an object with a damaged body.
    pub fn remove_damaged(&self, object: &Arc<Object>) {
        if let Some(disk) = &self.disk {
            disk.counters().damaged.fetch_add(1, Ordering::Relaxed);
        }
        self.remove(object);
    }

    /// Has an object keep its body on the disk alone.
    pub(crate) fn move_to_disk(&self, object: &Arc<Object>, content: Content) {
        if object.is_removed() {
            return;
        }
        let place = (object.key.clone(), object.selecting.clone());
        let moved = Object::new(place, object.head.clone(), content, object.sent_at);
        moved.set_on_disk();
        moved.checked_at.store(object.checked_at.load(Ordering::Relaxed), Ordering::Relaxed);
        if object.is_purged_softly() {
            moved.make_stale();
        }
        let moved = Arc::new(moved);
        {
            let mut shard = unpoisoned(self.shard(&object.key));
            let Some(resource) = shard.resources.get_mut(&object.key) else { return };
            let same = |known: &&mut Arc<Object>| Arc::ptr_eq(known, object);
            let Some(known) = resource.variants.iter_mut().find(same) else { return };
            *known = Arc::clone(&moved);
        }
        self.hold(&moved, &[Arc::clone(object)]);
    }

    /// Objects in memory that were used and are not on the disk.
    pub(crate) fn unsaved(&self) -> Vec<Arc<Object>> {
        let mut unsaved = Vec::new();
        for shard in &self.shards {
            let shard = unpoisoned(shard);
            let variants = shard.resources.values().flat_map(|resource| &resource.variants);
            unsaved.extend(variants.filter(|object| object.was_used()).cloned());
        }
        let is_on_disk =
            |object: &Arc<Object>| self.disk.as_ref().is_some_and(|disk| disk.has(object));
        unsaved.retain(|object| is_worth_keeping(object) && !is_on_disk(object));
        unsaved
    }

    /// Ends the use of the disk: writes what was used, and lets another process have the directory.
    /// Waits at most this time.
    pub fn close(&self, wait: Duration) {
        if let Some(disk) = &self.disk {
            disk.close(wait);
        }
    }

    /// Waits until all purge rules so far hold after a crash, too. For threads that may wait for
    /// the disk.
    pub fn wait_for_purges(&self) {
        if let Some(disk) = &self.disk {
            disk.wait_for_purges();
        }
    }

    /// Adds purge rules of an earlier process.
    pub(crate) fn merge_purges(&self, entries: &[PurgeEntry]) {
        self.purges.merge(entries);
    }

    /// All purge rules that are needed, and the moment of the last one.
    pub(crate) fn purge_entries(&self) -> Vec<PurgeEntry> {
        let mut entries = self.purges.entries();
        entries.push(self.purges.last_rule());
        entries
    }

    /// Has an object that leaves memory written, if it was used and can be of use again.
    pub(super) fn retire(&self, object: &Arc<Object>) {
        let Some(disk) = &self.disk else { return };
        let is_useful = object.was_used() && !object.is_obsolete() && is_worth_keeping(object);
        if is_useful && !disk.has(object) {
            disk.save(object);
        }
    }
}
