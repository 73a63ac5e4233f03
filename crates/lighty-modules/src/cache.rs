//! `mod_cache`: stores responses of backends and CGI programs, and serves them again (RFC 9111).
//!
//! Reading order: `settings` (directives) · `request_key` · [`Cache::serve`] (the way of a request)
//! · `waiting` (requests that wait for a fetch) · `fill` (the fetch, a task of its own) · `answer`
//! and `body` (responses from the store) · `forms` (encoded ones) · `slices` (parts of large
//! responses) · `stores` · `outcome` (for logs and Cache-Status) · `purging`. `lighty-cache` has
//! the rules and the store.
//!
//! The cache looks up behind access rules and authentication, in front of the handlers.

mod answer;
mod body;
mod cold;
mod explain;
mod fill;
mod forms;
mod handover;
mod outcome;
mod purging;
mod request_key;
mod settings;
mod slice_range;
mod slices;
mod stalls;
mod stores;
mod waiting;

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

pub use lighty_cache::disk::DiskReport;
use lighty_cache::flight::{FetchFailure, Passenger};
use lighty_cache::key::{Key, KeyWriter};
use lighty_cache::object::Object;
use lighty_cache::purge::{PurgeKind, PurgeScope};
use lighty_cache::rules::{self, CacheRequest, RequestUri, Reuse};
use lighty_cache::store::{Joined, Pilot, ResponseStore};
use lighty_config::{Config, Directive};
use lighty_core::exchange::cache_orders::CacheOrders;
use lighty_core::exchange::response::Maker;
use lighty_core::exchange::verified_identity::VerifiedIdentity;
use lighty_core::module::{Acts, Hooks, Module, PurgeRefusal, Step, Traits};
use lighty_core::pipeline::branch::{branch, destination};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Exchange, Extension, Fault, Settings, extension_slot};
use lighty_http::fields::list_items;
use lighty_http::{Known, Method, Status};

use answer::{OpenContent, StoredBody, answer};
use cold::ColdStart;
use fill::Fill;
use handover::{Handover, HandoverEnd, WaitingClient, relay_interim};
use outcome::{CacheWord, conclude};
pub use purging::PurgeWord;
use settings::CacheSettings;
use slices::Sliced;
use stores::KnownStores;
pub use stores::{CacheStores, NamedFigures};
use waiting::{Waited, fail_as, wait};

/// Times that a request looks a response up again. Then it goes to the backend.
const ROUNDS_MAX: u32 = 4;

/// The module.
pub struct Cache {
    stores: KnownStores,
    /// Memory for the key of a request.
    key: Cell<KeyWriter>,
}

/// The request fills a store, or has been to one.
#[derive(Default)]
struct HasMet(bool);

impl Extension for HasMet {
    extension_slot!();
}

/// A request's place in a store.
struct StoreQuery {
    store: Arc<ResponseStore>,
    key: Key,
    phase: Phase,
    /// The stored response was purged.
    is_purged: bool,
    /// It may wait for another flight than the one that it waits for.
    may_leave: bool,
}

impl StoreQuery {
    /// The stored response for a request.
    fn find(&mut self, ex: &Exchange) -> Option<Arc<Object>> {
        let (key, fields) = (self.key.as_bytes(), &ex.request.fields);
        self.store.find_noting(key, fields, &mut self.is_purged)
    }

    /// The stored response, from memory or from the disk.
    async fn look_up(&mut self, ex: &Exchange) -> Option<Arc<Object>> {
        if let Some(object) = self.find(ex) {
            return Some(object);
        }
        let fields = &ex.request.fields;
        let place = self.store.locate(&self.key, fields)?;
        let (store, key, fields) = (Arc::clone(&self.store), self.key.clone(), fields.clone());
        let load = move || store.load(&key, &fields, &place);
        // If no thread can be had, the response is fetched.
        ex.machine.engine.run_read(load).await.ok().flatten()
    }

    /// Joins the flight of the key, or begins one.
    fn join(&self, ex: &Exchange) -> Joined {
        let now_ms = ex.machine.clock.mono_ms();
        self.store.join(&self.key, &ex.request.fields, has_credentials(ex), now_ms)
    }

    /// The response that was stored since a request has looked it up: the flight that it would have
    /// joined has ended.
    fn landed_since(&self, ex: &Exchange, before: Option<&Arc<Object>>) -> Option<Arc<Object>> {
        let now = self.store.peek(&self.key, &ex.request.fields)?;
        before.is_none_or(|before| !Arc::ptr_eq(before, &now)).then_some(now)
    }

