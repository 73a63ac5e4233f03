//! Eviction by S3-FIFO: a small queue for objects that are new, a main queue for objects that
//! were used again, and the hashes of objects that left the small queue unused.
//!
//! A hit only raises a counter in the object. Yang and others, "FIFO queues are all you need for
//! cache eviction", SOSP 2023.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;

use crate::object::Object;

/// The small queue's share of all bytes is one part in so many.
const SMALL_SHARE: u64 = 10;

/// Places of removed objects that a queue may have, beside one for every four that are present.
const GAPS_MAX: usize = 64;

/// Bytes of a gap: the object itself, without its contents, stays until then.
const GAP_BYTES: usize = size_of::<Object>() + 32 + size_of::<Place>();

/// Hashes of objects that left, while the main queue has fewer objects.
const GHOSTS_MIN: usize = 1_024;

/// Share of the budget that ghosts may take: one part in so many.
const GHOSTS_SHARE: u64 = 64;

/// Bytes of a ghost, in the order and in the set, when these have just grown.
const GHOST_BYTES: u64 = 60;

/// The queues of a store.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    small: Queue,
    main: Queue,
    ghosts: Ghosts,
    /// Ghosts that the budget has room for.
    ghosts_max: usize,
}

/// Objects in the order of their arrival. A place without its object is a gap.
#[derive(Debug, Default)]
struct Queue {
    places: VecDeque<Place>,
    /// Bytes of the objects that are present.
    bytes: u64,
    /// Number of objects that are present.
    count: usize,
}

#[derive(Debug)]
struct Place {
    object: Weak<Object>,
    bytes: u64,
}

/// Hashes of keys, as many as the main queue has objects.
#[derive(Debug, Default)]
struct Ghosts {
    order: VecDeque<u64>,
    known: HashSet<u64, RandomState>,
}

impl Queues {
    /// Sets the budget of the store.
    pub(crate) fn limit(&mut self, memory: u64) {
        let most = (memory / GHOSTS_SHARE / GHOST_BYTES).min(u64::from(u32::MAX));
        self.ghosts_max = most as usize;
    }

    /// Bytes of all objects.
    pub(crate) fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    /// Bytes of gaps and ghosts.
    pub(crate) fn beside_bytes(&self) -> u64 {
        let gaps = self.small.gaps() + self.main.gaps();
        (gaps * GAP_BYTES) as u64 + self.ghosts.bytes()
    }

    /// Number of all objects.
    pub(crate) fn count(&self) -> usize {
        self.small.count + self.main.count
    }

    /// Adds an object; `hash` is that of its key.
    pub(crate) fn add(&mut self, object: &Arc<Object>, hash: u64) {
        let was_here = self.ghosts.take(hash);
        object.set_in_main(was_here);
        let queue = if was_here { &mut self.main } else { &mut self.small };
        queue.push(object);
    }

    /// Notes that an object is removed.
    pub(crate) fn forget(&mut self, object: &Object) {
        let queue = if object.is_in_main() { &mut self.main } else { &mut self.small };
        queue.lose(object.bytes());
        queue.close_gaps();
    }

    /// The next object to leave; `None` if there is none. `hash` returns that of an object's key.
    pub(crate) fn evict(&mut self, hash: impl Fn(&Object) -> u64) -> Option<Arc<Object>> {
        loop {
            let is_small_full = self.small.bytes > self.bytes() / SMALL_SHARE;
            if self.main.count == 0 || is_small_full && self.small.count > 0 {
                let object = self.small.pop()?;
                if object.uses() > 1 {
                    object.set_uses(0);
                    object.set_in_main(true);
                    self.main.push(&object);
                    continue;
                }
                let most = self.main.count.max(GHOSTS_MIN).min(self.ghosts_max);
                self.ghosts.add(hash(&object), most);
                return Some(object);
            }
            let object = self.main.pop()?;
            match object.uses() {
                0 => return Some(object),
                uses => {
                    object.set_uses(uses - 1);
                    self.main.push(&object);
                }
            }
        }
    }
}

impl Queue {
    fn push(&mut self, object: &Arc<Object>) {
        let bytes = object.bytes();
        self.bytes += bytes;
        self.count += 1;
        self.places.push_back(Place { object: Arc::downgrade(object), bytes });
    }

    /// The first object that is present.
    fn pop(&mut self) -> Option<Arc<Object>> {
        while let Some(place) = self.places.pop_front() {
            let present = place.object.upgrade().filter(|object| !object.is_removed());
            if let Some(object) = present {
                self.lose(place.bytes);
                self.shrink();
                return Some(object);
            }
        }
        None
    }

    /// Number of places of removed objects.
    fn gaps(&self) -> usize {
        self.places.len().saturating_sub(self.count)
    }

