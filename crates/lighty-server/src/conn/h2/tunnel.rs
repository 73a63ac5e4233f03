//! A stream that carries another protocol: an extended CONNECT (RFC 8441) that a backend or a
//! program has accepted as an upgrade.

use std::cell::Cell;
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
use super::output::{drained, fail_head, forget_unsent, push_origin, trace_head};
use super::shared::StreamRef;
use crate::conn::sink::Remainder;
use crate::conn::stream::RequestStream;
use crate::conn::tunnel::run_through_reloads;

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
                (ex.state.head_sent, ex.state.bytes_sent) = (bytes as u32, bytes);
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
        let stream = Rc::new(TunnelStream { at: at.clone(), close: Cell::default() });
        let route = tunnel.route();
        let mut running = tunnel.run(Rc::clone(&stream) as _, Bytes::new());
        let worker = on.conn.worker();
        let ended = run_through_reloads(worker, ex, &mut running, route).await.transpose()?;
        let (sent_bytes, fault) = ended.map_or((0, None), |end| (end.sent_bytes, end.fault));
        ex.state.bytes_sent += sent_bytes;
        on.entry.write(&on.conn.worker().machine.clock);
        match stream.close.get() {
            TunnelClose::Orderly => {
                stream.end();
                drained(on, at).await?;
            }
            TunnelClose::Abort => {
                at.shared.borrow_mut().discard(at.key);
                // The content before it is delivered if the client takes it in time.
                let _ = drained(on, at).await;
                at.shared.borrow_mut().reset(at.key, ErrorCode::CANCEL);
            }
            TunnelClose::ShutDown => {}
        }
        match fault {
            Some(report) => Err(io::Error::other(report)),
            None => {
                forget_unsent(ex, at);
                Ok(())
            }
        }
    }
}

/// The stream's bytes in both directions.
struct TunnelStream {
    at: StreamRef,
    close: Cell<TunnelClose>,
}

// The end of a tunnel's stream (`TunnelClose`):
//
//              abort             shut_down
//     Orderly -------> Abort ---------------> ShutDown
//        |                                       ^
//        +---------------------------------------+
//                       shut_down

/// The way a tunnel's stream ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TunnelClose {
    /// With its content.
    #[default]
    Orderly,
    /// With a reset behind its content.
    Abort,
    /// It was reset.
    ShutDown,
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
        self.close.set(TunnelClose::ShutDown);
        self.at.shared.borrow_mut().reset(self.at.key, ErrorCode::CANCEL);
    }

    fn abort(&self) {
        // RFC 8441 section 5: a reset of the stream stands for the reset of a TCP connection. It
        // would drop the content that waits for a window.
        if self.close.get() == TunnelClose::Orderly {
            self.close.set(TunnelClose::Abort);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::SocketAddr;
    use std::task::Waker;

    use lighty_http::Fields;
    use lighty_io::transport::{Stream, memory};
    use lighty_wire::http2::{Connection, Event, Limits, RequestParts};

    use super::super::shared::H2Shared;
    use super::*;

    /// Moves the frames of one side to the other, which handles them. Returns its events.
    fn handle(machine: &mut Connection, bytes: &[u8]) -> Vec<Event> {
        let (mut at, mut events) = (0, Vec::new());
        loop {
            let handled = machine.handle_input(&bytes[at..], 0).expect("no fault");
            at += handled.consumed;
            match handled.event {
                Some(event) => events.push(event),
                None => return events,
            }
        }
    }

    /// A tunnel with content for its client, before any of it is written.
    fn tunnel() -> (Connection, TunnelStream) {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (near, _) = memory::pair(nowhere, nowhere, 1);
        let mut client = Connection::client(Limits::default(), 0);
        let server = Connection::server(Limits::default(), 0);
        let shared =
            Rc::new(RefCell::new(H2Shared::new(server, Rc::new(Stream::from_memory(near)))));
        let parts = RequestParts {
            method: b"POST",
            scheme: b"http",
            authority: b"a",
            path: b"/",
            protocol: None,
        };
        client.open(&parts, &Fields::new(), false).expect("a stream");
        let mut bytes = Vec::new();
        client.poll_output(&mut bytes);
        let events = handle(&mut shared.borrow_mut().machine, &bytes);
        let key = events.iter().find_map(|event| match event {
            Event::Request { stream, .. } => Some(*stream),
            _ => None,
        });
        let key = key.expect("a request");
        shared.borrow_mut().begin(key, false);
        let sent = shared.borrow_mut().send_head(key, Status::OK, &Fields::new(), false);
        sent.expect("a head");
        let stream = TunnelStream { at: StreamRef { shared, key }, close: Cell::default() };
        let mut cx = Context::from_waker(Waker::noop());
        let written = stream.poll_write(&mut cx, b"content");
        assert!(matches!(written, Poll::Ready(Ok(7))), "{written:?}");
        (client, stream)
    }

    /// Writes everything to the client. Returns its content, and its end: 0, or a reset's code.
    fn received(client: &mut Connection, stream: &TunnelStream) -> (usize, Option<u32>) {
        let mut bytes = Vec::new();
        stream.at.shared.borrow_mut().fill(&mut bytes, 128 * 1024, 0);
        let (mut content, mut end) = (0, None);
        for event in handle(client, &bytes) {
            match event {
                Event::Data { len, ends, .. } => {
                    content += len;
                    end = end.or(ends.then_some(0));
                }
                Event::Reset { code, .. } => end = Some(code.0),
                _ => {}
            }
        }
        (content, end)
    }

    #[test]
    fn aborted_stream_keeps_its_content_and_has_no_end() {
        let (mut client, stream) = tunnel();
        stream.abort();
        assert_eq!(stream.close.get(), TunnelClose::Abort);
        assert_eq!(received(&mut client, &stream), (7, None));
        stream.shut_down();
        assert_eq!(received(&mut client, &stream), (0, Some(ErrorCode::CANCEL.0)));
    }

    #[test]
    fn stream_that_is_shut_down_is_reset_at_once() {
        let (mut client, stream) = tunnel();
        stream.shut_down();
        stream.abort();
        assert_eq!(stream.close.get(), TunnelClose::ShutDown);
        assert_eq!(received(&mut client, &stream), (0, Some(ErrorCode::CANCEL.0)));
    }

    #[test]
    fn ended_stream_has_its_end_behind_its_content() {
        let (mut client, stream) = tunnel();
        let ended = stream.poll_end(&mut Context::from_waker(Waker::noop()));
        assert!(ended.is_ready());
        assert_eq!(received(&mut client, &stream), (7, Some(0)));
    }
}
