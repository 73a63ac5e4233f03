//! The listeners of each worker under a configuration.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_io::listen::BoundSocket;

use crate::listen::hold::SocketHold;

/// Sockets by the worker's index. A worker without an entry accepts no connections.
#[derive(Default)]
pub(crate) struct PlannedSockets(HashMap<usize, Vec<PlannedListener>>);

/// A listener of one worker.
pub(crate) struct PlannedListener {
    /// Identifies the listener across configurations.
    pub id: u64,
    /// The address as in `$SERVER["socket"]`.
    pub name: Arc<str>,
    /// Its port, 0 for a unix socket.
    pub port: u16,
    pub hold: SocketHold,
    /// The worker's descriptor; `None` if the worker has it already.
    socket: Mutex<Option<BoundSocket>>,
}

impl PlannedListener {
    pub(crate) fn new(
        (id, name, port): (u64, &Arc<str>, u16),
        hold: &SocketHold,
        socket: Option<BoundSocket>,
    ) -> Self {
        Self { id, name: Arc::clone(name), port, hold: hold.clone(), socket: Mutex::new(socket) }
    }

    /// Provides a descriptor for a worker that replaces another one; false if the listener is
    /// closed, or no descriptor is free.
    pub(crate) fn refill(&self) -> bool {
        let copy = self.hold.with(|socket| socket.try_clone()).and_then(Result::ok);
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        *socket = copy;
        socket.is_some()
    }

    /// Returns the worker's descriptor, once.
    pub(crate) fn take(&self) -> Option<BoundSocket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl PlannedSockets {
    pub(crate) fn add(&mut self, worker: usize, listener: PlannedListener) {
        self.0.entry(worker).or_default().push(listener);
    }

    /// Returns the listeners of a worker.
    pub(crate) fn of(&self, worker: usize) -> &[PlannedListener] {
        self.0.get(&worker).map_or(&[], Vec::as_slice)
    }
}