    /// True if a request does not wait for a flight any longer: the backend is slow, and one
    /// request fetches the response too. The others wait for that one.
    fn leaves(&self, passenger: &Passenger, now_ms: u64, lock_ms: u64) -> bool {
        if !self.may_leave {
            return false;
        }
        if passenger.is_promoted(now_ms, lock_ms) {
            self.store.forsake(&self.key, passenger);
            return true;
        }
        self.store.is_forsaken(&self.key, passenger)
    }
}

impl Cache {
    /// A worker's instance under one configuration.
    pub fn new(stores: CacheStores) -> Self {
        Self { stores: KnownStores::new(stores), key: Cell::default() }
    }

    #[cold]
    fn invalidate(&self, ex: &Exchange) {
        let (request, response) = (&ex.request, &ex.response);
        let own = ex.settings.module::<CacheSettings>();
        let Some(store) = self.stores.of(own) else { return };
        if !rules::invalidates(request.method, response.status) {
            return;
        }
        let (authority, target) = (&*request.authority, &*request.target);
        let uri = RequestUri { scheme: request.scheme, authority, target };
        for target in rules::invalidated_targets(uri, &response.fields) {
            store.invalidate(authority, &target);
        }
        for group in rules::invalidated_groups(request.method, response.status, &response.fields) {
            store.purge(PurgeScope::Tag(&purging::group_tag(ex, &group)), PurgeKind::Hard);
        }
    }

    /// Takes the request on, if its response may come from a store.
    fn serve<'a>(&self, ex: &'a mut Exchange, phase: Phase) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<CacheSettings>();
        let Some(store) = self.stores.of(own) else { return Step::Next };
        if ex.state.rehearsal.is_some() {
            explain::explain(ex, own, &store, phase);
            return Step::Next;
        }
        if !is_candidate(ex, own) {
            if !has_met(ex) && destination(phase, ex).is_some() {
                ex.ext_mut::<HasMet>().0 = true;
                conclude(ex, own, &store, CacheWord::Bypass, None);
            }
            return Step::Next;
        }
        // Another handler responds, or a backend decides about access first.
        let Some(destination) = destination(phase, ex) else { return Step::Next };
        let mut written = request_key::write(self.key.take(), &destination, own, ex);
        ex.ext_mut::<HasMet>().0 = true;
        let mut is_purged = false;
        let found = store.find_noting(written.as_bytes(), &ex.request.fields, &mut is_purged);
        let key = found.as_ref().map_or_else(|| written.finish(), |object| object.key().clone());
        written.clear();
        self.key.set(written);
        let query = StoreQuery { store, key, phase, is_purged, may_leave: true };
        if let Some(object) = &found
            && reuse(ex, own, object) == Reuse::Fresh
            && ColdStart::of(ex, object).is_none()
            && serve_stored(ex, own, &query, object, CacheWord::Hit)
        {
            return Step::Answered;
        }
        Step::Wait(Box::pin(attend(ex, settings, query, found)))
    }
}

impl Module for Cache {
    fn name(&self) -> &'static str {
        "mod_cache"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { remote: true, handle: true, response_head: true, ..Hooks::default() },
            head_never_waits: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<CacheSettings>();
        let (stores, purges) = (!own.store.is_empty(), !own.purge.is_empty());
        Hooks {
            remote: stores || purges,
            handle: stores,
            response_head: stores,
            ..Hooks::default()
        }
    }

    fn acts(&self, phase: Phase, ex: &Exchange) -> Acts {
        let own = ex.settings.module::<CacheSettings>();
        if phase == Phase::Remote && own.purge.rule(&ex.request.path).is_some() {
            return Acts::Surely;
        }
        Acts::perhaps_if(!own.store.is_empty() && !has_met(ex))
    }

    fn directives() -> Vec<Directive<Settings>> {
        settings::directives()
    }

    fn remote<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let purge = &ex.settings.module::<CacheSettings>().purge;
        let Some(rule) = purge.rule(&ex.request.path).cloned() else {
            return self.serve(ex, Phase::Remote);
        };
        let stores = self.stores.all();
        Step::Wait(Box::pin(async move {
            purging::purge(ex, rule, stores).await;
            Step::Answered
        }))
    }

    fn purge(&self, authority: &[u8], order: &[u8]) -> Option<Result<String, PurgeRefusal>> {
        Some(purging::carry_out(authority, order, &self.stores.all()))
    }

    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        self.serve(ex, Phase::Handle)
    }

    /// Removes the responses that a request has changed (RFC 9111 section 4.4).
    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if !ex.request.method.is_some_and(Method::is_safe) {
            self.invalidate(ex);
        }
        let settings = Rc::clone(&ex.settings);
        conclude_head(ex, settings.module::<CacheSettings>());
        Step::Next
    }
}

