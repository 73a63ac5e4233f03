//! Limits for the listings of all workers: the number of long ones in progress, and the memory that
//! they use until they are sent.

use std::sync::Arc;

use lighty_core::machine::permits::{Permit, Permits};
use lighty_io::process::memory;
use tokio::sync::Notify;

/// Minimum size of a listing, in bytes, for returning its memory to the system immediately.
const MUCH_BYTES: u64 = 1 << 20;

/// Listings may use this fraction (1/n) of the process's memory limit, if there is one.
pub(super) const PART_OF_LIMIT: u64 = 4;

/// Shared by the module's instances.
#[derive(Clone, Debug, Default)]
pub struct Listings(Arc<ListingsState>);

#[derive(Debug, Default)]
struct ListingsState {
    making: Permits,
    /// A listing was made.
    left: Notify,
    held_bytes: Permits,
}

/// Permission to make a long listing.
#[derive(Debug)]
pub(super) struct Turn {
    permit: Option<Permit>,
    shared: Arc<ListingsState>,
}

/// Memory held by a listing, in bytes.
#[derive(Debug)]
pub(super) struct Held(Permit);

impl Listings {
    /// Waits until fewer than `most` are being made.
    pub(super) async fn turn(&self, most: usize) -> Turn {
        loop {
            let left = self.0.left.notified();
            let permit = self.0.making.try_acquire(1, most as u64);
            if permit.is_some() {
                return Turn { permit, shared: Arc::clone(&self.0) };
            }
            left.await;
        }
    }

    /// A listing that holds nothing yet.
    pub(super) fn begin(&self) -> Held {
        Held(self.0.held_bytes.none())
    }
}

impl Held {
    /// Records that the listing holds `bytes` now; `false`, without recording, if the total would
    /// exceed `most`.
    pub(super) fn grow_to(&mut self, bytes: u64, most: u64) -> bool {
        self.0.grow_to(bytes, most)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.permit.take());
        // Not `notify_one`, of which two at once wake one only. A waiter that still finds no room
        // waits again.
        self.shared.left.notify_waiters();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.count() >= MUCH_BYTES {
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
        // A woken waiter that is dropped passes its turn on.
        drop(gives_up);
        assert!(third.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn two_turns_that_end_together_let_two_begin() {
        let listings = Listings::default();
        let mut cx = Context::from_waker(Waker::noop());
        let enter = || Box::pin(listings.turn(2));
        let turns = [(); 2].map(|()| enter().as_mut().poll(&mut cx));
        assert!(turns.iter().all(Poll::is_ready));
        let mut waiting = [enter(), enter()];
        assert!(waiting.iter_mut().all(|turn| turn.as_mut().poll(&mut cx).is_pending()));
        drop(turns);
        let begun = waiting.each_mut().map(|turn| turn.as_mut().poll(&mut cx));
        assert!(begun.iter().all(Poll::is_ready));
    }
}
