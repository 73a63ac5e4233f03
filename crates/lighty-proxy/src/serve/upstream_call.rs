//! An upstream call sends one request to a backend and reads the response head;
//! [`crate::response::upstream_body`] reads the body.
//!
//! The call writes the request and its body while it reads the response: a backend may respond
//! before it has read everything (RFC 9112 section 9.5), and its response is passed on at once.

mod call_state;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use lighty_buf::{ReadBuf, ReadBufPool};
use lighty_core::exchange::span::Span;
use lighty_core::settings::limits::INTERIM_MAX;
use lighty_core::{BodyFault, Client, ErrorOutput, Fault, FaultReport};
use lighty_io::transport::Stream;

use self::call_state::{
    BodyHandling, BodyHandlingEvent, Busy, BusyEvent, ClientEvent, ClientWatch, ConnectionEnding,
    EndingEvent, WatchAction,
};
use crate::connect::pool::Connection;
use crate::request::replayable_body::ReplayableBody;
use crate::request::upstream_request::RewrittenHead;
use crate::session::{self, BackendResponse, Event, Session, malformed};
use crate::upstream::backend::Silence;
use crate::upstream::spec::{Protocol, TimeoutSpec};
use lighty_io::clock::alarms::{Alarm, Alarms};

/// Initial inbox size in bytes: fits a usual response head, and a small response whole.
pub(crate) const INBOX_BYTES: usize = 8 * 1024;

/// Maximum inbox size in bytes: a head may be 64 KiB, and the FastCGI record around it as long.
const INBOX_BYTES_MAX: usize = 256 * 1024;

/// Backpressure limit: above this many unsent bytes no more of the body is read.
const OUTBOX_BYTES_MAX: usize = 64 * 1024;

/// After this many bytes the call yields to other connections.
const TURN_BYTES: usize = 256 * 1024;

/// Buffers above this capacity in bytes are not kept for reuse.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Milliseconds without a response after which the client is checked for a disconnect.
pub(super) const PATIENCE_MS: u64 = 200;

/// Time limit for the reset that proves that a request met a closed connection: one round trip to
/// the backend.
const RESET_PATIENCE: Duration = Duration::from_millis(500);

/// State of one request on its connection. Reusable.
pub(crate) struct UpstreamCall {
    pub session: Box<dyn Session>,
    pub response: BackendResponse,
    pub rewritten: RewrittenHead,
    /// Collects the backend's output for the error log, up to `error_kbytes_max`; `None` without
    /// output.
    pub errors: Option<Box<ErrorOutput>>,
    pub error_kbytes_max: u64,
    out: Vec<u8>,
    sent: usize,
    /// Bytes of the request written so far, whether or not they are still in `out`.
    written: u64,
    ending: ConnectionEnding,
    /// Bytes were read since the last acknowledgement, and the response is not complete: the
    /// backend's Nagle algorithm may hold the rest back.
    owes_ack: bool,
    /// The process behind a pooled connection may still be busy with the previous request: a
    /// request that it has not read goes elsewhere.
    busy: Busy,
    /// Interim responses to this request so far.
    interim: u32,
    inbox: ReadBuf,
    /// Memory for the inbox while it has bytes.
    pool: ReadBufPool,
    /// The last result of [`Connection::withheld`].
    withheld: Option<u64>,
    alarm: Alarm,
    waits: Waits,
    limit: Limit,
    backend: BodyHandling,
    watch: ClientWatch,
}

/// Purpose of the current timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Waiting for the client. Its timeouts apply elsewhere.
    Client,
    Write,
    Read,
}

/// Event for which the alarm is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// A moment at which the silence of the backend is judged. After the first one, the client is
    /// watched.
    Patience { remaining_ms: u64, is_first: bool },
    /// The end of the timeout.
    Timeout,
}

/// Reason for the lack of a response.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// The backend's fault. `silent` if no byte of a response was received.
    Backend { fault: FaultReport, silent: bool },
    /// The request body could not be read completely.
    Body(BodyFault),
    /// The client is gone.
    Gone(Fault),
}

impl CallFailure {
    /// Returns the kind of the failure, with few distinct values.
    pub(crate) fn message(&self) -> &'static str {
        match self {
            Self::Backend { fault, .. } => fault.fault.verdict().message,
            Self::Gone(fault) => fault.verdict().message,
            Self::Body(_) => "the request's body could not be read",
        }
    }
}

