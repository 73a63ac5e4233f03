//! The response of a FastCGI, SCGI or uwsgi application: a CGI head (RFC 3875 section 6) and a
//! body.
//!
//! SCGI and uwsgi applications send both without framing, so `read_head` and `read_body` are their
//! sessions' own. FastCGI applications send records, which `fastcgi` unwraps.

use std::ops::Range;

use lighty_core::{Fault, FaultReport};
use lighty_http::{Known, Method, Status};
use lighty_wire::cgi::{CgiFault, CgiHead, HeadLimits, Left, parse_head};
use lighty_wire::http1::Head;

use crate::session::{BackendResponse, Event, Step, cut_short, malformed, push_length};

/// Head of a response, and the expected rest of its body.
pub(crate) struct CgiResponse {
    head: CgiHead,
    left: Left,
    /// Method of the request.
    method: Option<Method>,
}

impl CgiResponse {
    pub(crate) fn new() -> Self {
        Self { head: CgiHead::new(), left: Left::Rest, method: None }
    }

    /// Prepares for another response, keeps the buffers.
    pub(crate) fn clear(&mut self) {
        self.head.clear();
        self.left = Left::Rest;
    }

    /// Begins the response to a request with this method.
    pub(crate) fn begin(&mut self, method: Option<Method>) {
        self.method = method;
    }

    /// Parses the head at the front of `output`. Returns its length once it is complete.
    pub(crate) fn parse_head(&mut self, output: &[u8]) -> Result<Option<usize>, FaultReport> {
        match parse_head(output, &HeadLimits::default(), &mut self.head).map_err(blame)? {
            Head::Partial => Ok(None),
            Head::Complete { consumed } => Ok(Some(consumed)),
        }
    }

    /// Moves the complete head into the response.
    pub(crate) fn take_head(
        &mut self,
        response: &mut BackendResponse,
    ) -> Result<Event, FaultReport> {
        // None of these protocols can carry another protocol.
        if self.head.status == Status::SWITCHING_PROTOCOLS {
            return Err(malformed("101 without having been asked to upgrade"));
        }
        response.status = self.head.status;
        std::mem::swap(&mut response.fields, &mut self.head.fields);
        if self.head.is_interim() {
            return Ok(Event::Interim);
        }
        if let Some(protocols) = self.head.upgrade.take() {
            response.fields.push_known(Known::Upgrade, protocols);
        }
        let length = self.head.content_length;
        if self.method == Some(Method::Head) || !self.head.status.allows_content() {
            push_length(length, &mut response.fields);
            (response.length, self.left) = (Some(0), Left::Length(0));
            return Ok(Event::Head);
        }
        response.length = length;
        self.left = Left::of(&self.head);
        Ok(Event::Head)
    }

    /// Reads from the body. Returns the bytes consumed, and the range of content in them.
    pub(crate) fn take_body(
        &mut self,
        output: &[u8],
    ) -> Result<(usize, Range<usize>), FaultReport> {
        self.left.take(output).map_err(|fault| malformed(fault.message()))
    }

    /// Returns true if nothing of the body is missing when the output ends.
    pub(crate) fn may_end(&self) -> bool {
        self.left.is_nothing()
    }

    /// Returns the fault of a response that ended before its announced length.
    pub(crate) fn short(&self) -> FaultReport {
        match self.left {
            Left::Length(left) => cut_short(self.head.content_length, Some(left)),
            _ => malformed("it ended before its last chunk"),
        }
    }

    /// Reads the head of a response without framing.
    pub(crate) fn read_head(
        &mut self,
        input: &[u8],
        response: &mut BackendResponse,
    ) -> Result<Step, FaultReport> {
        match self.parse_head(input)? {
            None => Ok(Step { consumed: 0, event: Event::More }),
            Some(consumed) => {
                let event = self.take_head(response)?;
                Ok(Step { consumed, event })
            }
        }
    }

    /// Reads the body of a response without framing.
    pub(crate) fn read_body(&mut self, input: &[u8]) -> Result<Step, FaultReport> {
        if self.left.is_whole() {
            return Ok(Step { consumed: 0, event: Event::Done });
        }
        let (consumed, body) = self.take_body(input)?;
        let event = if body.is_empty() { Event::More } else { Event::Data(body) };
        Ok(Step { consumed, event })
    }
}

fn blame(fault: CgiFault) -> FaultReport {
    match fault {
        CgiFault::HeadTooLarge | CgiFault::TooManyFields => {
            FaultReport::new(Fault::BackendHeadTooLarge, fault.message())
        }
        _ => malformed(fault.message()),
    }
}
