//! `mod_cache`: stores responses of backends and CGI programs, and serves them again (RFC 9111).
//!
//! Reading order: `settings` (directives) · `request_key` · [`Cache::serve`] (the way of a request)
//! · `fill` (the fetch, a task of its own) · `answer` and `body` (responses from the store) ·
//! `stores` · `outcome` (for logs and Cache-Status) · `purging`. `lighty-cache` has the rules and
//! the store.
//!
//! The cache looks up behind access rules and authentication, in front of the handlers.

mod answer;
mod body;
mod explain;
mod fill;
mod handover;
mod outcome;
mod purging;
mod request_key;
mod settings;
mod stores;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

pub use lighty_cache::disk::DiskReport;
use lighty_cache::flight::{Boarding, FlightHead, Passenger};
use lighty_cache::key::Key;
use lighty_cache::object::{Object, StoredHead};
use lighty_cache::purge::{PurgeKind, PurgeScope};
use lighty_cache::rules::{self, CacheRequest, FreshnessFlags, RequestUri, Reuse};
use lighty_cache::store::{Joined, Pilot, ResponseStore};
use lighty_config::{Config, Directive};
use lighty_core::exchange::body::Body;
use lighty_core::exchange::cache_orders::CacheOrders;
use lighty_core::exchange::response::Maker;
use lighty_core::exchange::span::Span;
use lighty_core::exchange::verified_identity::VerifiedIdentity;
use lighty_core::module::{Acts, Hooks, Module, PurgeRefusal, Step, Traits};
use lighty_core::pipeline::branch::{branch, destination};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Exchange, Extension, Fault, Settings, extension_slot};
use lighty_http::fields::list_items;
use lighty_http::{Known, Method, Status};
use lighty_io::clock::alarms::Alarm;

use answer::{OpenContent, StoredBody, answer};
use body::FlightBody;
use fill::Fill;
use handover::{Handover, Unshared, WaitingClient, relay_interim};
use outcome::{CacheWord, FetchWait, conclude};
pub use purging::PurgeWord;
use settings::CacheSettings;
use stores::KnownStores;
pub use stores::{CacheStores, NamedFigures};

/// Times that a request looks a response up again. Then it goes to the backend.
const ROUNDS_MAX: u32 = 4;

/// The module.
pub struct Cache {
    stores: KnownStores,
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
        self.store.find_noting(&self.key, &ex.request.fields, &mut self.is_purged)
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
}

