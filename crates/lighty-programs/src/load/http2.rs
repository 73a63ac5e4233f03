//! A connection that sends many requests at a time over HTTP/2.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use lighty_io::transport::Stream;
use lighty_wire::http2::frame::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES};
use lighty_wire::http2::{
    Connection, ErrorCode, Event, Limits, RequestParts, SendFault, StreamKey,
};

use super::pace::ScheduleState;
use super::received::{Received, SUM_START, failure, sum, would_block};
use super::shared::SharedLoad;
use super::tally::LoadFailure;
use super::watch::ConnectionWatch;

/// Bytes per read: room for the longest frame.
const INPUT_BYTES: usize = 4 * (FRAME_BYTES_MAX + FRAME_HEAD_BYTES);

/// Limit of pending output, above which no more content is added.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Window of a connection, in addition to the streams' own windows.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Reads after which a connection yields to others: a socket that always has data would monopolise
/// the thread.
const READS_MAX: usize = 8;

/// Maximum repetitions of a request that connections did not accept.
const RETRIES_MAX: u8 = 3;

/// A request to be sent.
#[derive(Clone, Copy)]
struct Todo {
    at: usize,
    due_us: u64,
    tries: u8,
}

/// A sent request.
struct SentRequest {
    key: StreamKey,
    todo: Todo,
    sent_us: u64,
    received: Received,
    /// Bytes of the request's body written so far.
    body_sent: usize,
}

