//! A call carries one request to a backend and brings the answer's head back; the body it hands
//! to [`crate::upstream_body`].
//!
//! Writing the request, its body included, and reading the answer go on side by side: a backend
//! may answer before it has heard everything (RFC 9112 section 9.5), and what it says then is
//! passed on at once.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use lighty_core::{BodyFault, ClientLink, ErrorOutput, Fault};
use lighty_io::transport::Stream;

use crate::deadline::{Alarm, Deadlines};
use crate::replayable_body::ReplayableBody;
use crate::session::{self, Answer, Event, Session, SessionFault};
use crate::spec::{Protocol, TimeoutSpec};
use crate::upstream_request::RewrittenHead;

/// Bytes of an inbox at first: a usual answer's head, and a small answer whole.
const INBOX_BYTES: usize = 8 * 1024;

/// Bytes of an inbox at most: a head may be 64 KiB, and a record of FastCGI as long around it.
const INBOX_BYTES_MAX: usize = 256 * 1024;

/// Bytes to be written above which no more of a body is taken in.
const OUTBOX_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a request after which other connections get their turn.
const TURN_BYTES: usize = 256 * 1024;

/// Capacity in bytes above which a buffer is not kept.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Interim answers to one request at most: a backend that sends nothing else keeps its client, and
/// with it the worker, busy for ever.
const INTERIM_MAX: u32 = 100;

/// Milliseconds without an answer after which it is asked whether the client still waits.
const PATIENCE_MS: u64 = 200;

/// How long the reset is waited for that proves that a request met a closed connection: a way to
/// the backend and back.
const RESET_PATIENCE: Duration = Duration::from_millis(500);

/// Carries one request at a time. Reusable.
pub(crate) struct UpstreamCall {
    pub session: Box<dyn Session>,
    pub answer: Answer,
    pub words: RewrittenHead,
    /// What this backend says for the error log, if it says anything, and how much of it is wanted.
    pub errors: Option<Box<ErrorOutput>>,
    pub error_kbytes_max: u64,
    out: Vec<u8>,
    sent: usize,
    /// Bytes of the request that went out, whether or not they still stand in `out`.
    written: u64,
    ending: Ending,
    /// Interim answers of this request so far.
    interim: u32,
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    alarm: Alarm,
    waits: Waits,
    limit: Limit,
    /// The backend takes no more of the request; its answer may be there all the same.
    pub deaf: bool,
    /// The answer's head was brought: its body is on its way.
    pub in_body: bool,
    /// The client has closed its sending half, which is all there is to hear of it.
    only_listens: bool,
}

/// What the time limit in force is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// For the client, whose limits are not ours.
    Client,
    Write,
    Read,
}

/// How the backend ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    None,
    /// By the end of the stream.
    Told,
    /// By a reset, which a call has heard of; later ones only hear of an end.
    Reset,
}

/// When what happens.
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    /// Milliseconds of the limit in force, at least [`PATIENCE_MS`] unless it is the last stretch.
    whole_ms: u64,
    /// The alarm is set to its end.
    is_last: bool,
}

/// Why a request did not get an answer.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The backend's fault. Nothing of an answer was received if `silent`.
    Backend { fault: SessionFault, silent: bool },
    /// The client's body cannot be read to its end.
    Body(BodyFault),
    /// The client is gone.
    Gone(Fault),
}

/// Where a request's client is reached.
pub(crate) type Link = Option<Rc<RefCell<dyn ClientLink>>>;

impl UpstreamCall {
    /// A call for a protocol.
    pub(crate) fn new(protocol: &Protocol, deadlines: &Rc<Deadlines>) -> Self {
        Self {
            session: session::create(protocol),
            answer: Answer::default(),
            words: RewrittenHead::default(),
            errors: None,
            error_kbytes_max: 0,
            out: Vec::with_capacity(1024),
            sent: 0,
            written: 0,
            ending: Ending::None,
            interim: 0,
            inbox: vec![0; INBOX_BYTES],
            start: 0,
            end: 0,
            alarm: Alarm::new(deadlines),
            waits: Waits::Client,
            limit: Limit::default(),
            deaf: false,
            in_body: false,
            only_listens: false,
        }
    }

    /// Ready for another request on another connection. What an unusual one needed is not kept.
    pub(crate) fn clear(&mut self) {
        self.session.clear();
        self.answer.clear();
        self.words.clear();
        self.errors = None;
        self.out.clear();
        self.sent = 0;
        self.written = 0;
        self.ending = Ending::None;
        self.interim = 0;
        if self.out.capacity() > KEPT_BYTES_MAX {
            self.out = Vec::new();
        }
        if self.inbox.len() > KEPT_BYTES_MAX {
            self.inbox = vec![0; INBOX_BYTES];
        }
        self.start = 0;
        self.end = 0;
        self.waits = Waits::Client;
        self.deaf = false;
        self.in_body = false;
        self.only_listens = false;
        self.alarm.rest();
    }

