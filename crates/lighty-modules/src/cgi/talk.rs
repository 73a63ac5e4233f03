//! Bytes both ways between a client and a program.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lighty_core::{BodyFault, ClientLink, Exchange, Fault, RequestBody};
use lighty_io::clock::Clock;
use lighty_io::spawn::{Channel, Exit};
use tokio::time::Sleep;

use super::keeper::ChildGuard;
use super::output::Joined;
use super::settings::Limits;

/// Bytes read from a program at once: as many as a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// How long what a program has left behind may be silent before the answer is over, in
/// milliseconds: its output is open as long as any process holds it.
const REST_MS: u64 = 1_000;

/// How long the end of a program's output waits for the program's own end, which tells whether the
/// output is whole, in milliseconds: that it closed its output and runs on is rare.
const END_MS: u64 = 250;

/// Why talking ended.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The client's body could not be read.
    Body(BodyFault),
    /// The client has left, or is taken for gone.
    Gone(Fault),
    /// The program says nothing.
    Silent,
    /// The program does not read.
    Deaf,
    /// The system says so.
    Broken(io::Error),
}

impl Trouble {
    /// Who is to blame.
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::Body(fault) => Fault::of_body(*fault),
            Self::Gone(fault) => *fault,
            Self::Silent => Fault::ProgramReadTimeout,
            Self::Deaf => Fault::ProgramWriteTimeout,
            Self::Broken(_) => Fault::BackendCut,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(BodyFault::Malformed(words)) => f.write_str(words),
            Self::Body(_) => f.write_str("request body"),
            Self::Gone(_) => f.write_str("while the program worked"),
            Self::Silent => f.write_str("the program was ended"),
            Self::Deaf => f.write_str("the program was ended, its input unread"),
            Self::Broken(error) => write!(f, "reading from the program: {error}"),
        }
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The client is to send more of its body.
    Client,
    /// The program is to read.
    Reader,
    /// The program is to write.
    Writer,
}

/// A request and the program that answers it.
pub(super) struct Talk {
    channel: Channel,
    body: RequestBody,
    /// Why the body could not be read, until that is reported.
    body_fault: Option<BodyFault>,
    /// A piece of the body that the program is to read.
    piece: Bytes,
    input_open: bool,
    /// The program may agree to another protocol: its input stays open until it says what it does.
    may_upgrade: bool,
    link: Option<Rc<RefCell<dyn ClientLink>>>,
    /// The head of the answer was taken: its body is on its way.
    in_body: bool,
    buffer: Vec<u8>,
    /// Where what was read and not consumed begins, and ends.
    start: usize,
    end: usize,
    limits: Limits,
    clock: Clock,
    moved_ms: u64,
    alarm: Option<Pin<Box<Sleep>>>,
    /// When it was heard that the program has ended, its output being open still.
    ended_ms: Option<u64>,
    /// When its output was seen to have ended.
    closed_ms: Option<u64>,
    keeper: Option<ChildGuard>,
}

impl Talk {
    /// Takes the request's body.
    pub(super) fn new(
        ex: &mut Exchange,
        channel: Channel,
        keeper: ChildGuard,
        limits: Limits,
    ) -> Self {
        let clock = ex.services.clock.clone();
        Self {
            body: std::mem::take(&mut ex.body),
            body_fault: None,
            piece: Bytes::new(),
            input_open: true,
            may_upgrade: matches!(channel, Channel::Socket(_)),
            channel,
            link: ex.link.clone(),
            in_body: false,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            limits,
            moved_ms: clock.mono_ms(),
            clock,
            alarm: None,
            ended_ms: None,
            closed_ms: None,
            keeper: Some(keeper),
        }
    }

    /// What was read and not consumed.
    pub(super) fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Takes all that was read.
    pub(super) fn take_pending(&mut self) -> Bytes {
        let taken = Bytes::copy_from_slice(self.pending());
        self.consume(taken.len());
        taken
    }

    /// Reads more behind what is pending; 0 at the end of the output.
    pub(super) async fn more(&mut self) -> Result<usize, Trouble> {
        std::future::poll_fn(|cx| self.poll_more(cx)).await
    }

    /// Polling form of [`Talk::more`].
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Trouble>> {
        if let Some(fault) = self.body_fault.take() {
            return Poll::Ready(Err(Trouble::Body(fault)));
        }
        let turn = self.poll_body(cx).map_err(Trouble::Body)?;
        if self.buffer.len() < self.end + READ_BYTES {
            self.buffer.resize(self.end + READ_BYTES, 0);
        }
        if let Poll::Ready(read) = self.channel.poll_read(cx, &mut self.buffer[self.end..]) {
            let count = read.map_err(Trouble::Broken)?;
            self.end += count;
            self.moved_ms = self.clock.mono_ms();
            return Poll::Ready(Ok(count));
        }
        if let Poll::Ready(fault) = self.poll_gone(cx) {
            return Poll::Ready(Err(Trouble::Gone(fault)));
        }
        let has_ended = |keeper: &mut ChildGuard| keeper.poll_ended(cx).is_ready();
        if self.keeper.as_mut().is_some_and(has_ended) {
            return self.poll_rest(cx).map(|()| Ok(0));
        }
        self.poll_limit(turn, cx).map(Err)
    }

