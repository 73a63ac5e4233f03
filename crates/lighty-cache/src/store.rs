//! The store: an index in parts with a lock each, and the queues that decide about eviction.
//!
//! No lock is held during I/O or while another one is taken, but for the queues' and then a part's.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use foldhash::quality::RandomState;
use lighty_http::Fields;

use crate::eviction::Queues;
use crate::flight::{Flight, FlightHead, Passenger};
use crate::key::Key;
use crate::object::{Object, StoredHead};
use crate::purge::{KeyPlaces, PurgeKind, PurgeScope, Purges};
use crate::rules::{preferred_language_key, selecting_key};

/// Parts of the index.
const SHARDS: usize = 64;

/// Marks of keys without stored responses, per part of the index.
const MARKS_MAX: usize = 65_536 / SHARDS;

/// Flights under way, in the whole store.
pub const FLIGHTS_MAX: u64 = 65_536;

/// Limits of a store. They may change while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory for all objects.
    pub memory: u64,
    /// Bytes of the largest body that is stored.
    pub object_bytes: u64,
    /// Variants of one resource.
    pub variants: usize,
}

/// Counters of a store.
#[derive(Debug, Default)]
pub struct StoreCounters {
    /// Objects stored.
    pub stored: AtomicU64,
    /// Objects that left for lack of room.
    pub evicted: AtomicU64,
    /// Objects found purged.
    pub purged: AtomicU64,
    /// Requests for which a stored response was found, fresh or stale.
    pub hits: AtomicU64,
    /// Flights begun.
    pub misses: AtomicU64,
    /// Flights under way.
    pub flights: AtomicU64,
    /// Requests that wait for a flight.
    pub waiting: AtomicU64,
    /// Requests by the result that their server gives them.
    pub results: [AtomicU64; 11],
    /// Bytes of stored bodies that were served.
    pub saved_bytes: AtomicU64,
    /// Bytes of the bodies that flights have brought so far.
    pub arriving_bytes: AtomicU64,
}

/// A store of responses.
#[derive(Debug)]
pub struct ResponseStore {
    shards: Box<[Mutex<Shard>]>,
    held: Mutex<Held>,
    limits: Mutex<Limits>,
    hasher: RandomState,
    purges: Purges,
    counters: StoreCounters,
}

/// Everything that is stored or being fetched.
#[derive(Debug, Default)]
struct Held {
    queues: Queues,
    /// Objects and flights by hash of host and target.
    urls: HashMap<u64, u32, foldhash::fast::RandomState>,
}

impl Held {
    fn enter(&mut self, url: u64) {
        *self.urls.entry(url).or_default() += 1;
    }

