//! Slots for checks that wait for other machines or processes. Clients take turns, as for hashes.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::client_queues::{ClientQueues, QueueClient, network};

/// A number of slots. Clones share them.
#[derive(Clone)]
pub(super) struct Slots(Arc<Mutex<SlotCounts>>);

struct SlotCounts {
    free: usize,
    queues: ClientQueues<oneshot::Sender<Slot>>,
}

/// The right to one check at a time. Dropping it passes it on.
pub(super) struct Slot(Slots);

/// A place in a queue. Dropping it gives it up.
struct QueuedCheck<'a> {
    slots: &'a Slots,
    client: QueueClient,
    id: u64,
}

impl Slots {
    /// Creates this many.
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(SlotCounts { free: count, queues: ClientQueues::default() })))
    }

    /// Waits for a slot. `None` if `most` are waiting and no client has at least two places more
    /// than this one, or if the place was given to another client.
    pub(super) async fn enter(&self, most: usize, client: Option<IpAddr>) -> Option<Slot> {
        let client = client.map(network);
        let (give, take) = oneshot::channel();
        let id = {
            let mut counts = self.lock();
            if counts.free > 0 {
                counts.free -= 1;
                return Some(Slot(self.clone()));
            }
            counts.queues.enter(most, client, give)?
        };
        let _place = QueuedCheck { slots: self, client, id };
        take.await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, SlotCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = {
            let mut counts = self.0.lock();
            let next = counts.queues.take_next();
            if next.is_none() {
                counts.free += 1;
            }
            next
        };
        if let Some(next) = next {
            // A slot that arrives nowhere is dropped, and passed on.
            let _ = next.send(Slot(self.0.clone()));
        }
    }
}

impl Drop for QueuedCheck<'_> {
    fn drop(&mut self) {
        self.slots.lock().queues.forget(self.client, self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn slots_are_passed_on_in_turns() {
        let slots = Slots::new(1);
        let first = slots.enter(9, address(1)).await.expect("free");
        let mut one = pin!(slots.enter(9, address(1)));
        let mut two = pin!(slots.enter(9, address(1)));
        let mut other = pin!(slots.enter(9, address(2)));
        for waiting in [&mut one, &mut two, &mut other] {
            assert!(poll(waiting.as_mut()).is_pending());
        }
        drop(first);
        let Poll::Ready(Some(slot)) = poll(one.as_mut()) else { panic!("its turn") };
        drop(slot);
        assert!(poll(two.as_mut()).is_pending(), "the other client is next");
        let Poll::Ready(Some(slot)) = poll(other.as_mut()) else { panic!("its turn") };
        drop(slot);
        assert!(poll(two.as_mut()).is_ready());
        assert_eq!(slots.lock().free, 1);
    }

    #[tokio::test]
    async fn slot_of_a_client_that_gave_up_is_passed_on() {
        let slots = Slots::new(1);
        let first = slots.enter(9, address(1)).await.expect("free");
        let mut gone = Box::pin(slots.enter(9, address(1)));
        let mut late = Box::pin(slots.enter(9, address(1)));
        let mut other = pin!(slots.enter(9, address(1)));
        assert!(poll(gone.as_mut()).is_pending() && poll(late.as_mut()).is_pending());
        assert!(poll(other.as_mut()).is_pending());
        drop(gone);
        drop(first);
        // It has the slot and does not know it yet.
        drop(late);
        assert!(poll(other.as_mut()).is_ready());
        assert!(slots.lock().queues.is_empty() && slots.lock().free == 1);
    }

    #[tokio::test]
    async fn longest_queue_makes_room_and_others_are_refused() {
        let slots = Slots::new(1);
        let _first = slots.enter(2, address(1)).await.expect("free");
        let mut one = pin!(slots.enter(2, address(1)));
        let mut two = pin!(slots.enter(2, address(1)));
        assert!(poll(one.as_mut()).is_pending() && poll(two.as_mut()).is_pending());
        assert!(matches!(poll(pin!(slots.enter(2, address(1)))), Poll::Ready(None)));
        assert!(poll(pin!(slots.enter(2, address(2)))).is_pending());
        assert!(matches!(poll(two.as_mut()), Poll::Ready(None)), "evicted");
    }
}
