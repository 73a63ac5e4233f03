//! The order of operations at one device, without clocks, locks or wake-ups.
//!
//! Urgent operations start at once and are only counted. Bulk reads wait while one of them is under
//! way, but not longer than [`PATIENCE_US`] between two bulk reads, and while as many bulk reads
//! are under way as the device may have. They are taken from their clients in turn. A turn has
//! several reads, because a disk seeks between two clients, and hardly between two reads of one.
//!
//! Each change takes logarithmic time in the number of reads that wait, and looks at most at
//! `bulk_max` clients and places.

use std::collections::{BTreeMap, HashMap};

/// Longest time between the starts of two bulk reads that is due to urgent operations.
pub(super) const PATIENCE_US: u64 = 50_000;

/// Reads of a client in a row while others wait. With 1, four downloads on two disks had half of
/// the rate.
pub(super) const READS_OF_TURN: u32 = 8;

/// Longest time for which an operation has a place at its device. A failing disk may never finish
/// it, and the reads of other files go on without it then.
pub(super) const TURN_LEASE_US: u64 = 5_000_000;

/// Identifies an operation at its device.
pub(super) type TurnNumber = u64;

/// Place of a client in the queue; the lowest one is next.
type QueueTicket = u64;

/// Operations at a device. `W` is the read that waits.
pub(super) struct DeviceOrder<W> {
    bulk_max: usize,
    /// Urgent operations under way, by age.
    urgent: BTreeMap<TurnNumber, Lease<W>>,
    next_urgent: TurnNumber,
    /// Time until which more urgent operations are expected.
    urgent_until_us: u64,
    places: Vec<BulkPlace<W>>,
    /// Clients with waiting reads, by their keys.
    clients: HashMap<u64, BulkClient<W>>,
    /// The keys of these clients; the first one is next.
    order: BTreeMap<QueueTicket, u64>,
    next_ticket: QueueTicket,
    next_number: TurnNumber,
    /// Time of the last start of a bulk read, or of the first one that waits since none did.
    served_us: u64,
    /// The owner of this read is to call [`DeviceOrder::remind`] at this time.
    reminded: Option<(TurnNumber, u64)>,
}

/// An operation under way.
#[derive(Clone)]
struct Lease<W> {
    since_us: u64,
    owner: W,
}

impl<W> Lease<W> {
    fn end_us(&self) -> u64 {
        self.since_us.saturating_add(TURN_LEASE_US)
    }
}

/// Reads of one client under way in one place of a device without urgent operations: the disk goes
/// on with the next one while the end of the first one reaches the event loop. With two, four
/// downloads had 0.87 of the rate without an order, and one download 0.88.
pub(super) const READS_OF_PLACE: usize = 3;

/// Time after the last urgent operation for which a place has one read at a time: a second one
/// doubled the wait of urgent operations.
pub(super) const URGENT_TRUST_US: u64 = 250_000;

/// A place for the reads of one client at a time.
#[derive(Clone)]
struct BulkPlace<W> {
    running: Vec<(TurnNumber, Lease<W>)>,
    /// The client of these reads, or of the last one.
    key: u64,
    /// Reads of this client here in a row.
    reads: u32,
}

impl<W> Default for BulkPlace<W> {
    fn default() -> Self {
        BulkPlace { running: Vec::new(), key: 0, reads: 0 }
    }
}

/// The waiting reads of one client, oldest first.
struct BulkClient<W> {
    ticket: QueueTicket,
    reads: BTreeMap<TurnNumber, W>,
}

/// A bulk read that may start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Granted<W> {
    pub(super) number: TurnNumber,
    pub(super) read: W,
    /// It starts beside urgent operations because it has waited for too long.
    pub(super) is_overdue: bool,
}

/// An operation that has lost its place. It still ends once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExpiredTurn<W> {
    pub(super) number: TurnNumber,
    pub(super) owner: W,
    pub(super) is_urgent: bool,
}

/// Consequences of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TurnChange<W> {
    pub(super) granted: Vec<Granted<W>>,
    /// Operations that have lost their places, because they take too long.
    pub(super) expired: Vec<ExpiredTurn<W>>,
    /// The owner of this read calls [`DeviceOrder::remind`] at this time.
    pub(super) reminder: Option<(W, TurnNumber, u64)>,
}

impl<W: Clone> DeviceOrder<W> {
    /// A device without operations, for at most `bulk_max` bulk reads at a time.
    pub(super) fn new(bulk_max: usize) -> Self {
        let bulk_max = bulk_max.max(1);
        DeviceOrder {
            bulk_max,
            urgent: BTreeMap::new(),
            next_urgent: 0,
            urgent_until_us: 0,
            places: vec![BulkPlace::default(); bulk_max],
            clients: HashMap::new(),
            order: BTreeMap::new(),
            next_ticket: 0,
            next_number: 0,
            served_us: 0,
            reminded: None,
        }
    }

