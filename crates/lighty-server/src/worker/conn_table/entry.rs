//! A connection as the sweep and the limits see it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;

use lighty_core::Fault;
use lighty_core::exchange::request::Request;
use lighty_core::exchange::throttle::Bucket;
use lighty_core::machine::status_board::ConnState;
use lighty_http::Method;
use lighty_io::clock::Clock;
use lighty_io::transport::{Peer, ShutdownHandle, ShutdownHow, Stream};

use super::phase::{ConnAction, ConnEvent, ConnLife, ConnPhase, ConnWait};
use super::stream::StreamEntry;
use super::wait_s;

/// Limits of a connection between requests: seconds, 0 = none.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnLimits {
    pub idle_s: u32,
    pub head_s: u32,
    /// Log the end of an idle connection (`debug.log-timeouts`).
    pub log_idle: bool,
}

/// Grace period during a stop for a connection whose client may be about to send a request, because
/// it has not sent one yet or was served less than this time ago, in seconds rounded up.
const LAST_CHANCE_S: u32 = 2;

/// Time during which a new or a lingering connection is reaped last, in seconds rounded up.
const NEWCOMER_S: u32 = 2;

/// Time during which a partial head is not reaped, in seconds rounded up.
const HALF_HEAD_S: u32 = 2;

/// Time after which an idle connection frees TLS buffers that can be recreated, in seconds rounded
/// up.
const LONG_IDLE_S: u32 = 2;

/// A connection's entry. Every idle connection holds one, so it is small.
pub struct ConnEntry {
    shutdown: ShutdownHandle,
    phase: Cell<ConnPhase>,
    since_s: Cell<u32>,
    limits: Cell<ConnLimits>,
    shut_down_for: Cell<Option<Fault>>,
    /// The stream that a connection has from the beginning: HTTP/1 has no other.
    pub stream: StreamEntry,
    /// Fields that few connections use.
    rare: RefCell<Option<Box<Rare>>>,
    /// The TLS stream, if the connection is encrypted.
    secured: OnceCell<Weak<Stream>>,
    /// Position in the order in which connections became idle.
    pub(super) idle_order: Cell<u64>,
    pub(super) index: Cell<u32>,
    client: Rc<str>,
}

/// Fields that few connections use.
#[derive(Default)]
struct Rare {
    /// The streams that were opened on it and wait, in order.
    streams: Vec<OpenStream>,
    /// Wakes the loop of a connection of several streams.
    loop_waker: Option<Waker>,
    /// Bucket for `connection.kbytes-per-second`, created by the first throttled response.
    bucket: Option<Arc<Bucket>>,
    summary: Option<RequestSummary>,
}

/// A stream of a connection, while it waits.
struct OpenStream {
    /// Its identifier in the protocol.
    id: u32,
    /// Wakes its task.
    waker: Waker,
    entry: Weak<StreamEntry>,
    /// Summary of its request, kept while the status page may show it.
    summary: Option<Box<RequestSummary>>,
}

impl OpenStream {
    /// Ends the stream. Returns false if it has ended already.
    fn kill(&self) -> bool {
        let Some(stream) = self.entry.upgrade() else { return false };
        stream.cut_for(Fault::Killed);
        self.waker.wake_by_ref();
        true
    }
}

/// Limit on the bytes kept of a stream's host and target; there may be many streams.
const STREAM_TEXT_BYTES_MAX: usize = 1024;

/// The latest request of a connection or a stream, for the status page.
#[derive(Clone, Debug, Default)]
pub struct RequestSummary {
    pub method: &'static str,
    pub host: Vec<u8>,
    /// The request target as received.
    pub target: Vec<u8>,
    pub scheme: &'static str,
    pub protocol: &'static str,
    pub local_port: u16,
    /// 0 for a client of a unix socket.
    pub remote_port: u16,
}

impl RequestSummary {
    fn take(&mut self, request: &Request, text_bytes_max: usize) {
        let text = |bytes: &mut Vec<u8>, from: &[u8]| {
            bytes.clear();
            bytes.extend_from_slice(&from[..from.len().min(text_bytes_max)]);
        };
        self.method = request.method.map_or("", Method::as_str);
        text(&mut self.host, &request.authority);
        text(&mut self.target, &request.target_raw);
        self.scheme = request.scheme;
        self.protocol = request.version.as_str();
        self.local_port = request.local_port;
        self.remote_port = match request.peer {
            Peer::Inet(address) => address.port(),
            Peer::Unix => 0,
        };
    }

