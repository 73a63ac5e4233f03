//! The backend's response to a request for a slice.

use std::sync::Arc;

use lighty_cache::flight::FlightHead;
use lighty_cache::key::Key;
use lighty_cache::object::Object;
use lighty_cache::rules::{self, FreshnessFlags, StorabilityScope, Unstorable};
use lighty_cache::store::{Joined, ResponseStore, SliceMark, SliceVersion};
use lighty_core::{Exchange, Level};
use lighty_http::range::parse_content_range;
use lighty_http::{Fields, Known, Status};

use super::super::fill::{Fetched, Fill};
use super::super::handover::Unshared;

/// A slice that is fetched.
#[derive(Clone)]
pub(in crate::cache) struct SliceFetch {
    /// The key of the whole.
    key: Key,
    bytes: u64,
    index: u64,
    /// The version of the slices so far.
    expected: Option<SliceVersion>,
}

/// A reason not to slice a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Unsliceable {
    #[error(transparent)]
    Unstorable(Unstorable),
    /// `Content-Range` is missing, malformed, or without the length of the whole.
    #[error("the response has no Content-Range with the length of the whole")]
    NoRange,
    /// Fewer bytes than requested, or others.
    #[error("the response has another range than the request")]
    OtherRange,
    /// A part of a coded response is useful only to clients that accept the coding.
    #[error("the response has a Content-Encoding")]
    Coded,
    #[error("the response is stale on arrival")]
    Stale,
}

impl Unsliceable {
    /// True if later responses are like this one.
    fn is_lasting(self) -> bool {
        match self {
            Self::Unstorable(Unstorable::Cookie | Unstorable::Authorized | Unstorable::Partial) => {
                true
            }
            Self::Unstorable(reason) => reason.scope() == StorabilityScope::Key,
            _ => true,
        }
    }
}

/// Drops all slices of a resource, of which different versions were found. If that happens again
/// and again, backends do not agree on a version: ranges go to them for a while.
pub(super) fn drop_versions(store: &ResponseStore, key: &Key, now_ms: u64, pass_ms: u64) {
    if store.drop_slices(key, now_ms) {
        for has_credentials in [false, true] {
            store.mark_slices(key, SliceMark::Passes, has_credentials, now_ms + pass_ms);
        }
    }
}

impl SliceFetch {
    pub(super) fn new(key: Key, bytes: u64, index: u64, expected: Option<SliceVersion>) -> Self {
        Self { key, bytes, index, expected }
    }

    fn start(&self) -> u64 {
        self.index.saturating_mul(self.bytes)
    }

    /// Adds the range to a request to the backend, with a condition: for a stale slice that it has
    /// changed, otherwise that the whole has not.
    pub(in crate::cache) fn add_fields(&self, stale: Option<&Object>, request: &mut Fields) {
        let last = self.start().saturating_add(self.bytes - 1);
        request.push_known(Known::Range, format!("bytes={}-{last}", self.start()));
        let stale = stale.and_then(|stale| stale.head.fields.get(Known::ETag));
        match (stale, &self.expected) {
            (Some(etag), _) => request.push_known(Known::IfNoneMatch, etag),
            (None, Some(version)) => request.push_known(Known::IfRange, &version.etag),
            (None, None) => {}
        }
    }

    /// The version that a 206 belongs to, if it has the bytes of the slice, and their number.
    fn version(&self, part: &Exchange) -> Result<(SliceVersion, u64), Unsliceable> {
        let response = &part.response;
        let mut lines = response.fields.get_all(Known::ContentRange);
        let range = lines.next().filter(|_| lines.next().is_none()).and_then(parse_content_range);
        let Some((range, Some(total))) = range else { return Err(Unsliceable::NoRange) };
        let end = self.start().saturating_add(self.bytes).min(total);
        let length = response.declared_length.or_else(|| response.body.known_length());
        let is_it = (range.start, range.end) == (self.start(), end);
        if !is_it || length.is_some_and(|length| length != range.len()) {
            return Err(Unsliceable::OtherRange);
        }
        if response.fields.contains(Known::ContentEncoding) {
            return Err(Unsliceable::Coded);
        }
        let version = SliceVersion::of(&response.fields);
        let version = version.ok_or(Unsliceable::Unstorable(Unstorable::Partial))?;
        Ok((version, range.len()))
    }
}

