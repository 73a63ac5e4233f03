//! A request body sent to a backend. Its beginning is kept, so that it can be resent.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_core::pipeline::stored_body::StoredBody;
use lighty_core::{BodyFault, RequestBody};
use lighty_http::Fields;

/// Maximum bytes kept for a resend; a longer body is sent once.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The body of a request.
#[derive(Default)]
pub(crate) struct ReplayableBody {
    body: RequestBody,
    kept: Vec<Bytes>,
    kept_bytes: usize,
    /// Number of kept pieces handed out since the last rewind.
    at: usize,
    replay: Replay,
    /// The client's body has ended: nothing more is read from it.
    ended: bool,
    /// The end was handed out since the last rewind; a resend hands it out again.
    end_delivered: bool,
    /// True if trailers are forwarded (`trailers`).
    keeps_trailers: bool,
    // Boxed: few bodies have trailers, and every proxied request moves this struct.
    trailers: Option<Box<Fields>>,
    /// The rest of a piece that was too long for the protocol; sent next.
    rest: Bytes,
}

/// Source of a resend.
#[derive(Default)]
enum Replay {
    /// The kept pieces: all that were handed out.
    #[default]
    Kept,
    /// The whole body, which was received first.
    Stored(Rc<RefCell<StoredBody>>),
    /// Nothing: too much was handed out, or a response has begun.
    Lost,
}

impl ReplayableBody {
    /// Streams the body from the client, with its trailers if they are forwarded.
    pub(crate) fn new(body: RequestBody, keeps_trailers: bool) -> Self {
        Self {
            ended: !body.exists(),
            end_delivered: !body.exists(),
            body,
            kept: Vec::new(),
            kept_bytes: 0,
            at: 0,
            replay: Replay::Kept,
            keeps_trailers,
            trailers: None,
            rest: Bytes::new(),
        }
    }

    /// Creates a body that was received completely. It is sent with its length, so it has no
    /// trailers (RFC 9112 section 7.1.2).
    pub(crate) fn stored(body: StoredBody) -> Self {
        let stored = Rc::new(RefCell::new(body));
        let body = StoredBody::as_body(&stored);
        Self { body, replay: Replay::Stored(stored), ..Self::default() }
    }

    /// Takes the client's body, to store it.
    pub(crate) fn take_body(&mut self) -> RequestBody {
        std::mem::take(&mut self.body)
    }

    /// True if the client has sent all of it.
    pub(crate) fn is_received(&self) -> bool {
        matches!(self.replay, Replay::Stored(_)) || self.is_over()
    }

    /// Creates a body that is not sent.
    pub(crate) fn none() -> Self {
        Self::new(RequestBody::default(), false)
    }

    /// Returns true if the request has no body.
    pub(crate) fn is_none(&self) -> bool {
        !self.body.exists()
    }

    /// Returns its length in bytes, if the client announced it.
    pub(crate) fn announced(&self) -> Option<u64> {
        self.body.announced()
    }

    /// Returns true if all of it was handed out, including its end.
    pub(crate) fn is_over(&self) -> bool {
        self.end_delivered
    }

    /// True if it can be resent from its beginning.
    pub(crate) fn can_rewind(&self) -> bool {
        !matches!(self.replay, Replay::Lost)
    }

    /// Returns true if it can be resent however much of it has been sent.
    pub(crate) fn is_sure_to_rewind(&self) -> bool {
        match self.replay {
            Replay::Lost => false,
            Replay::Stored(_) => true,
            Replay::Kept => {
                let fits = |bytes| bytes <= KEPT_BYTES_MAX as u64;
                self.is_none() || self.announced().is_some_and(fits)
            }
        }
    }

