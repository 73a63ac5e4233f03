//! A connection's place in its worker's table.

use std::rc::Rc;

use crate::worker::Worker;
use crate::worker::conn_table::ConnEntry;

/// An entry of the table; released on drop, however the connection ends.
pub(crate) struct Presence {
    entry: Rc<ConnEntry>,
    worker: Rc<Worker>,
}

impl Presence {
    /// Wraps an entry just added to the table.
    pub(crate) fn new(entry: Rc<ConnEntry>, worker: &Rc<Worker>) -> Self {
        Self { entry, worker: Rc::clone(worker) }
    }

    /// Returns the worker that owns the table.
    pub(crate) fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }
}

impl std::ops::Deref for Presence {
    type Target = Rc<ConnEntry>;

    fn deref(&self) -> &Rc<ConnEntry> {
        &self.entry
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.worker.leave(&self.entry);
    }
}
