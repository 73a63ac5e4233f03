//! The index of what is on the disk: 28 bytes and a place in a table for each record.
//!
//! No lock is held during I/O. A resource that varies has an entry of its own, which names the
//! fields that select among its variants.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use hashbrown::HashTable;

use super::hash::KeyHash;
use super::record::RecordPlace;
use crate::store::table_bytes;

/// Parts of the index, each with a lock.
const PARTS: usize = 64;

/// Bytes that an entry takes, with its place in a table that is half full.
const ENTRY_BYTES: usize = size_of::<Entry>() + 2 * (size_of::<u32>() + 1);

/// Entries that are allocated at once.
const BLOCK_ENTRIES: usize = 128;

/// Different lists of names in a store. Responses with others stay in memory.
const NAME_LISTS_MAX: usize = 4_096;

/// Names of the request fields that select among the variants of a resource.
type SharedNames = std::sync::Arc<[Box<[u8]>]>;

/// A record in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) hash: KeyHash,
    pub(super) place: RecordPlace,
    /// Bytes of the record.
    pub(super) bytes: u32,
    /// Of a resource that varies: number of its list of names; 0: this is a response.
    names: u16,
    uses: u8,
    flags: u8,
}

/// The body agrees with its checksums.
const VERIFIED: u8 = 1;

/// Uses that count.
const USES_MAX: u8 = 3;

/// Entry of the index for a hash.
#[derive(Clone, Debug)]
pub(super) enum Known {
    Response(Entry),
    /// Look the variant up.
    Varies(SharedNames),
}

/// The index of a store.
#[derive(Debug)]
pub(super) struct Index {
    parts: Box<[Mutex<Part>]>,
    names: RwLock<Vec<SharedNames>>,
}

#[derive(Debug, Default)]
struct Part {
    table: HashTable<u32>,
    blocks: Vec<Box<[Entry]>>,
    used: u32,
    /// Places of removed entries.
    free: Vec<u32>,
}

impl Part {
    fn entry(&self, at: u32) -> &Entry {
        &self.blocks[at as usize / BLOCK_ENTRIES][at as usize % BLOCK_ENTRIES]
    }

    fn entry_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.blocks[at as usize / BLOCK_ENTRIES][at as usize % BLOCK_ENTRIES]
    }

    fn find(&self, hash: KeyHash) -> Option<u32> {
        self.table.find(hash.short(), |at| self.entry(*at).hash == hash).copied()
    }

    fn insert(&mut self, entry: Entry) {
        match self.find(entry.hash) {
            Some(at) => *self.entry_mut(at) = entry,
            None => self.insert_new(entry),
        }
    }

    fn insert_new(&mut self, entry: Entry) {
        let at = self.free.pop().unwrap_or_else(|| {
            if self.used as usize == self.blocks.len() * BLOCK_ENTRIES {
                self.blocks.push(vec![entry; BLOCK_ENTRIES].into());
            }
            self.used += 1;
            self.used - 1
        });
        *self.entry_mut(at) = entry;
        let Self { table, blocks, .. } = self;
        let hash = |at: &u32| {
            blocks[*at as usize / BLOCK_ENTRIES][*at as usize % BLOCK_ENTRIES].hash.short()
        };
        table.insert_unique(entry.hash.short(), at, hash);
    }

    fn remove(&mut self, hash: KeyHash) {
        let Self { table, blocks, free, .. } = self;
        let is_it = |at: &u32| {
            blocks[*at as usize / BLOCK_ENTRIES][*at as usize % BLOCK_ENTRIES].hash == hash
        };
        if let Ok(found) = table.find_entry(hash.short(), is_it) {
            free.push(*found.get());
            found.remove();
        }
        if self.table.len() * 2 + BLOCK_ENTRIES < self.used as usize {
            self.compact();
        }
    }

    /// Gives the memory back that it needed for many more entries.
    fn compact(&mut self) {
        let old = std::mem::take(self);
        self.table.reserve(old.table.len(), |_| 0);
        for at in &old.table {
            self.insert_new(*old.entry(*at));
        }
    }

    /// Bytes of the entries and their places.
    fn bytes(&self) -> u64 {
        (self.table.len() * ENTRY_BYTES) as u64
    }

    /// Bytes with what removed entries have left, which is used again.
    fn memory_bytes(&self) -> u64 {
        let entries = self.blocks.len() * BLOCK_ENTRIES * size_of::<Entry>();
        let free = self.free.capacity() * size_of::<u32>();
        (entries + free) as u64 + table_bytes(self.table.capacity(), size_of::<u32>())
    }
}

