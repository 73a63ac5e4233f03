//! Listening sockets: binding, inheriting, accepting.
//!
//! Binding happens once, before privileges are dropped, and gives a [`BoundSocket`], a plain value
//! that can be handed to a worker thread. The worker turns it into a [`Listener`] inside its
//! runtime. With `reuse_port` each worker binds its own socket and the kernel distributes
//! connections; otherwise the workers share one through [`BoundSocket::try_clone`].

mod closing;
pub(crate) mod handshakes;
mod inherit;
mod interfaces;
mod mend;
mod mptcp;
mod private_dir;
mod program_socket;
mod refused;
mod reserve;
mod reuse_port;
mod spec;

pub use closing::CLOSING_TIME;
pub use inherit::{Inherited, inherited_sockets};
pub use interfaces::network_addresses;
pub use mend::RebindSpec;
pub use private_dir::PrivateDir;
pub use program_socket::{ProgramSocket, ProgramSocketError, socket_on_stdin};
pub use reserve::ChangedMode;
pub use spec::{BindSpec, BindSpecError, PreferredFamily};

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, UnixListener};

use crate::process::predecessor;
use crate::sandbox::launcher;
use crate::transport::{Peer, Stream};

/// True if this machine has the address, so that it can be bound.
pub fn is_of_this_machine(ip: std::net::IpAddr) -> bool {
    let bound = std::net::UdpSocket::bind((ip, 0));
    bound.err().is_none_or(|error| error.kind() != io::ErrorKind::AddrNotAvailable)
}

/// The default backlog; the kernel caps it at net.core.somaxconn.
pub const LISTEN_BACKLOG_DEFAULT: i32 = 1_024;

/// Descriptors that each listener reserves, so that accepted connections can still open a file when
/// the process runs out.
pub const RESERVE_DESCRIPTORS: usize = 4;

/// Options for binding a socket.
#[derive(Clone, Debug)]
pub struct BindOptions {
    /// Connections that the kernel queues until they are accepted.
    pub backlog: i32,
    /// One socket per worker, balanced by the kernel (SO_REUSEPORT). Not for unix sockets.
    pub reuse_port: bool,
    /// `[::]` accepts IPv6 only and leaves IPv4 to another socket.
    pub v6_only: bool,
    /// Seconds that the kernel waits for the first bytes before it reports a connection
    /// (TCP_DEFER_ACCEPT); `None` is off.
    pub defer_accept_s: Option<u32>,
    /// Multipath TCP (RFC 8684), if the system has it.
    pub mptcp: bool,
    /// Access bits of a unix socket, e.g. `0o660`; `None` leaves them to the umask.
    pub unix_mode: Option<u32>,
}

impl Default for BindOptions {
    fn default() -> Self {
        BindOptions {
            backlog: LISTEN_BACKLOG_DEFAULT,
            reuse_port: false,
            v6_only: true,
            defer_accept_s: None,
            mptcp: false,
            unix_mode: None,
        }
    }
}

/// A listening socket not yet attached to a runtime.
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    address: BindSpec,
    origin: SocketOrigin,
}

/// Origin of a socket, which limits the operations on it.
#[derive(Clone, Debug)]
enum SocketOrigin {
    /// Bound by this process with these options.
    Bound(BindOptions),
    /// Another process may keep listening on it after this one exits.
    Inherited,
}

/// The file of a unix socket. Dropping it removes the file if it is still the one that was bound,
/// so the owner keeps it until the server ends.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    dev: u64,
    ino: u64,
}

impl BoundSocket {
    /// Binds and listens.
    ///
    /// A stale unix socket file is removed first. One that is still in use, or a file of another
    /// kind, is left alone.
    ///
    /// # Errors
    /// The kernel's error, with the address and the cause in the text: the holder of the port, the
    /// missing privilege.
    pub fn bind(spec: &BindSpec, options: &BindOptions) -> io::Result<Self> {
        let bound = Self::reserve(spec, options)?;
        bound.listen(options.backlog).map_err(|error| cannot_bind(spec, &error))?;
        Ok(bound)
    }

