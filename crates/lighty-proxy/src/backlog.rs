//! The backlog: requests that wait because every pool is full or every backend restarts.
//!
//! Bounded in length, and in time by whoever waits. First come first served within a class, and a
//! lower class first. A place that comes free calls the first that waits; it is called only, not
//! given the place, so that nobody holds what he may never come to use.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A bounded queue of waiting requests, shared by all workers.
#[derive(Default)]
pub struct Backlog {
    length_max: u32,
    /// Length of the queue: what the common case looks at without taking the lock.
    waiting: AtomicU32,
    queue: Mutex<Queue>,
    /// Requests that ever waited.
    pub waited: AtomicU64,
    /// Requests that found no room.
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
    called: bool,
    waker: Option<Waker>,
}

/// Who was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Nobody waits.
    Nobody,
    /// A request of the worker that has the free connection.
    Own,
    /// A request of another worker, which must make a connection of its own.
    Other,
}

/// How many of other workers' requests one of the calling worker may overtake, because it can
/// use the very connection that came free.
const OVERTAKEN_MAX: u64 = 64;

impl Queue {
    /// Who is to be called: the first, or the first of `worker` if that is near enough.
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
    /// A backlog for at most `length_max` requests.
    pub fn new(length_max: u32) -> Self {
        Self { length_max, ..Self::default() }
    }

    /// Requests that wait.
    pub fn len(&self) -> u32 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Joins the queue with a request of a worker; `None` when it is full.
    pub fn enter(&self, class: u8, worker: usize) -> Option<Ticket<'_>> {
        let mut queue = self.lock();
        if queue.places.len() >= self.length_max as usize {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let turn = (class, queue.next);
        queue.next += 1;
        queue.places.insert(turn, Waiting { worker, called: false, waker: None });
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.waited.fetch_add(1, Ordering::Relaxed);
        Some(Ticket { backlog: self, turn })
    }

    /// A place came free that anybody can use: calls the first that was not called yet.
    pub fn call(&self) {
        self.call_where(None);
    }

    /// A connection of `worker` came free: calls a request that can use it, unless that would
    /// overtake too many.
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

    /// A backend came back: calls everybody.
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
        // Nothing panics while the lock is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue. Dropping it leaves the queue; a call that was not used goes on to the
/// next.
pub struct Ticket<'a> {
    backlog: &'a Backlog,
    turn: Turn,
}

impl Ticket<'_> {
    /// Waits to be called.
    pub async fn called(&mut self) {
        std::future::poll_fn(|cx| self.poll_called(cx)).await;
    }

    /// Whether nobody is before this one.
    pub fn is_first(&self) -> bool {
        self.backlog.lock().places.keys().next() == Some(&self.turn)
    }

    fn poll_called(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.backlog.lock();
        let Some(waiting) = queue.places.get_mut(&self.turn) else { return Poll::Ready(()) };
        if std::mem::take(&mut waiting.called) {
            return Poll::Ready(());
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let left = self.backlog.lock().places.remove(&self.turn);
        self.backlog.waiting.fetch_sub(1, Ordering::AcqRel);
        if left.is_some_and(|waiting| waiting.called) {
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
        let first = backlog.enter(0, 0).expect("room for one");
        let _second = backlog.enter(0, 0).expect("room for two");
        assert!(backlog.enter(0, 0).is_none());
        assert_eq!(backlog.refused.load(Ordering::Relaxed), 1);
        drop(first);
        assert!(backlog.enter(0, 0).is_some());
    }

    #[test]
    fn first_come_first_served_within_a_class_and_lower_classes_first() {
        let backlog = Backlog::new(8);
        let mut late = backlog.enter(1, 0).expect("room");
        let mut first = backlog.enter(0, 0).expect("room");
        let mut second = backlog.enter(0, 0).expect("room");
        backlog.call();
        assert!(is_called(&mut first) && !is_called(&mut second) && !is_called(&mut late));
        drop(first);
        backlog.call();
        assert!(is_called(&mut second) && !is_called(&mut late));
        drop(second);
        backlog.call();
        assert!(is_called(&mut late));
    }

    #[test]
    fn a_call_that_nobody_used_goes_on_to_the_next() {
        let backlog = Backlog::new(8);
        let first = backlog.enter(0, 0).expect("room");
        let mut second = backlog.enter(0, 0).expect("room");
        backlog.call();
        drop(first);
        assert!(is_called(&mut second));
        assert_eq!(backlog.len(), 1);
    }

    #[test]
    fn two_free_places_call_two() {
        let backlog = Backlog::new(8);
        let mut first = backlog.enter(0, 0).expect("room");
        let mut second = backlog.enter(0, 0).expect("room");
        backlog.call();
        backlog.call();
        assert!(is_called(&mut first) && is_called(&mut second));
        assert!(!is_called(&mut first));
    }

    #[test]
    fn a_free_connection_goes_to_a_request_of_its_worker_within_bounds() {
        let backlog = Backlog::new(1_000);
        let mut other = backlog.enter(0, 1).expect("room");
        let mut own = backlog.enter(0, 0).expect("room");
        assert_eq!(backlog.call_from(0), Call::Own);
        assert!(is_called(&mut own) && !is_called(&mut other));
        drop(own);
        let _crowd: Vec<_> = (0..OVERTAKEN_MAX).filter_map(|_| backlog.enter(0, 1)).collect();
        let mut late = backlog.enter(0, 0).expect("room");
        assert_eq!(backlog.call_from(0), Call::Other);
        assert!(is_called(&mut other) && !is_called(&mut late));
    }

    #[test]
    fn everybody_is_called_when_a_backend_comes_back() {
        let backlog = Backlog::new(8);
        let mut tickets: Vec<_> = (0..5).filter_map(|class| backlog.enter(class, 0)).collect();
        backlog.call_all();
        assert!(tickets.iter_mut().all(is_called));
    }
}
