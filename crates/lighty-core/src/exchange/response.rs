//! The server's response.

use std::rc::Rc;

use lighty_http::{Fields, Known, Status};

use crate::exchange::body::Body;
use crate::exchange::encoded_forms::EncodedForms;
use crate::exchange::tunnel::Tunnel;

/// One response, reusable. A handler sets the status, its own fields and the body; the protocol
/// adds the fields that frame it. A handler that forwards fields may keep Content-Length among
/// them, see [`Response::declared_length`].
#[derive(Default)]
pub struct Response {
    /// The origin of the body.
    pub maker: Maker,
    /// The status code; a handler or an error decides it.
    pub status: Status,
    /// Fields of its head; see [`Response::declared_length`] for a Content-Length among them.
    pub fields: Fields,
    /// The content, where the method and the status allow one.
    pub body: Body,
    /// No further request is served on the client's connection.
    pub is_last: bool,
    /// A handler or an error page has responded; guards against a second response.
    pub answered: bool,
    /// Body length reported for HEAD and 304, where `body` is empty.
    pub head_content_length: Option<u64>,
    /// The Content-Length in `fields`. It is kept if it matches the body sent; an unconfirmed
    /// length is replaced.
    pub declared_length: Option<u64>,
    /// Length of the content that a 304 stands for, if known.
    pub length_unsent: Option<u64>,
    /// The handler's declaration of an unmodified body.
    pub origin: BodyOrigin,
    /// A body of unknown length ends by closing the connection, even where the protocol could mark
    /// its end. HEAD then reports no length. Protocols that always mark the end ignore this.
    pub ends_with_connection: bool,
    /// No filter applies to a response with this head. A cached head may record this, see
    /// [`crate::pipeline::is_filtered`].
    pub unfiltered: bool,
    /// Takes over the connection after a 101.
    pub tunnel: Option<Box<dyn Tunnel>>,
}

/// Origin of a response's body. Timings are attributed to it, and it decides where conditions are
/// evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// The server itself.
    #[default]
    Server,
    /// A program that it has started for this request.
    Program,
    /// A backend.
    Backend,
}

/// Source of a body that nothing has modified. Everything that changes or replaces the body resets
/// it.
#[derive(Clone, Default)]
pub enum BodyOrigin {
    /// Any source, or a modified body.
    #[default]
    Other,
    /// The body is the whole file at the physical path.
    WholeFile,
    /// The body is a whole stored response.
    Stored(Rc<dyn EncodedForms>),
}

/// Fields of which a response has at most one (RFC 9110).
const SINGULAR: [Known; 7] = [
    Known::ContentType,
    Known::ContentEncoding,
    Known::ContentRange,
    Known::ETag,
    Known::LastModified,
    Known::Location,
    Known::RetryAfter,
];

impl Response {
    /// Clears the response; keeps the buffers.
    pub fn clear(&mut self) {
        self.maker = Maker::Server;
        self.status = Status::OK;
        self.fields.clear();
        self.body = Body::Empty;
        self.is_last = false;
        self.answered = false;
        self.head_content_length = None;
        self.declared_length = None;
        self.length_unsent = None;
        self.origin = BodyOrigin::Other;
        self.ends_with_connection = false;
        self.unfiltered = false;
        self.tunnel = None;
    }

    /// Starts over with a status: drops the fields and the body set so far.
    pub fn restart(&mut self, status: Status) {
        let is_last = self.is_last;
        self.clear();
        self.is_last = is_last;
        self.status = status;
    }

    /// Takes over the fields of a program or a backend. Fields set before stay, except singular
    /// ones that the program sets itself.
    pub fn take_fields(&mut self, fields: &mut Fields) {
        if self.fields.is_empty() {
            std::mem::swap(&mut self.fields, fields);
        } else {
            self.yield_to(fields);
            self.fields.append(fields);
        }
        self.drop_empty();
    }

    /// Drops singular fields that `fields` contain as well.
    pub fn yield_to(&mut self, fields: &Fields) {
        for name in SINGULAR.into_iter().filter(|name| fields.contains(*name)) {
            self.fields.remove(name);
        }
    }

    /// Drops singular fields with an empty value, as lighttpd does: none of them may be empty.
    pub fn drop_empty(&mut self) {
        if !self.fields.has_empty_value() {
            return;
        }
        for name in SINGULAR {
            if self.fields.get(name) == Some(b"") {
                self.fields.remove(name);
            }
        }
    }

    /// Responds with a status, a media type and bytes.
    pub fn set_text(&mut self, status: Status, content_type: &str, text: impl Into<bytes::Bytes>) {
        self.status = status;
        self.fields.set(Known::ContentType, content_type);
        self.body = Body::Memory(text.into());
        self.answered = true;
    }
}

impl Response {
    /// True if the body is the whole, unmodified file at the physical path.
    pub fn is_whole_file(&self) -> bool {
        matches!(self.origin, BodyOrigin::WholeFile)
    }

    /// True if no handler has set a body yet.
    pub fn body_is_default(&self) -> bool {
        matches!(self.body, Body::Empty) && self.head_content_length.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_set_before_stay_beside_a_programs() {
        let mut response = Response::default();
        response.fields.push(b"X-A", b"before");
        response.fields.push(b"Content-Type", b"text/x-before");
        response.fields.push(b"Set-Cookie", b"a=1");
        let mut fields = Fields::default();
        fields.push(b"Content-Type", b"text/plain");
        fields.push(b"Set-Cookie", b"b=2");
        response.take_fields(&mut fields);
        let values: Vec<_> = response.fields.iter().map(|(_, value)| value.to_vec()).collect();
        assert_eq!(values, [&b"before"[..], b"a=1", b"text/plain", b"b=2"]);
    }
}
