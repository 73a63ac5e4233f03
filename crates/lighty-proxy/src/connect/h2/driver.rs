//! The task of one connection to a backend that speaks HTTP/2.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use lighty_io::clock::Clock;
use lighty_io::transport::Stream;
use lighty_wire::http2::frame::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES};
use lighty_wire::http2::{Connection, ErrorCode, Event, Limits, StreamKey};

use super::Link;
use super::ending::Ending;
use super::exchange::Exchange;
use super::liveness::{Liveness, Verdict};
use super::record::Kind;
use crate::connect::deadline::Alarm;
use crate::upstream::address::Address;
use crate::upstream::spec::PoolSpec;

/// Bytes read at a time: room for the longest frame.
const INPUT_BYTES: usize = 2 * (FRAME_BYTES_MAX + FRAME_HEAD_BYTES);

/// Bytes that wait to be written before no more content is taken.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Rounds after which the task yields to others.
const ROUNDS_MAX: usize = 16;

/// How long a connection may go without a stream that it allows, in milliseconds.
const SETTLE_MS: u64 = 10_000;

/// How often it is looked whether the connection is needed, in milliseconds.
const LOOK_MS: u64 = 1_000;

/// Whether a connection is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It waits for its first request, which is on its way.
    New,
    Busy,
    /// It is one of the idle connections that are kept.
    Kept,
}

/// A connection and the requests on it.
pub(super) struct Driver {
    machine: Connection,
    far: Stream,
    link: Rc<Link>,
    address: Arc<Address>,
    clock: Clock,
    alarm: Alarm,
    scheme: &'static [u8],
    exchanges: Vec<Exchange>,
    input: Vec<u8>,
    /// Where what has arrived and is not handled begins and ends.
    pending: std::ops::Range<usize>,
    out: Vec<u8>,
    sent: usize,
    /// Since when no request was on it.
    idle_since_ms: u64,
    idle_ms: u64,
    /// Idle connections to the backend that are kept (`proxy-core.max-idle-connections`).
    idle_max: u32,
    rest: Rest,
    /// When it is used no more; `u64::MAX`: never.
    expires_ms: u64,
    liveness: Liveness,
    streams_max: u32,
    /// Nothing is read or written any more.
    is_dead: bool,
}

impl Driver {
    pub(super) fn new(
        clock: &Clock,
        alarm: Alarm,
        address: &Arc<Address>,
        far: Stream,
        link: &Rc<Link>,
        pool: &PoolSpec,
        limits: Limits,
    ) -> Self {
        let now_ms = clock.mono_ms();
        let expires_ms = match pool.lifetime_ms {
            0 => u64::MAX,
            lifetime_ms => now_ms.saturating_add(lifetime_ms),
        };
        Self {
            machine: Connection::client(limits, now_ms),
            scheme: if far.is_tls() { b"https" } else { b"http" },
            far,
            link: Rc::clone(link),
            address: Arc::clone(address),
            clock: clock.clone(),
            alarm,
            exchanges: Vec::new(),
            input: Vec::new(),
            pending: 0..0,
            out: Vec::new(),
            sent: 0,
            idle_since_ms: now_ms,
            idle_ms: pool.idle_ms,
            idle_max: pool.idle_max,
            rest: Rest::New,
            expires_ms,
            liveness: Liveness::new(pool, now_ms),
            streams_max: limits.streams_max,
            is_dead: false,
        }
    }

    /// Goes on with everything; ready when the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.welcome();
            moved |= self.read(cx);
            moved |= self.pump(cx);
            moved |= self.write(cx);
            self.exchanges.iter().for_each(Exchange::tell_written);
            if !moved && let Poll::Ready(is_over) = self.poll_rest(cx) {
                if is_over {
                    return Poll::Ready(());
                }
            } else if !moved {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes requests that have come.
    fn welcome(&mut self) -> bool {
        let arrived = std::mem::take(&mut *self.link.arrivals.borrow_mut());
        let moved = !arrived.is_empty();
        if moved {
            self.be_busy();
        }
        self.exchanges.extend(arrived);
        if self.is_dead {
            self.exchanges.iter_mut().filter(|e| e.key.is_none()).for_each(|e| e.cut(true));
        }
        moved
    }

    /// Reads what the backend sends.
    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_dead {
            return false;
        }
        self.input.resize(INPUT_BYTES, 0);
        self.input.copy_within(self.pending.clone(), 0);
        self.pending = 0..self.pending.len();
        let read = self.far.poll_read(cx, &mut self.input[self.pending.end..]);
        match read {
            Poll::Pending => {
                if self.pending.is_empty() {
                    self.input = Vec::new();
                }
                return false;
            }
            Poll::Ready(Ok(0)) => self.die("it closed the connection"),
            Poll::Ready(Err(error)) => self.die(&error.to_string()),
            Poll::Ready(Ok(count)) => {
                self.pending.end += count;
                self.liveness.hear(self.clock.mono_ms());
                self.handle_input();
            }
        }
        true
    }

