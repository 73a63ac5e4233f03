//! Destination of a response: the only enum over the protocols.

use std::io;

use lighty_core::{BodyStream, Exchange, RequestBody, Tunnel};

use super::h1::H1Io;
use super::h2::H2Io;
use super::stream::RequestStream;

/// A protocol's end of an exchange, which yields the request and takes the response. A single enum,
/// matched at each use, so that the common case is inlined.
pub(crate) enum Sink<'a> {
    H1(&'a mut H1Io),
    H2(&'a mut H2Io),
}

/// Buffers that have a sink. Generic, so that a waiting future stores one pointer instead of two,
/// and reserves no space for the futures of other protocols.
pub(crate) trait Protocol {
    fn sink(&mut self) -> Sink<'_>;

    /// Sends the remainder that [`Sink::try_send`] left.
    fn send_remainder(
        &mut self,
        remainder: Remainder,
        on: RequestStream<'_>,
        ex: &mut Exchange,
    ) -> impl Future<Output = io::Result<()>>;
}

impl Protocol for H1Io {
    #[inline]
    fn sink(&mut self) -> Sink<'_> {
        Sink::H1(self)
    }

    fn send_remainder(
        &mut self,
        remainder: Remainder,
        on: RequestStream<'_>,
        ex: &mut Exchange,
    ) -> impl Future<Output = io::Result<()>> {
        self.send_remainder(remainder, on, ex)
    }
}

impl Protocol for H2Io {
    #[inline]
    fn sink(&mut self) -> Sink<'_> {
        Sink::H2(self)
    }

    fn send_remainder(
        &mut self,
        remainder: Remainder,
        on: RequestStream<'_>,
        ex: &mut Exchange,
    ) -> impl Future<Output = io::Result<()>> {
        self.send_remainder(remainder, on, ex)
    }
}

/// Remainder of a response after the first attempt to send it.
pub(crate) enum Remainder {
    Nothing,
    /// The client has no room; the rest is queued.
    Queue,
    /// The whole response, head included, is rate-limited.
    Throttled,
    /// The head is encoded; a tunnel takes over after it.
    Tunnel(Box<dyn Tunnel>),
    /// The head is encoded; the body is streamed.
    Stream(Box<dyn BodyStream>),
}

impl Sink<'_> {
    /// Moves the request's head into `ex`.
    #[inline(always)]
    pub(super) fn take_head(&mut self, ex: &mut Exchange) {
        match self {
            Sink::H1(io) => io.take_head(ex),
            Sink::H2(io) => io.take_head(ex),
        }
    }

    /// Returns the request's body, of which `limit_bytes` are accepted (0: no limit); `None` if it
    /// has none.
    #[inline(always)]
    pub(super) fn take_body(&mut self, limit_bytes: u64) -> Option<RequestBody> {
        match self {
            Sink::H1(io) => io.take_body(limit_bytes),
            Sink::H2(io) => io.take_body(limit_bytes),
        }
    }

    /// Frames the response and sends as much as possible without waiting.
    #[inline(always)]
    pub(super) fn try_send(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
    ) -> io::Result<Remainder> {
        match self {
            Sink::H1(io) => io.try_send(on, ex),
            Sink::H2(io) => io.try_send(on, ex),
        }
    }

    /// Takes the number of bytes received for this request.
    #[inline(always)]
    pub(super) fn take_received(&mut self) -> u64 {
        match self {
            Sink::H1(io) => io.take_received(),
            // HTTP/2 counts per connection, for all its streams.
            Sink::H2(_) => 0,
        }
    }

    /// Drops the queued content, and the response's part of the buffers.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        match self {
            Sink::H1(io) => io.queue.clear(),
            Sink::H2(io) => io.clear(),
        }
    }
}
