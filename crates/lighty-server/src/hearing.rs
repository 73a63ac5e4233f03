//! Whether anybody who connects is still heard: a process that accepts nobody looks alive to
//! whoever watches over it, and has to end so that it is started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the listeners of all workers that accept connections. Clones count together.
#[derive(Clone, Default)]
pub struct Hearing(Arc<Shared>);

#[derive(Default)]
struct Shared {
    ears: AtomicUsize,
    deaf: Notify,
}

/// A listener that accepts connections for as long as this is held.
pub struct Ear(Hearing);

impl Hearing {
    /// One more listener.
    pub fn ear(&self) -> Ear {
        self.0.ears.fetch_add(1, Ordering::Relaxed);
        Ear(self.clone())
    }

    /// Resolves when there were listeners and the last of them is gone.
    pub async fn ends(&self) {
        self.0.deaf.notified().await;
    }
}

impl Drop for Ear {
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
        let hearing = Hearing::default();
        let (one, two) = (hearing.ear(), hearing.ear());
        let mut ends = Box::pin(hearing.ends());
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
