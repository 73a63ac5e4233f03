//! Replacement of workers that have ended by a panic.
//!
//! Their connections and caches are lost: nobody knows which of their state is intact. Another
//! thread listens on the same sockets, whose queues stay. Panics in a row end the process instead,
//! so that its supervisor notices.

use std::sync::{Arc, Mutex, PoisonError};

use crate::boot::error::BootError;

/// Seconds within which restarts are counted.
const WINDOW_S: i64 = 60;

/// Moments of the restarts of workers, in seconds of the wall clock. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Restarts(Arc<Mutex<Vec<i64>>>);

impl Restarts {
    /// Counts a restart; false if there were `max` within the last minute.
    pub(crate) fn admit(&self, now_s: i64, max: u32) -> bool {
        let mut moments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moments.retain(|moment| (0..WINDOW_S).contains(&(now_s - moment)));
        if moments.len() >= max as usize {
            return false;
        }
        moments.push(now_s);
        true
    }
}

/// Reason why a worker is not replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSuccessor {
    #[error("{0} restarts of workers within a minute are the limit (server.max-worker-restarts)")]
    Limit(u32),
    #[error("one of its listeners is closed, or no descriptor is free for it")]
    Listener,
    #[error("{0}")]
    Start(BootError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_limited_within_a_minute() {
        let restarts = Restarts::default();
        assert!(!restarts.admit(100, 0));
        assert!(restarts.admit(100, 2) && restarts.clone().admit(130, 2));
        assert!(!restarts.admit(159, 2), "the first one is 59 seconds old");
        assert!(restarts.admit(160, 2));
        assert!(!restarts.admit(189, 2));
        assert!(restarts.admit(50, 1), "the clock was set back");
    }
}
