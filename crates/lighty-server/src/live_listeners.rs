//! Whether anybody who connects is still heard: a process that accepts nobody looks alive to
//! whoever watches over it, and has to end so that it is started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the listeners of all workers that accept connections. Clones count together.
#[derive(Clone, Default)]
pub struct LiveListeners(Arc<Shared>);

#[derive(Default)]
struct Shared {
    ears: AtomicUsize,
    deaf: Notify,
    /// The number of a worker that was lost, and one; 0: none.
    lost: AtomicUsize,
    loss: Notify,
}

/// A listener that accepts connections for as long as this is held.
pub struct ListenerGuard(LiveListeners);

impl LiveListeners {
    /// One more listener.
    pub fn guard(&self) -> ListenerGuard {
        self.0.ears.fetch_add(1, Ordering::Relaxed);
        ListenerGuard(self.clone())
    }

    /// A worker has ended though nobody told it to.
    pub fn lose(&self, worker: usize) {
        self.0.lost.store(worker + 1, Ordering::Release);
        self.0.loss.notify_one();
    }

    /// Resolves when a worker is lost, with its number.
    pub async fn loses(&self) -> usize {
        self.0.loss.notified().await;
        self.0.lost.load(Ordering::Acquire).saturating_sub(1)
    }

    /// Resolves when there were listeners and the last of them is gone.
    pub async fn ends(&self) {
        self.0.deaf.notified().await;
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        let shared = &self.0.0;
        if shared.ears.fetch_sub(1, Ordering::Relaxed) == 1 {
            shared.deaf.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_ends_with_the_last_ear() {
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
