//! The time for which a server has had nothing to do (`-i`).

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lighty_io::clock::deadline::Deadline;

use crate::worker::Worker;

/// Interval at which workers and the main thread check for activity.
const TICK: Duration = Duration::from_millis(500);

/// When the server ends, unless one of the workers is busy before. Clones share it.
#[derive(Clone)]
pub(crate) struct Activity {
    end: Arc<Mutex<Deadline>>,
    patience: Duration,
}

impl Activity {
    /// A server that is to end after `limit` without work.
    pub(crate) fn new(limit: Duration) -> Self {
        // Adds the activity that workers have not noticed yet.
        let patience = limit.saturating_add(TICK * 2);
        Self { end: Arc::new(Mutex::new(Deadline::after(patience))), patience }
    }

    fn end(&self) -> MutexGuard<'_, Deadline> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the end off while a worker has requests under way or gets connections.
    pub(crate) async fn watch(self, worker: Rc<Worker>) {
        let mut seen = (0, 0);
        loop {
            tokio::time::sleep(TICK).await;
            let counters = &worker.machine.counters;
            let now = (counters.connections.get(), counters.requests.get());
            if now != seen || worker.conns.open() > worker.conns.idle() {
                *self.end() = Deadline::after(self.patience);
            }
            seen = now;
        }
    }

    /// Resolves when no worker was busy for as long as the limit.
    pub(crate) async fn ends(&self) {
        while !self.end().is_over() {
            tokio::time::sleep(TICK).await;
        }
    }
}
