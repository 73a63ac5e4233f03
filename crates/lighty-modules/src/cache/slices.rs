//! `cache.slice-size`: ranges of large responses. They are served from aligned slices, each of
//! which is fetched by one request for its range, and stored under a key of its own.
//!
//! Reading order: [`attend`] (the way of a request) · `source` (one slice, from the store or by a
//! flight) · `fetch` (the backend's response to a request for a slice) · `body` (one slice behind
//! the other).
//!
//! All slices of a response have one version: the same strong `ETag` and the same length. If
//! another version is found, all slices of the resource are dropped, and responses under way break
//! off.

mod body;
mod fetch;
mod source;

use std::rc::Rc;

use lighty_cache::rules::{self, ClientOutcome, client_condition};
use lighty_cache::store::{ResponseStore, SliceMark, SliceVersion};
use lighty_core::exchange::body::Body;
use lighty_core::exchange::span::Span;
use lighty_core::module::Step;
use lighty_core::pipeline::conditions;
use lighty_core::{Exchange, Fault};
use lighty_http::range::{self, ByteRange, Selection};
use lighty_http::{Known, Method, Status};
use lighty_io::file::FileEngine;

use super::answer::{StoredBody, WholeContent, answer};
use super::handover::WaitingClient;
use super::outcome::{CacheWord, FetchWait, SliceReport, conclude_slices};
use super::settings::CacheSettings;
use super::waiting::{Waited, fail_as, take_over, wait};
use super::{StoreQuery, has_credentials, request_facts};
use body::SliceBody;
use source::{OpenSlice, SliceFault, SliceSource};

/// Result of looking for slices.
pub(super) enum Sliced {
    Done(Step<'static>),
    /// The response is to be looked up again.
    Again,
    /// The backend does not send ranges: the request is served like one for the whole.
    Whole,
    /// The request is not for slices.
    No,
}

/// The part of a response that a request is for, as far as it is known without its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    /// Its first byte; 0 if only the length tells it.
    start: u64,
    /// It is for the whole, or for its head: slices serve it only if the first one is stored.
    is_whole: bool,
    /// Only the length tells its first byte.
    is_suffix: bool,
}

impl Wish {
    /// The part for a request; `None` if slices cannot serve it.
    fn of(ex: &Exchange) -> Option<Self> {
        let whole = Self { start: 0, is_whole: true, is_suffix: false };
        let mut lines = ex.request.fields.get_all(Known::Range);
        let Some(line) = lines.next().filter(|_| ex.request.method == Some(Method::Get)) else {
            return Some(whole);
        };
        if lines.next().is_some() || !conditions::range_applies(ex) {
            return None;
        }
        let mut specs = line.split(|byte| matches!(byte, b'=' | b','));
        let is_suffix = specs.any(|spec| spec.trim_ascii_start().starts_with(b"-"));
        match range::select(line, u64::MAX, &mut Vec::new()) {
            Selection::Single(_) if is_suffix => {
                Some(Self { start: 0, is_whole: false, is_suffix })
            }
            Selection::Single(ByteRange { start: 0, end: u64::MAX }) => Some(whole),
            Selection::Single(ByteRange { start, .. }) => {
                Some(Self { start, is_whole: false, is_suffix: false })
            }
            _ => None,
        }
    }
}

/// Bytes of the slices for a store; `None` if its responses are not sliced.
pub(super) fn slice_bytes(own: &CacheSettings, store: &ResponseStore) -> Option<u64> {
    Some(own.slice_bytes).filter(|bytes| *bytes > 0 && *bytes <= store.object_bytes_max())
}

