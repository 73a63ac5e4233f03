//! The task of an HTTP/2 connection to a backend.
//!
//! [`Driver::poll`] works in rounds: it accepts new requests, reads, moves data between the
//! sessions and the codec, and writes, until nothing moves. It alone owns the timers, and looks at
//! all of them in `poll_idle`: the codec's deadline, the liveness of the backend, the wait for its
//! settings, the idle time and the lifetime of the connection. `pump` gives the time to abandoned
//! tunnels.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use lighty_io::clock::Clock;
use lighty_io::transport::Stream;
use lighty_wire::http2::frame::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES};
use lighty_wire::http2::{Connection, ErrorCode, Event, Limits, StreamKey};

use super::Link;
use super::backend_stream::BackendStream;
use super::ending::Ending;
use super::liveness::{Liveness, Verdict};
use super::record::Kind;
use crate::upstream::address::Address;
use crate::upstream::spec::PoolSpec;
use lighty_io::clock::alarms::Alarm;

/// Bytes read at a time: room for the longest frame.
const INPUT_BYTES: usize = 2 * (FRAME_BYTES_MAX + FRAME_HEAD_BYTES);

/// Unwritten bytes above which no more content is taken.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Rounds after which the task yields to others.
const ROUNDS_MAX: usize = 16;

/// Time limit for the backend's settings to permit a stream, in milliseconds.
const SETTLE_MS: u64 = 10_000;

/// Interval of checks whether the connection is still needed, in milliseconds.
const LOOK_MS: u64 = 1_000;

