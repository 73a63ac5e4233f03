//! A request to reopen several logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shared by the logs that are being reopened. The last one calls a function with the number of
/// logs that could not be opened.
pub struct Reopening {
    failures: AtomicUsize,
    done: Box<dyn Fn(usize) + Send + Sync>,
}

impl Reopening {
    /// `done` runs on the thread of the last log and must not block.
    pub fn new(done: impl Fn(usize) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { failures: AtomicUsize::new(0), done: Box::new(done) })
    }

    pub(super) fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Reopening {
    fn drop(&mut self) {
        (self.done)(*self.failures.get_mut());
    }
}