    /// Summarizes a stream's request.
    pub fn on_stream(request: &Request) -> Self {
        let mut summary = Self::default();
        summary.take(request, STREAM_TEXT_BYTES_MAX);
        summary
    }
}

/// Activity of a connection or a stream, for the status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doing {
    pub state: ConnState,
    /// Start of the current state, in sweep seconds.
    pub since_s: u32,
    /// Bytes moved since then.
    pub bytes: u64,
}

impl Doing {
    fn of(stream: &StreamEntry) -> Self {
        let (state, since_s) = (stream.state(), stream.since_s());
        Self { state, since_s, bytes: stream.progress.get() }
    }
}

impl ConnEntry {
    /// Creates the entry of a connection that was just accepted.
    pub(super) fn new(
        shutdown: ShutdownHandle,
        client: Rc<str>,
        idle_order: u64,
        now_s: u32,
    ) -> Self {
        Self {
            shutdown,
            phase: Cell::new(ConnPhase::NEW),
            since_s: Cell::new(now_s),
            limits: Cell::new(ConnLimits::default()),
            shut_down_for: Cell::new(None),
            stream: StreamEntry::new(),
            rare: RefCell::default(),
            secured: OnceCell::new(),
            idle_order: Cell::new(idle_order),
            index: Cell::new(0),
            client,
        }
    }

    /// Registers the TLS stream of an encrypted connection.
    pub fn secure(&self, stream: &Rc<Stream>) {
        let is_first = self.secured.set(Rc::downgrade(stream)).is_ok();
        debug_assert!(is_first, "a connection has only one handshake");
    }

    /// Returns the TLS stream, if the connection is encrypted and has been idle for a while.
    pub(super) fn long_idle(&self, now_s: u32) -> Option<Rc<Stream>> {
        let is_long_idle =
            self.is_idle() && now_s.saturating_sub(self.since_s.get()) >= LONG_IDLE_S;
        self.secured.get().filter(|_| is_long_idle)?.upgrade()
    }

    /// Adds another stream to the sweep, which wakes `waker` when it ends the stream's wait.
    pub fn watch_stream(
        &self,
        id: u32,
        stream: &Rc<StreamEntry>,
        waker: Waker,
        summary: Option<Box<RequestSummary>>,
    ) {
        let mut rare = self.rare.borrow_mut();
        let opened = OpenStream { id, waker, entry: Rc::downgrade(stream), summary };
        let streams = &mut rare.get_or_insert_default().streams;
        debug_assert!(
            !streams.iter().any(|known| known.entry.ptr_eq(&opened.entry)),
            "watched twice"
        );
        streams.push(opened);
    }

    /// Removes a stream that has ended.
    pub fn forget_stream(&self, stream: &Rc<StreamEntry>) {
        let gone = Rc::downgrade(stream);
        if let Some(rare) = &mut *self.rare.borrow_mut() {
            rare.streams.retain(|known| !known.entry.ptr_eq(&gone));
        }
    }

