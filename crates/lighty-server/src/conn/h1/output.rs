//! Sends a response.
//!
//! The head and a small body leave in one `send`; a file goes straight to the network backend. Only
//! the part that the socket did not accept takes the slow path, which is boxed.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lighty_buf::{Chunk, FileRange};
use lighty_core::exchange::span::Span;
use lighty_core::exchange::stage::Stage;
use lighty_core::machine::status_board::ConnState;
use lighty_core::{Body, BodyStream, Client, Exchange, Tunnel};
use lighty_io::send::{SendState, SendWaits};

use super::exchange::{Framing, H1Io};
use super::framing::last_chunk;
use super::meanwhile::meanwhile;
use crate::conn::sink::Remainder;
use crate::conn::stream::RequestStream;
use crate::conn::throttle::{Throttle, is_throttled};
use crate::conn::tunnel::run_through_reloads;

/// Bodies up to this size are copied after the head and sent with it in one call.
const INLINE_BODY_BYTES_MAX: usize = 32 * 1024;

/// No bandwidth limit.
const UNLIMITED: u64 = u64::MAX;

impl H1Io {
    /// Frames the response and sends as much as possible without waiting. On error the caller must
    /// cut the connection.
    #[inline]
    pub(in crate::conn) fn try_send(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
    ) -> io::Result<Remainder> {
        debug_assert!(self.queue.is_empty(), "{} bytes of a response", self.queue.len_bytes());
        self.keeps_open &=
            ex.state.keeps_connection && !on.conn.entry.is_closing() && !self.has_too_much_unread();
        self.encode_head(on.conn, ex);
        let mut input = self.input.borrow_mut();
        input.begin_response();
        if input.has_unsent() {
            input.prepend_unsent(&mut self.out);
        }
        drop(input);
        ex.state.keeps_connection = self.keeps_open;
        if let Some(tunnel) = ex.response.tunnel.take() {
            return Ok(Remainder::Tunnel(tunnel));
        }
        if self.framing == Framing::None {
            ex.response.body = Body::Empty;
        }
        let throttled = is_throttled(ex);
        let inline_max = if throttled { 0 } else { INLINE_BODY_BYTES_MAX };
        if !self.append_small(ex, inline_max)
            && let Some(source) = self.enqueue(ex)
        {
            return Ok(Remainder::Stream(source));
        }
        if !throttled && self.send_first(on, ex)? && self.send_now(on, ex)? {
            return Ok(Remainder::Nothing);
        }
        Ok(if throttled { Remainder::Throttled } else { Remainder::Queue })
    }

    /// Sends the remainder that [`H1Io::try_send`] left.
    pub(in crate::conn) async fn send_remainder(
        &mut self,
        remainder: Remainder,
        on: RequestStream<'_>,
        ex: &mut Exchange,
    ) -> io::Result<()> {
        let input = Rc::clone(&self.input);
        match remainder {
            Remainder::Nothing => Ok(()),
            Remainder::Queue => meanwhile(None, input, pin!(self.send_queue(on, ex))).await,
            Remainder::Throttled => meanwhile(None, input, pin!(self.send_throttled(on, ex))).await,
            Remainder::Tunnel(tunnel) => self.hand_over(on, ex, tunnel).await,
            Remainder::Stream(source) => {
                let sent = self.send_stream(on, ex, source).await;
                if sent.is_err() && self.framing == Framing::Close {
                    self.input.borrow_mut().cancel();
                }
                sent
            }
        }
    }

    /// True if part of the request's body has not been read yet.
    #[inline]
    pub(super) fn is_body_unread(&self) -> bool {
        self.input.borrow().is_body_unread()
    }

    /// True if the unread rest of the request's body is known to be too long to drain.
    #[inline]
    fn has_too_much_unread(&self) -> bool {
        let input = self.input.borrow();
        input.is_body_unread() && (input.owes_continue() || !input.may_be_dropped())
    }

    /// Takes the number of bytes received for this request.
    #[inline]
    pub(in crate::conn) fn take_received(&mut self) -> u64 {
        std::mem::take(&mut self.input.borrow_mut().received)
    }