    /// Where the session writes the request to.
    pub(crate) fn outbox(&mut self) -> (&mut dyn Session, &RewrittenHead, &mut Vec<u8>) {
        (&mut *self.session, &self.words, &mut self.out)
    }

    /// Whether any byte of the request went out.
    pub(crate) fn has_sent(&self) -> bool {
        self.written > 0
    }

    /// Whether it is certain that the backend has read nothing of the request, although bytes of
    /// it went out: it had ended the connection before.
    pub(crate) async fn went_unread(&self, stream: &Stream) -> bool {
        self.ending == Ending::Told && stream.went_unread(self.written, RESET_PATIENCE).await
    }

    /// Whether everything that was to be sent went out: only then can the connection carry another
    /// request.
    pub(crate) fn has_sent_all(&self) -> bool {
        !self.deaf && self.sent == self.out.len()
    }

    /// Whether bytes of the request wait for the backend to take them.
    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.out.len()
    }

    /// What was read and is not used yet.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.inbox[self.start..self.end]
    }

    /// Takes what was read and is not used yet.
    pub(crate) fn take_pending(&mut self) -> Bytes {
        let pending = Bytes::copy_from_slice(self.pending());
        (self.start, self.end) = (0, 0);
        pending
    }

    /// Sends what is to be sent, of the request's body too, as far as it goes now. `true`: some
    /// bytes moved.
    ///
    /// # Errors
    /// The client's body cannot be read. A backend that takes no more only becomes
    /// [`deaf`](Self::deaf).
    pub(crate) fn push(
        &mut self,
        stream: &Stream,
        upload: &mut ReplayableBody,
        link: &Link,
        cx: &mut Context<'_>,
    ) -> Result<bool, BodyFault> {
        let mut moved = 0;
        while !self.deaf {
            if self.sent < self.out.len() {
                match stream.try_write(&self.out[self.sent..]) {
                    Ok(count) => {
                        self.sent += count;
                        self.written += count as u64;
                        moved += count;
                        if moved < TURN_BYTES {
                            continue;
                        }
                        // A client and a backend that are both fast would keep everybody waiting.
                        cx.waker().wake_by_ref();
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        // The client is not to blame while the backend takes nothing.
                        link_rests(link);
                        if stream.poll_writable(cx).is_ready() {
                            continue;
                        }
                    }
                    Err(error) => {
                        self.deaf = true;
                        self.saw_ending(Some(&error));
                    }
                }
                break;
            }
            if !self.reply() && (upload.is_over() || !self.take_in(upload, cx)?) {
                if !upload.is_over() && self.session.takes() == 0 {
                    // Nor while the backend asks for nothing.
                    link_rests(link);
                }
                break;
            }
        }
        Ok(moved > 0)
    }

    /// Answers what the backend asked; `false` if it asked nothing.
    fn reply(&mut self) -> bool {
        self.start_over();
        self.session.reply(&mut self.out);
        !self.out.is_empty()
    }

    /// All that was to be sent is sent.
    fn start_over(&mut self) {
        self.out.clear();
        self.sent = 0;
    }

    /// Frames more of the body; `false` when there is none now.
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

    /// Brings the next head: an interim one, or that of the answer.
    pub(crate) fn poll_head(
        &mut self,
        stream: &Stream,
        upload: &mut ReplayableBody,
        link: &Link,
        timeouts: &TimeoutSpec,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Event, Trouble>> {
        let mut moved = false;
        loop {
            moved |= self.push(stream, upload, link, cx).map_err(Trouble::Body)?;
            match self.poll_step(stream, cx)? {
                Poll::Ready(Event::More) => moved = true,
                Poll::Ready(Event::Interim) => {
                    self.count_interim()?;
                    return Poll::Ready(Ok(Event::Interim));
                }
                Poll::Ready(Event::Said) => {
                    // It may never stop, and then there is no time at which it is silent.
                    let gone = self.client_gone(link, cx);
                    return Poll::Ready(gone.map_or(Ok(Event::Said), |f| Err(Trouble::Gone(f))));
                }
                Poll::Ready(event) => return Poll::Ready(Ok(event)),
                Poll::Pending => break,
            }
        }
        self.watch(upload, timeouts, moved);
        self.poll_limit(link, cx).map(Err)
    }

    fn count_interim(&mut self) -> Result<(), Trouble> {
        self.interim += 1;
        if self.interim <= INTERIM_MAX {
            return Ok(());
        }
        let words = format!("more than {INTERIM_MAX} interim answers");
        Err(Trouble::Backend { fault: SessionFault::malformed(words), silent: false })
    }

    /// Reads once, or reads on in what was read.
    fn poll_step(&mut self, stream: &Stream, cx: &mut Context<'_>) -> Result<Poll<Event>, Trouble> {
        if self.start < self.end {
            let input = &self.inbox[self.start..self.end];
            let blame = |fault| Trouble::Backend { fault, silent: false };
            let step = self.session.read_head(input, &mut self.answer).map_err(blame)?;
            self.start += step.consumed;
            if step.event != Event::More || step.consumed > 0 {
                return Ok(Poll::Ready(step.event));
            }
        }
        Ok(self.poll_fill(stream, cx)?.map(|()| Event::More))
    }

    fn poll_fill(&mut self, stream: &Stream, cx: &mut Context<'_>) -> Result<Poll<()>, Trouble> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.inbox.len() && !self.make_room() {
            let fault =
                SessionFault { fault: Fault::BackendHeadTooLarge, words: "its head".into() };
            return Err(Trouble::Backend { fault, silent: false });
        }
        let silent = self.end == 0 && self.answer.fields.is_empty();
        let closed = |words: String| Trouble::Backend {
            fault: SessionFault { fault: Fault::BackendClosed, words: words.into() },
            silent,
        };
        match stream.poll_read(cx, &mut self.inbox[self.end..]) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(0)) => {
                self.saw_ending(None);
                Err(closed("end of the connection".to_owned()))
            }
            Poll::Ready(Ok(count)) => {
                self.end += count;
                Ok(Poll::Ready(()))
            }
            Poll::Ready(Err(error)) => Err(closed(error.to_string())),
        }
    }

    /// Reading has told the end, or a call an error.
    fn saw_ending(&mut self, error: Option<&io::Error>) {
        let is_reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        match error {
            Some(error) if is_reset(error) => self.ending = Ending::Reset,
            None if self.ending == Ending::None => self.ending = Ending::Told,
            _ => {}
        }
    }

    fn make_room(&mut self) -> bool {
        if self.start > 0 {
            self.inbox.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            return true;
        }
        let grown = (self.inbox.len() * 2).min(INBOX_BYTES_MAX);
        let grows = grown > self.inbox.len();
        self.inbox.resize(grown, 0);
        grows
    }

    /// Judges the time limits, now that everything waits: first a little patience, after that the
    /// client is listened to as well.
    fn poll_limit(&mut self, link: &Link, cx: &mut Context<'_>) -> Poll<Trouble> {
        loop {
            if self.limit.is_last
                && let Some(fault) = self.client_gone(link, cx)
            {
                return Poll::Ready(Trouble::Gone(fault));
            }
            ready!(self.alarm.poll(cx));
            if self.limit.is_last {
                return Poll::Ready(self.too_late());
            }
            self.limit.is_last = true;
            self.alarm.set(self.limit.whole_ms - PATIENCE_MS);
        }
    }

    /// Sets the limit for what is waited for now, where that is something new.
    fn watch(&mut self, upload: &ReplayableBody, timeouts: &TimeoutSpec, moved: bool) {
        let waits = if self.sent < self.out.len() && !self.deaf {
            Waits::Write
        } else if upload.is_over() || self.deaf || self.session.takes() == 0 {
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

    /// Begins a limit; 0 milliseconds: none.
    fn limit_to(&mut self, waits: Waits, whole_ms: u64) {
        self.waits = waits;
        let whole_ms = if whole_ms == 0 { u64::MAX } else { whole_ms };
        self.limit = Limit { whole_ms, is_last: whole_ms <= PATIENCE_MS };
        self.alarm.set(whole_ms.min(PATIENCE_MS));
    }

    /// The same for a body that is being brought.
    pub(crate) fn poll_body_limit(
        &mut self,
        link: &Link,
        read_ms: u64,
        moved: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Trouble> {
        if moved || self.waits != Waits::Read {
            self.limit_to(Waits::Read, read_ms);
        }
        self.poll_limit(link, cx)
    }

    /// Bytes of the body came: the limit begins anew.
    pub(crate) fn moved(&mut self) {
        self.waits = Waits::Client;
    }

    /// Whether the client has left. Once an answer flows, writing it tells who only listens from
    /// who has left, so that listening has no limit then.
    fn client_gone(&mut self, link: &Link, cx: &mut Context<'_>) -> Option<Fault> {
        if self.only_listens {
            return None;
        }
        match link.as_ref()?.borrow_mut().poll_gone(cx) {
            Poll::Pending => None,
            Poll::Ready(Fault::HalfClosed) if self.in_body => {
                self.only_listens = true;
                None
            }
            Poll::Ready(fault) => Some(fault),
        }
    }

    fn too_late(&self) -> Trouble {
        let (fault, words) = match self.waits {
            Waits::Write => (Fault::BackendWriteTimeout, "while the request was sent"),
            _ => (Fault::BackendReadTimeout, "before its answer"),
        };
        Trouble::Backend { fault: SessionFault { fault, words: words.into() }, silent: true }
    }
}

fn link_rests(link: &Link) {
    if let Some(link) = link {
        link.borrow_mut().rests();
    }
}
