//! HTTP/1 to a backend: RFC 9112.

use lighty_core::{Fault, FaultReport};
use lighty_http::{Fields, Known, Method, Version};
use lighty_wire::http1::BodyFraming;
use lighty_wire::http1::Head;
use lighty_wire::http1::chunked::push_last_chunk;
use lighty_wire::http1::chunked::{CHUNK_END, ChunkHead, ChunkedDecoder, LAST_CHUNK};
use lighty_wire::http1::client::{RequestLine, encode_passed_on};
use lighty_wire::http1::upstream_response::{
    ResponseFault, ResponseFraming, ResponseHead, ResponseLimits,
};
use lighty_wire::http1::upstream_response::{other_protocol, parse_response};

use super::{BackendResponse, Event, Session, Step, malformed};
use crate::request::upstream_request::UpstreamRequest;

/// A request and its response over HTTP/1.
pub(super) struct HttpSession {
    head: ResponseHead,
    method: Option<Method>,
    requests_upgrade: bool,
    limits: ResponseLimits,
    /// The request did not have `Connection: close`.
    keeps_alive: bool,
    request: RequestFraming,
    body: Body,
    decoder: ChunkedDecoder,
}

/// Unsent part of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestFraming {
    /// Bytes of the announced length.
    Length,
    Chunked,
    Ended,
}

/// Unread part of the response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Length(u64),
    Chunked,
    Close,
}

/// Creates a session over HTTP/1; the request's head has the version.
pub(super) fn session(_force_http10: &bool) -> HttpSession {
    HttpSession::default()
}

impl Default for HttpSession {
    fn default() -> Self {
        Self {
            head: ResponseHead::new(),
            method: None,
            requests_upgrade: false,
            limits: ResponseLimits::default(),
            keeps_alive: false,
            request: RequestFraming::Ended,
            body: Body::Length(0),
            decoder: ChunkedDecoder::of_response(),
        }
    }
}