    /// Checks that an address is free for a socket that does not share it. Does not listen, because
    /// connections would not be accepted.
    ///
    /// # Errors
    /// The kernel's error, with the address in the text.
    pub fn refuse_taken(address: SocketAddr, options: &BindOptions) -> io::Result<()> {
        let alone = BindOptions { reuse_port: false, ..options.clone() };
        let bound = bound_inet(address, &alone).map(drop);
        bound.map_err(|error| cannot_bind(&BindSpec::Inet(address), &error))
    }

    /// The bound address, with the port the kernel chose if 0 was requested.
    pub fn address(&self) -> &BindSpec {
        &self.address
    }

    /// A second handle to the same socket, for another worker.
    ///
    /// # Errors
    /// EMFILE and other errors of the system.
    pub fn try_clone(&self) -> io::Result<Self> {
        let (address, origin) = (self.address.clone(), self.origin.clone());
        Ok(BoundSocket { socket: self.socket.try_clone()?, address, origin })
    }

    /// True if IPv4 clients reach it too, although its address is IPv6.
    pub fn takes_ipv4(&self) -> bool {
        !self.socket.only_v6().unwrap_or(true)
    }

    /// A second descriptor of the same socket, for another process to accept on.
    ///
    /// # Errors
    /// EMFILE and other errors of the system.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }

    /// Waits until a connection is pending that will be accepted elsewhere.
    ///
    /// # Errors
    /// EMFILE and other errors of the system.
    pub async fn has_caller(&self) -> io::Result<()> {
        // SAFETY: an `OwnedFd` that is not replaced refers to the same open descriptor for as long
        // as it lives, and the registration owns it.
        let heard =
            unsafe { AsyncFd::register_with_interest(self.duplicate()?, Interest::READABLE) }?;
        heard.readable().await.map(|_| ())
    }

    /// Closes a pending connection. No program that accepts on this socket may be running: its
    /// socket would briefly be non-blocking.
    ///
    /// # Errors
    /// None is pending; EMFILE and other errors of the system.
    pub fn refuse_caller(&self) -> io::Result<()> {
        self.socket.set_nonblocking(true)?;
        let accepted = self.socket.accept().map(drop);
        self.socket.set_nonblocking(false)?;
        accepted
    }

    /// The guard of the socket file, if there is one.
    pub fn socket_file(&self) -> Option<SocketFile> {
        let BindSpec::Unix(path) = &self.address else { return None };
        let meta = std::fs::symlink_metadata(path).ok()?;
        Some(SocketFile { path: path.clone(), dev: meta.dev(), ino: meta.ino() })
    }

    /// Registers the socket with this thread's runtime.
    ///
    /// # Errors
    /// If the reactor cannot take it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn into_listener(self) -> io::Result<Listener> {
        self.socket.set_nonblocking(true)?;
        let socket = match &self.address {
            BindSpec::Inet(_) => Accepting::Tcp(TcpListener::from_std(self.socket.into())?),
            BindSpec::Unix(_) => Accepting::Unix(UnixListener::from_std(self.socket.into())?),
        };
        let (address, origin) = (self.address, self.origin);
        let mut listener = Listener { socket, address, origin, reserve: Vec::new(), passed: 0 };
        // Filled later if descriptors are short now, see `poll_accept`.
        let _ = listener.fill_reserve();
        Ok(listener)
    }
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn cannot_bind(spec: &BindSpec, error: &io::Error) -> io::Error {
    let why = refused::reason(spec, error);
    io::Error::new(error.kind(), format!("cannot bind {spec}: {error}{why}"))
}

/// A socket bound to an address but not yet listening.
fn bound_inet(address: SocketAddr, options: &BindOptions) -> io::Result<Socket> {
    let socket = mptcp::stream_socket(address, options.mptcp)?;
    socket.set_reuse_address(true)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(options.v6_only)?;
    }
    // Connections inherit this from the listener, which saves a call for each.
    socket.set_tcp_nodelay(true)?;
    match socket.bind(&SockAddr::from(address)) {
        // The sandbox's rules have the ports of the start only.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            launcher::bind(socket.as_fd(), address)?;
        }
        bound => bound?,
    }
    Ok(socket)
}

