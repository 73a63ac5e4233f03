//! The connection to a peer: TCP, a unix socket or memory, with or without TLS.
//!
//! [`Stream`] is the boundary: code above it does not depend on the transport, code below it does
//! not interpret the bytes. Reads go through [`Stream::poll_read`]. If a short read has emptied the
//! socket ([`Stream::is_emptied_by_short_read`]), the next wait costs no system call. Only
//! `Stream::plain_fd` exposes a descriptor: bytes written to it bypass any encryption of the
//! stream.

/// Calls the same method on either kind of socket, or another expression on a connection in memory.
macro_rules! each {
    ($stream:expr, $socket:ident => $call:expr, $end:ident => $instead:expr) => {
        match $stream {
            Socket::Tcp($socket) => $call,
            Socket::Unix($socket) => $call,
            Socket::Memory($end) => $instead,
        }
    };
}

mod byte_stream;
mod linger;
mod link;
mod liveness;
pub mod memory;
mod shutdown;
mod tls;
mod tunnel;
mod unread;

pub use byte_stream::ByteStream;
pub use linger::{LingerLimits, LingerReport};
pub use liveness::{Idle, PeerClose};
pub use shutdown::ShutdownHandle;
pub use tunnel::{Side, Tunnel, TunnelEnd, TunnelError, TunnelMeter};

use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, Waker, ready};

use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use memory::MemoryEnd;
use shutdown::ShutdownCell;
use tls::Tls;

/// The direction that a shutdown shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownHow {
    /// Reading: the reader sees the end of the stream and may still respond.
    Read,
    /// Both: all waits wake up, and writes fail.
    Both,
}

/// An open connection, registered with the worker's reactor.
#[derive(Debug)]
pub struct Stream {
    // Before `socket`: shutdown handles must be invalidated before the descriptor is closed.
    kick_cell: ShutdownCell,
    socket: Socket,
    /// The local address, cached once queried because it takes a system call. Boxed, because most
    /// connections never query it.
    arrived_at: OnceCell<Box<SocketAddr>>,
    /// The encryption, if any.
    tls: Option<Box<Tls>>,
    /// The connection ends with a reset, see [`reset_at_end`](Self::reset_at_end).
    ends_with_reset: Cell<bool>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Memory(MemoryEnd),
}

/// The address of either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// An address of the internet family.
    Inet(SocketAddr),
    /// A unix socket; its path does not identify a client, so it is not kept.
    Unix,
}

impl Stream {
    /// Takes over a TCP connection.
    pub fn from_tcp(socket: TcpStream) -> Self {
        Self::new(ShutdownCell::of_fd(socket.as_raw_fd()), Socket::Tcp(socket))
    }

    /// Takes over a unix connection.
    pub fn from_unix(socket: UnixStream) -> Self {
        Self::new(ShutdownCell::of_fd(socket.as_raw_fd()), Socket::Unix(socket))
    }

    /// Takes over one end of a connection in memory.
    pub fn from_memory(end: MemoryEnd) -> Self {
        Self::new(ShutdownCell::of_memory(end.shutdown_handle()), Socket::Memory(end))
    }

    fn new(kick_cell: ShutdownCell, socket: Socket) -> Self {
        Stream {
            kick_cell,
            socket,
            arrived_at: OnceCell::new(),
            tls: None,
            ends_with_reset: Cell::new(false),
        }
    }

