//! Sends a response on its stream.
//!
//! The head, and as much content as the windows take, go to the machine at once and leave in one
//! write with those of other streams. The remainder waits for window, piece by piece: nothing is
//! read from a file or a backend before there is room.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lighty_buf::{Chunk, FileRange};
use lighty_core::exchange::span::Span;
use lighty_core::exchange::stage::Stage;
use lighty_core::log::trace;
use lighty_core::pipeline::error_page;
use lighty_core::{Body, BodyStream, Exchange, Fault};
use lighty_http::{Known, Status};
use lighty_io::send::{LOAD_BYTES_MAX, ResponseLoading, TURN_PIECES_MAX};
use lighty_wire::http1::response as encode;
use lighty_wire::http2::{ErrorCode, SendFault};

use super::exchange::H2Io;
use super::shared::StreamRef;
use crate::conn::content_length;
use crate::conn::meanwhile::meanwhile;
use crate::conn::sink::Remainder;
use crate::conn::stream::RequestStream;
use crate::conn::throttle::{Throttle, is_throttled};

impl H2Io {
    /// Sends the head, and the part of the body that needs no waiting.
    #[inline]
    pub(in crate::conn) fn try_send(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
    ) -> io::Result<Remainder> {
        let at = self.at.clone().ok_or(io::ErrorKind::NotConnected)?;
        if ex.request.upgrade
            && let Some(remainder) = self.answer_connect(on, ex, &at)?
        {
            return Ok(remainder);
        }
        let throttled = is_throttled(ex);
        if !self.send_head(on, ex, &at)? {
            return Ok(Remainder::Nothing);
        }
        let small = match &ex.response.body {
            Body::Memory(bytes) => Some(bytes),
            Body::Cached(entry) => entry.small(),
            _ => None,
        };
        if let Some(bytes) = small.filter(|_| !throttled) {
            let mut shared = at.shared.borrow_mut();
            if bytes.len() <= shared.room(at.key) {
                shared.push(at.key, bytes.clone(), true)?;
                ex.state.bytes_sent += bytes.len() as u64;
                return Ok(Remainder::Nothing);
            }
        }
        if let Some(source) = self.enqueue(ex) {
            return Ok(Remainder::Stream(source));
        }
        if throttled {
            return Ok(Remainder::Throttled);
        }
        let is_sent = self.send_now(on, ex, &at)?;
        Ok(if is_sent { Remainder::Nothing } else { Remainder::Queue })
    }

    /// Sends the remainder that [`H2Io::try_send`] left.
    pub(in crate::conn) async fn send_remainder(
        &mut self,
        remainder: Remainder,
        on: RequestStream<'_>,
        ex: &mut Exchange,
    ) -> io::Result<()> {
        let at = self.at.clone().ok_or(io::ErrorKind::NotConnected)?;
        let sent = match remainder {
            Remainder::Nothing => Ok(()),
            Remainder::Queue | Remainder::Throttled => {
                let input = Rc::clone(&self.input);
                let sending = pin!(self.send_whole(on, ex, &at));
                meanwhile(None, |_| input.borrow().discard(), sending).await
            }
            // Boxed, so that a stream that only waits for window reserves no memory for these
            // futures.
            Remainder::Stream(source) => Box::pin(self.send_stream(on, ex, &at, source)).await,
            Remainder::Tunnel(tunnel) => Box::pin(self.hand_over(on, ex, &at, tunnel)).await,
        };
        if sent.is_err() {
            forget_unsent(ex, &at);
        }
        sent
    }

    /// Sends the queue, which is the whole body, while the client's windows have room. Returns
    /// false when they have none.
    pub(super) async fn send_while_room(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        at: &StreamRef,
        loading: &mut ResponseLoading,
    ) -> io::Result<bool> {
        let input = Rc::clone(&self.input);
        let sent = {
            let sending = pin!(async {
                let is_sent = self.send_queue(on, ex, at, loading, Ends::BodyOrWindow).await?;
                if is_sent {
                    drained(on, at).await?;
                }
                Ok(is_sent)
            });
            meanwhile(None, |_| input.borrow().discard(), sending).await
        };
        if sent.is_err() {
            forget_unsent(ex, at);
        }
        sent
    }

