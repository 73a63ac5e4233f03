//! One slice of a response: from the store, or by a flight.

use std::cell::RefCell;
use std::rc::{Rc, Weak as WeakRc};
use std::sync::{Arc, Weak};

use lighty_cache::flight::{Boarding, FetchFailure, FlightHead, Passenger};
use lighty_cache::key::Key;
use lighty_cache::object::{Object, StoredHead};
use lighty_cache::rules::{self, Reuse};
use lighty_cache::store::{Joined, Pilot, ResponseStore, SliceMark, SliceVersion};
use lighty_core::pipeline::branch::branch;
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Exchange, Fault};
use lighty_io::clock::alarms::Alarm;

use super::super::fill::Fill;
use super::super::handover::{Handover, HandoverEnd, Unshared, WaitingClient, relay_interim};
use super::super::outcome::CacheWord;
use super::super::settings::CacheSettings;
use super::super::slice_range::SliceRange;
use super::super::waiting::is_shared;
use super::super::{
    HasMet, ROUNDS_MAX, StoreQuery, fetch_part, has_credentials, ordered_settings, ordered_tags,
    request_facts, reuse,
};
use super::fetch::drop_versions;

/// Slices whose presence a request checks before it is counted as a hit.
const CHECKED_SLICES_MAX: u64 = 1_024;

/// Time for which a response under way waits for memory before it tries again, in milliseconds.
const CROWDED_MS: u64 = 250;

/// The slices of a resource, for one request.
pub(super) struct SliceSource {
    pub(super) store: Arc<ResponseStore>,
    /// The key of the whole.
    key: Key,
    phase: Phase,
    pub(super) slice_bytes: u64,
    /// The request, which each fetch has a copy of.
    pub(super) template: Box<Exchange>,
    settings: CacheSettings,
    tags: Vec<u8>,
    has_credentials: bool,
    /// The request has `only-if-cached`: nothing is fetched for it.
    is_stored_only: bool,
    /// The client, while it waits for the first slice: it gets the interim responses of its fetch.
    waiting: RefCell<WeakRc<WaitingClient>>,
}

/// A slice that can be read.
pub(super) struct OpenSlice {
    pub(super) index: u64,
    pub(super) content: SliceContent,
    pub(super) version: SliceVersion,
    pub(super) word: CacheWord,
    /// Results of the fetch, if this request has begun it.
    pub(super) handover: Option<Handover>,
}

/// A slice with a body in the memory of the store alone, until it is sent: the client may be slow.
pub(super) struct ReleasedSlice {
    index: u64,
    object: Weak<Object>,
    version: SliceVersion,
    word: CacheWord,
}

/// The body of a slice.
pub(super) enum SliceContent {
    Stored(Arc<Object>),
    Arriving(Passenger, Arc<FlightHead>),
}

/// The reason for which a slice cannot be read.
pub(super) enum SliceFault {
    /// The request goes to the backend as it is.
    Passes,
    /// The response is to be looked up again.
    Again,
    /// The slice is of another version than the ones before.
    Changed,
    /// The backend has sent the whole.
    Whole(Passenger, Handover),
    /// The backend has sent a response for this request alone.
    Unshared(Box<Unshared>),
    /// The fetch has failed.
    Failed(FetchFailure),
    /// Too many requests wait.
    Full,
    /// The client has gone.
    Gone(Fault),
}

impl SliceFault {
    /// True if the slice may be there a moment later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Again | Self::Unshared(_) | Self::Failed(_) | Self::Full)
    }

    /// A description for the log.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Passes => "the backend's response cannot be sliced",
            Self::Again => "a slice could not be fetched",
            Self::Changed => "a slice is of another version than the ones before",
            Self::Whole(..) => "the backend has sent the whole in place of a slice",
            Self::Unshared(_) | Self::Failed(_) => "the backend has failed to send a slice",
            Self::Full => "too many requests wait for a slice",
            Self::Gone(_) => "the client has gone",
        }
    }
}

impl ReleasedSlice {
    /// The slice; `None` if it has left the store.
    pub(super) fn open(self) -> Option<OpenSlice> {
        let Self { index, object, version, word } = self;
        let content = SliceContent::Stored(object.upgrade()?);
        Some(OpenSlice { index, content, version, word, handover: None })
    }
}

impl OpenSlice {
    /// Releases its memory.
    ///
    /// # Errors
    /// The body is on the disk, or arriving.
    pub(super) fn release(self) -> Result<ReleasedSlice, Self> {
        match &self.content {
            SliceContent::Stored(object) if object.content.stored().is_none() => {
                let object = Arc::downgrade(object);
                let Self { index, version, word, .. } = self;
                Ok(ReleasedSlice { index, object, version, word })
            }
            _ => Err(self),
        }
    }

