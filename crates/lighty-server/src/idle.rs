//! The time for which a server has had nothing to do (`-i`).

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::worker::Worker;

/// How often workers and the main thread look.
const TICK: Duration = Duration::from_millis(500);

/// When one of the workers was busy last. Clones share it.
#[derive(Clone)]
pub(crate) struct Activity {
    began: Instant,
    /// Milliseconds since then.
    last_ms: Arc<AtomicU64>,
    limit: Duration,
}

impl Activity {
    /// A server that is to end after `limit` without work.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { began: Instant::now(), last_ms: Arc::default(), limit }
    }

    fn note(&self) {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Notes it while a worker has requests under way or gets connections.
    pub(crate) async fn watch(self, worker: Rc<Worker>) {
        let mut seen = (0, 0);
        loop {
            tokio::time::sleep(TICK).await;
            let counters = &worker.machine.counters;
            let now = (counters.connections.get(), counters.requests.get());
            if now != seen || worker.conns.open() > worker.conns.idle() {
                self.note();
            }
            seen = now;
        }
    }

    /// Resolves when no worker was busy for as long as the limit.
    pub(crate) async fn ends(&self) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            // What workers have not noticed yet counts, too.
            if self.began.elapsed() >= last + self.limit + TICK * 2 {
                return;
            }
            tokio::time::sleep(TICK).await;
        }
    }
}
