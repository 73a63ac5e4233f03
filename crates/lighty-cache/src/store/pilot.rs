//! The owner of a flight: what becomes of the response that it fetches.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::{Pilot, unpoisoned};
use crate::disk::LargeWriter;
use crate::flight::{FAILURE_BITS, FetchFailure, FlightHead};
use crate::object::{Content, Object, StoredHead};
use crate::spill::{Arrival, Spill};

impl Pilot {
    /// The response is shared: its head is here.
    pub fn depart(&self, head: FlightHead) {
        self.flight.depart(Arc::new(head));
    }

    /// Adds a piece of the body. Returns false once the body is too large to be stored, or bodies
    /// that arrive take too much of the memory: it goes on to its readers, and later requests begin
    /// a flight of their own.
    pub fn push(&mut self, piece: Bytes) -> bool {
        let limits = *unpoisoned(&self.store.limits);
        let bytes = piece.len() as u64;
        self.pushed += bytes;
        let arriving = &self.store.counters.arriving_bytes;
        let all =
            if self.is_spilled { 0 } else { arriving.fetch_add(bytes, Ordering::Relaxed) + bytes };
        let most = (limits.memory / 2).max(limits.memory_object_bytes().min(limits.memory));
        self.flight.push(piece);
        self.store.make_room();
        let mut is_storable = self.pushed <= limits.object_bytes;
        let is_large = self.pushed > limits.memory_object_bytes()
            || all > most
            || !self.is_spilled && self.store.is_crowded();
        if is_storable && (self.spill.is_some() || is_large) {
            is_storable = self.spill();
        }
        if !is_storable {
            self.spill = None;
            self.leave_index();
            self.flight.narrow();
        }
        is_storable
    }

    /// Has the body written to a file. Returns false if it cannot be.
    fn spill(&mut self) -> bool {
        if let Some(spill) = &self.spill {
            return spill.advance();
        }
        let Some(disk) = self.store.disk.as_ref().filter(|disk| disk.is_ready()) else {
            return false;
        };
        let spill = Spill::new(disk, &self.flight);
        // From now on it is in the file, and not in memory.
        self.store.counters.arriving_bytes.fetch_sub(self.pushed, Ordering::Relaxed);
        self.is_spilled = true;
        self.spill.insert(spill).advance()
    }

