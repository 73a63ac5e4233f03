//! Measures the time without work, after which the server ends (`-i`).

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lighty_io::clock::deadline::Deadline;

use crate::worker::Worker;

/// Interval at which workers and the main thread check for activity.
const TICK: Duration = Duration::from_millis(500);

/// Time at which the server ends, unless a worker is busy before. Clones share it.
#[derive(Clone)]
pub(crate) struct Activity {
    end: Arc<Mutex<Deadline>>,
    patience: Duration,
}

impl Activity {
    /// Creates the state of a server that ends after `limit` without work.
    pub(crate) fn new(limit: Duration) -> Self {
        // Adds the activity that workers have not noticed yet.
        let patience = limit.saturating_add(TICK * 2);
        Self { end: Arc::new(Mutex::new(Deadline::after(patience))), patience }
    }

    fn end(&self) -> MutexGuard<'_, Deadline> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Postpones the end while a worker has requests in progress or gets connections.
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