impl Fill {
    /// Shares and stores a slice.
    pub(in crate::cache) async fn conclude_slice(mut self, fetched: Fetched, slice: SliceFetch) {
        let status = self.part.response.status;
        let is_error = self.part.state.fault.is_some() || status.code() >= 500;
        if is_error && self.serve_stale(status) {
            return;
        }
        if self.part.state.fault.is_some() {
            return self.hand_over(None);
        }
        if let Some(stale) = self.stale.take().filter(|_| status == Status::NOT_MODIFIED) {
            return self.renew(&stale, &fetched);
        }
        if status == Status::PARTIAL_CONTENT {
            return match self.slice_head(&fetched, &slice) {
                Ok((version, head)) => self.depart_with(&slice, &version, head).await,
                Err(reason) => self.refuse(&slice, reason),
            };
        }
        if slice.expected.is_some() && !is_error {
            self.drop_slices(&slice);
            return self.pilot.retry();
        }
        match status {
            _ if slice.expected.is_some() => self.pilot.fail(status.code()),
            Status::NOT_MODIFIED => self.pilot.part(),
            Status::RANGE_NOT_SATISFIABLE => self.give_away(Unstorable::Partial),
            _ if is_error => self.give_away(Unstorable::ServerError),
            _ => self.become_whole(fetched, slice).await,
        }
    }

    fn slice_head(
        &self,
        fetched: &Fetched,
        slice: &SliceFetch,
    ) -> Result<(SliceVersion, FlightHead), Unsliceable> {
        let (version, length) = slice.version(&self.part)?;
        let (policy, fields) = (&self.settings.policy, &self.part.response.fields);
        let request = fetched.request(&self.part);
        let freshness = rules::storable_part(&request, fields, policy, fetched.times)
            .map_err(Unsliceable::Unstorable)?;
        let is_fresh = freshness.is_fresh(fetched.times.received_s);
        if !is_fresh || freshness.flags.contains(FreshnessFlags::NO_CACHE) {
            return Err(Unsliceable::Stale);
        }
        let mut head = self.head(fetched, freshness).map_err(Unsliceable::Unstorable)?;
        let own_tag = self.store.slices_tag(&slice.key);
        head.head.tags = head.head.tags.iter().copied().chain([own_tag]).collect();
        head.length = Some(length);
        Ok((version, head))
    }

    /// Passes a slice on, unless it is of another version than the ones before.
    async fn depart_with(self, slice: &SliceFetch, version: &SliceVersion, head: FlightHead) {
        if slice.expected.as_ref().is_some_and(|expected| expected != version) {
            self.drop_slices(slice);
            return self.pilot.retry();
        }
        if !self.store.note_version(&slice.key, &head.selecting, version) {
            self.drop_slices(slice);
        }
        self.stream(head).await;
    }

    fn drop_slices(&self, slice: &SliceFetch) {
        let now_ms = self.part.machine.clock.mono_ms();
        drop_versions(&self.store, &slice.key, now_ms, self.settings.pass_ms);
    }

    /// The response is no slice: the requests that wait for it go to the backend.
    fn refuse(self, slice: &SliceFetch, reason: Unsliceable) {
        if self.settings.debug > 0 {
            self.part.log(Level::Notice, &format!("cache: not sliced: {reason}"));
        }
        if reason.is_lasting() {
            let until_ms = self.part.machine.clock.mono_ms() + self.settings.pass_ms;
            let (mark, has_credentials) = (SliceMark::Passes, self.has_credentials);
            self.store.mark_slices(&slice.key, mark, has_credentials, until_ms);
        }
        self.pilot.part();
    }

    /// The first request gets the response, and the others ask the backend.
    fn give_away(self, reason: Unstorable) {
        if let Some(handover) = &self.handover {
            handover.give(Unshared { part: self.part, reason: Some(reason) });
        }
        self.pilot.part();
    }

    /// The response is to a request for the whole, too.
    async fn become_whole(mut self, fetched: Fetched, slice: SliceFetch) {
        let now_ms = self.part.machine.clock.mono_ms();
        if self.part.response.status == Status::OK {
            let until_ms = now_ms + self.settings.pass_ms;
            let (mark, has_credentials) = (SliceMark::IgnoresRanges, self.has_credentials);
            self.store.mark_slices(&slice.key, mark, has_credentials, until_ms);
        }
        let store = Arc::clone(&self.store);
        match store.join(&slice.key, &fetched.fields, self.has_credentials, now_ms) {
            Joined::Begins(mut pilot, passenger) => {
                pilot.succeed(&self.pilot);
                // Before the request that began the flight learns of it.
                if let Some(handover) = &self.handover {
                    handover.give_whole(passenger);
                }
                std::mem::replace(&mut self.pilot, pilot).retry();
                self.slice = None;
                self.conclude(fetched).await;
            }
            Joined::Passenger(_) | Joined::Full => self.pilot.retry(),
            Joined::Passes => self.give_away(Unstorable::Partial),
        }
    }
}