    /// Frames the response and sends its head. Returns false if nothing follows it.
    fn send_head(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        at: &StreamRef,
    ) -> io::Result<bool> {
        // First the response, then the error page if the response cannot be sent.
        for _ in 0..2 {
            let has_content = self.frame(on, ex);
            let mut shared = at.shared.borrow_mut();
            let (status, fields) = (ex.response.status, &ex.response.fields);
            let fault = match shared.send_head(at.key, status, fields, !has_content) {
                Ok(bytes) => {
                    if let Some(value) = fields.get(Known::Priority) {
                        shared.machine.merge_priority(at.key, value);
                    }
                    ex.state.keeps_connection = !shared.machine.is_shutting_down();
                    (ex.state.head_sent, ex.state.bytes_sent) = (bytes as u32, bytes);
                    self.has_begun = true;
                    drop(shared);
                    trace_head(ex);
                    return Ok(has_content);
                }
                Err(SendFault::Gone) => return Err(io::ErrorKind::ConnectionReset.into()),
                Err(fault) => fault,
            };
            drop(shared);
            fail_head(ex, fault);
        }
        self.send_bare_head(ex, at)
    }

    /// Last resort when a field common to all responses cannot be sent.
    fn send_bare_head(&mut self, ex: &mut Exchange, at: &StreamRef) -> io::Result<bool> {
        ex.response.restart(Status::INTERNAL_SERVER_ERROR);
        let (status, fields) = (ex.response.status, &ex.response.fields);
        let sent = at.shared.borrow_mut().send_head(at.key, status, fields, true);
        let bytes = sent.map_err(|_| io::ErrorKind::ConnectionReset)?;
        (ex.state.head_sent, ex.state.bytes_sent) = (bytes as u32, bytes);
        self.has_begun = true;
        Ok(false)
    }

    /// Sets the fields that frame the message. Returns whether it has content.
    fn frame(&mut self, on: RequestStream<'_>, ex: &mut Exchange) -> bool {
        let response = &mut ex.response;
        let length = response.body.known_length();
        let bodiless = !response.status.allows_content() || ex.request.came_as_head();
        if response.status.allows_content() {
            let announced = if bodiless { response.head_content_length.or(length) } else { length };
            content_length::set(response, announced, &mut self.digits);
        }
        if bodiless {
            response.body = Body::Empty;
        }
        push_origin(on, ex);
        !bodiless && length != Some(0)
    }

    /// Moves a body into the queue. A streamed body is returned instead.
    fn enqueue(&mut self, ex: &mut Exchange) -> Option<Box<dyn BodyStream>> {
        match std::mem::take(&mut ex.response.body) {
            Body::Empty => {}
            Body::Memory(bytes) => self.queue.push_bytes(bytes),
            Body::Cached(entry) => {
                self.queue.push_bytes(entry.small().cloned().unwrap_or_default());
            }
            Body::File { file, offset, length } => {
                self.queue.push_file(FileRange { file, offset, length });
            }
            Body::Chunks(mut chunks) => self.queue.append(&mut chunks),
            Body::Stream(source) => return Some(source),
        }
        None
    }

    /// Sends the in-memory part of the queue, which is the whole body, as far as there is room.
    /// Returns true when all is sent.
    fn send_now(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        at: &StreamRef,
    ) -> io::Result<bool> {
        let sender = &on.conn.worker().sender;
        let mut loading = ResponseLoading::default();
        for _ in 0..TURN_PIECES_MAX {
            if self.queue.is_empty() {
                return Ok(true);
            }
            let room = at.shared.borrow_mut().room(at.key);
            if room == 0 || !sender.try_load(&mut loading, &mut self.queue, room)? {
                return Ok(false);
            }
            self.push_front(ex, at, room, true)?;
        }
        Ok(self.queue.is_empty())
    }

