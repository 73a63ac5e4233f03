//! A response with a queued body, while the client has no window for it.
//!
//! A client can leave a hundred streams of each connection without a window, at the cost of one
//! frame each. So the state of such a stream is packed into a small block until its window opens.
//! The stream has no other future meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use lighty_core::exchange::span::Span;
use lighty_core::exchange::stage::Stage;
use lighty_io::send::ResponseLoading;
use lighty_io::threads::panics;

use super::exchange::{AwayH2, H2Exchange};
use super::shared::StreamRef;
use super::{Step, done, recover};
use crate::conn::sink::Protocol as _;
use crate::conn::stream::RequestStream;
use crate::conn::{Conn, driver};
use crate::worker::Worker;

/// Sends the queue of a stream.
pub(super) struct Waiting<'c> {
    conn: &'c Conn,
    state: WaitingState<'c>,
}

enum WaitingState<'c> {
    /// There is no window; the stream's state is packed.
    Away(Box<AwayH2>),
    /// There is a window, or there was one.
    Sending(Pin<Box<dyn Future<Output = Sent> + 'c>>),
    Over,
}

/// Result of sending.
enum Sent {
    Step(Step),
    /// The windows are full.
    NoWindow(StreamRef, Box<H2Exchange>, ResponseLoading),
}

impl<'c> Waiting<'c> {
    /// Creates the task of a stream after the head of its response was sent.
    pub(super) fn new(conn: &'c Conn, at: StreamRef, mut h2: Box<H2Exchange>) -> Self {
        let H2Exchange { exchange, entry, .. } = &mut *h2;
        RequestStream { conn, entry }.enter(Stage::FirstByteOut, &mut exchange.stages);
        exchange.begin_span(Span::SendQueued);
        let loading = ResponseLoading::default();
        let lacks_window = at.shared.borrow_mut().lacks_window(at.key);
        let state = match lacks_window {
            true => WaitingState::Away(put_away(conn.worker(), at, h2, loading)),
            false => WaitingState::Sending(Box::pin(send(conn, at, h2, loading))),
        };
        Self { conn, state }
    }
}

impl Future for Waiting<'_> {
    type Output = Step;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Step> {
        let worker = self.conn.worker();
        loop {
            self.state = match std::mem::replace(&mut self.state, WaitingState::Over) {
                WaitingState::Away(away) if !away.may_go_on(cx) => {
                    self.state = WaitingState::Away(away);
                    return Poll::Pending;
                }
                WaitingState::Away(away) => {
                    let mut h2 = worker.acquire_h2();
                    let (at, loading) = h2.take_back(*away);
                    WaitingState::Sending(Box::pin(send(self.conn, at, h2, loading)))
                }
                WaitingState::Sending(mut sending) => match sending.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.state = WaitingState::Sending(sending);
                        return Poll::Pending;
                    }
                    Poll::Ready(Sent::Step(step)) => return Poll::Ready(step),
                    Poll::Ready(Sent::NoWindow(at, h2, loading)) => {
                        WaitingState::Away(put_away(worker, at, h2, loading))
                    }
                },
                WaitingState::Over => return Poll::Pending,
            };
        }
    }
}

impl AwayH2 {
    /// Returns true if there is a window, or waiting for one is over. Drops bytes that the client
    /// sends meanwhile.
    fn may_go_on(&self, cx: &mut Context<'_>) -> bool {
        let room = self.at.shared.borrow_mut().poll_room(self.at.key, cx);
        let may = room.is_ready() || self.entry.cut().is_some();
        if !may {
            self.input.borrow().discard();
        }
        may
    }
}

/// Packs the stream's state. Another stream may use the exchange meanwhile.
fn put_away(
    worker: &Worker,
    at: StreamRef,
    mut h2: Box<H2Exchange>,
    loading: ResponseLoading,
) -> Box<AwayH2> {
    let away = Box::new(h2.put_away(at, loading, worker.machine.clock.clone()));
    worker.give_back_h2(h2);
    away
}

async fn send(
    conn: &Conn,
    at: StreamRef,
    mut h2: Box<H2Exchange>,
    mut loading: ResponseLoading,
) -> Sent {
    let sent = {
        let H2Exchange { exchange, io, entry } = &mut *h2;
        let on = RequestStream { conn, entry };
        panics::catch(async {
            match io.send_while_room(on, exchange, &at, &mut loading).await {
                Ok(false) => None,
                sent => Some(driver::end_remainder(on, exchange, &mut io.sink(), sent.map(|_| ()))),
            }
        })
        .await
    };
    Sent::Step(match sent {
        Ok(None) => return Sent::NoWindow(at, h2, loading),
        Ok(Some(is_whole)) => done(at, h2, is_whole),
        Err(panicked) => Box::pin(recover(conn, at, h2, panicked)).await,
    })
}
