//! Listening sockets of a running server: an address is reserved before anything changes, and the
//! options of a socket in use are replaced.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{BindOptions, BindSpec, BoundSocket, SocketOrigin, cannot_bind};
use super::{bind_abstract, check_stale, reserve_inet, reserve_unix, set_defer_accept};

/// Linux: `SKF_AD_OFF + SKF_AD_RANDOM` of linux/filter.h, a random number in a classic program.
const RANDOM_NUMBER: u32 = 0xffff_f000 + 56;

/// `SO_DETACH_REUSEPORT_BPF` of asm-generic/socket.h.
const DETACH_CHOICE: libc::c_int = 68;

impl BoundSocket {
    /// Binds without listening: no client can connect yet. [`listen`](Self::listen) completes it.
    /// An abstract unix socket listens at once.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn reserve(spec: &BindSpec, options: &BindOptions) -> io::Result<Self> {
        let reserved = match spec {
            BindSpec::Inet(address) => reserve_inet(*address, options),
            BindSpec::Unix(path) => reserve_unix(path, options),
        };
        reserved.map_err(|error| cannot_bind(spec, &error))
    }

    /// Makes a reserved socket listen, or sets the queue length of one that listens already.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn listen(&self, backlog: i32) -> io::Result<()> {
        self.socket.listen(backlog)
    }

    /// Checks that an address could be bound, and leaves nothing behind: a unix socket is bound
    /// beside its path.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind).
    pub fn check(spec: &BindSpec, options: &BindOptions) -> io::Result<()> {
        let checked = match spec {
            BindSpec::Inet(address) => reserve_inet(*address, options).map(drop),
            BindSpec::Unix(path) => check_unix(path, options),
        };
        checked.map_err(|error| cannot_bind(spec, &error))
    }

    /// True if the service manager passed the socket: it belongs to both.
    pub fn is_inherited(&self) -> bool {
        matches!(self.origin, SocketOrigin::Inherited)
    }

    /// Lets more sockets be bound to its address (SO_REUSEPORT), each with connections of its own.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn share_address(&mut self) -> io::Result<()> {
        self.socket.set_reuse_port(true)?;
        if let SocketOrigin::Bound(options) = &mut self.origin {
            options.reuse_port = true;
        }
        Ok(())
    }

    /// Replaces the queue length and the deferral of a socket that listens. Connections in its
    /// queue stay there.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn adopt_options(&mut self, next: &BindOptions) -> io::Result<()> {
        if let BindSpec::Inet(_) = self.address {
            set_defer_accept(&self.socket, next.defer_accept_s.unwrap_or(0))?;
        }
        self.socket.listen(next.backlog)?;
        if let SocketOrigin::Bound(options) = &mut self.origin {
            (options.backlog, options.defer_accept_s) = (next.backlog, next.defer_accept_s);
            options.unix_mode = next.unix_mode;
        }
        Ok(())
    }

    /// Distributes new connections among the first `count` sockets of its address, in the order in
    /// which they began to listen: the others can be emptied and closed without losing one.
    ///
    /// # Errors
    /// `Unsupported` for a unix socket; the kernel's error if the socket does not share its
    /// address.
    pub fn distribute_among(&self, count: u32) -> io::Result<()> {
        if let BindSpec::Unix(_) = self.address {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let step = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let mut filter = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, RANDOM_NUMBER),
            step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count.max(1)),
            step(libc::BPF_RET | libc::BPF_A, 0),
        ];
        self.attach_choice(&mut filter)
    }

    /// Distributes new connections among all sockets of its address again.
    ///
    /// # Errors
    /// The kernel's error: no choice was set, or the kernel is older than 5.3.
    pub fn distribute_evenly(&self) -> io::Result<()> {
        let none: libc::c_int = 0;
        // SAFETY: the descriptor is open for the whole call, and the option takes one c_int, which
        // the pointer and the size describe.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                DETACH_CHOICE,
                (&raw const none).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sets the program that chooses among the sockets of an address.
    pub(super) fn attach_choice(&self, filter: &mut [libc::sock_filter]) -> io::Result<()> {
        let len = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
        // SAFETY: the descriptor is open for the whole call. The option takes a `sock_fprog`, which
        // the pointer and the size describe; it points to `len` instructions, and the kernel copies
        // all of it before it returns.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_REUSEPORT_CBPF,
                (&raw const program).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Binds a socket beside the path, which needs the same rights.
fn check_unix(path: &Path, options: &BindOptions) -> io::Result<()> {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStrExt;
    if let Some(name) = path.as_os_str().as_bytes().strip_prefix(b"@") {
        return bind_abstract(path, name, options).map(drop);
    }
    check_stale(path)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut name = OsString::from(".lighty-");
    name.push(std::process::id().to_string());
    let beside = directory.join(name);
    let bound = reserve_unix(&beside, options)?;
    drop(bound.socket_file());
    Ok(())
}

/// New access bits of a unix socket's file, undone on drop unless they are kept.
#[derive(Debug)]
pub struct ChangedMode {
    path: PathBuf,
    /// The bits to restore; `None` once the new ones are kept.
    before: Option<u32>,
}

impl ChangedMode {
    /// Sets the access bits; `None` only checks that they can be set.
    ///
    /// # Errors
    /// The file is missing, or belongs to another user.
    pub fn set(path: &Path, mode: Option<u32>) -> io::Result<Self> {
        let before = std::fs::symlink_metadata(path)?.mode() & 0o7777;
        let bits = std::fs::Permissions::from_mode(mode.unwrap_or(before));
        std::fs::set_permissions(path, bits)?;
        Ok(Self { path: path.to_owned(), before: Some(before) })
    }

    /// Keeps the new bits.
    pub fn keep(mut self) {
        self.before = None;
    }
}

impl Drop for ChangedMode {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let bits = std::fs::Permissions::from_mode(before);
            let _ = std::fs::set_permissions(&self.path, bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    fn listener(bound: &BoundSocket) -> TcpListener {
        let listener = TcpListener::from(bound.duplicate().expect("a descriptor"));
        listener.set_nonblocking(true).expect("nonblocking");
        listener
    }

    fn inet(bound: &BoundSocket) -> SocketAddr {
        let BindSpec::Inet(address) = *bound.address() else { panic!("not an address") };
        address
    }

    #[test]
    fn reserved_address_takes_no_connection_before_it_listens() {
        let spec: BindSpec = "127.0.0.1:0".parse().expect("an address");
        let options = BindOptions::default();
        let reserved = BoundSocket::reserve(&spec, &options).expect("reserved");
        let address = inet(&reserved);
        assert!(TcpStream::connect(address).is_err());
        reserved.listen(options.backlog).expect("it listens");
        assert!(TcpStream::connect(address).is_ok());
        let taken = BoundSocket::check(reserved.address(), &options).expect_err("taken");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn socket_with_an_address_of_its_own_shares_it_later() {
        let spec: BindSpec = "127.0.0.1:0".parse().expect("an address");
        let mut first = BoundSocket::bind(&spec, &BindOptions::default()).expect("bound");
        let address = inet(&first);
        first.share_address().expect("shared");
        let options = BindOptions { reuse_port: true, ..BindOptions::default() };
        let second = BoundSocket::bind(first.address(), &options).expect("another");
        let (one, two) = (listener(&first), listener(&second));
        let clients: Vec<_> =
            (0..64).map(|_| TcpStream::connect(address).expect("connect")).collect();
        let count = |listener: &TcpListener| std::iter::from_fn(|| listener.accept().ok()).count();
        let shares = (count(&one), count(&two));
        assert!(shares.0 > 0 && shares.1 > 0 && shares.0 + shares.1 == clients.len(), "{shares:?}");
    }

    #[test]
    fn connections_go_to_the_first_sockets_alone() {
        let options = BindOptions { reuse_port: true, ..BindOptions::default() };
        let spec: BindSpec = "127.0.0.1:0".parse().expect("an address");
        let first = BoundSocket::bind(&spec, &options).expect("bound");
        let bind = || BoundSocket::bind(first.address(), &options).expect("bound");
        let sockets = [bind(), bind(), bind()];
        first.distribute_among(2).expect("a choice");
        let clients: Vec<_> =
            (0..64).map(|_| TcpStream::connect(inet(&first)).expect("connect")).collect();
        let count = |bound: &BoundSocket| {
            let listener = listener(bound);
            std::iter::from_fn(|| listener.accept().ok()).count()
        };
        let shares = [count(&first), count(&sockets[0]), count(&sockets[1]), count(&sockets[2])];
        assert!(shares[0] > 0 && shares[1] > 0, "{shares:?}");
        assert_eq!((shares[2], shares[3], shares[0] + shares[1]), (0, 0, clients.len()));
        first.distribute_evenly().expect("no choice any more");
        let clients: Vec<_> =
            (0..64).map(|_| TcpStream::connect(inet(&first)).expect("connect")).collect();
        let shares = sockets.iter().map(count).collect::<Vec<_>>();
        assert!(shares.iter().all(|count| *count > 0) && clients.len() == 64, "{shares:?}");
    }

    #[test]
    fn options_of_a_socket_in_use_change() {
        let spec: BindSpec = "127.0.0.1:0".parse().expect("an address");
        let mut bound = BoundSocket::bind(&spec, &BindOptions::default()).expect("bound");
        let waiting = TcpStream::connect(inet(&bound)).expect("connect");
        let next = BindOptions { backlog: 7, defer_accept_s: Some(1), ..BindOptions::default() };
        bound.adopt_options(&next).expect("changed");
        assert!(listener(&bound).accept().is_ok(), "its queue stays");
        drop(waiting);
    }

    #[test]
    fn checked_unix_socket_leaves_nothing_and_changed_modes_are_undone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let (spec, options) = (BindSpec::Unix(path.clone()), BindOptions::default());
        BoundSocket::check(&spec, &options).expect("free");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
        let none = BindSpec::Unix(dir.path().join("none/s"));
        BoundSocket::check(&none, &options).expect_err("no directory");
        let _bound = BoundSocket::bind(&spec, &options).expect("bound");
        BoundSocket::check(&spec, &options).expect_err("in use");
        let mode = || std::fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        let before = mode();
        drop(ChangedMode::set(&path, Some(0o600)).expect("set"));
        assert_eq!(mode(), before);
        ChangedMode::set(&path, Some(0o620)).expect("set").keep();
        assert_eq!(mode(), 0o620);
    }
}
