//! The proxy state of one worker.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use lighty_buf::{BufPool, ReadBufPool};
use lighty_core::log::{About, Level, Log};
use lighty_core::machine::bad_messages::BadMessages;
use lighty_core::machine::random::Random;
use lighty_core::{ErrorOutput, Machine};
use lighty_io::clock::Clock;
use lighty_io::clock::alarms::Alarms;
use lighty_io::clock::ticks::Ticks;
use lighty_io::connect::ConnectOptions;
use lighty_io::threads::{keep, panics};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::connect::backlog::Backlog;
use crate::connect::h2::Hub;
use crate::connect::listen_queue;
use crate::connect::pool::{ConnPermit, Pool, SWEEP_MS};
use crate::serve::upstream_call::{INBOX_BYTES, UpstreamCall};
use crate::upstream::Upstream;
use crate::upstream::balance::Choice;
use crate::upstream::health::passive::HealthChange;
use crate::upstream::registry::{Naming, Registry};
use crate::upstream::spec::{Protocol, UpstreamSpec};

/// Size in bytes of a buffer for response bodies.
pub const PIECE_BYTES: usize = 64 * 1024;

/// Maximum number of these buffers per worker.
const PIECES_MAX: usize = 1024;

/// Maximum number of idle calls kept for reuse, for each protocol.
const CALLS_KEPT_MAX: usize = 256;

/// A worker's side of the proxy.
pub struct Local {
    /// The worker's clock.
    pub clock: Clock,
    /// The worker's idle connections to backends.
    pub pool: Pool,
    /// The worker's HTTP/2 connections.
    pub(crate) h2: Hub,
    /// Timeouts of requests in progress.
    pub alarms: Rc<Alarms>,
    /// Options for opening connections to backends.
    pub connect: ConnectOptions,
    /// Buffers for response bodies, of [`PIECE_BYTES`] each.
    pub pieces: BufPool,
    /// Buffer for the choice among addresses.
    pub(crate) choices: RefCell<Vec<Choice>>,
    registry: Arc<Registry>,
    /// Keyed by the address of the spec, which the settings keep alive.
    known: RefCell<HashMap<*const UpstreamSpec, LocalUpstream, foldhash::fast::RandomState>>,
    /// The upstreams of the current generation.
    naming: RefCell<Option<Arc<Naming>>>,
    /// The tasks that give up idle connections, by index of the upstream.
    reclaimers: RefCell<HashMap<usize, Reclaimer, foldhash::fast::RandomState>>,
    #[expect(clippy::vec_box, reason = "half a kilobyte is not to be moved for each request")]
    calls: RefCell<Vec<(Protocol, Vec<Box<UpstreamCall>>)>>,
    /// Memory for the inboxes of calls.
    inboxes: ReadBufPool,
    random: Random,
    log: Log,
    /// The latest malformed responses, for operators.
    pub(crate) bad_messages: Rc<BadMessages>,
}

struct LocalUpstream {
    upstream: Arc<Upstream>,
    /// Keeps the key, which is the spec's address, from being reused.
    spec: Arc<UpstreamSpec>,
}