    fn leave(&mut self, url: u64) {
        if let Some(count) = self.urls.get_mut(&url) {
            *count -= 1;
            if *count == 0 {
                self.urls.remove(&url);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    resources: HashMap<Key, Resource, foldhash::fast::RandomState>,
    /// Hashes of keys and of whether requests have credentials, with the millisecond of the
    /// monotonic clock up to which their responses are not shared.
    marks: HashMap<u64, u64, foldhash::fast::RandomState>,
}

/// All that is known of a key.
#[derive(Debug, Default)]
struct Resource {
    /// Names of the request fields that select among the variants.
    names: Box<[Box<[u8]>]>,
    /// The newest last.
    variants: Vec<Arc<Object>>,
    flights: Vec<KnownFlight>,
}

/// A flight of a resource.
#[derive(Debug)]
struct KnownFlight {
    /// Values of the selecting fields, if their names were known when it began.
    selecting: Option<Box<[u8]>>,
    flight: Arc<Flight>,
    /// Moment at which its request was sent.
    sent_at: u64,
}

/// A place in a flight.
#[derive(Debug)]
pub enum Joined {
    /// Another request fetches the response.
    Passenger(Passenger),
    /// This request begins a flight, and is its first passenger.
    Begins(Pilot, Passenger),
    /// Responses of this key are not shared for now.
    Passes,
    /// Too many wait.
    Full,
}

/// The owner of a flight. Dropped, it ends the flight.
#[derive(Debug)]
pub struct Pilot {
    store: Arc<ResponseStore>,
    key: Key,
    flight: Arc<Flight>,
    sent_at: u64,
    /// Bytes of the body so far.
    pushed: u64,
}

impl ResponseStore {
    /// An empty store. `places` tells which parts of its keys are host and target.
    pub fn new(limits: Limits, places: KeyPlaces) -> Arc<Self> {
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            held: Mutex::default(),
            limits: Mutex::new(limits),
            hasher: RandomState::default(),
            purges: Purges::new(places),
            counters: StoreCounters::default(),
        })
    }

    /// Changes the limits.
    pub fn limit(&self, limits: Limits) {
        *unpoisoned(&self.limits) = limits;
        self.make_room();
    }

    /// Its counters.
    pub fn counters(&self) -> &StoreCounters {
        &self.counters
    }

    /// Bytes of the largest body that is stored.
    pub fn object_bytes_max(&self) -> u64 {
        unpoisoned(&self.limits).object_bytes
    }

    /// Number of objects, and the bytes that they take.
    pub fn extent(&self) -> (usize, u64) {
        let held = unpoisoned(&self.held);
        (held.queues.count(), held.queues.bytes())
    }

    /// Number of purge rules.
    pub fn purge_rules(&self) -> usize {
        self.purges.count()
    }

    /// The stored response for a request, fresh or stale. Counts as a use.
    pub fn find(&self, key: &Key, request: &Fields) -> Option<Arc<Object>> {
        self.find_noting(key, request, &mut false)
    }

    /// Like [`Self::find`]; sets `is_purged` if the response was found purged.
    pub fn find_noting(
        &self,
        key: &Key,
        request: &Fields,
        is_purged: &mut bool,
    ) -> Option<Arc<Object>> {
        let object = {
            let shard = unpoisoned(self.shard(key));
            let resource = shard.resources.get(key)?;
            resource.select(request)?
        };
        let purged = self.purges.check(&object);
        if purged.hard {
            self.counters.purged.fetch_add(1, Ordering::Relaxed);
            self.remove(&object);
            *is_purged = true;
            return None;
        }
        if purged.soft {
            object.make_stale();
        }
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        object.touch();
        Some(object)
    }

    /// Joins the flight for a request, or begins one.
    pub fn join(
        self: &Arc<Self>,
        key: &Key,
        request: &Fields,
        has_credentials: bool,
        now_ms: u64,
    ) -> Joined {
        let mut shard = unpoisoned(self.shard(key));
        let mark = self.hasher.hash_one((key, has_credentials));
        let is_marked = shard.marks.get(&mark).is_some_and(|until_ms| *until_ms > now_ms);
        let is_full = self.counters.flights.load(Ordering::Relaxed) >= FLIGHTS_MAX;
        if is_marked || is_full {
            return if is_marked { Joined::Passes } else { Joined::Full };
        }
        let resource = shard.resources.entry(key.clone()).or_default();
        let selecting = match (&*resource.names, resource.variants.is_empty()) {
            ([], true) => None,
            (names, _) => Some(selecting_key(names, request).into_boxed_slice()),
        };
        let fits = |known: &&KnownFlight| {
            let head = known.flight.head();
            let tags = head.as_ref().map_or(&[][..], |head| &head.head.tags);
            // A purge since then is about its response, too.
            let purged = self.purges.compare(key, tags, known.sent_at);
            !purged.hard
                && !purged.soft
                && match head {
                    Some(head) => *selecting_key(&head.head.names, request) == *head.selecting,
                    None => known.selecting.is_none() || known.selecting == selecting,
                }
        };
        if let Some(known) = resource.flights.iter().find(fits) {
            return known.flight.board().map_or(Joined::Full, Joined::Passenger);
        }
        let flight = Arc::new(Flight::default());
        let Some(passenger) = flight.board() else { return Joined::Full };
        let sent_at = self.purges.now();
        resource.flights.push(KnownFlight { selecting, flight: Arc::clone(&flight), sent_at });
        self.counters.flights.fetch_add(1, Ordering::Relaxed);
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        drop(shard);
        unpoisoned(&self.held).enter(self.purges.url(key));
        let (store, key) = (Arc::clone(self), key.clone());
        Joined::Begins(Pilot { store, key, flight, sent_at, pushed: 0 }, passenger)
    }

    /// Lets later requests begin a flight in place of the one of this passenger.
    pub fn forsake(&self, key: &Key, passenger: &Passenger) {
        let mut shard = unpoisoned(self.shard(key));
        if let Some(resource) = shard.resources.get_mut(key) {
            resource.flights.retain(|known| !passenger.is_on(&known.flight));
        }
    }

    /// Adds a purge rule.
    pub fn purge(&self, scope: PurgeScope<'_>, kind: PurgeKind) -> u64 {
        self.purges.add(scope, kind)
    }

    /// Removes the responses of a URL with all variants, if there are any: for requests that change
    /// it, which may be many.
    pub fn invalidate(&self, host: &[u8], target: &[u8]) {
        let url = self.purges.url_of(host, target);
        if unpoisoned(&self.held).urls.contains_key(&url) {
            self.purges.add(PurgeScope::Url(host, target), PurgeKind::Hard);
        }
    }

    /// The hash that objects keep of a tag.
    pub fn tag(&self, tag: &[u8]) -> u64 {
        self.purges.tag(tag)
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// Puts an object into the index, in place of an equal variant.
    fn put(&self, object: &Arc<Object>) {
        let names = &object.head.names;
        let limits = *unpoisoned(&self.limits);
        if self.purges.compare(&object.key, &object.head.tags, object.sent_at).hard {
            return;
        }
        let mut gone = Vec::new();
        {
            let mut shard = unpoisoned(self.shard(&object.key));
            for has_credentials in [false, true] {
                let mark = self.hasher.hash_one((&object.key, has_credentials));
                shard.marks.remove(&mark);
            }
            let resource = shard.resources.entry(object.key.clone()).or_default();
            let has_other_names = resource.names != *names;
            resource.names.clone_from(names);
            let leaves =
                |known: &Arc<Object>| has_other_names || known.selecting == object.selecting;
            gone.extend(resource.variants.extract_if(.., |known| leaves(known)));
            while resource.variants.len() >= limits.variants.max(1) {
                gone.push(resource.variants.remove(0));
            }
            resource.variants.push(Arc::clone(object));
        }
        self.counters.stored.fetch_add(1, Ordering::Relaxed);
        {
            let mut held = unpoisoned(&self.held);
            let url = self.purges.url(&object.key);
            for one in gone.iter().filter(|one| one.remove()) {
                held.queues.forget(one);
                held.leave(url);
            }
            held.queues.add(object, self.hasher.hash_one(&object.key));
            held.enter(url);
        }
        self.make_room();
    }

    /// Removes an object.
    pub fn remove(&self, object: &Arc<Object>) {
        self.drop_from_index(object);
        // Objects are marked under this lock alone, so that none is counted twice.
        let mut held = unpoisoned(&self.held);
        if object.remove() {
            held.queues.forget(object);
            held.leave(self.purges.url(&object.key));
        }
    }

    fn drop_from_index(&self, object: &Arc<Object>) {
        let mut shard = unpoisoned(self.shard(&object.key));
        let Some(resource) = shard.resources.get_mut(&object.key) else { return };
        resource.variants.retain(|known| !Arc::ptr_eq(known, object));
        if resource.is_empty() {
            shard.resources.remove(&object.key);
        }
    }

    fn make_room(&self) {
        let most = unpoisoned(&self.limits).memory;
        loop {
            let evicted = {
                let mut held = unpoisoned(&self.held);
                if held.queues.bytes() <= most {
                    return;
                }
                let evicted = held.queues.evict(|object| self.hasher.hash_one(&object.key));
                evicted.inspect(|object| {
                    object.remove();
                    held.leave(self.purges.url(&object.key));
                })
            };
            let Some(object) = evicted else { return };
            self.counters.evicted.fetch_add(1, Ordering::Relaxed);
            self.drop_from_index(&object);
        }
    }
}

impl Resource {
    /// The variant for a request.
    fn select(&self, request: &Fields) -> Option<Arc<Object>> {
        let newest = self.variants.last()?;
        if self.names.is_empty() {
            return Some(Arc::clone(newest));
        }
        let selecting = selecting_key(&self.names, request);
        let newest = |is_it: &dyn Fn(&Object) -> bool| {
            self.variants.iter().rev().find(|object| is_it(object)).cloned()
        };
        newest(&|object| *object.selecting == *selecting).or_else(|| {
            let language = preferred_language_key(&self.names, request)?;
            newest(&|object| object.head.language.as_deref() == Some(&*language))
        })
    }

    fn is_empty(&self) -> bool {
        self.variants.is_empty() && self.flights.is_empty()
    }
}

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
        let all = arriving.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let most = (limits.memory / 2).max(limits.object_bytes);
        let is_storable = self.pushed <= limits.object_bytes && all <= most;
        if !is_storable {
            self.leave_index();
            self.flight.narrow();
        }
        self.flight.push(piece);
        is_storable
    }

