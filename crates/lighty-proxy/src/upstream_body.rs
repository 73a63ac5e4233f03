//! The body of a backend's answer, as it comes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::read_ahead::Ahead;
use lighty_core::{BodyFault, BodyStream, Fault};
use lighty_http::Fields;
use lighty_io::file::OpenFile;

use crate::local::Local;
use crate::pool::Connection;
use crate::replayable_body::ReplayableBody;
use crate::session::{Event, SessionFault, Step};
use crate::spec::UpstreamSpec;
use crate::upstream_call::{Link, Trouble, UpstreamCall};

/// Bytes after which other connections get their turn, when both sides are fast.
const TURN_BYTES: usize = 256 * 1024;

/// Bytes of a body that nobody wants which are read for the sake of the connection.
const DROPPED_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a buffer where the worker's pool has none left.
const SPARE_BYTES: usize = 4 * 1024;

/// A body on its way from a backend to a client. What is left of the request's body goes the other
/// way meanwhile.
pub(crate) struct UpstreamBody {
    /// `None` once the answer is over.
    transfer: Option<Transfer>,
    local: Rc<Local>,
    spec: std::sync::Arc<UpstreamSpec>,
    link: Link,
    length: Option<u64>,
    /// Body that was decoded already and comes first.
    early: Bytes,
    input: Bytes,
    turn_bytes: usize,
    rest: Option<Pin<Box<dyn Future<Output = ()>>>>,
    trailers: Option<Fields>,
    /// What was found wrong, and is not said yet.
    found: Option<SessionFault>,
    fault: Option<SessionFault>,
    /// Why the rest of the request's body does not come: what an answer breaks for that breaks
    /// behind it.
    body_fault: Option<BodyFault>,
}

/// What is needed while the answer is under way.
pub(crate) struct Transfer {
    pub call: Box<UpstreamCall>,
    pub connection: Connection,
    pub upload: ReplayableBody,
}

impl UpstreamBody {
    /// The body behind the head that the call brought.
    pub(crate) fn new(mut transfer: Transfer, local: &Rc<Local>, link: Link) -> Self {
        // The limit for the head, and its patience, end with the head.
        transfer.call.moved();
        transfer.call.in_body = true;
        let early = transfer.call.session.take_early_body();
        let spec = std::sync::Arc::clone(&transfer.connection.permit.upstream.spec);
        let input = transfer.call.take_pending();
        // What was waited for is here; from now on it is the body.
        transfer.call.moved();
        Self {
            length: transfer.call.answer.length,
            transfer: Some(transfer),
            local: Rc::clone(local),
            spec,
            link,
            early,
            input,
            turn_bytes: 0,
            rest: None,
            trailers: None,
            found: None,
            fault: None,
            body_fault: None,
        }
    }

    /// The whole body, if it came with its head and is this small.
    pub(crate) fn take_whole(&mut self, most: usize) -> Option<Bytes> {
        while self.early.len() <= most {
            let transfer = self.transfer.as_mut()?;
            let step = match transfer.call.session.read_body(&self.input) {
                Ok(step) => step,
                Err(fault) => {
                    // Said behind what came before it; the session cannot be asked twice.
                    self.found = Some(fault);
                    return None;
                }
            };
            let piece = self.take_step(&step);
            if self.early.is_empty() {
                self.early = piece;
            } else if !piece.is_empty() {
                self.early = [&self.early[..], &piece].concat().into();
            }
            match step.event {
                Event::Done => {
                    self.conclude();
                    // Trailers need chunks.
                    let plain = self.trailers.is_none();
                    return plain.then(|| std::mem::take(&mut self.early));
                }
                Event::More => return None,
                _ => {}
            }
        }
        None
    }

    /// Takes what a step through the input found, and what it dealt with. Where that is one thing
    /// and all there is, the buffer goes with it.
    fn take_step(&mut self, step: &Step) -> Bytes {
        let Event::Data(range) = &step.event else {
            drop(self.input.split_to(step.consumed));
            return Bytes::new();
        };
        if *range == (0..self.input.len()) && step.consumed == range.end {
            return std::mem::take(&mut self.input);
        }
        let piece = self.input.slice(range.clone());
        drop(self.input.split_to(step.consumed));
        piece
    }

    /// Reads the body and drops it, so that the connection can be used again. One that is longer
    /// than this, or while the request is still being sent, ends with its connection.
    pub(crate) fn discard(mut self) {
        self.link = None;
        if self.take_whole(DROPPED_BYTES_MAX).is_some() {
            return;
        }
        let is_sent = self.transfer.as_ref().is_some_and(|transfer| {
            // What is left of the request's body belongs to a client that goes on without us.
            transfer.upload.is_over() && !transfer.call.is_sending()
        });
        if is_sent && self.length.is_none_or(|length| length <= DROPPED_BYTES_MAX as u64) {
            tokio::task::spawn_local(self.run_dry());
        }
    }

    async fn run_dry(mut self) {
        let mut dropped = 0;
        while let Some(Ok(piece)) = std::future::poll_fn(|cx| self.poll_piece(cx)).await {
            dropped += piece.len();
            if dropped > DROPPED_BYTES_MAX {
                return;
            }
        }
    }

    /// The answer is complete: the connection goes to the pool if it can carry another.
    fn conclude(&mut self) {
        let Some(transfer) = self.transfer.take() else { return };
        let Transfer { mut call, connection, upload } = transfer;
        self.local.hear(&connection.permit, &mut call);
        self.trailers = call.session.trailers().cloned();
        let is_sent = upload.is_over() && call.has_sent_all();
        let is_sound = call.session.is_reusable() && is_sent;
        // Bytes behind an answer were asked for by nobody: whoever came next would be given them.
        if is_sound && self.input.is_empty() {
            self.local.pool.give(connection, self.local.clock.mono_ms());
        }
        self.local.give_back(call, &self.spec.protocol);
    }