    /// Waits for bytes, end of file or an error. Holds no buffer.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        if self.has_tls_input() {
            return Ok(());
        }
        each!(&self.socket, socket => socket.readable().await,
            end => poll_fn(|cx| end.poll_readable(cx)).await)
    }

    /// Like [`readable`](Self::readable), for hand-written futures.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_tls_input() {
            return Poll::Ready(Ok(()));
        }
        self.poll_recv_ready(cx)
    }

    /// True if bytes have arrived that are no longer in the socket.
    fn has_tls_input(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_input())
    }

    fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&self.socket, socket => socket.poll_read_ready(cx), end => end.poll_readable(cx))
    }

    /// Waits until the socket accepts bytes again.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn writable(&self) -> io::Result<()> {
        each!(&self.socket, socket => socket.writable().await,
            end => poll_fn(|cx| end.poll_writable(cx)).await)
    }

    /// Like [`writable`](Self::writable), for hand-written futures.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&self.socket, socket => socket.poll_write_ready(cx), end => end.poll_writable(cx))
    }

    /// Reads into `buffer` and returns the number of bytes; 0 at end of file.
    ///
    /// # Errors
    /// Errors of the socket, such as a reset by the peer.
    ///
    /// Where [a short read has emptied the socket](Self::is_emptied_by_short_read), readiness is
    /// cleared at once, which saves a system call that would only return `EAGAIN`. Later data
    /// raises a new event (the poller is edge-triggered).
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match &self.tls {
            None => self.poll_recv(cx, buffer),
            Some(tls) => tls.poll_read(self, cx, buffer),
        }
    }

    /// Reads bytes from the socket.
    fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            // Bypasses the standard library's call, a thread cancellation point with a cost.
            let received = each!(&self.socket, socket => {
                socket.try_io(Interest::READABLE, || {
                    Ok(rustix::net::recv(socket, &mut *buffer, RecvFlags::empty())?.0)
                })
            }, end => return end.poll_read(cx, buffer));
            match received {
                // Costs no system call until the reactor reports data.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_recv_ready(cx))?;
                }
                Ok(count) if count > 0 && count < buffer.len() => {
                    self.forget_readable();
                    return Poll::Ready(Ok(count));
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// Reads bytes from the socket, even if the reactor has reported none.
    fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        each!(&self.socket, socket => {
            let (count, _) = rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT)?;
            Ok(count)
        }, end => match end.poll_read(&mut Context::from_waker(Waker::noop()), buffer) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        })
    }

    /// True if a read that did not fill its buffer has read everything that has arrived. This holds
    /// for sockets without TLS.
    pub fn is_emptied_by_short_read(&self) -> bool {
        each!(&self.socket, _socket => self.tls.is_none(), _end => false)
    }

    /// Makes the next [`poll_readable`](Self::poll_readable) wait for a new event. A close already
    /// seen from the peer stays recorded.
    fn forget_readable(&self) {
        let would_block = || -> io::Result<()> { Err(io::ErrorKind::WouldBlock.into()) };
        // Returning this error is how readiness is cleared.
        let _ = each!(&self.socket, socket => socket.try_io(Interest::READABLE, would_block),
            _end => Ok(()));
    }

    /// [`poll_read`](Self::poll_read) as a future.
    ///
    /// # Errors
    /// Errors of the socket.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Writes as many bytes as the socket accepts now.
    ///
    /// # Errors
    /// `WouldBlock` if it accepts nothing; otherwise errors of the socket.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.try_send(bytes),
            Some(tls) => tls.try_write(self, &[IoSlice::new(bytes)]),
        }
    }

    /// [`try_write`](Self::try_write) for several pieces. With TLS they share records; otherwise
    /// only the first non-empty piece is written.
    ///
    /// # Errors
    /// As for [`try_write`](Self::try_write).
    pub(crate) fn try_write_pieces(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match (&self.tls, pieces.iter().find(|piece| !piece.is_empty())) {
            (Some(tls), _) => tls.try_write(self, pieces),
            (None, Some(piece)) => self.try_send(piece),
            (None, None) => Ok(0),
        }
    }

    /// Writes bytes to the socket unencrypted.
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        each!(&self.socket, socket => {
            socket.try_io(Interest::WRITABLE, || {
                Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
            })
        }, end => end.try_write(bytes))
    }

    /// Runs the caller's own non-blocking write on the `plain_fd`, if the socket
    /// is believed writable. A `WouldBlock` from it is recorded, so that
    /// [`writable`](Self::writable) then waits. `None` if there is no such descriptor.
    ///
    /// # Errors
    /// The error of `write`, or `WouldBlock` without having called it.
    pub(crate) fn try_write_with<T>(
        &self,
        write: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        if self.tls.is_some() {
            return None;
        }
        each!(&self.socket, socket => {
            Some(socket.try_io(Interest::WRITABLE, || write(socket.as_fd())))
        }, _end => None)
    }

    /// The descriptor, if bytes written to it reach the peer unchanged; for sending files.
    pub(crate) fn plain_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.tls.is_some() {
            return None;
        }
        each!(&self.socket, socket => Some(socket.as_fd()), _end => None)
    }

    /// Closes the write side; the peer sees the end of the stream.
    ///
    /// # Errors
    /// If the connection is already gone.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.close_notify();
        each!(&self.socket, socket => Ok(rustix::net::shutdown(socket, Shutdown::Write)?),
            end => end.shutdown_write())
    }

    /// True for TCP, the only transport on which a close can lose a response, and for memory, which
    /// behaves like it.
    pub fn is_tcp(&self) -> bool {
        !matches!(self.socket, Socket::Unix(_))
    }

    /// The peer's address.
    ///
    /// # Errors
    /// If the connection is already gone.
    pub fn peer(&self) -> io::Result<Peer> {
        match &self.socket {
            Socket::Tcp(socket) => socket.peer_addr().map(Peer::Inet),
            Socket::Unix(_) => Ok(Peer::Unix),
            Socket::Memory(end) => end.peer().map(Peer::Inet),
        }
    }

    /// The local address. Queried from the kernel once.
    ///
    /// # Errors
    /// If the connection is already gone.
    pub fn local(&self) -> io::Result<Peer> {
        let socket = match &self.socket {
            Socket::Tcp(socket) => socket,
            Socket::Unix(_) => return Ok(Peer::Unix),
            Socket::Memory(end) => return Ok(Peer::Inet(end.local())),
        };
        if let Some(known) = self.arrived_at.get() {
            return Ok(Peer::Inet(**known));
        }
        let address = socket.local_addr()?;
        Ok(Peer::Inet(**self.arrived_at.get_or_init(|| Box::new(address))))
    }

    /// Sends small segments immediately (TCP_NODELAY). Sockets accepted from our listeners inherit
    /// it. Unix sockets have no such option; the call succeeds.
    ///
    /// # Errors
    /// If the connection is already gone.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(socket) => socket.set_nodelay(nodelay),
            Socket::Unix(_) | Socket::Memory(_) => Ok(()),
        }
    }

    /// A second descriptor of the same socket, for a thread that must not see the first one closed
    /// and its number reused.
    ///
    /// # Errors
    /// EMFILE and others of the system; `Unsupported` without a `plain_fd`.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        match self.plain_fd() {
            Some(fd) => fd.try_clone_to_owned(),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// A handle that wakes the connection's reader or writer by shutting it down. It does not keep
    /// the connection open.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.kick_cell.shutdown_handle()
    }
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Stream::from_tcp(socket)
    }
}

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Self {
        Stream::from_unix(socket)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// A connected pair: our stream and the peer's plain blocking socket.
    pub(crate) async fn tcp_pair() -> (Stream, std::net::TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let peer = std::net::TcpStream::connect(listener.local_addr().expect("address"));
        let (ours, _) = listener.accept().await.expect("accept");
        (Stream::from_tcp(ours), peer.expect("connect"))
    }

    /// A connected pair over a unix socket.
    pub(crate) fn unix_pair() -> (Stream, std::os::unix::net::UnixStream) {
        let (ours, peer) = std::os::unix::net::UnixStream::pair().expect("pair");
        ours.set_nonblocking(true).expect("nonblocking");
        (Stream::from_unix(UnixStream::from_std(ours).expect("register")), peer)
    }

    #[tokio::test]
    async fn bytes_go_both_ways_over_tcp_and_unix() {
        let (tcp, tcp_peer) = tcp_pair().await;
        let (unix, unix_peer) = unix_pair();
        exchange(tcp, tcp_peer).await;
        exchange(unix, unix_peer).await;
    }

    async fn exchange(ours: Stream, mut peer: impl Read + Write) {
        peer.write_all(b"ping").expect("write");
        ours.readable().await.expect("readable");
        let mut buffer = [0; 16];
        assert_eq!(ours.read(&mut buffer).await.expect("read"), 4);
        ours.writable().await.expect("writable");
        assert_eq!(ours.try_write(b"pong").expect("write"), 4);
        assert_eq!(ours.try_write(b"!").expect("write"), 1);
        ours.set_nodelay(true).expect("nodelay");
        ours.shutdown_write().expect("shutdown");
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).expect("read");
        assert_eq!(heard, b"pong!");
    }

    #[tokio::test]
    async fn both_ends_have_a_name() {
        let (ours, peer) = tcp_pair().await;
        assert_eq!(ours.peer().expect("peer"), Peer::Inet(peer.local_addr().expect("address")));
        assert_eq!(ours.local().expect("local"), Peer::Inet(peer.peer_addr().expect("address")));
        assert!(ours.is_tcp());
    }

    #[tokio::test]
    async fn a_full_socket_would_block_and_then_waits() {
        let (ours, mut peer) = tcp_pair().await;
        ours.writable().await.expect("writable");
        let block = [7; 65_536];
        let mut sent = 0;
        loop {
            match ours.try_write(&block) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let called = ours.try_write_with(|_| -> io::Result<()> { panic!("not writable") });
        assert_eq!(called.expect("a socket").expect_err("full").kind(), io::ErrorKind::WouldBlock);
        let reader = std::thread::spawn(move || {
            peer.read_exact(&mut vec![0; sent]).expect("drain");
            peer
        });
        ours.writable().await.expect("writable again");
        reader.join().expect("reader");
    }
}