/// Completes the head of a response under these settings: from the store or past it.
fn conclude_head(ex: &mut Exchange, own: &CacheSettings) {
    if own.store.is_empty() || ex.response.maker == Maker::Server && !has_met(ex) {
        return;
    }
    outcome::conclude_past(ex, own);
    outcome::hide_fields(ex, own);
}

/// Errors about stores that requests use and that `cache.stores` does not have.
pub fn unknown_stores(config: &Config<Settings>) -> Vec<String> {
    let stores = &config.global().module::<CacheSettings>().stores;
    let mut names: Vec<&str> =
        config.assigned("cache.store").filter_map(|given| given.value.as_str()).collect();
    names.retain(|name| !name.is_empty() && !stores.iter().any(|spec| *spec.name == **name));
    names.sort_unstable();
    names.dedup();
    let error = |name: &str| format!("cache.store: there is no store \"{name}\" in cache.stores");
    names.into_iter().map(error).collect()
}

/// Errors about slices that no store of `cache.stores` could hold.
pub fn oversized_slices(config: &Config<Settings>) -> Vec<String> {
    let own = config.global().module::<CacheSettings>();
    let most = own.stores.iter().map(|spec| spec.object_bytes_max()).max();
    let sizes = config.assigned("cache.slice-size").map(|given| &given.value);
    let mut sizes: Vec<u64> =
        sizes.filter_map(|value| settings::parse_slice_size(value).ok()).collect();
    sizes.retain(|bytes| most.is_some_and(|most| *bytes > most));
    sizes.dedup();
    let error = |bytes| {
        format!("cache.slice-size: no store in cache.stores has a max-object-size of {bytes} bytes")
    };
    sizes.into_iter().map(error).collect()
}

/// True for requests that a stored response may answer.
fn is_candidate(ex: &Exchange, own: &CacheSettings) -> bool {
    bypass_reason(ex, own).is_none() && !has_met(ex)
}

/// The reason for which the cache is not for a request.
fn bypass_reason(ex: &Exchange, own: &CacheSettings) -> Option<&'static str> {
    let request = &ex.request;
    if !request.method.is_some_and(Method::is_get_or_head) {
        return Some("the method is neither GET nor HEAD");
    }
    if ex.body.exists() {
        return Some("it has content");
    }
    if request.upgrade {
        return Some("it asks for another protocol");
    }
    if request.head_bytes > own.head_bytes_max {
        return Some("its head is larger than cache.max-request-head");
    }
    if nominates(ex) {
        return Some("Connection names others of its fields");
    }
    let is_ordered = ex.ext::<CacheOrders>().is_some_and(|orders| orders.bypasses);
    is_ordered.then_some("a script has ordered that")
}

/// True if the request fills a store, or has been to one.
fn has_met(ex: &Exchange) -> bool {
    ex.ext::<HasMet>().is_some_and(|met| met.0)
}

/// True if a backend learns of a user or of a client certificate.
fn is_identified(ex: &Exchange) -> bool {
    ex.ext::<VerifiedIdentity>().is_some_and(VerifiedIdentity::is_verified)
        || !ex.request.remote_user.is_empty()
        || ex.environment.get(b"SSL_CLIENT_VERIFY") == Some(b"SUCCESS")
}

/// True if the response may be one user's own, whatever it says.
fn has_credentials(ex: &Exchange) -> bool {
    ex.request.fields.contains_any(&[Known::Cookie, Known::Authorization]) || is_identified(ex)
}

/// True if `Connection` names a field of the request: the backend does not get it.
fn nominates(ex: &Exchange) -> bool {
    let names = ex.request.fields.get_all(Known::Connection).flat_map(list_items);
    names.into_iter().any(|name| {
        !name.eq_ignore_ascii_case(b"close")
            && !name.eq_ignore_ascii_case(b"keep-alive")
            && ex.request.fields.get_named(name).is_some()
    })
}

fn request_facts(ex: &Exchange) -> CacheRequest<'_> {
    CacheRequest {
        method: ex.request.method,
        fields: &ex.request.fields,
        is_identified: is_identified(ex),
        has_body: false,
        has_query: ex.request.path_end < ex.request.target.len(),
    }
}

