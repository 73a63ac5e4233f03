//! A program that the server starts, and its processes.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use lighty_io::listen::{BoundSocket, SocketFile};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::SupervisorLog;
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
    /// Wanted number of processes; `None` ends all of them for good.
    pub(super) wanted: watch::Sender<Option<u32>>,
    pub(super) users: RefCell<Vec<Arc<Upstream>>>,
    pub(super) tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl Group {
    /// Requests in progress or waiting at the socket.
    pub(super) fn busy(&self) -> u32 {
        self.addresses().iter().map(|address| address.busy()).fold(0, u32::saturating_add)
    }

    /// True if one of its processes has answered any request since this time.
    pub(super) fn has_responded_since(&self, ms: u64) -> bool {
        self.addresses().iter().any(|address| address.has_responded_since(ms))
    }

    /// Its address, as each upstream knows it.
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