impl Index {
    pub(super) fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect(), names: RwLock::default() }
    }

    fn part(&self, hash: KeyHash) -> MutexGuard<'_, Part> {
        let part = &self.parts[hash.part(PARTS)];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, hash: KeyHash) -> Option<Known> {
        let part = self.part(hash);
        let entry = *part.entry(part.find(hash)?);
        drop(part);
        let Some(list) = usize::from(entry.names).checked_sub(1) else {
            return Some(Known::Response(entry));
        };
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.get(list).cloned().map(Known::Varies)
    }

    /// Puts a record in, in place of an older one.
    pub(super) fn put(&self, hash: KeyHash, place: RecordPlace, bytes: u32, is_verified: bool) {
        let flags = if is_verified { VERIFIED } else { 0 };
        self.part(hash).insert(Entry { hash, place, bytes, names: 0, uses: 0, flags });
    }

    /// Puts a record in unless there is one. Returns true if it is there now.
    pub(super) fn put_if_new(&self, hash: KeyHash, place: RecordPlace, bytes: u32) -> bool {
        let mut part = self.part(hash);
        let is_new = part.find(hash).is_none();
        if is_new {
            part.insert_new(Entry { hash, place, bytes, names: 0, uses: 0, flags: 0 });
        }
        is_new
    }

    /// Notes that a resource varies by these names. `false` if there are too many lists of names.
    /// `place` is that of the newest variant, with which it leaves.
    pub(super) fn put_names(
        &self,
        primary: KeyHash,
        names: &[Box<[u8]>],
        place: RecordPlace,
    ) -> bool {
        let Some(names) = self.names_number(names) else { return false };
        self.part(primary).insert(Entry {
            hash: primary,
            place,
            bytes: 0,
            names,
            uses: 0,
            flags: 0,
        });
        true
    }

    fn names_number(&self, names: &[Box<[u8]>]) -> Option<u16> {
        let mut known = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let at = match known.iter().position(|list| **list == *names) {
            Some(at) => at,
            None if known.len() >= NAME_LISTS_MAX => return None,
            None => {
                known.push(names.into());
                known.len() - 1
            }
        };
        u16::try_from(at + 1).ok()
    }

    /// Changes the place of a record that is still at `from`. Returns false if it is not.
    pub(super) fn move_record(&self, hash: KeyHash, from: RecordPlace, to: RecordPlace) -> bool {
        let mut part = self.part(hash);
        let Some(at) = part.find(hash) else { return false };
        let entry = part.entry_mut(at);
        let is_there = entry.names == 0 && entry.place == from;
        if is_there {
            entry.place = to;
            entry.uses = 0;
        }
        is_there
    }

    /// Removes the names of a resource if its newest variant was at this place.
    pub(super) fn remove_names_at(&self, primary: KeyHash, place: RecordPlace) {
        let mut part = self.part(primary);
        let found = part.find(primary).map(|at| *part.entry(at));
        if found.is_some_and(|entry| entry.names != 0 && entry.place == place) {
            part.remove(primary);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&self, hash: KeyHash) {
        self.part(hash).remove(hash);
    }

    /// Removes a record if it is still at this place. Returns true if it was.
    pub(super) fn remove_at(&self, hash: KeyHash, place: RecordPlace) -> bool {
        let mut part = self.part(hash);
        let found = part.find(hash).map(|at| *part.entry(at));
        let is_there = found.is_some_and(|entry| entry.names == 0 && entry.place == place);
        if is_there {
            part.remove(hash);
        }
        is_there
    }

    /// The number of uses of a record at this place since it was written; `None` if it is not
    /// there.
    pub(super) fn uses_at(&self, hash: KeyHash, place: RecordPlace) -> Option<u8> {
        let part = self.part(hash);
        let entry = part.entry(part.find(hash)?);
        (entry.names == 0 && entry.place == place).then_some(entry.uses)
    }

    /// Counts a use.
    pub(super) fn touch(&self, hash: KeyHash) {
        let mut part = self.part(hash);
        if let Some(at) = part.find(hash) {
            let entry = part.entry_mut(at);
            entry.uses = (entry.uses + 1).min(USES_MAX);
        }
    }

    /// Notes that the body of a record agrees with its checksums.
    pub(super) fn set_verified(&self, hash: KeyHash, place: RecordPlace) {
        let mut part = self.part(hash);
        if let Some(at) = part.find(hash)
            && part.entry(at).place == place
        {
            part.entry_mut(at).flags |= VERIFIED;
        }
    }

    /// Number of entries, and the bytes of memory that they take.
    pub(super) fn extent(&self) -> (usize, u64) {
        let (mut count, mut bytes) = (0, 0);
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            count += part.table.len();
            bytes += part.bytes();
        }
        (count, bytes)
    }

    /// Bytes of memory that it takes, with what removed entries have left.
    pub(super) fn memory_bytes(&self) -> u64 {
        let part =
            |part: &Mutex<Part>| part.lock().unwrap_or_else(PoisonError::into_inner).memory_bytes();
        self.parts.iter().map(part).sum()
    }
}

