//! Responses that are stored in slices: objects with [keys of their own](Key::slice), which belong
//! to one version of a resource.

use std::hash::BuildHasher;
use std::sync::Arc;

use lighty_http::range::parse_content_range;
use lighty_http::{Fields, Known};

use super::{Pilot, ResponseStore, unpoisoned};
use crate::key::Key;
use crate::object::Object;
use crate::purge::{PurgeKind, PurgeScope};

/// A version of a resource. Only slices of one version are put together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SliceVersion {
    /// Its strong `ETag`.
    pub etag: Box<[u8]>,
    /// Length of the whole representation in bytes.
    pub total: u64,
}

impl SliceVersion {
    /// The version that a partial response belongs to; `None` if it does not say so.
    pub fn of(partial: &Fields) -> Option<Self> {
        let (_, total) = parse_content_range(partial.get(Known::ContentRange)?)?;
        let etag = partial.get(Known::ETag).filter(|etag| etag.starts_with(b"\""))?;
        Some(Self { etag: etag.into(), total: total? })
    }
}

/// A temporary property of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SliceMark {
    /// Its partial responses are not stored: ranges are requested from the backend.
    Passes,
    /// The backend sends the whole in place of a range.
    IgnoresRanges,
}

/// The hash of a key with this word is a mark: another version was found lately.
const HAS_CHANGED: &str = "has changed";

/// Time for which a change is remembered.
const CHANGED_MS: u64 = 60_000;

/// All requests that read the same slices find the same change about at the same time.
const JUST_MS: u64 = 1_000;

impl ResponseStore {
    /// Marks a resource until this time in milliseconds of the monotonic clock.
    pub fn mark_slices(&self, key: &Key, mark: SliceMark, has_credentials: bool, until_ms: u64) {
        let hash = self.hasher.hash_one((key, mark, has_credentials));
        self.note(&mut unpoisoned(self.shard(key)), hash, until_ms);
    }

    /// True if a resource is marked.
    pub fn has_slice_mark(
        &self,
        key: &Key,
        mark: SliceMark,
        has_credentials: bool,
        now_ms: u64,
    ) -> bool {
        let hash = self.hasher.hash_one((key, mark, has_credentials));
        let shard = unpoisoned(self.shard(key));
        shard.notes.get(hash).is_some_and(|until_ms| until_ms > now_ms)
    }

    /// Notes the version of a resource, for the requests with these selecting values. Returns false
    /// if the last one was another.
    pub fn note_version(&self, key: &Key, selecting: &[u8], version: &SliceVersion) -> bool {
        let (variant, version) =
            (self.hasher.hash_one((key, selecting)), self.hasher.hash_one(version));
        let mut shard = unpoisoned(self.shard(key));
        // If it is forgotten, readers find slices of different versions themselves.
        let last = shard.notes.get(variant);
        self.note(&mut shard, variant, version);
        last.is_none_or(|last| last == version)
    }

    /// True if a version is the last one that was noted for these selecting values; `None` if none
    /// was.
    pub fn is_noted(&self, key: &Key, selecting: &[u8], version: &SliceVersion) -> Option<bool> {
        let (variant, version) =
            (self.hasher.hash_one((key, selecting)), self.hasher.hash_one(version));
        let shard = unpoisoned(self.shard(key));
        shard.notes.get(variant).map(|noted| noted == version)
    }

    /// The tag of all slices of a resource. Fields and groups have no such tags: a key begins with
    /// a zero byte.
    pub fn slices_tag(&self, key: &Key) -> u64 {
        self.tag(key.as_bytes())
    }

    /// Removes all slices of a resource, and the ones under way, unless that has just been done.
    /// Returns true if it was done before within the last minute.
    pub fn drop_slices(&self, key: &Key, now_ms: u64) -> bool {
        let hash = self.hasher.hash_one((key, HAS_CHANGED));
        let since_ms = {
            let mut shard = unpoisoned(self.shard(key));
            let until_ms = shard.notes.get(hash).unwrap_or(0);
            let since_ms = (now_ms + CHANGED_MS).saturating_sub(until_ms);
            if since_ms < JUST_MS {
                return false;
            }
            self.note(&mut shard, hash, now_ms + CHANGED_MS);
            since_ms
        };
        self.purge(PurgeScope::Tag(key.as_bytes()), PurgeKind::Hard);
        since_ms < CHANGED_MS
    }

    /// True if the index has this object.
    pub(super) fn has_in_memory(&self, object: &Arc<Object>) -> bool {
        let shard = unpoisoned(self.shard(&object.key));
        let resource = shard.resources.get(&object.key);
        resource.is_some_and(|one| one.variants.iter().any(|known| Arc::ptr_eq(known, object)))
    }

    /// The stored response for a request in memory. Does not count as a use.
    pub fn peek(&self, key: &Key, request: &Fields) -> Option<Arc<Object>> {
        let object = unpoisoned(self.shard(key)).resources.get(key)?.select(request)?;
        let purged = self.purges.check(&object);
        if purged.soft {
            object.make_stale();
        }
        (!purged.hard).then_some(object)
    }
}

impl Pilot {
    /// Takes over the response to the request of another flight: purges since then concern it.
    pub fn succeed(&mut self, other: &Self) {
        self.date(other.sent_at.min(self.sent_at));
    }

    /// True if the slices of a resource were dropped since the request of this flight was sent: its
    /// response may be older than the change.
    pub fn is_behind_drop(&self, key: &Key) -> bool {
        let own_tag = [self.store.slices_tag(key)];
        self.store.purges.compare(&self.key, &own_tag, self.sent_at).hard
    }

    /// The response is a slice of the present version of a resource: a drop of its slices since the
    /// request does not concern it. Purges do.
    pub fn outlive_drop(&mut self, key: &Key, tags: &[u64]) {
        let own_tag = self.store.slices_tag(key);
        let others: Vec<u64> = tags.iter().copied().filter(|tag| *tag != own_tag).collect();
        // A purge behind this moment concerns the flight, and the comparison finds earlier ones.
        let now = self.store.purges.now();
        let purged = self.store.purges.compare(&self.key, &others, self.sent_at);
        if !purged.hard && !purged.soft {
            self.date(now);
        }
    }

    fn date(&mut self, sent_at: u64) {
        // The other moment counts until now.
        self.store.moments.enter(sent_at);
        self.store.moments.leave(self.sent_at);
        self.sent_at = sent_at;
        let mut shard = unpoisoned(self.store.shard(&self.key));
        let Some(resource) = shard.resources.get_mut(&self.key) else { return };
        let own =
            resource.flights.iter_mut().filter(|known| Arc::ptr_eq(&known.flight, &self.flight));
        own.for_each(|known| known.sent_at = self.sent_at);
    }
}
