//! Transfers bytes both ways between a client and a program.
//!
//! [`Talk`] has methods of three kinds. Reading: `poll_more` passes the request body on, reads the
//! program's output, and observes the client, the program's exit and the timeouts; `push_body` only
//! passes the body on. Decisions of the response head: `stays` or `into_tunnel`, then `begin_body`.
//! Ends: `poll_signal` after the end of the output, then `complete` or `read_to_nowhere`; dropping
//! a [`Talk`] ends the program. The timers are its own: `poll_more` and `poll_signal` set them.
//! [`ProgramInput`] is the state of the program's input, [`EndWait`] the wait for its end.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lighty_buf::{BufPool, ReadBuf};
use lighty_core::{BodyFault, Client, Exchange, Fault, Relay, RequestBody};
use lighty_io::clock::Clock;
use lighty_io::process::spawn::{Channel, Exit};
use tokio::time::Sleep;

use super::child_guard::ChildGuard;
use super::program_input::{InputAction, InputEvent, ProgramInput};
use super::settings::Limits;
use super::tunnelled::TunnelledProgram;

/// Read size in bytes: the capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// Size in bytes and number of a tunnel's buffers: one for each direction.
const TUNNEL_BUFFER_BYTES: usize = 16 * 1024;
const TUNNEL_BUFFERS: usize = 2;

/// Maximum bytes read and not consumed: more than the longest head that is accepted.
const READ_BYTES_MAX: usize = 256 * 1024;

/// After the program has exited, the response ends when its children are silent for this many
/// milliseconds: they may hold the output open.
const SILENCE_MS: u64 = 1_000;

/// Time to wait for the exit status after the end of the output, in milliseconds. The status
/// shows whether the output is complete. Few programs close their output and keep running.
const END_MS: u64 = 250;

/// Reasons for which a transfer fails.
#[derive(Debug)]
pub(super) enum CgiError {
    /// The request body could not be read.
    Body(BodyFault),
    /// The client has disconnected, or counts as disconnected.
    Gone(Fault),
    /// The program writes nothing.
    Silent,
    /// The program does not read.
    Deaf,
    /// A system call failed.
    Broken(io::Error),
}

impl CgiError {
    /// Returns the fault for this error.
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

impl fmt::Display for CgiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(BodyFault::Malformed(message)) => f.write_str(message),
            Self::Body(_) => f.write_str("request body"),
            Self::Gone(_) => f.write_str("while the program worked"),
            Self::Silent => f.write_str("the program was ended"),
            Self::Deaf => f.write_str("the program was ended, its input unread"),
            Self::Broken(error) => write!(f, "reading from the program: {error}"),
        }
    }
}

/// Which side must act next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// The client must send more of its body.
    Client,
    /// The program must read.
    Reader,
    /// The program must write.
    Writer,
}

/// The part of the response that the program's output contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputPart {
    Head,
    Body,
}

// The end of a program (`EndWait`). Each arrow sets a timer; the response ends with it, or earlier
// with the event.
//
//                 the output ends
//     Output ----------------------> Exit
//       |                             ^
//       | the program exits           | the output ends
//       +------------> Children ------+

/// The event that the end of the response waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndWait {
    /// The end of the output.
    Output,
    /// The silence of children that hold the output open, since the program's exit.
    Children { since_ms: u64 },
    /// The exit status, since the end of the output.
    Exit { since_ms: u64 },
}

/// A request and its program.
pub(super) struct Talk {
    channel: Channel,
    body: RequestBody,
    /// Error of reading the request body; cleared when reported.
    body_fault: Option<BodyFault>,
    input: ProgramInput,
    /// Unsent part of the current piece of the body.
    piece: Bytes,
    client: Option<Rc<RefCell<dyn Client>>>,
    output: OutputPart,
    buffer: ReadBuf,
    limits: Limits,
    clock: Clock,
    moved_ms: u64,
    /// The time for which it is set, in monotonic milliseconds, and the timer.
    alarm: Option<(u64, Pin<Box<Sleep>>)>,
    end: EndWait,
    guard: Option<ChildGuard>,
}

