//! Rejects heads that are unacceptable or did not arrive in time.

use std::rc::Rc;

use lighty_core::log::trace;
use lighty_core::machine::bad_messages::Excerpt;
use lighty_core::{Exchange, Fault, Level, Request};
use lighty_http::Version;
use lighty_wire::http1::{RequestFault, fault_position};

use super::super::{driver, request_head};
use super::{After, Conn, End, H1Conn, H1Exchange};
use crate::worker::Worker;

impl H1Conn<'_> {
    /// Rejects an unacceptable head and closes: the bytes after it cannot be trusted.
    pub(super) async fn refuse(&mut self, fault: RequestFault) -> After {
        let (on, conn, worker) = (self.on(), self.conn, self.conn.worker());
        worker.machine.counters.refused.add(1);
        let super::H1Exchange { exchange: ex, io } = &mut *self.h1;
        conn.describe(&mut ex.request);
        request_head::take_part(&mut io.head, &mut ex.request);
        {
            let input = io.input.borrow();
            let pending = input.pending();
            note_received(&mut ex.request, pending);
            ex.request.version = version_of(&ex.request.line);
            ex.settings = Rc::clone(&ex.generation.global);
            let (status, slug) = (fault.status().code(), fault.slug());
            ex.log(Level::Info, &format!("{status} ({slug}): {}", fault.message()));
            let position = fault_position::in_request(pending, fault);
            conn.keep_malformed(&ex.request, fault.message(), Excerpt::of(pending, position));
            name_protocol(ex, pending, worker);
            trace::refused_head(ex, pending);
        }
        ex.fail_status(fault.status());
        driver::send_last(on, ex, io).await;
        After::End(End::Linger)
    }

    /// Handles a head that timed out.
    pub(super) async fn time_out(&mut self) -> After {
        let (on, conn) = (self.on(), self.conn);
        let super::H1Exchange { exchange: ex, io } = &mut *self.h1;
        ex.settings = Rc::clone(&ex.generation.global);
        conn.describe(&mut ex.request);
        note_received(&mut ex.request, io.input.borrow().pending());
        ex.fail(Fault::HeadTimeout);
        driver::send_last(on, ex, io).await;
        After::End(End::Close)
    }
}

/// Responds to a client that speaks plain HTTP on a TLS port; its bytes are in [`Conn::early`].
pub(in crate::conn) async fn refuse_clear_text(conn: &mut Conn) -> End {
    let mut serving = H1Conn::acquire(conn);
    let (on, conn) = (serving.on(), serving.conn);
    let H1Exchange { exchange: ex, io } = &mut *serving.h1;
    io.head.begin();
    ex.pin(&conn.worker().generation());
    conn.begin_stages(&mut ex.stages);
    ex.settings = Rc::clone(&ex.generation.global);
    conn.describe(&mut ex.request);
    note_received(&mut ex.request, io.input.borrow().pending());
    ex.fail(Fault::ClearText);
    ex.response.set_text(ex.response.status, "text/plain", CLEAR_TEXT);
    driver::send_last(on, ex, io).await;
    serving.release();
    End::Linger
}

const CLEAR_TEXT: &str = "This port speaks HTTPS: the address begins with https://\n";

/// Logs, rate-limited, that a client speaks the wrong protocol for this port.
fn name_protocol(ex: &Exchange, pending: &[u8], worker: &Worker) {
    let (throttle, message) = match pending {
        // RFC 8446 section 5.1: a handshake record.
        [0x16, 0x03, ..] => {
            (&worker.tls_clients, "the client speaks TLS: this port speaks HTTP/1 in the clear")
        }
        // RFC 9113 section 3.4.
        _ if pending.starts_with(b"PRI * HTTP/2.0\r\n") => {
            (&worker.http2_clients, "the client speaks HTTP/2: this port speaks HTTP/1")
        }
        _ => return,
    };
    if throttle.is_due(worker.now_s()) {
        ex.log(Level::Notice, message);
    }
}

/// Records the bytes of a rejected head, for the log.
fn note_received(request: &mut Request, pending: &[u8]) {
    request.head_bytes = pending.len() as u64;
    if request.line.is_empty() {
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let start = pending.iter().position(|byte| !is_line_end(byte)).unwrap_or(pending.len());
        let line = pending[start..].split(is_line_end).next().unwrap_or_default();
        request.line.extend_from_slice(line);
    }
}

/// Returns the HTTP version in a rejected request line, if it is recognisable.
fn version_of(line: &[u8]) -> Version {
    if line.ends_with(b" HTTP/1.0") { Version::Http10 } else { Version::Http11 }
}
