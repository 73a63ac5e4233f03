//! The main thread's handle on a worker's listening socket.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_io::listen::BoundSocket;

/// A second descriptor of a worker's listening socket, by which the main thread changes its options
/// and passes it to another worker. Clones are one handle.
#[derive(Clone, Default)]
pub struct SocketHold(Arc<HeldSocket>);

#[derive(Default)]
struct HeldSocket {
    socket: Mutex<Option<BoundSocket>>,
    /// The worker accepts on the socket.
    is_open: AtomicBool,
    /// Another worker accepts on the socket from now on.
    is_passed_on: AtomicBool,
}

/// A worker accepts on the socket until this is dropped.
pub(crate) struct OpenSocket(SocketHold);

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.0.0.is_open.store(false, Ordering::Release);
    }
}

impl SocketHold {
    pub(crate) fn new(socket: BoundSocket) -> Self {
        let hold = Self::default();
        *hold.lock() = Some(socket);
        hold
    }

    /// Calls `act` with the socket; `None` if it was released.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut BoundSocket) -> T) -> Option<T> {
        self.lock().as_mut().map(act)
    }

    /// Closes this descriptor of the socket, so that the worker's is the last one.
    pub(crate) fn release(&self) {
        let socket = self.lock().take();
        drop(socket);
    }

    /// Replaces the socket by the worker's new one.
    pub(crate) fn replace(&self, socket: BoundSocket) {
        *self.lock() = Some(socket);
    }

    /// Records that the worker accepts on the socket.
    pub(crate) fn note_open(&self) {
        self.0.is_open.store(true, Ordering::Release);
    }

    /// Returns a guard that records on drop that the worker has closed its descriptor.
    pub(crate) fn while_open(&self) -> OpenSocket {
        OpenSocket(self.clone())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.is_open.load(Ordering::Acquire)
    }

    /// Has the worker leave the socket to others, with the connections in its queue.
    pub(crate) fn pass_on(&self) {
        self.0.is_passed_on.store(true, Ordering::Release);
        self.release();
    }

    pub(crate) fn is_passed_on(&self) -> bool {
        self.0.is_passed_on.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Option<BoundSocket>> {
        self.0.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