    fn handle_input(&mut self) {
        let input = std::mem::take(&mut self.input);
        while !self.is_dead {
            let rest = &input[self.pending.clone()];
            let handled = match self.machine.handle_input(rest, self.clock.mono_ms()) {
                Ok(handled) => handled,
                Err(fault) => {
                    // GOAWAY goes out if there is room for it.
                    self.flush();
                    self.die(fault.words());
                    break;
                }
            };
            if let Some(event) = handled.event {
                self.handle(event, rest);
            }
            self.pending.start += handled.consumed;
            if handled.event.is_none() {
                break;
            }
        }
        self.input = input;
        // The first frame has been its settings.
        if self.pending.start > 0 && !self.is_dead {
            let settings = self.machine.peer_settings();
            let streams_max = settings.streams_max.min(self.streams_max);
            self.link.takes_upgrades.set(settings.connect_protocol);
            let was_settled = self.link.streams_max.replace(streams_max) > 0;
            if !was_settled && streams_max > 0 {
                self.link.settled.notify_waiters();
            }
        }
    }

    fn handle(&mut self, event: Event, input: &[u8]) {
        let head = self.machine.head();
        if let Event::Response { .. } | Event::Data { .. } | Event::Trailers { .. } = event {
            self.liveness.hear_response();
        }
        match event {
            Event::Response { stream, ends } => {
                if let Some(exchange) = find(&mut self.exchanges, stream) {
                    exchange.take_head(Kind::Head, head, ends);
                }
            }
            Event::Interim { stream } => {
                if let Some(exchange) = find(&mut self.exchanges, stream) {
                    exchange.take_head(Kind::Interim, head, false);
                }
            }
            Event::Trailers { stream } => {
                if let Some(exchange) = find(&mut self.exchanges, stream) {
                    exchange.take_trailers(&head.fields);
                }
            }
            Event::Data { stream, start, len, ends } => match find(&mut self.exchanges, stream) {
                Some(exchange) => exchange.take_data(&input[start..start + len], ends),
                None => self.machine.credit(stream, len),
            },
            Event::Reset { stream, code, fault } => {
                if let Some(exchange) = find(&mut self.exchanges, stream) {
                    exchange.fate.ending.set(Some(Ending::new(code, fault)));
                    exchange.cut(code == ErrorCode::REFUSED_STREAM);
                }
            }
            Event::GoAway { last_stream, .. } => {
                self.link.close("it sent GOAWAY");
                for exchange in &mut self.exchanges {
                    if exchange.key.is_none_or(|key| key.id() > last_stream) {
                        exchange.cut(true);
                    }
                }
            }
            // A client gets no requests; of a reply to PING it matters only that something came.
            Event::Request { .. } | Event::Oversized { .. } | Event::Pong { .. } => {}
        }
    }

    /// Carries requests and responses over, and forgets those that are over.
    fn pump(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let now_ms = self.clock.mono_ms();
        let may_begin = !self.liveness.is_in_doubt(now_ms);
        for exchange in &mut self.exchanges {
            if exchange.key.is_some() || may_begin || exchange.is_abandoned() {
                moved |= exchange.pump_request(&mut self.machine, self.scheme, cx);
            }
            moved |= exchange.pump_response(&mut self.machine, cx);
            exchange.leave(now_ms);
        }
        for exchange in self.exchanges.extract_if(.., |exchange| exchange.is_over) {
            if let Some(key) = exchange.key {
                self.machine.release(key);
            }
            exchange.end(cx);
            self.link.streams.set(self.link.streams.get().saturating_sub(1));
            self.idle_since_ms = now_ms;
            moved = true;
        }
        moved
    }