/// Idle state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleState {
    /// It waits for its first request, which will arrive.
    New,
    Busy,
    /// It counts among the idle connections that are kept.
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
    streams: Vec<BackendStream>,
    input: Vec<u8>,
    /// Range of the received bytes that are not handled yet.
    pending: std::ops::Range<usize>,
    out: Vec<u8>,
    sent: usize,
    /// Start of the time without a request.
    idle_since_ms: u64,
    idle_ms: u64,
    /// Limit on idle connections to the backend (`proxy-core.max-idle-connections`).
    idle_max: u32,
    idle: IdleState,
    /// Time after which it takes no more requests; `u64::MAX`: never.
    expires_ms: u64,
    liveness: Liveness,
    streams_max: u32,
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
            streams: Vec::new(),
            input: Vec::new(),
            pending: 0..0,
            out: Vec::new(),
            sent: 0,
            idle_since_ms: now_ms,
            idle_ms: pool.idle_ms,
            idle_max: pool.idle_max,
            idle: IdleState::New,
            expires_ms,
            liveness: Liveness::new(pool, now_ms),
            streams_max: limits.streams_max,
        }
    }

    /// Drives the connection; ready when it has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.welcome();
            moved |= self.read(cx);
            moved |= self.pump(cx);
            moved |= self.write(cx);
            self.streams.iter().for_each(BackendStream::tell_written);
            if !moved && let Poll::Ready(is_over) = self.poll_idle(cx) {
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

    /// Accepts new requests.
    fn welcome(&mut self) -> bool {
        let arrived = std::mem::take(&mut *self.link.arrivals.borrow_mut());
        let moved = !arrived.is_empty();
        if moved {
            self.be_busy();
        }
        self.streams.extend(arrived);
        if self.link.is_dead() {
            let unopened = self.streams.iter_mut().filter(|request| request.key.is_none());
            unopened.for_each(|request| request.cut(true));
        }
        moved
    }

    /// Reads bytes from the backend.
    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        if self.link.is_dead() {
            return false;
        }
        if self.pending.is_empty() && self.far.poll_readable(cx).is_pending() {
            // Most polls find nothing: none of them clears a new buffer.
            self.input = Vec::new();
            return false;
        }
        if self.input.is_empty() {
            self.input = vec![0; INPUT_BYTES];
        }
        self.input.copy_within(self.pending.clone(), 0);
        self.pending = 0..self.pending.len();
        debug_assert!(self.pending.end < self.input.len(), "no room: {:?}", self.pending);
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
        while !self.link.is_dead() {
            let rest = &input[self.pending.clone()];
            let handled = match self.machine.handle_input(rest, self.clock.mono_ms()) {
                Ok(handled) => handled,
                Err(fault) => {
                    // Sends GOAWAY if the socket has room.
                    self.flush();
                    self.die(fault.message());
                    break;
                }
            };
            if let Some(event) = handled.event {
                self.handle(event, rest);
            }
            self.pending.start += handled.consumed;
            debug_assert!(self.pending.start <= self.pending.end, "{:?}", self.pending);
            if handled.event.is_none() {
                break;
            }
        }
        self.input = input;
        // The backend's first frame is its settings, so they have arrived.
        if self.pending.start > 0 && !self.link.is_dead() {
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
                if let Some(request) = find(&mut self.streams, stream) {
                    request.take_head(Kind::Head, head, ends);
                }
            }
            Event::Interim { stream } => {
                if let Some(request) = find(&mut self.streams, stream) {
                    request.take_head(Kind::Interim, head, false);
                }
            }
            Event::Trailers { stream } => {
                if let Some(request) = find(&mut self.streams, stream) {
                    request.take_trailers(&head.fields);
                }
            }
            Event::Data { stream, start, len, ends } => match find(&mut self.streams, stream) {
                Some(request) => request.take_data(&input[start..start + len], ends),
                None => self.machine.credit(stream, len),
            },
            Event::Reset { stream, code, fault } => {
                if let Some(request) = find(&mut self.streams, stream) {
                    request.fate.ending.set(Some(Ending::new(code, fault)));
                    request.cut(code == ErrorCode::REFUSED_STREAM);
                }
            }
            Event::GoAway { last_stream, .. } => {
                self.link.close("it sent GOAWAY");
                for request in &mut self.streams {
                    if request.key.is_none_or(|key| key.id() > last_stream) {
                        request.cut(true);
                    }
                }
            }
            // A client receives no requests; a reply to PING matters only as a sign of life.
            Event::Request { .. } | Event::Oversized { .. } | Event::Pong { .. } => {}
        }
    }

    /// Moves data of requests and responses, and removes finished streams.
    fn pump(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let now_ms = self.clock.mono_ms();
        let may_begin = !self.liveness.is_in_doubt(now_ms);
        for request in &mut self.streams {
            if request.key.is_some() || may_begin || request.is_abandoned() {
                moved |= request.pump_request(&mut self.machine, self.scheme, cx);
            }
            moved |= request.pump_response(&mut self.machine, cx);
            request.end_abandoned(now_ms);
        }
        for request in self.streams.extract_if(.., |stream| stream.is_over()) {
            if let Some(key) = request.key {
                self.machine.release(key);
            }
            request.end(cx);
            debug_assert!(self.link.streams.get() > 0, "no stream was counted");
            self.link.streams.set(self.link.streams.get().saturating_sub(1));
            self.idle_since_ms = now_ms;
            moved = true;
        }
        #[cfg(debug_assertions)]
        self.check();
        moved
    }

    /// Checks the counts and ranges of a debug build.
    #[cfg(debug_assertions)]
    fn check(&self) {
        let opened = self.streams.iter().filter(|request| request.key.is_some()).count();
        debug_assert_eq!(self.machine.streams_alive() as usize, opened, "streams of the codec");
        // A closed connection counts requests that it refuses.
        let carried = self.streams.len() + self.link.arrivals.borrow().len();
        let is_open = self.link.is_open();
        debug_assert!(!is_open || self.link.streams.get() as usize == carried, "{carried}");
        debug_assert!(self.pending.end <= self.input.len() || self.pending.is_empty());
        debug_assert!(self.sent <= self.out.len(), "{} of {}", self.sent, self.out.len());
    }

    /// Writes pending frames.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while !self.link.is_dead() {
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

    /// Collects frames until enough bytes wait.
    fn take_output(&mut self) {
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        let now_ms = self.clock.mono_ms();
        while self.out.len() - self.sent < OUTPUT_BYTES_MAX {
            let frame = self.machine.poll_data(OUTPUT_BYTES_MAX, now_ms, &mut self.out);
            let Some(frame) = frame else { break };
            let request = find(&mut self.streams, frame.stream);
            debug_assert!(request.is_some(), "{:?} was released", frame.stream);
            if let Some(request) = request {
                request.take_content(frame.len, frame.ends, &mut self.out);
            }
        }
        if self.out.is_empty() && self.out.capacity() > OUTPUT_BYTES_MAX {
            self.out = Vec::new();
        }
    }

    /// Writes as much as the socket accepts at once.
    fn flush(&mut self) {
        self.machine.poll_output(&mut self.out);
        // The connection ends in any case.
        let _ = self.far.try_write(&self.out[self.sent..]);
    }

    /// Ends reading and writing. Complete responses are still delivered.
    fn die(&mut self, why: &str) {
        self.link.die(why);
        self.streams.iter_mut().for_each(|request| request.cut(request.key.is_none()));
    }

    /// Waits while there is nothing to do. Ready with true if the connection has ended, with false
    /// if a timer has expired.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        *self.link.waker.borrow_mut() = Some(cx.waker().clone());
        let now_ms = self.clock.mono_ms();
        if self.streams.is_empty() {
            let is_settled = self.link.streams_max.get() > 0;
            let idle_ms = if is_settled { self.idle_ms } else { SETTLE_MS };
            let is_idle = now_ms.saturating_sub(self.idle_since_ms) >= idle_ms;
            let is_worn_out = self.link.requests_left.get() == 0 || now_ms >= self.expires_ms;
            let is_over = is_idle || is_worn_out || self.address.is_gone() || !self.may_be_kept();
            if !self.link.is_dead() && (is_over || !self.link.is_open()) {
                self.machine.abort(ErrorCode::NO_ERROR);
                self.flush();
                self.die("it was not needed any more");
            }
            if self.link.is_dead() {
                return Poll::Ready(true);
            }
        }
        let silence_ms = match self.poll_liveness(now_ms) {
            Some(silence_ms) => silence_ms,
            None => return Poll::Ready(false),
        };
        let deadline_ms = if self.link.is_dead() { None } else { self.machine.deadline_ms() };
        let wait_ms = deadline_ms.map_or(LOOK_MS, |at_ms| at_ms.saturating_sub(now_ms));
        let wait_ms = wait_ms.min(silence_ms);
        if wait_ms > 0 {
            self.alarm.set(wait_ms.min(LOOK_MS));
            if self.alarm.poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        // Check the machine's timeouts now: an alarm that is set again on each poll would never
        // expire.
        if !self.link.is_dead()
            && let Err(fault) = self.machine.handle_timeout(self.clock.mono_ms())
        {
            self.flush();
            self.die(fault.message());
        }
        Poll::Ready(false)
    }

    fn be_busy(&mut self) {
        if std::mem::replace(&mut self.idle, IdleState::Busy) == IdleState::Kept {
            self.address.take_carrier();
        }
    }

    /// Returns true if the connection may be kept without a request.
    fn may_be_kept(&mut self) -> bool {
        if self.idle == IdleState::Busy && self.address.keep_carrier(self.idle_max) {
            self.idle = IdleState::Kept;
        }
        self.idle != IdleState::Busy
    }
}

impl Driver {
    /// Sends a PING if one is due. Returns the milliseconds to wait; `None` if the backend is given
    /// up.
    fn poll_liveness(&mut self, now_ms: u64) -> Option<u64> {
        if self.link.is_dead() || self.streams.is_empty() {
            return Some(LOOK_MS);
        }
        let to_begin = self.streams.iter().any(|request| request.key.is_none());
        match self.liveness.judge(now_ms, to_begin) {
            Verdict::Wait(wait_ms) => return Some(wait_ms.unwrap_or(LOOK_MS)),
            Verdict::Ask => {
                self.liveness.ask(now_ms);
                self.machine.ping(*b"are you?");
            }
            Verdict::Gone => self.die(&self.liveness.reason()),
        }
        None
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.be_busy();
        self.link.die("its task has ended");
        let arrived = std::mem::take(&mut *self.link.arrivals.borrow_mut());
        arrived.into_iter().for_each(|mut request| request.cut(true));
    }
}

fn find(streams: &mut [BackendStream], key: StreamKey) -> Option<&mut BackendStream> {
    streams.iter_mut().find(|stream| stream.key == Some(key))
}
