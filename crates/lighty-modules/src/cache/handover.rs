//! The part of a fetch that belongs to the client that began it: interim responses, fields that are
//! not stored, timings, and responses that nobody shares.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use lighty_cache::flight::Passenger;
use lighty_cache::rules::Unstorable;
use lighty_core::exchange::stage::Stages;
use lighty_core::exchange::upstream_trace::UpstreamTrace;
use lighty_core::{Client, Exchange, Fault};
use lighty_http::{Fields, Status};

/// The results for the client that began a fetch.
#[derive(Clone, Default)]
pub(super) struct Handover {
    handed: Rc<RefCell<Handed>>,
    seat: Rc<HandedSeat>,
}

/// The fetch's end of a [`Handover`].
pub(super) struct HandoverEnd {
    handed: Rc<RefCell<Handed>>,
    /// A request that has left keeps no place in a flight: nobody would read its body.
    seat: Weak<HandedSeat>,
}

/// A place in the flight of the whole.
type HandedSeat = RefCell<Option<Passenger>>;

#[derive(Default)]
struct Handed {
    unshared: Option<Unshared>,
    unstored: Fields,
    is_validated: bool,
    timings: Option<(Stages, Option<UpstreamTrace>)>,
}

/// A response that is for its first request alone, and the reason.
pub(super) struct Unshared {
    pub(super) part: Box<Exchange>,
    pub(super) reason: Option<Unstorable>,
}

impl HandoverEnd {
    /// Hands a whole response over.
    pub(super) fn give(&self, unshared: Unshared) {
        self.handed.borrow_mut().unshared = Some(unshared);
    }

    /// Hands over the fields that only this client gets, of a response that others share.
    pub(super) fn give_fields(&self, unstored: Fields) {
        self.handed.borrow_mut().unstored = unstored;
    }

    /// The backend has confirmed the stored response.
    pub(super) fn set_validated(&self) {
        self.handed.borrow_mut().is_validated = true;
    }

    /// Hands over the timings of the fetch up to its head.
    pub(super) fn give_timings(&self, part: &Exchange) {
        let trace = part.ext::<UpstreamTrace>().cloned();
        self.handed.borrow_mut().timings = Some((part.stages, trace));
    }

    /// The backend has sent the whole in place of a slice: hands over a place in its flight. If the
    /// request has left, the place is returned.
    pub(super) fn give_whole(&self, passenger: Passenger) -> Option<Passenger> {
        match self.seat.upgrade() {
            Some(seat) => seat.replace(Some(passenger)),
            None => Some(passenger),
        }
    }
}

impl Handover {
    /// The end for the fetch.
    pub(super) fn end(&self) -> HandoverEnd {
        HandoverEnd { handed: Rc::clone(&self.handed), seat: Rc::downgrade(&self.seat) }
    }

    /// True if the backend has confirmed the stored response.
    pub(super) fn is_validated(&self) -> bool {
        self.handed.borrow().is_validated
    }

    /// The place in the flight of the whole, if the backend has sent that in place of a slice.
    pub(super) fn take_whole(&self) -> Option<Passenger> {
        self.seat.take()
    }

    /// The response, if it is for this client alone.
    pub(super) fn take(&self) -> Option<Unshared> {
        self.handed.borrow_mut().unshared.take()
    }

    /// Adds the fields that only this client gets.
    pub(super) fn add_fields(&self, ex: &mut Exchange) {
        let unstored = std::mem::take(&mut self.handed.borrow_mut().unstored);
        if !unstored.is_empty() {
            ex.response.yield_to(&unstored);
            ex.response.fields.append(&unstored);
        }
    }

    /// Adds the timings of the fetch, which this request has waited for.
    pub(super) fn add_timings(&self, ex: &mut Exchange) {
        let Some((stages, trace)) = self.handed.borrow_mut().timings.take() else { return };
        ex.stages = stages;
        if let Some(trace) = trace {
            *ex.ext_mut::<UpstreamTrace>() = trace;
        }
    }
}

/// The client that waits for a fetch it has begun. Dropped at the end of the wait, so that interim
/// responses do not run into a later response on its connection.
pub(super) struct WaitingClient(Rc<RefCell<dyn Client>>);

/// The client of a fetch: passes interim responses on while the request waits. It never leaves,
/// because the fetch belongs to no client.
struct InterimRelay(Weak<WaitingClient>);

impl WaitingClient {
    /// The client of a request. `None` if there is none.
    pub(super) fn of(ex: &Exchange) -> Option<Rc<Self>> {
        Some(Rc::new(Self(Rc::clone(ex.client.as_ref()?))))
    }
}

/// Lets a fetch pass interim responses on to the client of a request, for as long as that waits.
pub(super) fn relay_interim(waiting: &Weak<WaitingClient>, part: &mut Exchange) {
    part.client = Some(Rc::new(RefCell::new(InterimRelay(Weak::clone(waiting)))));
}

impl Client for InterimRelay {
    fn interim(&mut self, status: Status, fields: &Fields) {
        if let Some(waiting) = self.0.upgrade() {
            waiting.0.borrow_mut().interim(status, fields);
        }
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<Fault> {
        Poll::Pending
    }

    fn local_ip(&self) -> Option<IpAddr> {
        None
    }

    fn pause_body_timer(&mut self) {}

    fn cancel(&mut self) {}
}
