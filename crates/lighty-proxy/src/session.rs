//! Sessions: one request and its response over one connection, one file per protocol.
//!
//! A session is a state machine over a codec of lighty-wire. It takes a request, produces bytes to
//! send, and turns received bytes into events. It knows no socket and no time. A new protocol is a
//! file here and a line of [`crate::upstream::protocol`].

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use lighty_core::{Fault, FaultReport};
use lighty_http::{Fields, Known, Status, decimal};

use crate::request::upstream_request::UpstreamRequest;
use crate::upstream::protocol::{Protocol, protocols};

mod ajp13;
mod fastcgi;
mod http;
mod http2;
mod scgi;
mod uwsgi;

pub(crate) use http2::upgrade_protocol;

/// The backend violated its protocol.
pub(crate) fn malformed(detail: impl Into<Cow<'static, str>>) -> FaultReport {
    FaultReport::new(Fault::BackendMalformed, detail)
}

/// The request's head needs more bytes than the protocol can carry.
fn head_unfit(protocol: &str, needed_bytes: usize, bytes_max: usize) -> FaultReport {
    let detail = format!("{needed_bytes} bytes, of {bytes_max} that {protocol} can carry");
    FaultReport::new(Fault::HeadUnfit, detail)
}

/// The backend ended its response before the announced length.
pub(crate) fn cut_short(announced: Option<u64>, left: Option<u64>) -> FaultReport {
    let (announced, left) = (announced.unwrap_or(0), left.unwrap_or(0));
    let came = announced.saturating_sub(left);
    malformed(format!(
        "it ended after {came} of the {announced} bytes that Content-Length announced"
    ))
}

/// A response head.
#[derive(Default)]
pub(crate) struct BackendResponse {
    pub status: Status,
    /// The fields as sent by the backend, including framing and hop-by-hop fields.
    pub fields: Fields,
    /// The announced body length in bytes; 0 if there is no body.
    pub length: Option<u64>,
    /// The backend accepted an upgrade: a tunnel follows.
    pub upgrade: bool,
}

impl BackendResponse {
    /// Clears the response, keeps the buffers.
    pub(crate) fn clear(&mut self) {
        self.status = Status::OK;
        self.fields.clear();
        self.length = None;
        self.upgrade = false;
    }
}

/// An event in a backend's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// More input is needed.
    More,
    /// Much error output has accumulated; the caller must take it before reading on.
    Stderr,
    /// An interim response, stored in the [`BackendResponse`]; its head follows.
    Interim,
    /// The head is complete and stored in the [`BackendResponse`].
    Head,
    /// Bytes of the body, as a range of the input.
    Data(Range<usize>),
    /// The response is complete.
    Done,
}

/// A step through the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Bytes consumed.
    pub consumed: usize,
    pub event: Event,
}

/// A request and its response.
pub(crate) trait Session {
    /// Resets the session for another request.
    fn clear(&mut self);

    /// Appends the bytes that precede the body.
    ///
    /// # Errors
    /// The protocol cannot express the request; nothing has been sent.
    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport>;

    /// Maximum bytes of the next body piece. 0: the backend has not requested any.
    fn takes(&self) -> usize {
        usize::MAX
    }

    /// Appends a piece of the body, no longer than [`Session::takes`].
    fn push_body(&mut self, piece: &[u8], out: &mut Vec<u8>);

    /// Appends the end of the body.
    fn end_body(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>);

    /// Reads from the front of `input` until the head is complete. The next call gets the
    /// unconsumed bytes again, followed by new ones.
    ///
    /// # Errors
    /// The connection is unusable.
    fn read_head(
        &mut self,
        input: &[u8],
        response: &mut BackendResponse,
    ) -> Result<Step, FaultReport>;

    /// Returns true if the consumed bytes may hold another head: the caller then calls
    /// [`Session::read_head`] again even without input.
    fn holds_output(&self) -> bool {
        false
    }

    /// Returns body bytes that were read together with the head and are no longer in the input.
    fn take_early_body(&mut self) -> Bytes {
        Bytes::new()
    }

    /// Appends a pending protocol reply, if any.
    fn reply(&mut self, _out: &mut Vec<u8>) {}

    /// Reads from the body. The session consumes everything sooner or later: no byte is needed
    /// twice.
    ///
    /// # Errors
    /// The connection is unusable.
    fn read_body(&mut self, input: &[u8]) -> Result<Step, FaultReport>;

    /// True if the response ends when the backend closes the connection.
    fn ends_with_close(&self) -> bool {
        false
    }

    /// Takes the backend's error output.
    fn take_stderr(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the trailers.
    fn trailers(&self) -> Option<&Fields> {
        None
    }

    /// True if the connection is reusable after the complete response.
    fn is_reusable(&self) -> bool;
}

macro_rules! sessions {
    ($(
        $(#[$about:meta])*
        $variant:ident { $($option:ident: $type:ty = $default:expr),* }
        $word:literal $port:literal $request:ident $file:ident::$session:ident;
    )*) => {
        /// Creates a session for a protocol.
        pub(crate) fn create(protocol: &Protocol) -> Box<dyn Session> {
            match protocol {
                $(Protocol::$variant { $($option),* } => Box::new($file::$session($($option),*)),)*
                // Raw upstreams never serve HTTP requests.
                Protocol::Raw => Box::new(http::session(&false)),
            }
        }
    };
}
protocols!(sessions);

/// A HEAD response announces the length that GET would have.
pub(crate) fn push_length(length: Option<u64>, fields: &mut Fields) {
    if let Some(length) = length {
        let mut digits = Vec::new();
        decimal::push(length, &mut digits);
        fields.push_known(Known::ContentLength, digits);
    }
}
