//! Connections to backends: places under an address's limit, and a worker's pool of idle ones.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use lighty_http::{Fields, Known, hop_by_hop};
use lighty_io::transport::Stream;

use crate::address::{Address, AddressId};
use crate::backlog::Call;
use crate::spec::Protocol;
use crate::upstream::Upstream;

/// How much sooner than the backend a connection is ended, in milliseconds: its clock began to run
/// before ours, and a request takes time to get there.
const EARLY_MS: u64 = 1000;

/// A place among the connections of an address. Giving it up lets the next request in.
pub struct Place {
    pub upstream: Arc<Upstream>,
    pub address: Arc<Address>,
    resting: bool,
}

impl Place {
    /// Takes a place, if there is one.
    pub fn take(upstream: &Arc<Upstream>, address: &Arc<Address>) -> Option<Place> {
        address.try_open().then(|| Place {
            upstream: Arc::clone(upstream),
            address: Arc::clone(address),
            resting: false,
        })
    }

    fn rest(&mut self) {
        self.resting = true;
        self.address.rests();
    }

    fn wake(&mut self) {
        self.resting = false;
        self.address.wakes();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.resting {
            self.address.wakes();
        }
        self.address.closed();
        self.upstream.backlog.call();
    }
}

/// A connection to a backend, in use or at rest.
pub struct Connection {
    pub stream: Rc<Stream>,
    pub place: Place,
    /// When it was made; monotonic milliseconds.
    pub made_ms: u64,
    /// Requests it has carried, the present one included.
    pub requests: u32,
    idle_since_ms: u64,
    /// Milliseconds that it may rest.
    idle_ms: u64,
}

impl Connection {
    /// A connection that was just made, for its first request.
    pub fn new(stream: Stream, place: Place, now_ms: u64) -> Self {
        let idle_ms = place.upstream.spec.pool.idle_ms;
        let stream = Rc::new(stream);
        Self { stream, place, made_ms: now_ms, requests: 1, idle_since_ms: 0, idle_ms }
    }

    /// A backend may say how long it keeps the connection: its end is not waited for.
    pub fn heed(&mut self, answer: &Fields) {
        let spec = &self.place.upstream.spec;
        let told = answer.get(Known::KeepAlive).and_then(hop_by_hop::keep_alive_timeout_s);
        if let (Some(timeout_s), Protocol::Http { .. }) = (told, &spec.protocol) {
            let most_ms = timeout_s.saturating_mul(1000);
            let early_ms = most_ms.saturating_sub(EARLY_MS).max(most_ms / 2);
            self.idle_ms = spec.pool.idle_ms.min(early_ms);
        }
    }

    /// Whether it carried a request before this one: its end may have crossed the request.
    pub fn is_reused(&self) -> bool {
        self.requests > 1
    }

    fn is_worn_out(&self, now_ms: u64) -> bool {
        let pool = &self.place.upstream.spec.pool;
        let age = now_ms.saturating_sub(self.made_ms);
        self.requests >= pool.requests_max || (pool.lifetime_ms > 0 && age >= pool.lifetime_ms)
    }

    fn has_rested_enough(&self, now_ms: u64) -> bool {
        self.rested_ms(now_ms) >= self.idle_ms
    }

    fn rested_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.idle_since_ms)
    }
}

/// A worker's idle connections.
pub struct Pool {
    worker: usize,
    idle: RefCell<HashMap<AddressId, Vec<Connection>, foldhash::fast::RandomState>>,
}

impl Pool {
    /// The pool of a worker.
    pub fn new(worker: usize) -> Self {
        Self { worker, idle: RefCell::default() }
    }

    /// The worker's number.
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Whether a connection to an address rests here.
    pub fn has(&self, address: &Address) -> bool {
        address.idle() > 0
            && self.idle.borrow().get(&address.id).is_some_and(|resting| !resting.is_empty())
    }

    /// A connection for one more request: the one that rested last and still lives, unless it has
    /// rested for `most_ms` or longer.
    pub fn take(&self, address: &Address, now_ms: u64, most_ms: u64) -> Option<Connection> {
        let recent = |c: &mut Connection| c.rested_ms(now_ms) < most_ms;
        loop {
            let mut connection = self.idle.borrow_mut().get_mut(&address.id)?.pop_if(recent)?;
            let is_over = connection.has_rested_enough(now_ms) || connection.is_worn_out(now_ms);
            if !is_over && connection.stream.is_idle_alive() {
                connection.place.wake();
                connection.requests += 1;
                return Some(connection);
            }
        }
    }

    /// The place of the connection that rested longest, which is ended.
    pub fn take_place(&self, address: &Address) -> Option<Place> {
        let mut idle = self.idle.borrow_mut();
        let resting = idle.get_mut(&address.id).filter(|resting| !resting.is_empty())?;
        let mut place = resting.remove(0).place;
        place.wake();
        Some(place)
    }

    /// A request is over and its connection sound: it rests, or ends where a rule says so or
    /// another worker's request waits for its place.
    pub fn give(&self, mut connection: Connection, now_ms: u64) {
        let place = &connection.place;
        let spec = &place.upstream.spec.pool;
        if connection.is_worn_out(now_ms) || place.address.idle() >= spec.idle_max {
            return;
        }
        if place.upstream.backlog.call_from(self.worker) == Call::Other && !place.address.has_room()
        {
            return;
        }
        connection.place.rest();
        connection.idle_since_ms = now_ms;
        let id = connection.place.address.id;
        self.idle.borrow_mut().entry(id).or_default().push(connection);
    }

    /// Once a second: ends what rested long enough or was closed by its backend.
    pub fn sweep(&self, now_ms: u64) {
        let mut ended = Vec::new();
        let mut idle = self.idle.borrow_mut();
        for resting in idle.values_mut() {
            let is_over = |c: &mut Connection| {
                c.has_rested_enough(now_ms) || c.is_worn_out(now_ms) || !c.stream.is_idle_alive()
            };
            ended.extend(resting.extract_if(.., is_over));
        }
        idle.retain(|_, resting| !resting.is_empty());
        drop(idle);
        // Dropped without the borrow: a place that comes free may call a request of this worker.
        drop(ended);
    }

    /// Lets one idle connection of an upstream go, whose place another worker's request waits for.
    pub fn reclaim(&self, upstream: &Upstream) {
        let mut idle = self.idle.borrow_mut();
        let of_upstream = |c: &Connection| std::ptr::eq(&*c.place.upstream, upstream);
        let found = idle.values_mut().find_map(|resting| {
            let at = resting.iter().position(|c| of_upstream(c) && !c.place.address.has_room())?;
            Some(resting.remove(at))
        });
        drop(idle);
        drop(found);
    }

    /// Lets everything go.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.idle.borrow_mut());
        drop(all);
    }
}