    pub(super) fn head(&self) -> &StoredHead {
        match &self.content {
            SliceContent::Stored(object) => &object.head,
            SliceContent::Arriving(_, head) => &head.head,
        }
    }
}

/// A flight that a request waits for.
struct Wait<'a> {
    query: &'a StoreQuery,
    index: u64,
    expected: Option<&'a SliceVersion>,
    stale: Option<&'a Arc<Object>>,
    handover: Option<Handover>,
}

impl SliceSource {
    pub(super) fn new(
        ex: &Exchange,
        own: &CacheSettings,
        query: &StoreQuery,
        slice_bytes: u64,
    ) -> Self {
        Self {
            store: Arc::clone(&query.store),
            key: query.key.clone(),
            phase: query.phase,
            slice_bytes,
            template: fetch_part(ex, own),
            settings: ordered_settings(ex, own),
            tags: ordered_tags(ex),
            has_credentials: has_credentials(ex),
            is_stored_only: rules::is_only_if_cached(&request_facts(ex)),
            waiting: RefCell::default(),
        }
    }

    /// Lets fetches pass interim responses on to a client while it waits.
    pub(super) fn relay_to(&self, waiting: Option<&Rc<WaitingClient>>) {
        *self.waiting.borrow_mut() = waiting.map(Rc::downgrade).unwrap_or_default();
    }

    /// True if the backend sends the whole in place of a range.
    fn sends_wholes(&self, now_ms: u64) -> bool {
        let (mark, has_credentials) = (SliceMark::IgnoresRanges, self.has_credentials);
        self.store.has_slice_mark(&self.key, mark, has_credentials, now_ms)
    }

    fn query(&self, index: u64, may_leave: bool) -> StoreQuery {
        StoreQuery {
            store: Arc::clone(&self.store),
            key: self.key.slice(self.slice_bytes, index),
            phase: self.phase,
            is_purged: false,
            may_leave,
        }
    }

    /// The slice, if it is stored and fresh.
    pub(super) async fn stored(
        &self,
        index: u64,
        expected: Option<&SliceVersion>,
    ) -> Option<OpenSlice> {
        let object = self.query(index, false).look_up(&self.template).await?;
        if self.is_outdated(&object) {
            return None;
        }
        match reuse(&self.template, &self.settings, &object) {
            Reuse::Fresh => self.opened(index, expected, object, CacheWord::Hit).ok(),
            _ => None,
        }
    }

    /// True if a stored slice is of another version than the last one that was fetched. It is
    /// removed.
    fn is_outdated(&self, object: &Arc<Object>) -> bool {
        let version = SliceVersion::of(&object.head.fields);
        let is_noted = |version| self.store.is_noted(&self.key, object.selecting(), &version);
        let is_outdated = version.and_then(is_noted) == Some(false);
        if is_outdated {
            self.store.remove(object);
        }
        is_outdated
    }

    /// True if the slices from `from` up to, not including, `to` are stored, beside one that is
    /// open.
    pub(super) fn has_all(&self, from: u64, to: u64, open: u64) -> bool {
        let fields = &self.template.request.fields;
        let is_stored = |index: u64| {
            let key = self.key.slice(self.slice_bytes, index);
            match self.store.peek(&key, fields) {
                Some(object) => {
                    let reuse = reuse(&self.template, &self.settings, &object);
                    matches!(reuse, Reuse::Fresh | Reuse::Stale { .. })
                }
                None => self.store.locate(&key, fields).is_some(),
            }
        };
        to - from <= CHECKED_SLICES_MAX && (from..to).all(|index| index == open || is_stored(index))
    }