impl Entry {
    pub(super) fn is_verified(&self) -> bool {
        self.flags & VERIFIED != 0
    }
}

const _: () = assert!(size_of::<Entry>() == 28);

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> KeyHash {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[8..].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_le_bytes());
        KeyHash::from_bytes(bytes)
    }

    fn place(unit: u32) -> RecordPlace {
        RecordPlace { segment: 1, unit }
    }

    #[test]
    fn entries_are_replaced_moved_and_removed() {
        let index = Index::new();
        for number in 0..5_000 {
            index.put(hash(number), place(number), 64, false);
        }
        let at = |number: u32| match index.get(hash(number)) {
            Some(Known::Response(entry)) => Some(entry.place.unit),
            _ => None,
        };
        assert!((0..5_000).all(|number| at(number) == Some(number)));
        index.put(hash(7), place(9_000), 64, true);
        assert_eq!(index.uses_at(hash(7), place(7)), None, "it is elsewhere");
        index.touch(hash(7));
        assert_eq!(index.uses_at(hash(7), place(9_000)), Some(1));
        assert!(!index.move_record(hash(7), place(7), place(1)));
        assert!(index.move_record(hash(7), place(9_000), place(9_001)));
        assert_eq!(index.uses_at(hash(7), place(9_001)), Some(0));
        assert!(!index.remove_at(hash(7), place(7)));
        assert!(index.remove_at(hash(7), place(9_001)));
        assert_eq!(at(7), None);
        for number in 0..5_000 {
            index.remove(hash(number));
        }
        assert_eq!(index.extent().0, 0);
        assert!(index.memory_bytes() < 700_000, "{}", index.memory_bytes());
        let used = || index.parts.iter().map(|part| part.lock().expect("a lock").used).sum::<u32>();
        let before = used();
        (0..5_000).for_each(|number| index.put(hash(number), place(number), 64, false));
        assert_eq!(used(), before, "places of removed entries are used again");
    }

    #[test]
    fn a_resource_that_varies_has_names() {
        let index = Index::new();
        let names: [Box<[u8]>; 1] = [b"accept-encoding".as_slice().into()];
        assert!(index.put_names(hash(1), &names, place(1)));
        assert!(index.put_names(hash(2), &names, place(2)));
        assert!(matches!(index.get(hash(1)), Some(Known::Varies(found)) if *found == names));
        index.remove_names_at(hash(2), place(1));
        assert!(index.get(hash(2)).is_some());
        index.remove_names_at(hash(2), place(2));
        assert!(index.get(hash(2)).is_none());
        assert_eq!(index.names.read().expect("not poisoned").len(), 1);
        index.put(hash(1), place(1), 64, false);
        assert!(matches!(index.get(hash(1)), Some(Known::Response(_))));
        let mut number = 0_u32;
        let other = || {
            number += 1;
            let name: Box<[u8]> = number.to_string().into_bytes().into();
            index.put_names(hash(3), &[name], place(3))
        };
        assert_eq!(
            std::iter::repeat_with(other).take_while(|put| *put).count(),
            NAME_LISTS_MAX - 1
        );
    }
}