fn reuse(ex: &Exchange, own: &CacheSettings, object: &Object) -> Reuse {
    let now_s = ex.machine.clock.unix_s();
    let mut freshness = object.head.freshness;
    if object.is_purged_softly() {
        freshness = freshness.expired(now_s);
    }
    rules::reuse(&freshness, &request_facts(ex), &own.policy, now_s)
}

/// Answers from the store. Returns false if the body has left the disk.
fn serve_stored(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    object: &Arc<Object>,
    word: CacheWord,
) -> bool {
    let Some(content) = OpenContent::of(&query.store, object) else {
        query.store.drop_from_memory(object);
        return false;
    };
    answer(ex, &object.head, StoredBody::Whole(content));
    forms::offer(ex, &query.store, object);
    conclude(ex, own, &query.store, word, Some(object));
    true
}

/// Use of a stored response.
enum StoredUse {
    Done(Step<'static>),
    /// It is to be validated first.
    Validate,
    /// Its body has left the disk.
    Gone,
}

/// Answers with a stored response, unless it is to be validated first.
fn use_stored(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    object: &Arc<Object>,
) -> StoredUse {
    let is_served = match reuse(ex, own, object) {
        Reuse::Fresh => serve_stored(ex, own, query, object, CacheWord::Hit),
        Reuse::Stale { may_revalidate_in_background } => {
            let mut word = CacheWord::Stale;
            if may_revalidate_in_background {
                refresh(ex, own, query, object);
                word = CacheWord::Updating;
            }
            serve_stored(ex, own, query, object, word)
        }
        Reuse::GatewayTimeout => return StoredUse::Done(gateway_timeout(ex)),
        Reuse::Never => return StoredUse::Done(Step::Next),
        Reuse::Validate | Reuse::ValidateOnDemand => return StoredUse::Validate,
    };
    if is_served { StoredUse::Done(Step::Answered) } else { StoredUse::Gone }
}

/// The same, once the beginning of the body is in memory.
async fn use_readable(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    object: &Arc<Object>,
) -> StoredUse {
    if let Some(start) = ColdStart::of(ex, object)
        && !start.read(ex).await
    {
        query.store.remove_damaged(object);
        return StoredUse::Gone;
    }
    use_stored(ex, own, query, object)
}

/// The word for a request that no fetch of the whole is for.
fn past_the_store(ex: &Exchange, is_whole: bool) -> Option<CacheWord> {
    match ex.request.method {
        Some(Method::Head) => Some(CacheWord::Pass),
        _ if is_partial(ex) && !is_whole => Some(CacheWord::Partial),
        _ => None,
    }
}

/// Answers a request that no fresh response is stored for.
async fn attend(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    mut query: StoreQuery,
    mut found: Option<Arc<Object>>,
) -> Step<'static> {
    let own = settings.module::<CacheSettings>();
    let mut is_whole = false;
    for round in 1..=ROUNDS_MAX {
        query.may_leave = round < ROUNDS_MAX;
        if found.is_none() {
            found = query.look_up(ex).await;
        }
        let stale = found.take();
        if let Some(object) = &stale {
            match use_readable(ex, own, &query, object).await {
                StoredUse::Done(step) => return step,
                StoredUse::Validate => {}
                StoredUse::Gone => continue,
            }
        }
        match attend_slices(ex, own, &query, stale.as_ref()).await {
            Sliced::Done(step) => return step,
            Sliced::Again => continue,
            Sliced::Whole => is_whole = true,
            Sliced::No => {}
        }
        if stale.is_none() && rules::is_only_if_cached(&request_facts(ex)) {
            return gateway_timeout(ex);
        }
        if let Some(word) = past_the_store(ex, is_whole) {
            conclude(ex, own, &query.store, word, None);
            return Step::Next;
        }
        let mut waiting = None;
        let (passenger, handover) = match query.join(ex) {
            Joined::Passes | Joined::Crowded => {
                conclude(ex, own, &query.store, CacheWord::Pass, None);
                return Step::Next;
            }
            Joined::Full => {
                ex.fail(Fault::BackendBusy);
                return Step::Answered;
            }
            Joined::Failed(failure) => return fail(ex, own, &query, stale.as_ref(), failure),
            Joined::Passenger(passenger) => (passenger, None),
            Joined::Begins(pilot, passenger) => {
                found = query.landed_since(ex, stale.as_ref());
                if found.is_some() {
                    pilot.retry();
                    continue;
                }
                let handover = Handover::default();
                waiting = begin(ex, own, &query, pilot, stale.clone(), Some(handover.end()));
                (passenger, Some(handover))
            }
        };
        let word = CacheWord::of_fetch(handover.is_some(), stale.is_some(), query.is_purged);
        let waited = wait(ex, own, &query, passenger, handover, stale.as_ref(), word).await;
        drop(waiting);
        match waited {
            Waited::Done(step) => return step,
            Waited::Again => {}
        }
    }
    conclude(ex, own, &query.store, CacheWord::Pass, None);
    Step::Next
}

