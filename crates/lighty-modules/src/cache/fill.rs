//! The fetch that fills the store: a task of its own, which no client owns.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_cache::flight::{FetchFailure, FlightHead};
use lighty_cache::object::{Object, StoredHead};
use lighty_cache::rules::{
    self, CacheRequest, Exchanged, Freshness, FreshnessFlags, StorabilityScope, Unstorable, Vary,
};
use lighty_cache::store::{Pilot, ResponseStore};
use lighty_core::exchange::body::{Body, BodyChunk};
use lighty_core::exchange::send_budget::SendBudget;
use lighty_core::pipeline::branch::{branch, respond_behind};
use lighty_core::pipeline::filter::{Filter, Source};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Exchange, Level};
use lighty_http::{Fields, Known, Status, date};

use super::handover::{HandoverEnd, Unshared};
use super::purging;
use super::settings::{CacheSettings, Finish};
use super::slice_range::SliceRange;
use super::stalls::{STALL_MS, StallChecks};

/// Rest of a body that is fetched although no client waits for it.
const SMALL_REST_BYTES: u64 = 1 << 20;

/// Requests that a backend may receive for one fetch, whatever the number of clients that wait.
/// Connections that it refuses carry none, and are not counted: each address is tried once.
const SENDS_MAX: u32 = 2;

/// Time for which requests get the status of a fetch that has failed twice, in milliseconds.
const HOLD_MS: u64 = 1_000;

/// A fetch.
pub(super) struct Fill {
    pub(super) pilot: Pilot,
    pub(super) store: Arc<ResponseStore>,
    /// The request, without its client.
    pub(super) part: Box<Exchange>,
    pub(super) phase: Phase,
    pub(super) settings: CacheSettings,
    /// Further tags, separated by spaces.
    pub(super) tags: Vec<u8>,
    /// The stored response that is validated, or served if the backend fails.
    pub(super) stale: Option<Arc<Object>>,
    /// The request has a cookie, or credentials.
    pub(super) has_credentials: bool,
    /// `None` if no client waits for it.
    pub(super) handover: Option<HandoverEnd>,
    /// The backend has failed all tries while others waited.
    pub(super) has_failed_twice: bool,
    /// The slice that is fetched; `None` for the whole.
    pub(super) slice: Option<SliceRange>,
}

/// The backend's response.
pub(super) struct Fetched {
    /// The request as the client sent it.
    pub(super) fields: Fields,
    is_identified: bool,
    pub(super) times: Exchanged,
}

impl Fetched {
    pub(super) fn request<'a>(&'a self, part: &Exchange) -> CacheRequest<'a> {
        let request = &part.request;
        CacheRequest {
            method: request.method,
            fields: &self.fields,
            is_identified: self.is_identified,
            has_body: false,
            has_query: request.path_end < request.target.len(),
        }
    }
}

impl Fill {
    /// Fetches the response, and stores it if it may be stored.
    pub(super) async fn run(mut self) {
        let Some(fetched) = self.fetch().await else { return };
        self.conclude(fetched).await;
    }

    /// Shares and stores the backend's response, if it may be.
    pub(super) async fn conclude(self, fetched: Fetched) {
        let Some(this) = self.unless_stored(&fetched) else { return };
        let status = this.part.response.status;
        let fields = &this.part.response.fields;
        let policy = &this.settings.policy;
        let times = fetched.times;
        let stored = rules::storable(&fetched.request(&this.part), status, fields, policy, times);
        match stored.and_then(|freshness| this.head(&fetched, freshness)) {
            Ok(head) => this.stream(head).await,
            Err(reason) => this.hand_over(Some(reason)),
        }
    }

    /// Ends the fetch if its response is none, or is the stored one. `None` if it has ended.
    pub(super) fn unless_stored(mut self, fetched: &Fetched) -> Option<Self> {
        let status = self.part.response.status;
        let is_failed = self.part.state.fault.is_some();
        if (is_failed || status.code() >= 500) && self.serve_stale(status) {
            return None;
        }
        if is_failed {
            self.hand_over(None);
            return None;
        }
        if let Some(stale) = self.stale.take().filter(|_| status == Status::NOT_MODIFIED) {
            self.renew(&stale, fetched);
            return None;
        }
        Some(self)
    }

