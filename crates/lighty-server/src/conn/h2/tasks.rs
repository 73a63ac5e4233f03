//! The streams of a connection that have to wait: a future for each, polled by the connection's own
//! task and only when it was woken.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Future of a waiting stream.
type Task<'c, T> = Pin<Box<dyn Future<Output = T> + 'c>>;

/// Futures by the slots of their streams.
pub(super) struct Tasks<'c, T> {
    tasks: Vec<Option<Task<'c, T>>>,
    /// By slot; made once for each.
    wakers: Vec<Waker>,
    woken: Arc<Woken>,
    /// Slots still to be polled in this turn.
    turn: Vec<u32>,
    len: usize,
}

/// Slots that were woken, and the waker of the connection's task.
#[derive(Default)]
struct Woken(Mutex<WokenState>);

#[derive(Default)]
struct WokenState {
    slots: Vec<u32>,
    is_woken: Vec<bool>,
    poller: Option<Waker>,
}

struct SlotWaker {
    slot: u32,
    woken: Arc<Woken>,
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, WokenState> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, slot: u32) -> Option<Waker> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_woken[slot as usize], true) {
            return None;
        }
        state.slots.push(slot);
        debug_assert!(state.slots.len() <= state.is_woken.len(), "a slot is woken once");
        state.poller.clone()
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(poller) = self.woken.push(self.slot) {
            poller.wake();
        }
    }
}

impl<'c, T> Tasks<'c, T> {
    pub(super) fn new() -> Self {
        Self {
            tasks: Vec::new(),
            wakers: Vec::new(),
            woken: Arc::default(),
            turn: Vec::new(),
            len: 0,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Registers `poller`, which is woken with each task from now on.
    pub(super) fn wake_with(&self, poller: &Waker) {
        let known = &mut self.woken.lock().poller;
        if !known.as_ref().is_some_and(|known| known.will_wake(poller)) {
            *known = Some(poller.clone());
        }
    }

    /// Returns the waker of a slot's task.
    pub(super) fn waker(&mut self, slot: usize) -> Waker {
        while self.wakers.len() <= slot {
            let waker =
                SlotWaker { slot: self.wakers.len() as u32, woken: Arc::clone(&self.woken) };
            self.wakers.push(Arc::new(waker).into());
            self.woken.lock().is_woken.push(false);
            self.tasks.push(None);
        }
        debug_assert_eq!(self.tasks.len(), self.wakers.len(), "a waker for each slot");
        self.wakers[slot].clone()
    }

    /// Adds a task, which is polled in the next turn.
    pub(super) fn spawn(&mut self, slot: usize, task: impl Future<Output = T> + 'c) {
        self.waker(slot);
        debug_assert!(self.tasks[slot].is_none(), "a slot has one task");
        self.tasks[slot] = Some(Box::pin(task));
        self.len += 1;
        // The connection's task is the one that runs.
        let _ = self.woken.push(slot as u32);
    }

    /// Takes the woken tasks, for [`Tasks::poll_next`]. Returns false if there are none.
    pub(super) fn begin_turn(&mut self) -> bool {
        debug_assert!(self.turn.is_empty(), "{:?} are left of the last turn", self.turn);
        let mut state = self.woken.lock();
        std::mem::swap(&mut state.slots, &mut self.turn);
        for &slot in &self.turn {
            state.is_woken[slot as usize] = false;
        }
        !self.turn.is_empty()
    }

    /// Returns the slots still to be polled in this turn.
    pub(super) fn woken_slots(&self) -> &[u32] {
        &self.turn
    }

    /// Polls the woken tasks up to the first that ends. Returns `None` when the turn is over.
    pub(super) fn poll_next(&mut self) -> Option<T> {
        while let Some(slot) = self.turn.pop() {
            let slot = slot as usize;
            let Some(task) = &mut self.tasks[slot] else { continue };
            let mut cx = Context::from_waker(&self.wakers[slot]);
            if let Poll::Ready(done) = task.as_mut().poll(&mut cx) {
                self.tasks[slot] = None;
                self.len -= 1;
                return Some(done);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use super::*;

    #[derive(Default)]
    struct Poller(std::sync::atomic::AtomicU32);

    impl Wake for Poller {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn turn<T>(tasks: &mut Tasks<'_, T>) -> Vec<T> {
        tasks.begin_turn();
        std::iter::from_fn(|| tasks.poll_next()).collect()
    }

    #[test]
    fn only_the_woken_are_polled_and_once_each_turn() {
        let polls = [Cell::new(0), Cell::new(0)];
        let waker: Rc<RefCell<Option<Waker>>> = Rc::default();
        let mut tasks = Tasks::new();
        for (slot, polls) in polls.iter().enumerate() {
            let waker = Rc::clone(&waker);
            tasks.spawn(slot * 3, async move {
                std::future::poll_fn(|cx| {
                    polls.set(polls.get() + 1);
                    if slot == 0 {
                        cx.waker().wake_by_ref();
                    } else {
                        *waker.borrow_mut() = Some(cx.waker().clone());
                    }
                    if polls.get() == 3 { Poll::Ready(slot) } else { Poll::Pending }
                })
                .await
            });
        }
        let poller = Arc::new(Poller::default());
        tasks.wake_with(&Waker::from(Arc::clone(&poller)));
        let heard = || poller.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((turn(&mut tasks), heard()), (vec![], 1), "one woke itself");
        assert_eq!((polls[0].get(), polls[1].get()), (1, 1));
        assert_eq!((turn(&mut tasks), turn(&mut tasks)), (vec![], vec![0]));
        assert_eq!((polls[0].get(), polls[1].get()), (3, 1));
        assert!(turn(&mut tasks).is_empty() && !tasks.is_empty());
        for _ in 0..2 {
            let waker = waker.borrow().clone().expect("a waker");
            waker.wake_by_ref();
            waker.wake_by_ref();
            assert!(heard() >= 3);
            turn(&mut tasks);
        }
        assert!(tasks.is_empty());
        waker.borrow().clone().expect("a waker").wake();
        assert!(turn(&mut tasks).is_empty(), "late, and for nobody");
    }
}
