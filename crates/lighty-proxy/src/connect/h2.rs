//! HTTP/2 connections to backends. Each carries many requests.
//!
//! A request has an in-memory connection to a task, which owns the connection to the backend:
//! [`record`]s on the one side, frames on the other. So the rest of the proxy knows only
//! connections with one request at a time. [`driver`] is the task, [`backend_stream`] a request in
//! it and [`transfer`] its state, [`link_state`] the life of a connection. [`ending`] maps resets
//! to faults, [`liveness`] detects dead backends.

mod backend_stream;
mod driver;
mod ending;
mod link_state;
mod liveness;
pub(crate) mod record;
mod transfer;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use lighty_io::threads::panics;
use lighty_io::transport::{Stream, memory};
use lighty_wire::http2::{CONN_WINDOW_BYTES, Limits};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::connect::dial::{Dial, DialFault};
use crate::upstream::address::{Address, AddressId};
use crate::upstream::spec::PoolSpec;
use backend_stream::BackendStream;
use driver::Driver;
pub(crate) use ending::Ending;
use lighty_io::clock::alarms::{Alarm, Alarms};
use link_state::LinkState;

/// Limit in bytes on the in-memory data of a request, and of its response.
const ROOM_BYTES: usize = 64 * 1024;

/// Maximum window of a stream, in bytes. A backend's bytes wait here for clients that may be slow:
/// this much for each of them.
const STREAM_WINDOW_BYTES_MAX: u32 = 256 * 1024;

/// Limits of connections to backends. The connection's window is credited on receipt and does not
/// grow.
fn limits() -> Limits {
    Limits {
        stream_window_bytes_max: STREAM_WINDOW_BYTES_MAX,
        conn_window_bytes_max: CONN_WINDOW_BYTES,
        ..Limits::default()
    }
}

/// A worker's HTTP/2 connections to backends.
pub(crate) struct Hub {
    places: RefCell<HashMap<AddressId, Place, foldhash::fast::RandomState>>,
    alarms: Rc<Alarms>,
}

/// The connections to one backend.
#[derive(Default)]
struct Place {
    links: Vec<Rc<Link>>,
    /// Notified when the connection that is being opened is ready, or has failed.
    opening: Option<Rc<Notify>>,
}

/// State that the task of a connection shares with its requests.
struct Link {
    arrivals: RefCell<Vec<BackendStream>>,
    waker: RefCell<Option<Waker>>,
    /// Limit on concurrent streams; 0 before the backend's settings arrive.
    streams_max: Cell<u32>,
    streams: Cell<u32>,
    /// The backend accepts extended CONNECT (RFC 8441).
    takes_upgrades: Cell<bool>,
    /// Number of streams that may still be opened.
    requests_left: Cell<u32>,
    state: RefCell<LinkState>,
    /// Notified when the backend's settings have arrived, or never will.
    settled: Notify,
}

impl Link {
    fn new(pool: &PoolSpec) -> Self {
        Self {
            arrivals: RefCell::default(),
            waker: RefCell::default(),
            streams_max: Cell::new(0),
            streams: Cell::new(0),
            takes_upgrades: Cell::new(false),
            requests_left: Cell::new(pool.requests_max.max(1)),
            state: RefCell::default(),
            settled: Notify::new(),
        }
    }

    fn is_open(&self) -> bool {
        self.state.borrow().is_open()
    }

    fn is_dead(&self) -> bool {
        self.state.borrow().is_dead()
    }

    fn has_room(&self) -> bool {
        self.is_open()
            && self.requests_left.get() > 0
            && self.streams.get() < self.streams_max.get()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Closes the connection to further requests.
    fn close(&self, why: &str) {
        self.state.borrow_mut().close(why);
        self.settled.notify_waiters();
    }

    /// Ends reading and writing.
    fn die(&self, why: &str) {
        self.state.borrow_mut().die(why);
        self.settled.notify_waiters();
    }

    /// Waits for the backend's settings.
    async fn settle(&self) -> Result<(), DialFault> {
        loop {
            let settled = self.settled.notified();
            if let Some(why) = self.state.borrow().why_closed() {
                return Err(DialFault::Http2(why.to_owned()));
            }
            if self.streams_max.get() > 0 {
                return Ok(());
            }
            settled.await;
        }
    }

    /// Returns a stream as a connection of its own. If this connection is closed, the stream is
    /// refused.
    fn begin(self: &Rc<Self>) -> (Stream, StreamTicket) {
        debug_assert!(!self.is_open() || self.has_room(), "{} streams", self.streams.get());
        self.streams.set(self.streams.get() + 1);
        self.requests_left.set(self.requests_left.get().saturating_sub(1));
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (near, far) = memory::pair(nowhere, nowhere, ROOM_BYTES);
        let fate = Rc::new(Fate::default());
        if self.is_open() {
            let stream = BackendStream::new(Stream::from_memory(far), Rc::clone(&fate));
            self.arrivals.borrow_mut().push(stream);
            self.wake();
        } else {
            fate.is_refused.set(true);
        }
        (Stream::from_memory(near), StreamTicket { link: Rc::clone(self), fate })
    }
}

/// Progress and result of a request.
#[derive(Default)]
struct Fate {
    /// The backend has not processed it, so it may be sent again.
    is_refused: Cell<bool>,
    /// Reset of its stream, if it was reset.
    ending: Cell<Option<Ending>>,
    /// Part of it waits for the backend's window, or its socket.
    is_withheld: Cell<bool>,
    /// Bytes of its content that were written.
    written: Cell<u64>,
    /// Woken when either changes.
    sender: RefCell<Option<Waker>>,
}

impl Fate {
    /// Records the number of bytes written, and whether more of the request waits to be written.
    fn tell_written(&self, is_withheld: bool, written: u64) {
        debug_assert!(written >= self.written.get(), "{written} after {}", self.written.get());
        let was_withheld = self.is_withheld.replace(is_withheld);
        let has_moved = self.written.replace(written) != written && is_withheld;
        if (was_withheld != is_withheld || has_moved)
            && let Some(sender) = self.sender.borrow_mut().take()
        {
            sender.wake();
        }
    }
}

/// A request's hold on its stream: without it the stream is cancelled.
pub(crate) struct StreamTicket {
    link: Rc<Link>,
    fate: Rc<Fate>,
}

impl StreamTicket {
    /// Returns true if the backend has certainly not processed the request.
    pub(crate) fn is_refused(&self) -> bool {
        self.fate.is_refused.get()
    }