    /// Wakes the connection's loop, once, instead of shutting the connection down: the loop sends
    /// the protocol's closing message first.
    pub fn wake_at_end(&self, waker: &Waker) {
        let mut rare = self.rare.borrow_mut();
        let known = &mut rare.get_or_insert_default().loop_waker;
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// Returns false if the connection has no loop that closes it.
    fn wake_loop(&self) -> bool {
        let rare = self.rare.borrow();
        let waker = rare.as_ref().and_then(|rare| rare.loop_waker.as_ref());
        waker.inspect(|waker| waker.wake_by_ref()).is_some()
    }

    /// Moves to the next phase. Returns the action to perform.
    #[inline]
    fn enter(&self, event: ConnEvent) -> ConnAction {
        let (phase, action) = self.phase.get().after(event);
        self.phase.set(phase);
        action
    }

    /// Records a wait for a request.
    #[inline]
    pub(super) fn wait_for_request(&self, now_s: u32) {
        self.enter(ConnEvent::AwaitRequest);
        self.since_s.set(now_s);
    }

    /// Records a wait for the rest of a head.
    pub fn wait_for_head(&self, clock: &Clock) {
        self.wait_for_head_from(wait_s(clock));
    }

    pub(super) fn wait_for_head_from(&self, now_s: u32) {
        self.enter(ConnEvent::AwaitHead);
        self.since_s.set(now_s);
    }

    /// Records that a request has arrived. Until the next wait of the connection itself, the sweep
    /// checks its streams.
    #[inline]
    pub fn begin_request(&self) {
        self.enter(ConnEvent::Request);
    }

    /// Sets the limits in force from now on.
    pub fn limit(&self, limits: ConnLimits) {
        self.limits.set(limits);
    }

    /// Returns the limits in force.
    pub fn limits(&self) -> ConnLimits {
        self.limits.get()
    }

    /// Returns the connection's bucket for a rate in KB per second; its requests share it.
    pub fn bucket(&self, kbytes: u64, now_ms: u64) -> Arc<Bucket> {
        let mut rare = self.rare.borrow_mut();
        let bucket = &mut rare.get_or_insert_default().bucket;
        match bucket {
            Some(known) if known.kbytes_per_second() == kbytes => Arc::clone(known),
            _ => Arc::clone(bucket.insert(Arc::new(Bucket::per_second(kbytes, now_ms)))),
        }
    }

    /// Returns the client's address.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Records a request.
    pub fn note(&self, request: &Request) {
        let mut rare = self.rare.borrow_mut();
        let summary = rare.get_or_insert_default().summary.get_or_insert_default();
        summary.take(request, usize::MAX);
    }

    /// Returns the latest recorded request.
    pub fn summary(&self) -> Option<RequestSummary> {
        self.rare.borrow().as_ref()?.summary.clone()
    }

    /// Returns the connection's activity: of several streams, that of the oldest with a request.
    pub fn doing(&self) -> Doing {
        let own = |state| Doing { state, since_s: self.since_s.get(), bytes: 0 };
        match self.phase.get().wait {
            ConnWait::Request => own(ConnState::Idle),
            ConnWait::Head => own(ConnState::Head),
            ConnWait::Streams => {
                if self.stream.state() != ConnState::Idle {
                    return Doing::of(&self.stream);
                }
                let rare = self.rare.borrow();
                let opened = rare.iter().flat_map(|rare| &rare.streams);
                let mut open = opened.filter_map(|stream| stream.entry.upgrade());
                let busy = open.find(|stream| stream.state() != ConnState::Idle);
                busy.map_or_else(|| own(ConnState::Handler), |stream| Doing::of(&stream))
            }
        }
    }

    /// Calls `see` with each waiting stream and its identifier, in order.
    pub fn for_each_stream(&self, mut see: impl FnMut(u32, Doing, Option<&RequestSummary>)) {
        for stream in self.rare.borrow().iter().flat_map(|rare| &rare.streams) {
            if let Some(entry) = stream.entry.upgrade() {
                see(stream.id, Doing::of(&entry), stream.summary.as_deref());
            }
        }
    }

    /// Returns its index in the table.
    pub fn number(&self) -> u32 {
        self.index.get()
    }

    /// Returns the reason why the sweep ended the connection's own wait, if it did.
    pub fn shut_down_for(&self) -> Option<Fault> {
        self.shut_down_for.get()
    }

    /// Makes the current request, if any, the last one before a stop. A connection without one gets
    /// a short grace period if its client may be about to send a request: a connection that closes
    /// beside a request loses it.
    pub fn close_soon(&self, now_s: u32) {
        let is_in_use = now_s.saturating_sub(self.since_s.get()) < LAST_CHANCE_S;
        let action = self.enter(match is_in_use {
            true => ConnEvent::StopInUse,
            false => ConnEvent::Stop,
        });
        self.perform(action);
        if action == ConnAction::StartGrace {
            // The grace period starts now, whatever the connection's age.
            self.since_s.set(now_s);
            self.limits.set(ConnLimits { idle_s: LAST_CHANCE_S, ..self.limits.get() });
        }
    }

    /// Performs an action. Returns false if it had no effect.
    fn perform(&self, action: ConnAction) -> bool {
        match action {
            ConnAction::Nothing => false,
            ConnAction::WakeLoop | ConnAction::StartGrace => self.wake_loop(),
            ConnAction::CloseIdle => self.wake_loop() || self.shutdown.shut_down_idle(),
            ConnAction::Cut => self.shutdown.shut_down(ShutdownHow::Both),
        }
    }

    /// Records that the last response is sent and that no further request is served.
    pub fn linger(&self) {
        self.enter(ConnEvent::LastResponse);
    }

    /// Closes an idle connection, to make room. Returns false if a request has arrived, after which
    /// it closes.
    pub(super) fn reap(&self) -> bool {
        let action = self.enter(ConnEvent::Reap);
        self.perform(action)
    }

    /// True if the connection must close once idle (stop, reaping).
    #[inline]
    pub fn is_closing(&self) -> bool {
        matches!(self.phase.get().life, ConnLife::LastChance | ConnLife::Closing)
    }

    /// True if the connection waits for a request.
    pub fn is_idle(&self) -> bool {
        self.phase.get().wait == ConnWait::Request
    }

    /// True if part of a head has arrived.
    pub fn is_in_head(&self) -> bool {
        self.phase.get().wait == ConnWait::Head
    }

    /// Returns the start of the connection's own wait, in sweep seconds.
    pub(super) fn since_s(&self) -> u32 {
        self.since_s.get()
    }

    /// True if the connection is to be closed after the other idle ones: it was just accepted and
    /// has sent no request yet, or its client is just receiving the last response.
    pub(super) fn is_reaped_last(&self, now_s: u32) -> bool {
        matches!(self.phase.get().life, ConnLife::New | ConnLife::LastChance | ConnLife::Lingering)
            && now_s.saturating_sub(self.since_s.get()) < NEWCOMER_S
    }

    /// True if the rest of the head is overdue enough to make room for others.
    pub(super) fn is_slow(&self, now_s: u32) -> bool {
        self.phase.get().wait == ConnWait::Head
            && self.shut_down_for.get().is_none()
            && now_s.saturating_sub(self.since_s.get()) >= HALF_HEAD_S
    }

    /// Returns the limit that the connection itself has exceeded at `now_s`, if any.
    pub(super) fn overdue(&self, now_s: u32) -> Option<Fault> {
        let limits = self.limits.get();
        let waited = now_s.saturating_sub(self.since_s.get());
        let over = |limit: u32| limit > 0 && waited >= limit;
        match self.phase.get().wait {
            ConnWait::Request => over(limits.idle_s).then_some(Fault::ClientGone),
            ConnWait::Head => over(limits.head_s).then_some(Fault::HeadTimeout),
            ConnWait::Streams => None,
        }
    }

    /// Ends the connection, or single streams, after a wait longer than the limit. Calls `report`
    /// for each. Releases TLS buffers of a connection that has been idle for long.
    pub(super) fn sweep(&self, now_s: u32, report: &mut impl FnMut(Fault)) {
        if let Some(fault) = self.overdue(now_s) {
            report(fault);
            self.shut_down(fault);
        }
        if let Some(stream) = self.long_idle(now_s) {
            stream.release_buffers();
        }
        if let Some(fault) = self.stream.overdue(now_s) {
            report(fault);
            self.shutdown.shut_down(self.stream.cut_for(fault));
        }
        for OpenStream { waker, entry, .. } in
            self.rare.borrow().iter().flat_map(|rare| &rare.streams)
        {
            if let Some(stream) = entry.upgrade()
                && let Some(fault) = stream.overdue(now_s)
            {
                report(fault);
                stream.cut_for(fault);
                waker.wake_by_ref();
            }
        }
    }

    /// Ends the connection at an operator's order, whatever it does.
    pub(super) fn kill(&self) {
        self.shut_down_for.set(Some(Fault::Killed));
        self.stream.cut_for(Fault::Killed);
        for opened in self.rare.borrow().iter().flat_map(|rare| &rare.streams) {
            opened.kill();
        }
        self.shutdown.shut_down(ShutdownHow::Both);
        self.wake_loop();
    }

    /// Ends a waiting stream at an operator's order. Returns false if there is no such stream.
    pub(super) fn kill_stream(&self, id: u32) -> bool {
        let rare = self.rare.borrow();
        let mut streams = rare.iter().flat_map(|rare| &rare.streams);
        streams.find(|opened| opened.id == id).is_some_and(OpenStream::kill)
    }

    /// Ends the connection's wait. The client is still notified: by a response if its head is
    /// overdue, and by TLS that the connection ends.
    pub(super) fn shut_down(&self, fault: Fault) {
        let is_first = self.shut_down_for.replace(Some(fault)).is_none();
        if is_first && self.wake_loop() {
            return;
        }
        self.shutdown.shut_down(if is_first { ShutdownHow::Read } else { ShutdownHow::Both });
    }
}
