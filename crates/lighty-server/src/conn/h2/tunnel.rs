//! A stream that carries another protocol: an extended CONNECT (RFC 8441) that a backend or a
//! program has accepted as an upgrade.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_core::exchange::span::Span;
use lighty_core::machine::status_board::ConnState;
use lighty_core::pipeline::error_page;
use lighty_core::{Exchange, Tunnel};
use lighty_http::{Known, Status};
use lighty_io::transport::ByteStream;
use lighty_wire::http2::{ErrorCode, SendFault};

use super::exchange::H2Io;
use super::output::{drained, fail_head, push_origin, trace_head};
use super::shared::StreamRef;
use crate::conn::sink::Remainder;
use crate::conn::stream::RequestStream;

/// A handshake field of HTTP/1 that an extended CONNECT does not have (RFC 8441 section 5.1).
const ACCEPT: &[u8] = b"sec-websocket-accept";

impl H2Io {
    /// Sends the head of the response to an extended CONNECT, if its handler has accepted it.
    /// Another 2xx response would look like acceptance, so the client gets a 501 instead, and
    /// `None` is returned as for every other response.
    #[cold]
    pub(super) fn answer_connect(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        at: &StreamRef,
    ) -> io::Result<Option<Remainder>> {
        let Some(tunnel) = ex.response.tunnel.take() else {
            if ex.response.status.is_success() {
                ex.fail_status(Status::NOT_IMPLEMENTED);
                let id = ex.id();
                error_page::fill(&mut ex.response, id);
            }
            return Ok(None);
        };
        ex.response.status = Status::OK;
        for name in [Known::Upgrade, Known::Connection, Known::ContentLength] {
            ex.response.fields.remove(name);
        }
        ex.response.fields.remove_named(ACCEPT);
        push_origin(on, ex);
        let (status, fields) = (ex.response.status, &ex.response.fields);
        let sent = at.shared.borrow_mut().send_head(at.key, status, fields, false);
        match sent {
            Ok(bytes) => {
                (ex.state.head_sent, ex.state.bytes_sent) = (bytes, bytes);
                self.has_begun = true;
                trace_head(ex);
                Ok(Some(Remainder::Tunnel(tunnel)))
            }
            Err(SendFault::Gone) => Err(io::ErrorKind::ConnectionReset.into()),
            Err(fault) => {
                fail_head(ex, fault);
                Ok(None)
            }
        }
    }

    /// Hands the stream to the tunnel, which ends with it.
    pub(super) async fn hand_over(
        &mut self,
        on: RequestStream<'_>,
        ex: &mut Exchange,
        at: &StreamRef,
        tunnel: Box<dyn Tunnel>,
    ) -> io::Result<()> {
        on.wait_for(ConnState::Handler);
        ex.begin_span(Span::Tunnel);
        let stream = Rc::new(TunnelStream { at: at.clone() });
        tokio::select! {
            biased;
            sent = tunnel.run(Rc::clone(&stream) as _, Bytes::new()) => ex.state.bytes_sent += sent?,
            () = on.conn.worker().ends_tunnels() => {}
        }
        stream.end();
        on.entry.write(&on.conn.worker().machine.clock);
        drained(on, at).await
    }
}

/// The stream's bytes in both directions.
struct TunnelStream {
    at: StreamRef,
}

impl TunnelStream {
    fn end(&self) {
        // A stream that has ended or was reset needs no end.
        let _ = self.at.shared.borrow_mut().push(self.at.key, Bytes::new(), true);
    }
}

impl fmt::Debug for TunnelStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TunnelStream({:?})", self.at.key)
    }
}

impl ByteStream for TunnelStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.at.shared.borrow_mut().poll_readable(self.at.key, cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.at.shared.borrow_mut().poll_read(self.at.key, cx, buffer)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.at.shared.borrow_mut();
        let room = ready!(shared.poll_room(self.at.key, cx))?;
        let count = room.min(bytes.len());
        shared.push(self.at.key, Bytes::copy_from_slice(&bytes[..count]), false)?;
        Poll::Ready(Ok(count))
    }

    fn poll_end(&self, _cx: &mut Context<'_>) -> Poll<()> {
        self.end();
        Poll::Ready(())
    }

    fn reset(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(std::future::poll_fn(|cx| self.at.shared.borrow_mut().poll_gone(self.at.key, cx)))
    }

    fn shut_down(&self) {
        self.at.shared.borrow_mut().reset(self.at.key, ErrorCode::CANCEL);
    }

    fn abort(&self) {
        // RFC 8441 section 5: it stands for the reset of a TCP connection.
        self.shut_down();
    }
}
