//! Encoded forms of stored responses: objects with [keys of their own](Key::form), which belong to
//! one body of a variant.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lighty_http::{Fields, Known};

use super::{FLIGHTS_MAX, KnownFlight, Pilot, ResponseStore, unpoisoned};
use crate::disk::DiskPlace;
use crate::flight::{Flight, FlightHead, Passenger};
use crate::object::{Object, StoredHead};

/// An encoded form of a stored response: a coding with its parameters.
#[derive(Clone, Copy, Debug)]
pub struct FormOf<'a> {
    /// The response whose body is encoded.
    pub object: &'a Object,
    /// Name of the form.
    pub name: &'a [u8],
}

/// A form that is being made.
#[derive(Debug)]
pub enum JoinedForm {
    /// Another request has begun it.
    Passenger(Passenger),
    /// This request begins it, and is its first passenger.
    Begins(Pilot, Passenger),
}

impl FormOf<'_> {
    fn key(&self) -> crate::key::Key {
        self.object.key.form(self.name, &self.object.selecting)
    }

    /// True if a form belongs to this body, and not to an earlier one.
    fn is_of_body(&self, head: &StoredHead) -> bool {
        head.fields.get(Known::ETag) == Some(&*self.object.body_version())
    }

    /// The head of the form. Its one field names the body; everything else is in the head of the
    /// response.
    fn head(&self) -> FlightHead {
        let mut fields = Fields::default();
        fields.push_known(Known::ETag, self.object.body_version());
        let of = &self.object.head;
        let head = StoredHead {
            status: of.status,
            fields,
            freshness: of.freshness,
            names: Box::default(),
            language: None,
            tags: of.tags.clone(),
        };
        FlightHead { head, selecting: Box::default(), length: None }
    }
}

impl ResponseStore {
    /// The form, if it is in memory. Counts as a use.
    pub fn find_form(&self, of: FormOf<'_>) -> Option<Arc<Object>> {
        let key = of.key();
        let object = {
            let shard = unpoisoned(self.shard(&key));
            shard.resources.get(&key)?.variants.last().cloned()?
        };
        if !of.is_of_body(&object.head) {
            return None;
        }
        if self.purges.check(&object).hard {
            self.remove(&object);
            return None;
        }
        self.counters.form_hits.fetch_add(1, Ordering::Relaxed);
        object.touch();
        Some(object)
    }

    /// Looks up where the form lies on the disk. No I/O.
    pub fn locate_form(&self, of: FormOf<'_>) -> Option<DiskPlace> {
        self.disk.as_ref()?.locate(&of.key(), &Fields::default())
    }

    /// Reads the form from the disk. `None` if it is not there any more, or belongs to an earlier
    /// body. For threads that may wait for the disk.
    pub fn load_form(&self, of: FormOf<'_>, place: &DiskPlace) -> Option<Arc<Object>> {
        if let Some(object) = self.find_form(of) {
            return Some(object);
        }
        let object = self.load_from(place)?;
        if !of.is_of_body(&object.head) {
            self.remove(&object);
            return None;
        }
        self.counters.form_hits.fetch_add(1, Ordering::Relaxed);
        Some(object)
    }

    /// Boards the making of the form, if another request has begun it.
    pub fn board_form(&self, of: FormOf<'_>) -> Option<Passenger> {
        let key = of.key();
        let shard = unpoisoned(self.shard(&key));
        board(&shard.resources.get(&key)?.flights, of)
    }

    /// Joins the making of the form, or begins it. `None` if too many wait, or if the form of an
    /// earlier body is still being made.
    pub fn join_form(self: &Arc<Self>, of: FormOf<'_>) -> Option<JoinedForm> {
        let is_full = self.counters.flights.load(Ordering::Relaxed) >= FLIGHTS_MAX;
        if is_full || self.is_crowded() {
            return None;
        }
        let key = of.key();
        let mut shard = unpoisoned(self.shard(&key));
        if let Some(resource) = shard.resources.get(&key)
            && !resource.flights.is_empty()
        {
            return board(&resource.flights, of).map(JoinedForm::Passenger);
        }
        let flight = Arc::new(Flight::new(&self.beside, key.as_bytes().len(), false));
        let passenger = flight.board()?;
        flight.depart(Arc::new(of.head()));
        // A purge since then is about the response, and about its forms.
        let sent_at = of.object.sent_at;
        self.moments.enter(sent_at);
        let known = KnownFlight {
            selecting: None,
            flight: Arc::clone(&flight),
            sent_at,
            is_forsaken: false,
        };
        shard.resources.entry(key.clone()).or_default().flights.push(known);
        self.counters.flights.fetch_add(1, Ordering::Relaxed);
        drop(shard);
        unpoisoned(&self.held).enter(self.purges.url(&key));
        let store = Arc::clone(self);
        let (spill, is_spilled, is_sliced) = (None, false, false);
        let pilot = Pilot { store, key, flight, sent_at, pushed: 0, spill, is_spilled, is_sliced };
        Some(JoinedForm::Begins(pilot, passenger))
    }
}

/// A place in the flight that makes a form.
fn board(flights: &[KnownFlight], of: FormOf<'_>) -> Option<Passenger> {
    let is_it =
        |known: &&KnownFlight| known.flight.head().is_some_and(|head| of.is_of_body(&head.head));
    flights.iter().find(is_it)?.flight.board()
}
