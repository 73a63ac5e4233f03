//! A load shared by several waiters.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::entry::CacheEntry;

/// The outcome of a pending load.
#[derive(Default)]
pub(super) struct Pending {
    result: RefCell<Option<io::Result<Rc<CacheEntry>>>>,
    wakers: RefCell<Vec<Waker>>,
}

impl Pending {
    pub(super) fn finish(&self, result: io::Result<Rc<CacheEntry>>) {
        *self.result.borrow_mut() = Some(result);
        for waker in self.wakers.take() {
            waker.wake();
        }
    }
}

/// Waits for a load; dropping it does not cancel the load.
pub(super) struct Join(pub(super) Rc<Pending>);

impl Future for Join {
    type Output = io::Result<Rc<CacheEntry>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = &*self.0.result.borrow() {
            return Poll::Ready(again(result));
        }
        let mut wakers = self.0.wakers.borrow_mut();
        if !wakers.iter().any(|known| known.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Copies a result for another waiter. Errors are not `Clone`, so their content is copied.
fn again(result: &io::Result<Rc<CacheEntry>>) -> io::Result<Rc<CacheEntry>> {
    match result {
        Ok(entry) => Ok(entry.clone()),
        Err(error) => Err(match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(error.kind(), error.to_string()),
        }),
    }
}
