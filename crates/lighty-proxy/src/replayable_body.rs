//! A request's body on its way to a backend, of which the beginning is kept so that it can be sent
//! again.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_core::{BodyFault, RequestBody};
use lighty_http::Fields;

use crate::spool::StoredBody;

/// Bytes that are kept for a second try; a longer body is sent once.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The body of a request.
#[derive(Default)]
pub(crate) struct ReplayableBody {
    body: RequestBody,
    kept: Vec<Bytes>,
    kept_bytes: usize,
    /// How many of the kept pieces were handed out since the last rewind.
    at: usize,
    /// The whole body, if it was received before it is sent.
    stored: Option<Rc<RefCell<StoredBody>>>,
    ended: bool,
    forgotten: bool,
    /// Whether what follows the body is passed on (`trailers`).
    keeps_trailers: bool,
    trailers: Option<Fields>,
    /// A piece that was too long for the protocol; its rest comes first.
    rest: Bytes,
}

impl ReplayableBody {
    /// The body as it comes from the client, and the fields behind it if they are to go on too.
    pub(crate) fn new(body: RequestBody, keeps_trailers: bool) -> Self {
        let ended = !body.exists();
        Self { body, ended, keeps_trailers, ..Self::default() }
    }

    /// A body that was received whole. It goes on with its length, so nothing follows it (RFC 9112
    /// section 7.1.2).
    pub(crate) fn stored(body: StoredBody) -> Self {
        let stored = Rc::new(RefCell::new(body));
        Self { body: StoredBody::as_body(&stored), stored: Some(stored), ..Self::default() }
    }

    /// Takes the body as it comes from the client, to store it.
    pub(crate) fn take_body(&mut self) -> RequestBody {
        std::mem::take(&mut self.body)
    }

    /// Whether nothing more of it is to come from the client.
    pub(crate) fn is_received(&self) -> bool {
        self.stored.is_some() || self.is_over()
    }

    /// For a request whose body is not passed on.
    pub(crate) fn none() -> Self {
        Self::new(RequestBody::default(), false)
    }

    /// Whether the request has no body.
    pub(crate) fn is_none(&self) -> bool {
        !self.body.exists()
    }

    /// Its length in bytes, where the client announced it.
    pub(crate) fn announced(&self) -> Option<u64> {
        self.body.announced()
    }

    /// Whether all of it was handed out.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.at == self.kept.len() && self.rest.is_empty()
    }

    /// Whether it can be sent once more from its beginning.
    pub(crate) fn can_rewind(&self) -> bool {
        !self.forgotten
    }

    /// Whether that will be so however much of it has been sent.
    pub(crate) fn is_sure_to_rewind(&self) -> bool {
        let fits = || self.announced().is_some_and(|bytes| bytes <= KEPT_BYTES_MAX as u64);
        self.can_rewind() && (self.is_none() || self.stored.is_some() || fits())
    }

    /// Fields behind the body, once it is over.
    pub(crate) fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }

    /// Back to the beginning.
    pub(crate) fn rewind(&mut self) {
        debug_assert!(self.can_rewind());
        self.at = 0;
        self.rest = Bytes::new();
        if let Some(stored) = &self.stored {
            stored.borrow_mut().rewind();
            self.body = StoredBody::as_body(stored);
            self.ended = false;
        }
    }

    /// The body as it was before any of it was handed out, for another handler; `None` if too much
    /// was.
    pub(crate) fn into_body(mut self) -> Option<RequestBody> {
        if !self.can_rewind() {
            return None;
        }
        self.rewind();
        self.kept.into_iter().rev().for_each(|piece| self.body.push_back(piece));
        Some(self.body)
    }

    /// An answer has begun: nothing will be sent twice any more.
    pub(crate) fn forget(&mut self) {
        self.kept.drain(..self.at);
        self.at = 0;
        self.forgotten = true;
    }

    /// The next piece, no longer than `most` bytes; `None` at the end.
    pub(crate) fn poll_piece(
        &mut self,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyFault>>> {
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
            return Poll::Ready(None);
        }
        let piece = ready!(self.body.poll_next(cx));
        match &piece {
            Some(Ok(bytes)) => self.keep(bytes),
            Some(Err(_)) => self.ended = true,
            None => {
                self.ended = true;
                self.trailers = self.body.take_trailers().filter(|_| self.keeps_trailers);
            }
        }
        Poll::Ready(piece)
    }

    fn keep(&mut self, piece: &Bytes) {
        if self.forgotten || self.stored.is_some() {
            return;
        }
        self.kept_bytes += piece.len();
        if self.kept_bytes > KEPT_BYTES_MAX {
            self.forgotten = true;
            self.kept = Vec::new();
            self.at = 0;
            return;
        }
        self.kept.push(piece.clone());
        self.at = self.kept.len();
    }
}
