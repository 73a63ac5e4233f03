//! What the server answers.

use lighty_http::{Fields, Known, Status};

use crate::body::{Body, Tunnel};

/// One answer, reusable. Framing fields (Content-Length, Transfer-Encoding, Connection, Date) are
/// the connection's business: a handler sets status, its own fields and the body. One that keeps its
/// fields from answer to answer may keep Content-Length among them, see [`Response::length_said`].
#[derive(Default)]
pub struct Response {
    pub status: Status,
    pub fields: Fields,
    pub body: Body,
    /// Ends the connection after this answer.
    pub close: bool,
    /// Answered by a handler or by an error page; guards against a second one.
    pub answered: bool,
    /// Length of the body that a HEAD request or a 304 is told about, where `body` is empty.
    pub head_content_length: Option<u64>,
    /// What a Content-Length among `fields` says. It stays where it is true of the body that is
    /// sent; a length that nobody answers for is replaced.
    pub length_said: Option<u64>,
    /// A body of unknown length ends with the connection, though the client knows of chunks; HEAD
    /// is told nothing of its length.
    pub unchunked: bool,
    /// No filter is for an answer with this head. Who keeps a head may remember it, see
    /// [`crate::pipeline::is_filtered`].
    pub unfiltered: bool,
    /// Who takes the connection over behind a 101.
    pub tunnel: Option<Box<dyn Tunnel>>,
}

impl Response {
    /// Forgets the answer, keeps the buffers.
    pub fn clear(&mut self) {
        self.status = Status::OK;
        self.fields.clear();
        self.body = Body::Empty;
        self.close = false;
        self.answered = false;
        self.head_content_length = None;
        self.length_said = None;
        self.unchunked = false;
        self.unfiltered = false;
        self.tunnel = None;
    }

    /// Starts over with a status: fields and body set so far are dropped.
    pub fn restart(&mut self, status: Status) {
        let close = self.close;
        self.clear();
        self.close = close;
        self.status = status;
    }

    /// Answers with a status, a media type and bytes.
    pub fn set_text(&mut self, status: Status, content_type: &str, text: impl Into<bytes::Bytes>) {
        self.status = status;
        self.fields.set(Known::ContentType, content_type);
        self.body = Body::Memory(text.into());
        self.answered = true;
    }
}

impl Response {
    /// Whether no handler gave the answer a body yet.
    pub fn body_is_default(&self) -> bool {
        matches!(self.body, Body::Empty) && self.head_content_length.is_none()
    }
}
