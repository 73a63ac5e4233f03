//! The order of operations at one device, without clocks, locks or wake-ups.
//!
//! Urgent operations start at once and are only counted. Bulk reads wait while one of them is under
//! way, but not longer than [`PATIENCE_US`] between two bulk reads, and while as many bulk reads
//! are under way as the device may have. They are taken from their clients in turn. A turn has
//! several reads, because a disk seeks between two clients, and hardly between two reads of one.

use std::collections::VecDeque;

/// Longest time between the starts of two bulk reads that is due to urgent operations.
pub(super) const PATIENCE_US: u64 = 50_000;

/// Reads of a client in a row while others wait. With 1, four downloads on two disks had half of
/// the rate.
pub(super) const READS_OF_TURN: u32 = 8;

/// Identifies a waiting read at its device.
pub(super) type TurnNumber = u64;

/// Operations at a device. `W` is the read that waits.
pub(super) struct DeviceOrder<W> {
    bulk_max: usize,
    urgent: usize,
    /// Time until which more urgent operations are expected.
    urgent_until_us: u64,
    places: Vec<BulkPlace>,
    /// Clients with waiting reads; the first one is next.
    clients: VecDeque<BulkClient<W>>,
    next_number: TurnNumber,
    /// Time of the last start of a bulk read, or of the first one that waits since none did.
    served_us: u64,
    /// The owner of this read is to call [`DeviceOrder::remind`].
    reminded: Option<TurnNumber>,
}

/// Reads of one client under way in one place of a device without urgent operations: the disk goes
/// on with the next one while the end of the first one reaches the event loop. With two, four
/// downloads had 0.87 of the rate without an order, and one download 0.88.
pub(super) const READS_OF_PLACE: usize = 3;

/// Time after the last urgent operation for which a place has one read at a time: a second one
/// doubled the wait of urgent operations.
pub(super) const URGENT_TRUST_US: u64 = 250_000;

/// A place for the reads of one client at a time.
#[derive(Clone, Default)]
struct BulkPlace {
    running: Vec<TurnNumber>,
    /// The client of these reads, or of the last one.
    key: u64,
    /// Reads of this client here in a row.
    reads: u32,
}

/// The waiting reads of one client, oldest first.
struct BulkClient<W> {
    key: u64,
    reads: VecDeque<(TurnNumber, W)>,
}

/// A bulk read that may start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Granted<W> {
    pub(super) number: TurnNumber,
    pub(super) read: W,
    /// It starts beside urgent operations because it has waited for too long.
    pub(super) is_overdue: bool,
}

/// Consequences of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TurnChange<W> {
    pub(super) granted: Vec<Granted<W>>,
    /// The owner of this read calls [`DeviceOrder::remind`] at this time.
    pub(super) reminder: Option<(W, TurnNumber, u64)>,
}