/// Ends its task on drop.
struct Reclaimer(JoinHandle<()>);

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Local {
    /// Starts the proxy for a worker. Its tasks run until the worker ends.
    pub fn start(machine: &Machine, registry: Arc<Registry>) -> Rc<Self> {
        let worker = registry.enlist();
        let local = Self::new(worker, machine, registry);
        local.alarms.run();
        let swept = Rc::clone(&local);
        keep::keep("proxy sweep", move || Rc::clone(&swept).sweep());
        let giving_up = Rc::clone(&local);
        keep::keep("proxy surplus", move || Rc::clone(&giving_up).end_surplus());
        local
    }

    fn new(worker: usize, machine: &Machine, registry: Arc<Registry>) -> Rc<Self> {
        let clock = machine.clock.clone();
        let alarms = Rc::clone(&machine.alarms);
        Rc::new(Self {
            log: machine.log.clone(),
            bad_messages: Rc::clone(&machine.bad_messages),
            pool: Pool::new(worker, clock.clone()),
            h2: Hub::new(&alarms),
            alarms,
            connect: ConnectOptions::default(),
            pieces: BufPool::new(PIECE_BYTES, PIECES_MAX),
            choices: RefCell::default(),
            registry,
            known: RefCell::default(),
            naming: RefCell::default(),
            reclaimers: RefCell::default(),
            calls: RefCell::default(),
            inboxes: ReadBufPool::new(INBOX_BYTES, CALLS_KEPT_MAX),
            random: Random::new(clock.mono_us() ^ ((worker as u64 + 1) << 48)),
            clock,
        })
    }

    /// Returns the upstream for a spec of the generation of this naming. At first use, starts the
    /// worker's tasks for it.
    pub fn upstream(self: &Rc<Self>, spec: &Arc<UpstreamSpec>, naming: &Naming) -> Arc<Upstream> {
        if let Some(known) = self.known.borrow().get(&Arc::as_ptr(spec)) {
            return Arc::clone(&known.upstream);
        }
        let upstream = self.registry.upstream(spec, naming);
        let known = LocalUpstream { upstream: Arc::clone(&upstream), spec: Arc::clone(spec) };
        self.known.borrow_mut().insert(Arc::as_ptr(spec), known);
        self.reclaimers.borrow_mut().entry(upstream.index).or_insert_with(|| {
            let (local, of) =
                (Rc::clone(self), (Arc::clone(&upstream.backlog), Arc::clone(&upstream.reclaim)));
            Reclaimer(keep::keep("proxy places", move || {
                Rc::clone(&local).give_up_idle(of.clone())
            }))
        });
        upstream
    }

    /// Returns the upstream for a spec of the current generation.
    pub(crate) fn upstream_now(self: &Rc<Self>, spec: &Arc<UpstreamSpec>) -> Arc<Upstream> {
        let naming = self.naming();
        self.upstream(spec, &naming)
    }

    /// Switches new requests to the generation that names these upstreams.
    pub fn adopt(&self, naming: &Arc<Naming>) {
        let before = self.naming.replace(Some(Arc::clone(naming)));
        drop(before);
    }

    fn naming(&self) -> Arc<Naming> {
        let mut naming = self.naming.borrow_mut();
        Arc::clone(naming.get_or_insert_with(|| self.registry.nothing_named()))
    }

    /// Removes the upstreams of generations that have ended.
    fn forget(&self) {
        let mut known = self.known.borrow_mut();
        let over: Vec<_> =
            known.extract_if(|_, known| Arc::strong_count(&known.spec) == 1).collect();
        if over.is_empty() {
            return;
        }
        let is_used = |index: &usize| known.values().any(|k| k.upstream.index == *index);
        self.reclaimers.borrow_mut().retain(|index, _| is_used(index));
    }

    /// Closes idle connections if requests of other workers wait for their permits.
    async fn give_up_idle(self: Rc<Self>, (backlog, reclaim): (Arc<Backlog>, Arc<Notify>)) {
        loop {
            reclaim.notified().await;
            panics::point("proxy places");
            self.pool.reclaim(&backlog);
        }
    }

    /// Closes idle connections that requests of any worker may be waiting behind.
    async fn end_surplus(self: Rc<Self>) {
        loop {
            let mut surplus = std::pin::pin!(listen_queue::surplus());
            // No notification is missed from here on.
            surplus.as_mut().enable();
            self.pool.end_surplus();
            surplus.await;
            panics::point("proxy surplus");
        }
    }

    /// Runs once a second: closes connections that were idle for too long.
    pub async fn sweep(self: Rc<Self>) {
        let mut ticks = Ticks::every(std::time::Duration::from_millis(SWEEP_MS));
        loop {
            ticks.next().await;
            panics::point("proxy sweep");
            self.pool.sweep(self.clock.mono_ms());
            self.h2.sweep();
            self.pieces.trim();
            self.forget();
        }
    }

    /// Takes a call for a protocol from the free list, or creates one.
    pub(crate) fn take_call(&self, protocol: &Protocol) -> Box<UpstreamCall> {
        let mut calls = self.calls.borrow_mut();
        let kept = calls.iter_mut().find(|(known, _)| known == protocol);
        let kept = kept.and_then(|(_, kept)| kept.pop());
        kept.unwrap_or_else(|| {
            Box::new(UpstreamCall::new(protocol, &self.alarms, self.inboxes.clone()))
        })
    }

    /// Returns a call to the free list.
    pub(crate) fn give_back(&self, mut call: Box<UpstreamCall>, protocol: &Protocol) {
        call.clear();
        let mut calls = self.calls.borrow_mut();
        match calls.iter_mut().find(|(known, _)| known == protocol) {
            Some((_, kept)) if kept.len() < CALLS_KEPT_MAX => kept.push(call),
            Some(_) => {}
            None => calls.push((protocol.clone(), vec![call])),
        }
    }

    /// Writes a backend's error output to the error log.
    pub(crate) fn log_stderr(&self, permit: &ConnPermit, call: &mut UpstreamCall) {
        let output = call.session.take_stderr();
        if output.is_empty() {
            return;
        }
        let share_kbytes = call.error_kbytes_max;
        let errors = call.errors.get_or_insert_with(|| {
            let name = &permit.upstream.spec.name;
            let who = format!("{name}, backend {}", permit.address.spec.text);
            let (log, clock) = (self.log.clone(), self.clock.clone());
            Box::new(ErrorOutput::new(log, clock, who, share_kbytes))
        });
        for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            errors.take_line(line);
        }
    }

    /// Records a response to a request that began at `began_ms`, and logs the return of an address.
    pub(crate) fn note_success(&self, permit: &ConnPermit, began_ms: u64) {
        let now_ms = self.clock.mono_ms();
        permit.address.answered(now_ms);
        if permit.upstream.succeeded(&permit.address, began_ms, now_ms) == HealthChange::CameBack {
            let (name, text) = (&permit.upstream.spec.name, &permit.address.spec.text);
            permit.address.set_last_error(None);
            self.say(Level::Notice, &format!("{name}: backend {text} is up again"));
        }
    }

    /// Records that an address refused, or failed by its own fault.
    pub(crate) fn note_failure(&self, permit: &ConnPermit, began_ms: u64, reason: &str) {
        let now_ms = self.clock.mono_ms();
        let change = permit.upstream.failed(&permit.address, began_ms, now_ms);
        if let HealthChange::WentDown { until_ms } = change {
            let (name, text) = (&permit.upstream.spec.name, &permit.address.spec.text);
            permit.address.set_last_error(Some(reason));
            let for_ms = until_ms.saturating_sub(now_ms);
            let message = format!("{name}: backend {text} is down ({reason}), for {for_ms} ms");
            self.say(Level::Error, &message);
        }
    }

    /// Logs a line without a request.
    pub(crate) fn say(&self, level: Level, message: &str) {
        self.log.line(level, self.clock.unix_s(), message, About::default());
    }

    /// Returns a random number, good enough for balancing.
    pub(crate) fn random(&self) -> u64 {
        self.random.next()
    }
}