fn reserve_inet(address: SocketAddr, options: &BindOptions) -> io::Result<BoundSocket> {
    let socket = bound_inet(address, options)?;
    if let Some(seconds) = options.defer_accept_s {
        set_defer_accept(&socket, seconds)?;
    }
    let address = BindSpec::Inet(local_inet(&socket)?);
    Ok(BoundSocket { socket, address, origin: SocketOrigin::Bound(options.clone()) })
}

fn local_inet(socket: &Socket) -> io::Result<SocketAddr> {
    let no_address = || io::Error::new(io::ErrorKind::InvalidInput, "not an internet address");
    socket.local_addr()?.as_socket().ok_or_else(no_address)
}

fn set_defer_accept(socket: &Socket, seconds: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let seconds = libc::c_int::try_from(seconds).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open for the whole call, and the option takes one c_int, which the
    // pointer and the size describe.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn reserve_unix(path: &Path, options: &BindOptions) -> io::Result<BoundSocket> {
    if let Some(name) = path.as_os_str().as_bytes().strip_prefix(b"@") {
        return bind_abstract(path, name, options);
    }
    if predecessor::listens_on(path) {
        return replace_unix(path, options);
    }
    remove_stale_socket(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Before `listen`, so that no client can connect under the wrong access bits.
    if let Some(mode) = options.unix_mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    let address = BindSpec::Unix(path.to_path_buf());
    Ok(BoundSocket { socket, address, origin: SocketOrigin::Bound(options.clone()) })
}

/// Takes the path from a socket of the server before this one, whose connections go on. Clients
/// always find one of the two sockets there.
fn replace_unix(path: &Path, options: &BindOptions) -> io::Result<BoundSocket> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".next");
    let aside = PathBuf::from(aside);
    remove_stale_socket(&aside)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(&aside)?)?;
    let named = options
        .unix_mode
        .map_or(Ok(()), |mode| {
            std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(mode))
        })
        .and_then(|()| socket.listen(options.backlog))
        .and_then(|()| std::fs::rename(&aside, path));
    if let Err(error) = named {
        let _ = std::fs::remove_file(&aside);
        return Err(error);
    }
    let address = BindSpec::Unix(path.to_path_buf());
    Ok(BoundSocket { socket, address, origin: SocketOrigin::Bound(options.clone()) })
}

/// A socket without a file, in the abstract name space of Linux.
fn bind_abstract(path: &Path, name: &[u8], options: &BindOptions) -> io::Result<BoundSocket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(OsStr::from_bytes(&[b"\0", name].concat()))?)?;
    socket.listen(options.backlog)?;
    let address = BindSpec::Unix(path.to_path_buf());
    Ok(BoundSocket { socket, address, origin: SocketOrigin::Bound(options.clone()) })
}

/// Removes a dead server's socket file, and nothing else.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    if check_stale(path)? { std::fs::remove_file(path) } else { Ok(()) }
}

/// Returns true if a dead server's socket file is in the way. Fails if something else is.
fn check_stale(path: &Path) -> io::Result<bool> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let taken = |why: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, why.to_owned()));
    if !meta.file_type().is_socket() {
        return taken("the path exists and is not a socket");
    }
    match StdUnixStream::connect(path) {
        Ok(_) => taken("another server listens on it"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) => Err(error),
    }
}

impl SocketFile {
    /// Moves the socket to another path, replacing the file there. Does nothing if it already is at
    /// that path.
    ///
    /// # Errors
    /// The errors of `rename`.
    pub fn move_to(&mut self, path: &Path) -> io::Result<()> {
        if self.path != path {
            std::fs::rename(&self.path, path)?;
            self.path = path.to_owned();
        }
        Ok(())
    }
}

