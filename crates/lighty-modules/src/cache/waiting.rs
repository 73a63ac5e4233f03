//! Requests that wait for a fetch, and the responses that they get from it.

use std::rc::Rc;
use std::sync::Arc;

use lighty_cache::flight::{Boarding, FetchFailure, FlightHead, Passenger};
use lighty_cache::object::{Object, StoredHead};
use lighty_cache::rules::{self, FreshnessFlags};
use lighty_core::exchange::body::Body;
use lighty_core::exchange::cache_trace::CacheTrace;
use lighty_core::exchange::span::Span;
use lighty_core::exchange::upstream_trace::UpstreamTrace;
use lighty_core::module::Step;
use lighty_core::{Exchange, Fault, FaultReport};
use lighty_http::Status;
use lighty_io::clock::alarms::Alarm;

use super::answer::{StoredBody, answer};
use super::body::FlightBody;
use super::handover::{Handover, Unshared};
use super::outcome::{self, CacheWord, FetchWait, conclude};
use super::settings::CacheSettings;
use super::{StoreQuery, has_credentials, serve_stored};

/// Result of a wait for a flight.
pub(super) enum Waited {
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
        if !is_own && query.leaves(passenger, ex.machine.clock.mono_ms(), own.lock_ms) {
            return Err(Waited::Again);
        }
    }
}

/// Waits for the response that is being fetched.
pub(super) async fn wait(
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
        Boarding::Failed(failure) => {
            match handover.and_then(|handover| handover.take()) {
                Some(unshared) => take_over(ex, own, query, unshared, word),
                None if failure == FetchFailure::GIVEN_UP => return Waited::Again,
                None => fail_as(ex, failure),
            }
            Waited::Done(Step::Answered)
        }
        Boarding::Retry => Waited::Again,
    }
}

/// Fails like the fetch that a request has waited for, which has logged its fault.
pub(super) fn fail_as(ex: &mut Exchange, failure: FetchFailure) {
    let fault = failure.fault.and_then(Fault::of_number);
    if let Some(fault) = fault {
        ex.fail_hushed(&FaultReport::new(fault, "in the fetch of another request"));
        ex.ext_mut::<CacheTrace>().shares_fault = true;
    }
    let status = Status::new(failure.status).unwrap_or(Status::BAD_GATEWAY);
    if fault.is_none() || ex.response.status != status {
        ex.fail_status(status);
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
pub(super) fn is_shared(ex: &Exchange, head: &StoredHead) -> bool {
    let (freshness, now_s) = (&head.freshness, ex.machine.clock.unix_s());
    let is_anonymous =
        !has_credentials(ex) && !freshness.flags.contains(FreshnessFlags::AUTHORIZED);
    freshness.is_fresh(now_s) || is_anonymous && !freshness.flags.contains(FreshnessFlags::NO_CACHE)
}

/// The response is for this request alone.
pub(super) fn take_over(
    ex: &mut Exchange,
    own: &CacheSettings,
    query: &StoreQuery,
    unshared: Unshared,
    word: CacheWord,
) {
    let Unshared { mut part, reason } = unshared;
    if ex.ext::<UpstreamTrace>().is_none()
        && let Some(trace) = part.ext::<UpstreamTrace>().cloned()
    {
        ex.stages = part.stages;
        *ex.ext_mut::<UpstreamTrace>() = trace;
    }
    let mut fields = std::mem::take(&mut part.response.fields);
    let before = std::mem::take(&mut ex.response.fields);
    std::mem::swap(&mut ex.response, &mut part.response);
    ex.response.fields = before;
    ex.response.take_fields(&mut fields);
    ex.state.fault = part.state.fault;
    ex.state.handler = part.state.handler;
    outcome::conclude_unshared(ex, own, &query.store, word, reason);
}
