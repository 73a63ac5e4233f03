//! The table of entries: look-ups without allocation, eviction by the clock algorithm.

use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::entry::CacheEntry;
use super::watch::Hold;
use crate::file::Follow;

/// A look-up: the path, its root and the open mode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheLookup<'a> {
    pub(super) root: u64,
    pub(super) follow: Follow,
    pub(super) noatime: bool,
    pub(super) rel: &'a [u8],
}

/// Two words and the path: a derived hash would double the cost with field separators.
impl Hash for CacheLookup<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let how = (self.follow as u64) << 1 | u64::from(self.noatime);
        state.write_u64(self.root ^ (how << 56));
        state.write(self.rel);
    }
}

/// A key that owns its path.
#[derive(Clone)]
pub(super) struct CacheKey(Rc<KeyParts>);

struct KeyParts {
    root: u64,
    follow: Follow,
    noatime: bool,
    rel: Box<[u8]>,
}

impl CacheKey {
    pub(super) fn new(lookup: CacheLookup<'_>) -> CacheKey {
        CacheKey(Rc::new(KeyParts {
            root: lookup.root,
            follow: lookup.follow,
            noatime: lookup.noatime,
            rel: lookup.rel.into(),
        }))
    }
}

/// Common to keys and look-ups, so that a map of keys can be queried with a look-up.
pub(super) trait AsCacheLookup {
    fn lookup(&self) -> CacheLookup<'_>;
}

impl AsCacheLookup for CacheLookup<'_> {
    fn lookup(&self) -> CacheLookup<'_> {
        *self
    }
}

impl AsCacheLookup for CacheKey {
    fn lookup(&self) -> CacheLookup<'_> {
        let parts = &*self.0;
        let (follow, noatime) = (parts.follow, parts.noatime);
        CacheLookup { root: parts.root, follow, noatime, rel: &parts.rel }
    }
}

impl<'a> Borrow<dyn AsCacheLookup + 'a> for CacheKey {
    fn borrow(&self) -> &(dyn AsCacheLookup + 'a) {
        self
    }
}

impl Hash for dyn AsCacheLookup + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lookup().hash(state);
    }
}

impl PartialEq for dyn AsCacheLookup + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.lookup() == other.lookup()
    }
}

impl Eq for dyn AsCacheLookup + '_ {}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lookup().hash(state);
    }
}

impl PartialEq for CacheKey {
    fn eq(&self, other: &CacheKey) -> bool {
        self.lookup() == other.lookup()
    }
}

impl Eq for CacheKey {}

/// An entry in the table.
pub(super) struct CacheSlot {
    pub(super) key: CacheKey,
    pub(super) entry: Rc<CacheEntry>,
    /// Trusted until then, unless an event comes first.
    pub(super) valid_until_ms: Cell<u64>,
    /// For watched entries: the root's generation at load.
    pub(super) root_generation: u64,
    /// The watched directories, whose events report changes.
    pub(super) watched: Option<Hold>,
    pub(super) used_ms: Cell<u64>,
    /// Used since the clock hand last passed.
    pub(super) referenced: Cell<bool>,
}

/// Entries by key, up to a limit.
pub(super) struct Table {
    map: HashMap<CacheKey, usize, RandomState>,
    slots: Vec<Option<CacheSlot>>,
    free: Vec<usize>,
    hand: usize,
    entries_max: usize,
}

impl Table {
    pub(super) fn new(entries_max: usize) -> Table {
        Table {
            map: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            entries_max: entries_max.max(1),
        }
    }

    /// Sets the limit. Returns the entries beyond it, which are those not used recently.
    pub(super) fn limit(&mut self, entries_max: usize) -> Vec<CacheSlot> {
        self.entries_max = entries_max.max(1);
        let surplus = self.len().saturating_sub(self.entries_max);
        (0..surplus).filter_map(|_| self.evict()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn get(&self, lookup: &CacheLookup<'_>) -> Option<&CacheSlot> {
        let at = *self.map.get(lookup as &dyn AsCacheLookup)?;
        debug_assert!(self.slots[at].is_some(), "slot {at} is free");
        self.slots[at].as_ref()
    }

    pub(super) fn remove(&mut self, lookup: &CacheLookup<'_>) -> Option<CacheSlot> {
        let at = self.map.remove(lookup as &dyn AsCacheLookup)?;
        debug_assert!(self.slots[at].is_some(), "slot {at} is free");
        self.free.push(at);
        self.slots[at].take()
    }

    /// Inserts an entry in place of one with the same key or, at the limit, of one not used
    /// recently. Returns the replaced entry.
    pub(super) fn insert(&mut self, slot: CacheSlot) -> Option<CacheSlot> {
        let gone = match self.remove(&slot.key.lookup()) {
            Some(old) => Some(old),
            None if self.len() >= self.entries_max => self.evict(),
            None => None,
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        debug_assert!(self.slots[at].is_none(), "slot {at} is in use");
        self.map.insert(slot.key.clone(), at);
        self.slots[at] = Some(slot);
        debug_assert!(self.len() <= self.entries_max, "{} of {}", self.len(), self.entries_max);
        debug_assert_eq!(self.len() + self.free.len(), self.slots.len(), "{}", self.free.len());
        gone
    }

    /// Removes the first entry not used since the hand last passed.
    pub(super) fn evict(&mut self) -> Option<CacheSlot> {
        // The first round may only clear marks; the second finds an entry.
        for _ in 0..2 * self.slots.len() {
            let at = self.step();
            let Some(slot) = &self.slots[at] else { continue };
            if !slot.referenced.replace(false) {
                let key = slot.key.clone();
                return self.remove(&key.lookup());
            }
        }
        debug_assert_eq!(self.len(), 0, "two rounds find an entry");
        None
    }

    /// Removes entries not used since `before_ms`, inspecting at most `steps_max`.
    pub(super) fn sweep(&mut self, before_ms: u64, steps_max: usize) -> Vec<CacheSlot> {
        let mut gone = Vec::new();
        for _ in 0..steps_max.min(self.slots.len()) {
            let at = self.step();
            let Some(slot) = &self.slots[at] else { continue };
            if slot.used_ms.get() < before_ms {
                let key = slot.key.clone();
                gone.extend(self.remove(&key.lookup()));
            }
        }
        gone
    }

    /// Removes all entries that match `pick`. Inspects every entry: for rare events.
    pub(super) fn remove_where(&mut self, pick: impl Fn(&CacheSlot) -> bool) -> Vec<CacheSlot> {
        let picked: Vec<CacheKey> =
            self.slots.iter().flatten().filter(|slot| pick(slot)).map(|s| s.key.clone()).collect();
        picked.iter().filter_map(|key| self.remove(&key.lookup())).collect()
    }

    /// Visits all entries.
    pub(super) fn each(&self, show: impl FnMut(&CacheSlot)) {
        self.slots.iter().flatten().for_each(show);
    }

    /// Removes all entries of one path, whatever their open mode.
    pub(super) fn remove_variants(&mut self, root: u64, path: &[u8]) -> Vec<CacheSlot> {
        let slashed = [path, b"/"].concat();
        let mut gone = Vec::new();
        for follow in [Follow::All, Follow::Beneath, Follow::None] {
            for noatime in [false, true] {
                for rel in [path, &slashed] {
                    gone.extend(self.remove(&CacheLookup { root, follow, noatime, rel }));
                }
            }
        }
        gone
    }

    fn step(&mut self) -> usize {
        let at = self.hand % self.slots.len();
        self.hand = at + 1;
        at
    }
}
