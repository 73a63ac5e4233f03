//! The connection of a client or a backend in memory, in clear text or with TLS.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lighty_io::transport::memory::MemoryEnd;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use tokio::time::timeout;

use super::sabotage::{Bug, Tap};
use super::site::PATIENCE_S;

/// Plaintext that waits to be sealed; a writer waits beyond it.
const UNSENT_BYTES_MAX: usize = 16_384;

/// One end of a connection. It has the methods of [`MemoryEnd`].
pub(crate) struct Wire {
    end: MemoryEnd,
    tls: Option<RefCell<Tls>>,
    /// A planted bug.
    tap: Option<RefCell<Tap>>,
}

/// This side of TLS.
struct Tls {
    session: Connection,
    /// Records that the connection has not taken yet.
    sealed: Vec<u8>,
    /// Received bytes that are not opened yet.
    received: Vec<u8>,
    /// The peer's end of stream has arrived.
    is_ended: bool,
    /// The peer's close_notify has arrived.
    is_complete: bool,
    /// The peer's violation of TLS.
    fault: Option<rustls::Error>,
}

impl Wire {
    pub(crate) fn plain(end: MemoryEnd) -> Wire {
        Wire { end, tls: None, tap: None }
    }

    /// Begins TLS; the handshake is part of the first reads and writes.
    pub(crate) fn secure(end: MemoryEnd, config: &Arc<ClientConfig>) -> Wire {
        let name = ServerName::try_from("simulated").expect("a name");
        let session = ClientConnection::new(Arc::clone(config), name).expect("a session");
        Self::over(end, session.into())
    }

    /// Like [`secure`](Self::secure), as the server of the connection.
    pub(crate) fn accept(end: MemoryEnd, config: &Arc<ServerConfig>) -> Wire {
        let session = ServerConnection::new(Arc::clone(config)).expect("a session");
        Self::over(end, session.into())
    }

    fn over(end: MemoryEnd, session: Connection) -> Wire {
        let (sealed, received) = (Vec::new(), Vec::new());
        let tls =
            Tls { session, sealed, received, is_ended: false, is_complete: false, fault: None };
        Wire { end, tls: Some(RefCell::new(tls)), tap: None }
    }

    /// Plants a bug in what the client reads, if it concerns this connection.
    pub(crate) fn with_bug(mut self, bug: Option<Bug>, is_h2: bool) -> Wire {
        let tap = bug.and_then(|bug| Tap::new(bug, is_h2, self.is_tls()));
        self.tap = tap.map(RefCell::new);
        self
    }

    /// Tells a planted bug that the client has reset a stream.
    pub(crate) fn note_reset(&self) {
        if let Some(tap) = &self.tap {
            tap.borrow_mut().has_reset = true;
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns true if the connection ended without close_notify: the client knows then that a
    /// response that ends with the connection was cut.
    pub(crate) fn is_truncated(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.borrow().is_complete)
    }

    /// Returns the peer's violation of TLS, if there was one.
    pub(crate) fn take_fault(&self) -> Option<rustls::Error> {
        self.tls.as_ref().and_then(|tls| tls.borrow_mut().fault.take())
    }

    /// Returns true once nothing more can arrive.
    pub(crate) fn is_ended(&self) -> bool {
        self.end.is_ended()
    }

    /// Resets the connection.
    pub(crate) fn reset(&self) {
        self.end.reset();
    }

    /// Ends this end's stream, after what it has written before. If the peer does not read for
    /// long, the rest is lost.
    pub(crate) async fn shutdown_write(&self) {
        if let Some(tls) = &self.tls {
            tls.borrow_mut().session.send_close_notify();
            self.settle().await;
            tls.borrow_mut().sealed.clear();
        }
        // An error means that the peer has reset the connection.
        let _ = self.end.shutdown_write();
    }

    /// Waits until the connection has taken all records, unless the peer does not read for long.
    pub(crate) async fn settle(&self) {
        if self.is_tls() {
            let _ = timeout(Duration::from_secs(PATIENCE_S), self.writable()).await;
        }
    }

    /// Reads received bytes; 0 at the end.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let Some(tap) = &self.tap else { return self.poll_plain(cx, buffer) };
        let mut tap = tap.borrow_mut();
        let mut piece = [0; 16_384];
        loop {
            if !tap.ready.is_empty() {
                let count = tap.ready.len().min(buffer.len());
                buffer[..count].copy_from_slice(&tap.ready[..count]);
                tap.ready.drain(..count);
                return Poll::Ready(Ok(count));
            }
            match ready!(self.poll_plain(cx, &mut piece)) {
                Err(_) if tap.hides_resets() => return Poll::Ready(Ok(0)),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(0) => return Poll::Ready(Ok(0)),
                Ok(count) => tap.take(&piece[..count]),
            }
        }
    }

