//! FastCGI, SCGI and uwsgi: the same variables and response head in different framings.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use lighty_core::exchange::variables;
use lighty_core::{Fault, FaultReport};
use lighty_http::{Fields, Known, Method, Status};
use lighty_io::transport::Peer;
use lighty_wire::cgi::{CgiFault, CgiHead, HeadLimits, Left, Params, Purpose, parse_head};
use lighty_wire::fastcgi::encode::{END_OF_STDIN, begin_request, stdin_header};
use lighty_wire::fastcgi::{self, ApplicationRole, Begin, ParamsWriter, ProtocolStatus};
use lighty_wire::http1::chunked::ChunkFault;
use lighty_wire::http1::{BodyFraming, Head};
use lighty_wire::scgi::{self, ScgiFault};
use lighty_wire::uwsgi;

use super::{BackendResponse, Event, Session, Step, cut_short, head_unfit, malformed, push_length};
use crate::request::upstream_request::UpstreamRequest;
use crate::upstream::spec::FastcgiRole;

/// Bytes of error output above which it is logged before more is read.
const SAID_BYTES: usize = 8 * 1024;

/// Framing of the variables and the body.
enum Wrapping {
    Fastcgi { role: FastcgiRole, decoder: fastcgi::FastcgiDecoder, keep_conn: bool },
    Scgi,
    Uwsgi(uwsgi::Modifiers),
}

/// A request and its response over a CGI-like protocol.
pub(super) struct GatewaySession {
    wrapping: Wrapping,
    head: CgiHead,
    /// Output up to the end of the head, if it arrives in records.
    output: Vec<u8>,
    /// `output` arrived with an interim response and was not parsed yet.
    holds_output: bool,
    early: Bytes,
    left: Left,
    /// Bytes of output at the front of the input, without their record header.
    unwrapped: usize,
    method: Option<Method>,
    said: Vec<u8>,
    request: Request,
    expects: Expects,
    listener: Option<Listener>,
}

/// Unsent part of the request.
#[derive(PartialEq, Eq)]
enum Request {
    Body,
    Nothing,
}

/// Expected next output of the program.
#[derive(PartialEq, Eq)]
enum Expects {
    Head,
    Body,
    Nothing,
}

/// Creates a session over FastCGI.
pub(super) fn fastcgi(role: &FastcgiRole) -> GatewaySession {
    let decoder = fastcgi::FastcgiDecoder::new();
    GatewaySession::new(Wrapping::Fastcgi { role: *role, decoder, keep_conn: false })
}

/// Creates a session over SCGI.
pub(super) fn scgi() -> GatewaySession {
    GatewaySession::new(Wrapping::Scgi)
}

/// Creates a session over uwsgi.
pub(super) fn uwsgi(modifier1: &u8) -> GatewaySession {
    GatewaySession::new(Wrapping::Uwsgi(uwsgi::Modifiers { first: *modifier1, second: 0 }))
}

impl GatewaySession {
    fn new(wrapping: Wrapping) -> Self {
        Self {
            wrapping,
            head: CgiHead::new(),
            output: Vec::new(),
            holds_output: false,
            early: Bytes::new(),
            left: Left::Rest,
            unwrapped: 0,
            method: None,
            said: Vec::new(),
            request: Request::Body,
            expects: Expects::Head,
            listener: None,
        }
    }

