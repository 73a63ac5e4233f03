//! The dynamic table: RFC 7541 sections 2.3.2 and 4.
//!
//! Names and values lie in one buffer, oldest first, at most twice as long as the table's maximum
//! size. Evicted bytes are cut off when the buffer is full, so that an insertion moves few bytes on
//! average and each field is contiguous. An unused table holds no memory.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lighty_http::Known;

use super::FieldFault;

/// Overhead of an entry besides its name and value: RFC 7541 section 4.1.
pub(super) const ENTRY_OVERHEAD: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Position of the name, counted from the first byte ever inserted.
    start: usize,
    name_len: u32,
    value_len: u32,
    known: Option<Known>,
    fault: Option<FieldFault>,
}

impl Entry {
    fn len(&self) -> usize {
        self.name_len as usize + self.value_len as usize
    }
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) known: Option<Known>,
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) fault: Option<FieldFault>,
}

#[derive(Debug, Default)]
pub(super) struct DynamicTable {
    bytes: Vec<u8>,
    /// Position of the first byte of `bytes`.
    base: usize,
    /// Entries, oldest first.
    entries: VecDeque<Entry>,
    size: usize,
    size_max: usize,
    /// Number of insertions so far.
    inserted: u32,
}

impl DynamicTable {
    pub(super) const fn new(size_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            base: 0,
            entries: VecDeque::new(),
            size: 0,
            size_max,
            inserted: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Frees unused capacity.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    pub(super) const fn size_max(&self) -> usize {
        self.size_max
    }

    /// Bytes of memory held.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Number of insertions so far, which is the number of the next entry.
    pub(super) const fn inserted(&self) -> u32 {
        self.inserted
    }

    /// Changes the size, and evicts entries that no longer fit.
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(0);
        #[cfg(debug_assertions)]
        self.check_size();
        if self.entries.is_empty() {
            (self.bytes, self.base) = (Vec::new(), 0);
        }
    }

    /// Compares the size with the entries.
    #[cfg(debug_assertions)]
    fn check_size(&self) {
        let size: usize = self.entries.iter().map(|entry| entry.len() + ENTRY_OVERHEAD).sum();
        debug_assert_eq!(self.size, size, "{} entries", self.entries.len());
    }

    /// The entry at a position counted from the newest, which is 0.
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<Found<'_>> {
        let nth = self.entries.len().checked_sub(place + 1)?;
        let entry = self.entries.get(nth)?;
        let start = entry.start - self.base;
        let (name, rest) = self.bytes[start..start + entry.len()].split_at(entry.name_len as usize);
        Some(Found { known: entry.known, name, value: rest, fault: entry.fault })
    }

    /// The position of the entry with this number, if it has not been evicted.
    #[inline]
    pub(super) fn place_of(&self, number: u32) -> Option<usize> {
        let place = self.inserted.wrapping_sub(number).wrapping_sub(1) as usize;
        (place < self.entries.len()).then_some(place)
    }

    /// Inserts a field. A field larger than the table empties it (RFC 7541 section 4.4).
    pub(super) fn insert(&mut self, field: Found<'_>) {
        let len = field.name.len() + field.value.len();
        self.evict(len + ENTRY_OVERHEAD);
        if len + ENTRY_OVERHEAD > self.size_max {
            return;
        }
        self.make_room(len);
        self.entries.push_back(Entry {
            start: self.base + self.bytes.len(),
            name_len: field.name.len() as u32,
            value_len: field.value.len() as u32,
            known: field.known,
            fault: field.fault,
        });
        self.bytes.extend_from_slice(field.name);
        self.bytes.extend_from_slice(field.value);
        self.size += len + ENTRY_OVERHEAD;
        self.inserted = self.inserted.wrapping_add(1);
        debug_assert!(self.size <= self.size_max, "{} of {}", self.size, self.size_max);
        debug_assert!(self.bytes.len() <= 2 * self.size_max, "{} bytes", self.bytes.len());
    }

    /// Evicts the oldest entries until `more` bytes fit.
    fn evict(&mut self, more: usize) {
        while self.size + more > self.size_max {
            let Some(oldest) = self.entries.pop_front() else {
                debug_assert_eq!(self.size, 0, "an empty table");
                return;
            };
            self.size -= oldest.len() + ENTRY_OVERHEAD;
        }
    }

    /// Cuts off evicted bytes when they are as many as the table's maximum size.
    fn make_room(&mut self, len: usize) {
        if self.bytes.len() + len > 2 * self.size_max {
            let start = self.entries.front().map_or(self.base + self.bytes.len(), |e| e.start);
            self.bytes.drain(..start - self.base);
            self.base = start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field<'a>(name: &'a str, value: &'a str) -> Found<'a> {
        Found { known: None, name: name.as_bytes(), value: value.as_bytes(), fault: None }
    }

    #[test]
    fn the_newest_comes_first_and_the_oldest_goes() {
        let mut table = DynamicTable::new(3 * (ENTRY_OVERHEAD + 2));
        assert_eq!(table.capacity(), 0);
        for name in ["a", "b", "c", "d"] {
            table.insert(field(name, name));
        }
        let names: Vec<_> = (0..4).map_while(|place| table.get(place)).map(|f| f.name).collect();
        assert_eq!(names, [b"d", b"c", b"b"]);
        assert_eq!(
            (table.place_of(3), table.place_of(1), table.place_of(0)),
            (Some(0), Some(2), None)
        );
        assert_eq!(table.place_of(table.inserted()), None);
        table.resize(ENTRY_OVERHEAD + 2);
        assert_eq!((table.len(), table.get(0).expect("one").value), (1, &b"d"[..]));
    }

    #[test]
    fn entry_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::new(ENTRY_OVERHEAD + 4);
        table.insert(field("ab", "cd"));
        assert_eq!(table.len(), 1);
        table.insert(field("ab", "cde"));
        assert_eq!((table.len(), table.size), (0, 0));
        table.resize(0);
        table.insert(field("", ""));
        assert_eq!((table.len(), table.bytes.capacity()), (0, 0));
    }

    #[test]
    fn memory_stays_within_twice_the_size_however_much_passes_through() {
        let mut table = DynamicTable::new(200);
        for round in 0..1000u32 {
            let value = std::format!("{round:>width$}", width = (round % 60) as usize);
            table.insert(field("name", &value));
            assert!(table.bytes.len() <= 400 && table.size <= 200);
            assert_eq!(table.get(0).expect("it fits").value, value.as_bytes());
            assert_eq!(table.place_of(round), Some(0));
        }
    }
}