    fn broke(&mut self, fault: SessionFault) -> io::Error {
        let mut fault = match self.body_fault {
            // The backend cannot be blamed for what it was not told.
            Some(cause) if fault.fault == Fault::BackendCut => of_body(cause),
            _ => fault,
        };
        if let Some(mut transfer) = self.transfer.take() {
            self.local.hear(&transfer.connection.permit, &mut transfer.call);
            let text = &transfer.connection.permit.address.spec.text;
            let colon = if fault.words.is_empty() { "" } else { ": " };
            let name = &self.spec.name;
            fault.words = format!("{name}: backend {text}{colon}{}", fault.words).into();
        }
        let error = io::Error::other(fault.words.clone());
        self.fault = Some(fault);
        error
    }

    /// What the input holds, as far as the next piece.
    fn next_of_input(&mut self) -> Result<Option<Next>, SessionFault> {
        if !self.early.is_empty() {
            return Ok(Some(Next::Piece(std::mem::take(&mut self.early))));
        }
        if let Some(fault) = self.found.take() {
            return Err(fault);
        }
        while let Some(transfer) = &mut self.transfer {
            let step = transfer.call.session.read_body(&self.input)?;
            self.local.hear(&transfer.connection.permit, &mut transfer.call);
            let read_on = step.consumed > 0;
            let piece = self.take_step(&step);
            match step.event {
                Event::Data(_) if !piece.is_empty() => return Ok(Some(Next::Piece(piece))),
                Event::Done => {
                    self.conclude();
                    return Ok(Some(Next::End));
                }
                _ if read_on => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(Next::End))
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SessionFault>> {
        let Some(transfer) = &mut self.transfer else { return Poll::Ready(Ok(())) };
        let Transfer { call, connection, upload } = transfer;
        let stream = &connection.stream;
        // A client that fails to send the rest of its body gets its answer all the same.
        let pushed = call.push(stream, upload, &self.link, cx);
        let moved = pushed.unwrap_or_else(|fault| {
            self.body_fault.get_or_insert(fault);
            false
        });
        let read = match self.local.pieces.take() {
            Some(mut buffer) => {
                stream.poll_read(cx, &mut buffer).map_ok(|count| (count, buffer.freeze(count)))
            }
            None => {
                let mut buffer = vec![0; SPARE_BYTES];
                stream.poll_read(cx, &mut buffer).map_ok(|count| {
                    buffer.truncate(count);
                    (count, Bytes::from(buffer))
                })
            }
        };
        let Poll::Ready(read) = read else {
            let read_ms = self.spec.timeouts.read_ms;
            return Poll::Ready(Err(
                match ready!(call.poll_body_limit(&self.link, read_ms, moved, cx)) {
                    Trouble::Gone(fault) => SessionFault { fault, words: "".into() },
                    _ => cut(format!("silent for {read_ms} ms, proxy-core.read-timeout")),
                },
            ));
        };
        match read {
            Ok((0, _)) if call.session.ends_with_close() => {
                // A connection that is over is not given back.
                self.transfer = None;
                Poll::Ready(Ok(()))
            }
            Ok((0, _)) => Poll::Ready(Err(cut("end of the connection"))),
            Ok((count, bytes)) => {
                call.moved();
                self.turn_bytes += count;
                self.input = bytes;
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(cut(error.to_string()))),
        }
    }

    /// Lets other connections have their turn when this one never has to wait.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            self.rest = Some(Box::pin(tokio::task::yield_now()));
        }
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(cx));
            self.rest = None;
        }
        Poll::Ready(())
    }
}

enum Next {
    Piece(Bytes),
    End,
}

fn cut(words: impl Into<std::borrow::Cow<'static, str>>) -> SessionFault {
    SessionFault { fault: Fault::BackendCut, words: words.into() }
}

/// What became of an answer whose request's body ended early.
fn of_body(cause: BodyFault) -> SessionFault {
    let words = match cause {
        BodyFault::Malformed(words) => words,
        _ => Fault::of_body(cause).verdict().words,
    };
    SessionFault { fault: Fault::of_body(cause), words: words.into() }
}

impl Ahead for UpstreamBody {
    const WAITER: &'static str = "a backend";

    fn takes_request(&self) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| {
            !transfer.upload.is_received() && !transfer.call.deaf && self.body_fault.is_none()
        })
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        ready!(self.poll_turn(cx));
        loop {
            match self.next_of_input() {
                Ok(Some(Next::Piece(piece))) => return Poll::Ready(Some(Ok(piece))),
                Ok(Some(Next::End)) => return Poll::Ready(None),
                Ok(None) => {}
                Err(mut fault) => {
                    fault.fault = Fault::BackendCut;
                    return Poll::Ready(Some(Err(self.broke(fault))));
                }
            }
            if let Err(fault) = ready!(self.poll_more(cx)) {
                return Poll::Ready(Some(Err(self.broke(fault))));
            }
        }
    }
}

impl BodyStream for UpstreamBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Chunk<Rc<OpenFile>>>>> {
        self.poll_piece(cx).map(|next| next.map(|piece| piece.map(Chunk::Memory)))
    }

    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(Transfer { call, connection, upload }) = &mut self.transfer {
            let pushed = call.push(&connection.stream, upload, &self.link, cx);
            if let Err(fault) = pushed {
                self.body_fault.get_or_insert(fault);
            }
        }
        self.takes_request()
    }

    fn known_length(&self) -> Option<u64> {
        self.length
    }

    fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }

    fn fault(&self) -> Option<(Fault, String)> {
        let fault = self.fault.as_ref()?;
        Some((fault.fault, fault.words.to_string()))
    }
}
