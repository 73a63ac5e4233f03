//! Memory limit of all encoders of a worker: `deflate.max-memory`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes currently lent to encoders. Shared, because an encoder may run on another thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget(Arc<AtomicU64>);

/// Bytes lent to one encoder; returned on drop.
#[derive(Debug)]
pub(super) struct Lease {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    /// Lends bytes, unless the total would exceed `most`.
    pub(super) fn lend(&self, bytes: u64, most: u64) -> Option<Lease> {
        let grown = |lent: u64| lent.checked_add(bytes).filter(|sum| *sum <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).ok()?;
        Some(Lease { budget: self.clone(), bytes })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n_fit_and_one_more_does_not() {
        let budget = Budget::default();
        let mut leases: Vec<_> = (0..3).map(|_| budget.lend(100, 300)).collect();
        assert!(leases.iter().all(Option::is_some));
        assert!(budget.lend(1, 300).is_none());
        leases.pop();
        assert!(budget.lend(101, 300).is_none());
        assert!(budget.lend(100, 300).is_some());
        drop(leases);
        assert!(budget.lend(300, 300).is_some() && budget.lend(u64::MAX, u64::MAX).is_some());
    }
}
