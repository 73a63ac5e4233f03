//! Connecting to a backend.
//!
//! Uses the minimum of system calls: `socket`, `TCP_NODELAY`, `connect`, the reactor, the outcome.
//! Dropping the future closes the socket, so the caller can wrap it in a timeout.

pub mod blocking;
pub mod resolve;
mod target;

pub use target::Target;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream, UnixStream};

use crate::sandbox::{self, launcher};
use crate::simulated;
use crate::transport::Stream;

/// Default of [`ConnectOptions::full_backlog_ms`].
pub const FULL_BACKLOG_MS_DEFAULT: u64 = 1_000;

/// The pause between such retries grows from 1 ms to this.
const FULL_BACKLOG_PAUSE_MS_MAX: u64 = 16;

/// Options for connecting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The source address; port 0 lets the kernel choose the port. Only for TCP targets of the same
    /// family.
    pub source: Option<SocketAddr>,
    /// Time for retries if a unix socket's backlog is full, in milliseconds.
    pub full_backlog_ms: u64,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions { source: None, full_backlog_ms: FULL_BACKLOG_MS_DEFAULT }
    }
}

/// Connects. A TCP connection sends small segments immediately (TCP_NODELAY).
///
/// # Errors
/// The kernel's error: `ConnectionRefused`, `NotFound` for a unix socket without a file,
/// `WouldBlock` if its backlog stayed full, `HostUnreachable`, `AddrNotAvailable`.
pub async fn connect(target: &Target, options: &ConnectOptions) -> io::Result<Stream> {
    if let Some(world) = simulated::world() {
        return world.connect(target).await;
    }
    match target {
        Target::Tcp(address) => connect_tcp(*address, options).await.map(Stream::from_tcp),
        Target::Unix(path) => connect_unix(path, options).await.map(Stream::from_unix),
        Target::Abstract(name) => {
            connect_unix(&abstract_path(name), options).await.map(Stream::from_unix)
        }
    }
}

/// A connection for a library that reads and writes by itself, on any thread.
#[derive(Debug)]
pub enum DetachedSocket {
    /// Over TCP.
    Tcp(std::net::TcpStream),
    /// Over a unix socket.
    Unix(std::os::unix::net::UnixStream),
}

/// Connects like [`connect`], for a library that reads and writes by itself. The socket does not
/// block.
///
/// # Errors
/// As for [`connect`].
pub async fn connect_detached(
    target: &Target,
    options: &ConnectOptions,
) -> io::Result<DetachedSocket> {
    match target {
        Target::Tcp(address) => {
            connect_tcp(*address, options).await?.into_std().map(DetachedSocket::Tcp)
        }
        Target::Unix(path) => {
            connect_unix(path, options).await?.into_std().map(DetachedSocket::Unix)
        }
        Target::Abstract(name) => {
            let path = abstract_path(name);
            connect_unix(&path, options).await?.into_std().map(DetachedSocket::Unix)
        }
    }
}

/// The runtime's spelling of a name in the abstract name space.
fn abstract_path(name: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec([b"\0", name].concat()))
}

