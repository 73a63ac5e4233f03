//! Tracks live listeners. When the last one dies the process exits, so that its supervisor restarts
//! it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Counts the accepting listeners of all workers. Clones share the count.
#[derive(Clone, Default)]
pub struct LiveListeners(Arc<LiveState>);

#[derive(Default)]
struct LiveState {
    ears: AtomicUsize,
    deaf: Notify,
    /// Indexes of lost workers.
    lost: Mutex<Vec<usize>>,
    loss: Notify,
}

/// Counts a listener as accepting until dropped.
pub struct ListenerGuard(LiveListeners);

impl LiveListeners {
    /// Counts one more listener.
    pub fn guard(&self) -> ListenerGuard {
        self.0.ears.fetch_add(1, Ordering::Relaxed);
        ListenerGuard(self.clone())
    }

    /// Reports that a worker ended without an order to stop.
    pub fn lose(&self, worker: usize) {
        self.0.lost.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        self.0.loss.notify_one();
    }

    /// Resolves with the index of a lost worker.
    pub async fn loses(&self) -> usize {
        loop {
            let lost = self.0.lost.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match lost {
                Some(worker) => return worker,
                None => self.0.loss.notified().await,
            }
        }
    }

    /// Resolves when the last listener is gone. A worker that replaces another one may have opened
    /// new ones meanwhile.
    pub async fn ends(&self) {
        loop {
            self.0.deaf.notified().await;
            if self.0.ears.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        let shared = &self.0.0;
        let ears = shared.ears.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(ears > 0, "no listener was counted");
        if ears == 1 {
            shared.deaf.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wait_ends_with_the_last_live_listener() {
        let live_listeners = LiveListeners::default();
        let (one, two) = (live_listeners.guard(), live_listeners.guard());
        let mut ends = Box::pin(live_listeners.ends());
        drop(two);
        tokio::select! {
            biased;
            () = &mut ends => panic!("one is left"),
            () = tokio::task::yield_now() => {}
        }
        drop(one);
        ends.await;
    }
}
