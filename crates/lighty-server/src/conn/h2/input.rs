//! Reads a stream's request body, and detects that the client has gone.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use lighty_core::{BodyFault, BodySource, Client, Fault};
use lighty_http::{Fields, Status};
use lighty_io::clock::Clock;
use lighty_io::transport::Peer;
use lighty_wire::http2::ErrorCode;
use tokio::time::Sleep;

use super::shared::StreamRef;
use crate::worker::conn_table::StreamEntry;

/// The receiving side of a stream.
pub(super) struct H2Input {
    clock: Clock,
    entry: Rc<StreamEntry>,
    at: Option<StreamRef>,
    body: BodyReading,
    limit_bytes: u64,
    taken_bytes: u64,
    /// Limit on the time that a handler may work for a half-closed client.
    half_closed: Option<Pin<Box<Sleep>>>,
}

// A request body (`BodyReading`):
//
//                   Read               Fail
//     ContinueOwed ------> Reading ------------> Broken
//
// A handler's first read sends `100 Continue`, so nothing fails while it is owed.

/// Progress of a handler that reads a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyReading {
    /// The client waits for `100 Continue` and may withhold its body.
    ContinueOwed,
    Reading,
    /// A fault has ended the body.
    Broken,
}

/// An event of [`BodyReading`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadingEvent {
    /// The handler asks for a piece.
    Read,
    /// The body cannot be read completely.
    Fail,
}

/// Action after an event of [`BodyReading`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadingAction {
    Nothing,
    SendContinue,
}

impl BodyReading {
    /// Handles an event. Returns the action to perform.
    fn handle(&mut self, event: ReadingEvent) -> ReadingAction {
        match self.next(event) {
            Some((next, action)) => {
                *self = next;
                action
            }
            None => {
                debug_assert!(false, "{event:?} of a body that is {self:?}");
                ReadingAction::Nothing
            }
        }
    }

    /// Returns the next state and the action; `None` if this one does not permit the event.
    const fn next(self, event: ReadingEvent) -> Option<(Self, ReadingAction)> {
        use {ReadingAction as A, ReadingEvent as E};
        Some(match (self, event) {
            (Self::ContinueOwed, E::Read) => (Self::Reading, A::SendContinue),
            (Self::Reading, E::Read) => (Self::Reading, A::Nothing),
            (Self::Reading, E::Fail) => (Self::Broken, A::Nothing),
            (Self::ContinueOwed, E::Fail) | (Self::Broken, E::Read | E::Fail) => return None,
        })
    }
}

impl H2Input {
    pub(super) fn new(clock: Clock, entry: Rc<StreamEntry>) -> Self {
        Self {
            clock,
            entry,
            at: None,
            body: BodyReading::Reading,
            limit_bytes: 0,
            taken_bytes: 0,
            half_closed: None,
        }
    }

    pub(super) fn attach(&mut self, at: &StreamRef) {
        self.at = Some(at.clone());
        self.body = BodyReading::Reading;
        self.half_closed = None;
    }

    pub(super) fn detach(&mut self) {
        self.at = None;
    }

    /// Prepares to read a body, of which `limit_bytes` are accepted (0: no limit).
    pub(super) fn begin_body(&mut self, continue_owed: bool, limit_bytes: u64) {
        debug_assert_ne!(self.body, BodyReading::Broken, "a body begins once");
        self.body = if continue_owed { BodyReading::ContinueOwed } else { BodyReading::Reading };
        self.limit_bytes = limit_bytes;
        self.taken_bytes = 0;
    }

    /// Drops the unread body. A client that waits for `100 Continue` may send nothing.
    pub(super) fn discard(&self) {
        if self.body != BodyReading::ContinueOwed
            && let Some(at) = &self.at
        {
            at.shared.borrow_mut().discard(at.key);
        }
    }