    /// Sends the request to the backend. `None` if no client waits any more.
    pub(super) async fn fetch(&mut self) -> Option<Fetched> {
        let kept: Vec<Box<[u8]>> = self.settings.key.fields.clone();
        let fields = self.part.request.fields.clone();
        let is_identified = super::is_identified(&self.part);
        self.part.request.fields = rules::fill_fields(&fields, &kept);
        if let Some(slice) = &self.slice {
            slice.add_fields(self.stale.as_deref(), &mut self.part.request.fields);
        } else if let Some(stale) = &self.stale
            && let Some(validators) = rules::validation_fields(&stale.head.fields)
        {
            validators.add_to(&mut self.part.request.fields);
        }
        let sent_s = self.part.machine.clock.unix_s();
        let is_awaited = self.handover.is_some();
        let machine = Rc::clone(&self.part.machine);
        let taken_by = self.part.state.taken_by;
        // The first flight of the response has sent a request already.
        let sends_max = if self.pilot.is_second() { 1 } else { SENDS_MAX };
        *self.part.ext_mut() = SendBudget::of(sends_max);
        for attempt in 0..2 {
            {
                let (phase, pilot) = (self.phase, &self.pilot);
                let mut answer = std::pin::pin!(respond_behind(phase, &mut self.part));
                let end = poll_fn(|cx| {
                    if let Poll::Ready(responds) = answer.as_mut().poll(cx) {
                        return Poll::Ready(Some(responds));
                    }
                    if is_awaited { pilot.poll_empty(cx).map(|()| None) } else { Poll::Pending }
                });
                match end.await {
                    Some(true) => {}
                    Some(false) => {
                        // Another local URL in place of a response: requests go there one by one.
                        let now_ms = machine.clock.mono_ms();
                        self.pilot.mark(now_ms + self.settings.pass_ms, self.has_credentials);
                        return None;
                    }
                    None => return None,
                }
            }
            // Requests behind the first one have had no try of their own.
            let others_wait = self.pilot.passengers() > 1;
            if self.part.state.fault.is_none() || !others_wait {
                break;
            }
            let sends = self.part.ext_mut::<SendBudget>().clone();
            if attempt > 0 || sends.is_spent() {
                self.has_failed_twice = true;
                break;
            }
            let client = self.part.client.take();
            self.part = branch(&self.part);
            *self.part.ext_mut() = sends;
            self.part.client = client;
            self.part.state.taken_by = taken_by;
        }
        if let Some(handover) = &self.handover {
            handover.give_timings(&self.part);
        }
        let received_s = self.part.machine.clock.unix_s();
        // A script's own access rules may have named a user meanwhile.
        let is_identified = is_identified || super::is_identified(&self.part);
        Some(Fetched { fields, is_identified, times: Exchanged { sent_s, received_s } })
    }

    /// Serves the stored response in place of an error, if it may be.
    pub(super) fn serve_stale(&mut self, status: Status) -> bool {
        let Some(stale) = self.stale.take() else { return false };
        let now_s = self.part.machine.clock.unix_s();
        let status = Some(status).filter(|_| self.part.state.fault.is_none());
        let may = rules::may_serve_after_error(&stale.head.freshness, now_s, status);
        if may {
            self.pilot.land_as(&stale);
        } else {
            self.stale = Some(stale);
        }
        may
    }

    /// The response is for the first request alone.
    pub(super) fn hand_over(self, reason: Option<Unstorable>) {
        let now_ms = self.part.machine.clock.mono_ms();
        let fault = self.part.state.fault;
        let status = self.part.response.status;
        // An error says nothing about the next response.
        let is_error = status.code() >= 400;
        let is_marked = reason.is_some_and(|reason| match reason {
            Unstorable::Cookie | Unstorable::Authorized => true,
            _ => reason.scope() == StorabilityScope::Key && !is_error,
        });
        if let Some(handover) = &self.handover {
            handover.give(Unshared { part: self.part, reason });
        }
        if let Some(fault) = fault {
            let failure = FetchFailure { status: status.code(), fault: Some(fault.number()) };
            if self.has_failed_twice {
                self.pilot.hold(now_ms + HOLD_MS, self.has_credentials, failure);
            }
            return self.pilot.fail(failure);
        }
        if is_marked {
            self.pilot.mark(now_ms + self.settings.pass_ms, self.has_credentials);
        }
        self.pilot.part();
    }