/// The request's client, if it has one.
pub(crate) type ClientHandle = Option<Rc<RefCell<dyn Client>>>;

impl UpstreamCall {
    /// Creates a call for a protocol. Buffers of `pool` have [`INBOX_BYTES`].
    pub(crate) fn new(protocol: &Protocol, alarms: &Rc<Alarms>, pool: ReadBufPool) -> Self {
        Self {
            session: session::create(protocol),
            response: BackendResponse::default(),
            rewritten: RewrittenHead::default(),
            errors: None,
            error_kbytes_max: 0,
            out: Vec::with_capacity(1024),
            sent: 0,
            written: 0,
            ending: ConnectionEnding::default(),
            owes_ack: false,
            busy: Busy::default(),
            interim: 0,
            inbox: ReadBuf::default(),
            pool,
            withheld: None,
            alarm: Alarm::new(alarms),
            waits: Waits::Client,
            limit: Limit::Timeout,
            backend: BodyHandling::default(),
            watch: ClientWatch::default(),
        }
    }

    /// Resets the call for another request on another connection. Oversized buffers are freed.
    pub(crate) fn clear(&mut self) {
        self.session.clear();
        self.response.clear();
        self.rewritten.clear();
        self.errors = None;
        self.out.clear();
        self.sent = 0;
        self.written = 0;
        self.ending = ConnectionEnding::default();
        self.owes_ack = false;
        self.busy = Busy::default();
        self.interim = 0;
        if self.out.capacity() > KEPT_BYTES_MAX {
            self.out = Vec::new();
        }
        self.inbox.recycle(KEPT_BYTES_MAX);
        self.pool.take_back(&mut self.inbox);
        self.withheld = None;
        self.waits = Waits::Client;
        self.backend = BodyHandling::default();
        self.watch = ClientWatch::default();
        self.alarm.cancel();
    }

    /// Returns the session, the rewritten head, and the buffer that the session writes the request
    /// to.
    pub(crate) fn outbox(&mut self) -> (&mut dyn Session, &RewrittenHead, &mut Vec<u8>) {
        (&mut *self.session, &self.rewritten, &mut self.out)
    }

    /// Sets whether the process behind the connection may still be busy with the previous request.
    pub(crate) fn may_meet_busy(&mut self, may_be: bool) {
        let event = if may_be { BusyEvent::Suspected } else { BusyEvent::Cleared };
        self.busy = self.busy.after(event);
    }

    /// True if the call ended because that process was busy.
    pub(crate) fn has_met_busy(&self) -> bool {
        self.busy == Busy::Yes
    }

    /// True if any byte of the request was written.
    pub(crate) fn has_sent(&self) -> bool {
        self.written > 0
    }

    /// Bytes of the request written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the span of a call that waits: for the client, or for the backend to read or
    /// respond.
    pub(crate) fn span(&self) -> Span {
        match self.waits {
            Waits::Client => Span::RequestBody,
            Waits::Write | Waits::Read if self.takes_body() => Span::Send,
            Waits::Write | Waits::Read => Span::FirstByte,
        }
    }

    /// Returns true if the backend has certainly read nothing of the request, although bytes were
    /// written: it had closed the connection before.
    pub(crate) async fn went_unread(&self, stream: &Stream) -> bool {
        self.ending == ConnectionEnding::EndOfStream
            && stream.went_unread(self.written, RESET_PATIENCE).await
    }

