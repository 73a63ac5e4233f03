//! All connections of a worker, as seen by the sweep and the limits.
//!
//! No timer is armed per request. A connection and each stream of requests on it record the
//! condition that they wait for and when the wait began, and the sweep ends overdue waits once a
//! second. Each is checked alone, so that a slow stream is cut without its siblings. The sweep ends
//! a wait by shutting down its socket or stream: the task wakes, finds the reason in the entry, and
//! responds or closes.

mod entry;
mod phase;
mod stream;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use lighty_core::Fault;
use lighty_core::machine::bans;
use lighty_io::clock::Clock;
use lighty_io::transport::ShutdownHandle;

pub(crate) use entry::{ConnEntry, ConnLimits, Doing, RequestSummary};
pub(crate) use stream::{StreamEntry, StreamLimits};

/// Returns the monotonic time in whole seconds, the unit of the sweep.
pub(crate) fn sweep_s(clock: &Clock) -> u32 {
    (clock.mono_ms() / 1000) as u32
}

/// Returns the sweep second from which a wait that begins now counts. Rounded up: counted from the
/// last whole second, a limit of one second could expire after a moment.
pub(crate) fn wait_s(clock: &Clock) -> u32 {
    clock.mono_ms().div_ceil(1000) as u32
}

/// The table of a worker's connections.
#[derive(Default)]
pub struct ConnTable {
    table: RefCell<Vec<Option<Rc<ConnEntry>>>>,
    free: RefCell<Vec<usize>>,
    /// For each index, the number of connections that have had it before the present one.
    serials: RefCell<Vec<u32>>,
    open: Cell<usize>,
    idle_order: Cell<u64>,
}

impl ConnTable {
    /// Adds a connection.
    pub fn enter(&self, shutdown: ShutdownHandle, client: Rc<str>, now_s: u32) -> Rc<ConnEntry> {
        let entry = Rc::new(ConnEntry::new(shutdown, client, self.next_idle_order(), now_s));
        let mut table = self.table.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            table.push(None);
            self.serials.borrow_mut().push(0);
            table.len() - 1
        });
        // A larger table does not fit into memory.
        entry.index.set(index as u32);
        debug_assert!(table[index].is_none(), "index {index} is in use");
        table[index] = Some(Rc::clone(&entry));
        self.open.set(self.open.get() + 1);
        let free = self.free.borrow().len();
        debug_assert_eq!(self.open.get() + free, table.len(), "{free} are free");
        entry
    }

    /// Removes a connection.
    pub fn leave(&self, entry: &ConnEntry) {
        let index = entry.index.get() as usize;
        let mut table = self.table.borrow_mut();
        let is_known = table[index].as_ref().is_some_and(|known| std::ptr::eq(&**known, entry));
        debug_assert!(is_known, "index {index} belongs to another connection");
        table[index] = None;
        let serial = &mut self.serials.borrow_mut()[index];
        *serial = serial.wrapping_add(1);
        self.free.borrow_mut().push(index);
        self.open.set(self.open.get() - 1);
    }

    /// Marks a connection as waiting for a request.
    pub fn wait_idle(&self, entry: &ConnEntry, now_s: u32) {
        entry.idle_order.set(self.next_idle_order());
        entry.wait_for_request(now_s);
    }

    fn next_idle_order(&self) -> u64 {
        self.idle_order.replace(self.idle_order.get() + 1)
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Number of open connections that wait for a request.
    pub fn idle(&self) -> usize {
        let table = self.table.borrow();
        table.iter().flatten().filter(|entry| entry.is_idle()).count()
    }

    /// Returns the number of earlier connections with the number of an open one.
    pub fn serial(&self, entry: &ConnEntry) -> u32 {
        self.serials.borrow()[entry.index.get() as usize]
    }

    /// Ends a connection, or one of its streams if `stream` is not 0, at an operator's order.
    /// Returns false if there is no such connection or stream any more.
    pub fn kill(&self, number: u32, serial: u32, stream: u32) -> bool {
        let entry = self.table.borrow().get(number as usize).cloned().flatten();
        let Some(entry) = entry.filter(|entry| self.serial(entry) == serial) else { return false };
        if stream != 0 {
            return entry.kill_stream(stream);
        }
        entry.kill();
        true
    }

    /// Ends all connections of a banned client. Returns their number.
    pub fn kill_client(&self, client: IpAddr) -> usize {
        let is_theirs = |entry: &&Rc<ConnEntry>| {
            let ip = entry.client().parse::<IpAddr>();
            ip.is_ok_and(|ip| bans::network(ip) == bans::network(client))
        };
        let table = self.table.borrow();
        table.iter().flatten().filter(is_theirs).map(|entry| entry.kill()).count()
    }

    /// Calls `see` with each open connection.
    pub fn for_each(&self, see: impl FnMut(&ConnEntry)) {
        self.table.borrow().iter().flatten().map(|entry| &**entry).for_each(see);
    }

    /// Ends connections and streams that have waited for longer than their limit. Calls `report`
    /// for each. Called once a second.
    pub fn sweep(&self, now_s: u32, mut report: impl FnMut(Fault)) {
        self.for_each(|entry| entry.sweep(now_s, &mut report));
    }

    /// Closes up to `count` idle connections, the longest idle first; newcomers and lingering
    /// ones go last. Returns the number of connections that it closes.
    pub fn reap(&self, count: usize, now_s: u32) -> usize {
        let table = self.table.borrow();
        let mut idle: Vec<&Rc<ConnEntry>> =
            table.iter().flatten().filter(|entry| entry.is_idle() && !entry.is_closing()).collect();
        if idle.is_empty() {
            return self.reap_half_heads(count, now_s);
        }
        let count = count.min(idle.len());
        if count < idle.len() {
            let order = |s: &&Rc<ConnEntry>| (s.is_reaped_last(now_s), s.idle_order.get());
            idle.select_nth_unstable_by_key(count - 1, order);
        }
        idle[..count].iter().filter(|entry| entry.reap()).count()
    }

    /// Reaps connections slow to finish a head, the longest waiting first. They get a 408.
    fn reap_half_heads(&self, count: usize, now_s: u32) -> usize {
        let table = self.table.borrow();
        let mut slow: Vec<&Rc<ConnEntry>> =
            table.iter().flatten().filter(|s| s.is_slow(now_s)).collect();
        let count = count.min(slow.len());
        slow.sort_unstable_by_key(|entry| entry.since_s());
        slow[..count].iter().for_each(|entry| entry.shut_down(Fault::HeadTimeout));
        count
    }

    /// Graceful stop: connections that are idle for a while close now, the others after their next
    /// response or a grace period.
    pub fn close_when_idle(&self, now_s: u32) {
        self.for_each(|entry| entry.close_soon(now_s));
    }
}

#[cfg(test)]
mod tests;
