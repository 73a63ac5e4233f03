//! Time limits without timers.
//!
//! A timer for each request would be armed and disarmed hundreds of thousands of times a second.
//! Instead, each connection records the start of its wait, and all are checked in turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Interval of the checks.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Time limit of one connection.
#[derive(Default)]
pub(super) struct ConnectionWatch {
    /// Start of the wait; `None`: it is not waiting.
    since_us: Cell<Option<u64>>,
    is_late: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl ConnectionWatch {
    /// Starts a wait.
    pub(super) fn begin(&self, since_us: u64) {
        self.since_us.set(Some(since_us));
        self.is_late.set(false);
    }

    /// Ends the wait.
    pub(super) fn end(&self) {
        self.since_us.set(None);
    }

    /// Ready when the wait has exceeded its limit.
    pub(super) fn poll_late(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_late.get() {
            return Poll::Ready(());
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|one| one.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The output of a future; `None` if it exceeds the limit.
    pub(super) async fn within<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let done = std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_late(cx).map(|()| None),
        });
        let done = done.await;
        self.end();
        done
    }
}

/// The time limits of a thread's connections.
#[derive(Clone, Default)]
pub(super) struct Watches(Rc<RefCell<Vec<Rc<ConnectionWatch>>>>);

impl Watches {
    pub(super) fn add(&self) -> Rc<ConnectionWatch> {
        let watch = Rc::new(ConnectionWatch::default());
        self.0.borrow_mut().push(Rc::clone(&watch));
        watch
    }

    /// Wakes connections that have waited longer than `limit_us`.
    pub(super) fn look(&self, now_us: u64, limit_us: u64) {
        for watch in &*self.0.borrow() {
            let is_over = |since_us| now_us.saturating_sub(since_us) > limit_us;
            if watch.since_us.get().is_some_and(is_over) {
                watch.is_late.set(true);
                if let Some(waker) = watch.waker.borrow_mut().take() {
                    waker.wake();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wait_beyond_its_limit_is_ended() {
        let watches = Watches::default();
        let watch = watches.add();
        watch.begin(1_000);
        let never = watch.within(std::future::pending::<()>());
        let looking = async {
            watches.look(1_500, 500);
            tokio::task::yield_now().await;
            assert!(!watch.is_late.get(), "in time still");
            watches.look(1_501, 500);
        };
        let (done, ()) = tokio::join!(never, looking);
        assert_eq!(done, None);
        watch.begin(9_000);
        assert_eq!(watch.within(std::future::ready(7)).await, Some(7));
        watches.look(99_000, 500);
        assert!(!watch.is_late.get(), "it waits no more");
    }
}