    /// Fields of the response that are not stored are for the first client alone.
    fn hand_fields_over(&self) {
        if let Some(handover) = &self.handover {
            let response = &self.part.response.fields;
            handover.give_fields(rules::withheld_fields(response, &self.settings.policy));
        }
    }

    /// The stored response is still valid, and the 304 has fields for the first client.
    fn hand_validation_over(&self) {
        self.hand_fields_over();
        if let Some(handover) = &self.handover {
            handover.set_validated();
        }
    }

    /// The stored response is still valid: stores it with new fields.
    pub(super) fn renew(self, stale: &Arc<Object>, fetched: &Fetched) {
        let policy = &self.settings.policy;
        let response = &self.part.response.fields;
        let now_s = fetched.times.received_s;
        let concerned = rules::updated_variants(&[&stale.head.fields], 0, response, now_s);
        let mut fields = stale.head.fields.clone();
        rules::update(&mut fields, response, policy, now_s);
        if stale.head.status == Status::PARTIAL_CONTENT
            && let Some(etag) = stale.head.fields.get(Known::ETag)
        {
            // It is the version of a slice, and that of the 304 may be weak.
            fields.set(Known::ETag, etag);
        }
        let request = fetched.request(&self.part);
        let status = match stale.head.status {
            Status::PARTIAL_CONTENT => rules::part_status(policy),
            status => status,
        };
        let fresh = rules::refresh(&request, status, &fields, response, policy, fetched.times);
        let head = match fresh {
            Ok(freshness) if !concerned.is_empty() => {
                self.hand_validation_over();
                StoredHead { fields, freshness, ..stale.head.clone() }
            }
            Err(reason) if !concerned.is_empty() => {
                if reason.scope() == StorabilityScope::Key {
                    self.store.remove(stale);
                }
                self.hand_validation_over();
                return self.pilot.land_as(stale);
            }
            // The 304 is about another response.
            _ => {
                self.store.remove(stale);
                return self.pilot.retry();
            }
        };
        self.pilot.renew(stale, head);
    }

    /// The tags of the response: of its fields, and of a script.
    fn tags(&self) -> Vec<Box<[u8]>> {
        let (own, fields) = (&self.settings, &self.part.response.fields);
        let mut tags = rules::tags(fields, &own.tag_fields, own.tags_max + 1);
        for tag in self.tags.split(|byte| *byte == b' ').filter(|tag| !tag.is_empty()) {
            if tags.len() <= own.tags_max && !tags.iter().any(|known| **known == *tag) {
                tags.push(tag.into());
            }
        }
        tags
    }

    /// The head as it is stored.
    pub(super) fn head(
        &self,
        fetched: &Fetched,
        freshness: Freshness,
    ) -> Result<FlightHead, Unstorable> {
        let response = &self.part.response;
        let Vary::Names(names) = rules::selecting_names(&response.fields) else {
            return Err(Unstorable::Varies);
        };
        let tags = self.tags();
        let media_type = response.fields.get(Known::ContentType);
        let is_deceptive = freshness.flags.contains(FreshnessFlags::CONFIGURED)
            && !rules::types_agree(&self.part.request.path, media_type);
        if tags.len() > self.settings.tags_max {
            return Err(Unstorable::TooManyTags);
        }
        if is_deceptive {
            return Err(Unstorable::OtherType);
        }
        let length = response.declared_length.or_else(|| response.body.known_length());
        if length.is_some_and(|length| length > self.store.object_bytes_max()) {
            return Err(Unstorable::TooLarge);
        }
        let mut fields =
            rules::stored_fields(response.status, &response.fields, &self.settings.policy);
        fields.remove(Known::ContentLength);
        if !fields.contains(Known::Date) {
            fields.set(Known::Date, date::format(fetched.times.received_s));
        }
        let selecting = rules::selecting_key(&names, &fetched.fields).into();
        let language = rules::language_key(&names, &fetched.fields, &fields).map(Into::into);
        let groups = rules::cache_groups(&response.fields);
        let groups = groups.iter().map(|group| purging::group_tag(&self.part, group));
        let tags = tags.into_iter().map(Vec::from).chain(groups);
        let tags = tags.map(|tag| self.store.tag(&tag)).collect();
        let (status, names) = (response.status, names.into());
        let head = StoredHead { status, fields, freshness, names, language, tags };
        Ok(FlightHead { head, selecting, length })
    }