impl Talk {
    /// Starts a transfer; takes the request body.
    pub(super) fn new(
        ex: &mut Exchange,
        channel: Channel,
        guard: ChildGuard,
        limits: Limits,
    ) -> Self {
        let clock = ex.machine.clock.clone();
        Self {
            body: std::mem::take(&mut ex.body),
            body_fault: None,
            input: match channel {
                Channel::Socket(_) => ProgramInput::UpgradableBody,
                Channel::Pipes { .. } | Channel::Simulated { .. } => ProgramInput::Body,
            },
            piece: Bytes::new(),
            channel,
            client: ex.client.clone(),
            output: OutputPart::Head,
            buffer: ReadBuf::default(),
            limits,
            moved_ms: clock.mono_ms(),
            clock,
            alarm: None,
            end: EndWait::Output,
            guard: Some(guard),
        }
    }

    /// The bytes read and not consumed.
    pub(super) fn pending(&self) -> &[u8] {
        self.buffer.pending()
    }

    /// Consumes bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.buffer.consume(count);
    }

    /// Takes all bytes read.
    pub(super) fn take_pending(&mut self) -> Bytes {
        let taken = Bytes::copy_from_slice(self.pending());
        self.consume(taken.len());
        debug_assert!(self.pending().is_empty());
        taken
    }

    /// Reads more output after the pending bytes. Returns 0 at the end of the output.
    pub(super) async fn more(&mut self) -> Result<usize, CgiError> {
        std::future::poll_fn(|cx| self.poll_more(cx)).await
    }

    /// Polling form of [`Talk::more`].
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, CgiError>> {
        if let Some(fault) = self.body_fault.take() {
            return Poll::Ready(Err(CgiError::Body(fault)));
        }
        let turn = self.poll_body(cx).map_err(CgiError::Body)?;
        let Some(room) = self.buffer.room(READ_BYTES, READ_BYTES_MAX) else {
            return Poll::Ready(Err(CgiError::Broken(io::ErrorKind::OutOfMemory.into())));
        };
        let room_bytes = room.len();
        if let Poll::Ready(read) = self.channel.poll_read(cx, room) {
            let count = read.map_err(CgiError::Broken)?;
            debug_assert!(count <= room_bytes, "{count} bytes into room for {room_bytes}");
            self.buffer.filled(count);
            self.moved_ms = self.clock.mono_ms();
            return Poll::Ready(Ok(count));
        }
        if let Poll::Ready(fault) = self.poll_gone(cx) {
            return Poll::Ready(Err(CgiError::Gone(fault)));
        }
        let has_ended = |guard: &mut ChildGuard| guard.poll_ended(cx).is_ready();
        if self.guard.as_mut().is_some_and(has_ended) {
            return self.poll_silence(cx).map(|()| Ok(0));
        }
        self.poll_limit(turn, cx).map(Err)
    }

    /// Ready when the client has disconnected. Once a response is being sent, a failing write
    /// reveals that, so a half-closed client then has no time limit.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        let Some(client) = &self.client else { return Poll::Pending };
        match ready!(client.borrow_mut().poll_gone(cx)) {
            Fault::HalfClosed if self.output == OutputPart::Body => Poll::Pending,
            fault => Poll::Ready(fault),
        }
    }

    /// Marks the response head as complete: its body follows.
    pub(super) fn begin_body(&mut self) {
        debug_assert_eq!(self.output, OutputPart::Head, "the body begins once");
        self.output = OutputPart::Body;
    }

    /// True if the program's input waits for the client to send more of the request body.
    pub(super) fn waits_for_client(&self) -> bool {
        self.input.takes_body() && self.piece.is_empty()
    }

    /// True if the program still accepts the request body.
    pub(super) fn takes_body(&self) -> bool {
        self.input.takes_body()
    }

    /// Forwards the body while nothing is read from the program; the next read reports errors.
    pub(super) fn push_body(&mut self, cx: &mut Context<'_>) {
        if self.body_fault.is_none() {
            self.body_fault = self.poll_body(cx).err();
        }
    }

    /// Forwards the body as far as possible without waiting.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Result<WaitsFor, BodyFault> {
        while self.input.takes_body() {
            if self.piece.is_empty() {
                match self.body.poll_next(cx) {
                    Poll::Ready(Some(next)) => self.piece = next?,
                    Poll::Ready(None) => self.end_body(),
                    Poll::Pending => return Ok(WaitsFor::Client),
                }
                continue;
            }
            match self.channel.poll_write(cx, &self.piece) {
                Poll::Ready(Ok(count)) => {
                    debug_assert!(count <= self.piece.len(), "{count} bytes were not offered");
                    self.piece.advance(count);
                    self.moved_ms = self.clock.mono_ms();
                }
                // The program has closed its input: it has read enough.
                Poll::Ready(Err(_)) => self.end_body(),
                Poll::Pending => {
                    if let Some(client) = &self.client {
                        client.borrow_mut().pause_body_timer();
                    }
                    return Ok(WaitsFor::Reader);
                }
            }
        }
        Ok(WaitsFor::Writer)
    }

    fn end_body(&mut self) {
        self.piece = Bytes::new();
        self.note(InputEvent::BodyEnds);
    }

    /// No upgrade: nothing follows the request body.
    pub(super) fn stays(&mut self) {
        self.note(InputEvent::HeadDecides);
    }

    fn note(&mut self, event: InputEvent) {
        if self.input.handle(event) == InputAction::Close {
            self.channel.close_input();
        }
    }

    /// Ready when the side that must act has timed out. The client's timeouts apply elsewhere.
    fn poll_limit(&mut self, turn: WaitsFor, cx: &mut Context<'_>) -> Poll<CgiError> {
        let (limit_ms, error) = match turn {
            WaitsFor::Client => (0, CgiError::Silent),
            WaitsFor::Reader => (self.limits.write_ms, CgiError::Deaf),
            WaitsFor::Writer => (self.limits.read_ms, CgiError::Silent),
        };
        if turn == WaitsFor::Client {
            self.moved_ms = self.clock.mono_ms();
        }
        if limit_ms == 0 {
            return Poll::Pending;
        }
        self.poll_due(self.moved_ms.saturating_add(limit_ms), cx).map(|()| error)
    }

    /// After the program's exit: ready when its children have been silent for long enough.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let EndWait::Children { since_ms } = self.end else {
            self.end = EndWait::Children { since_ms: self.clock.mono_ms() };
            return self.poll_silence(cx);
        };
        let since_ms = self.moved_ms.max(since_ms);
        self.poll_due(since_ms.saturating_add(SILENCE_MS), cx)
    }

    fn poll_due(&mut self, due_ms: u64, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now_ms = self.clock.mono_ms();
            if now_ms >= due_ms {
                return Poll::Ready(());
            }
            // One that was set for a later time would be late.
            self.alarm.take_if(|(at_ms, _)| *at_ms > due_ms);
            let (_, alarm) = self.alarm.get_or_insert_with(|| {
                (due_ms, Box::pin(tokio::time::sleep(Duration::from_millis(due_ms - now_ms))))
            });
            ready!(alarm.as_mut().poll(cx));
            self.alarm = None;
        }
    }

    /// After the end of the output: ready with the signal that killed the program; `None` if there
    /// was none or the program runs on.
    pub(super) fn poll_signal(&mut self, cx: &mut Context<'_>) -> Poll<Option<i32>> {
        let Some(guard) = &mut self.guard else { return Poll::Ready(None) };
        if let Poll::Ready(exit) = guard.poll_ended(cx) {
            return Poll::Ready(match exit {
                Some(Exit::Signal(number)) => Some(number),
                _ => None,
            });
        }
        let EndWait::Exit { since_ms } = self.end else {
            self.end = EndWait::Exit { since_ms: self.clock.mono_ms() };
            return self.poll_signal(cx);
        };
        self.poll_due(since_ms.saturating_add(END_MS), cx).map(|()| None)
    }

    /// Marks the response as complete.
    pub(super) fn complete(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.release();
        }
    }

    /// Lets the program finish without its client; its output is discarded.
    pub(super) fn read_to_nowhere(mut self) {
        // Frees the connection for its next request.
        self.body = RequestBody::default();
        self.client = None;
        self.end_body();
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

    /// Turns the transfer into a tunnel; `None` if pipes connect the program.
    pub(super) fn into_tunnel(mut self) -> Option<Relay<TunnelledProgram>> {
        let early = self.take_pending();
        let guard = self.guard.take()?;
        let Channel::Socket(stream) = self.channel else { return None };
        Some(Relay {
            far: TunnelledProgram { stream, guard },
            early,
            idle_ms: self.limits.upgrade_ms,
            route: None,
            clock: self.clock,
            buffers: BufPool::new(TUNNEL_BUFFER_BYTES, TUNNEL_BUFFERS),
        })
    }
}