    /// Moves up to `most` bytes from memory at the front of the queue to the machine. If `ends` is
    /// true, the body ends with the queue. Returns the number of bytes moved.
    fn push_front(
        &mut self,
        ex: &mut Exchange,
        at: &StreamRef,
        most: usize,
        ends: bool,
    ) -> io::Result<usize> {
        let Some(Chunk::Memory(bytes)) = self.queue.front() else { return Ok(0) };
        let piece: Bytes = bytes.slice(..bytes.len().min(most));
        let length = piece.len();
        self.queue.advance(length as u64);
        let is_last = ends && self.queue.is_empty();
        at.shared.borrow_mut().push(at.key, piece, is_last)?;
        ex.state.bytes_sent += length as u64;
        Ok(length)
    }

    /// Sends the queue, which is the whole body, and waits until the client has taken it.
    async fn send_whole(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        at: &StreamRef,
    ) -> io::Result<()> {
        self.send_queue(on, ex, at, &mut ResponseLoading::default(), Ends::Body).await?;
        drained(on, at).await
    }

    /// Sends the queue as fast as windows and bandwidth limits allow. Returns false if the windows
    /// are full and `ends` permits to stop there.
    async fn send_queue(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        at: &StreamRef,
        loading: &mut ResponseLoading,
        ends: Ends,
    ) -> io::Result<bool> {
        let (clock, sender) = (&on.conn.worker().machine.clock, &on.conn.worker().sender);
        let throttle = is_throttled(ex).then(|| Throttle::of(ex, &on.conn.entry));
        let mut pieces = 0;
        while !self.queue.is_empty() {
            ex.begin_span(Span::SendQueued);
            pieces += 1;
            if pieces % TURN_PIECES_MAX == 0 {
                tokio::task::yield_now().await;
            }
            // A stream that was cut does not wait any more.
            let may_stop = ends == Ends::BodyOrWindow && on.entry.cut().is_none();
            if may_stop && at.shared.borrow_mut().lacks_window(at.key) {
                return Ok(false);
            }
            let room = room(on, at).await;
            ex.begin_span(Span::Write);
            let room = room?.min(LOAD_BYTES_MAX);
            let room = room.min(usize::try_from(self.queue.len_bytes()).unwrap_or(room));
            let granted = match &throttle {
                None => room,
                Some(throttle) => match throttle.take(room as u64, clock.mono_ms()) {
                    Ok(granted) => granted as usize,
                    Err(wait_ms) => {
                        // Time spent throttled does not count against the client.
                        on.entry.write(clock);
                        Box::pin(tokio::time::sleep(Duration::from_millis(wait_ms))).await;
                        clock.refresh();
                        continue;
                    }
                },
            };
            if !sender.try_load(loading, &mut self.queue, granted)? {
                ex.begin_span(Span::FileRead);
                let loaded = Box::pin(sender.load(loading, &mut self.queue, granted)).await;
                clock.refresh();
                ex.begin_span(Span::Write);
                loaded?;
            }
            let pushed = self.push_front(ex, at, granted, ends != Ends::Piece)?;
            if let Some(throttle) = &throttle {
                throttle.give_back((granted - pushed) as u64);
            }
        }
        Ok(true)
    }

    /// Streams a body one piece at a time.
    async fn send_stream(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        at: &StreamRef,
        mut source: Box<dyn BodyStream>,
    ) -> io::Result<()> {
        let input = Rc::clone(&self.input);
        let discard = |_: &mut std::task::Context<'_>| input.borrow().discard();
        let (mut produced, announced) = (0, source.known_length());
        let mut loading = ResponseLoading::default();
        loop {
            let waiting = pin!(async { room(on, at).await.map(|_| ()) });
            ex.begin_span(Span::SendQueued);
            meanwhile(Some(&mut *source), discard, waiting).await?;
            ex.begin_span(Span::Body);
            let next = on.next_piece(&mut *source).await;
            ex.begin_span(Span::Write);
            let chunk = match next {
                None => break,
                Some(Ok(chunk)) => chunk,
                Some(Err(report)) => {
                    self.passed_on = match report.fault {
                        Fault::BackendStopped => Some(ErrorCode::CANCEL),
                        Fault::BackendCalmCut => Some(ErrorCode::ENHANCE_YOUR_CALM),
                        _ => None,
                    };
                    return Err(io::Error::other(report));
                }
            };
            produced += chunk.len();
            self.queue.push(chunk);
            let sending = pin!(self.send_queue(on, ex, at, &mut loading, Ends::Piece));
            meanwhile(Some(&mut *source), discard, sending).await?;
        }
        ex.enter(Stage::BodyBack);
        if announced.is_some_and(|length| length != produced) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.end_stream(on, ex, at, &*source).await
    }

