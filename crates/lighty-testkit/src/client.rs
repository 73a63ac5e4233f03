//! A raw client: sends exactly the given bytes, when told to, and reads responses with the strict
//! reader of [`crate::response`]. Every wait has a deadline; missing it fails the test.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use rustls::{ClientConnection, StreamOwned};

use crate::response::{BodyFraming, Chunks, Head, Response, parse_head};

/// Time limit of a client's single wait, after which the test fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Kind of a connection's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionEnd {
    /// The peer closed its side in order.
    Closed,
    /// The peer reset the connection.
    Reset,
    /// The peer closed its side without close_notify over TLS.
    Torn,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A connection to a server.
pub struct Client {
    socket: Socket,
    /// Bytes received but not yet used by a response.
    pending: Vec<u8>,
}

impl Client {
    /// Connects over TCP.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        Self::try_tcp(address).expect("the server accepts a connection")
    }

    /// Connects over TCP.
    ///
    /// # Errors
    /// The error of `connect`, for example if no server listens.
    pub fn try_tcp(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_nodelay(true)?;
        Ok(Self::over(Socket::Tcp(stream)))
    }

    /// Connects over TCP with a receive buffer of about `bytes`, so that the server's send buffer
    /// soon fills up.
    #[must_use]
    pub fn tcp_with_receive_buffer(address: SocketAddr, bytes: usize) -> Self {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        // Not inherited by servers that other tests start: they would hold the connection open.
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        sockopt::set_socket_recv_buffer_size(&socket, bytes).expect("SO_RCVBUF");
        rustix::net::connect(&socket, &address).expect("the server accepts a connection");
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Self::over(Socket::Tcp(stream))
    }

    /// Connects to a unix socket.
    #[must_use]
    pub fn unix(path: &Path) -> Self {
        Self::over(Socket::Unix(UnixStream::connect(path).expect("the server accepts")))
    }

    /// Wraps a TLS connection.
    #[must_use]
    pub fn over_tls(stream: StreamOwned<ClientConnection, TcpStream>) -> Self {
        Self::over(Socket::Tls(Box::new(stream)))
    }

    fn over(socket: Socket) -> Self {
        let client = Self { socket, pending: Vec::new() };
        client.set_deadline(DEADLINE);
        client
    }

    /// Sets the time limit of reads and writes.
    pub fn set_deadline(&self, deadline: Duration) {
        let both = match &self.socket {
            Socket::Tcp(s) => s
                .set_read_timeout(Some(deadline))
                .and_then(|()| s.set_write_timeout(Some(deadline))),
            Socket::Tls(s) => s
                .sock
                .set_read_timeout(Some(deadline))
                .and_then(|()| s.sock.set_write_timeout(Some(deadline))),
            Socket::Unix(s) => s
                .set_read_timeout(Some(deadline))
                .and_then(|()| s.set_write_timeout(Some(deadline))),
        };
        both.expect("socket time-outs");
    }

    /// Sends bytes; fails the test if the peer does not accept them.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server takes the bytes");
    }

    /// Sends bytes that the peer may reject by closing.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(s) => s.write_all(bytes.as_ref()),
            Socket::Unix(s) => s.write_all(bytes.as_ref()),
            Socket::Tls(s) => s.write_all(bytes.as_ref()).and_then(|()| s.flush()),
        }
    }

    /// Sends bytes in pieces of the given size, each a segment of its own.
    pub fn send_in_pieces(&mut self, bytes: &[u8], piece: usize) {
        for part in bytes.chunks(piece) {
            if self.try_send(part).is_err() {
                // A rejected request: the caller reads the response.
                return;
            }
        }
    }

    /// Closes the sending direction only.
    pub fn half_close(&self) {
        let done = match &self.socket {
            Socket::Tcp(s) => s.shutdown(Shutdown::Write),
            Socket::Unix(s) => s.shutdown(Shutdown::Write),
            Socket::Tls(s) => s.sock.shutdown(Shutdown::Write),
        };
        done.expect("shutdown");
    }

    /// Closes the sending direction, unless the peer has already closed the connection.
    pub fn half_close_quietly(&self) {
        let _ = match &self.socket {
            Socket::Tcp(s) => s.shutdown(Shutdown::Write),
            Socket::Unix(s) => s.shutdown(Shutdown::Write),
            Socket::Tls(s) => s.sock.shutdown(Shutdown::Write),
        };
    }

    /// Resets the connection: the peer sees RST instead of FIN.
    pub fn reset(self) {
        sockopt::set_socket_linger(&self, Some(Duration::ZERO)).expect("SO_LINGER");
    }

    /// Reads the response to a request other than HEAD.
    #[must_use]
    pub fn response(&mut self) -> Response {
        self.try_response(false).unwrap_or_else(|error| panic!("no proper response: {error}"))
    }

    /// Reads the response to a HEAD request: a head without a body.
    #[must_use]
    pub fn response_to_head(&mut self) -> Response {
        self.try_response(true).unwrap_or_else(|error| panic!("no proper response: {error}"))
    }

    /// Reads a response.
    ///
    /// # Errors
    /// A description of a truncated or malformed response, with the received bytes.
    pub fn try_response(&mut self, to_head: bool) -> Result<Response, String> {
        let mut interim = Vec::new();
        loop {
            let Head { mut response, framing, length } = self.head(to_head)?;
            self.pending.drain(..length);
            if response.status < 200 {
                interim.push(response.status);
                continue;
            }
            response.interim = interim;
            response.until_close = framing == BodyFraming::UntilClose;
            (response.body, response.trailers) = self.body(framing)?;
            return Ok(response);
        }
    }

    /// Reads one interim response (1xx) and returns its status.
    #[must_use]
    pub fn interim(&mut self) -> u16 {
        let head = self.head(false).unwrap_or_else(|error| panic!("no interim response: {error}"));
        assert!(head.response.status < 200, "a final response came: {:?}", head.response);
        self.pending.drain(..head.length);
        head.response.status
    }

    /// Reads only the head of a response. Read the body with [`Client::read_exact`].
    #[must_use]
    pub fn response_head(&mut self) -> Response {
        let head = self.head(false).unwrap_or_else(|error| panic!("no proper head: {error}"));
        self.pending.drain(..head.length);
        head.response
    }

    /// True if received bytes have not been used by a response yet.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn head(&mut self, to_head: bool) -> Result<Head, String> {
        loop {
            if let Some(head) = parse_head(&self.pending, to_head)? {
                return Ok(head);
            }
            match self.fill() {
                Ok(0) => return Err(self.torn("closed within a head")),
                Ok(_) => {}
                Err(error) => return Err(self.torn(&format!("{error} within a head"))),
            }
        }
    }

    fn torn(&self, what: &str) -> String {
        let shown = &self.pending[..self.pending.len().min(300)];
        format!("{what}; received {:?}", String::from_utf8_lossy(shown))
    }

    fn body(&mut self, framing: BodyFraming) -> Result<(Vec<u8>, Vec<String>), String> {
        match framing {
            BodyFraming::Length(length) => {
                let length = usize::try_from(length).map_err(|e| e.to_string())?;
                while self.pending.len() < length {
                    let got = self.pending.len();
                    match self.fill() {
                        Ok(0) => return Err(format!("closed after {got} of {length} bytes")),
                        Ok(_) => {}
                        Err(error) => return Err(format!("{error} after {got} of {length}")),
                    }
                }
                let rest = self.pending.split_off(length);
                Ok((std::mem::replace(&mut self.pending, rest), Vec::new()))
            }
            BodyFraming::Chunked => {
                let mut chunks = Chunks::default();
                while !chunks.take(&mut self.pending)? {
                    match self.fill() {
                        Ok(0) => return Err(self.torn("closed within a chunked body")),
                        Ok(_) => {}
                        Err(error) => return Err(self.torn(&error.to_string())),
                    }
                }
                Ok((chunks.body, chunks.trailers))
            }
            BodyFraming::UntilClose => {
                while self.fill().map_err(|error| error.to_string())? > 0 {}
                Ok((std::mem::take(&mut self.pending), Vec::new()))
            }
        }
    }

    /// Reads exactly `count` raw bytes.
    ///
    /// # Errors
    /// The number of bytes received before the connection ended.
    pub fn read_exact(&mut self, count: usize) -> Result<Vec<u8>, usize> {
        while self.pending.len() < count {
            match self.fill() {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(self.pending.len()),
            }
        }
        let rest = self.pending.split_off(count);
        Ok(std::mem::replace(&mut self.pending, rest))
    }

    /// Reads everything until the connection ends; fails the test if it stays open.
    pub fn read_to_end(&mut self) -> (Vec<u8>, ConnectionEnd) {
        loop {
            match self.fill() {
                Ok(0) => return (std::mem::take(&mut self.pending), ConnectionEnd::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return (std::mem::take(&mut self.pending), ConnectionEnd::Torn);
                }
                Err(error) if is_reset(&error) => {
                    return (std::mem::take(&mut self.pending), ConnectionEnd::Reset);
                }
                Err(error) => panic!("the connection stays open: {error}"),
            }
        }
    }

    /// Fails the test unless the peer closes (or resets) without sending another byte.
    pub fn expect_end(&mut self) -> ConnectionEnd {
        let (rest, end) = self.read_to_end();
        assert!(rest.is_empty(), "unasked bytes: {:?}", String::from_utf8_lossy(&rest));
        end
    }

    /// True if neither bytes nor an end of the connection arrive within `wait`.
    #[must_use]
    pub fn stays_silent(&mut self, wait: Duration) -> bool {
        self.set_deadline(wait);
        let silent = self.pending.is_empty()
            && matches!(self.fill(), Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        self.set_deadline(DEADLINE);
        silent
    }

    fn fill(&mut self) -> std::io::Result<usize> {
        let mut piece = [0; 64 * 1024];
        let mut read = || match &mut self.socket {
            Socket::Tcp(s) => s.read(&mut piece),
            Socket::Unix(s) => s.read(&mut piece),
            Socket::Tls(s) => s.read(&mut piece),
        };
        // Stopping and continuing a process interrupts reads with a time limit (signal(7)).
        let count = loop {
            match read() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        self.pending.extend_from_slice(&piece[..count]);
        Ok(count)
    }
}

fn is_reset(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(s) => s.as_fd(),
            Socket::Unix(s) => s.as_fd(),
            Socket::Tls(s) => s.sock.as_fd(),
        }
    }
}