    /// Moves the complete head into the response.
    fn take_head(&mut self, response: &mut BackendResponse) -> Result<Event, FaultReport> {
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
        self.expects = Expects::Body;
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

    /// Takes the part of the body that arrived with the end of the head.
    fn take_early(&mut self, output: Vec<u8>) -> Result<(), FaultReport> {
        let mut rest = Bytes::from(output);
        let mut early = Vec::new();
        while !rest.is_empty() {
            let (consumed, body) = self.left.take(&rest).map_err(no_chunk)?;
            if consumed == rest.len() && early.is_empty() {
                self.early = rest.slice(body);
                return Ok(());
            }
            early.extend_from_slice(&rest[body]);
            rest = rest.slice(consumed..);
        }
        self.early = early.into();
        Ok(())
    }

    /// Returns the fault of a response that ended before its announced length.
    fn short(&self) -> FaultReport {
        match self.left {
            Left::Length(left) => cut_short(self.head.content_length, Some(left)),
            _ => malformed("it ended before its last chunk"),
        }
    }

    /// Collects error output. Returns true if it is enough to be logged.
    fn take_stderr(&mut self, words: &[u8]) -> bool {
        self.said.extend_from_slice(words);
        self.said.len() >= SAID_BYTES
    }

    /// Reads records up to the end of the head.
    fn read_records(
        &mut self,
        input: &[u8],
        response: &mut BackendResponse,
    ) -> Result<Step, FaultReport> {
        let mut at = 0;
        if std::mem::take(&mut self.holds_output)
            && let Some(event) = self.read_output(response)?
        {
            return Ok(Step { consumed: at, event });
        }
        while let Wrapping::Fastcgi { decoder, .. } = &mut self.wrapping {
            let step = decoder.feed(&input[at..]).map_err(|f| malformed(f.words()))?;
            let bytes = &input[at..];
            at += step.consumed;
            match step.event {
                None => break,
                Some(fastcgi::FastcgiEvent::Stdout(range)) => {
                    self.output.extend_from_slice(&bytes[range]);
                    if let Some(event) = self.read_output(response)? {
                        return Ok(Step { consumed: at, event });
                    }
                }
                Some(fastcgi::FastcgiEvent::Stderr(range)) => {
                    if self.take_stderr(&bytes[range]) {
                        return Ok(Step { consumed: at, event: Event::Said });
                    }
                }
                Some(fastcgi::FastcgiEvent::End(end)) => return Err(without_head(end)),
                Some(_) => {}
            }
        }
        Ok(Step { consumed: at, event: Event::More })
    }

    /// Parses the head at the front of the output, once it is complete.
    fn read_output(
        &mut self,
        response: &mut BackendResponse,
    ) -> Result<Option<Event>, FaultReport> {
        let head = parse_head(&self.output, &HeadLimits::default(), &mut self.head);
        let Head::Complete { consumed } = head.map_err(blame)? else { return Ok(None) };
        let rest = self.output.split_off(consumed);
        let event = self.take_head(response)?;
        if event == Event::Interim {
            self.holds_output = !rest.is_empty();
            self.output = rest;
        } else {
            self.take_early(rest)?;
        }
        Ok(Some(event))
    }

    fn read_record_body(&mut self, input: &[u8]) -> Result<Step, FaultReport> {
        let mut at = 0;
        while let Wrapping::Fastcgi { decoder, .. } = &mut self.wrapping {
            if self.unwrapped > 0 && at < input.len() {
                let end = input.len().min(at + self.unwrapped);
                let (consumed, body) = self.left.take(&input[at..end]).map_err(no_chunk)?;
                let start = at;
                at += consumed;
                self.unwrapped -= consumed;
                if !body.is_empty() {
                    let event = Event::Data(start + body.start..start + body.end);
                    return Ok(Step { consumed: at, event });
                }
                continue;
            }
            let step = decoder.feed(&input[at..]).map_err(|f| malformed(f.words()))?;
            let start = at;
            at += step.consumed;
            match step.event {
                None => break,
                Some(fastcgi::FastcgiEvent::Stdout(range)) => {
                    at = start + range.start;
                    self.unwrapped = range.len();
                }
                Some(fastcgi::FastcgiEvent::Stderr(range)) => {
                    if self.take_stderr(&input[start + range.start..start + range.end]) {
                        return Ok(Step { consumed: at, event: Event::Said });
                    }
                }
                Some(fastcgi::FastcgiEvent::End(_)) => {
                    if !self.left.is_nothing() {
                        return Err(self.short());
                    }
                    self.expects = Expects::Nothing;
                    return Ok(Step { consumed: at, event: Event::Done });
                }
                Some(_) => {}
            }
        }
        Ok(Step { consumed: at, event: Event::More })
    }
}

impl Session for GatewaySession {
    fn clear(&mut self) {
        if let Wrapping::Fastcgi { decoder, .. } = &mut self.wrapping {
            decoder.clear();
        }
        self.head.clear();
        self.output.clear();
        self.holds_output = false;
        self.early = Bytes::new();
        (self.left, self.unwrapped) = (Left::Rest, 0);
        self.said.clear();
        (self.request, self.expects) = (Request::Body, Expects::Head);
    }

