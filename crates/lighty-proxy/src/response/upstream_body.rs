//! The body of a backend's response, streamed as it arrives.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::pipeline::read_ahead::Ahead;
use lighty_core::{Blame, BodyChunk, BodyFault, BodyStream, Fault, FaultReport};
use lighty_http::Fields;

use crate::connect::pool::Connection;
use crate::request::replayable_body::ReplayableBody;
use crate::serve::local::Local;
use crate::serve::upstream_call::{CallFailure, ClientHandle, UpstreamCall};
use crate::session::{Event, Step};
use crate::upstream::spec::UpstreamSpec;

/// After this many bytes a fast transfer yields to other connections.
const TURN_BYTES: usize = 256 * 1024;

/// Bytes that a step of the decoder counts in a turn, however little it yields.
const STEP_BYTES: usize = 32;

/// A piece of this many bytes is passed on unchanged.
const SMALL_BYTES: usize = 4 * 1024;

/// Smaller pieces are joined up to this many bytes.
const JOINED_BYTES_MAX: usize = 16 * 1024;

/// Maximum bytes of an unwanted body that are read to reuse the connection.
const DROPPED_BYTES_MAX: usize = 64 * 1024;

/// Milliseconds of silence after which the response ends if the request body has failed: the
/// backend may have sent a response that does not need the rest.
const LOST_BODY_MS: u64 = 200;

/// Buffer size in bytes when the worker's pool is empty.
const SPARE_BYTES: usize = 4 * 1024;

/// A response body in transit from a backend to a client. Meanwhile, the rest of the request body
/// is sent.
pub(crate) struct UpstreamBody {
    /// `None` once the response is complete.
    transfer: Option<BodyTransfer>,
    local: Rc<Local>,
    spec: std::sync::Arc<UpstreamSpec>,
    client: ClientHandle,
    length: Option<u64>,
    /// Decoded body bytes, sent first.
    early: Bytes,
    input: Bytes,
    turn_bytes: usize,
    rest: Option<Pin<Box<dyn Future<Output = ()>>>>,
    trailers: Option<Box<Fields>>,
    /// A detected fault that is not reported yet.
    found: Option<FaultReport>,
    /// Fault of the request body, reported in place of the truncation that it causes.
    body_fault: Option<BodyFault>,
}

/// A call in progress, with its connection and the rest of the request body.
pub(crate) struct BodyTransfer {
    pub call: Box<UpstreamCall>,
    pub connection: Connection,
    pub upload: ReplayableBody,
}

impl UpstreamBody {
    /// Creates the body that follows the call's head.
    pub(crate) fn new(mut transfer: BodyTransfer, local: &Rc<Local>, client: ClientHandle) -> Self {
        // The head's timeout ends here.
        transfer.call.moved();
        transfer.call.begin_body();
        let early = transfer.call.session.take_early_body();
        let spec = std::sync::Arc::clone(&transfer.connection.permit.upstream.spec);
        let input = transfer.call.take_pending();
        // From here on the timeout is the body's.
        transfer.call.moved();
        Self {
            length: transfer.call.response.length,
            transfer: Some(transfer),
            local: Rc::clone(local),
            spec,
            client,
            early,
            input,
            turn_bytes: 0,
            rest: None,
            trailers: None,
            found: None,
            body_fault: None,
        }
    }

    /// Returns the whole body, if it arrived with its head and has at most `most` bytes.
    pub(crate) fn take_whole(&mut self, most: usize) -> Option<Bytes> {
        let mut joined = Joined::default();
        joined.push(std::mem::take(&mut self.early));
        let is_whole = self.join_input(&mut joined, most);
        self.early = joined.take();
        is_whole.then(|| std::mem::take(&mut self.early))
    }

    /// Joins the pieces read so far, until there are more than `most` bytes. Returns true if they
    /// are the whole body, without trailers, which would require a chunked response.
    fn join_input(&mut self, joined: &mut Joined, most: usize) -> bool {
        while joined.len() <= most {
            let Some(transfer) = self.transfer.as_mut() else { return false };
            let step = match transfer.call.session.read_body(&self.input) {
                Ok(step) => step,
                Err(fault) => {
                    // Report the fault after the bytes before it; the session cannot be called
                    // again.
                    self.found = Some(fault);
                    return false;
                }
            };
            joined.push(self.take_step(&step));
            match step.event {
                Event::Done => {
                    self.conclude();
                    return self.trailers.is_none();
                }
                Event::More => return false,
                _ => {}
            }
        }
        false
    }