    /// Ends a streamed body, with trailers if the client accepts them.
    async fn end_stream(
        &mut self,
        on: RequestStream<'_>,
        ex: &Exchange,
        at: &StreamRef,
        source: &dyn BodyStream,
    ) -> io::Result<()> {
        let accepts_trailers = ex.request.fields.list_contains(Known::Te, "trailers");
        match source.trailers().filter(|_| accepts_trailers) {
            Some(trailers) => {
                drained(on, at).await?;
                at.shared.borrow_mut().send_trailers(at.key, trailers)
            }
            None => {
                at.shared.borrow_mut().push(at.key, Bytes::new(), true)?;
                drained(on, at).await
            }
        }
    }
}

/// Meaning of the end of a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// The end of a piece of the body.
    Piece,
    /// The end of the body.
    Body,
    /// The end of the body, or of the client's windows.
    BodyOrWindow,
}

/// Subtracts content that the machine has and will not send from the byte count.
pub(super) fn forget_unsent(ex: &mut Exchange, at: &StreamRef) {
    let unsent = at.shared.borrow_mut().never_sent(at.key) as u64;
    ex.state.bytes_sent = ex.state.bytes_sent.saturating_sub(unsent);
}

/// Replaces a response that cannot be sent because of its head.
#[cold]
pub(super) fn fail_head(ex: &mut Exchange, fault: SendFault) {
    // Configured values were validated at load, so the bad text comes from the request.
    let blame = match fault {
        SendFault::Value => Fault::HeadSplit,
        _ => Fault::Internal,
    };
    ex.fail_saying(blame, &fault.to_string());
    let id = ex.id();
    error_page::fill(&mut ex.response, id);
}

/// Adds the `Server` and `Date` fields.
#[inline]
pub(super) fn push_origin(on: RequestStream<'_>, ex: &mut Exchange) {
    let fields = &mut ex.response.fields;
    if !ex.settings.core.tag.is_empty() && !fields.contains(Known::Server) {
        fields.push_known(Known::Server, ex.settings.core.tag.as_bytes());
    }
    if !fields.contains(Known::Date) {
        fields.push_known(Known::Date, on.conn.worker().date());
    }
}

/// Logs the head in HTTP/1 notation, if that is enabled.
#[inline]
pub(super) fn trace_head(ex: &Exchange) {
    if ex.settings.core.log_response_header {
        let mut head = format!("HTTP/2.0 {}\r\n", ex.response.status.code()).into_bytes();
        // The head was sent, so its fields are valid.
        let _ = encode::push_fields(&ex.response.fields, &mut head);
        trace::response_head(ex, &head);
    }
}

/// Waits until the stream has room for content. Fails if the sweep has cut it.
async fn room(on: RequestStream<'_>, at: &StreamRef) -> io::Result<usize> {
    std::future::poll_fn(|cx| {
        let room = at.shared.borrow_mut().poll_room(at.key, cx);
        if room.is_pending() && on.entry.cut().is_some() {
            return std::task::Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        room
    })
    .await
}

/// Waits until all content of the stream is in flight.
pub(super) async fn drained(on: RequestStream<'_>, at: &StreamRef) -> io::Result<()> {
    std::future::poll_fn(|cx| {
        let drained = at.shared.borrow_mut().poll_drained(at.key, cx);
        if drained.is_pending() && on.entry.cut().is_some() {
            return std::task::Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        drained
    })
    .await
}
