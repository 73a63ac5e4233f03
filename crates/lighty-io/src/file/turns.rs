//! Turns at disks: the scheduler in front of the engines.
//!
//! Look-ups, first reads and reads of small files are urgent. All other reads are bulk reads: they
//! start only while nothing urgent is under way at their device ([`order`]). Each device has one
//! queue for all workers. Devices without a limit (`devices`) have none, and their operations pass
//! at once.
//!
//! A [`DiskTurn`] belongs to the slot of its operation, so it ends when the kernel is done with the
//! read, and leaves the queue if the read is abandoned before it starts. A turn may be granted by
//! any thread: it goes to the mailbox of the engine, and its driver starts the operation.

mod devices;
mod order;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

pub use devices::{survey_disks, turns_text};

use crate::clock::{Stopwatch, shared_mono_us};
use crate::simulated;
use order::{DeviceOrder, TurnChange, TurnNumber};

/// Files up to this size are small: every read of them is urgent.
pub(super) const SMALL_FILE_BYTES: u64 = 64 * 1024;

/// Limit of bulk reads at a device (`server.max-bulk-reads`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskReads {
    /// Two on disks that seek; others have no limit and no order.
    Auto,
    /// This many on every device; 0: no limit and no order.
    Limit(usize),
}

impl Default for DiskReads {
    fn default() -> DiskReads {
        DiskReads::Limit(0)
    }
}

impl fmt::Display for DiskReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskReads::Auto => f.write_str("\"auto\""),
            DiskReads::Limit(most) => most.fmt(f),
        }
    }
}

/// Queues by the device number of the disk.
type DeviceQueues = Mutex<HashMap<u64, Arc<DeviceQueue>>>;

/// The queues of the process.
fn process_queues() -> Arc<DeviceQueues> {
    static QUEUES: OnceLock<Arc<DeviceQueues>> = OnceLock::new();
    Arc::clone(QUEUES.get_or_init(Arc::default))
}

/// An engine's access to the queues.
pub(super) struct EngineTurns {
    reads: DiskReads,
    queues: Arc<DeviceQueues>,
    /// Queues of the devices seen so far, which need no lock to be found.
    known: RefCell<Vec<(u64, Option<Arc<DeviceQueue>>)>>,
    pub(super) mailbox: Arc<TurnMailbox>,
}

impl EngineTurns {
    pub(super) fn new(reads: DiskReads) -> EngineTurns {
        // A simulated thread counts as a process of its own.
        let queues = if simulated::is_on() { Arc::default() } else { process_queues() };
        EngineTurns { reads, queues, known: RefCell::default(), mailbox: Arc::default() }
    }

    /// The queue of a device; `None` if its operations pass at once.
    pub(super) fn queue_of(&self, device: u64) -> Option<Arc<DeviceQueue>> {
        if self.reads == DiskReads::Limit(0) {
            return None;
        }
        let mut known = self.known.borrow_mut();
        if let Some((_, queue)) = known.iter().find(|(number, _)| *number == device) {
            return queue.clone();
        }
        let bulk_max = devices::bulk_reads_max(self.reads, device);
        let queue = bulk_max.map(|bulk_max| {
            let mut queues = unpoisoned(self.queues.lock());
            let disk = devices::disk_of(device);
            let queue = queues.entry(disk).or_insert_with(|| DeviceQueue::new(bulk_max));
            unpoisoned(queue.order.lock()).limit(bulk_max);
            Arc::clone(queue)
        });
        known.push((device, queue.clone()));
        queue
    }

    /// An urgent turn at a device with a queue, for an operation that begins now.
    pub(super) fn urgent(&self, device: u64) -> Option<DiskTurn> {
        self.queue_of(device).map(|queue| queue.urgent(&self.mailbox))
    }
}

/// The operations at one device.
pub(super) struct DeviceQueue {
    order: Mutex<DeviceOrder<TurnWaiter>>,
}

/// An operation: the number of its slot, and the mailbox of its engine.
#[derive(Clone)]
struct TurnWaiter {
    id: u64,
    mailbox: Arc<TurnMailbox>,
}

impl DeviceQueue {
    fn new(bulk_max: usize) -> Arc<DeviceQueue> {
        Arc::new(DeviceQueue { order: Mutex::new(DeviceOrder::new(bulk_max)) })
    }

    /// Begins an urgent operation.
    pub(super) fn urgent(self: Arc<Self>, mailbox: &Arc<TurnMailbox>) -> DiskTurn {
        let owner = TurnWaiter { id: 0, mailbox: Arc::clone(mailbox) };
        let number = unpoisoned(self.order.lock()).begin_urgent(owner, shared_mono_us());
        DiskTurn::new(self, TurnClass::Urgent { number })
    }

