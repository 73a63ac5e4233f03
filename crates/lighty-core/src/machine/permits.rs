//! Counting permits for limited resources: programs, bytes of memory, directory listings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Total of a resource held by all workers. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Permits(Arc<AtomicU64>);

/// A share of the total, counted until dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Permits,
    count: u64,
}

impl Permits {
    /// Takes `count`, unless the total would exceed `max`.
    pub fn try_acquire(&self, count: u64, max: u64) -> Option<Permit> {
        let mut permit = self.none();
        permit.grow_to(count, max).then_some(permit)
    }

    /// An empty permit, to be grown later.
    pub fn none(&self) -> Permit {
        Permit { permits: self.clone(), count: 0 }
    }

    /// The total of all permits.
    pub fn held(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Permit {
    /// The permit's share of the total.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Grows to `count`. Returns `false` and changes nothing if the total would exceed `max`. A
    /// permit never shrinks.
    pub fn grow_to(&mut self, count: u64, max: u64) -> bool {
        let more = count.saturating_sub(self.count);
        let grown = |held: u64| held.checked_add(more).filter(|sum| *sum <= max);
        let total = &self.permits.0;
        let is_room = total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok();
        if is_room {
            self.count += more;
        }
        is_room
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let before = self.permits.0.fetch_sub(self.count, Ordering::Relaxed);
        debug_assert!(before >= self.count, "{} of {before}", self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n_fit_and_one_more_does_not() {
        let permits = Permits::default();
        let mut held: Vec<_> = (0..3).map(|_| permits.clone().try_acquire(100, 300)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(permits.try_acquire(1, 300).is_none());
        held.pop();
        assert!(permits.try_acquire(101, 300).is_none());
        assert!(permits.try_acquire(100, 300).is_some());
        drop(held);
        assert!(permits.try_acquire(300, 300).is_some());
        assert!(permits.try_acquire(u64::MAX, u64::MAX).is_some());
        assert_eq!(permits.held(), 0);
    }

    #[test]
    fn a_permit_grows_while_there_is_room() {
        let permits = Permits::default();
        let (mut one, mut other) = (permits.none(), permits.none());
        assert!(one.grow_to(60, 100) && other.grow_to(40, 100));
        assert!(!one.grow_to(61, 100) && one.grow_to(60, 100));
        drop(other);
        assert!(one.grow_to(100, 100) && !one.grow_to(101, 100));
        assert_eq!((one.count(), permits.held()), (100, 100));
        drop(one);
        assert_eq!(permits.held(), 0);
    }
}