    /// Ready unless too much of a large body waits for a slow reader.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flight.poll_room(cx)
    }

    /// Ready once no request waits for the response.
    pub fn poll_empty(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flight.poll_empty(cx)
    }

    /// Number of requests that wait for the response or read it.
    pub fn passengers(&self) -> usize {
        self.flight.passengers()
    }

    /// The body is complete: stores the response, and returns it. `None` if it is too large.
    pub fn land(self) -> Option<Arc<Object>> {
        let (head, content) = (self.flight.head()?, self.flight.content());
        let place = (self.key.clone(), head.selecting.clone());
        let is_whole = content.is_some();
        let content = content.unwrap_or_default();
        let object = Arc::new(Object::new(place, head.head.clone(), content, self.sent_at));
        if is_whole {
            self.store.put(&object);
        }
        self.flight.land(&object);
        Some(object).filter(|_| is_whole)
    }

    /// Stores new fields for a response with a valid body.
    pub fn renew(self, stored: &Object, head: StoredHead) {
        let place = (self.key.clone(), stored.selecting.clone());
        let (content, sent_at) = (stored.content.clone(), self.sent_at);
        let object = Arc::new(Object::new(place, head, content, sent_at));
        self.store.put(&object);
        self.flight.land(&object);
    }

    /// A stored response serves the waiting requests.
    pub fn land_as(&self, stored: &Arc<Object>) {
        self.leave_index();
        self.flight.land(stored);
    }

    /// There is no response. Waiting requests get this status.
    pub fn fail(self, status: u16) {
        self.leave_index();
        self.flight.fail(status);
    }

    /// Lets the waiting requests begin again.
    pub fn retry(self) {
        self.leave_index();
        self.flight.retry();
    }

    /// Until then, no request of the key waits for another; milliseconds of the monotonic clock.
    pub fn mark(&self, until_ms: u64, has_credentials: bool) {
        let mark = self.store.hasher.hash_one((&self.key, has_credentials));
        let mut shard = unpoisoned(self.store.shard(&self.key));
        if shard.marks.len() >= MARKS_MAX {
            // At worst, requests of these keys wait for one flight each.
            shard.marks.clear();
        }
        shard.marks.insert(mark, until_ms);
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
        if resource.is_empty() {
            shard.resources.remove(&self.key);
        }
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.leave_index();
        self.flight.fail(0);
        self.store.counters.arriving_bytes.fetch_sub(self.pushed, Ordering::Relaxed);
        unpoisoned(&self.store.held).leave(self.store.purges.url(&self.key));
        self.store.counters.flights.fetch_sub(1, Ordering::Relaxed);
    }
}

// The guarded state is consistent between any two statements.
fn unpoisoned<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
