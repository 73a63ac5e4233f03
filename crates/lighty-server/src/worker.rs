//! A worker: the state shared by the connections of one thread, and its work once a second.

pub(crate) mod conn_table;
pub(crate) mod crew;
pub(crate) mod idle;
mod lateness;
mod orders;
mod paces;
pub(crate) mod restarts;
pub(crate) mod shares;
pub(crate) mod thread;

use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use lighty_core::log::{About, Level};
use lighty_core::machine::status_board::OldGenerationReport;
use lighty_core::settings::limits;
use lighty_core::{Exchange, Fault, Generation, LogThrottle, Machine, Settings};
use lighty_io::clock::ticks::Ticks;
use lighty_io::process::memory;
use lighty_io::process::syscall_fallback;
use lighty_io::send::Sender;
use lighty_io::threads::panics;
use lighty_proxy::route::rules::Route;
use lighty_proxy::serve::local::Local;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::conn::h1::{H1Exchange, InputMemory};
use crate::conn::h2::{H2Buffers, H2Exchange};
use crate::tls::WorkerTls;
use crate::worker::conn_table::{ConnEntry, ConnTable, sweep_s, wait_s};
use crate::worker::lateness::Lateness;
use crate::worker::paces::Paces;

/// Maximum number of buffers for bodies that a worker keeps. A body has one only while it is read.
const BODY_BUFFERS_MAX: usize = 16;

/// Variants of settings that are freed in one turn of the event loop.
const SHRINK_STEP: usize = 64;

/// Frees an earlier configuration's settings without a long stop of the event loop.
async fn free_in_steps(old: Rc<Generation>) {
    while old.shrink(SHRINK_STEP) > 0 {
        tokio::task::yield_now().await;
    }
}

/// Forwards a listener's raw connections to a backend.
#[derive(Clone)]
pub struct TcpProxy {
    /// This worker's connections to backends.
    pub local: Rc<Local>,
    /// The backends, and how their connections are made.
    pub route: Arc<Route>,
}

/// Use of the listeners while the worker serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listening {
    /// Connections are accepted.
    #[default]
    Accepts,
    /// Another process has the sockets, and accepts on them for now.
    Held,
}

/// Pool of exchanges and buffers for HTTP/2 connections.
#[derive(Default)]
struct H2Pool {
    #[expect(clippy::vec_box, reason = "half a kilobyte is not to be moved for each stream")]
    exchanges: Vec<Box<H2Exchange>>,
    #[expect(clippy::vec_box, reason = "a connection keeps a word instead of buffers")]
    buffers: Vec<Box<H2Buffers>>,
}

/// State shared by the connections of one thread.
pub struct Worker {
    /// State that outlives configurations: the clock, files, counters, the error log.
    pub machine: Rc<Machine>,
    /// The configuration that requests begin under.
    generation: RefCell<Rc<Generation>>,
    /// Earlier configurations that requests in progress may use.
    old_generations: RefCell<Vec<Weak<Generation>>>,
    /// Notified when the configuration has changed.
    swapped: Notify,
    /// Sends response bodies, by the network backend that is configured.
    pub sender: Sender,
    /// The timeouts and states of all its connections.
    pub conns: ConnTable,
    #[expect(clippy::vec_box, reason = "half a kilobyte is not to be moved for each burst")]
    idle_exchanges: RefCell<Vec<Box<H1Exchange>>>,
    idle_h2: RefCell<H2Pool>,
    /// Memory for the input of HTTP/1 connections.
    h1_input: InputMemory,
    pub(crate) connections_max: Cell<usize>,
    date: RefCell<(i64, [u8; 29])>,
    /// Notified when a connection has ended or, while listeners wait for room, become idle.
    pub(crate) room: Notify,
    /// Number of listeners that wait for room.
    pub(crate) crowding: Cell<u32>,
    /// Rate-limits the log: the connection limit is reached, descriptors are exhausted.
    pub(crate) crowded: LogThrottle,
    pub(crate) short_of_descriptors: LogThrottle,
    pub(crate) tls: WorkerTls,
    /// Rate-limits the log: clients speak TLS to a clear-text HTTP/1 port.
    pub tls_clients: LogThrottle,
    /// Like `tls_clients`, for the preface of HTTP/2 (RFC 9113 section 3.4).
    pub http2_clients: LogThrottle,
    pub(crate) stopping: Cell<bool>,
    pub(crate) listening: Cell<Listening>,
    /// Notified when `stopping` or `listening` is set.
    pub(crate) stop: Notify,
    /// Request and byte counts of the last seconds.
    pub paces: RefCell<Paces>,
    pub(crate) lateness: RefCell<Lateness>,
}

