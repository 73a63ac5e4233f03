//! Memory of a store beside its objects: a counter, and notes in tables of a bounded size.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;

/// Share of the budget that notes may take: one part in so many.
const NOTES_SHARE: u64 = 32;

/// Places of the smallest and of the largest table of notes.
const NOTES_PLACES: std::ops::RangeInclusive<u64> = 16..=2_048;

/// Bytes of memory that a store takes beside its objects.
#[derive(Debug, Default)]
pub(crate) struct Beside(AtomicU64);

impl Beside {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Something takes other bytes than before.
    pub(crate) fn change(&self, before: u64, now: u64) {
        match now.checked_sub(before) {
            Some(more) => self.0.fetch_add(more, Ordering::Relaxed),
            None => self.0.fetch_sub(before - now, Ordering::Relaxed),
        };
    }
}

/// Bytes of a hash table with this capacity, for entries of so many bytes.
pub(crate) fn table_bytes(capacity: usize, entry_bytes: usize) -> u64 {
    match capacity {
        0 => 0,
        // Seven of eight places are used, and each has a byte of its hash.
        _ => ((capacity * 8 / 7).next_power_of_two() * (entry_bytes + 1) + 16) as u64,
    }
}

/// Keeps some entries of a map, in a table of their size. Removed entries would have it grow.
pub(crate) fn rebuild_map<V>(
    map: &mut HashMap<u64, V, RandomState>,
    mut keeps: impl FnMut(&mut V) -> bool,
) {
    let mut left = 0;
    for value in map.values_mut() {
        left += usize::from(keeps(value));
    }
    if left == map.len() {
        return;
    }
    let mut kept = HashMap::with_capacity_and_hasher(left, RandomState::default());
    kept.extend(std::mem::take(map).into_iter().filter_map(|(key, mut value)| {
        let is_kept = keeps(&mut value);
        is_kept.then_some((key, value))
    }));
    *map = kept;
}

/// Gives the memory of a map back that it needed for many more entries.
pub(crate) fn shrink_map<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V, RandomState>) {
    if map.capacity() > 4 * map.len() + 8 {
        map.shrink_to(2 * map.len());
    }
}

/// Numbers by hash, of two generations: once the younger one is full, the older one is forgotten.
#[derive(Debug, Default)]
pub(super) struct Notes {
    young: HashMap<u64, u64, RandomState>,
    old: HashMap<u64, u64, RandomState>,
}

impl Notes {
    /// Notes of a generation in one of so many parts of a store with this budget.
    pub(super) fn most(memory: u64, parts: usize) -> usize {
        let bytes = memory / NOTES_SHARE / parts as u64 / 2;
        let most = NOTES_PLACES.end().ilog2();
        let fits = |places: &u64| table_bytes((places / 8 * 7) as usize, 16) <= bytes;
        let sizes = (NOTES_PLACES.start().ilog2()..=most).map(|bits| 1 << bits);
        (sizes.take_while(fits).last().unwrap_or(*NOTES_PLACES.start()) / 8 * 7) as usize
    }

    pub(super) fn get(&self, hash: u64) -> Option<u64> {
        self.young.get(&hash).or_else(|| self.old.get(&hash)).copied()
    }

    /// Sets a number. `most` notes are in a generation.
    pub(super) fn set(&mut self, hash: u64, number: u64, most: usize) {
        if self.young.len() >= most && !self.young.contains_key(&hash) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, number);
    }

    /// Sets the number to 0 if there is one. Removed entries could have the table grow.
    pub(super) fn clear(&mut self, hash: u64) {
        for notes in [&mut self.young, &mut self.old] {
            if let Some(number) = notes.get_mut(&hash) {
                *number = 0;
            }
        }
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> u64 {
        let entry_bytes = size_of::<(u64, u64)>();
        table_bytes(self.young.capacity(), entry_bytes)
            + table_bytes(self.old.capacity(), entry_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_the_last_generation_stay_and_older_ones_go() {
        for (memory, parts) in [(0, 64), (2 << 20, 64), (64 << 20, 64), (u64::MAX, 64)] {
            let most = Notes::most(memory, parts);
            let mut notes = Notes::default();
            for number in 0..10 * most as u64 {
                notes.set(number, number + 1, most);
                let first = (number + 1).saturating_sub(most as u64);
                assert!((first..=number).all(|kept| notes.get(kept) == Some(kept + 1)));
                if most > 1_000 && number > 4_000 {
                    break;
                }
            }
            let share = memory / NOTES_SHARE / parts as u64;
            let least = 2 * table_bytes(14, 16);
            assert!(notes.bytes() <= share.max(least), "{memory}: {}", notes.bytes());
        }
        assert_eq!(Notes::most(0, 64), 14);
        assert_eq!(Notes::most(u64::MAX, 64), 1_792);
    }

    #[test]
    fn cleared_notes_are_zero_in_both_generations() {
        let mut notes = Notes::default();
        (1..4).for_each(|number| notes.set(number, number, 2));
        (1..5).for_each(|number| notes.clear(number));
        assert!((1..4).all(|number| notes.get(number) == Some(0)));
        assert_eq!(notes.get(4), None);
    }
}
