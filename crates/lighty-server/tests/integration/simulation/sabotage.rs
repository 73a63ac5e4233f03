//! Bugs that tests plant at the server's seams: the simulation must find each of them.
//!
//! The server's own code has no place for them. A module, the configuration, scripts, programs, the
//! observer and the clients' connections imitate what a bug would do.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::module::Traits;
use lighty_core::{Body, BodyChunk, BodyStream, Exchange, Hooks, Module, Step};
use tokio::time::sleep;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A task that waits for a piece of a body is not woken.
    LostWakeup,
    /// A backend's connection keeps its permit after its response.
    PermitLeak,
    /// A piece of a body contains bytes of the previous piece, possibly of another request.
    MixedBodies,
    /// The sweep enforces no timeouts.
    MissingTimeout,
    /// The head of a response is sent twice.
    TwoResponses,
    /// A response is truncated although no fault is reported.
    CutWithoutFault,
    /// A truncated body looks complete.
    SilentTruncation,
    /// HTTP/2: an upload's window is opened by a WINDOW_UPDATE that is not sent.
    LostWindowUpdate,
    /// HTTP/2: the slot of a reset stream is freed twice, so that the next stream loses it to
    /// another.
    SlotFreedTwice,
    /// TLS: data is sealed and sent in two records.
    RecordSealedTwice,
    /// A request whose script waits is not woken.
    LostScript,
    /// An upload that a script has received is empty for its next reader.
    ForgottenUpload,
    /// A program is not ended.
    ProgramLeft,
    /// AJP13: a connection is used again although a requested packet of a body was not sent.
    ReuseWithUnsentBody,
    /// SCGI, uwsgi: a response that is closed before its announced length is taken for whole.
    CloseTakenAsEnd,
    /// A reset of a raw connection or a tunnel is passed on as an orderly end.
    AbortAsEnd,
}

impl Bug {
    /// All bugs, in the order of their declaration.
    pub(crate) const ALL: [Bug; 16] = [
        Bug::LostWakeup,
        Bug::PermitLeak,
        Bug::MixedBodies,
        Bug::MissingTimeout,
        Bug::TwoResponses,
        Bug::CutWithoutFault,
        Bug::SilentTruncation,
        Bug::LostWindowUpdate,
        Bug::SlotFreedTwice,
        Bug::RecordSealedTwice,
        Bug::LostScript,
        Bug::ForgottenUpload,
        Bug::ProgramLeft,
        Bug::ReuseWithUnsentBody,
        Bug::CloseTakenAsEnd,
        Bug::AbortAsEnd,
    ];

    /// Returns the path of the backend that a bug of one protocol is about.
    pub(crate) fn path(self) -> Option<&'static str> {
        match self {
            Bug::ReuseWithUnsentBody => Some("/j/x"),
            Bug::CloseTakenAsEnd => Some("/c/x"),
            _ => None,
        }
    }
}

/// Module that has one of the bugs: most of them as a filter of response bodies.
pub(crate) struct Saboteur(pub(crate) Bug);

impl Module for Saboteur {
    fn name(&self) -> &'static str {
        "saboteur"
    }

    fn traits(&self) -> Traits {
        let clean_url = self.0 == Bug::LostScript;
        Hooks { clean_url, filter: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<lighty_config::Directive<lighty_core::Settings>> {
        Vec::new()
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let has_script = ex.request.target_raw.windows(6).any(|word| word == b"&wait=");
        if self.0 != Bug::LostScript || !has_script {
            return Step::Next;
        }
        Step::Wait(Box::pin(async {
            let mut wait = pin!(sleep(Duration::from_millis(1)));
            poll_fn(|_| wait.as_mut().poll(&mut Context::from_waker(Waker::noop()))).await;
            Step::Next
        }))
    }

    fn filter<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        ex.response.body = match std::mem::take(&mut ex.response.body) {
            Body::Stream(inner) => {
                let body = Sabotaged { inner: Some(inner), bug: self.0, polls: 0 };
                Body::Stream(Box::new(body))
            }
            body => body,
        };
        Step::Next
    }
}

/// A body whose stream is tampered with.
struct Sabotaged {
    inner: Option<Box<dyn BodyStream>>,
    bug: Bug,
    polls: u32,
}