    /// Queues the bulk read of a slot. Its turn comes through the mailbox, also if it comes now.
    pub(super) fn bulk(
        self: Arc<Self>,
        client: u64,
        id: u64,
        mailbox: &Arc<TurnMailbox>,
    ) -> DiskTurn {
        let waiter = TurnWaiter { id, mailbox: Arc::clone(mailbox) };
        let now_us = shared_mono_us();
        let (number, change) = unpoisoned(self.order.lock()).begin_bulk(client, waiter, now_us);
        self.announce(change);
        DiskTurn::new(self, TurnClass::Bulk { client, number })
    }

    /// The time of a reminder has come.
    fn remind(self: &Arc<Self>, number: TurnNumber, due_us: u64) {
        let change = unpoisoned(self.order.lock()).remind(number, due_us, shared_mono_us());
        self.announce(change);
    }

    fn announce(self: &Arc<Self>, change: TurnChange<TurnWaiter>) {
        for granted in change.granted {
            let turn = GrantedTurn { id: granted.read.id, is_overdue: granted.is_overdue };
            granted.read.mailbox.put(|letters| letters.granted.push(turn));
        }
        for expired in change.expired {
            expired.owner.mailbox.put(|letters| letters.expired += 1);
        }
        if let Some((waiter, number, due_us)) = change.reminder {
            let reminder = TurnReminder { queue: Arc::clone(self), number, due_us };
            waiter.mailbox.put(|letters| letters.reminders.push(reminder));
        }
    }
}

/// A place at a device, from the request until the kernel is done with the operation.
pub(super) struct DiskTurn {
    queue: Arc<DeviceQueue>,
    class: TurnClass,
    since: Stopwatch,
}

impl DiskTurn {
    fn new(queue: Arc<DeviceQueue>, class: TurnClass) -> DiskTurn {
        DiskTurn { queue, class, since: Stopwatch::start() }
    }

    pub(super) fn is_bulk(&self) -> bool {
        matches!(self.class, TurnClass::Bulk { .. })
    }

    /// Time since the turn was requested, in microseconds.
    pub(super) fn age_us(&self) -> u64 {
        self.since.us()
    }
}

#[derive(Clone, Copy)]
enum TurnClass {
    Urgent { number: TurnNumber },
    Bulk { client: u64, number: TurnNumber },
}

impl Drop for DiskTurn {
    fn drop(&mut self) {
        let now_us = shared_mono_us();
        let change = {
            let mut order = unpoisoned(self.queue.order.lock());
            match self.class {
                TurnClass::Urgent { number } => order.end_urgent(number, now_us),
                TurnClass::Bulk { client, number } => order.end_bulk(client, number, now_us),
            }
        };
        self.queue.announce(change);
    }
}

/// A bulk read that may start.
pub(super) struct GrantedTurn {
    /// Number of its slot.
    pub(super) id: u64,
    pub(super) is_overdue: bool,
}

/// A time at which a queue is to be called again.
pub(super) struct TurnReminder {
    queue: Arc<DeviceQueue>,
    number: TurnNumber,
    pub(super) due_us: u64,
}

impl TurnReminder {
    pub(super) fn is_of_same_queue(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }

    pub(super) fn call(&self) {
        self.queue.remind(self.number, self.due_us);
    }
}

/// News for the driver of an engine, from any thread.
#[derive(Default)]
pub(super) struct TurnMailbox(Mutex<TurnLetters>);

#[derive(Default)]
pub(super) struct TurnLetters {
    pub(super) granted: Vec<GrantedTurn>,
    pub(super) reminders: Vec<TurnReminder>,
    /// Turns of the engine that ended before their operations.
    pub(super) expired: u64,
    driver: Option<Waker>,
}

impl TurnMailbox {
    fn put(&self, write: impl FnOnce(&mut TurnLetters)) {
        let driver = {
            let mut letters = unpoisoned(self.0.lock());
            write(&mut letters);
            letters.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Takes the news, and wakes the driver for later ones.
    pub(super) fn take(&self, driver: &Waker) -> TurnLetters {
        let mut letters = unpoisoned(self.0.lock());
        match &mut letters.driver {
            Some(known) => known.clone_from(driver),
            none => *none = Some(driver.clone()),
        }
        let own = letters.driver.take();
        let news = mem::take(&mut *letters);
        letters.driver = own;
        news
    }
}

fn unpoisoned<'a, T>(
    locked: Result<MutexGuard<'a, T>, PoisonError<MutexGuard<'a, T>>>,
) -> MutexGuard<'a, T> {
    locked.unwrap_or_else(PoisonError::into_inner)
}