    /// Opens a slice: a stored one, or one that is being fetched, of the expected version.
    pub(super) async fn open(
        self: Rc<Self>,
        index: u64,
        expected: Option<SliceVersion>,
    ) -> Result<OpenSlice, SliceFault> {
        if self.is_stored_only {
            return self.stored(index, expected.as_ref()).await.ok_or(SliceFault::Passes);
        }
        for round in 1..=ROUNDS_MAX {
            let mut query = self.query(index, round < ROUNDS_MAX);
            let mut stale = None;
            let found = query.look_up(&self.template).await;
            if let Some(object) = found.filter(|object| !self.is_outdated(object)) {
                match self.use_of(&query, index, &object)? {
                    Some(word) => return self.opened(index, expected.as_ref(), object, word),
                    None => stale = Some(object),
                }
            }
            let version = match &stale {
                Some(object) => SliceVersion::of(&object.head.fields),
                None => expected.clone(),
            };
            let now_ms = self.template.machine.clock.mono_ms();
            let fields = &self.template.request.fields;
            let joined = self.store.join(&query.key, fields, self.has_credentials, now_ms);
            let (passenger, handover) = match joined {
                // A response under way waits for memory.
                Joined::Crowded if expected.is_some() => {
                    self.wait_for_memory().await;
                    continue;
                }
                Joined::Passes | Joined::Crowded => return Err(SliceFault::Passes),
                Joined::Full => return Err(SliceFault::Full),
                Joined::Failed(failure) => {
                    return match stale.filter(|object| self.may_serve_stale(object)) {
                        Some(object) => {
                            self.opened(index, expected.as_ref(), object, CacheWord::Stale)
                        }
                        None => Err(SliceFault::Failed(failure)),
                    };
                }
                Joined::Passenger(passenger) => (passenger, None),
                Joined::Begins(pilot, passenger) => {
                    if query.landed_since(&self.template, stale.as_ref()).is_some() {
                        pilot.retry();
                        continue;
                    }
                    if expected.is_none() && self.sends_wholes(now_ms) {
                        pilot.retry();
                        return Err(SliceFault::Again);
                    }
                    let handover = Handover::default();
                    self.begin(pilot, index, version, stale.clone(), Some(handover.end()));
                    (passenger, Some(handover))
                }
            };
            let (expected, stale) = (expected.as_ref(), stale.as_ref());
            let wait = Wait { query: &query, index, expected, stale, handover };
            if let Some(opened) = self.wait(wait, passenger).await? {
                return Ok(opened);
            }
        }
        Err(SliceFault::Again)
    }

    /// Waits for other fetches to end.
    async fn wait_for_memory(&self) {
        let alarms = &self.template.machine.alarms;
        let _ = Alarm::limit(alarms, CROWDED_MS, std::future::pending::<()>()).await;
    }

    /// The word for the use of a stored slice; `None` if it is validated first.
    fn use_of(
        &self,
        query: &StoreQuery,
        index: u64,
        object: &Arc<Object>,
    ) -> Result<Option<CacheWord>, SliceFault> {
        match reuse(&self.template, &self.settings, object) {
            Reuse::Fresh => Ok(Some(CacheWord::Hit)),
            Reuse::Stale { may_revalidate_in_background: false } => Ok(Some(CacheWord::Stale)),
            Reuse::Stale { may_revalidate_in_background: true } => {
                self.refresh(query, index, object);
                Ok(Some(CacheWord::Updating))
            }
            Reuse::Validate | Reuse::ValidateOnDemand => Ok(None),
            Reuse::GatewayTimeout | Reuse::Never => Err(SliceFault::Passes),
        }
    }

    /// True if a stale slice is served in place of an error.
    fn may_serve_stale(&self, object: &Object) -> bool {
        let now_s = self.template.machine.clock.unix_s();
        rules::may_serve_after_error(&object.head.freshness, now_s, None)
    }

    /// Fetches a slice anew that is served stale meanwhile.
    fn refresh(&self, query: &StoreQuery, index: u64, object: &Arc<Object>) {
        let now_ms = self.template.machine.clock.mono_ms();
        let fields = &self.template.request.fields;
        let joined = self.store.join(&query.key, fields, self.has_credentials, now_ms);
        if let Joined::Begins(pilot, _) = joined {
            let version = SliceVersion::of(&object.head.fields);
            self.begin(pilot, index, version, Some(Arc::clone(object)), None);
        }
    }

    fn begin(
        &self,
        pilot: Pilot,
        index: u64,
        expected: Option<SliceVersion>,
        stale: Option<Arc<Object>>,
        handover: Option<HandoverEnd>,
    ) {
        let mut part = branch(&self.template);
        part.ext_mut::<HasMet>().0 = true;
        let waiting = self.waiting.borrow();
        if handover.is_some() && waiting.strong_count() > 0 {
            relay_interim(&waiting, &mut part);
        }
        let slice = SliceRange::new(self.key.clone(), self.slice_bytes, index, expected);
        let fill = Fill {
            pilot,
            store: Arc::clone(&self.store),
            part,
            phase: self.phase,
            settings: self.settings.clone(),
            tags: self.tags.clone(),
            stale,
            has_credentials: self.has_credentials,
            handover,
            has_failed_twice: false,
            slice: Some(slice),
        };
        tokio::task::spawn_local(fill.run_slice());
    }