    /// Writes what is to be written.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while !self.is_dead {
            self.take_output();
            if self.out.is_empty() {
                return moved;
            }
            match self.far.try_write(&self.out[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.far.poll_writable(cx).is_pending() {
                        return moved;
                    }
                }
                Err(error) => self.die(&error.to_string()),
            }
        }
        moved
    }

    /// Collects frames, as long as not too many wait.
    fn take_output(&mut self) {
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        let now_ms = self.clock.mono_ms();
        while self.out.len() - self.sent < OUTPUT_BYTES_MAX {
            let frame = self.machine.poll_data(OUTPUT_BYTES_MAX, now_ms, &mut self.out);
            let Some(frame) = frame else { break };
            if let Some(exchange) = find(&mut self.exchanges, frame.stream) {
                exchange.take_content(frame.len, frame.ends, &mut self.out);
            }
        }
        if self.out.is_empty() && self.out.capacity() > OUTPUT_BYTES_MAX {
            self.out = Vec::new();
        }
    }

    /// Writes what can be written at once.
    fn flush(&mut self) {
        self.machine.poll_output(&mut self.out);
        // The connection ends in any case.
        let _ = self.far.try_write(&self.out[self.sent..]);
    }

    /// Nothing more is to be had of the backend. Responses that are complete are handed over.
    fn die(&mut self, why: &str) {
        self.is_dead = true;
        self.link.die(why);
        self.exchanges.iter_mut().for_each(|exchange| exchange.cut(exchange.key.is_none()));
    }

    /// Waits, when nothing is to be done: ready with true if the connection has ended, with false
    /// if the time has brought something to do.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        *self.link.waker.borrow_mut() = Some(cx.waker().clone());
        let now_ms = self.clock.mono_ms();
        if self.exchanges.is_empty() {
            let is_settled = self.link.streams_max.get() > 0;
            let idle_ms = if is_settled { self.idle_ms } else { SETTLE_MS };
            let is_idle = now_ms.saturating_sub(self.idle_since_ms) >= idle_ms;
            let is_worn_out = self.link.requests_left.get() == 0 || now_ms >= self.expires_ms;
            let is_over = is_idle || is_worn_out || self.address.is_gone() || !self.may_rest();
            if !self.is_dead && (is_over || self.link.is_closed.get()) {
                self.machine.abort(ErrorCode::NO_ERROR);
                self.flush();
                self.die("it was not needed any more");
            }
            if self.is_dead {
                return Poll::Ready(true);
            }
        }
        let silence_ms = match self.poll_liveness(now_ms) {
            Some(silence_ms) => silence_ms,
            None => return Poll::Ready(false),
        };
        let deadline_ms = if self.is_dead { None } else { self.machine.deadline_ms() };
        let wait_ms = deadline_ms.map_or(LOOK_MS, |at_ms| at_ms.saturating_sub(now_ms));
        let wait_ms = wait_ms.min(silence_ms);
        if wait_ms > 0 {
            self.alarm.set(wait_ms.min(LOOK_MS));
            if self.alarm.poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        // The machine's time is judged now. An alarm that were set anew would never be due.
        if !self.is_dead
            && let Err(fault) = self.machine.handle_timeout(self.clock.mono_ms())
        {
            self.flush();
            self.die(fault.words());
        }
        Poll::Ready(false)
    }

    fn be_busy(&mut self) {
        if std::mem::replace(&mut self.rest, Rest::Busy) == Rest::Kept {
            self.address.take_carrier();
        }
    }

    /// True if the connection is kept without a request.
    fn may_rest(&mut self) -> bool {
        if self.rest == Rest::Busy && self.address.keep_carrier(self.idle_max) {
            self.rest = Rest::Kept;
        }
        self.rest != Rest::Busy
    }
}

impl Driver {
    /// Asks whether the backend is there, or gives it up: `None`. Else how long to wait, in
    /// milliseconds.
    fn poll_liveness(&mut self, now_ms: u64) -> Option<u64> {
        if self.is_dead || self.exchanges.is_empty() {
            return Some(LOOK_MS);
        }
        let to_begin = self.exchanges.iter().any(|exchange| exchange.key.is_none());
        match self.liveness.judge(now_ms, to_begin) {
            Verdict::Wait(wait_ms) => return Some(wait_ms.unwrap_or(LOOK_MS)),
            Verdict::Ask => {
                self.liveness.ask(now_ms);
                self.machine.ping(*b"are you?");
            }
            Verdict::Gone => self.die(&self.liveness.complaint()),
        }
        None
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.be_busy();
        self.link.die("its task has ended");
        let arrived = std::mem::take(&mut *self.link.arrivals.borrow_mut());
        arrived.into_iter().for_each(|mut exchange| exchange.cut(true));
    }
}

fn find(exchanges: &mut [Exchange], key: StreamKey) -> Option<&mut Exchange> {
    exchanges.iter_mut().find(|exchange| exchange.key == Some(key))
}
