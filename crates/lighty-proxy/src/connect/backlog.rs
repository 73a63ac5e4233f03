//! The backlog: requests that wait because every pool is full or every backend restarts.
//!
//! The backlog bounds the number of requests; each request bounds its own wait. Lower classes go
//! first, and within a class the order is first come, first served, but for requests of the worker
//! that frees a permit: one that is near the front goes first there. A freed permit wakes a waiting
//! request but is not handed to it, so that no request holds a permit that it never uses.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A bounded queue of waiting requests, shared by all workers.
#[derive(Default)]
pub struct Backlog {
    length_max: AtomicU32,
    /// Length of the queue; lets the common case skip the lock.
    waiting: AtomicU32,
    queue: Mutex<Queue>,
    /// Number of requests that have waited.
    pub waited: AtomicU64,
    /// Number of requests rejected because the backlog was full.
    pub refused: AtomicU64,
}

#[derive(Default)]
struct Queue {
    next: u64,
    places: BTreeMap<Turn, Waiting>,
}

/// Class first, then order of arrival.
type Turn = (u8, u64);

struct Waiting {
    worker: usize,
    /// Some backends are out of the question for this request, so a free one may be no help to it.
    is_restricted: bool,
    called: bool,
    waker: Option<Waker>,
}

/// The request that was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// No request waits.
    Nobody,
    /// A request of the worker that has the free connection.
    Own,
    /// A request of another worker, which must open its own connection.
    Other,
}

/// Limit on the requests of other workers that a request of the calling worker may overtake,
/// because it can use the freed connection itself.
const OVERTAKEN_MAX: u64 = 64;

impl Queue {
    /// Returns the next request to wake: the first, or the first of `worker` if that is near
    /// enough.
    fn whose_turn(&self, worker: Option<usize>) -> Option<Turn> {
        let mut uncalled = self.places.iter().filter(|(_, waiting)| !waiting.called);
        let (first, waiting) = uncalled.next()?;
        if worker.is_none() || Some(waiting.worker) == worker {
            return Some(*first);
        }
        let own = uncalled.find(|(_, waiting)| Some(waiting.worker) == worker);
        let near = own.filter(|((class, at), _)| {
            *class == first.0 && at.saturating_sub(first.1) <= OVERTAKEN_MAX
        });
        Some(near.map_or(*first, |(own, _)| *own))
    }
}

impl Backlog {
    /// Creates a backlog for at most `length_max` requests.
    pub fn new(length_max: u32) -> Self {
        Self { length_max: length_max.into(), ..Self::default() }
    }

    /// Changes the limit; waiting requests stay.
    pub(crate) fn limit(&self, length_max: u32) {
        self.length_max.store(length_max, Ordering::Relaxed);
    }

