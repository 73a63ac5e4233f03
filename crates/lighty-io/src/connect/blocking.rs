//! Connections of threads that may block.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use socket2::{Domain, Socket, Type};

use crate::clock::deadline::Deadline;
use crate::sandbox::{self, launcher};

/// Timeout for one address of a host, so that time remains for the next.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// A connection with one deadline for all calls together; after it they fail with
/// [`io::ErrorKind::TimedOut`].
pub struct BlockingSocket {
    socket: TcpStream,
    deadline: Deadline,
}

impl BlockingSocket {
    /// Connects to the first address of a host that accepts.
    ///
    /// # Errors
    /// The name cannot be resolved, or no address accepts in time.
    pub fn connect(host: &str, port: u16, deadline: Deadline) -> io::Result<Self> {
        let host = host.trim_matches(['[', ']']);
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            let patience = deadline.left().min(CONNECT_PATIENCE);
            if patience.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match connect_to(address, patience) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    return Ok(Self { socket, deadline });
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.left();
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

fn connect_to(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    if !sandbox::forbids_port(address.port()) {
        return TcpStream::connect_timeout(&address, patience);
    }
    // A port that only a later configuration has.
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    launcher::connect_blocking(socket.as_fd(), address)?;
    let limit = Timespec::try_from(patience).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut watched = [PollFd::new(&socket, PollFlags::OUT)];
    if rustix::io::retry_on_intr(|| rustix::event::poll(&mut watched, Some(&limit)))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}

/// Converts the error of a socket's timeout, `WouldBlock`, to `TimedOut`.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for BlockingSocket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(buf).map_err(timed_out)
    }
}

impl Write for BlockingSocket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(buf).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