impl SocketFile {
    /// Leaves the file where it is: the socket belongs to another process now.
    pub fn leave(mut self) {
        // No file has this number.
        self.ino = 0;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == (self.dev, self.ino));
        if ours {
            // If this fails, the next start removes the file as stale.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A listening socket of one worker.
#[derive(Debug)]
pub struct Listener {
    socket: Accepting,
    address: BindSpec,
    origin: SocketOrigin,
    reserve: Vec<File>,
    /// Aborted connections skipped since the last accept.
    passed: u32,
}

#[derive(Debug)]
enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Reason for not accepting a connection.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The process (EMFILE), the system (ENFILE) or its memory has no room for another connection.
    /// It stays in the backlog: pause (see [`ACCEPT_PAUSE`]), then accept again. The listener has
    /// released its reserved descriptors to the open connections.
    #[error("accepting paused: {0}")]
    OutOfResources(#[source] io::Error),
    /// The listener itself is broken: see [`Listener::listen_again`].
    #[error("cannot accept: {0}")]
    Broken(#[source] io::Error),
}

/// Consecutive connections that may fail before the listener itself is considered broken, for
/// example when a system call filter rejects each of them.
pub const PASSED_OVER_MAX: u32 = 1_000;

/// Pause after [`AcceptError::OutOfResources`].
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Listener {
    /// The bound address.
    pub fn address(&self) -> &BindSpec {
        &self.address
    }

    /// The next connection. Aborted ones are skipped.
    ///
    /// # Errors
    /// See [`AcceptError`].
    pub async fn accept(&mut self) -> Result<(Stream, Peer), AcceptError> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Like [`accept`](Self::accept), for hand-written futures.
    pub fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Stream, Peer), AcceptError>> {
        // Still short of descriptors: nothing is accepted until the reserve is restored.
        if let Err(error) = self.fill_reserve() {
            self.reserve.clear();
            return Poll::Ready(Err(AcceptError::OutOfResources(error)));
        }
        loop {
            let error = match self.poll_accept_once(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(accepted)) => {
                    self.passed = 0;
                    return Poll::Ready(Ok(accepted));
                }
                Poll::Ready(Err(error)) => error,
            };
            match AcceptVerdict::of(&error) {
                AcceptVerdict::NextConnection if self.passed < PASSED_OVER_MAX => self.passed += 1,
                AcceptVerdict::NextConnection => {
                    return Poll::Ready(Err(AcceptError::Broken(error)));
                }
                AcceptVerdict::Pause => {
                    self.reserve.clear();
                    return Poll::Ready(Err(AcceptError::OutOfResources(error)));
                }
                AcceptVerdict::Broken => return Poll::Ready(Err(AcceptError::Broken(error))),
            }
        }
    }

    fn poll_accept_once(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Stream, Peer)>> {
        match &self.socket {
            Accepting::Tcp(socket) => socket
                .poll_accept(cx)
                .map_ok(|(stream, peer)| (Stream::from_tcp(stream), Peer::Inet(peer))),
            Accepting::Unix(socket) => {
                socket.poll_accept(cx).map_ok(|(stream, _)| (Stream::from_unix(stream), Peer::Unix))
            }
        }
    }

    fn fill_reserve(&mut self) -> io::Result<()> {
        while self.reserve.len() < RESERVE_DESCRIPTORS {
            self.reserve.push(self.spare_descriptor()?);
        }
        Ok(())
    }

    /// Needs no file system: in a chroot there may be no /dev/null.
    fn spare_descriptor(&self) -> io::Result<File> {
        use std::os::fd::AsFd;
        let socket = match &self.socket {
            Accepting::Tcp(socket) => socket.as_fd(),
            Accepting::Unix(socket) => socket.as_fd(),
        };
        socket.try_clone_to_owned().map(File::from)
    }
}

/// Consequence of an `accept` error for the listener.
enum AcceptVerdict {
    NextConnection,
    Pause,
    Broken,
}

impl AcceptVerdict {
    fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            // accept(2): pending network errors of the new connection count as retries.
            Some(
                Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::INTR
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
                | Errno::PERM,
            ) => AcceptVerdict::NextConnection,
            // NOSPC: the limit of epoll registrations (fs.epoll.max_user_watches).
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC) => {
                AcceptVerdict::Pause
            }
            _ => AcceptVerdict::Broken,
        }
    }
}

#[cfg(test)]
mod tests;