    /// Sends `100 Continue` when a handler first reads the body, unless part of it has already
    /// arrived (RFC 9110 section 10.1.1).
    fn send_continue(&mut self) {
        if let Some(StreamRef { shared, key }) = &self.at
            && let Some(status) = Status::new(100)
        {
            let mut shared = shared.borrow_mut();
            if !shared.has_received(*key) {
                shared.send_interim(*key, status, &Fields::new());
            }
        }
    }

    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        let Some(StreamRef { shared, key }) = &self.at else {
            return Poll::Ready(Some(Err(BodyFault::Disconnected)));
        };
        match shared.borrow_mut().poll_received(*key, cx) {
            Poll::Ready(Ok(None)) => Poll::Ready(None),
            Poll::Ready(Ok(Some(piece))) => Poll::Ready(Some(Ok(piece))),
            Poll::Ready(Err(_)) => Poll::Ready(Some(Err(BodyFault::Disconnected))),
            Poll::Pending => match self.entry.cut() {
                Some(Fault::ReadTimeout) => Poll::Ready(Some(Err(BodyFault::ReadTimeout))),
                Some(Fault::ReadRate) => Poll::Ready(Some(Err(BodyFault::ReadRate))),
                Some(_) => Poll::Ready(Some(Err(BodyFault::Disconnected))),
                None => Poll::Pending,
            },
        }
    }

    fn account(&mut self, piece: Bytes) -> Result<Bytes, BodyFault> {
        self.entry.progress.set(self.entry.progress.get() + piece.len() as u64);
        self.taken_bytes += piece.len() as u64;
        if self.limit_bytes > 0 && self.taken_bytes > self.limit_bytes {
            return Err(BodyFault::TooLarge);
        }
        Ok(piece)
    }
}

impl BodySource for H2Input {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        if self.body == BodyReading::Broken {
            return Poll::Ready(Some(Err(BodyFault::Disconnected)));
        }
        if self.body.handle(ReadingEvent::Read) == ReadingAction::SendContinue {
            self.send_continue();
        }
        let piece = self.poll_received(cx);
        if piece.is_pending() {
            self.entry.wait_for_body(&self.clock);
            return Poll::Pending;
        }
        let piece = ready!(piece).map(|piece| piece.and_then(|piece| self.account(piece)));
        match &piece {
            None => self.pause_body_timer(),
            Some(Err(_)) => {
                self.body.handle(ReadingEvent::Fail);
            }
            Some(Ok(_)) => {}
        }
        Poll::Ready(piece)
    }

    fn take_trailers(&mut self) -> Option<Fields> {
        let StreamRef { shared, key } = self.at.as_ref()?;
        shared.borrow_mut().take_trailers(*key)
    }
}

impl Client for H2Input {
    fn interim(&mut self, status: Status, fields: &Fields) {
        if let Some(StreamRef { shared, key }) = &self.at {
            shared.borrow_mut().send_interim(*key, status, fields);
        }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        let Some(StreamRef { shared, key }) = &self.at else {
            return Poll::Ready(Fault::ClientGone);
        };
        if self.entry.cut() == Some(Fault::Killed) {
            return Poll::Ready(Fault::Killed);
        }
        let mut shared = shared.borrow_mut();
        if shared.poll_gone(*key, cx).is_ready() {
            return Poll::Ready(Fault::ClientGone);
        }
        let limit_s = u64::from(self.entry.limits().half_closed_idle_s);
        if !shared.has_input_ended() || limit_s == 0 {
            return Poll::Pending;
        }
        let sleep = || Box::pin(tokio::time::sleep(Duration::from_secs(limit_s)));
        let half_closed = self.half_closed.get_or_insert_with(sleep);
        // Several tasks may poll this one after the other, so an elapsed timer stays elapsed.
        if !half_closed.is_elapsed() {
            ready!(half_closed.as_mut().poll(cx));
        }
        Poll::Ready(Fault::HalfClosed)
    }

    fn local_ip(&self) -> Option<IpAddr> {
        match self.at.as_ref()?.shared.borrow().stream.local().ok()? {
            Peer::Inet(address) => Some(address.ip().to_canonical()),
            Peer::Unix => None,
        }
    }

    fn stream_id(&self) -> u32 {
        self.at.as_ref().map_or(0, |at| at.key.id())
    }

    fn pause_body_timer(&mut self) {
        self.entry.stop_waiting_for_body(&self.clock);
    }

    fn cancel(&mut self) {
        if let Some(StreamRef { shared, key }) = &self.at {
            shared.borrow_mut().reset(*key, ErrorCode::INTERNAL_ERROR);
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, matrix};

    use super::*;

    const MATRIX: &str = "
                Read            Fail
0 ContinueOwed  1 SendContinue  -
1 Reading       1               2
2 Broken        -               -
";

    #[test]
    fn every_event_has_a_defined_effect_on_a_body() {
        let events = [ReadingEvent::Read, ReadingEvent::Fail];
        assert_matrix(&matrix(BodyReading::ContinueOwed, &events, BodyReading::next), MATRIX);
    }
}