    /// Returns the trailers, once the body has ended.
    pub(crate) fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_deref()
    }

    /// Rewinds to the beginning.
    pub(crate) fn rewind(&mut self) {
        debug_assert!(self.can_rewind());
        self.at = 0;
        self.rest = Bytes::new();
        self.end_delivered = self.is_none();
        if let Replay::Stored(stored) = &self.replay {
            stored.borrow_mut().rewind();
            self.body = StoredBody::as_body(stored);
            self.ended = false;
        }
    }

    /// Returns the original body, for another handler; `None` if too much of it was handed out.
    pub(crate) fn into_body(mut self) -> Option<RequestBody> {
        if !self.can_rewind() {
            return None;
        }
        self.rewind();
        self.kept.into_iter().rev().for_each(|piece| self.body.push_back(piece));
        Some(self.body)
    }

    /// Drops the pieces kept for a resend, because a response has begun.
    pub(crate) fn forget(&mut self) {
        if let Replay::Kept = self.replay {
            debug_assert!(self.at <= self.kept.len(), "{} {}", self.at, self.kept.len());
            self.kept.drain(..self.at);
            self.at = 0;
            self.replay = Replay::Lost;
        }
    }

    /// Returns the next piece, no longer than `most` bytes; `None` at the end.
    pub(crate) fn poll_piece(
        &mut self,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyFault>>> {
        debug_assert!(most > 0, "a piece of nothing would look like content");
        if self.rest.is_empty() {
            match ready!(self.poll_whole(cx)) {
                Some(Ok(piece)) => self.rest = piece,
                other => return Poll::Ready(other),
            }
        }
        let count = self.rest.len().min(most);
        Poll::Ready(Some(Ok(self.rest.split_to(count))))
    }

    fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        if let Some(kept) = self.kept.get(self.at) {
            self.at += 1;
            return Poll::Ready(Some(Ok(kept.clone())));
        }
        if self.ended {
            self.end_delivered = true;
            return Poll::Ready(None);
        }
        let piece = ready!(self.body.poll_next(cx));
        match &piece {
            Some(Ok(bytes)) => self.keep(bytes),
            Some(Err(_)) => {
                (self.ended, self.end_delivered) = (true, true);
                // A resend would end the body at this point, as if it were complete.
                self.replay = Replay::Lost;
            }
            None => {
                (self.ended, self.end_delivered) = (true, true);
                let trailers = self.body.take_trailers().filter(|_| self.keeps_trailers);
                self.trailers = trailers.map(Box::new);
            }
        }
        Poll::Ready(piece)
    }

    fn keep(&mut self, piece: &Bytes) {
        if !matches!(self.replay, Replay::Kept) {
            return;
        }
        debug_assert_eq!(self.at, self.kept.len(), "kept pieces come first");
        self.kept_bytes += piece.len();
        if self.kept_bytes > KEPT_BYTES_MAX {
            self.replay = Replay::Lost;
            self.kept = Vec::new();
            self.at = 0;
            return;
        }
        self.kept.push(piece.clone());
        self.at = self.kept.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all pieces like a call: until the body ends.
    fn read(body: &mut ReplayableBody) -> (Vec<u8>, bool) {
        let (mut bytes, mut has_end) = (Vec::new(), false);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while !body.is_over() {
            match body.poll_piece(usize::MAX, &mut cx) {
                Poll::Ready(Some(Ok(piece))) => bytes.extend_from_slice(&piece),
                Poll::Ready(None) => has_end = true,
                other => panic!("{other:?}"),
            }
        }
        (bytes, has_end)
    }

    #[test]
    fn resent_body_is_ended_again() {
        for content in ["", "some bytes"] {
            let mut body = ReplayableBody::new(RequestBody::given(Bytes::from(content)), false);
            for turn in 0..3 {
                let whole = (content.as_bytes().to_vec(), true);
                assert_eq!(read(&mut body), whole, "{turn}");
                body.rewind();
                assert!(!body.is_over(), "{turn}");
            }
        }
    }

    #[test]
    fn request_without_body_has_no_end_to_resend() {
        let mut body = ReplayableBody::none();
        body.rewind();
        assert!(body.is_over());
    }
}