    /// Consumes a step's input and returns its data. If the data is all of the input, the buffer
    /// moves without a copy.
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

    /// Reads and drops the body, to reuse the connection. Closes the connection instead if the body
    /// is too long, or the request is still being sent.
    pub(crate) fn discard(mut self) {
        self.client = None;
        if self.take_whole(DROPPED_BYTES_MAX).is_some() {
            return;
        }
        let is_sent = self.transfer.as_ref().is_some_and(|transfer| {
            // The rest of the request body belongs to a client that is no longer attached.
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

    /// Ends the transfer after a complete response: the connection goes to the pool if it is
    /// reusable.
    fn conclude(&mut self) {
        let Some(transfer) = self.transfer.take() else { return };
        let BodyTransfer { mut call, connection, upload } = transfer;
        self.local.log_stderr(&connection.permit, &mut call);
        self.trailers = call.session.trailers().cloned().map(Box::new);
        let is_sent = upload.is_over() && call.has_sent_all();
        let is_sound = call.session.is_reusable() && is_sent;
        // Bytes after a response are unsolicited: the next request would take them for its
        // response.
        if is_sound && self.input.is_empty() {
            self.local.pool.give(connection, self.local.clock.mono_ms());
        }
        self.local.give_back(call, &self.spec.protocol);
    }

    fn broke(&mut self, report: FaultReport) -> FaultReport {
        let mut report = match self.body_fault {
            // Do not blame the backend for a request that it did not get completely.
            Some(cause) if report.fault == Fault::BackendCut => of_body(cause),
            _ => report,
        };
        if let Some(mut transfer) = self.transfer.take() {
            let address = &transfer.connection.permit.address;
            if self.body_fault.is_none() && report.fault.verdict().blame == Blame::Backend {
                address.count_failure();
            }
            self.local.log_stderr(&transfer.connection.permit, &mut transfer.call);
            let text = &address.spec.text;
            report = report.about(format_args!("{}: backend {text}", self.spec.name));
        }
        report
    }

    /// Decodes the next piece of the buffered input.
    fn next_of_input(&mut self) -> Result<Option<BodyStep>, FaultReport> {
        if !self.early.is_empty() {
            return Ok(Some(BodyStep::Piece(std::mem::take(&mut self.early))));
        }
        if let Some(fault) = self.found.take() {
            return Err(fault);
        }
        let mut joined = Joined::default();
        while let Some(transfer) = &mut self.transfer {
            let step = match transfer.call.session.read_body(&self.input) {
                Ok(step) => step,
                Err(fault) if joined.is_empty() => return Err(fault),
                Err(fault) => {
                    self.found = Some(fault);
                    break;
                }
            };
            self.local.log_stderr(&transfer.connection.permit, &mut transfer.call);
            let read_on = step.consumed > 0;
            joined.push(self.take_step(&step));
            self.turn_bytes += STEP_BYTES;
            match step.event {
                Event::Data(_) if joined.is_enough() => break,
                Event::Done => {
                    self.conclude();
                    break;
                }
                _ if read_on => {}
                _ if joined.is_empty() => return Ok(None),
                _ => break,
            }
        }
        let piece = joined.take();
        Ok(Some(if piece.is_empty() { BodyStep::End } else { BodyStep::Piece(piece) }))
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FaultReport>> {
        let Some(transfer) = &mut self.transfer else { return Poll::Ready(Ok(())) };
        let BodyTransfer { call, connection, upload } = transfer;
        let stream = &connection.stream;
        // A client that fails to send the rest of its body still gets the response.
        let pushed = call.push(stream, upload, &self.client, cx);
        let moved = pushed.unwrap_or_else(|fault| {
            self.body_fault.get_or_insert(fault);
            // The shorter limit starts now.
            call.moved();
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
            if call.take_owed_ack() {
                stream.acknowledge();
            }
            let mut limits = self.spec.timeouts;
            if self.body_fault.is_some() {
                // The backend waits for bytes that never come: nothing is lost with it.
                (limits.read_ms, limits.write_ms) = (LOST_BODY_MS, LOST_BODY_MS);
            }
            let limit = call.poll_body_limit(&self.client, connection, &limits, moved, cx);
            return Poll::Ready(Err(match ready!(limit) {
                CallFailure::Gone(fault) => FaultReport::new(fault, ""),
                CallFailure::Backend { fault, .. } if fault.fault == Fault::BackendWriteTimeout => {
                    let write_ms = limits.write_ms;
                    cut(format!(
                        "took none of the request for {write_ms} ms, proxy-core.write-timeout"
                    ))
                }
                _ => cut(format!("silent for {} ms, proxy-core.read-timeout", limits.read_ms)),
            }));
        };
        match read {
            // RFC 9112 section 9.8.
            Ok((0, _)) if call.session.ends_with_close() && stream.may_be_cut() => Poll::Ready(
                Err(cut("the end of TLS without close_notify, which may have cut the response")),
            ),
            Ok((0, _)) if call.session.ends_with_close() => {
                // A closed connection does not go to the pool.
                self.transfer = None;
                Poll::Ready(Ok(()))
            }
            Ok((0, _)) => Poll::Ready(Err(match connection.ending() {
                Some(ending) => ending.behind_head(),
                None => cut(connection.why_died().unwrap_or("end of the connection".to_owned())),
            })),
            Ok((count, bytes)) => {
                call.moved();
                call.owe_ack();
                self.turn_bytes += count;
                self.input = bytes;
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(cut(error.to_string()))),
        }
    }

    /// Yields to other connections when this transfer never has to wait.
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

/// Joins pieces that arrived together: a backend may send its response byte by byte, and each piece
/// by itself costs a chunk, a frame and a turn.
#[derive(Default)]
struct Joined {
    /// The only piece, as it was read.
    whole: Bytes,
    /// Several pieces.
    copied: Vec<u8>,
}

impl Joined {
    fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        if self.is_empty() {
            self.whole = piece;
            return;
        }
        if self.copied.is_empty() {
            self.copied.extend_from_slice(&self.whole);
            self.whole = Bytes::new();
        }
        self.copied.extend_from_slice(&piece);
    }

    fn len(&self) -> usize {
        self.whole.len() + self.copied.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if further pieces are not worth a copy.
    fn is_enough(&self) -> bool {
        self.whole.len() >= SMALL_BYTES || self.copied.len() >= JOINED_BYTES_MAX
    }

    fn take(self) -> Bytes {
        if self.copied.is_empty() { self.whole } else { self.copied.into() }
    }
}

enum BodyStep {
    Piece(Bytes),
    End,
}

fn cut(message: impl Into<std::borrow::Cow<'static, str>>) -> FaultReport {
    FaultReport::new(Fault::BackendCut, message)
}

/// Returns the fault of a response after its request body ended early.
fn of_body(cause: BodyFault) -> FaultReport {
    let message = match cause {
        BodyFault::Malformed(message) => message,
        _ => Fault::of_body(cause).verdict().message,
    };
    FaultReport::new(Fault::of_body(cause), message)
}

impl Ahead for UpstreamBody {
    const WAITER: &'static str = "a backend";

    fn takes_request(&self) -> bool {
        self.transfer.as_ref().is_some_and(|transfer| {
            !transfer.upload.is_received()
                && transfer.call.takes_body()
                && self.body_fault.is_none()
        })
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FaultReport>>> {
        ready!(self.poll_turn(cx));
        loop {
            match self.next_of_input() {
                Ok(Some(BodyStep::Piece(piece))) => return Poll::Ready(Some(Ok(piece))),
                Ok(Some(BodyStep::End)) => return Poll::Ready(None),
                Ok(None) => {}
                Err(mut report) => {
                    if let Some(transfer) = &self.transfer {
                        let connection = &transfer.connection;
                        self.local.keep_bad_body(connection, &self.input, &report.detail);
                    }
                    report.fault = Fault::BackendCut;
                    return Poll::Ready(Some(Err(self.broke(report))));
                }
            }
            if let Err(report) = ready!(self.poll_more(cx)) {
                return Poll::Ready(Some(Err(self.broke(report))));
            }
        }
    }
}

impl BodyStream for UpstreamBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        self.poll_piece(cx).map(|next| next.map(|piece| piece.map(Chunk::Memory)))
    }

    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(BodyTransfer { call, connection, upload }) = &mut self.transfer {
            let pushed = call.push(&connection.stream, upload, &self.client, cx);
            if let Err(fault) = pushed {
                self.body_fault.get_or_insert(fault);
                call.moved();
            }
        }
        self.takes_request()
    }

    fn known_length(&self) -> Option<u64> {
        self.length
    }

    fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_deref()
    }
}