    /// Ready when the client has left. Once an answer flows, writing it tells who only listens from
    /// who has left, so that listening has no limit then.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        let Some(link) = &self.link else { return Poll::Pending };
        match ready!(link.borrow_mut().poll_gone(cx)) {
            Fault::HalfClosed if self.in_body => Poll::Pending,
            fault => Poll::Ready(fault),
        }
    }

    /// The head of the answer was taken: its body follows.
    pub(super) fn begin_body(&mut self) {
        self.in_body = true;
    }

    /// Whether the program still takes what the client sends.
    pub(super) fn takes_body(&self) -> bool {
        self.input_open
    }

    /// Carries the body on while nothing is read of the program; what goes wrong is told by the
    /// next reading.
    pub(super) fn push_body(&mut self, cx: &mut Context<'_>) {
        if self.body_fault.is_none() {
            self.body_fault = self.poll_body(cx).err();
        }
    }

    /// Carries the body on as far as it goes now.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Result<Turn, BodyFault> {
        while self.input_open {
            if self.piece.is_empty() {
                match self.body.poll_next(cx) {
                    Poll::Ready(Some(piece)) => self.piece = piece?,
                    Poll::Ready(None) => self.close_input(),
                    Poll::Pending => return Ok(Turn::Client),
                }
                continue;
            }
            match self.channel.poll_write(cx, &self.piece) {
                Poll::Ready(Ok(count)) => {
                    self.piece.advance(count);
                    self.moved_ms = self.clock.mono_ms();
                }
                // It has read what it wanted.
                Poll::Ready(Err(_)) => self.close_input(),
                Poll::Pending => {
                    if let Some(link) = &self.link {
                        link.borrow_mut().rests();
                    }
                    return Ok(Turn::Reader);
                }
            }
        }
        Ok(Turn::Writer)
    }

    fn close_input(&mut self) {
        self.input_open = false;
        self.piece = Bytes::new();
        if !self.may_upgrade {
            self.channel.close_input();
        }
    }

    /// The program answers by HTTP: nothing follows the request's body.
    pub(super) fn stays(&mut self) {
        if std::mem::take(&mut self.may_upgrade) && !self.input_open {
            self.channel.close_input();
        }
    }

    /// Ready when whoever's turn it is has taken too long. A client has limits of its own.
    fn poll_limit(&mut self, turn: Turn, cx: &mut Context<'_>) -> Poll<Trouble> {
        let (limit_ms, trouble) = match turn {
            Turn::Client => (0, Trouble::Silent),
            Turn::Reader => (self.limits.write_ms, Trouble::Deaf),
            Turn::Writer => (self.limits.read_ms, Trouble::Silent),
        };
        if turn == Turn::Client {
            self.moved_ms = self.clock.mono_ms();
        }
        if limit_ms == 0 {
            return Poll::Pending;
        }
        self.poll_due(self.moved_ms.saturating_add(limit_ms), cx).map(|()| trouble)
    }

    /// The program has ended: ready when what it left behind has been silent for long enough.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ended_ms.is_none() {
            self.ended_ms = Some(self.clock.mono_ms());
            // It was set for a longer time.
            self.alarm = None;
        }
        let since_ms = self.moved_ms.max(self.ended_ms.unwrap_or(0));
        self.poll_due(since_ms.saturating_add(REST_MS), cx)
    }

    fn poll_due(&mut self, due_ms: u64, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now_ms = self.clock.mono_ms();
            if now_ms >= due_ms {
                return Poll::Ready(());
            }
            let alarm = self.alarm.get_or_insert_with(|| {
                Box::pin(tokio::time::sleep(Duration::from_millis(due_ms - now_ms)))
            });
            ready!(alarm.as_mut().poll(cx));
            self.alarm = None;
        }
    }

    /// The output has ended: ready with the signal that ended the program, or `None` where there was
    /// none, or the program runs on.
    pub(super) fn poll_signal(&mut self, cx: &mut Context<'_>) -> Poll<Option<i32>> {
        let Some(keeper) = &mut self.keeper else { return Poll::Ready(None) };
        if let Poll::Ready(exit) = keeper.poll_ended(cx) {
            return Poll::Ready(match exit {
                Some(Exit::Signal(number)) => Some(number),
                _ => None,
            });
        }
        if self.closed_ms.is_none() {
            self.closed_ms = Some(self.clock.mono_ms());
            // It was set for a longer time.
            self.alarm = None;
        }
        let due_ms = self.closed_ms.unwrap_or(0).saturating_add(END_MS);
        self.poll_due(due_ms, cx).map(|()| None)
    }

    /// The answer is complete.
    pub(super) fn complete(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.release();
        }
    }

    /// Lets the program end as it likes, without its client: nobody wants what it still writes.
    pub(super) fn read_to_nowhere(mut self) {
        // The connection goes on to its next request.
        self.body = RequestBody::default();
        self.link = None;
        self.close_input();
        tokio::task::spawn_local(async move {
            loop {
                self.consume(self.pending().len());
                match self.more().await {
                    Ok(0) => return self.complete(),
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
    }

    /// Client and program from now on speak with one another; `None` where pipes join them.
    pub(super) fn into_tunnel(mut self) -> Option<Joined> {
        let early = self.take_pending();
        let keeper = self.keeper.take()?;
        match self.channel {
            Channel::Socket(program) => {
                Some(Joined::new(program, early, keeper, self.limits.upgrade_ms, self.clock))
            }
            Channel::Pipes { .. } => None,
        }
    }
}
