//! HTTP/1: the loop over a connection's requests, and their framing.
//!
//! `exchange` has the buffers, `input` reads heads and bodies, `framing` decides how a response is
//! delimited, `output` sends it, `meanwhile` reads the request body while a response is being sent,
//! `refuse` rejects heads that never became a request. Nothing outside this folder knows about
//! chunks or
//! about the fields that govern a connection.

mod exchange;
mod framing;
mod head;
mod input;
mod meanwhile;
mod output;
mod refuse;

use std::rc::Rc;

use lighty_core::RequestBody;
use lighty_core::settings::limits;
use lighty_io::threads::panics::{self, Panicked};
use lighty_io::transport::Idle;

pub(crate) use self::exchange::{H1Exchange, H1Io};
use self::head::Read;
pub(crate) use self::input::InputMemory;
pub(super) use self::refuse::refuse_clear_text;
use super::driver::{self, Driven};
use super::sink::Sink;
use super::stream::RequestStream;
use super::{After, Conn, End};

/// A connection with pending bytes, and the buffers that serve it.
struct H1Conn<'c> {
    conn: &'c Conn,
    h1: Box<H1Exchange>,
}

/// Serves a connection's requests until it ends.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn keeps its arguments twice in its future, and idle connections keep that"
)]
pub(super) fn serve(conn: &mut Conn) -> impl Future<Output = End> {
    async move {
        loop {
            // Bytes that followed a PROXY header have arrived already.
            if !conn.has_early() && !conn.wait_for_bytes().await {
                return End::Close;
            }
            let mut serving = H1Conn::acquire(conn);
            match panics::catch(serving.serve_pipelined()).await {
                Ok(after) => {
                    serving.release();
                    match after {
                        // During a stop, requests that have already arrived are still answered.
                        After::Idle => {}
                        After::End(end) => return end,
                    }
                }
                Err(panicked) => {
                    Box::pin(serving.recover(panicked)).await;
                    return End::Cut;
                }
            }
        }
    }
}

impl<'c> H1Conn<'c> {
    /// Takes buffers for a connection that has become readable.
    #[inline(always)]
    fn acquire(conn: &'c mut Conn) -> Self {
        let h1 = conn.worker().acquire();
        h1.io.input.borrow_mut().attach(&conn.stream, &conn.entry);
        if let Some(early) = conn.early.take() {
            h1.io.input.borrow_mut().take_early(&early);
        }
        Self { conn, h1 }
    }

    /// Returns the buffers, for other connections.
    #[inline(always)]
    fn release(self) {
        self.h1.io.input.borrow_mut().detach();
        self.conn.worker().give_back(self.h1);
    }

    /// Returns the connection's only stream.
    fn on(&self) -> RequestStream<'c> {
        RequestStream { conn: self.conn, entry: &self.conn.entry.stream }
    }

    /// Serves requests until none is pending.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps its arguments twice in its future, and idle connections keep \
                  that"
    )]
    fn serve_pipelined(&mut self) -> impl Future<Output = After> {
        async move {
            let mut in_a_row = 0;
            loop {
                self.h1.io.head.begin();
                self.h1.exchange.pin(&self.conn.worker().generation());
                self.conn.begin_stages(&mut self.h1.exchange.stages);
                match std::future::poll_fn(|cx| self.poll_head(cx)).await {
                    Read::Request => {}
                    Read::Nothing => return After::Idle,
                    Read::Gone => return After::End(End::Close),
                    Read::Http2 => return After::End(End::Http2),
                    Read::Refused(fault) => return Box::pin(self.refuse(fault)).await,
                    Read::TimedOut => return Box::pin(self.time_out()).await,
                }
                in_a_row += 1;
                let (on, h1) = (self.on(), &mut *self.h1);
                let is_whole = match driver::try_drive(on, &mut h1.exchange, &mut h1.io) {
                    Driven::Finished { is_whole } => is_whole,
                    driven => {
                        h1.io.input.borrow_mut().spare_memory();
                        driver::drive_on(driven, on, &mut h1.exchange, &mut h1.io).await
                    }
                };
                let mut after = self.after(is_whole);
                if is_whole && self.h1.io.is_body_unread() {
                    after = Box::pin(self.drain()).await;
                }
                if after != After::Idle || self.h1.io.input.borrow().pending().is_empty() {
                    return after;
                }
                if in_a_row >= limits::PIPELINE_BURST_MAX {
                    in_a_row = 0;
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Returns the next step after a response, once its request has been read to the end.
    fn after(&self, is_whole: bool) -> After {
        match is_whole {
            true if self.h1.io.keeps_open => After::Idle,
            true if self.may_send_more() => After::End(End::Linger),
            true => After::End(End::Close),
            false => After::End(End::Cut),
        }
    }

    /// Returns true if the client may have sent more after its last served request. Closing with
    /// unread bytes would reset the connection and could destroy the response (RFC 9112 section
    /// 9.6).
    fn may_send_more(&self) -> bool {
        let io = &self.h1.io;
        let means_to = io.head.keep_alive && !self.conn.entry.is_closing();
        means_to
            || !io.input.borrow().pending().is_empty()
            || self.conn.stream.probe() == Idle::Unsolicited
    }

    /// Drains the rest of a body, so that the connection can be reused. It cannot if the body is
    /// too long, malformed or incomplete.
    async fn drain(&mut self) -> After {
        const END: After = After::End(End::Linger);
        if !self.h1.io.keeps_open {
            return END;
        }
        let mut rest = RequestBody::incoming(Rc::clone(&self.h1.io.input) as _, None);
        while let Some(piece) = rest.next().await {
            if piece.is_err() || rest.received() > limits::DRAIN_BYTES_MAX {
                return END;
            }
        }
        After::Idle
    }

    /// Recovers from a panic in a request: sends 500 and closes, or resets the connection if a
    /// response had begun. The exchange may be in any state, so it is not reused.
    #[cold]
    async fn recover(mut self, panicked: Panicked) {
        let on = self.on();
        let H1Exchange { exchange, io } = &mut *self.h1;
        let has_begun = exchange.state.bytes_sent > 0 || on.entry.is_writing();
        let recovering = panics::catch(async {
            io.queue.clear();
            exchange.response.tunnel = None;
            if has_begun {
                driver::abandon(on, exchange, Sink::H1(io), &panicked.0);
            } else {
                driver::fail(on, exchange, io, &panicked.0).await;
            }
        });
        if recovering.await.is_err() {
            on.conn.stream.reset_on_close();
        }
        self.h1.io.input.borrow_mut().detach();
    }
}
