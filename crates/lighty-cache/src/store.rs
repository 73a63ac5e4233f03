//! The store: an index in parts with a lock each, and the queues that decide about eviction.
//!
//! `below` has the way to the disk, `pilot` the ends of a flight, `slices` parts of responses,
//! `forms` encoded responses, `memory` the bytes beside objects, and `send_moments` the age of the
//! purge rules that are needed. No lock is held during I/O or while another one is taken, but for
//! the queues' and then a part's, and that of moments beside any.

mod below;
mod forms;
mod memory;
mod pilot;
mod send_moments;
mod slices;

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::quality::RandomState;
use lighty_http::Fields;
use lighty_io::clock;

use crate::disk::{Disk, SEGMENT_OBJECT_BYTES_MAX};
use crate::eviction::Queues;
use crate::flight::{FAILURE_BITS, FetchFailure, Flight, Passenger};
use crate::key::Key;
use crate::object::Object;
use crate::purge::{KeyPlaces, PurgeKind, PurgeScope, Purges};
use crate::rules::{preferred_language_key, push_selecting_key, selecting_key};
use crate::spill::Spill;
pub use forms::{FormOf, JoinedForm};
use memory::Notes;
pub(crate) use memory::{Beside, rebuild_map, shrink_map, table_bytes};
use send_moments::SendMoments;
pub use slices::{SliceMark, SliceVersion};

/// Parts of the index.
const SHARDS: usize = 64;

/// Memory that responses of other sizes have left, and an allocator cannot use: one part in so many
/// of the objects. A test compares it with the memory of a server under floods.
const FRAGMENTS_SHARE: u64 = 7;

/// Flights under way, in the whole store.
pub const FLIGHTS_MAX: u64 = 65_536;

/// Limits of a store. They may change while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory for objects, flights with their bodies, and all that the store notes.
    /// Objects leave for the rest.
    pub memory: u64,
    /// Bytes of the largest body that is stored.
    pub object_bytes: u64,
    /// Bodies with more bytes are kept on the disk alone.
    pub disk_from_bytes: u64,
    /// Variants of one resource.
    pub variants: usize,
}

impl Limits {
    /// Bytes of the largest body that arrives in memory.
    fn memory_object_bytes(&self) -> u64 {
        match self.disk_from_bytes {
            u64::MAX => self.object_bytes,
            _ => self.object_bytes.min(SEGMENT_OBJECT_BYTES_MAX),
        }
    }
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
    /// Responses served in a form that was encoded before.
    pub form_hits: AtomicU64,
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
    disk: Option<Arc<Disk>>,
    /// The budget, as in the limits.
    memory: AtomicU64,
    /// Bytes of flights and notes.
    beside: Arc<Beside>,
    /// Notes of a generation, per part of the index.
    notes_max: AtomicUsize,
    moments: SendMoments,
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
                shrink_map(&mut self.urls);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    resources: HashMap<Key, Resource, foldhash::fast::RandomState>,
    /// By the hash of a key, of whether requests have credentials, and of a subject: the
    /// millisecond of the monotonic clock up to which their responses are not shared; the one up
    /// to which no fetch begins, with the failure of the one that has failed; the last version
    /// whose slices were fetched.
    notes: Notes,
}

impl Shard {
    /// Removes a resource of which nothing is known.
    fn tidy(&mut self, key: &Key) {
        if self.resources.get(key).is_some_and(Resource::is_empty) {
            self.resources.remove(key);
            shrink_map(&mut self.resources);
        }
    }

    /// The fetch that has failed, while none begins.
    fn failure(&self, hash: u64, now_ms: u64) -> Option<FetchFailure> {
        let note = self.notes.get(hash)?;
        (note >> FAILURE_BITS > now_ms).then(|| FetchFailure::unpack(note))
    }
}

thread_local! {
    /// Memory for the selecting values of a request.
    static SELECTING: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The hash of a key with this word is a note: its fetch has failed.
const HAS_FAILED: &str = "has failed";

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
    /// It has brought nothing for too long: requests do not join it.
    is_forsaken: bool,
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
    /// Fetches take all memory for now: the response is not stored.
    Crowded,
    /// Too many wait.
    Full,
    /// A fetch has failed a moment ago.
    Failed(FetchFailure),
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
    /// The body is written to a file.
    spill: Option<Spill>,
    is_spilled: bool,
    /// The response is a slice.
    is_sliced: bool,
}

