//! A program that the server starts, and its processes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use lighty_core::log::Level;
use lighty_io::listen::{BoundSocket, SocketFile};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::SupervisorLog;
use super::port::PortShare;
use crate::upstream::Upstream;
use crate::upstream::address::Address;
use crate::upstream::spec::{BackendAddress, SpawnSpec};

/// A program and its processes.
pub(super) struct Group {
    pub(super) log: SupervisorLog,
    /// Its name in the log.
    pub(super) text: String,
    pub(super) spawn: Arc<SpawnSpec>,
    pub(super) is_fastcgi: bool,
    pub(super) socket: BoundSocket,
    pub(super) file: RefCell<Option<SocketFile>>,
    /// The latest generation that names it.
    pub(super) naming: Cell<u64>,
    pub(super) address: BackendAddress,
    /// Target number of processes; `None` ends all of them for good.
    pub(super) wanted: watch::Sender<Option<u32>>,
    pub(super) users: RefCell<Vec<Arc<Upstream>>>,
    pub(super) tasks: RefCell<Vec<JoinHandle<()>>>,
    /// Number of processes that have lived longer than a bad start.
    pub(super) alive: Cell<u32>,
    pub(super) is_broken: Cell<bool>,
    /// Its socket's seat at a port. Dropped with the group, after its processes.
    pub(super) share: Option<Rc<PortShare>>,
}

impl Group {
    /// Returns the number of requests in progress or waiting at the socket.
    pub(super) fn busy(&self) -> u32 {
        self.addresses().iter().map(|address| address.busy()).fold(0, u32::saturating_add)
    }

    /// Returns true if one of its processes has accepted a request since this time.
    pub(super) fn has_taken_since(&self, ms: u64) -> bool {
        self.addresses().iter().any(|address| address.has_taken_since(ms))
    }

    /// Records bad starts in a row. If no other process is alive, requests get 503 from now on.
    pub(super) fn note_bad_starts(&self, count: u32) {
        if self.alive.get() > 0 || self.is_broken.replace(true) {
            return;
        }
        let text = format!(
            "{}: {count} processes in succession ended before they took a request; requests are \
             answered 503 until one runs",
            self.text
        );
        self.log.say(Level::Error, &text);
        self.tell_addresses();
    }

    /// Resumes sending requests.
    pub(super) fn end_broken(&self, why: &str) {
        if self.is_broken.replace(false) {
            self.log.say(Level::Notice, &format!("{}: requests are sent again: {why}", self.text));
            self.tell_addresses();
        }
    }

    /// Tells the addresses whether the program is broken.
    pub(super) fn tell_addresses(&self) {
        let is_broken = self.is_broken.get();
        self.addresses().iter().for_each(|address| address.set_broken(is_broken));
        // Waiting requests are now refused, or served.
        self.users.borrow().iter().for_each(|upstream| upstream.backlog.call_all());
    }

    /// Returns true if one of its processes has responded to a request since this time.
    pub(super) fn has_responded_since(&self, ms: u64) -> bool {
        self.addresses().iter().any(|address| address.has_responded_since(ms))
    }

    /// Returns its address in each upstream.
    fn addresses(&self) -> Vec<Arc<Address>> {
        let users = self.users.borrow();
        let of_users = users.iter().flat_map(|upstream| {
            let at = upstream.spec.backends.iter().filter(|b| b.address == self.address);
            let texts: Vec<_> = at.map(|backend| Arc::clone(&backend.text)).collect();
            let mut addresses = upstream.addresses().to_vec();
            addresses.retain(|address| texts.contains(&address.spec.text));
            addresses
        });
        of_users.collect()
    }
}