    /// Ready unless too much of a large body waits for a slow reader.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let memory = unpoisoned(&self.store.limits).memory;
        let flights = self.store.counters.flights.load(Ordering::Relaxed).max(1);
        self.flight.poll_room(cx, memory / 2 / flights)
    }

    /// Ready once no request waits for the response.
    pub fn poll_empty(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flight.poll_empty(cx)
    }

    /// Number of requests that wait for the response or read it.
    pub fn passengers(&self) -> usize {
        self.flight.passengers()
    }

    /// The body is complete: stores the response.
    pub fn land(mut self) {
        match self.spill.take() {
            Some(spill) => spill.finish(Box::new(self)),
            None => self.land_from_memory(),
        }
    }

    fn land_from_memory(self) {
        let Some(content) = self.flight.content() else { return Box::new(self).land_unstored() };
        let Some(object) = self.object(content) else { return };
        self.flight.share(&object.content);
        self.store.put(&object, true);
        let limits = *unpoisoned(&self.store.limits);
        if let Some(disk) = &self.store.disk
            && object.content.len() > limits.disk_from_bytes
        {
            disk.save(&object);
        }
        let is_in_memory = self.store.has_in_memory(&object);
        if !is_in_memory {
            self.flight.unshare();
        }
        match self.is_sliced && is_in_memory {
            true => self.flight.land_stored(&object),
            false => self.flight.land(&object),
        }
    }

    /// The readers of the response look it up again if it leaves the store before they have read
    /// it: the flight keeps no memory of a stored body.
    pub fn set_sliced(&mut self) {
        self.is_sliced = true;
    }

    /// Removes readers of a body too large to be stored that hold others up, and have read almost
    /// nothing since the last call. Returns their number.
    pub fn drop_stalled(&self) -> usize {
        self.flight.drop_stalled()
    }

    /// The response with a body.
    fn object(&self, content: Content) -> Option<Arc<Object>> {
        let head = self.flight.head()?;
        let place = (self.key.clone(), head.selecting.clone());
        Some(Arc::new(Object::new(place, head.head.clone(), content, self.sent_at)))
    }

    /// Stores new fields for a response with a valid body.
    pub fn renew(self, stored: &Object, head: StoredHead) {
        let place = (self.key.clone(), stored.selecting.clone());
        let (content, sent_at) = (stored.content.clone(), self.sent_at);
        let object = Arc::new(Object::new(place, head, content, sent_at));
        self.store.put(&object, false);
        self.flight.land(&object);
    }

    /// A stored response serves the waiting requests.
    pub fn land_as(&self, stored: &Arc<Object>) {
        self.leave_index();
        self.flight.land(stored);
    }

    /// True if the flight began because another one of the same response had brought nothing for
    /// too long.
    pub fn is_second(&self) -> bool {
        self.flight.is_second()
    }

    /// There is no response. Waiting requests fail like this.
    pub fn fail(self, failure: FetchFailure) {
        self.leave_index();
        self.flight.fail(failure);
    }

    /// Lets the waiting requests begin again.
    pub fn retry(self) {
        self.leave_index();
        self.flight.retry();
    }

    /// Until then, no request of the key waits for another; milliseconds of the monotonic clock.
    pub fn mark(&self, until_ms: u64, has_credentials: bool) {
        let mark = self.store.hasher.hash_one((&self.key, has_credentials));
        self.store.note(&mut unpoisoned(self.store.shard(&self.key)), mark, until_ms);
    }

    /// Until then, no fetch of the key begins, because this one has failed; milliseconds of the
    /// monotonic clock.
    pub fn hold(&self, until_ms: u64, has_credentials: bool, failure: FetchFailure) {
        let hash = self.store.failure_hash(&self.key, has_credentials);
        let note = until_ms << FAILURE_BITS | failure.pack();
        self.store.note(&mut unpoisoned(self.store.shard(&self.key)), hash, note);
    }

    /// The response is for one request alone.
    pub fn part(self) {
        self.leave_index();
        self.flight.part();
    }

    fn leave_index(&self) {
        let mut shard = unpoisoned(self.store.shard(&self.key));
        let Some(resource) = shard.resources.get_mut(&self.key) else { return };
        resource.flights.retain(|known| !Arc::ptr_eq(&known.flight, &self.flight));
        shard.tidy(&self.key);
    }
}

impl Arrival for Pilot {
    fn land_unstored(self: Box<Self>) {
        if let Some(object) = self.object(Content::default()) {
            self.leave_index();
            self.flight.narrow();
            self.flight.land(&object);
        }
    }

    fn land_large(self: Box<Self>, writer: LargeWriter) {
        let Some(disk) = self.store.disk.clone() else { return };
        let (number, length) = (writer.number, writer.written());
        let finished = disk.finish_large(writer);
        disk.discount_arriving(length);
        let stored = match finished {
            Ok(stored) => stored,
            Err(error) => {
                disk.note_write_error(&error);
                disk.abandon_large(number);
                return self.land_unstored();
            }
        };
        let Some(object) = self.object(Content::on_disk(stored, length)) else { return };
        self.store.put(&object, true);
        if !disk.save(&object) {
            self.store.remove(&object);
            disk.abandon_large(number);
        }
        self.flight.land(&object);
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.leave_index();
        self.flight.fail(FetchFailure::GIVEN_UP);
        if !self.is_spilled {
            self.store.counters.arriving_bytes.fetch_sub(self.pushed, Ordering::Relaxed);
        }
        unpoisoned(&self.store.held).leave(self.store.purges.url(&self.key));
        self.store.counters.flights.fetch_sub(1, Ordering::Relaxed);
        self.store.moments.leave(self.sent_at);
    }
}