impl ResponseStore {
    /// An empty store in memory. `places` tells which parts of its keys are host and target; `seed`
    /// is a secret.
    pub fn new(limits: Limits, places: KeyPlaces, seed: [u8; 16]) -> Arc<Self> {
        Arc::new(Self::with(limits, places, seed, None))
    }

    /// A store in memory and on a disk, whose earlier contents come back.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn on_disk(limits: Limits, places: KeyPlaces, disk: Arc<Disk>) -> io::Result<Arc<Self>> {
        let seed = disk.seed();
        let store = Arc::new(Self::with(limits, places, seed, Some(Arc::clone(&disk))));
        disk.start(Arc::downgrade(&store))?;
        Ok(store)
    }

    fn with(limits: Limits, places: KeyPlaces, seed: [u8; 16], disk: Option<Arc<Disk>>) -> Self {
        let store = Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            held: Mutex::default(),
            limits: Mutex::new(limits),
            hasher: RandomState::default(),
            purges: Purges::new(places, seed),
            counters: StoreCounters::default(),
            disk,
            memory: AtomicU64::new(0),
            beside: Arc::default(),
            notes_max: AtomicUsize::new(0),
            moments: SendMoments::default(),
        };
        store.divide(limits.memory);
        store
    }

    /// Divides the budget: rules, ghosts and notes take a tenth at most.
    fn divide(&self, memory: u64) {
        self.memory.store(memory, Ordering::Relaxed);
        self.purges.limit(memory);
        unpoisoned(&self.held).queues.limit(memory);
        let before = self.notes_max.swap(Notes::most(memory, SHARDS), Ordering::Relaxed);
        if before > self.notes_max.load(Ordering::Relaxed) {
            for shard in &self.shards {
                let notes = std::mem::take(&mut unpoisoned(shard).notes);
                self.beside.change(notes.bytes(), 0);
            }
        }
    }

    /// The disk below it.
    pub fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.as_ref()
    }

    /// Changes the limits.
    pub fn limit(&self, limits: Limits) {
        let before = std::mem::replace(&mut *unpoisoned(&self.limits), limits);
        if before.memory != limits.memory {
            self.divide(limits.memory);
        }
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

    /// Bytes that the store takes beside its objects: flights and their bodies, notes, purge rules,
    /// and what is waiting for the disk.
    pub fn beside_bytes(&self) -> u64 {
        let queues = unpoisoned(&self.held).queues.beside_bytes();
        queues + self.fixed_bytes() + self.disk.as_ref().map_or(0, |disk| disk.queued_bytes())
    }

    /// The bytes for which nothing can make room but the end of fetches.
    fn fixed_bytes(&self) -> u64 {
        let index = self.disk.as_ref().map_or(0, |disk| disk.index_bytes());
        self.beside.bytes() + self.purges.bytes() + index
    }

    /// Number of purge rules.
    pub fn purge_rules(&self) -> usize {
        self.purges.count()
    }

    /// The stored response for a request, fresh or stale. Counts as a use.
    pub fn find(&self, key: &Key, request: &Fields) -> Option<Arc<Object>> {
        self.find_noting(key.as_bytes(), request, &mut false)
    }

    /// Like [`Self::find`], with the bytes of the key; sets `is_purged` if the response was found
    /// purged.
    pub fn find_noting(
        &self,
        key: &[u8],
        request: &Fields,
        is_purged: &mut bool,
    ) -> Option<Arc<Object>> {
        let object = {
            let shard = unpoisoned(self.shard_of(key));
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
        let is_marked = shard.notes.get(mark).is_some_and(|until_ms| until_ms > now_ms);
        let is_full = self.counters.flights.load(Ordering::Relaxed) >= FLIGHTS_MAX;
        if is_marked || is_full {
            return if is_marked { Joined::Passes } else { Joined::Full };
        }
        if let Some(failure) = shard.failure(self.failure_hash(key, has_credentials), now_ms) {
            return Joined::Failed(failure);
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
            !known.is_forsaken
                && !purged.hard
                && !purged.soft
                && match head {
                    Some(head) => *selecting_key(&head.head.names, request) == *head.selecting,
                    None => known.selecting.is_none() || known.selecting == selecting,
                }
        };
        if let Some(known) = resource.flights.iter().find(fits) {
            return known.flight.board().map_or(Joined::Full, Joined::Passenger);
        }
        if self.is_crowded() {
            shard.tidy(key);
            return Joined::Crowded;
        }
        let is_second = resource.flights.iter().any(|known| {
            let fits = known.selecting.is_none() || known.selecting == selecting;
            known.is_forsaken && fits
        });
        let flight = Arc::new(Flight::new(&self.beside, key.as_bytes().len(), is_second));
        let Some(passenger) = flight.board() else { return Joined::Full };
        let sent_at = self.moments.enter_now(|| self.purges.now());
        let known =
            KnownFlight { selecting, flight: Arc::clone(&flight), sent_at, is_forsaken: false };
        resource.flights.push(known);
        self.counters.flights.fetch_add(1, Ordering::Relaxed);
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        drop(shard);
        unpoisoned(&self.held).enter(self.purges.url(key));
        self.make_room();
        let (store, key) = (Arc::clone(self), key.clone());
        let (spill, is_spilled, is_sliced) = (None, false, false);
        let pilot = Pilot { store, key, flight, sent_at, pushed: 0, spill, is_spilled, is_sliced };
        Joined::Begins(pilot, passenger)
    }

    /// Lets later requests begin a flight in place of the one of this passenger.
    pub fn forsake(&self, key: &Key, passenger: &Passenger) {
        let mut shard = unpoisoned(self.shard(key));
        if let Some(resource) = shard.resources.get_mut(key) {
            let own = resource.flights.iter_mut().filter(|known| passenger.is_on(&known.flight));
            own.for_each(|known| known.is_forsaken = true);
        }
        shard.tidy(key);
    }

    /// True if fetches, with all that cannot leave, take the whole budget.
    fn is_crowded(&self) -> bool {
        self.fixed_bytes() > self.memory.load(Ordering::Relaxed)
    }

    /// Sets a note in a part of the index.
    fn note(&self, shard: &mut Shard, hash: u64, number: u64) {
        let before = shard.notes.bytes();
        shard.notes.set(hash, number, self.notes_max.load(Ordering::Relaxed));
        self.beside.change(before, shard.notes.bytes());
    }

    fn failure_hash(&self, key: &Key, has_credentials: bool) -> u64 {
        self.hasher.hash_one((key, has_credentials, HAS_FAILED))
    }

    /// True if later requests do not join the flight of this passenger.
    pub fn is_forsaken(&self, key: &Key, passenger: &Passenger) -> bool {
        let shard = unpoisoned(self.shard(key));
        let resource = shard.resources.get(key);
        let is_joined = |known: &KnownFlight| passenger.is_on(&known.flight) && !known.is_forsaken;
        !resource.is_some_and(|one| one.flights.iter().any(is_joined))
    }

    /// Adds a purge rule. Returns its moment.
    pub fn purge(&self, scope: PurgeScope<'_>, kind: PurgeKind) -> u64 {
        let now_ms = clock::steady_unix_s().saturating_mul(1_000);
        let entry = self.purges.add(scope, kind, now_ms);
        if self.purges.is_sweep_due() {
            self.expire_purges();
            self.make_room();
        }
        if let Some(disk) = &self.disk {
            let mut rule = Vec::new();
            entry.write(&mut rule);
            disk.log_purge(&rule);
        }
        entry.moment
    }

    /// Removes the purge rules that no response is old enough for.
    pub(crate) fn expire_purges(&self) {
        // In the order in which responses go from one to the next.
        let in_memory = self.moments.oldest(|| self.purges.now());
        let on_disk = self.disk.as_ref().map_or(u64::MAX, |disk| disk.oldest_moment());
        self.purges.expire(in_memory.min(on_disk));
    }

    /// Removes the responses of a URL with all variants, if there are any: for requests that change
    /// it, which may be many.
    pub fn invalidate(&self, host: &[u8], target: &[u8]) {
        let url = self.purges.url_of(host, target);
        let is_in_memory = unpoisoned(&self.held).urls.contains_key(&url);
        if is_in_memory || self.disk.as_ref().is_some_and(|disk| disk.may_have_url(url)) {
            self.purge(PurgeScope::Url(host, target), PurgeKind::Hard);
        }
    }

    /// The hash that objects keep of a tag.
    pub fn tag(&self, tag: &[u8]) -> u64 {
        self.purges.tag(tag)
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        self.shard_of(key.as_bytes())
    }

    /// The part of the index for a key with these bytes.
    fn shard_of(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// Puts an object into the index, in place of an equal variant. Its record on the disk goes if
    /// it `is_new`; one with the same body stays.
    fn put(&self, object: &Arc<Object>, is_new: bool) {
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
                shard.notes.clear(mark);
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
        gone.iter().for_each(|one| one.make_obsolete());
        if let Some(disk) = self.disk.as_ref().filter(|_| is_new) {
            gone.iter().for_each(|one| disk.forget(one));
            disk.forget(object);
        }
        self.hold(object, &gone);
        self.make_room();
    }

    /// Counts an object that is in the index now, and no longer the ones that have left it.
    fn hold(&self, object: &Arc<Object>, gone: &[Arc<Object>]) {
        let mut held = unpoisoned(&self.held);
        let url = self.purges.url(&object.key);
        // Objects are marked under this lock alone, so that each counts once at most.
        if !object.is_removed() {
            object.set_held();
            self.moments.enter(object.sent_at);
            held.queues.add(object, self.hasher.hash_one(&object.key));
            held.enter(url);
        }
        for one in gone {
            self.release(&mut held, one, url);
        }
    }

    /// Counts an object no longer that has left the index.
    fn release(&self, held: &mut Held, object: &Object, url: u64) {
        if object.remove() && object.is_held() {
            held.queues.forget(object);
            held.leave(url);
            self.moments.leave(object.sent_at);
        }
    }

    /// Removes an object, from the disk too.
    pub fn remove(&self, object: &Arc<Object>) {
        object.make_obsolete();
        if let Some(disk) = &self.disk {
            disk.forget(object);
        }
        self.drop_from_memory(object);
    }

    fn drop_from_index(&self, object: &Arc<Object>) {
        let mut shard = unpoisoned(self.shard(&object.key));
        let Some(resource) = shard.resources.get_mut(&object.key) else { return };
        resource.variants.retain(|known| !Arc::ptr_eq(known, object));
        shard.tidy(&object.key);
    }

    pub(crate) fn make_room(&self) {
        let most = self.memory.load(Ordering::Relaxed);
        // Objects that leave may be written, and wait for the disk: these make room the next time.
        let queued = self.disk.as_ref().map_or(0, |disk| disk.queued_bytes());
        loop {
            let evicted = {
                let mut held = unpoisoned(&self.held);
                let beside = held.queues.beside_bytes() + self.fixed_bytes() + queued;
                let objects = held.queues.bytes();
                if objects + objects / FRAGMENTS_SHARE + beside <= most {
                    return;
                }
                let evicted = held.queues.evict(|object| self.hasher.hash_one(&object.key));
                evicted.inspect(|object| {
                    object.remove();
                    held.leave(self.purges.url(&object.key));
                })
            };
            let Some(object) = evicted else {
                // Not for fetches, which end.
                let is_large = |disk: &&Arc<Disk>| {
                    disk.entry_bytes() > most - most / 4 || disk.index_bytes() > most
                };
                if let Some(disk) = self.disk.as_ref().filter(is_large) {
                    disk.shrink();
                }
                return;
            };
            self.counters.evicted.fetch_add(1, Ordering::Relaxed);
            self.drop_from_index(&object);
            self.retire(&object);
            self.moments.leave(object.sent_at);
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
        let newest = |is_it: &dyn Fn(&Object) -> bool| {
            self.variants.iter().rev().find(|object| is_it(object)).cloned()
        };
        let mut selecting = SELECTING.take();
        selecting.clear();
        push_selecting_key(&self.names, request, &mut selecting);
        let found = newest(&|object| *object.selecting == *selecting);
        SELECTING.set(selecting);
        found.or_else(|| {
            let language = preferred_language_key(&self.names, request)?;
            newest(&|object| object.head.language.as_deref() == Some(&*language))
        })
    }

    fn is_empty(&self) -> bool {
        self.variants.is_empty() && self.flights.is_empty()
    }
}

// The guarded state is consistent between any two statements.
fn unpoisoned<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
