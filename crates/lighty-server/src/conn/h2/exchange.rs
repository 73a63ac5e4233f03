//! A stream's request, from its head to the end of its response.

use std::cell::RefCell;
use std::rc::Rc;

use lighty_buf::ChunkQueue;
use lighty_core::exchange::put_away::PutAway;
use lighty_core::{Exchange, RequestBody};
use lighty_http::{Fields, Known, base64};
use lighty_io::clock::Clock;
use lighty_io::entropy::random_bytes;
use lighty_io::file::OpenFile;
use lighty_io::send::ResponseLoading;
use lighty_wire::http1::{BodyFraming, Http1Limits, RequestFault, RequestHead};
use lighty_wire::http2::ErrorCode;
use lighty_wire::http2::request::read_request;

use super::input::H2Input;
use super::shared::StreamRef;
use crate::conn::request_head;
use crate::worker::conn_table::StreamEntry;

/// An exchange with its HTTP/2 state. Pooled per worker.
pub(crate) struct H2Exchange {
    pub exchange: Exchange,
    pub(super) io: H2Io,
    /// Timeout state for the sweep, once the exchange has to wait.
    pub(super) entry: Rc<StreamEntry>,
}

/// A stream's end of an exchange.
pub(crate) struct H2Io {
    pub(super) at: Option<StreamRef>,
    pub(super) input: Rc<RefCell<H2Input>>,
    /// The parsed head, before it becomes a request.
    pub(super) head: RequestHead,
    /// Bytes of the head as HTTP/2 counts them.
    head_bytes: usize,
    /// Content that must be loaded first, or for which the windows have no room yet.
    pub(super) queue: ChunkQueue<Rc<OpenFile>>,
    pub(super) digits: Vec<u8>,
    /// The response has begun.
    pub(super) has_begun: bool,
    /// Reset code of the backend, if it is passed on to the client.
    pub(super) passed_on: Option<ErrorCode>,
}

impl H2Exchange {
    /// Creates an exchange for any connection of the worker with this clock.
    pub(crate) fn new(mut exchange: Exchange, clock: Clock) -> Self {
        let (input, entry) = new_ends(clock);
        exchange.client = Some(Rc::clone(&input) as _);
        let io = H2Io {
            at: None,
            input,
            head: RequestHead::default(),
            head_bytes: 0,
            queue: ChunkQueue::default(),
            digits: Vec::new(),
            has_begun: false,
            passed_on: None,
        };
        Self { exchange, io, entry }
    }

    /// Attaches to a new stream, and reads the request from the machine.
    pub(super) fn begin(&mut self, at: &StreamRef, ends: bool) -> Result<(), RequestFault> {
        debug_assert!(self.io.at.is_none() && self.io.queue.is_empty(), "of another stream");
        self.entry.begin_anew();
        let io = &mut self.io;
        io.input.borrow_mut().attach(at);
        io.at = Some(at.clone());
        io.has_begun = false;
        io.passed_on = None;
        let mut shared = at.shared.borrow_mut();
        let message = shared.machine.head();
        io.head_bytes = message.bytes;
        let rules = &self.exchange.generation.rules;
        read_request(message, ends, &rules.limits, &rules.options, &mut io.head)?;
        check_size(&io.head.fields, &rules.limits)?;
        if io.head.upgrade {
            add_key(&mut io.head.fields);
        }
        Ok(())
    }

    /// Moves the stream's state out, and leaves an exchange that any other stream can use.
    pub(super) fn put_away(
        &mut self,
        at: StreamRef,
        loading: ResponseLoading,
        clock: Clock,
    ) -> AwayH2 {
        let (input, entry) = new_ends(clock);
        let exchange = self.exchange.put_away();
        self.exchange.client = Some(Rc::clone(&input) as _);
        self.io.at = None;
        let mut queue = std::mem::take(&mut self.io.queue);
        queue.shrink();
        AwayH2 {
            at,
            exchange,
            input: std::mem::replace(&mut self.io.input, input),
            entry: std::mem::replace(&mut self.entry, entry),
            queue,
            loading,
            has_begun: self.io.has_begun,
        }
    }

    /// Restores the stream's state from `away`. The exchange must be unused.
    pub(super) fn take_back(&mut self, away: AwayH2) -> (StreamRef, ResponseLoading) {
        debug_assert!(self.io.at.is_none() && self.io.queue.is_empty(), "of another stream");
        self.exchange.take_back(away.exchange);
        self.exchange.client = Some(Rc::clone(&away.input) as _);
        self.io.at = Some(away.at.clone());
        self.io.input = away.input;
        self.io.queue = away.queue;
        self.io.has_begun = away.has_begun;
        self.entry = away.entry;
        (away.at, away.loading)
    }

    /// Detaches from the stream.
    pub(super) fn detach(&mut self) {
        self.io.at = None;
        self.io.input.borrow_mut().detach();
        self.io.queue.clear();
    }
}

/// State of a stream's exchange while its client has no window for the response.
pub(super) struct AwayH2 {
    pub(super) at: StreamRef,
    exchange: PutAway,
    pub(super) input: Rc<RefCell<H2Input>>,
    pub(super) entry: Rc<StreamEntry>,
    queue: ChunkQueue<Rc<OpenFile>>,
    loading: ResponseLoading,
    has_begun: bool,
}

/// Creates the parts that belong to a stream rather than to its exchange.
fn new_ends(clock: Clock) -> (Rc<RefCell<H2Input>>, Rc<StreamEntry>) {
    let entry = Rc::new(StreamEntry::new());
    (Rc::new(RefCell::new(H2Input::new(clock, Rc::clone(&entry)))), entry)
}

/// Checks the header fields against the limits of HTTP/1. They apply beside the limits of the
/// machine, which protect memory before there is a request.
fn check_size(fields: &Fields, limits: &Http1Limits) -> Result<(), RequestFault> {
    // Counts colon, space and line end, as in HTTP/1.
    let bytes: usize = fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    if bytes > limits.field_bytes_max {
        return Err(RequestFault::FieldsTooLarge);
    }
    if fields.len() > limits.fields_max as usize {
        return Err(RequestFault::TooManyFields);
    }
    Ok(())
}

/// Adds the key of a WebSocket's handshake, which backends that speak HTTP/1 require (RFC 6455
/// section 4.1).
#[cold]
fn add_key(fields: &mut Fields) {
    if fields.list_contains(Known::Upgrade, "websocket") {
        // The key has no meaning here, so any value will do.
        let bytes = random_bytes::<16>().unwrap_or_default();
        let mut key = Vec::new();
        base64::encode(&bytes, &mut key);
        fields.set_named(b"sec-websocket-key", &key);
    }
}

impl H2Io {
    /// Moves the head into the request without copying its buffers.
    #[inline]
    pub(in crate::conn) fn take_head(&mut self, ex: &mut Exchange) {
        request_head::take(&mut self.head, ex);
        ex.request.head_bytes = self.head_bytes as u64;
    }

    /// Returns the body that follows the head.
    #[inline]
    pub(in crate::conn) fn take_body(&mut self, limit_bytes: u64) -> Option<RequestBody> {
        let announced = match self.head.framing {
            BodyFraming::None => return None,
            BodyFraming::Length(length) => Some(length),
            BodyFraming::Chunked => None,
        };
        self.input.borrow_mut().begin_body(self.head.expect_continue, limit_bytes);
        Some(RequestBody::incoming(Rc::clone(&self.input) as _, announced))
    }

    /// Drops the queued content.
    #[inline]
    pub(in crate::conn) fn clear(&mut self) {
        self.queue.clear();
    }
}