    fn open(
        &mut self,
        upstream_request: &UpstreamRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultReport> {
        self.method = upstream_request.ex.request.method;
        let length = match upstream_request.framing {
            BodyFraming::Length(length) => Some(length),
            BodyFraming::None => Some(0),
            BodyFraming::Chunked => None,
        };
        let listener = Listener::of(upstream_request, &mut self.listener);
        let server_addr = listener.address_of(upstream_request);
        let extra: Vec<_> = upstream_request.ex.environment.iter().collect();
        let mut params = params(upstream_request, server_addr.as_bytes(), length);
        params.extra = &extra;
        match &mut self.wrapping {
            Wrapping::Fastcgi { role, keep_conn, .. } => {
                *keep_conn = upstream_request.keep_alive;
                let role = match role {
                    FastcgiRole::Responder => ApplicationRole::Responder,
                    FastcgiRole::Authorizer => {
                        params.purpose = Purpose::Authorize;
                        ApplicationRole::Authorizer
                    }
                };
                begin_request(Begin { role, keep_conn: upstream_request.keep_alive }, out);
                let mut writer = ParamsWriter::new(out);
                let colliding = params.for_each(|name, value| writer.pair(name, value));
                log_colliding(upstream_request, &params, colliding);
                writer.finish().map_err(|fault| unfit(fault.words()))?;
            }
            Wrapping::Scgi => open_scgi(upstream_request, &params, length, out)?,
            Wrapping::Uwsgi(modifiers) => open_uwsgi(upstream_request, &params, *modifiers, out)?,
        }
        if upstream_request.framing == BodyFraming::None {
            self.end_body(None, out);
        }
        Ok(())
    }

    fn takes(&self) -> usize {
        match self.wrapping {
            Wrapping::Fastcgi { .. } => usize::from(u16::MAX),
            Wrapping::Scgi | Wrapping::Uwsgi(_) => usize::MAX,
        }
    }

    fn push_body(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if let Wrapping::Fastcgi { .. } = self.wrapping {
            // No longer piece was requested.
            let Ok(length @ 1..) = u16::try_from(piece.len()) else { return };
            out.extend_from_slice(&stdin_header(length));
        }
        out.extend_from_slice(piece);
    }

    fn end_body(&mut self, _trailers: Option<&Fields>, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.request, Request::Nothing) == Request::Body
            && matches!(self.wrapping, Wrapping::Fastcgi { .. })
        {
            out.extend_from_slice(&END_OF_STDIN);
        }
    }

    fn read_head(
        &mut self,
        input: &[u8],
        response: &mut BackendResponse,
    ) -> Result<Step, FaultReport> {
        if matches!(self.wrapping, Wrapping::Fastcgi { .. }) {
            return self.read_records(input, response);
        }
        match parse_head(input, &HeadLimits::default(), &mut self.head).map_err(blame)? {
            Head::Partial => Ok(Step { consumed: 0, event: Event::More }),
            Head::Complete { consumed } => {
                let event = self.take_head(response)?;
                Ok(Step { consumed, event })
            }
        }
    }

    fn holds_output(&self) -> bool {
        self.holds_output
    }

    fn take_early_body(&mut self) -> Bytes {
        std::mem::take(&mut self.early)
    }

    fn read_body(&mut self, input: &[u8]) -> Result<Step, FaultReport> {
        if matches!(self.wrapping, Wrapping::Fastcgi { .. }) {
            return self.read_record_body(input);
        }
        if self.left.is_whole() {
            self.expects = Expects::Nothing;
            return Ok(Step { consumed: 0, event: Event::Done });
        }
        let (consumed, body) = self.left.take(input).map_err(no_chunk)?;
        let event = if body.is_empty() { Event::More } else { Event::Data(body) };
        Ok(Step { consumed, event })
    }

    fn ends_with_close(&self) -> bool {
        // FastCGI applications announce their end; the others only close.
        !matches!(self.wrapping, Wrapping::Fastcgi { .. }) && self.left.is_nothing()
    }

    fn take_said(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.said)
    }

    fn is_reusable(&self) -> bool {
        match &self.wrapping {
            Wrapping::Fastcgi { keep_conn, .. } => {
                let is_over = self.request == Request::Nothing && self.expects == Expects::Nothing;
                *keep_conn && is_over
            }
            Wrapping::Scgi | Wrapping::Uwsgi(_) => false,
        }
    }
}

fn no_chunk(fault: ChunkFault) -> FaultReport {
    malformed(fault.words())
}

/// Logs the names of fields that are withheld from the program.
fn log_colliding(upstream_request: &UpstreamRequest<'_>, params: &Params<'_>, colliding: usize) {
    if colliding > 0 && !upstream_request.words.counted_colliding.replace(true) {
        variables::log_colliding(upstream_request.ex, params);
    }
}

fn open_scgi(
    upstream_request: &UpstreamRequest<'_>,
    params: &Params<'_>,
    length: Option<u64>,
    out: &mut Vec<u8>,
) -> Result<(), FaultReport> {
    let length = length.ok_or_else(|| {
        FaultReport::new(Fault::LengthRequired, "SCGI announces the body's length first")
    })?;
    let mut writer = scgi::HeadWriter::new(length, out);
    let colliding = params.for_each(|name, value| writer.pair(name, value));
    log_colliding(upstream_request, params, colliding);
    let needed_bytes = writer.needed_bytes();
    writer.finish().map_err(|fault| match fault {
        ScgiFault::HeadTooLarge => head_unfit("SCGI", needed_bytes, scgi::HEAD_BYTES_MAX),
        other => unfit(other.words()),
    })
}