    /// Appends an in-memory body of up to `bytes_max` bytes to the head. Returns `false` if the
    /// body must be queued or streamed instead.
    fn append_small(&mut self, ex: &Exchange, bytes_max: usize) -> bool {
        let bytes = match &ex.response.body {
            Body::Empty => return true,
            Body::Memory(bytes) => Some(bytes),
            Body::Cached(entry) => entry.small(),
            _ => None,
        };
        match bytes.filter(|bytes| bytes.len() <= bytes_max) {
            Some(bytes) => {
                self.out.extend_from_slice(bytes);
                true
            }
            None => false,
        }
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

    /// Sends a 101 and hands the connection to the tunnel, after which it closes.
    async fn hand_over(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        tunnel: Box<dyn Tunnel>,
    ) -> io::Result<()> {
        self.keeps_open = false;
        ex.state.keeps_connection = false;
        if !self.send_out(on, ex)? {
            self.send_queue(on, ex).await?;
        }
        on.wait_for(ConnState::Handler);
        ex.begin_span(Span::Tunnel);
        let early = self.input.borrow_mut().take_pending();
        let route = tunnel.route();
        let mut running = tunnel.run(Rc::clone(&on.conn.stream) as _, early);
        if let Some(ended) = run_through_reloads(on.conn.worker(), ex, &mut running, route).await {
            ex.state.bytes_sent += ended?.sent_bytes;
        }
        Ok(())
    }

    /// Writes the head, together with the first piece of a body in memory. Returns `false` on a
    /// partial write of the head and puts the remainder at the front of the queue.
    #[inline(always)]
    fn send_first(&mut self, on: RequestStream<'_>, ex: &mut Exchange) -> io::Result<bool> {
        let Some(Chunk::Memory(body)) = self.queue.front() else { return self.send_out(on, ex) };
        let sender = &on.conn.worker().sender;
        let sent = sender.try_send_joined(&on.conn.stream, &self.out, body)?;
        ex.state.bytes_sent += sent;
        match sent.checked_sub(self.out.len() as u64) {
            Some(of_body) => {
                self.queue.advance(of_body);
                Ok(true)
            }
            None => {
                // The socket is full within the head.
                let unsent = Bytes::copy_from_slice(&self.out[sent as usize..]);
                self.queue.push_front(Chunk::Memory(unsent));
                Ok(false)
            }
        }
    }

    /// Writes the head. Returns `false` on a partial write and puts the remainder at the front of
    /// the queue.
    #[inline(always)]
    fn send_out(&mut self, on: RequestStream<'_>, ex: &mut Exchange) -> io::Result<bool> {
        let sent = match on.conn.stream.try_write(&self.out) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        ex.state.bytes_sent += sent as u64;
        if sent == self.out.len() {
            return Ok(true);
        }
        let unsent = Bytes::copy_from_slice(&self.out[sent..]);
        self.queue.push_front(Chunk::Memory(unsent));
        Ok(false)
    }

    /// Sends as much as possible without blocking. Returns `true` when nothing is left.
    fn send_now(&mut self, on: RequestStream<'_>, ex: &mut Exchange) -> io::Result<bool> {
        if self.queue.is_empty() {
            return Ok(true);
        }
        let sent = on.conn.worker().sender.try_send(&on.conn.stream, &mut self.queue, UNLIMITED)?;
        ex.state.bytes_sent += sent.bytes;
        Ok(sent.state == SendState::Done)
    }

    async fn send_queue(&mut self, on: RequestStream<'_>, ex: &mut Exchange) -> io::Result<()> {
        let received = self.input.borrow().received;
        let progress = &on.entry.progress;
        let sender = &on.conn.worker().sender;
        let mut waits = SendWaits::default();
        let stream = &on.conn.stream;
        let sending = sender.send_timed(stream, &mut self.queue, UNLIMITED, progress, &mut waits);
        let result = sending.await;
        note_waits(waits, ex);
        ex.state.bytes_sent += result.as_ref().map_or_else(
            // `progress` also counts bytes received in the meantime.
            |_| progress.get().saturating_sub(self.input.borrow().received - received),
            |sent| *sent,
        );
        result.map(|_| ())
    }

    /// Sends as fast as the bandwidth limits allow.
    async fn send_throttled(&mut self, on: RequestStream<'_>, ex: &mut Exchange) -> io::Result<()> {
        let worker = on.conn.worker();
        let (clock, sender) = (&worker.machine.clock, &worker.sender);
        let throttle = Throttle::of(ex, &on.conn.entry);
        if !self.send_out(on, ex)? {
            on.conn.stream.writable().await?;
        }
        while !self.queue.is_empty() {
            // Time spent throttled does not count against the client.
            on.entry.write(clock);
            match throttle.take(self.queue.len_bytes(), clock.mono_ms()) {
                Err(wait_ms) => {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    clock.refresh();
                }
                Ok(budget) => {
                    let (stream, progress) = (&on.conn.stream, &on.entry.progress);
                    let mut waits = SendWaits::default();
                    let sending =
                        sender.send_timed(stream, &mut self.queue, budget, progress, &mut waits);
                    let sent = sending.await;
                    note_waits(waits, ex);
                    let sent = sent?;
                    ex.state.bytes_sent += sent;
                    throttle.give_back(budget - sent.min(budget));
                }
            }
        }
        Ok(())
    }

    /// Streams a body one piece at a time.
    async fn send_stream(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        mut source: Box<dyn BodyStream>,
    ) -> io::Result<()> {
        let throttled = is_throttled(ex);
        let input = Rc::clone(&self.input);
        if !self.send_out(on, ex)? {
            let sending = pin!(self.send_queue(on, ex));
            meanwhile(Some(&mut *source), Rc::clone(&input), sending).await?;
        }
        let mut produced = 0u64;
        let announced = source.known_length();
        loop {
            ex.begin_span(Span::Body);
            let next = on.next_piece(&mut *source).await;
            ex.begin_span(Span::Write);
            let chunk = match next {
                None => {
                    ex.enter(Stage::BodyBack);
                    break;
                }
                Some(Ok(chunk)) => chunk,
                Some(Err(report)) => return Err(io::Error::other(report)),
            };
            produced += self.push_framed(chunk);
            self.out.clear();
            if throttled {
                let mut sending = Box::pin(self.send_throttled(on, ex));
                meanwhile(Some(&mut *source), Rc::clone(&input), sending.as_mut()).await?;
            } else if !self.send_now(on, ex)? {
                let sending = pin!(self.send_queue(on, ex));
                meanwhile(Some(&mut *source), Rc::clone(&input), sending).await?;
            }
        }
        if announced.is_some_and(|length| length != produced) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.framing == Framing::Chunked {
            self.queue.push_bytes(last_chunk(ex, &*source));
            if !self.send_now(on, ex)? {
                self.send_queue(on, ex).await?;
            }
        }
        Ok(())
    }
}

/// Moves time spent waiting for threads, disk and client out of `Span::Write`.
fn note_waits(waits: SendWaits, ex: &mut Exchange) {
    let now_us = ex.machine.clock.mono_us();
    for (span, took_us) in [
        (Span::FileQueued, waits.thread_us),
        (Span::FileRead, waits.disk_us),
        (Span::SendQueued, waits.client_us),
    ] {
        if took_us > 0 {
            ex.stages.divert(span, took_us, now_us);
        }
    }
}