    /// Returns the bytes of the request's content that were written, while more of it waits for the
    /// backend. The task is woken on changes.
    pub(crate) fn withheld(&self, cx: &mut Context<'_>) -> Option<u64> {
        let mut sender = self.fate.sender.borrow_mut();
        if !sender.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *sender = Some(cx.waker().clone());
        }
        self.fate.is_withheld.get().then(|| self.fate.written.get())
    }

    /// Returns true if the backend accepts extended CONNECT (RFC 8441).
    pub(crate) fn takes_upgrades(&self) -> bool {
        self.link.takes_upgrades.get()
    }

    /// Returns the reset of the request's stream, if it was reset.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.fate.ending.get()
    }

    /// Returns the reason for the end of the stream's connection, if it has ended.
    pub(crate) fn why_died(&self) -> Option<String> {
        self.link.state.borrow().why_died().map(str::to_owned)
    }
}

impl Drop for StreamTicket {
    fn drop(&mut self) {
        self.link.wake();
    }
}

/// The right to open a connection. On drop, wakes all requests that wait for it.
struct Opening<'a> {
    hub: &'a Hub,
    id: AddressId,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let opening = self.hub.places.borrow_mut().get_mut(&self.id).and_then(|p| p.opening.take());
        if let Some(opening) = opening {
            opening.notify_waiters();
        }
    }
}

impl Hub {
    /// Creates a hub without connections.
    pub(crate) fn new(alarms: &Rc<Alarms>) -> Self {
        Self { places: RefCell::default(), alarms: Rc::clone(alarms) }
    }

    /// Returns a connection with room for another stream.
    fn find(&self, id: AddressId) -> Option<Rc<Link>> {
        let mut places = self.places.borrow_mut();
        let place = places.get_mut(&id)?;
        place.links.retain(|link| link.is_open());
        place.links.iter().find(|link| link.has_room()).cloned()
    }

    /// Waits for the connection that is being opened, if any; otherwise the caller must open one.
    async fn wait_or_begin(&self, id: AddressId) -> Option<Opening<'_>> {
        let opening = {
            let mut places = self.places.borrow_mut();
            let place = places.entry(id).or_default();
            match &place.opening {
                Some(opening) => Rc::clone(opening),
                None => {
                    place.opening = Some(Rc::default());
                    return Some(Opening { hub: self, id });
                }
            }
        };
        opening.notified().await;
        None
    }

    /// Removes backends without connections.
    pub(crate) fn sweep(&self) {
        self.places.borrow_mut().retain(|_, place| {
            place.links.retain(|link| link.is_open());
            !place.links.is_empty() || place.opening.is_some()
        });
    }

    /// Closes connections as soon as they carry no request.
    pub(crate) fn clear(&self) {
        for place in self.places.borrow().values() {
            for link in &place.links {
                link.requests_left.set(0);
                link.wake();
            }
        }
    }

    /// Returns a stream to a backend, on an existing connection or a new one, within a time limit
    /// for all steps.
    ///
    /// # Errors
    /// No stream is available; the variant is the reason.
    pub(crate) async fn open(
        &self,
        address: &Arc<Address>,
        dial: &Dial<'_>,
        pool: &PoolSpec,
        limit_ms: u64,
    ) -> Result<(Stream, StreamTicket), DialFault> {
        let opened =
            timeout(Duration::from_millis(limit_ms), self.find_or_open(address, dial, pool));
        opened.await.unwrap_or_else(|_| Err(dial.too_late(limit_ms)))
    }

    async fn find_or_open(
        &self,
        address: &Arc<Address>,
        dial: &Dial<'_>,
        pool: &PoolSpec,
    ) -> Result<(Stream, StreamTicket), DialFault> {
        loop {
            if let Some(link) = self.find(address.id) {
                return Ok(link.begin());
            }
            let Some(_opening) = self.wait_or_begin(address.id).await else { continue };
            let stream = dial.open_patiently().await?;
            let link = Rc::new(Link::new(pool));
            let alarm = Alarm::new(&self.alarms);
            let mut driver = Driver::new(dial.clock, alarm, address, stream, &link, pool, limits());
            tokio::task::spawn_local(async move {
                let _ = panics::catch(std::future::poll_fn(|cx| driver.poll(cx))).await;
            });
            link.settle().await?;
            let taken = link.begin();
            self.places.borrow_mut().entry(address.id).or_default().links.push(link);
            return Ok(taken);
        }
    }
}