    /// Returns the number of waiting requests.
    pub fn len(&self) -> u32 {
        self.waiting.load(Ordering::Acquire)
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a request of a worker to the queue; `None` when it is full. A restricted request cannot
    /// use every backend.
    pub fn enter(&self, class: u8, worker: usize, is_restricted: bool) -> Option<Ticket<'_>> {
        let mut queue = self.lock();
        if queue.places.len() >= self.length_max.load(Ordering::Relaxed) as usize {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let turn = (class, queue.next);
        queue.next += 1;
        let waiting = Waiting { worker, is_restricted, called: false, waker: None };
        let other = queue.places.insert(turn, waiting);
        debug_assert!(other.is_none(), "{turn:?} is taken");
        let before = self.waiting.fetch_add(1, Ordering::AcqRel) as usize;
        // A request that leaves is counted for a moment longer.
        debug_assert!(before + 1 >= queue.places.len(), "{before} {}", queue.places.len());
        self.waited.fetch_add(1, Ordering::Relaxed);
        Some(Ticket { backlog: self, turn, has_call: false })
    }

    /// Wakes the first request not yet woken, after a permit was freed that any worker can use.
    pub fn call(&self) {
        self.call_where(None);
    }

    /// Wakes a request after a connection of `worker` was freed: preferably one that can use it,
    /// unless that would overtake too many others.
    pub fn call_from(&self, worker: usize) -> Call {
        self.call_where(Some(worker))
    }

    fn call_where(&self, worker: Option<usize>) -> Call {
        if self.is_empty() {
            return Call::Nobody;
        }
        let mut queue = self.lock();
        let Some(turn) = queue.whose_turn(worker) else { return Call::Nobody };
        let Some(waiting) = queue.places.get_mut(&turn) else { return Call::Nobody };
        waiting.called = true;
        let call = if Some(waiting.worker) == worker { Call::Own } else { Call::Other };
        let waker = waiting.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        call
    }

    /// Wakes all waiting requests after a backend came back.
    pub fn call_all(&self) {
        let wakers: Vec<Waker> = {
            let mut queue = self.lock();
            let all = queue.places.values_mut();
            all.filter_map(|waiting| {
                waiting.called = true;
                waiting.waker.take()
            })
            .collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code panics while it holds the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue. Dropping it leaves the queue and passes an unused wake-up on to the next
/// request.
pub struct Ticket<'a> {
    backlog: &'a Backlog,
    turn: Turn,
    /// The request was woken and has not found a connection since.
    has_call: bool,
}

impl Ticket<'_> {
    /// Waits to be woken.
    pub async fn called(&mut self) {
        std::future::poll_fn(|cx| self.poll_called(cx)).await;
    }

    /// True if this request is first in the queue.
    pub fn is_first(&self) -> bool {
        self.backlog.lock().places.keys().next() == Some(&self.turn)
    }

    /// True if this request may look for a connection without a call: every request before it is
    /// restricted, and none of them was called for a connection that has come free.
    pub fn may_look(&self) -> bool {
        let queue = self.backlog.lock();
        queue.places.range(..self.turn).all(|(_, before)| before.is_restricted && !before.called)
    }

    /// Records that the request has found a connection.
    pub fn succeed(mut self) {
        self.has_call = false;
    }

    /// Passes a call on to the next request, because the free backend is no help to this one.
    pub fn pass_on(&mut self) {
        if !std::mem::take(&mut self.has_call) {
            return;
        }
        let mut queue = self.backlog.lock();
        let behind = (Bound::Excluded(self.turn), Bound::Unbounded);
        let next = queue.places.range_mut(behind).find(|(_, waiting)| !waiting.called);
        if let Some((_, waiting)) = next {
            waiting.called = true;
            let waker = waiting.waker.take();
            drop(queue);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn poll_called(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.backlog.lock();
        debug_assert!(queue.places.contains_key(&self.turn), "{:?} has left", self.turn);
        let Some(waiting) = queue.places.get_mut(&self.turn) else { return Poll::Ready(()) };
        if std::mem::take(&mut waiting.called) {
            self.has_call = true;
            return Poll::Ready(());
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let left = self.backlog.lock().places.remove(&self.turn);
        debug_assert!(left.is_some(), "{:?} left before", self.turn);
        let before = self.backlog.waiting.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "no request was counted");
        if self.has_call || left.is_some_and(|waiting| waiting.called) {
            self.backlog.call();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_called(ticket: &mut Ticket<'_>) -> bool {
        ticket.poll_called(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn bounded_in_length() {
        let backlog = Backlog::new(2);
        let first = backlog.enter(0, 0, false).expect("room for one");
        let _second = backlog.enter(0, 0, false).expect("room for two");
        assert!(backlog.enter(0, 0, false).is_none());
        assert_eq!(backlog.refused.load(Ordering::Relaxed), 1);
        drop(first);
        assert!(backlog.enter(0, 0, false).is_some());
    }

    #[test]
    fn first_come_first_served_within_a_class_and_lower_classes_first() {
        let backlog = Backlog::new(8);
        let mut late = backlog.enter(1, 0, false).expect("room");
        let mut first = backlog.enter(0, 0, false).expect("room");
        let mut second = backlog.enter(0, 0, false).expect("room");
        backlog.call();
        assert!(is_called(&mut first) && !is_called(&mut second) && !is_called(&mut late));
        first.succeed();
        backlog.call();
        assert!(is_called(&mut second) && !is_called(&mut late));
        second.succeed();
        backlog.call();
        assert!(is_called(&mut late));
    }

    #[test]
    fn an_unused_call_goes_on_to_the_next() {
        let backlog = Backlog::new(8);
        let first = backlog.enter(0, 0, false).expect("room");
        let mut second = backlog.enter(0, 0, false).expect("room");
        backlog.call();
        drop(first);
        assert!(is_called(&mut second));
        assert_eq!(backlog.len(), 1);
    }

    #[test]
    fn two_free_places_call_two() {
        let backlog = Backlog::new(8);
        let mut first = backlog.enter(0, 0, false).expect("room");
        let mut second = backlog.enter(0, 0, false).expect("room");
        backlog.call();
        backlog.call();
        assert!(is_called(&mut first) && is_called(&mut second));
        assert!(!is_called(&mut first));
    }

    #[test]
    fn a_free_connection_goes_to_a_request_of_its_worker_within_bounds() {
        let backlog = Backlog::new(1_000);
        let mut other = backlog.enter(0, 1, false).expect("room");
        let mut own = backlog.enter(0, 0, false).expect("room");
        assert_eq!(backlog.call_from(0), Call::Own);
        assert!(is_called(&mut own) && !is_called(&mut other));
        own.succeed();
        let _crowd: Vec<_> =
            (0..OVERTAKEN_MAX).filter_map(|_| backlog.enter(0, 1, false)).collect();
        let mut late = backlog.enter(0, 0, false).expect("room");
        assert_eq!(backlog.call_from(0), Call::Other);
        assert!(is_called(&mut other) && !is_called(&mut late));
    }

    #[test]
    fn everybody_is_called_when_a_backend_comes_back() {
        let backlog = Backlog::new(8);
        let mut tickets: Vec<_> =
            (0..5).filter_map(|class| backlog.enter(class, 0, false)).collect();
        backlog.call_all();
        assert!(tickets.iter_mut().all(is_called));
    }

    #[test]
    fn request_that_cannot_use_the_free_backend_passes_its_call_on() {
        let backlog = Backlog::new(8);
        let mut bound = backlog.enter(0, 0, true).expect("room");
        let mut second = backlog.enter(0, 0, false).expect("room");
        backlog.call();
        assert!(is_called(&mut bound) && !is_called(&mut second));
        bound.pass_on();
        bound.pass_on();
        assert!(is_called(&mut second));
        // The call is used, and the next one begins with the first again.
        second.succeed();
        backlog.call();
        assert!(is_called(&mut bound));
    }

    #[test]
    fn call_that_was_not_used_goes_on_when_its_request_leaves() {
        let backlog = Backlog::new(8);
        let mut first = backlog.enter(0, 0, false).expect("room");
        let mut second = backlog.enter(0, 0, false).expect("room");
        backlog.call();
        assert!(is_called(&mut first));
        drop(first);
        assert!(is_called(&mut second));
        second.succeed();
        assert_eq!(backlog.call_from(0), Call::Nobody);
    }

    #[test]
    fn requests_behind_restricted_ones_may_look_unless_these_are_called() {
        let backlog = Backlog::new(8);
        let mut bound = backlog.enter(0, 0, true).expect("room");
        let free = backlog.enter(0, 0, false).expect("room");
        let last = backlog.enter(0, 0, false).expect("room");
        assert!(bound.may_look() && free.may_look() && !last.may_look());
        backlog.call();
        assert!(!free.may_look());
        assert!(is_called(&mut bound));
        assert!(free.may_look());
    }
}