/// Answers a request from slices. A stale whole is validated in place of that: it may still be
/// right, and slices of it would be fetched and stored beside it.
async fn attend_slices(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    stale: Option<&Arc<Object>>,
) -> Sliced {
    let fields = stale.map(|object| &object.head.fields);
    let has_validators = fields.is_some_and(|fields| rules::validation_fields(fields).is_some());
    if has_validators && slices::slice_bytes(own, &query.store).is_some() {
        return Sliced::Whole;
    }
    slices::attend(ex, own, query).await
}

/// Answers a request whose fetch would fail, as it has just done: with the stored response if that
/// may stand in for an error, otherwise with the same status.
fn fail(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    stale: Option<&Arc<Object>>,
    failure: FetchFailure,
) -> Step<'static> {
    let now_s = ex.machine.clock.unix_s();
    let may_serve =
        |object: &&Arc<Object>| rules::may_serve_after_error(&object.head.freshness, now_s, None);
    let is_served = stale
        .filter(may_serve)
        .is_some_and(|object| serve_stored(ex, own, query, object, CacheWord::Stale));
    if !is_served {
        fail_as(ex, failure);
        ex.response.fields.set(Known::RetryAfter, "1");
    }
    Step::Answered
}

/// Begins a fetch. Returns the client that gets its interim responses until it is dropped.
fn begin(
    ex: &Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    pilot: Pilot,
    stale: Option<Arc<Object>>,
    handover: Option<HandoverEnd>,
) -> Option<Rc<WaitingClient>> {
    let mut part = fetch_part(ex, own);
    let waiting = handover.as_ref().and_then(|_| WaitingClient::of(ex));
    if let Some(waiting) = &waiting {
        relay_interim(&Rc::downgrade(waiting), &mut part);
    }
    let fill = Fill {
        pilot,
        store: Arc::clone(&query.store),
        part,
        phase: query.phase,
        settings: ordered_settings(ex, own),
        tags: ordered_tags(ex),
        stale,
        has_credentials: has_credentials(ex),
        handover,
        has_failed_twice: false,
        slice: None,
    };
    tokio::task::spawn_local(fill.run());
    waiting
}

/// The request to the backend that fills the store.
fn fetch_part(ex: &Exchange, own: &CacheSettings) -> Box<Exchange> {
    let mut part = branch(ex);
    part.ext_mut::<HasMet>().0 = true;
    let (target, raw) = (request_key::target(own, ex), request_key::raw_target(own, ex));
    if let (Cow::Owned(target), Cow::Owned(raw)) = (target, raw) {
        (part.request.target, part.request.target_raw) = (target, raw);
    }
    part
}

/// The settings for a fetch, with the lifetime that a script has given.
fn ordered_settings(ex: &Exchange, own: &CacheSettings) -> CacheSettings {
    let mut settings = own.clone();
    if let Some(seconds) = ex.ext::<CacheOrders>().and_then(|orders| orders.ttl_s) {
        Arc::make_mut(&mut settings.policy).ordered_s = Some(seconds);
    }
    settings
}

/// The tags that a script has given, separated by spaces.
fn ordered_tags(ex: &Exchange) -> Vec<u8> {
    ex.ext::<CacheOrders>().map(|orders| orders.tags.clone()).unwrap_or_default()
}

/// Fetches a response anew that is served stale meanwhile.
fn refresh(ex: &Exchange, own: &CacheSettings, query: &StoreQuery, object: &Arc<Object>) {
    let now_ms = ex.machine.clock.mono_ms();
    let has_credentials = has_credentials(ex);
    let joined = query.store.join(&query.key, &ex.request.fields, has_credentials, now_ms);
    if let Joined::Begins(pilot, _) = joined {
        let _ = begin(ex, own, query, pilot, Some(Arc::clone(object)), None);
    }
}

fn gateway_timeout(ex: &mut Exchange) -> Step<'static> {
    ex.fail_status(Status::GATEWAY_TIMEOUT);
    Step::Answered
}

/// True for a range other than the whole, which goes to the backend as it is.
fn is_partial(ex: &Exchange) -> bool {
    ex.request.fields.get(Known::Range).is_some_and(|range| range.trim_ascii() != b"bytes=0-")
}