    /// Changes the limit of bulk reads. A lower one takes effect as reads end.
    pub(super) fn limit(&mut self, bulk_max: usize) {
        self.bulk_max = bulk_max.max(1);
        let busy = self.places.iter().filter(|place| !place.running.is_empty()).count();
        self.places.sort_by_key(|place| place.running.is_empty());
        self.places.resize(self.bulk_max.max(busy), BulkPlace::default());
    }

    /// Counts an urgent operation, which starts at once.
    pub(super) fn begin_urgent(&mut self, owner: W, now_us: u64) -> TurnNumber {
        let number = self.next_urgent;
        self.next_urgent += 1;
        self.urgent.insert(number, Lease { since_us: now_us, owner });
        number
    }

    /// An urgent operation has ended.
    pub(super) fn end_urgent(&mut self, number: TurnNumber, now_us: u64) -> TurnChange<W> {
        // Unless it has expired.
        if self.urgent.remove(&number).is_some() {
            self.urgent_until_us = now_us.saturating_add(URGENT_TRUST_US);
        }
        self.settle(now_us)
    }

    /// Queues a bulk read of a client.
    pub(super) fn begin_bulk(
        &mut self,
        key: u64,
        read: W,
        now_us: u64,
    ) -> (TurnNumber, TurnChange<W>) {
        let number = self.next_number;
        self.next_number += 1;
        if self.clients.is_empty() {
            self.served_us = self.served_us.max(now_us);
        }
        match self.clients.get_mut(&key) {
            Some(client) => _ = client.reads.insert(number, read),
            None => {
                let (ticket, reads) = (self.line_up(key), BTreeMap::from([(number, read)]));
                self.clients.insert(key, BulkClient { ticket, reads });
            }
        }
        (number, self.settle(now_us))
    }

    /// A bulk read has ended, or leaves the queue.
    pub(super) fn end_bulk(&mut self, key: u64, number: TurnNumber, now_us: u64) -> TurnChange<W> {
        if self.remove(key, number).is_none() {
            let runs = |place: &BulkPlace<W>| place.running.iter().any(|(own, _)| *own == number);
            // Unless it has expired.
            if let Some(at) = self.places.iter().position(runs) {
                self.leave_place(at, number);
            }
        }
        self.settle(now_us)
    }

    /// The time of a reminder has come.
    pub(super) fn remind(&mut self, number: TurnNumber, due_us: u64, now_us: u64) -> TurnChange<W> {
        if self.reminded != Some((number, due_us)) {
            return TurnChange { granted: Vec::new(), expired: Vec::new(), reminder: None };
        }
        self.reminded = None;
        self.settle(now_us)
    }

