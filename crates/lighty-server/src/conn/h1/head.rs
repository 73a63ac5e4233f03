//! Reads a request's head, and moves it into the request.

use std::rc::Rc;
use std::task::{Context, Poll};

use lighty_core::exchange::stage::{Stage, Stages};
use lighty_core::settings::limits;
use lighty_core::{Exchange, Fault, Request, RequestBody};
use lighty_http::{Fields, Known, Method, host};
use lighty_wire::http1::{BodyFraming, Head, RequestFault, parse_request};

use super::{H1Conn, H1Io};
use crate::conn::stream::RequestStream;
use crate::conn_table::ConnLimits;

/// Outcome of waiting for a request head.
pub(super) enum Read {
    Request,
    /// The wake-up was spurious.
    Nothing,
    /// End of file or reset before a complete head.
    Gone,
    Refused(RequestFault),
    TimedOut,
}

impl H1Conn<'_> {
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        let on = self.on();
        let io = &mut self.h1.io;
        loop {
            let mut input = io.input.borrow_mut();
            let pending = input.pending();
            if !pending.is_empty() {
                let rules = &self.h1.exchange.generation.rules;
                match parse_request(pending, &rules.limits, &rules.options, &mut io.head) {
                    Ok(Head::Complete { consumed }) => {
                        input.consume(consumed);
                        self.h1.exchange.request.head_bytes = consumed as u64;
                        return Poll::Ready(Read::Request);
                    }
                    Ok(Head::Partial) => {}
                    Err(fault) => return Poll::Ready(Read::Refused(fault)),
                }
                wait_for_head(on, &mut self.h1.exchange.stages);
            }
            match input.poll_fill(cx, limits::HEAD_BYTES_MAX + 1) {
                // Nothing is pending, and an idle wait needs no buffer.
                Poll::Pending if input.pending().is_empty() => return Poll::Ready(Read::Nothing),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0)) if on.conn.entry.shut_down_for() == Some(Fault::HeadTimeout) => {
                    return Poll::Ready(Read::TimedOut);
                }
                Poll::Ready(_) => return Poll::Ready(Read::Gone),
            }
        }
    }
}

/// Starts the head timeout once part of a head has arrived.
fn wait_for_head(on: RequestStream<'_>, stages: &mut Stages) {
    let entry = &on.conn.entry;
    if !entry.is_in_head() {
        let head_s = on.conn.worker().global().server.max_head_time_s;
        entry.limit(ConnLimits { head_s, ..entry.limits() });
        on.enter(Stage::FirstByte, stages);
    }
}

impl H1Io {
    /// Moves the head into the request without copying its buffers, and decides as far as the head
    /// does whether the connection stays open.
    #[inline]
    pub(in crate::conn) fn take_head(&mut self, ex: &mut Exchange) {
        self.move_head(&mut ex.request);
        let head = &self.head;
        self.keeps_open = head.keep_alive
            && ex.generation.global.server.protocol_http11
            // Following bytes may be meant for the refused tunnel (RFC 9110 section 9.3.6).
            && head.method != Some(Method::Connect);
        if head.has_plain_path() {
            let request = &mut ex.request;
            request.path.clear();
            request.path.extend_from_slice(&request.target[..request.path_end]);
        } else {
            // The parser has already rejected undecodable paths.
            let _ = ex.decode_path();
        }
    }

    /// Moves as much of the head as was parsed.
    #[inline]
    pub(super) fn move_head(&mut self, request: &mut Request) {
        let head = &mut self.head;
        request.method = head.method;
        request.version = head.version;
        request.target_raw.extend_from_slice(head.path_and_query_raw());
        head.swap_line(&mut request.line);
        request.path_end = head.path().len();
        std::mem::swap(&mut request.fields, &mut head.fields);
        std::mem::swap(&mut request.target, &mut head.target);
        take_host(request, head.authority(), head.is_host_as_sent());
        request.upgrade = head.upgrade;
    }

    /// The body that follows the head.
    #[inline]
    pub(in crate::conn) fn take_body(&mut self, limit_bytes: u64) -> Option<RequestBody> {
        let framing = self.head.framing;
        let mut input = self.input.borrow_mut();
        input.begin_body(&self.head, limit_bytes);
        let announced = match framing {
            BodyFraming::None => return None,
            BodyFraming::Length(length) => Some(length),
            BodyFraming::Chunked => None,
        };
        drop(input);
        Some(RequestBody::incoming(Rc::clone(&self.input) as _, announced))
    }
}

/// Normalises the host for conditions, logs and backends, as lighttpd does. `is_as_sent`: the
/// `Host` field is the authority.
#[inline]
fn take_host(request: &mut Request, named: &[u8], is_as_sent: bool) {
    let authority = host::without_default_port(named, request.scheme);
    request.authority.extend_from_slice(authority);
    if !is_as_sent || authority.len() != named.len() {
        change_host(&mut request.fields, authority);
    }
}

#[cold]
fn change_host(fields: &mut Fields, authority: &[u8]) {
    if fields.contains(Known::Host) {
        fields.set(Known::Host, authority);
    }
}