impl<W: Clone> DeviceOrder<W> {
    /// A device without operations, for at most `bulk_max` bulk reads at a time.
    pub(super) fn new(bulk_max: usize) -> Self {
        let bulk_max = bulk_max.max(1);
        DeviceOrder {
            bulk_max,
            urgent: 0,
            urgent_until_us: 0,
            places: vec![BulkPlace::default(); bulk_max],
            clients: VecDeque::new(),
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
    pub(super) fn begin_urgent(&mut self) {
        self.urgent += 1;
    }

    /// An urgent operation has ended.
    pub(super) fn end_urgent(&mut self, now_us: u64) -> TurnChange<W> {
        debug_assert!(self.urgent > 0, "an urgent operation ends twice");
        self.urgent = self.urgent.saturating_sub(1);
        self.urgent_until_us = now_us.saturating_add(URGENT_TRUST_US);
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
        match self.clients.iter_mut().find(|client| client.key == key) {
            Some(client) => client.reads.push_back((number, read)),
            None => {
                let reads = VecDeque::from([(number, read)]);
                self.clients.push_back(BulkClient { key, reads });
            }
        }
        (number, self.settle(now_us))
    }

    /// A bulk read has ended, or leaves the queue.
    pub(super) fn end_bulk(&mut self, key: u64, number: TurnNumber, now_us: u64) -> TurnChange<W> {
        if !self.remove(key, number) {
            let at = self.places.iter().position(|place| place.running.contains(&number));
            debug_assert!(at.is_some(), "a bulk read ends twice");
            if let Some(at) = at {
                self.leave_place(at, number);
            }
        }
        self.settle(now_us)
    }

    /// The time of a reminder has come.
    pub(super) fn remind(&mut self, number: TurnNumber, now_us: u64) -> TurnChange<W> {
        if self.reminded != Some(number) {
            return TurnChange { granted: Vec::new(), reminder: None };
        }
        self.reminded = None;
        self.settle(now_us)
    }

    /// True if no operation is under way or waits.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let is_busy = self.places.iter().any(|place| !place.running.is_empty());
        self.urgent == 0 && !is_busy && self.clients.is_empty()
    }

    fn leave_place(&mut self, at: usize, number: TurnNumber) {
        let place = &mut self.places[at];
        place.running.retain(|own| *own != number);
        let (is_free, key) = (place.running.is_empty(), place.key);
        if place.reads >= READS_OF_TURN {
            self.put_last(key);
        }
        if is_free && self.places.len() > self.bulk_max {
            self.places.swap_remove(at);
        }
    }

    /// Lets all other clients go first.
    fn put_last(&mut self, key: u64) {
        if let Some(at) = self.clients.iter().position(|client| client.key == key)
            && let Some(client) = self.clients.remove(at)
        {
            self.clients.push_back(client);
        }
    }

    fn remove(&mut self, key: u64, number: TurnNumber) -> bool {
        let Some(at) = self.clients.iter().position(|client| client.key == key) else {
            return false;
        };
        let reads = &mut self.clients[at].reads;
        let Some(place) = reads.iter().position(|(own, _)| *own == number) else { return false };
        reads.remove(place);
        if reads.is_empty() {
            self.clients.remove(at);
        }
        if self.reminded == Some(number) {
            self.reminded = None;
        }
        true
    }

    /// Starts all reads that may start now.
    fn settle(&mut self, now_us: u64) -> TurnChange<W> {
        let mut granted = Vec::new();
        while !self.clients.is_empty() {
            let is_overdue = self.urgent > 0;
            if is_overdue && (now_us < self.due_us() || !self.has_free_place()) {
                break;
            }
            let Some((number, read)) = self.take_next(now_us) else { break };
            self.served_us = now_us;
            granted.push(Granted { number, read, is_overdue });
        }
        TurnChange { granted, reminder: self.reminder() }
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
        let is_quiet = self.urgent == 0 && now_us >= self.urgent_until_us;
        let running_max = if is_quiet { READS_OF_PLACE } else { 1 };
        let going_on = (0..self.places.len())
            .find_map(|place| Some((place, self.client_going_on(place, running_max)?)));
        let (place, client, reads) = match going_on {
            Some((place, client)) => (place, client, self.places[place].reads),
            None => {
                let place = self.places.iter().position(|place| place.running.is_empty())?;
                let idle = |client: &BulkClient<W>| !self.runs(client.key);
                let client = self.clients.iter().position(idle).unwrap_or(0);
                (place, client, 0)
            }
        };
        let key = self.clients.get(client)?.key;
        let next = self.clients[client].reads.pop_front()?;
        let place = &mut self.places[place];
        place.running.push(next.0);
        (place.key, place.reads) = (key, reads + 1);
        if reads == 0 || self.clients[client].reads.is_empty() {
            let client = self.clients.remove(client)?;
            if !client.reads.is_empty() {
                self.clients.push_back(client);
            }
        }
        if self.reminded == Some(next.0) {
            self.reminded = None;
        }
        Some(next)
    }

    /// The waiting client with a turn that goes on in this place.
    fn client_going_on(&self, place: usize, running_max: usize) -> Option<usize> {
        let BulkPlace { running, key, reads } = &self.places[place];
        let has_turn = running.len() < running_max && (1..READS_OF_TURN).contains(reads);
        let at = self.clients.iter().position(|client| client.key == *key)?;
        let is_elsewhere = running.is_empty() && self.runs(*key);
        (has_turn && !is_elsewhere).then_some(at)
    }

    fn runs(&self, key: u64) -> bool {
        self.places.iter().any(|place| !place.running.is_empty() && place.key == key)
    }

    /// Reads that wait for urgent operations alone need a timer. All other waits end with a read.
    fn reminder(&mut self) -> Option<(W, TurnNumber, u64)> {
        if !self.has_free_place() || self.reminded.is_some() {
            return None;
        }
        let (number, read) = self.clients.front()?.reads.front()?;
        let reminder = (read.clone(), *number, self.due_us());
        self.reminded = Some(*number);
        Some(reminder)
    }
}