    /// True if no operation is under way or waits.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let is_busy = self.places.iter().any(|place| !place.running.is_empty());
        self.urgent.is_empty() && !is_busy && self.clients.is_empty() && self.order.is_empty()
    }

    fn leave_place(&mut self, at: usize, number: TurnNumber) {
        let place = &mut self.places[at];
        place.running.retain(|(own, _)| *own != number);
        let (is_free, key) = (place.running.is_empty(), place.key);
        if place.reads >= READS_OF_TURN {
            self.put_last(key);
        }
        if is_free && self.places.len() > self.bulk_max {
            self.places.swap_remove(at);
        }
    }

    /// The last place in the queue, for a client.
    fn line_up(&mut self, key: u64) -> QueueTicket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.order.insert(ticket, key);
        ticket
    }

    /// Lets all other clients go first.
    fn put_last(&mut self, key: u64) {
        let Some(ticket) = self.clients.get(&key).map(|client| client.ticket) else { return };
        self.order.remove(&ticket);
        let ticket = self.line_up(key);
        if let Some(client) = self.clients.get_mut(&key) {
            client.ticket = ticket;
        }
    }

    /// Takes a waiting read out of the queue.
    fn remove(&mut self, key: u64, number: TurnNumber) -> Option<W> {
        let client = self.clients.get_mut(&key)?;
        let read = client.reads.remove(&number)?;
        if client.reads.is_empty() {
            self.order.remove(&client.ticket);
            self.clients.remove(&key);
        }
        self.reminded.take_if(|(reminded, _)| *reminded == number);
        Some(read)
    }

    /// Ends the turns of operations that take too long, then starts all reads that may start now.
    fn settle(&mut self, now_us: u64) -> TurnChange<W> {
        let (expired, mut granted) = (self.expire(now_us), Vec::new());
        while !self.clients.is_empty() {
            let is_overdue = !self.urgent.is_empty();
            if is_overdue && (now_us < self.due_us() || !self.has_free_place()) {
                break;
            }
            let Some((number, read)) = self.take_next(now_us) else { break };
            self.served_us = now_us;
            granted.push(Granted { number, read, is_overdue });
        }
        TurnChange { granted, expired, reminder: self.reminder() }
    }

    fn expire(&mut self, now_us: u64) -> Vec<ExpiredTurn<W>> {
        let mut expired = Vec::new();
        while let Some(oldest) = self.urgent.first_entry()
            && oldest.get().end_us() <= now_us
        {
            let (number, Lease { owner, .. }) = oldest.remove_entry();
            expired.push(ExpiredTurn { number, owner, is_urgent: true });
        }
        for place in &mut self.places {
            let late = place.running.extract_if(.., |(_, lease)| lease.end_us() <= now_us);
            expired.extend(late.map(|(number, Lease { owner, .. })| ExpiredTurn {
                number,
                owner,
                is_urgent: false,
            }));
        }
        let busy = |place: &BulkPlace<W>| !place.running.is_empty();
        while self.places.len() > self.bulk_max
            && let Some(at) = self.places.iter().position(|place| !busy(place))
        {
            self.places.swap_remove(at);
        }
        expired
    }

    fn has_free_place(&self) -> bool {
        self.places.iter().any(|place| place.running.is_empty())
    }

    fn due_us(&self) -> u64 {
        self.served_us.saturating_add(PATIENCE_US)
    }

    /// The next read, with a place for it: of a client with a turn that goes on, else of the next
    /// client in turn. A client has two places only if no other one wants one.
    fn take_next(&mut self, now_us: u64) -> Option<(TurnNumber, W)> {
        let is_quiet = self.urgent.is_empty() && now_us >= self.urgent_until_us;
        let running_max = if is_quiet { READS_OF_PLACE } else { 1 };
        let going_on =
            (0..self.places.len()).find(|place| self.has_client_going_on(*place, running_max));
        let (place, key, reads) = match going_on {
            Some(place) => (place, self.places[place].key, self.places[place].reads),
            None => {
                let place = self.places.iter().position(|place| place.running.is_empty())?;
                // At most one client in each place is passed over.
                let mut keys = self.order.values().copied();
                let key = keys.find(|key| !self.runs(*key));
                (place, key.or_else(|| self.order.values().next().copied())?, 0)
            }
        };
        let number = *self.clients.get(&key)?.reads.keys().next()?;
        let read = self.remove(key, number)?;
        if reads == 0 {
            self.put_last(key);
        }
        let place = &mut self.places[place];
        place.running.push((number, Lease { since_us: now_us, owner: read.clone() }));
        (place.key, place.reads) = (key, reads + 1);
        Some((number, read))
    }

    /// True if a client waits that has a turn in this place, and may go on with it.
    fn has_client_going_on(&self, place: usize, running_max: usize) -> bool {
        let BulkPlace { running, key, reads } = &self.places[place];
        let has_turn = running.len() < running_max && (1..READS_OF_TURN).contains(reads);
        let is_elsewhere = running.is_empty() && self.runs(*key);
        has_turn && !is_elsewhere && self.clients.contains_key(key)
    }

    fn runs(&self, key: u64) -> bool {
        self.places.iter().any(|place| !place.running.is_empty() && place.key == key)
    }

    /// A timer for reads that wait for urgent operations alone, or for an operation that may never
    /// end. All other waits end with a read.
    fn reminder(&mut self) -> Option<(W, TurnNumber, u64)> {
        let first = self.order.values().next()?;
        let due_us = match self.has_free_place() {
            true => self.due_us(),
            false => {
                let running = self.places.iter().flat_map(|place| &place.running);
                running.map(|(_, lease)| lease.end_us()).min()?
            }
        };
        if self.reminded.is_some_and(|(_, known_us)| known_us <= due_us) {
            return None;
        }
        // The one that waits longest, so that few reads pass a distant reminder on.
        let last = self.order.values().next_back()?;
        let key = if self.has_free_place() { first } else { last };
        let mut reads = self.clients.get(key)?.reads.iter();
        let (number, read) =
            if self.has_free_place() { reads.next()? } else { reads.next_back()? };
        let reminder = (read.clone(), *number, due_us);
        self.reminded = Some((*number, due_us));
        Some(reminder)
    }
}