    /// Gives the memory back that it needed for many more places.
    fn shrink(&mut self) {
        if self.places.capacity() > 4 * self.places.len() + GAPS_MAX {
            self.places.shrink_to(2 * self.places.len());
        }
    }

    fn lose(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.count = self.count.saturating_sub(1);
    }

    /// Removes the gaps once they are too many.
    fn close_gaps(&mut self) {
        if self.gaps() > self.count / 4 + GAPS_MAX {
            let is_present = |object: Arc<Object>| !object.is_removed();
            self.places.retain(|place| place.object.upgrade().is_some_and(is_present));
            self.shrink();
        }
    }
}

impl Ghosts {
    fn bytes(&self) -> u64 {
        self.order.len() as u64 * GHOST_BYTES
    }

    fn add(&mut self, hash: u64, most: usize) {
        if self.known.insert(hash) {
            self.order.push_back(hash);
        }
        while self.order.len() > most {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
        if self.order.capacity() > 4 * self.order.len() + GHOSTS_MIN {
            self.order.shrink_to(2 * self.order.len());
            self.known.shrink_to(2 * self.known.len());
        }
    }

    /// Returns true if the hash is known, and forgets it. Its place in the order stays.
    fn take(&mut self, hash: u64) -> bool {
        self.known.remove(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyWriter;
    use crate::object::{Content, StoredHead};

    fn object(number: u32) -> Arc<Object> {
        let key = KeyWriter::default().part(&number.to_be_bytes()).finish();
        let mut content = Content::default();
        content.push(vec![b'x'; 1000].into());
        Arc::new(Object::new((key, Box::default()), StoredHead::empty(), content, 0))
    }

    fn hash(object: &Object) -> u64 {
        let number = object.key.parts().next().and_then(|part| part.try_into().ok());
        u64::from(number.map_or(0, u32::from_be_bytes))
    }

    /// Adds objects, evicts while there are more than `most`, and counts the hits of each request.
    struct Bed {
        queues: Queues,
        present: std::collections::HashMap<u32, Arc<Object>>,
        most: usize,
    }

    impl Bed {
        fn ask(&mut self, number: u32) -> bool {
            if let Some(known) = self.present.get(&number) {
                known.touch();
                return true;
            }
            let new = object(number);
            self.queues.add(&new, u64::from(number));
            self.present.insert(number, new);
            while self.queues.count() > self.most {
                let gone = self.queues.evict(hash).expect("an object");
                assert!(gone.remove());
                self.present.remove(&(hash(&gone) as u32)).expect("present");
            }
            false
        }
    }

    #[test]
    fn a_scan_leaves_the_objects_in_use() {
        let mut bed = Bed { queues: queues(), present: Default::default(), most: 100 };
        for _ in 0..5 {
            (0..50).for_each(|number| _ = bed.ask(number));
        }
        (1_000..2_000).for_each(|number| assert!(!bed.ask(number)));
        let left = (0..50).filter(|number| bed.ask(*number)).count();
        assert!(left >= 49, "{left} of 50");
    }

    #[test]
    fn an_object_that_comes_back_soon_goes_to_the_main_queue() {
        let mut bed = Bed { queues: queues(), present: Default::default(), most: 10 };
        (0..30).for_each(|number| _ = bed.ask(number));
        let gone = (0..30).rev().find(|number| !bed.present.contains_key(number)).expect("one");
        assert!(!bed.ask(gone));
        assert!(bed.present[&gone].is_in_main());
    }

    fn queues() -> Queues {
        let mut queues = Queues::default();
        queues.limit(1 << 20);
        queues
    }

    #[test]
    fn ghosts_stay_within_their_share() {
        for memory in [0, 1 << 20, 16 << 20] {
            let mut queues = Queues::default();
            queues.limit(memory);
            // As many as a store of so many objects would keep.
            for number in 0..100_000 {
                let most = 50_000.min(queues.ghosts_max);
                queues.ghosts.add(number, most);
            }
            let bytes = queues.beside_bytes();
            assert!(bytes <= memory / GHOSTS_SHARE + 256, "{memory}: {bytes}");
            assert!(bytes >= memory / GHOSTS_SHARE / 2, "{memory}: {bytes}");
        }
    }

    #[test]
    fn removed_objects_count_no_longer_and_leave_no_gaps() {
        let mut queues = queues();
        for number in 0..10_000 {
            let one = object(number);
            queues.add(&one, u64::from(number));
            assert!(one.remove());
            queues.forget(&one);
        }
        assert_eq!((queues.bytes(), queues.count()), (0, 0));
        assert!(queues.small.places.len() <= GAPS_MAX + 1, "{}", queues.small.places.len());
        assert!(queues.beside_bytes() <= ((GAPS_MAX + 1) * GAP_BYTES) as u64);
        assert!(queues.evict(hash).is_none());
    }
}
