//! Sessions: one request and its answer over one connection, one file for each protocol.
//!
//! A session is a machine over a codec of lighty-wire. It is told what is asked, hands out bytes
//! to be sent, is fed what comes back, and says what that meant. It knows no socket and no time.
//! A new protocol is a file here, a line in [`create`] and a kind in [`crate::spec::Protocol`].

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use lighty_core::Fault;
use lighty_http::{Fields, Known, Status, decimal};

use crate::spec::Protocol;
use crate::upstream_request::UpstreamRequest;

mod ajp13;
mod gateway;
mod http;

/// What goes wrong with a backend's answer, and the particulars for the log.
#[derive(Clone, Debug)]
pub(crate) struct SessionFault {
    pub fault: Fault,
    pub words: Cow<'static, str>,
}

impl SessionFault {
    /// The backend broke the rules of its protocol.
    pub(crate) fn malformed(words: impl Into<Cow<'static, str>>) -> Self {
        Self { fault: Fault::BackendMalformed, words: words.into() }
    }

    /// The request's head needs more bytes than the protocol can carry.
    fn head_unfit(protocol: &str, needed_bytes: usize, bytes_max: usize) -> Self {
        let words = format!("{needed_bytes} bytes, of {bytes_max} that {protocol} can carry");
        Self { fault: Fault::HeadUnfit, words: words.into() }
    }

    /// The backend ended its answer before the length that it had announced.
    fn short(announced: Option<u64>, left: Option<u64>) -> Self {
        let (announced, left) = (announced.unwrap_or(0), left.unwrap_or(0));
        let came = announced.saturating_sub(left);
        Self::malformed(format!(
            "it ended after {came} of the {announced} bytes that Content-Length announced"
        ))
    }
}

/// The head of an answer.
#[derive(Default)]
pub(crate) struct Answer {
    pub status: Status,
    /// As the backend sent them, framing and hop-by-hop fields included.
    pub fields: Fields,
    /// Length of the body in bytes where it was announced; 0 where there is none.
    pub length: Option<u64>,
    /// The backend agreed to speak another protocol: what follows is a tunnel.
    pub upgrade: bool,
}

impl Answer {
    /// Forgets the answer, keeps the buffers.
    pub(crate) fn clear(&mut self) {
        self.status = Status::OK;
        self.fields.clear();
        self.length = None;
        self.upgrade = false;
    }
}

/// What was found in what a backend sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Nothing more: more is needed.
    More,
    /// The backend has said much for the error log, which is to be taken before it says more.
    Said,
    /// An interim answer, which stands in the [`Answer`]; its head follows.
    Interim,
    /// The head is complete, and stands in the [`Answer`].
    Head,
    /// Bytes of the body, as a range of the input.
    Data(Range<usize>),
    /// The answer is complete.
    Done,
}

/// One step through the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Bytes that are dealt with.
    pub consumed: usize,
    pub event: Event,
}

/// One request and its answer.
pub(crate) trait Session {
    /// Back to the beginning, for another request.
    fn clear(&mut self);

    /// Appends what is sent before any of the body.
    ///
    /// # Errors
    /// What the protocol cannot say; nothing has been sent then.
    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SessionFault>;

    /// Bytes of the body that may be handed over now: the length of one piece at most. 0: the
    /// backend has not asked for any.
    fn takes(&self) -> usize {
        usize::MAX
    }

    /// Appends a piece of the body, no longer than [`Session::takes`].
    fn push_body(&mut self, piece: &[u8], out: &mut Vec<u8>);

    /// Appends what ends the body.
    fn end_body(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>);

    /// Reads on from the front of `input` until the head is complete. What was not consumed is
    /// handed in again, with more behind it.
    ///
    /// # Errors
    /// The connection cannot be used any more.
    fn read_head(&mut self, input: &[u8], answer: &mut Answer) -> Result<Step, SessionFault>;

    /// Body bytes that were read together with the head and are not in the input any more.
    fn take_early_body(&mut self) -> Bytes {
        Bytes::new()
    }

    /// Appends what answers a question of the backend's, if anything.
    fn reply(&mut self, _out: &mut Vec<u8>) {}

    /// Reads on in the body. Everything is consumed sooner or later: no byte is needed twice.
    ///
    /// # Errors
    /// The connection cannot be used any more.
    fn read_body(&mut self, input: &[u8]) -> Result<Step, SessionFault>;

    /// The backend closed its half: whether that is how this answer ends.
    fn ends_with_close(&self) -> bool {
        false
    }

    /// What the backend wants to have in the error log; taken once.
    fn take_said(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Fields behind the body.
    fn trailers(&self) -> Option<&Fields> {
        None
    }

    /// Whether the connection can carry another request, now that the answer is complete.
    fn is_reusable(&self) -> bool;
}

/// A session for a protocol.
pub(crate) fn create(protocol: &Protocol) -> Box<dyn Session> {
    match protocol {
        // What is carried raw is never asked for by HTTP.
        Protocol::Http { .. } | Protocol::Raw => Box::new(http::HttpSession::default()),
        Protocol::Fastcgi { role } => Box::new(gateway::GatewaySession::fastcgi(*role)),
        Protocol::Scgi => Box::new(gateway::GatewaySession::scgi()),
        Protocol::Uwsgi { modifier1 } => Box::new(gateway::GatewaySession::uwsgi(*modifier1)),
        Protocol::Ajp13 { secret, packet_bytes } => {
            Box::new(ajp13::AjpSession::new(secret.clone(), *packet_bytes))
        }
    }
}

/// A client that asked by HEAD is told what GET would have been.
fn tell_length(length: Option<u64>, fields: &mut Fields) {
    if let Some(length) = length {
        let mut digits = Vec::new();
        decimal::push(length, &mut digits);
        fields.push_known(Known::ContentLength, digits);
    }
}