async fn connect_tcp(address: SocketAddr, options: &ConnectOptions) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_nodelay(true)?;
    if let Some(source) = options.source {
        bind_source(&socket, source)?;
    }
    let stream = match sandbox::forbids_port(address.port()) {
        false => socket.connect(address).await?,
        true => connect_by_launcher(socket, address).await?,
    };
    if may_be_itself(address) && stream.local_addr()? == address {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// Connects to a port that only a later configuration has.
async fn connect_by_launcher(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpStream> {
    // SAFETY: the number is that of the socket, which gives up its ownership.
    let socket = unsafe { OwnedFd::from_raw_fd(socket.into_raw_fd()) };
    launcher::connect(socket.as_fd(), address).await?;
    let stream = TcpStream::from_std(socket.into())?;
    stream.writable().await?;
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}

/// Binds without reserving a port yet. The kernel then chooses one that is free for this target
/// instead of one that is free for all targets.
fn bind_source(socket: &TcpSocket, source: SocketAddr) -> io::Result<()> {
    if source.port() == 0 {
        // A kernel before 4.2 refuses and reserves a port now: scarcer, but correct.
        let _ = bind_address_no_port(socket);
    }
    socket.bind(source)
}

fn bind_address_no_port(socket: &TcpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the value is an int that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True if a connection may be one of the socket to itself. A connect to an unused local port in
/// the kernel's ephemeral range may connect to itself (RFC 9293, section 3.5, simultaneous open)
/// and look established.
fn may_be_itself(address: SocketAddr) -> bool {
    /// The lowest ephemeral port of a kernel with default settings, less a margin.
    const EPHEMERAL_PORT_MIN: u16 = 10_000;
    address.ip().is_loopback() && address.port() >= EPHEMERAL_PORT_MIN
}

/// Connects, with retries while the backlog is full: the kernel then returns EAGAIN immediately,
/// and no event reports free space.
async fn connect_unix(path: &Path, options: &ConnectOptions) -> io::Result<UnixStream> {
    let mut waited_ms = 0;
    let mut pause_ms = 1;
    loop {
        match UnixStream::connect(path).await {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && waited_ms < options.full_backlog_ms =>
            {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                waited_ms += pause_ms;
                pause_ms = (pause_ms * 2).min(FULL_BACKLOG_PAUSE_MS_MAX);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

    use super::*;

    fn local(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    async fn greet(ours: Stream, mut peer: impl Read + Write) {
        ours.writable().await.expect("writable");
        ours.try_write(b"hello").expect("write");
        let mut heard = [0; 5];
        peer.read_exact(&mut heard).expect("read");
        assert_eq!(&heard, b"hello");
    }

    #[tokio::test]
    async fn tcp_and_both_kinds_of_unix_sockets_are_reached() {
        let options = ConnectOptions::default();
        let tcp = TcpListener::bind(local(0)).expect("bind");
        let target = Target::Tcp(tcp.local_addr().expect("address"));
        let stream = connect(&target, &options).await.expect("connect");
        assert!(
            socket2::SockRef::from(&stream.plain_fd().expect("a socket"))
                .tcp_nodelay()
                .expect("asked")
        );
        greet(stream, tcp.accept().expect("accept").0).await;

        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("socket");
        let unix = UnixListener::bind(&path).expect("bind");
        let stream = connect(&Target::unix(&path), &options).await.expect("connect");
        greet(stream, unix.accept().expect("accept").0).await;

        let name = format!("lighty-connect-{}", std::process::id());
        let address = UnixAddr::from_abstract_name(&name).expect("name");
        let hidden = UnixListener::bind_addr(&address).expect("bind");
        let target = Target::unix(Path::new(&format!("@{name}")));
        assert_eq!(target.to_string(), format!("unix:@{name}"));
        greet(
            connect(&target, &options).await.expect("connect"),
            hidden.accept().expect("accept").0,
        )
        .await;
    }

    #[tokio::test]
    async fn the_source_address_is_what_the_peer_sees() {
        let listener = TcpListener::bind(local(0)).expect("bind");
        let target = Target::Tcp(listener.local_addr().expect("address"));
        let source = SocketAddr::from(([127, 0, 0, 77], 0));
        let options = ConnectOptions { source: Some(source), ..ConnectOptions::default() };
        let _ours = connect(&target, &options).await.expect("connect");
        assert_eq!(listener.accept().expect("accept").1.ip(), source.ip());
        let wrong = ConnectOptions { source: Some(([192, 0, 2, 1], 0).into()), ..options };
        let error = connect(&target, &wrong).await.expect_err("not ours");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[tokio::test]
    async fn a_missing_server_is_reported_at_once() {
        let options = ConnectOptions::default();
        let free = TcpListener::bind(local(0)).expect("bind").local_addr().expect("address");
        let error = connect(&Target::Tcp(free), &options).await.expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let dir = tempfile::tempdir().expect("tempdir");
        let missing = Target::unix(&dir.path().join("missing"));
        let error = connect(&missing, &options).await.expect_err("missing");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let dead = dir.path().join("dead");
        drop(UnixListener::bind(&dead).expect("bind"));
        let error = connect(&Target::unix(&dead), &options).await.expect_err("dead");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn a_connection_to_itself_is_none() {
        let free = TcpListener::bind(local(0)).expect("bind").local_addr().expect("address");
        let options = ConnectOptions { source: Some(free), ..ConnectOptions::default() };
        let error = connect(&Target::Tcp(free), &options).await.expect_err("itself");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn a_full_unix_backlog_is_waited_for_and_not_for_ever() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("socket");
        let bound = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
        let bound = bound.expect("socket");
        bound.bind(&socket2::SockAddr::unix(&path).expect("address")).expect("bind");
        bound.listen(0).expect("listen");
        let target = Target::unix(&path);
        let short = ConnectOptions { full_backlog_ms: 3, ..ConnectOptions::default() };
        let mut queued = Vec::new();
        let error = loop {
            match connect(&target, &short).await {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!((error.kind(), queued.len()), (io::ErrorKind::WouldBlock, 1));
        let long = ConnectOptions { full_backlog_ms: 20_000, ..short };
        let (late, accepted) = tokio::join!(connect(&target, &long), async {
            tokio::task::yield_now().await;
            bound.accept()
        });
        late.expect("room in the end");
        accepted.expect("accept");
    }
}
