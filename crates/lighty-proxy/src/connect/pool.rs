//! Connections to backends: permits under an address's limit, and each worker's pool of idle
//! connections.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use lighty_http::{Fields, Known, hop_by_hop};
use lighty_io::clock::Clock;
use lighty_io::threads::keep;
use lighty_io::transport::Stream;

use crate::connect::backlog::{Backlog, Call};
use crate::connect::h2::{Ending, StreamTicket};
use crate::connect::listen_queue::{MayIdle, Standing, watch};
use crate::upstream::Upstream;
use crate::upstream::address::{Address, AddressId};

/// Milliseconds before the backend's keep-alive timeout at which a connection is closed: the
/// backend's clock started earlier, and a request takes time to arrive.
const EARLY_MS: u64 = 1000;

/// Milliseconds after a response within which a program closes the connection, if it closes each
/// one.
const CLOSING_MS: u64 = 50;

/// The pause between two sweeps, in milliseconds.
pub(crate) const SWEEP_MS: u64 = 1_000;

/// A permit for one of an address's connections. Dropping it wakes the next waiting request.
pub struct ConnPermit {
    pub upstream: Arc<Upstream>,
    pub address: Arc<Address>,
    is_idle: bool,
}

impl ConnPermit {
    /// Takes a permit, if the address has room.
    pub(crate) fn take(upstream: &Arc<Upstream>, address: &Arc<Address>) -> Option<ConnPermit> {
        address.try_open().then(|| ConnPermit {
            upstream: Arc::clone(upstream),
            address: Arc::clone(address),
            is_idle: false,
        })
    }

    /// Moves the permit to the upstream of another generation that has the same backend.
    pub(crate) fn move_to(&mut self, upstream: &Arc<Upstream>, address: &Arc<Address>) {
        if !Arc::ptr_eq(&self.upstream, upstream) {
            self.upstream = Arc::clone(upstream);
            self.address = Arc::clone(address);
        }
    }

    fn go_idle(&mut self) -> MayIdle {
        debug_assert!(!self.is_idle, "a permit becomes idle once");
        let may_idle = self.address.queue.become_idle(self.address.first_byte_us());
        if may_idle != MayIdle::No {
            self.is_idle = true;
            self.address.become_idle();
        }
        may_idle
    }

    fn wake(&mut self) {
        debug_assert!(self.is_idle, "the permit is in use");
        self.is_idle = false;
        self.address.queue.leave_idle();
        self.address.leave_idle();
    }
}

impl Drop for ConnPermit {
    fn drop(&mut self) {
        if self.is_idle {
            self.wake();
        }
        self.address.closed();
        self.upstream.backlog.call();
    }
}

/// A connection to a backend, busy or idle.
pub struct Connection {
    /// `None` for raw connections. Dropped before the stream is.
    standing: Option<Standing>,
    pub stream: Rc<Stream>,
    /// Stream handle, if the connection is a stream of an HTTP/2 connection.
    ticket: Option<StreamTicket>,
    pub permit: ConnPermit,
    /// Time when it was opened, in monotonic milliseconds.
    pub made_ms: u64,
    /// Number of requests, the current one included.
    pub requests: u32,
    idle_since_ms: u64,
    /// Idle timeout in milliseconds.
    idle_ms: u64,
}

impl Connection {
    /// Creates a connection for its first request.
    pub(crate) fn new(
        stream: Stream,
        permit: ConnPermit,
        standing: Option<Standing>,
        now_ms: u64,
    ) -> Self {
        let idle_ms = permit.upstream.spec.pool.idle_ms;
        let stream = Rc::new(stream);
        Self {
            standing,
            stream,
            ticket: None,
            permit,
            made_ms: now_ms,
            requests: 1,
            idle_since_ms: 0,
            idle_ms,
        }
    }

    /// Adds the handle of a stream.
    pub(crate) fn holding(self, ticket: Option<StreamTicket>) -> Self {
        Self { ticket, ..self }
    }

    /// Returns true if the backend has declared that it has not processed the request.
    pub(crate) fn is_refused(&self) -> bool {
        self.ticket.as_ref().is_some_and(StreamTicket::is_refused)
    }

    /// For a stream, returns the bytes of the request's content that were written, while more of it
    /// waits for the backend. The task is woken on changes.
    pub(crate) fn withheld(&self, cx: &mut Context<'_>) -> Option<u64> {
        self.ticket.as_ref()?.withheld(cx)
    }

    /// Returns true if it is a stream of a backend that accepts upgrades as extended CONNECT.
    pub(crate) fn takes_connect(&self) -> bool {
        self.ticket.as_ref().is_some_and(StreamTicket::takes_upgrades)
    }

