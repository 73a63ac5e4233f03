//! HTTP/2: the loop over a connection's frames, and the exchanges of its streams.
//!
//! A turn of the loop is one read, the exchanges that it begins, the tasks that were woken, and one
//! write for all streams. A response that needs no waiting is made within the turn that parsed its
//! request, without a future. A stream that has to wait is a task of `tasks`, polled by the
//! connection's own.
//!
//! `shared` lies between the machine (`wire/http2`) and the streams, with the `stream_state` and
//! the `stream_buffers` of each. `exchange` and `input` are a stream's request, `output` sends its
//! response, `tunnel` is a stream that carries another protocol, `waiting` is a stream without a
//! window, `turn` reads and writes in portions that `pace` chooses, `write_state` is the state of
//! the writes, `turns` has the timers of streams that wait for others, `leave` ends the connection.
//! Nothing outside this folder knows about frames.

mod exchange;
mod input;
mod leave;
mod lingering;
mod output;
mod pace;
mod shared;
mod stream_buffers;
mod stream_state;
mod stream_turns;
mod tasks;
mod tunnel;
mod turn;
mod turns;
mod waiting;
mod write_state;

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use lighty_buf::ReadBuf;
use lighty_core::log::About;
use lighty_core::machine::bad_messages::Excerpt;
use lighty_core::pipeline::Attempt;
use lighty_core::settings::limits;
use lighty_core::{Exchange, Level};
use lighty_http::{Fields, Status};
use lighty_io::threads::panics::{self, Panicked};
use lighty_wire::http1::{BodyFraming, RequestFault};
use lighty_wire::http2::{Connection, ErrorCode, StreamKey};

pub(crate) use self::exchange::{H2Exchange, H2Io};
use self::leave::{ClosePhase, ConnIdle};
use self::pace::Pace;
use self::shared::{H2Shared, StreamRef};
use self::tasks::Tasks;
use self::waiting::Waiting;
use self::write_state::{WriteEvent, WriteState};
use super::driver::{self, Driven};
use super::sink::{Remainder, Sink};
use super::stream::RequestStream;
use super::{Conn, End, malformed, request_head};
use crate::worker::conn_table::RequestSummary;

/// Turns in a row before yielding to other connections.
const TURNS_MAX: u32 = 8;

/// Bytes read at a time: room for a whole frame.
const READ_BYTES: usize = 32 * 1024;

/// The buffers of a connection that is not idle. Pooled per worker.
#[derive(Default)]
pub(crate) struct H2Buffers {
    input: ReadBuf,
    /// Bytes of one write.
    out: Vec<u8>,
    sent: usize,
}

impl H2Buffers {
    /// Returns true if both buffers are small enough to be pooled.
    fn is_pooled_whole(&self) -> bool {
        self.out.capacity() <= limits::KEPT_BUFFER_BYTES_MAX
    }

    /// Frees buffers that are larger than a pooled pair may keep.
    pub(crate) fn trim(&mut self) {
        self.input.recycle(limits::KEPT_BUFFER_BYTES_MAX);
        if self.out.capacity() > limits::KEPT_BUFFER_BYTES_MAX {
            self.out = Vec::new();
        }
    }
}

/// A connection, its buffers and its timers.
///
/// A turn calls `read`, `run_tasks` and `write`; `end` then returns how the connection ends, and
/// `rest` waits with one timer for the earliest of four: the codec's deadline, the end of
/// lingering, an incomplete frame, and the memory of an idle connection. `on_time` serves all
/// four.
struct H2Conn<'c> {
    conn: &'c Conn,
    shared: Rc<RefCell<H2Shared>>,
    tasks: Tasks<'c, Step>,
    buffers: Option<Box<H2Buffers>>,
    now_ms: u64,
    close: ClosePhase,
    pace: Pace,
    /// Arrival time of an incomplete frame, in monotonic milliseconds.
    partial_since_ms: Option<u64>,
    writes: WriteState,
    idle: ConnIdle,
    /// Milliseconds that a frame may take to arrive.
    partial_ms: u64,
    timer: leave::H2Timer,
    /// Resolves when a client that has shut down its sending half resets the connection.
    broken: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