impl BodyStream for Sabotaged {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        self.polls += 1;
        if self.bug == Bug::LostWakeup && self.polls.is_multiple_of(3) {
            return inner.poll_next(&mut Context::from_waker(Waker::noop()));
        }
        match inner.poll_next(cx) {
            Poll::Ready(Some(Ok(chunk))) if self.bug == Bug::MixedBodies => {
                Poll::Ready(Some(Ok(mixed(chunk))))
            }
            Poll::Ready(Some(Err(_))) if self.bug == Bug::SilentTruncation => Poll::Ready(None),
            polled => polled,
        }
    }

    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> bool {
        self.inner.as_mut().is_some_and(|inner| inner.poll_meanwhile(cx))
    }

    fn known_length(&self) -> Option<u64> {
        let inner = self.inner.as_ref().filter(|_| self.bug != Bug::SilentTruncation)?;
        inner.known_length()
    }
}

impl Drop for Sabotaged {
    fn drop(&mut self) {
        if self.bug == Bug::PermitLeak {
            std::mem::forget(self.inner.take());
        }
    }
}

/// Puts the bytes of the previous piece, of whatever body, in front of a piece.
fn mixed(chunk: Chunk<Rc<lighty_io::file::OpenFile>>) -> Chunk<Rc<lighty_io::file::OpenFile>> {
    thread_local! {
        static LAST: RefCell<Bytes> = const { RefCell::new(Bytes::new()) };
    }
    let Chunk::Memory(bytes) = &chunk else { return chunk };
    let last = LAST.replace(bytes.clone());
    let length = last.len().min(bytes.len());
    Chunk::Memory([&last[..length], &bytes[length..]].concat().into())
}

const FRAME_HEAD_BYTES: usize = 9;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;

/// Changes what a client reads, as a bug of the server would.
pub(crate) struct Tap {
    bug: Bug,
    is_h2: bool,
    /// Bytes of an incomplete frame.
    partial: Vec<u8>,
    /// Changed bytes that the client has not read.
    pub(crate) ready: Vec<u8>,
    pieces: u32,
    /// The client has reset a stream.
    pub(crate) has_reset: bool,
    /// The stream that has lost its slot.
    victim: Option<u32>,
}

impl Tap {
    /// Returns the tap of a connection that the bug concerns.
    pub(crate) fn new(bug: Bug, is_h2: bool, is_tls: bool) -> Option<Tap> {
        let concerns = match bug {
            Bug::TwoResponses => !is_h2,
            Bug::LostWindowUpdate | Bug::SlotFreedTwice => is_h2,
            Bug::RecordSealedTwice => is_tls,
            Bug::AbortAsEnd => true,
            _ => false,
        };
        let (partial, ready) = (Vec::new(), Vec::new());
        let (pieces, has_reset, victim) = (0, false, None);
        concerns.then_some(Tap { bug, is_h2, partial, ready, pieces, has_reset, victim })
    }

    /// Returns true if a reset looks like an end.
    pub(crate) fn hides_resets(&self) -> bool {
        self.bug == Bug::AbortAsEnd
    }

    /// Takes bytes that have arrived.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.pieces += 1;
        match self.bug {
            Bug::TwoResponses if bytes.starts_with(b"HTTP/1.1 200") => {
                self.ready.extend_from_slice(bytes);
                self.ready.extend_from_slice(bytes);
            }
            Bug::RecordSealedTwice if self.pieces == 2 => {
                self.ready.extend_from_slice(bytes);
                self.ready.extend_from_slice(bytes);
            }
            Bug::LostWindowUpdate | Bug::SlotFreedTwice if self.is_h2 => self.take_frames(bytes),
            _ => self.ready.extend_from_slice(bytes),
        }
    }

    /// Passes on whole frames, except those that the bug loses.
    fn take_frames(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        while let Some(&[a, b, c, kind, _, d, e, f, g]) = self.partial.first_chunk() {
            let length = FRAME_HEAD_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
            if self.partial.len() < length {
                return;
            }
            let frame: Vec<u8> = self.partial.drain(..length).collect();
            if !self.is_lost(kind, u32::from_be_bytes([d, e, f, g])) {
                self.ready.extend(frame);
            }
        }
    }

    fn is_lost(&mut self, kind: u8, stream: u32) -> bool {
        if self.bug == Bug::LostWindowUpdate {
            return kind == WINDOW_UPDATE && stream != 0;
        }
        if kind == HEADERS && self.has_reset {
            self.victim.get_or_insert(stream);
        }
        self.victim == Some(stream)
    }
}