impl Cache {
    /// A worker's instance under one configuration.
    pub fn new(stores: CacheStores) -> Self {
        Self { stores: KnownStores::new(stores) }
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
            explain::explain(ex, own, phase);
            return Step::Next;
        }
        if !is_candidate(ex, own) {
            if !has_met(ex) && destination(phase, ex).is_some() {
                ex.ext_mut::<HasMet>().0 = true;
                conclude(ex, own, &store, CacheWord::Bypass, None);
            }
            return Step::Next;
        }
        let Some(key) = request_key::key(phase, own, ex) else { return Step::Next };
        ex.ext_mut::<HasMet>().0 = true;
        let mut query = StoreQuery { store, key, phase, is_purged: false, may_leave: true };
        let found = query.find(ex);
        if let Some(object) = &found
            && reuse(ex, own, object) == Reuse::Fresh
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

/// Answers a request that no fresh response is stored for.
async fn attend(
    ex: &mut Exchange,
    settings: Rc<Settings>,
    mut query: StoreQuery,
    mut found: Option<Arc<Object>>,
) -> Step<'static> {
    let own = settings.module::<CacheSettings>();
    for round in 1..=ROUNDS_MAX {
        query.may_leave = round < ROUNDS_MAX;
        if found.is_none() {
            found = query.look_up(ex).await;
        }
        let stale = found.take();
        match &stale {
            Some(object) => match use_stored(ex, own, &query, object) {
                StoredUse::Done(step) => return step,
                StoredUse::Validate => {}
                StoredUse::Gone => continue,
            },
            None if rules::is_only_if_cached(&request_facts(ex)) => return gateway_timeout(ex),
            None => {}
        }
        if ex.request.method == Some(Method::Head) || is_partial(ex) {
            let is_head = ex.request.method == Some(Method::Head);
            let word = if is_head { CacheWord::Pass } else { CacheWord::Partial };
            conclude(ex, own, &query.store, word, None);
            return Step::Next;
        }
        let now_ms = ex.machine.clock.mono_ms();
        let has_credentials = has_credentials(ex);
        let joined = query.store.join(&query.key, &ex.request.fields, has_credentials, now_ms);
        let mut waiting = None;
        let (passenger, handover) = match joined {
            Joined::Passes => {
                conclude(ex, own, &query.store, CacheWord::Pass, None);
                return Step::Next;
            }
            Joined::Full => {
                ex.fail(Fault::BackendBusy);
                return Step::Answered;
            }
            Joined::Passenger(passenger) => (passenger, None),
            Joined::Begins(pilot, passenger) => {
                let handover = Handover::default();
                waiting = begin(ex, own, &query, pilot, stale.clone(), Some(handover.clone()));
                (passenger, Some(handover))
            }
        };
        let word = match (&handover, &stale) {
            (None, _) => CacheWord::Coalesced,
            (Some(_), None) if query.is_purged => CacheWord::Purged,
            (Some(_), None) => CacheWord::Miss,
            (Some(_), Some(_)) => CacheWord::Expired,
        };
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

/// Begins a fetch. Returns the client that gets its interim responses until it is dropped.
fn begin(
    ex: &Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    pilot: Pilot,
    stale: Option<Arc<Object>>,
    handover: Option<Handover>,
) -> Option<Rc<WaitingClient>> {
    let mut part = branch(ex);
    let waiting = handover.as_ref().and_then(|_| relay_interim(ex, &mut part));
    part.ext_mut::<HasMet>().0 = true;
    let (target, raw) = (request_key::target(own, ex), request_key::raw_target(own, ex));
    if let (Cow::Owned(target), Cow::Owned(raw)) = (target, raw) {
        (part.request.target, part.request.target_raw) = (target, raw);
    }
    let fill = Fill {
        pilot,
        store: Arc::clone(&query.store),
        part,
        phase: query.phase,
        settings: ordered_settings(ex, own),
        tags: ex.ext::<CacheOrders>().map(|orders| orders.tags.clone()).unwrap_or_default(),
        stale,
        has_credentials: has_credentials(ex),
        handover,
    };
    tokio::task::spawn_local(fill.run());
    waiting
}

/// The settings for a fetch, with the lifetime that a script has given.
fn ordered_settings(ex: &Exchange, own: &CacheSettings) -> CacheSettings {
    let mut settings = own.clone();
    if let Some(seconds) = ex.ext::<CacheOrders>().and_then(|orders| orders.ttl_s) {
        Arc::make_mut(&mut settings.policy).ordered_s = Some(seconds);
    }
    settings
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

/// Result of a wait for a flight.
enum Waited {
    Done(Step<'static>),
    /// The response is to be looked up again.
    Again,
}

/// Waits for the head of a flight.
async fn await_head(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    passenger: &mut Passenger,
    is_own: bool,
) -> Result<Boarding, Waited> {
    loop {
        let alarms = Rc::clone(&ex.machine.alarms);
        let head = Alarm::limit(&alarms, own.lock_ms, passenger.head());
        let news = tokio::select! {
            biased;
            news = head => news,
            fault = ex.client_gone() => {
                ex.fail(fault);
                return Err(Waited::Done(Step::Answered));
            }
        };
        if let Some(news) = news {
            return Ok(news);
        }
        // The backend is slow: one request asks it too, and the others wait for that response.
        if query.may_leave && !is_own {
            if passenger.is_promoted(ex.machine.clock.mono_ms(), own.lock_ms) {
                query.store.forsake(&query.key, passenger);
                return Err(Waited::Again);
            }
            if query.store.is_forsaken(&query.key, passenger) {
                return Err(Waited::Again);
            }
        }
    }
}

/// Waits for the response that is being fetched.
async fn wait(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    mut passenger: Passenger,
    handover: Option<Handover>,
    stale: Option<&Arc<Object>>,
    word: CacheWord,
) -> Waited {
    let fetch_wait = FetchWait::begin(ex, &query.store);
    let span = ex.begin_span(Span::CacheWait);
    let awaited = await_head(ex, own, query, &mut passenger, handover.is_some()).await;
    ex.begin_span(span);
    fetch_wait.end(ex);
    let news = match awaited {
        Ok(news) => news,
        Err(waited) => return waited,
    };
    if let Some(handover) = &handover {
        handover.add_timings(ex);
    }
    match news {
        Boarding::Landed(object) => {
            let is_same = stale.is_some_and(|stale| Arc::ptr_eq(stale, &object));
            let is_shared = is_same || is_shared(ex, &object.head);
            let is_validated = handover.as_ref().is_some_and(Handover::is_validated);
            // A stale response in the preferred language has other selecting fields.
            let fits = is_same || is_validated || object.fits(&ex.request.fields);
            if handover.is_none() && !is_shared || !fits {
                return Waited::Again;
            }
            let word = match is_validated {
                true => CacheWord::Revalidated,
                false if is_same => CacheWord::Stale,
                false => word,
            };
            if !serve_stored(ex, own, query, &object, word) {
                return Waited::Again;
            }
            if let Some(handover) = &handover {
                handover.add_fields(ex);
            }
            Waited::Done(Step::Answered)
        }
        Boarding::Streaming(head) => {
            board(ex, own, query, passenger, &head, handover.as_ref(), word)
        }
        Boarding::Unshared => match handover.and_then(|handover| handover.take()) {
            Some(unshared) => {
                take_over(ex, own, query, unshared, word);
                Waited::Done(Step::Answered)
            }
            None => {
                conclude(ex, own, &query.store, CacheWord::Pass, None);
                Waited::Done(Step::Next)
            }
        },
        Boarding::Failed(status) => {
            match handover.and_then(|handover| handover.take()) {
                Some(unshared) => take_over(ex, own, query, unshared, word),
                None if status == 0 => return Waited::Again,
                None => ex.fail_status(Status::new(status).unwrap_or(Status::BAD_GATEWAY)),
            }
            Waited::Done(Step::Answered)
        }
        Boarding::Retry => Waited::Again,
    }
}

/// Answers with a response before its body is complete.
fn board(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    passenger: Passenger,
    head: &FlightHead,
    handover: Option<&Handover>,
    word: CacheWord,
) -> Waited {
    let is_shared = is_shared(ex, &head.head);
    let fits = *rules::selecting_key(&head.head.names, &ex.request.fields) == *head.selecting;
    if handover.is_none() && !(is_shared && fits) {
        return Waited::Again;
    }
    let gone = Box::pin(ex.client_gone());
    let body = Body::Stream(Box::new(FlightBody::new(passenger, head.length, gone)));
    answer(ex, &head.head, StoredBody::Arriving(body, head.length));
    if let Some(handover) = handover {
        handover.add_fields(ex);
    }
    conclude(ex, own, &query.store, word, None);
    Waited::Done(Step::Answered)
}

/// True if a response serves requests that have waited for it. One that is stale on arrival serves
/// requests without credentials; each request has a response with `no-cache` validated.
fn is_shared(ex: &Exchange, head: &StoredHead) -> bool {
    let (freshness, now_s) = (&head.freshness, ex.machine.clock.unix_s());
    let is_anonymous =
        !has_credentials(ex) && !freshness.flags.contains(FreshnessFlags::AUTHORIZED);
    freshness.is_fresh(now_s) || is_anonymous && !freshness.flags.contains(FreshnessFlags::NO_CACHE)
}

/// The response is for this request alone.
fn take_over(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    unshared: Unshared,
    word: CacheWord,
) {
    let Unshared { mut part, reason } = unshared;
    let mut fields = std::mem::take(&mut part.response.fields);
    let before = std::mem::take(&mut ex.response.fields);
    std::mem::swap(&mut ex.response, &mut part.response);
    ex.response.fields = before;
    ex.response.take_fields(&mut fields);
    ex.state.fault = part.state.fault;
    ex.state.handler = part.state.handler;
    outcome::conclude_unshared(ex, own, &query.store, word, reason);
}

fn gateway_timeout(ex: &mut Exchange) -> Step<'static> {
    ex.fail_status(Status::GATEWAY_TIMEOUT);
    Step::Answered
}

/// True for a range other than the whole, which goes to the backend as it is.
fn is_partial(ex: &Exchange) -> bool {
    ex.request.fields.get(Known::Range).is_some_and(|range| range.trim_ascii() != b"bytes=0-")
}