/// Sends requests until there are no more, on one connection at a time.
pub(super) async fn ask_on(shared: Rc<SharedLoad>) {
    let (watch, mut todo) = (shared.watches.add(), VecDeque::new());
    loop {
        if todo.is_empty() {
            let Some(due_us) = shared.pace.next().await else { return };
            todo.push_back(Todo { at: shared.choose(), due_us, tries: 0 });
        }
        watch.begin(shared.now_us());
        let opened = watch.within(shared.open()).await;
        match opened.unwrap_or(Err(LoadFailure::Timeout)) {
            Ok(stream) => {
                let _busy = shared.busy();
                Driver::new(&shared, stream).run(&watch, &mut todo).await;
            }
            Err(failure) => {
                todo.drain(..).for_each(|one| shared.count(one.at, one.due_us, Err(failure)));
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Reason why a connection continues.
enum Woken {
    Read(io::Result<usize>),
    Writable,
    Due,
    Late,
}

struct Driver<'a> {
    shared: &'a SharedLoad,
    stream: Stream,
    machine: Connection,
    /// Requests in the order of sending.
    sent_request: Vec<SentRequest>,
    input: Vec<u8>,
    /// The unhandled part of `input`.
    pending: std::ops::Range<usize>,
    out: Vec<u8>,
    sent: usize,
    /// The connection has received a response.
    is_used: bool,
    /// No more requests are sent on the connection.
    is_closing: bool,
    /// Nothing more is read from the connection.
    dead: Option<LoadFailure>,
    /// Start of the period in which the server accepts no stream although none is open.
    refused_since_us: Option<u64>,
}

impl<'a> Driver<'a> {
    fn new(shared: &'a SharedLoad, stream: Stream) -> Self {
        let streams_max = u32::try_from(shared.options.streams).unwrap_or(u32::MAX);
        let limits = Limits {
            streams_max,
            conn_window_bytes: CONNECTION_WINDOW_BYTES,
            resets_max: u32::MAX,
            ..Limits::default()
        };
        Self {
            shared,
            stream,
            machine: Connection::client(limits, shared.now_us() / 1000),
            sent_request: Vec::new(),
            input: vec![0; INPUT_BYTES],
            pending: 0..0,
            out: Vec::new(),
            sent: 0,
            is_used: false,
            is_closing: false,
            dead: None,
            refused_since_us: None,
        }
    }

    /// Runs until there are no more requests or the connection ends. Requests that it did not
    /// accept are left in `todo`.
    async fn run(mut self, watch: &ConnectionWatch, todo: &mut VecDeque<Todo>) {
        for turn in 1.. {
            let wants_more = self.ask_more(todo);
            self.flush();
            if let Some(failure) = self.dead {
                return self.give_up(failure, todo);
            }
            if self.sent_request.is_empty() && !wants_more {
                self.machine.abort(ErrorCode::NO_ERROR);
                return self.flush();
            }
            match self.sent_request.first().map(|oldest| oldest.sent_us).or(self.refused_since_us) {
                Some(since_us) => watch.begin(since_us),
                None => watch.end(),
            }
            match self.wait(watch, wants_more).await {
                Woken::Read(read) => self.take_input(read, todo),
                Woken::Writable | Woken::Due => {}
                Woken::Late => self.cut_late(todo),
            }
            if turn % READS_MAX == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn wait(&mut self, watch: &ConnectionWatch, wants_more: bool) -> Woken {
        self.input.copy_within(self.pending.clone(), 0);
        self.pending = 0..self.pending.len();
        let (stream, room) = (&self.stream, &mut self.input[self.pending.end..]);
        let waits_to_write = self.sent < self.out.len();
        let mut more = pin!(self.shared.pace.more());
        poll_fn(|cx| {
            if let Poll::Ready(read) = stream.poll_read(cx, room) {
                return Poll::Ready(Woken::Read(read));
            }
            if waits_to_write && stream.poll_writable(cx).is_ready() {
                return Poll::Ready(Woken::Writable);
            }
            if wants_more && more.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Woken::Due);
            }
            watch.poll_late(cx).map(|()| Woken::Late)
        })
        .await
    }

    /// Sends the requests that are due and that the server accepts. Returns true if it could accept
    /// more when they are due.
    fn ask_more(&mut self, todo: &mut VecDeque<Todo>) -> bool {
        let options = &self.shared.options;
        let streams_max = if options.keep_alive { options.streams } else { 1 };
        loop {
            if self.is_closing || self.dead.is_some() {
                return false;
            }
            let can_open = self.machine.can_open();
            if self.sent_request.len() >= streams_max || !can_open && !self.sent_request.is_empty()
            {
                return false;
            }
            let one = match todo.pop_front() {
                Some(one) => one,
                None => match self.shared.pace.try_next() {
                    ScheduleState::Due(due_us) => {
                        Todo { at: self.shared.choose(), due_us, tries: 0 }
                    }
                    ScheduleState::Later => return true,
                    ScheduleState::Over => return false,
                },
            };
            if !can_open {
                // The server accepts no stream at all, and must allow one before the time limit.
                self.refused_since_us.get_or_insert_with(|| self.shared.now_us());
                todo.push_front(one);
                return true;
            }
            self.refused_since_us = None;
            self.open(one, todo);
            self.is_closing |= !options.keep_alive;
        }
    }

    fn open(&mut self, one: Todo, todo: &mut VecDeque<Todo>) {
        let options = &self.shared.options;
        let url = &options.urls[one.at];
        let parts = RequestParts {
            method: options.method.as_bytes(),
            scheme: if url.tls { b"https" } else { b"http" },
            authority: options.authority(url).as_bytes(),
            path: url.target.as_bytes(),
            protocol: None,
        };
        let body = options.body.len() as u64;
        let opened = self.machine.open(&parts, &self.shared.fields[one.at], body == 0);
        let key = match opened {
            Ok(key) => key,
            Err(SendFault::TooManyStreams | SendFault::Exhausted) => {
                self.is_closing = true;
                return todo.push_front(one);
            }
            Err(fault) => {
                self.shared.note(fault.message());
                // The next request would fail too, so other tasks run first.
                self.is_closing = true;
                return self.fail(one, LoadFailure::Protocol);
            }
        };
        if body > 0 {
            // A newly opened stream has no queued data and accepts a body.
            let _ = self.machine.queue_data(key, body, true);
        }
        let received = Received { checksum: SUM_START, ..Received::default() };
        let sent_us = self.shared.now_us();
        self.sent_request.push(SentRequest { key, todo: one, sent_us, received, body_sent: 0 });
    }

    /// Writes as much as the socket accepts.
    fn flush(&mut self) {
        loop {
            self.collect();
            if self.sent == self.out.len() {
                return;
            }
            match self.stream.try_write(&self.out[self.sent..]).or_else(would_block) {
                Ok(0) => return,
                Ok(count) => self.sent += count,
                Err(error) => {
                    let _ = self.dead.get_or_insert(failure(&error));
                    return;
                }
            }
        }
    }

    fn collect(&mut self) {
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        let (body, now_ms) = (&self.shared.options.body, self.shared.now_us() / 1000);
        while self.out.len() - self.sent < OUTPUT_BYTES_MAX {
            let frame = self.machine.poll_data(OUTPUT_BYTES_MAX, now_ms, &mut self.out);
            let Some(frame) = frame else { break };
            if let Some(sent_request) =
                self.sent_request.iter_mut().find(|sent_request| sent_request.key == frame.stream)
            {
                let from = sent_request.body_sent;
                self.out.extend_from_slice(&body[from..from + frame.len]);
                sent_request.body_sent += frame.len;
            }
        }
    }

    fn take_input(&mut self, read: io::Result<usize>, todo: &mut VecDeque<Todo>) {
        let now_us = self.shared.now_us();
        match read {
            Ok(0) => self.dead = Some(LoadFailure::Closed),
            Err(error) => self.dead = Some(failure(&error)),
            Ok(count) => {
                self.pending.end += count;
                self.shared.count_bytes(count, now_us);
            }
        }
        let input = std::mem::take(&mut self.input);
        loop {
            let rest = &input[self.pending.clone()];
            match self.machine.handle_input(rest, now_us / 1000) {
                Ok(handled) => {
                    self.pending.start += handled.consumed;
                    let Some(event) = handled.event else { break };
                    self.take(event, rest, now_us, todo);
                }
                Err(fault) => {
                    self.shared.note(fault.message());
                    self.dead = Some(LoadFailure::Protocol);
                    break;
                }
            }
        }
        self.input = input;
    }

    fn take(&mut self, event: Event, input: &[u8], now_us: u64, todo: &mut VecDeque<Todo>) {
        match event {
            Event::Response { stream, ends } => {
                let status = self.machine.head().status.map_or(0, lighty_http::Status::code);
                let Some(sent_request) = self.find(stream) else { return };
                sent_request.received.status = status;
                sent_request.received.first_byte_us = now_us;
                if ends {
                    self.finish(stream);
                }
            }
            Event::Data { stream, start, len, ends } => {
                self.machine.credit(stream, len);
                let sums = self.shared.options.expected.checksum;
                let Some(sent_request) = self.find(stream) else { return };
                let received = &mut sent_request.received;
                received.body_bytes += len as u64;
                if sums {
                    received.checksum = sum(received.checksum, &input[start..start + len]);
                }
                if ends {
                    self.finish(stream);
                }
            }
            Event::Trailers { stream } => self.finish(stream),
            Event::Reset { stream, code, fault } => {
                let Some(sent_request) = self.remove(stream) else { return };
                match (fault, code) {
                    (Some(fault), _) => {
                        self.shared.note(fault.message());
                        self.fail(sent_request.todo, LoadFailure::Protocol);
                    }
                    (None, ErrorCode::REFUSED_STREAM) => self.again(sent_request.todo, todo),
                    (None, _) => self.fail(sent_request.todo, LoadFailure::Stream),
                }
            }
            Event::GoAway { last_stream, .. } => {
                self.is_closing = true;
                while let Some(at) =
                    self.sent_request.iter().position(|one| one.key.id() > last_stream)
                {
                    let one = self.sent_request[at].todo;
                    self.remove(self.sent_request[at].key);
                    self.again(one, todo);
                }
            }
            // An interim response is not the response; a client receives no requests, and this one
            // sends no PING.
            Event::Interim { .. }
            | Event::Request { .. }
            | Event::Oversized { .. }
            | Event::Pong { .. } => {}
        }
    }

    fn find(&mut self, key: StreamKey) -> Option<&mut SentRequest> {
        self.sent_request.iter_mut().find(|sent_request| sent_request.key == key)
    }

    fn remove(&mut self, key: StreamKey) -> Option<SentRequest> {
        self.machine.release(key);
        let at = self.sent_request.iter().position(|sent_request| sent_request.key == key)?;
        Some(self.sent_request.remove(at))
    }

    /// Counts a complete response.
    fn finish(&mut self, key: StreamKey) {
        let Some(sent_request) = self.remove(key) else { return };
        self.is_used = true;
        self.shared.count(
            sent_request.todo.at,
            sent_request.todo.due_us,
            Ok((sent_request.received, sent_request.sent_us)),
        );
    }

    fn fail(&self, one: Todo, failure: LoadFailure) {
        self.shared.count(one.at, one.due_us, Err(failure));
    }

    /// Requeues a request that was not accepted, for another connection.
    fn again(&self, one: Todo, todo: &mut VecDeque<Todo>) {
        match one.tries {
            RETRIES_MAX.. => self.fail(one, LoadFailure::Stream),
            tries => todo.push_back(Todo { tries: tries + 1, ..one }),
        }
    }

    /// Cancels requests that have waited too long.
    fn cut_late(&mut self, todo: &mut VecDeque<Todo>) {
        if self.sent_request.is_empty() {
            todo.drain(..).for_each(|one| self.fail(one, LoadFailure::Timeout));
            self.dead = Some(LoadFailure::Timeout);
        }
        let limit_us = u64::try_from(self.shared.options.timeout.as_micros()).unwrap_or(u64::MAX);
        let now_us = self.shared.now_us();
        let is_late =
            |sent_request: &SentRequest| now_us.saturating_sub(sent_request.sent_us) > limit_us;
        while let Some(at) = self.sent_request.iter().position(is_late) {
            let key = self.sent_request[at].key;
            self.machine.reset(key, ErrorCode::CANCEL);
            if let Some(sent_request) = self.remove(key) {
                self.fail(sent_request.todo, LoadFailure::Timeout);
            }
        }
    }

    /// Handles the end of the connection. Requests without a response yet are requeued if the
    /// connection was used before, as the server may have closed it meanwhile.
    fn give_up(mut self, failure: LoadFailure, todo: &mut VecDeque<Todo>) {
        for sent_request in std::mem::take(&mut self.sent_request) {
            let has_begun = sent_request.received.first_byte_us > 0;
            match failure {
                LoadFailure::Closed if has_begun => {
                    self.fail(sent_request.todo, LoadFailure::Short)
                }
                LoadFailure::Closed | LoadFailure::Reset if self.is_used && !has_begun => {
                    self.again(sent_request.todo, todo);
                }
                failure => self.fail(sent_request.todo, failure),
            }
        }
    }
}