impl Worker {
    /// Creates a worker. `connections_max` is its share of `server.max-connections`.
    pub fn new(generation: Rc<Generation>, sender: Sender, connections_max: usize) -> Self {
        Self {
            machine: Rc::clone(&generation.machine),
            generation: RefCell::new(generation),
            old_generations: RefCell::default(),
            swapped: Notify::new(),
            sender,
            conns: ConnTable::default(),
            idle_exchanges: RefCell::default(),
            idle_h2: RefCell::default(),
            h1_input: InputMemory::new(limits::IDLE_EXCHANGES_MAX, BODY_BUFFERS_MAX),
            connections_max: Cell::new(connections_max.max(1)),
            date: RefCell::new((i64::MIN, [0; 29])),
            room: Notify::new(),
            crowding: Cell::new(0),
            crowded: LogThrottle::default(),
            short_of_descriptors: LogThrottle::default(),
            tls: WorkerTls::default(),
            tls_clients: LogThrottle::default(),
            http2_clients: LogThrottle::default(),
            stopping: Cell::new(false),
            listening: Cell::default(),
            stop: Notify::new(),
            paces: RefCell::default(),
            lateness: RefCell::default(),
        }
    }

    /// The configuration that requests begin under.
    pub fn generation(&self) -> Ref<'_, Rc<Generation>> {
        self.generation.borrow()
    }

    /// The settings outside all conditions.
    pub fn global(&self) -> Rc<Settings> {
        Rc::clone(&self.generation.borrow().global)
    }

    /// Sets the configuration for new requests; requests in progress end under theirs.
    /// `connections_max` is as in [`new`](Self::new).
    pub fn swap(&self, generation: Rc<Generation>, connections_max: usize) {
        self.connections_max.set(connections_max.max(1));
        let old = self.generation.replace(generation);
        // Pooled exchanges would keep the old one.
        let pooled = std::mem::take(&mut *self.idle_exchanges.borrow_mut());
        let pooled_h2 = std::mem::take(&mut self.idle_h2.borrow_mut().exchanges);
        let mut olds = self.old_generations.borrow_mut();
        olds.retain(|old| old.strong_count() > 0);
        olds.push(Rc::downgrade(&old));
        drop(olds);
        drop((pooled, pooled_h2));
        if old.shrink(SHRINK_STEP) > 0 {
            tokio::task::spawn_local(free_in_steps(old));
        }
        self.swapped.notify_waiters();
        self.room.notify_waiters();
    }

    /// Lists the earlier configurations that are in use.
    pub(crate) fn old_generations(&self) -> Vec<OldGenerationReport> {
        let olds = self.old_generations.borrow();
        let used = olds.iter().filter_map(|old| Some((old.strong_count(), old.upgrade()?)));
        used.map(|(holders, old)| OldGenerationReport { number: old.number, holders }).collect()
    }

    /// Resolves when the configuration has changed.
    pub(crate) async fn swaps(&self) {
        self.swapped.notified().await;
    }

    /// Monotonic seconds for the sweep.
    pub fn now_s(&self) -> u32 {
        sweep_s(&self.machine.clock)
    }

    /// The value of the Date field, formatted once a second.
    pub fn date(&self) -> [u8; 29] {
        let now = self.machine.clock.unix_s();
        let mut date = self.date.borrow_mut();
        if date.0 != now {
            *date = (now, lighty_http::date::format(now));
        }
        date.1
    }

    /// Takes an exchange from the pool, or creates one.
    #[inline(always)]
    pub(crate) fn acquire(&self) -> Box<H1Exchange> {
        let pooled = self.idle_exchanges.borrow_mut().pop();
        pooled.unwrap_or_else(|| {
            let exchange = Exchange::new(&self.generation.borrow());
            let memory = self.h1_input.clone();
            Box::new(H1Exchange::new(exchange, self.machine.clock.clone(), memory))
        })
    }

    /// Returns an exchange to the pool, up to the pool's limit.
    #[inline(always)]
    pub(crate) fn give_back(&self, mut h1: Box<H1Exchange>) {
        if !Rc::ptr_eq(&h1.exchange.generation, &self.generation.borrow()) {
            return;
        }
        let mut idle = self.idle_exchanges.borrow_mut();
        if idle.len() < limits::IDLE_EXCHANGES_MAX {
            h1.trim();
            idle.push(h1);
        }
    }

    /// Like [`acquire`](Self::acquire), for a stream of HTTP/2.
    pub(crate) fn acquire_h2(&self) -> Box<H2Exchange> {
        let pooled = self.idle_h2.borrow_mut().exchanges.pop();
        pooled.unwrap_or_else(|| {
            let exchange = Exchange::new(&self.generation.borrow());
            Box::new(H2Exchange::new(exchange, self.machine.clock.clone()))
        })
    }

    /// Like [`give_back`](Self::give_back).
    pub(crate) fn give_back_h2(&self, h2: Box<H2Exchange>) {
        if !Rc::ptr_eq(&h2.exchange.generation, &self.generation.borrow()) {
            return;
        }
        let idle = &mut self.idle_h2.borrow_mut().exchanges;
        if idle.len() < limits::IDLE_EXCHANGES_MAX {
            idle.push(h2);
        }
    }

    /// Buffers for a connection of HTTP/2 that is not idle any more.
    pub(crate) fn acquire_h2_buffers(&self) -> Box<H2Buffers> {
        self.idle_h2.borrow_mut().buffers.pop().unwrap_or_default()
    }

    /// Returns them to the pool, up to the pool's limit.
    pub(crate) fn give_back_h2_buffers(&self, mut buffers: Box<H2Buffers>) {
        let idle = &mut self.idle_h2.borrow_mut().buffers;
        if idle.len() < limits::IDLE_BUFFERS_MAX {
            buffers.trim();
            idle.push(buffers);
        }
    }

    /// Marks a connection as idle, so that it can be closed to make room.
    pub fn idle(&self, entry: &ConnEntry) {
        self.conns.wait_idle(entry, wait_s(&self.machine.clock));
        if self.crowding.get() > 0 {
            self.room.notify_waiters();
        }
    }

    /// Removes a connection that has ended.
    pub fn leave(&self, entry: &ConnEntry) {
        self.conns.leave(entry);
        self.room.notify_waiters();
    }

    /// Resolves when the worker stops.
    pub(crate) async fn stops(&self) {
        while !self.stopping.get() {
            self.stop.notified().await;
        }
    }

    /// Resolves when the worker stops, or accepts no connections for now.
    pub(crate) async fn stops_accepting(&self) {
        while !self.stopping.get() && self.listening.get() == Listening::Accepts {
            self.stop.notified().await;
        }
    }

    /// Sets the use of the listeners.
    pub(crate) fn set_listening(&self, listening: Listening) {
        self.listening.set(listening);
        self.stop.notify_waiters();
    }

    /// Resolves when the worker's stop requires a tunnel to end.
    pub async fn ends_tunnels(&self) {
        self.stops().await;
        match self.global().server.tunnels.stop_timeout_s {
            0 => std::future::pending().await,
            limit_s => sleep(Duration::from_secs(limit_s.into())).await,
        }
    }

    /// Enforces timeouts and frees unused resources once a second.
    pub async fn sweep(self: Rc<Self>) {
        let mut ticks = Ticks::every(Duration::from_secs(1));
        loop {
            ticks.next().await;
            panics::point("sweep");
            self.machine.clock.refresh();
            self.machine.stat_cache.sweep();
            self.machine.sweep_roots();
            self.sender.trim();
            memory::settle();
            if let Some(message) = self.machine.stat_cache.take_warnings() {
                self.log(Level::Warning, &format!("server.stat-cache-engine: {message}"));
            }
            if let Some(message) = self.tls.causes.settle(self.now_s()) {
                self.log(Level::Notice, &message);
            }
            syscall_fallback::take_warnings().for_each(|message| self.log(Level::Warning, message));
            self.machine.log.settle_repeats(self.machine.clock.unix_s(), false);
            let counters = &self.machine.counters;
            self.paces.borrow_mut().note(counters.requests.get(), counters.bytes_out.get());
            self.lateness.borrow_mut().note(self.machine.clock.take_late_us());
            self.note_second();
            let now_s = self.machine.clock.unix_s();
            self.machine.watch.expire(now_s);
            self.machine.log.expire(now_s);
            self.conns.sweep(self.now_s(), |fault| {
                if fault != Fault::ClientGone {
                    self.machine.counters.timed_out.add(1);
                }
            });
        }
    }

    /// Records the figures of the second that ends, for charts.
    fn note_second(&self) {
        let (clock, pace) = (&self.machine.clock, self.paces.borrow().latest());
        self.machine.metrics.note_second(clock.unix_s(), self.conns.open() as u64, pace.bytes_out);
    }

    /// Stops accepting connections; open ones close after their response.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.stop.notify_waiters();
        self.room.notify_waiters();
        self.conns.close_when_idle(self.now_s());
    }

    /// Resolves when all connections have closed.
    pub async fn drain(&self) {
        while self.conns.open() > 0 {
            self.room.notified().await;
        }
    }

    /// Logs an error-log line that belongs to no request.
    #[track_caller]
    pub fn log(&self, level: Level, message: &str) {
        let now = self.machine.clock.unix_s();
        self.machine.log.line(level, now, message, About::default());
    }
}