    /// Reads what has arrived, without TLS.
    fn poll_plain(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let Some(tls) = &self.tls else { return self.end.poll_read(cx, buffer) };
        let mut tls = tls.borrow_mut();
        loop {
            if tls.flush(&self.end).is_err() {
                // Bytes that arrived before are still read.
                tls.sealed.clear();
            }
            match tls.session.reader().read(buffer) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !tls.is_ended => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Ok(0));
                }
                // A truncated stream: the framing above shows what is missing.
                Err(_) => return Poll::Ready(Ok(0)),
            }
            if !tls.received.is_empty() {
                tls.open()?;
                continue;
            }
            if !tls.sealed.is_empty() && self.end.poll_writable(cx).is_ready() {
                continue;
            }
            let mut piece = [0; 8_192];
            match self.end.poll_read(cx, &mut piece) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(count)) => tls.take(&piece[..count])?,
            }
        }
    }

    /// Writes as much as there is room for; `WouldBlock` if there is none.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else { return self.end.try_write(bytes) };
        let mut tls = tls.borrow_mut();
        tls.flush(&self.end)?;
        if !tls.sealed.is_empty() || tls.session.is_handshaking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = tls.session.writer().write(&bytes[..bytes.len().min(UNSENT_BYTES_MAX)])?;
        tls.flush(&self.end)?;
        Ok(count)
    }

    /// Writes all bytes.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for room, or for the error that a write would report.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_writable(cx)).await
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(tls) = &self.tls else { return self.end.poll_writable(cx) };
        let mut tls = tls.borrow_mut();
        loop {
            tls.flush(&self.end)?;
            if tls.sealed.is_empty() && !tls.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if !tls.sealed.is_empty() {
                match self.end.poll_writable(cx) {
                    Poll::Pending if !tls.session.is_handshaking() => return Poll::Pending,
                    Poll::Pending => {}
                    Poll::Ready(_) => continue,
                }
            }
            // The handshake goes on with the peer's records.
            let mut piece = [0; 8_192];
            match self.end.poll_read(cx, &mut piece) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                Poll::Ready(Ok(count)) => tls.take(&piece[..count])?,
            }
        }
    }
}

impl Tls {
    /// Takes received bytes; none at the end.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.is_ended |= bytes.is_empty();
        self.received.extend_from_slice(bytes);
        self.open()
    }

    /// Opens received records, up to the first with plaintext: rustls keeps little of it.
    fn open(&mut self) -> io::Result<()> {
        while !self.received.is_empty() {
            let count = self.session.read_tls(&mut &self.received[..])?;
            self.received.drain(..count);
            match self.session.process_new_packets() {
                Ok(state) => {
                    self.is_complete |= state.peer_has_closed();
                    if state.plaintext_bytes_to_read() > 0 {
                        break;
                    }
                }
                // The peer gives up, which its log and the connection's limits explain.
                Err(error @ rustls::Error::AlertReceived(_)) => {
                    return Err(io::Error::other(error));
                }
                Err(error) => {
                    self.fault = Some(error.clone());
                    return Err(io::Error::other(error));
                }
            }
        }
        Ok(())
    }

    /// Writes records as far as the connection takes them.
    fn flush(&mut self, end: &MemoryEnd) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.sealed)?;
        }
        while !self.sealed.is_empty() {
            match end.try_write(&self.sealed) {
                Ok(count) => {
                    self.sealed.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