    /// Returns its reset, if it is a stream and was reset.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ticket.as_ref().and_then(StreamTicket::ending)
    }

    /// Returns the reason for the end of the underlying connection, if this is a stream and it has
    /// ended.
    pub(crate) fn why_died(&self) -> Option<String> {
        self.ticket.as_ref().and_then(StreamTicket::why_died)
    }

    /// Records a response. If its Keep-Alive field announces a timeout, the connection is closed
    /// before that expires.
    pub fn apply_keep_alive(&mut self, response: &Fields) {
        if let Some(standing) = &mut self.standing {
            standing.answered();
        }
        let spec = &self.permit.upstream.spec;
        let announced = response.get(Known::KeepAlive).and_then(hop_by_hop::keep_alive_timeout_s);
        if let Some(timeout_s) = announced.filter(|_| spec.protocol.is_http()) {
            let most_ms = timeout_s.saturating_mul(1000);
            let early_ms = most_ms.saturating_sub(EARLY_MS).max(most_ms / 2);
            self.idle_ms = spec.pool.idle_ms.min(early_ms);
        }
    }

    /// Returns true if it carried an earlier request: the backend's close may have crossed the
    /// request.
    pub fn is_reused(&self) -> bool {
        self.requests > 1
    }

    fn is_worn_out(&self, now_ms: u64) -> bool {
        let pool = &self.permit.upstream.spec.pool;
        let age = now_ms.saturating_sub(self.made_ms);
        self.requests >= pool.requests_max || (pool.lifetime_ms > 0 && age >= pool.lifetime_ms)
    }

    fn has_rested_enough(&self, now_ms: u64) -> bool {
        self.rested_ms(now_ms) >= self.idle_ms
    }

    /// Like `has_rested_enough`, rounded to the sweep that is nearest to the end of the idle time.
    fn has_rested_enough_at_sweep(&self, now_ms: u64) -> bool {
        let early_ms = (SWEEP_MS / 2).min(self.idle_ms / 2);
        self.rested_ms(now_ms) >= self.idle_ms - early_ms
    }

    /// Returns true if the end of one connection indicates the end of the others: HTTP servers
    /// close connections one by one, while a process manager closes the connections of all its
    /// processes at a restart.
    fn ends_with_others(&self) -> bool {
        !self.permit.upstream.spec.protocol.is_http()
    }

    /// Records that the backend closed it while it was idle.
    fn note_loss(&self, now_ms: u64) {
        if self.requests == 1 {
            self.permit.address.lost_kept(now_ms);
        }
    }

    /// Returns true while there is no evidence that the program keeps its side open: it has served
    /// no second request on any connection, and has had no time to close this one.
    pub(crate) fn may_be_closing(&self, now_ms: u64) -> bool {
        self.ends_with_others()
            && !self.permit.address.serves_kept()
            && self.rested_ms(now_ms) < CLOSING_MS
    }

    /// Returns its idle time before the current request, in milliseconds.
    fn rested_ms(&self, now_ms: u64) -> u64 {
        debug_assert!(now_ms >= self.idle_since_ms, "{now_ms} after {}", self.idle_since_ms);
        now_ms.saturating_sub(self.idle_since_ms)
    }
}

/// Returns the order in which connections with equal end times are closed: the hash table has none.
fn order(connection: &Connection) -> AddressId {
    connection.permit.address.id
}

/// A worker's idle connections.
pub struct Pool {
    worker: usize,
    clock: Clock,
    idle: RefCell<HashMap<AddressId, Vec<Connection>, foldhash::fast::RandomState>>,
}

impl Pool {
    /// Creates the pool of a worker.
    pub fn new(worker: usize, clock: Clock) -> Self {
        Self { worker, clock, idle: RefCell::default() }
    }

    /// Returns the worker's index.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// True if this worker has an idle connection to the address.
    pub fn has(&self, address: &Address) -> bool {
        address.idle() > 0
            && self.idle.borrow().get(&address.id).is_some_and(|kept| !kept.is_empty())
    }

    /// Takes the most recently used idle connection that is still alive, unless it has been idle
    /// for `most_ms` or longer.
    pub fn take(&self, address: &Address, now_ms: u64, most_ms: u64) -> Option<Connection> {
        let recent = |c: &mut Connection| c.rested_ms(now_ms) < most_ms;
        loop {
            let mut connection = self.idle.borrow_mut().get_mut(&address.id)?.pop_if(recent)?;
            let is_over = connection.has_rested_enough(now_ms) || connection.is_worn_out(now_ms);
            let is_alive = connection.stream.is_idle_alive();
            if !is_alive && connection.ends_with_others() {
                address.queue.end_idle();
                connection.note_loss(now_ms);
            }
            if !is_over && is_alive {
                connection.permit.wake();
                connection.requests += 1;
                return Some(connection);
            }
        }
    }

