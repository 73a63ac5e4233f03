//! Reads a request's head.

use std::rc::Rc;
use std::task::{Context, Poll};

use lighty_core::exchange::stage::{Stage, Stages};
use lighty_core::{Exchange, Fault, RequestBody};
use lighty_http::Method;
use lighty_wire::http1::{BodyFraming, Head, RequestFault, parse_request};
use lighty_wire::http2::frame::PREFACE;

use super::exchange::H1Io;
use super::{Conn, H1Conn};
use crate::conn::request_head;
use crate::conn::stream::RequestStream;
use crate::worker::conn_table::ConnLimits;

/// Outcome of waiting for a request head.
pub(super) enum Read {
    Request,
    /// The wake-up was spurious.
    Nothing,
    /// End of file or reset before a complete head.
    Gone,
    Refused(RequestFault),
    /// The client speaks HTTP/2; the bytes that it has sent are in [`Conn::early`].
    Http2,
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
                    Err(fault) => return Poll::Ready(refused_or_http2(on.conn, pending, fault)),
                }
                wait_for_head(on, &mut self.h1.exchange.stages);
            }
            let most = self.h1.exchange.generation.rules.limits.head_bytes_max + 1;
            match input.poll_fill(cx, most) {
                // A part of a TLS record is a part of a head.
                Poll::Pending if on.conn.stream.is_amid_record() => {
                    wait_for_head(on, &mut self.h1.exchange.stages);
                    return Poll::Pending;
                }
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

/// Detects the HTTP/2 preface in input that failed to parse as HTTP/1: prior knowledge (RFC 9113
/// section 3.3). Only the error path pays for it.
#[cold]
fn refused_or_http2(conn: &Conn, received: &[u8], fault: RequestFault) -> Read {
    let is_preface = received.starts_with(PREFACE) || PREFACE.starts_with(received);
    // Over TLS, only ALPN chooses HTTP/2 (RFC 9113 section 3.2).
    let is_our_tls = conn.tls.as_ref().is_some_and(|tls| tls.is_own());
    let is_spoken = conn.worker().global().server.http2 && !is_our_tls;
    if !is_preface || conn.requests.get() > 0 || !is_spoken {
        return Read::Refused(fault);
    }
    conn.early.set(Some(Box::new(received.to_vec())));
    Read::Http2
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
    /// Moves the head into the request, and closes the connection afterwards if the head requires
    /// it.
    #[inline(always)]
    pub(in crate::conn) fn take_head(&mut self, ex: &mut Exchange) {
        let head = &mut self.head;
        request_head::take(head, ex);
        self.keeps_open = head.keep_alive
            && ex.generation.global.server.protocol_http11
            // Following bytes may be meant for the refused tunnel (RFC 9110 section 9.3.6).
            && head.method != Some(Method::Connect);
    }

    /// Returns the body that follows the head.
    #[inline(always)]
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