    /// True if everything was sent; only then is the connection reusable.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.takes_body() && self.sent == self.out.len() && self.withheld.is_none()
    }

    /// Returns true if the backend does not accept the available part of the request.
    fn is_blocked(&self) -> bool {
        self.takes_body() && (self.is_sending() || self.withheld.is_some())
    }

    /// Checks whether the backend withholds a window. Returns true if that has changed.
    fn see_withheld(&mut self, connection: &Connection, cx: &mut Context<'_>) -> bool {
        let withheld = connection.withheld(cx);
        std::mem::replace(&mut self.withheld, withheld) != withheld
    }

    /// True if the backend accepts the rest of the request.
    pub(crate) fn takes_body(&self) -> bool {
        self.backend == BodyHandling::Reads
    }

    /// Begins to read the body that follows the complete response head.
    pub(crate) fn begin_body(&mut self) {
        self.watch.handle(ClientEvent::ResponseBegins);
    }

    /// True if bytes of the request wait to be written.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Returns the bytes that were read and not yet parsed.
    pub(crate) fn pending(&self) -> &[u8] {
        self.inbox.pending()
    }

    /// Takes the bytes that were read and not yet parsed.
    pub(crate) fn take_pending(&mut self) -> Bytes {
        let pending = Bytes::copy_from_slice(self.pending());
        self.inbox.clear();
        pending
    }

    /// Writes as much of the request and its body as possible without waiting. Returns true if some
    /// bytes were written.
    ///
    /// # Errors
    /// The request body cannot be read. A backend that accepts no more only becomes
    /// one that [only responds](BodyHandling::OnlyResponds).
    pub(crate) fn push(
        &mut self,
        stream: &Stream,
        upload: &mut ReplayableBody,
        client: &ClientHandle,
        cx: &mut Context<'_>,
    ) -> Result<bool, BodyFault> {
        let mut moved = 0;
        while self.takes_body() {
            if self.sent < self.out.len() {
                match stream.try_write(&self.out[self.sent..]) {
                    Ok(count) => {
                        self.sent += count;
                        self.written += count as u64;
                        moved += count;
                        if moved < TURN_BYTES {
                            continue;
                        }
                        // Yield: a fast client and a fast backend would starve the other
                        // connections.
                        cx.waker().wake_by_ref();
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        // No client timeout while the backend accepts nothing.
                        pause_body_timer(client);
                        if stream.poll_writable(cx).is_ready() {
                            continue;
                        }
                    }
                    Err(error) => {
                        self.backend = self.backend.after(BodyHandlingEvent::WriteFailed);
                        self.saw_ending(Some(&error));
                    }
                }
                break;
            }
            if !self.reply() && (upload.is_over() || !self.take_in(upload, cx)?) {
                if !upload.is_over() && self.session.takes() == 0 {
                    // Nor while the backend requests none of the body.
                    pause_body_timer(client);
                }
                break;
            }
        }
        Ok(moved > 0)
    }

    /// Writes the session's pending protocol reply. Returns false if there is none.
    fn reply(&mut self) -> bool {
        self.start_over();
        self.session.reply(&mut self.out);
        !self.out.is_empty()
    }

    /// Resets the output buffer after everything was written.
    fn start_over(&mut self) {
        debug_assert_eq!(self.sent, self.out.len(), "unsent bytes");
        self.out.clear();
        self.sent = 0;
    }

    /// Frames more of the body. Returns false if none is available now.
    fn take_in(
        &mut self,
        upload: &mut ReplayableBody,
        cx: &mut Context<'_>,
    ) -> Result<bool, BodyFault> {
        let most = self.session.takes().min(OUTBOX_BYTES_MAX);
        if most == 0 {
            return Ok(false);
        }
        match upload.poll_piece(most, cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(piece) => {
                self.start_over();
                match piece.transpose()? {
                    Some(piece) => self.session.push_body(&piece, &mut self.out),
                    None => self.session.end_body(upload.trailers(), &mut self.out),
                }
                if self.out.is_empty() {
                    return Ok(!upload.is_over());
                }
                Ok(true)
            }
        }
    }

    /// Reads the next head, interim or final.
    pub(crate) fn poll_head(
        &mut self,
        connection: &Connection,
        upload: &mut ReplayableBody,
        client: &ClientHandle,
        timeouts: &TimeoutSpec,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Event, CallFailure>> {
        let stream = &*connection.stream;
        let mut moved = self.see_withheld(connection, cx);
        loop {
            moved |= self.push(stream, upload, client, cx).map_err(CallFailure::Body)?;
            match self.poll_step(stream, cx)? {
                Poll::Ready(Event::More) => moved = true,
                Poll::Ready(Event::Interim) => {
                    self.count_interim()?;
                    return Poll::Ready(Ok(Event::Interim));
                }
                Poll::Ready(Event::Stderr) => {
                    // An endless stream of error output never lets the read timeout expire, so
                    // check the client here.
                    let gone = self.client_gone(client, cx);
                    return Poll::Ready(
                        gone.map_or(Ok(Event::Stderr), |f| Err(CallFailure::Gone(f))),
                    );
                }
                Poll::Ready(event) => return Poll::Ready(Ok(event)),
                Poll::Pending => break,
            }
        }
        if self.take_owed_ack() {
            stream.acknowledge();
        }
        self.watch(upload, timeouts, moved);
        let failure = ready!(self.poll_limit(client, Some(connection), cx));
        Poll::Ready(Err(failure))
    }

    fn count_interim(&mut self) -> Result<(), CallFailure> {
        self.interim += 1;
        if self.interim <= INTERIM_MAX {
            return Ok(());
        }
        let message = format!("more than {INTERIM_MAX} interim responses");
        Err(CallFailure::Backend { fault: malformed(message), silent: false })
    }

    /// Parses buffered input, or reads once.
    fn poll_step(
        &mut self,
        stream: &Stream,
        cx: &mut Context<'_>,
    ) -> Result<Poll<Event>, CallFailure> {
        if !self.inbox.is_empty() || self.session.holds_output() {
            let blame = |fault| CallFailure::Backend { fault, silent: false };
            let input = self.inbox.pending();
            let step = self.session.read_head(input, &mut self.response).map_err(blame)?;
            self.inbox.consume(step.consumed);
            if step.event != Event::More || step.consumed > 0 {
                return Ok(Poll::Ready(step.event));
            }
        }
        Ok(self.poll_fill(stream, cx)?.map(|()| Event::More))
    }

    fn poll_fill(
        &mut self,
        stream: &Stream,
        cx: &mut Context<'_>,
    ) -> Result<Poll<()>, CallFailure> {
        let silent = self.inbox.is_empty() && self.response.fields.is_empty();
        self.pool.lend(&mut self.inbox);
        let Some(room) = self.inbox.room(INBOX_BYTES, INBOX_BYTES_MAX) else {
            let fault = FaultReport::new(Fault::BackendHeadTooLarge, "its head");
            return Err(CallFailure::Backend { fault, silent: false });
        };
        let closed = |message: String| CallFailure::Backend {
            fault: FaultReport::new(Fault::BackendClosed, message),
            silent,
        };
        match stream.poll_read(cx, room) {
            Poll::Pending => {
                self.pool.take_back(&mut self.inbox);
                Ok(Poll::Pending)
            }
            Poll::Ready(Ok(0)) => {
                self.saw_ending(None);
                Err(closed("end of the connection".to_owned()))
            }
            Poll::Ready(Ok(count)) => {
                self.inbox.filled(count);
                self.owes_ack = true;
                Ok(Poll::Ready(()))
            }
            Poll::Ready(Err(error)) => Err(closed(error.to_string())),
        }
    }

    /// Records how the connection ended: end of stream (`None`) or an error.
    fn saw_ending(&mut self, error: Option<&io::Error>) {
        let event = match error.map(io::Error::kind) {
            None => EndingEvent::EndOfStream,
            Some(io::ErrorKind::ConnectionReset) => EndingEvent::Reset,
            Some(_) => EndingEvent::OtherError,
        };
        self.ending = self.ending.after(event);
    }

    /// Decides about the request while its pooled connection is silent.
    fn hear_silence(&self, connection: &Connection) -> Silence {
        // A process that has read the request is working on it.
        if self.busy != Busy::Maybe || connection.stream.has_unread() == Some(false) {
            return Silence::Waits;
        }
        connection.permit.address.hear_silence(self.alarm.now_ms())
    }

    /// Checks the timeout while there is no progress: first waits [`PATIENCE_MS`], then also
    /// watches the client. `silent` is the connection before the response.
    fn poll_limit(
        &mut self,
        client: &ClientHandle,
        silent: Option<&Connection>,
        cx: &mut Context<'_>,
    ) -> Poll<CallFailure> {
        loop {
            if !matches!(self.limit, Limit::Patience { is_first: true, .. })
                && let Some(fault) = self.client_gone(client, cx)
            {
                return Poll::Ready(CallFailure::Gone(fault));
            }
            ready!(self.alarm.poll(cx));
            let Limit::Patience { remaining_ms, .. } = self.limit else {
                return Poll::Ready(self.too_late());
            };
            let silence = silent.map_or(Silence::Waits, |connection| self.hear_silence(connection));
            match silence {
                Silence::Leaves => {
                    self.busy = self.busy.after(BusyEvent::Silent);
                    let message = "its process works on after a response";
                    let fault = FaultReport::new(Fault::BackendClosed, message);
                    return Poll::Ready(CallFailure::Backend { fault, silent: true });
                }
                Silence::AsksAgain { after_ms } if remaining_ms > after_ms => {
                    self.limit =
                        Limit::Patience { remaining_ms: remaining_ms - after_ms, is_first: false };
                    self.alarm.set(after_ms);
                }
                Silence::AsksAgain { .. } | Silence::Waits => {
                    self.limit = Limit::Timeout;
                    self.alarm.set(remaining_ms);
                }
            }
        }
    }

    /// Starts the timeout for the current wait, if that changed.
    fn watch(&mut self, upload: &ReplayableBody, timeouts: &TimeoutSpec, moved: bool) {
        let waits = if self.is_blocked() {
            Waits::Write
        } else if upload.is_over() || !self.takes_body() || self.session.takes() == 0 {
            Waits::Read
        } else {
            Waits::Client
        };
        if waits == self.waits && !moved {
            return;
        }
        self.limit_to(
            waits,
            match waits {
                Waits::Client => 0,
                Waits::Write => timeouts.write_ms,
                Waits::Read => timeouts.read_ms,
            },
        );
    }

    /// Starts a timeout; 0 milliseconds for none.
    fn limit_to(&mut self, waits: Waits, whole_ms: u64) {
        self.waits = waits;
        let whole_ms = if whole_ms == 0 { u64::MAX } else { whole_ms };
        self.limit = match whole_ms.saturating_sub(PATIENCE_MS) {
            0 => Limit::Timeout,
            remaining_ms => Limit::Patience { remaining_ms, is_first: true },
        };
        self.alarm.set(whole_ms.min(PATIENCE_MS));
    }

    /// Checks the timeout of the response body: the write timeout while the backend does not take
    /// the rest of the request, else the read timeout.
    pub(crate) fn poll_body_limit(
        &mut self,
        client: &ClientHandle,
        connection: &Connection,
        timeouts: &TimeoutSpec,
        moved: bool,
        cx: &mut Context<'_>,
    ) -> Poll<CallFailure> {
        let moved = self.see_withheld(connection, cx) || moved;
        let (waits, limit_ms) = match self.is_blocked() {
            true => (Waits::Write, timeouts.write_ms),
            false => (Waits::Read, timeouts.read_ms),
        };
        if moved || self.waits != waits {
            self.limit_to(waits, limit_ms);
        }
        self.poll_limit(client, None, cx)
    }

    /// Restarts the timeout after bytes of the body arrived.
    pub(crate) fn moved(&mut self) {
        self.waits = Waits::Client;
    }

    /// Records that bytes of an incomplete response body were read.
    pub(crate) fn owe_ack(&mut self) {
        self.owes_ack = true;
    }

    /// Returns true once after bytes were read: they must be acknowledged before waiting for more.
    pub(crate) fn take_owed_ack(&mut self) -> bool {
        std::mem::take(&mut self.owes_ack)
    }

    /// Returns the fault of a client that ends the call.
    fn client_gone(&mut self, client: &ClientHandle, cx: &mut Context<'_>) -> Option<Fault> {
        if self.watch == ClientWatch::Nothing {
            return None;
        }
        let Poll::Ready(fault) = client.as_ref()?.borrow_mut().poll_gone(cx) else { return None };
        let is_half_closed = matches!(fault, Fault::HalfClosed);
        let event = if is_half_closed { ClientEvent::HalfClosed } else { ClientEvent::Gone };
        (self.watch.handle(event) == WatchAction::EndCall).then_some(fault)
    }

    fn too_late(&self) -> CallFailure {
        let (fault, message) = match self.waits {
            Waits::Write => (Fault::BackendWriteTimeout, "while the request was sent"),
            _ => (Fault::BackendReadTimeout, "before its response"),
        };
        CallFailure::Backend { fault: FaultReport::new(fault, message), silent: true }
    }
}

fn pause_body_timer(client: &ClientHandle) {
    if let Some(client) = client {
        client.borrow_mut().pause_body_timer();
    }
}

#[cfg(test)]
mod tests {
    use lighty_io::clock::Clock;

    use super::*;

    #[test]
    fn interim_responses_have_a_limit() {
        let alarms = Alarms::new(Clock::manual(0));
        let pool = ReadBufPool::new(INBOX_BYTES, 1);
        let mut call = UpstreamCall::new(&Protocol::Scgi {}, &alarms, pool);
        for nth in 1..=INTERIM_MAX {
            assert!(call.count_interim().is_ok(), "{nth}");
        }
        let refused = call.count_interim();
        let Err(CallFailure::Backend { fault, silent: false }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(fault.fault, Fault::BackendMalformed);
        assert_eq!(fault.detail, format!("more than {INTERIM_MAX} interim responses"));
        call.clear();
        assert!(call.count_interim().is_ok(), "the next request has its own");
    }
}