/// Result of a stream after the end of its exchange.
struct Done {
    at: StreamRef,
    /// `None` after a panic, which leaves it in any state.
    exchange: Option<Box<H2Exchange>>,
    is_whole: bool,
}

/// Remaining work of a stream that has to wait.
enum Work {
    /// The head, which must wait for the end of the stream: a request whose length is 0 and whose
    /// stream goes on may turn out to be malformed, and must not be forwarded then (RFC 9113
    /// section 8.1.1).
    Head,
    Response(Attempt),
    Refused(Status),
    Panicked(Panicked),
}

/// Result of a stream's task.
enum Step {
    Done(Done),
    /// The client has no room. The remainder becomes a task of its own: it is smaller, and a client
    /// may leave many of them waiting.
    Remainder(StreamRef, Box<H2Exchange>, Remainder),
}

/// Serves a connection, whose first bytes are the preface, until it ends. Not an async fn: that
/// would hold an [`H2Conn`] instead of a pointer, in the futures of HTTP/1 connections too.
pub(super) fn serve(conn: &Conn) -> impl Future<Output = End> {
    let early = conn.early.take();
    let mut h2 = Box::new(H2Conn::new(conn));
    if let Some(early) = early {
        h2.take_early(&early);
    }
    std::future::poll_fn(move |cx| h2.poll(cx))
}