    /// Closes the connection that has been idle longest. Returns its permit.
    pub fn take_place(&self, address: &Address) -> Option<ConnPermit> {
        let mut idle = self.idle.borrow_mut();
        let kept = idle.get_mut(&address.id).filter(|kept| !kept.is_empty())?;
        let mut permit = kept.remove(0).permit;
        permit.wake();
        Some(permit)
    }

    /// Registers a connection about to be opened in the backend's listen queue. Closes idle
    /// connections if the backend may have no process for the new one.
    pub(crate) fn stand_in_line(&self, permit: &ConnPermit) -> Standing {
        let queue = &permit.address.queue;
        let mean_us = permit.address.first_byte_us();
        let (standing, doubts) = queue.enter(self.clock.mono_ms(), mean_us);
        if doubts {
            self.watch(permit);
        }
        standing
    }

    fn watch(&self, permit: &ConnPermit) {
        let (queue, clock) = (Arc::clone(&permit.address.queue), self.clock.clone());
        keep::keep("line at a backend", move || watch(Arc::clone(&queue), clock.clone()));
    }

    /// Returns a reusable connection after its request. It becomes idle, unless a limit ends it, a
    /// request of another worker waits for its permit, or a request may wait for its process.
    pub fn give(&self, mut connection: Connection, now_ms: u64) {
        let permit = &connection.permit;
        let spec = &permit.upstream.spec.pool;
        let backlog = &permit.upstream.backlog;
        // A waiting request takes it at once: it only passes through the pool.
        let has_use =
            permit.address.idle() < spec.idle_max || (spec.idle_max > 0 && !backlog.is_empty());
        if connection.is_worn_out(now_ms) || !has_use || permit.address.is_gone() {
            return;
        }
        if permit.address.keeps_none(now_ms) {
            return;
        }
        if !connection.standing.as_ref().is_some_and(Standing::holds) {
            return;
        }
        match connection.permit.go_idle() {
            MayIdle::Yes => {}
            MayIdle::InDoubt => self.watch(&connection.permit),
            MayIdle::No => return,
        }
        let permit = &connection.permit;
        if permit.upstream.backlog.call_from(self.worker) == Call::Other
            && !permit.address.has_room()
        {
            return;
        }
        connection.idle_since_ms = now_ms;
        let id = connection.permit.address.id;
        let mut idle = self.idle.borrow_mut();
        let kept = idle.entry(id).or_default();
        let counted = connection.permit.address.idle() as usize;
        debug_assert!(kept.len() < counted, "{} of {counted} idle ones", kept.len());
        kept.push(connection);
    }

    /// Runs once a second: closes idle connections that timed out or that the backend closed.
    pub fn sweep(&self, now_ms: u64) {
        let mut ended = Vec::new();
        let mut idle = self.idle.borrow_mut();
        for kept in idle.values_mut() {
            let mut restarts = false;
            let is_over = |c: &mut Connection| {
                let has_ended = !c.stream.is_idle_alive();
                if has_ended && c.ends_with_others() {
                    restarts = true;
                    c.note_loss(now_ms);
                }
                has_ended
                    || c.has_rested_enough_at_sweep(now_ms)
                    || c.is_worn_out(now_ms)
                    || c.permit.address.is_gone()
            };
            let first = ended.len();
            ended.extend(kept.extract_if(.., is_over));
            if let Some(one) = ended[first..].first().filter(|_| restarts) {
                one.permit.address.queue.end_idle();
            }
        }
        idle.retain(|_, kept| !kept.is_empty());
        drop(idle);
        ended.sort_by_key(order);
        // Dropped after the borrow: a freed permit may wake a request of this worker.
        drop(ended);
    }

    /// Closes idle connections that requests may be waiting behind.
    pub fn end_surplus(&self) {
        let mut ended = Vec::new();
        for kept in self.idle.borrow_mut().values_mut() {
            let has_surplus = |c: &Connection| c.permit.address.queue.has_surplus();
            while kept.first().is_some_and(has_surplus) {
                if !kept[0].permit.address.queue.claim_surplus() {
                    break;
                }
                ended.push(kept.remove(0));
            }
        }
        ended.sort_by_key(order);
        drop(ended);
    }

    /// Closes an idle connection of an upstream if a request of another worker waits for its
    /// permit.
    pub fn reclaim(&self, backlog: &Arc<Backlog>) {
        let mut idle = self.idle.borrow_mut();
        let of_upstream = |c: &Connection| Arc::ptr_eq(&c.permit.upstream.backlog, backlog);
        let candidates = idle.values_mut().filter_map(|kept| {
            let at = kept.iter().position(|c| of_upstream(c) && !c.permit.address.has_room())?;
            Some((kept, at))
        });
        let first = candidates.min_by_key(|(kept, at)| order(&kept[*at]));
        let found = first.map(|(kept, at)| kept.remove(at));
        drop(idle);
        drop(found);
    }

    /// Closes all idle connections.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.idle.borrow_mut());
        drop(all);
    }
}
