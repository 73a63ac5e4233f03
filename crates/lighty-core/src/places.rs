//! Limits the number of concurrent programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of running programs in all workers. Clones share the count.
#[derive(Clone, Default)]
pub struct Places(Arc<AtomicUsize>);

impl Places {
    /// A place for another program, unless `max` are running.
    pub fn take(&self, max: usize) -> Option<Place> {
        let more = |taken: usize| (taken < max).then_some(taken + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Place(Arc::clone(&self.0)))
    }
}

/// Counts a program until dropped.
pub struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n_programs_have_a_place() {
        let places = Places::default();
        let first = places.take(2);
        let second = places.clone().take(2);
        assert!(first.is_some() && second.is_some());
        assert!(places.take(2).is_none());
        drop(first);
        assert!(places.take(2).is_some());
    }
}