fn open_uwsgi(
    upstream_request: &UpstreamRequest<'_>,
    params: &Params<'_>,
    modifiers: uwsgi::Modifiers,
    out: &mut Vec<u8>,
) -> Result<(), FaultReport> {
    let mut writer = uwsgi::VarsWriter::new(modifiers, out);
    let colliding = params.for_each(|name, value| writer.pair(name, value));
    log_colliding(upstream_request, params, colliding);
    let needed_bytes = writer.needed_bytes();
    let too_large = |_| head_unfit("uwsgi", needed_bytes, uwsgi::VARS_BYTES_MAX);
    writer.finish().map_err(too_large)
}

/// Returns the fault of a request that the engine should have refused.
fn unfit(words: &'static str) -> FaultReport {
    FaultReport::new(Fault::Internal, words)
}

/// The listener of the last request, with its address as text: the next request usually has the
/// same.
struct Listener {
    name: Rc<str>,
    /// `None` for a wildcard listener.
    address: Option<Box<str>>,
}

impl Listener {
    /// Returns the listener of a request.
    fn of<'l>(upstream_request: &UpstreamRequest<'_>, last: &'l mut Option<Self>) -> &'l Self {
        let name = &upstream_request.ex.request.local_socket;
        let seen = last.take().filter(|seen| Rc::ptr_eq(&seen.name, name));
        last.insert(seen.unwrap_or_else(|| Self::named(name)))
    }

    fn named(name: &Rc<str>) -> Self {
        let at = name.parse::<SocketAddr>().ok().filter(|at| !at.ip().is_unspecified());
        Self { name: Rc::clone(name), address: at.map(|at| at.ip().to_string().into()) }
    }

    /// Returns the address that the client connected to; empty if it is unknown.
    fn address_of(&self, upstream_request: &UpstreamRequest<'_>) -> Cow<'_, str> {
        let own = || upstream_request.local_ip().map(|ip| ip.to_string()).unwrap_or_default();
        self.address.as_deref().map_or_else(|| own().into(), Cow::Borrowed)
    }
}

fn params<'a>(
    upstream_request: &'a UpstreamRequest<'_>,
    server_addr: &'a [u8],
    length: Option<u64>,
) -> Params<'a> {
    let ex = upstream_request.ex;
    let request = &ex.request;
    let remote_port = match request.peer {
        Peer::Inet(address) => address.port(),
        Peer::Unix => 0,
    };
    let script = &upstream_request.words.script;
    Params {
        server_software: ex.settings.core.tag.as_bytes(),
        server_name: variables::server_name(ex),
        server_port: request.local_port,
        server_addr,
        protocol: request.version,
        remote_addr: request.peer_text.as_bytes(),
        remote_port,
        remote_user: (!request.remote_user.is_empty()).then_some(&*request.remote_user),
        method: request.method.map_or("GET", lighty_http::Method::as_str).as_bytes(),
        request_uri: upstream_request.words.request_uri(ex),
        redirect_uri: (request.target != request.target_raw)
            .then_some(&*upstream_request.words.target),
        query: upstream_request.words.split_target().1.unwrap_or_default(),
        content_length: length,
        script_name: &script.name,
        path_info: &script.path_info,
        script_filename: &script.filename,
        document_root: &script.docroot,
        https: request.scheme == "https",
        redirect_status: variables::redirect_status(ex),
        odd_names: ex.settings.server.odd_field_variables,
        ..Params::new(&request.fields)
    }
}

fn blame(fault: CgiFault) -> FaultReport {
    match fault {
        CgiFault::HeadTooLarge | CgiFault::TooManyFields => {
            FaultReport::new(Fault::BackendHeadTooLarge, fault.words())
        }
        _ => malformed(fault.words()),
    }
}

/// Returns the fault of an application that ended the request before a head was complete. FastCGI
/// 1.0 section 5.5: with `FCGI_CANT_MPX_CONN` and `FCGI_OVERLOADED` it rejects the request.
fn without_head(end: fastcgi::EndRequest) -> FaultReport {
    let words = match end.protocol_status {
        ProtocolStatus::RequestComplete => {
            return malformed(format!("no head; the program ended with {}", end.app_status));
        }
        ProtocolStatus::CantMultiplex => "it takes one request per connection",
        ProtocolStatus::Overloaded => "it is overloaded",
        ProtocolStatus::UnknownRole => return malformed("it does not know its role"),
    };
    FaultReport::new(Fault::BackendBusy, words)
}