    /// The news of a flight; `None` if the request does not wait for it any longer.
    async fn news(
        &self,
        query: &StoreQuery,
        passenger: &mut Passenger,
        is_own: bool,
    ) -> Option<Boarding> {
        let (machine, lock_ms) = (&self.template.machine, self.settings.lock_ms);
        loop {
            if let Some(news) = Alarm::limit(&machine.alarms, lock_ms, passenger.head()).await {
                return Some(news);
            }
            if !is_own && query.leaves(passenger, machine.clock.mono_ms(), lock_ms) {
                return None;
            }
        }
    }

    /// Waits for a flight; `None` if the slice is to be looked up again.
    async fn wait(
        &self,
        wait: Wait<'_>,
        mut passenger: Passenger,
    ) -> Result<Option<OpenSlice>, SliceFault> {
        let Wait { query, index, expected, stale, handover } = wait;
        let is_own = handover.is_some();
        let Some(news) = self.news(query, &mut passenger, is_own).await else { return Ok(None) };
        let is_validated = handover.as_ref().is_some_and(Handover::is_validated);
        let word = match is_validated {
            true => CacheWord::Revalidated,
            false => CacheWord::of_fetch(is_own, stale.is_some(), query.is_purged),
        };
        let opened = match news {
            Boarding::Landed(object) => {
                let is_same = stale.is_some_and(|stale| Arc::ptr_eq(stale, &object));
                let is_usable = is_same
                    || is_validated
                    || object.fits(&self.template.request.fields)
                        && (is_own || is_shared(&self.template, &object.head));
                if !is_usable {
                    return Ok(None);
                }
                let word = if is_same { CacheWord::Stale } else { word };
                self.opened(index, expected, object, word)?
            }
            Boarding::Streaming(head) => {
                let fields = &self.template.request.fields;
                let fits = *rules::selecting_key(&head.head.names, fields) == *head.selecting;
                let is_usable = is_own || fits && is_shared(&self.template, &head.head);
                if !is_usable {
                    return Ok(None);
                }
                let version = self.checked(&head.head, &head.selecting, expected)?;
                let content = SliceContent::Arriving(passenger, head);
                OpenSlice { index, content, version, word, handover: None }
            }
            Boarding::Unshared => return Err(unshared(handover).unwrap_or(SliceFault::Passes)),
            Boarding::Failed(failure) => match unshared(handover) {
                Some(fault) => return Err(fault),
                None if failure == FetchFailure::GIVEN_UP => return Ok(None),
                None => return Err(SliceFault::Failed(failure)),
            },
            Boarding::Retry => {
                return Err(match handover.and_then(|own| Some((own.take_whole()?, own))) {
                    Some((passenger, handover)) => SliceFault::Whole(passenger, handover),
                    None if expected.is_some() => SliceFault::Changed,
                    None => SliceFault::Again,
                });
            }
        };
        Ok(Some(OpenSlice { handover, ..opened }))
    }

    fn opened(
        &self,
        index: u64,
        expected: Option<&SliceVersion>,
        object: Arc<Object>,
        word: CacheWord,
    ) -> Result<OpenSlice, SliceFault> {
        let version = self.checked(&object.head, object.selecting(), expected)?;
        let content = SliceContent::Stored(object);
        Ok(OpenSlice { index, content, version, word, handover: None })
    }

    /// The version of a slice. If it is not the expected one, all slices are dropped, unless it is
    /// this request that has begun with an earlier version than the present one.
    fn checked(
        &self,
        head: &StoredHead,
        selecting: &[u8],
        expected: Option<&SliceVersion>,
    ) -> Result<SliceVersion, SliceFault> {
        let version = SliceVersion::of(&head.fields).ok_or(SliceFault::Passes)?;
        let Some(expected) = expected.filter(|expected| **expected != version) else {
            return Ok(version);
        };
        let is_noted = |version| self.store.is_noted(&self.key, selecting, version);
        if is_noted(&version) != Some(true) && is_noted(expected) != Some(false) {
            let now_ms = self.template.machine.clock.mono_ms();
            drop_versions(&self.store, &self.key, now_ms, self.settings.pass_ms);
        }
        Err(SliceFault::Changed)
    }
}

/// The response that the backend has sent for the first request alone.
fn unshared(handover: Option<Handover>) -> Option<SliceFault> {
    handover?.take().map(|unshared| SliceFault::Unshared(Box::new(unshared)))
}
