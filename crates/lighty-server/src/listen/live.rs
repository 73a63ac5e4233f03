//! Tracks live listeners. When the last one dies the process exits, so that its supervisor restarts
//! it. Keeps a second descriptor of each socket, for the process that takes this one's place.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lighty_io::listen::Listener;
use tokio::sync::Notify;

use crate::listen::spare::SpareSocket;

/// Counts the accepting listeners of all workers. Clones share the count.
#[derive(Clone, Default)]
pub struct LiveListeners(Arc<LiveState>);

#[derive(Default)]
struct LiveState {
    ears: AtomicUsize,
    deaf: Notify,
    /// Index of a lost worker plus one; 0: none.
    lost: AtomicUsize,
    loss: Notify,
    sockets: Mutex<Vec<(usize, Arc<LiveSocket>)>>,
    next: AtomicUsize,
    /// Names of listeners whose sockets another process has now.
    handed_over: Mutex<Vec<String>>,
}

/// The socket of a live listener.
pub struct LiveSocket {
    /// The listener's name.
    pub name: String,
    /// A second descriptor.
    pub descriptor: OwnedFd,
    /// The service manager owns it.
    pub is_inherited: bool,
    /// It is a unix socket.
    pub is_unix: bool,
}

impl LiveSocket {
    /// Duplicates the descriptor of a listener.
    ///
    /// # Errors
    /// EMFILE and other errors of the system.
    pub fn of(name: &str, listener: &Listener) -> std::io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            descriptor: listener.duplicate()?,
            is_inherited: listener.is_inherited(),
            is_unix: listener.is_unix(),
        })
    }
}

/// Counts a listener as accepting until dropped.
pub struct ListenerGuard {
    live_listeners: LiveListeners,
    number: usize,
    /// The second descriptor of its socket, for a successor of the worker.
    spare: Option<Arc<SpareSocket>>,
}

impl LiveListeners {
    /// Counts one more listener, and keeps its socket.
    pub fn guard(&self, socket: Option<LiveSocket>) -> ListenerGuard {
        self.0.ears.fetch_add(1, Ordering::Relaxed);
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let guard = ListenerGuard { live_listeners: self.clone(), number, spare: None };
        if let Some(socket) = socket {
            guard.keep(socket);
        }
        guard
    }

    /// The sockets of the listeners that accept, in the order of their start.
    pub fn sockets(&self) -> Vec<Arc<LiveSocket>> {
        let sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.iter().map(|(_, socket)| Arc::clone(socket)).collect()
    }

    /// Notes which listeners another process has from now on; their sockets stay as they are.
    pub fn hand_over(&self, names: Vec<String>) {
        *self.0.handed_over.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Reports that a worker ended without an order to stop.
    pub fn lose(&self, worker: usize) {
        self.0.lost.store(worker + 1, Ordering::Release);
        self.0.loss.notify_one();
    }

    /// Resolves with the index of a lost worker.
    pub async fn loses(&self) -> usize {
        self.0.loss.notified().await;
        self.0.lost.load(Ordering::Acquire).saturating_sub(1)
    }

    /// Resolves when the last listener is gone.
    pub async fn ends(&self) {
        self.0.deaf.notified().await;
    }
}

impl ListenerGuard {
    /// True if another process has the sockets of the listener of this name now.
    pub fn is_handed_over(&self, name: &str) -> bool {
        let shared = &self.live_listeners.0;
        let names = shared.handed_over.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().any(|one| one == name)
    }

    /// Keeps the socket, in place of an earlier one.
    pub fn keep(&self, socket: LiveSocket) {
        self.release_socket();
        let shared = &self.live_listeners.0;
        let mut sockets = shared.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.push((self.number, Arc::new(socket)));
    }

    /// Closes the second descriptor of a broken socket, which would hold its address.
    pub fn release_socket(&self) {
        let shared = &self.live_listeners.0;
        let mut sockets = shared.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|(number, _)| *number != self.number);
    }

    /// The same guard, with the second descriptor of the listener's socket.
    pub(crate) fn with_spare(mut self, spare: Option<Arc<SpareSocket>>) -> Self {
        self.spare = spare;
        self
    }

    /// Closes the second descriptor: the listener listens on this socket no more.
    pub(crate) fn close_spare(&self) {
        self.spare.iter().for_each(|spare| spare.close());
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.release_socket();
        let shared = &self.live_listeners.0;
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
        let (one, two) = (live_listeners.guard(None), live_listeners.guard(None));
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