    /// Passes the body on to all that wait, and stores it.
    pub(super) async fn stream(mut self, head: FlightHead) {
        let length = head.length;
        self.hand_fields_over();
        self.pilot.depart(head);
        let body = std::mem::take(&mut self.part.response.body);
        let Body::Stream(mut body) = body.filtered(Box::new(AsIs), &self.part.machine.engine)
        else {
            return;
        };
        let (mut pushed, mut is_storable) = (0, true);
        let machine = Rc::clone(&self.part.machine);
        let mut stalls = StallChecks::begin(&machine);
        loop {
            let goes_on = is_storable && self.goes_on(pushed, length);
            let pilot = &self.pilot;
            let next = poll_fn(|cx| {
                if !goes_on && pilot.poll_empty(cx).is_ready() {
                    return Poll::Ready(None);
                }
                std::task::ready!(pilot.poll_room(cx));
                body.poll_next(cx).map(Some)
            });
            let Some(next) = stalls.limit(&machine, next).await else {
                self.report_stalled(stalls.check(&machine, &self.pilot));
                continue;
            };
            let Some(next) = next else { return };
            match next {
                Some(Ok(chunk)) => {
                    let Some(piece) = bytes_of(chunk) else { return };
                    let piece_bytes = piece.len() as u64;
                    if length.is_some_and(|length| length - pushed < piece_bytes) {
                        return;
                    }
                    is_storable &= self.pilot.push(piece);
                    pushed += piece_bytes;
                }
                // The flight fails, and with it the responses of its passengers.
                Some(Err(_)) => return,
                None if length.is_some_and(|length| length != pushed) => return,
                None => {
                    self.pilot.land();
                    return;
                }
            }
        }
    }

    /// Logs that clients were cut off.
    fn report_stalled(&self, dropped: usize) {
        if dropped > 0 {
            let text = format!(
                "cache: {dropped} clients have read less than 64 KiB in {} s, and held up others \
                 that read the same response: their responses are cut off",
                STALL_MS / 1_000
            );
            self.part.log(Level::Warning, &text);
        }
    }

    /// True if the fetch goes on when no client waits for it.
    fn goes_on(&self, pushed: u64, length: Option<u64>) -> bool {
        match self.settings.finish {
            _ if self.handover.is_none() => true,
            Finish::Always => true,
            Finish::Never => false,
            // A slice is small, and a request for a part of it is served before its end.
            Finish::Auto if self.slice.is_some() => true,
            Finish::Auto => length.is_none_or(|length| {
                pushed >= length / 2 || length - pushed.min(length) <= SMALL_REST_BYTES
            }),
        }
    }
}

/// A filter that changes nothing; its chunks are in memory.
struct AsIs;

impl Filter for AsIs {
    fn poll_next(&mut self, source: &mut Source, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        source.poll_chunk(cx)
    }

    fn keeps_length(&self) -> bool {
        true
    }

    fn needs_bytes(&self) -> bool {
        true
    }
}

/// The bytes of a chunk in memory.
pub(super) fn bytes_of(chunk: Chunk<Rc<lighty_io::file::OpenFile>>) -> Option<Bytes> {
    match chunk {
        Chunk::Memory(bytes) => Some(bytes),
        Chunk::File(_) => None,
    }
}