/// Answers a request from slices, if it is for them.
pub(super) async fn attend(ex: &mut Exchange, own: &CacheSettings, query: &StoreQuery) -> Sliced {
    let Some(bytes) = slice_bytes(own, &query.store) else { return Sliced::No };
    let Some(wish) = Wish::of(ex) else { return Sliced::No };
    // Its slices could not be stored, and that says nothing about those of other requests.
    if rules::forbids_storing(&request_facts(ex)) {
        return Sliced::No;
    }
    let (now_ms, is_identified) = (ex.machine.clock.mono_ms(), has_credentials(ex));
    let has = |mark| query.store.has_slice_mark(&query.key, mark, is_identified, now_ms);
    if has(SliceMark::IgnoresRanges) && !wish.is_whole {
        return Sliced::Whole;
    }
    if has(SliceMark::Passes) || has(SliceMark::IgnoresRanges) {
        return Sliced::No;
    }
    let index = first_index(ex, query, bytes, wish.start);
    let is_only_if_cached = rules::is_only_if_cached(&request_facts(ex));
    if wish.is_whole || is_only_if_cached {
        let key = query.key.slice(bytes, index);
        let (store, fields) = (&query.store, &ex.request.fields);
        if store.peek(&key, fields).is_none() && store.locate(&key, fields).is_none() {
            return Sliced::No;
        }
    }
    let source = Rc::new(SliceSource::new(ex, own, query, bytes));
    // A HEAD fetches nothing.
    let first = match is_only_if_cached || ex.request.method == Some(Method::Head) {
        true => source.stored(index, None).await.ok_or(SliceFault::Passes),
        false => open(ex, &source, index, None).await,
    };
    let served = match first {
        Ok(first) => serve(ex, own, &source, first, is_only_if_cached).await,
        Err(fault) => Err(fault),
    };
    match served {
        Ok(sliced) => sliced,
        Err(fault) => give_up(ex, own, query, wish, fault).await,
    }
}

/// The slice that is opened first: the one with the first byte. If the stored first slice shows
/// that there is no such byte, it is that one, so that the backend gets no request.
fn first_index(ex: &Exchange, query: &StoreQuery, bytes: u64, start: u64) -> u64 {
    let first = query.store.peek(&query.key.slice(bytes, 0), &ex.request.fields);
    let version = first.and_then(|object| SliceVersion::of(&object.head.fields));
    if version.is_some_and(|version| version.total <= start) { 0 } else { start / bytes }
}

/// Opens a slice while the client waits.
async fn open(
    ex: &mut Exchange,
    source: &Rc<SliceSource>,
    index: u64,
    from: Option<&OpenSlice>,
) -> Result<OpenSlice, SliceFault> {
    let fetch_wait = FetchWait::begin(ex, &source.store);
    let span = ex.begin_span(Span::CacheWait);
    let expected = from.map(|slice| slice.version.clone());
    let waiting = WaitingClient::of(ex);
    source.relay_to(waiting.as_ref());
    let opening = Rc::clone(source).open(index, expected);
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        fault = ex.client_gone() => Err(SliceFault::Gone(fault)),
    };
    drop(waiting);
    ex.begin_span(span);
    fetch_wait.end(ex);
    if let Ok(OpenSlice { handover: Some(handover), .. }) = &opened {
        handover.add_timings(ex);
    }
    opened
}

/// The bytes that a response to the request has; `None` if it has no body.
fn selected(ex: &Exchange, slice: &OpenSlice) -> Option<ByteRange> {
    let (head, total) = (slice.head(), slice.version.total);
    let method = ex.request.method.filter(|method| *method == Method::Get)?;
    let (received_s, now_s) = (head.freshness.received_s, ex.machine.clock.unix_s());
    let fields = &ex.request.fields;
    let whole = ByteRange { start: 0, end: total };
    match client_condition(fields, method, Status::OK, &head.fields, received_s, now_s) {
        ClientOutcome::Respond { ranges: true } if conditions::range_applies(ex) => {
            let line = fields.get(Known::Range)?;
            match range::select(line, total, &mut Vec::new()) {
                Selection::Single(range) => Some(range),
                Selection::Unsatisfiable => None,
                Selection::Whole | Selection::Multiple => Some(whole),
            }
        }
        ClientOutcome::Respond { .. } => Some(whole),
        ClientOutcome::NotModified => None,
    }
}

