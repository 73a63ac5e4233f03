//! Limits of the listings of all workers: how many long ones are made at a time, and how much
//! memory they hold until they are sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lighty_io::memory;
use tokio::sync::Notify;

/// A listing that held this many bytes frees memory that is worth returning to the system at once.
const MUCH_BYTES: u64 = 1 << 20;

/// Divisor of the process's memory limit, if there is one, that listings may use.
pub(super) const PART_OF_LIMIT: u64 = 4;

/// Shared by the module's instances.
#[derive(Clone, Debug, Default)]
pub struct Listings(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    making: AtomicUsize,
    left: Notify,
    held: AtomicU64,
}

/// Permission to make a long listing.
#[derive(Debug)]
pub(super) struct Turn(Arc<Shared>);

/// Memory held by a listing, in bytes.
#[derive(Debug)]
pub(super) struct Held {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Listings {
    /// Waits until fewer than `most` are being made.
    pub(super) async fn turn(&self, most: usize) -> Turn {
        let enter = |making: usize| (making < most).then_some(making + 1);
        loop {
            let left = self.0.left.notified();
            let entered = self.0.making.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter);
            if entered.is_ok() {
                return Turn(Arc::clone(&self.0));
            }
            left.await;
        }
    }

    /// A listing that holds nothing yet.
    pub(super) fn begin(&self) -> Held {
        Held { shared: Arc::clone(&self.0), bytes: 0 }
    }
}

impl Held {
    /// Records that the listing holds `bytes` now; `false`, without recording, if the total would
    /// exceed `most`.
    pub(super) fn grow_to(&mut self, bytes: u64, most: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let grown = |held: u64| held.checked_add(more).filter(|sum| *sum <= most);
        let is_room =
            self.shared.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok();
        if is_room {
            self.bytes += more;
        }
        is_room
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.making.fetch_sub(1, Ordering::Relaxed);
        self.0.left.notify_one();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.held.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.bytes >= MUCH_BYTES {
            memory::note_freed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn so_many_are_made_at_once_and_the_next_waits() {
        let listings = Listings::default();
        let mut cx = Context::from_waker(Waker::noop());
        let enter = || Box::pin(listings.turn(2));
        let mut turns = Vec::new();
        for _ in 0..2 {
            let Poll::Ready(turn) = enter().as_mut().poll(&mut cx) else { panic!("room") };
            turns.push(turn);
        }
        let (mut third, mut gives_up) = (enter(), enter());
        assert!(gives_up.as_mut().poll(&mut cx).is_pending());
        assert!(third.as_mut().poll(&mut cx).is_pending());
        turns.pop();
        // A woken waiter that is gone passes its turn on.
        drop(gives_up);
        assert!(third.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn what_is_held_is_counted_and_given_back() {
        let listings = Listings::default();
        let (mut one, mut other) = (listings.begin(), listings.begin());
        assert!(one.grow_to(60, 100) && other.grow_to(40, 100));
        assert!(!one.grow_to(61, 100) && one.grow_to(60, 100));
        drop(other);
        assert!(one.grow_to(100, 100) && !one.grow_to(101, 100));
        drop(one);
        assert_eq!(listings.0.held.load(Ordering::Relaxed), 0);
    }
}