impl<'c> H2Conn<'c> {
    fn new(conn: &'c Conn) -> Self {
        let worker = conn.worker();
        let now_ms = worker.machine.clock.mono_ms();
        worker.machine.counters.http2_connections.add(1);
        let limits = worker.global().server.http2_limits;
        let machine = Connection::server_with_extended_connect(limits, now_ms);
        let shared = Rc::new(RefCell::new(H2Shared::new(machine, Rc::clone(&conn.stream))));
        driver::limit(RequestStream { conn, entry: &conn.entry.stream }, &worker.global().core);
        Self {
            conn,
            shared,
            tasks: Tasks::new(),
            buffers: None,
            now_ms,
            close: ClosePhase::default(),
            pace: Pace::default(),
            partial_since_ms: None,
            writes: WriteState::Idle,
            idle: ConnIdle::Busy,
            partial_ms: limits.block_ms,
            timer: leave::H2Timer::default(),
            broken: None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.conn.entry.wake_at_end(cx.waker());
        self.tasks.wake_with(cx.waker());
        self.shared.borrow_mut().begin_poll();
        for _ in 0..TURNS_MAX {
            self.now_ms = self.conn.worker().machine.clock.mono_ms();
            self.shut_down_if_requested();
            let has_moved = self.turn(cx);
            if let Some(end) = self.end() {
                self.note_write(WriteEvent::Ended);
                return Poll::Ready(end);
            }
            if !has_moved && !self.await_progress(cx) {
                // A blocked connection writes only when its socket has room.
                if self.writes != WriteState::Blocked {
                    self.shared.borrow_mut().end_poll(cx.waker());
                }
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Runs one turn. Returns whether there was progress.
    fn turn(&mut self, cx: &mut Context<'_>) -> bool {
        let has_read = self.read(cx);
        let has_run = self.run_tasks();
        let has_written = self.write(cx);
        has_read || has_run || has_written
    }

    /// Polls the tasks that were woken.
    fn run_tasks(&mut self) -> bool {
        if !self.tasks.begin_turn() {
            return false;
        }
        self.shared.borrow_mut().wake_cut_readers(self.tasks.woken_slots());
        while let Some(step) = self.tasks.poll_next() {
            let done = match step {
                Step::Done(done) => done,
                Step::Remainder(at, h2, remainder) => {
                    self.spawn_remainder(at, h2, remainder);
                    continue;
                }
            };
            if let Some(exchange) = &done.exchange {
                self.conn.entry.forget_stream(&exchange.entry);
            }
            self.end_stream(done);
        }
        true
    }

    /// Begins the exchange of a new stream, which has its head in the machine, and serves it until
    /// something has to wait.
    fn begin_stream(&mut self, key: StreamKey, ends: bool, is_oversized: bool) {
        let (conn, worker) = (self.conn, self.conn.worker());
        self.idle = ConnIdle::Busy;
        self.shared.borrow_mut().begin(key, ends);
        let at = StreamRef { shared: Rc::clone(&self.shared), key };
        let mut h2 = worker.acquire_h2();
        h2.exchange.pin(&worker.generation());
        conn.begin_stages(&mut h2.exchange.stages);
        let parsed = h2.begin(&at, ends);
        if is_oversized {
            return self.refuse(at, h2, RequestFault::FieldsTooLarge);
        }
        if let Err(fault) = parsed {
            return self.refuse(at, h2, fault);
        }
        if !ends && h2.io.head.framing == BodyFraming::Length(0) {
            // The driver does this, but it does not see the request before its end.
            conn.entry.begin_request();
            return self.spawn(at, h2, Work::Head);
        }
        let H2Exchange { exchange, io, entry } = &mut *h2;
        let on = RequestStream { conn, entry };
        let driven = panics::caught_in(|| driver::try_drive(on, exchange, io));
        match driven {
            Ok(Driven::Finished { is_whole }) => {
                self.end_stream(Done { at, exchange: Some(h2), is_whole });
            }
            Ok(Driven::Response(attempt)) => self.spawn(at, h2, Work::Response(attempt)),
            Ok(Driven::Remainder(remainder)) => {
                self.watch(&at, &h2);
                self.spawn_remainder(at, h2, remainder);
            }
            Err(panicked) => self.spawn(at, h2, Work::Panicked(panicked)),
        }
    }

    /// Rejects a request that is well-formed and unacceptable. Only its stream ends.
    fn refuse(&mut self, at: StreamRef, mut h2: Box<H2Exchange>, fault: RequestFault) {
        let status = note_refusal(self.conn, &mut h2.exchange, &mut h2.io, fault);
        self.spawn(at, h2, Work::Refused(status));
    }

    /// Spawns the task of a stream that has to wait.
    fn spawn(&mut self, at: StreamRef, h2: Box<H2Exchange>, work: Work) {
        self.watch(&at, &h2);
        self.tasks.spawn(at.key.slot(), serve_stream(self.conn, at, h2, work));
    }

    /// Spawns the task that sends the remainder for which the client has no room.
    fn spawn_remainder(&mut self, at: StreamRef, h2: Box<H2Exchange>, remainder: Remainder) {
        let slot = at.key.slot();
        match remainder {
            Remainder::Queue => self.tasks.spawn(slot, Waiting::new(self.conn, at, h2)),
            remainder => self.tasks.spawn(slot, send_remainder(self.conn, at, h2, remainder)),
        }
    }

    /// Registers a waiting stream with the sweep, which checks timeouts.
    fn watch(&mut self, at: &StreamRef, h2: &H2Exchange) {
        let waker = self.tasks.waker(at.key.slot());
        let ex = &h2.exchange;
        let summary = || Box::new(RequestSummary::on_stream(&ex.request));
        let are_noted = ex.generation.needs.targets || ex.machine.watch.is_on();
        let summary = are_noted.then(summary);
        self.conn.entry.watch_stream(at.key.id(), &h2.entry, waker, summary);
        self.shared.borrow_mut().count_progress(at.key, &h2.entry);
    }

    /// Returns an exchange to the pool. Its stream is released when its content is written.
    fn end_stream(&mut self, done: Done) {
        let Done { at, exchange, is_whole } = done;
        let mut shared = self.shared.borrow_mut();
        if !is_whole {
            let is_cut = |h2: &&H2Exchange| h2.entry.cut().is_some();
            let code = exchange.as_deref().and_then(|h2| {
                h2.io.passed_on.or(Some(h2).filter(is_cut).map(|_| ErrorCode::CANCEL))
            });
            let is_stuck = shared.has_last_window(at.key);
            let own = if is_stuck { ErrorCode::CANCEL } else { ErrorCode::INTERNAL_ERROR };
            shared.reset(at.key, code.unwrap_or(own));
        }
        shared.end(at.key);
        drop(shared);
        if let Some(mut h2) = exchange {
            h2.detach();
            self.conn.worker().give_back_h2(h2);
        }
    }

    /// Logs the client's fault that ends the connection.
    fn log_fault(&self, message: &str) {
        let machine = &self.conn.worker().machine;
        machine.counters.http2_faults.add(1);
        let about = About { client: &self.conn.peer_text, ..About::default() };
        machine.log.line(Level::Info, machine.clock.unix_s(), message, about);
    }
}

/// Serves a stream that has to wait, until it ends or its client has no room.
async fn serve_stream(conn: &Conn, at: StreamRef, mut h2: Box<H2Exchange>, work: Work) -> Step {
    let panicked = match work {
        Work::Panicked(panicked) => panicked,
        work => match panics::catch(go_on(conn, &mut h2, work)).await {
            Ok(Driven::Finished { is_whole }) => return done(at, h2, is_whole),
            Ok(Driven::Response(_)) => return done(at, h2, false),
            Ok(Driven::Remainder(remainder)) => return Step::Remainder(at, h2, remainder),
            Err(panicked) => panicked,
        },
    };
    Box::pin(recover(conn, at, h2, panicked)).await
}

async fn go_on(conn: &Conn, h2: &mut H2Exchange, work: Work) -> Driven {
    let H2Exchange { exchange, io, entry } = h2;
    let on = RequestStream { conn, entry };
    match work {
        Work::Head => {
            if !Box::pin(request_ends(on, exchange, io)).await {
                return Driven::Finished { is_whole: false };
            }
            if has_content(io) {
                let fault = RequestFault::ContentInGet;
                let status = note_refusal(conn, exchange, io, fault);
                exchange.fail_status(status);
                return Box::pin(driver::try_send_last(on, exchange, io)).await;
            }
            match driver::try_drive(on, exchange, io) {
                Driven::Response(attempt) => driver::respond(attempt, on, exchange, io).await,
                driven => driven,
            }
        }
        Work::Response(attempt) => driver::respond(attempt, on, exchange, io).await,
        Work::Refused(status) => {
            exchange.fail_status(status);
            Box::pin(driver::try_send_last(on, exchange, io)).await
        }
        Work::Panicked(_) => Driven::Finished { is_whole: false },
    }
}

/// Describes and logs a refused request. Returns the response's status.
fn note_refusal(conn: &Conn, ex: &mut Exchange, io: &mut H2Io, fault: RequestFault) -> Status {
    conn.worker().machine.counters.refused.add(1);
    conn.describe(&mut ex.request);
    conn.entry.begin_request();
    request_head::take_part(&mut io.head, &mut ex.request);
    ex.settings = Rc::clone(&ex.generation.global);
    let status = fault.status();
    ex.log(Level::Info, &format!("{} ({}): {}", status.code(), fault.slug(), fault.message()));
    let excerpt = Excerpt::of(&malformed::head_of(&ex.request), None);
    conn.keep_malformed(&ex.request, fault.message(), excerpt);
    status
}

/// Returns true if content has arrived that nothing has read.
fn has_content(io: &H2Io) -> bool {
    io.at.as_ref().is_some_and(|at| at.shared.borrow().has_content(at.key))
}

/// Waits for content, or for the end of a request that announces none. Returns false if the content
/// contradicts a length, the client has reset the stream or a time limit was reached.
async fn request_ends(on: RequestStream<'_>, ex: &Exchange, io: &H2Io) -> bool {
    let Some(at) = io.at.clone() else { return false };
    let clock = &on.conn.worker().machine.clock;
    // The head is not taken yet, so the request has no settings of its own.
    driver::limit(on, &ex.generation.global.core);
    on.entry.forget_variant();
    if io.head.expect_continue
        && let Some(status) = Status::new(100)
    {
        at.shared.borrow_mut().send_interim(at.key, status, &Fields::new());
    }
    on.entry.wait_for_body(clock);
    let has_ended = std::future::poll_fn(|cx| {
        let readable = at.shared.borrow_mut().poll_readable(at.key, cx);
        match on.entry.cut() {
            Some(_) if readable.is_pending() => Poll::Ready(false),
            _ => readable.map(|readable| readable.is_ok()),
        }
    })
    .await;
    on.entry.stop_waiting_for_body(clock);
    has_ended
}

async fn send_remainder(
    conn: &Conn,
    at: StreamRef,
    mut h2: Box<H2Exchange>,
    remainder: Remainder,
) -> Step {
    let sent = {
        let H2Exchange { exchange, io, entry } = &mut *h2;
        let on = RequestStream { conn, entry };
        panics::catch(driver::send_remainder(remainder, on, exchange, io)).await
    };
    match sent {
        Ok(is_whole) => done(at, h2, is_whole),
        Err(panicked) => Box::pin(recover(conn, at, h2, panicked)).await,
    }
}

fn done(at: StreamRef, h2: Box<H2Exchange>, is_whole: bool) -> Step {
    Step::Done(Done { at, exchange: Some(h2), is_whole })
}

/// Recovers from a panic in a request: sends 500, or resets the stream if a response had begun. The
/// exchange may be in any state, so it is not reused.
#[cold]
async fn recover(conn: &Conn, at: StreamRef, mut h2: Box<H2Exchange>, panicked: Panicked) -> Step {
    conn.entry.forget_stream(&h2.entry);
    let H2Exchange { exchange, io, entry } = &mut *h2;
    let on = RequestStream { conn, entry };
    let has_begun = io.has_begun;
    let recovering = panics::catch(async {
        io.queue.clear();
        exchange.response.tunnel = None;
        if has_begun {
            driver::abandon(on, exchange, Sink::H2(io), &panicked.0);
            false
        } else {
            driver::fail(on, exchange, io, &panicked.0).await
        }
    });
    let is_whole = recovering.await.unwrap_or(false);
    h2.detach();
    Step::Done(Done { at, exchange: None, is_whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit on the future of a waiting stream, in bytes. A client may leave a hundred such streams
    /// of each connection without window.
    const WAITING_BYTES_MAX: usize = 768;

    fn future_bytes<A, B, C, D, F>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// The future is one pointer: a connection's future reserves space for it, whatever its
    /// protocol.
    #[test]
    fn a_connection_is_apart_from_its_future() {
        fn bytes<'c, F>(_: impl Fn(&'c Conn) -> F) -> usize {
            size_of::<F>()
        }
        assert_eq!(bytes(serve), size_of::<usize>());
        // Counts the header of an `Rc`; limit: the allocator's next larger block.
        assert!(size_of::<RefCell<H2Shared>>() + 2 * size_of::<usize>() <= 1280);
    }

    #[test]
    fn a_stream_that_waits_is_small() {
        assert!(future_bytes::<_, _, _, Remainder, _>(send_remainder) <= WAITING_BYTES_MAX);
        assert!(future_bytes::<_, _, _, Work, _>(serve_stream) <= WAITING_BYTES_MAX);
        // Each fits a block of the allocator; the next larger blocks have 128 bytes and 8 more.
        assert!(size_of::<exchange::AwayH2>() <= 896, "{}", size_of::<exchange::AwayH2>());
        assert!(size_of::<Waiting<'_>>() <= 32, "{}", size_of::<Waiting<'_>>());
    }
}