/// Answers from slices, one of which is open.
async fn serve(
    ex: &mut Exchange,
    own: &CacheSettings,
    source: &Rc<SliceSource>,
    first: OpenSlice,
    is_only_if_cached: bool,
) -> Result<Sliced, SliceFault> {
    let selected = selected(ex, &first);
    let bytes = source.slice_bytes;
    let first = match selected {
        Some(range) if range.start / bytes != first.index && !is_only_if_cached => {
            open(ex, source, range.start / bytes, Some(&first)).await?
        }
        _ => first,
    };
    let rest = selected.map(|range| (range.start / bytes, range.end.div_ceil(bytes)));
    let is_complete = rest.is_none_or(|(from, to)| source.has_all(from, to, first.index));
    if is_only_if_cached && !is_complete {
        return Err(SliceFault::Passes);
    }
    let mut head = first.head().clone();
    head.status = Status::OK;
    head.fields.remove(Known::ContentRange);
    rules::remove_digests(&mut head.fields);
    let report = SliceReport { word: first.word, is_complete };
    let handover = first.handover.clone();
    let mut content = SlicedContent::new(ex, source, first);
    answer(ex, &head, StoredBody::Sliced(&mut content));
    if let Some(handover) = handover {
        handover.add_fields(ex);
    }
    conclude_slices(ex, own, &source.store, report, &head.freshness);
    Ok(Sliced::Done(Step::Answered))
}

/// Ends the way of a request that slices do not serve.
async fn give_up(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    wish: Wish,
    fault: SliceFault,
) -> Sliced {
    match fault {
        SliceFault::Passes => return Sliced::No,
        SliceFault::Again | SliceFault::Changed => return Sliced::Again,
        SliceFault::Whole(passenger, handover) => {
            let word = CacheWord::Miss;
            return match wait(ex, own, query, passenger, Some(handover), None, word).await {
                Waited::Done(step) => Sliced::Done(step),
                Waited::Again => Sliced::Again,
            };
        }
        // It is the right response to a slice, and perhaps not to the request.
        SliceFault::Unshared(unshared)
            if unshared.part.response.status == Status::RANGE_NOT_SATISFIABLE
                && (wish.is_suffix || wish.is_whole || has_condition(ex)) =>
        {
            return Sliced::No;
        }
        SliceFault::Unshared(unshared) => take_over(ex, own, query, *unshared, CacheWord::Miss),
        SliceFault::Failed(failure) => fail_as(ex, failure),
        SliceFault::Full => ex.fail(Fault::BackendBusy),
        SliceFault::Gone(fault) => ex.fail(fault),
    }
    Sliced::Done(Step::Answered)
}

/// True if the response depends on the version that the client has.
fn has_condition(ex: &Exchange) -> bool {
    let conditions = [Known::IfRange, Known::IfNoneMatch, Known::IfModifiedSince];
    ex.request.fields.contains_any(&conditions)
}

/// The whole response, of which slices are fetched as they are sent.
struct SlicedContent {
    source: Rc<SliceSource>,
    first: Option<OpenSlice>,
    total: u64,
    gone: Option<super::body::ClientGone>,
}

impl SlicedContent {
    fn new(ex: &Exchange, source: &Rc<SliceSource>, first: OpenSlice) -> Self {
        let (source, total) = (Rc::clone(source), first.version.total);
        Self { source, first: Some(first), total, gone: Some(Box::pin(ex.client_gone())) }
    }
}

impl WholeContent for SlicedContent {
    fn length(&self) -> u64 {
        self.total
    }

    fn part(&mut self, _: &FileEngine, start: u64, end: u64) -> Body {
        match (self.first.take(), self.gone.take()) {
            (Some(first), Some(gone)) if start < end => {
                let range = ByteRange { start, end };
                Body::Stream(Box::new(SliceBody::new(&self.source, first, range, gone)))
            }
            _ => Body::Empty,
        }
    }
}