impl Session for HttpSession {
    fn clear(&mut self) {
        self.head.clear();
        self.decoder.clear();
        self.body = Body::Length(0);
    }

    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        let request = &upstream_request.ex.request;
        self.method = request.method;
        self.requests_upgrade = upstream_request.upgrade;
        self.limits.strict_lines = upstream_request.strict_lines;
        self.keeps_alive = upstream_request.keep_alive;
        self.request = match upstream_request.framing {
            BodyFraming::None => RequestFraming::Ended,
            BodyFraming::Length(_) => RequestFraming::Length,
            BodyFraming::Chunked => RequestFraming::Chunked,
        };
        let line = RequestLine {
            method: request.method.map_or("GET", Method::as_str).as_bytes(),
            target: &upstream_request.rewritten.target,
            version: if upstream_request.force_http10 { Version::Http10 } else { Version::Http11 },
            host: &upstream_request.rewritten.host,
            framing: upstream_request.framing,
        };
        let (theirs, ours) = (upstream_request.fields(), &upstream_request.rewritten.extra);
        let hop = connection_fields(upstream_request)
            .map(|(name, value)| (Some(name), name.as_str().as_bytes(), value));
        encode_passed_on(&line, theirs, ours, hop, out)
            .map_err(|fault| FaultReport::new(Fault::Internal, fault.to_string()))
    }

    fn push_body(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        debug_assert_ne!(self.request, RequestFraming::Ended, "content after the end");
        if self.request != RequestFraming::Chunked {
            out.extend_from_slice(piece);
            return;
        }
        out.extend_from_slice(ChunkHead::new(piece.len() as u64).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(CHUNK_END);
    }

    fn end_body(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.request, RequestFraming::Ended) != RequestFraming::Chunked {
            return;
        }
        let with = trailers.filter(|fields| !fields.is_empty());
        // The parser of the trailers refused values that cannot be written.
        if with.is_none_or(|fields| push_last_chunk(fields, out).is_err()) {
            out.extend_from_slice(LAST_CHUNK);
        }
    }

    fn read_head(
        &mut self,
        input: &[u8],
        response: &mut BackendResponse,
    ) -> Result<Step, FaultReport> {
        let head = &mut self.head;
        let parsed = parse_response(input, self.method, &self.limits, head)
            .map_err(|fault| blame(fault, input))?;
        let Head::Complete { consumed } = parsed else {
            return Ok(Step { consumed: 0, event: Event::More });
        };
        response.status = self.head.status;
        std::mem::swap(&mut response.fields, &mut self.head.fields);
        if self.head.is_interim() {
            return Ok(Step { consumed, event: Event::Interim });
        }
        if self.head.upgrade && !self.requests_upgrade {
            return Err(malformed("101 without having been asked to upgrade"));
        }
        response.upgrade = self.head.upgrade;
        self.body = match self.head.framing {
            ResponseFraming::None => Body::Length(0),
            ResponseFraming::Length(length) => Body::Length(length),
            ResponseFraming::Chunked => Body::Chunked,
            ResponseFraming::Close => Body::Close,
        };
        response.length = match self.body {
            Body::Length(length) => Some(length),
            Body::Chunked | Body::Close => None,
        };
        Ok(Step { consumed, event: Event::Head })
    }

    fn read_body(&mut self, input: &[u8]) -> Result<Step, FaultReport> {
        match self.body {
            Body::Length(0) => Ok(Step { consumed: 0, event: Event::Done }),
            _ if input.is_empty() => Ok(Step { consumed: 0, event: Event::More }),
            Body::Length(left) => {
                let count = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.body = Body::Length(left - count as u64);
                Ok(Step { consumed: count, event: Event::Data(0..count) })
            }
            Body::Close => Ok(Step { consumed: input.len(), event: Event::Data(0..input.len()) }),
            Body::Chunked => self.read_chunked(input),
        }
    }

    fn ends_with_close(&self) -> bool {
        self.body == Body::Close
    }

    fn trailers(&self) -> Option<&Fields> {
        let trailers = self.decoder.trailers();
        (self.body == Body::Length(0) && !trailers.is_empty()).then_some(trailers)
    }

    fn is_reusable(&self) -> bool {
        self.keeps_alive
            && self.head.keep_alive
            && self.request == RequestFraming::Ended
            && self.body == Body::Length(0)
    }
}

impl HttpSession {
    fn read_chunked(&mut self, input: &[u8]) -> Result<Step, FaultReport> {
        let found = self.decoder.feed(input).map_err(|f| malformed(f.message()))?;
        if found.done {
            self.body = Body::Length(0);
        }
        let event = match found.data.is_empty() {
            false => Event::Data(found.data),
            true if found.done => Event::Done,
            true => Event::More,
        };
        Ok(Step { consumed: found.consumed, event })
    }
}

/// Returns the hop-by-hop fields of this connection.
fn connection_fields<'a>(
    upstream_request: &'a UpstreamRequest<'_>,
) -> impl Iterator<Item = (Known, &'a [u8])> + use<'a> {
    let request = &upstream_request.ex.request;
    let upgrade = upstream_request.upgrade.then(|| request.fields.get(Known::Upgrade)).flatten();
    let connection: Option<&[u8]> = match (upgrade, upstream_request.keep_alive) {
        (Some(_), _) => Some(b"upgrade"),
        (None, false) => Some(b"close"),
        (None, true) if upstream_request.force_http10 => Some(b"keep-alive"),
        (None, true) if request.fields.contains(Known::Te) => {
            request.fields.list_contains(Known::Te, "trailers").then_some(b"TE")
        }
        (None, true) => None,
    };
    let connection = connection.map(|value| (Known::Connection, value));
    connection.into_iter().chain(upgrade.map(|value| (Known::Upgrade, value)))
}

#[cold]
fn blame(fault: ResponseFault, input: &[u8]) -> FaultReport {
    let message = other_protocol(input).unwrap_or(fault.message());
    match fault {
        ResponseFault::HeadTooLarge | ResponseFault::TooManyFields => {
            FaultReport::new(Fault::BackendHeadTooLarge, message)
        }
        _ => malformed(message),
    }
}
