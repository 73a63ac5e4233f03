//! Sockets opened by a supervisor: the LISTEN_FDS protocol (sd_listen_fds(3)).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, Socket, Type};

use super::{BindOptions, BindSpec, BoundSocket, SocketOrigin, local_inet};

/// sd_listen_fds(3): the first descriptor passed.
const LISTEN_FDS_START: RawFd = 3;

/// More than any unit file has, few enough to check one by one.
const LISTEN_FDS_MAX: RawFd = 1_024;

/// An inherited socket.
#[derive(Debug)]
pub struct Inherited {
    /// Its name in LISTEN_FDNAMES, if it has one.
    pub name: Option<String>,
    /// The socket itself; it listens.
    pub socket: BoundSocket,
}

/// The sockets passed to this process, in order; empty if there are none or if they are meant for
/// another process. They can be taken once: a second call finds none.
///
/// # Errors
/// The variables are malformed, or a descriptor is not a listening stream socket.
pub fn inherited_sockets() -> io::Result<Vec<Inherited>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let variable = |name: &str| std::env::var(name).ok();
    let passed = passed_descriptors(&variable, std::process::id(), LISTEN_FDS_START)?;
    if passed.is_empty() || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    passed.into_iter().map(|(fd, name)| adopt(fd, name)).collect()
}

/// Parses the variables, without touching a descriptor.
fn passed_descriptors(
    variable: &dyn Fn(&str) -> Option<String>,
    own_pid: u32,
    start: RawFd,
) -> io::Result<Vec<(RawFd, Option<String>)>> {
    let (Some(count), Some(pid)) = (variable("LISTEN_FDS"), variable("LISTEN_PID")) else {
        return Ok(Vec::new());
    };
    let pid: u32 = pid.trim().parse().map_err(|_| malformed("LISTEN_PID", &pid))?;
    if pid != own_pid {
        return Ok(Vec::new());
    }
    let count: RawFd = count
        .trim()
        .parse()
        .ok()
        .filter(|count| (0..=LISTEN_FDS_MAX).contains(count))
        .ok_or_else(|| malformed("LISTEN_FDS", &count))?;
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').map(|name| Some(name).filter(|name| !name.is_empty()));
    Ok((start..start + count).map(|fd| (fd, names.next().flatten().map(str::to_owned))).collect())
}

fn malformed(name: &str, value: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{name}=\"{value}\" makes no sense"))
}

fn adopt(fd: RawFd, name: Option<String>) -> io::Result<Inherited> {
    let wrong = |why: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("inherited descriptor {fd}: {why}"))
    };
    // SAFETY: only checks whether it is open; the result is EBADF if it is not.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
        return Err(wrong(&io::Error::last_os_error()));
    }
    // SAFETY: open, as just checked, and owned by this process by the protocol; `inherited_sockets`
    // takes each number once.
    let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    match check(&socket) {
        Ok(address) => {
            let origin = SocketOrigin::Inherited;
            Ok(Inherited { name, socket: BoundSocket { socket, address, origin } })
        }
        Err(error) => Err(wrong(&error)),
    }
}

impl BoundSocket {
    /// A socket that the server before this one listened on.
    ///
    /// # Errors
    /// It is not a listening stream socket.
    pub fn handed(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(descriptor);
        let address = check(&socket)?;
        Ok(BoundSocket { socket, address, origin: SocketOrigin::Inherited })
    }

    /// Makes this process the owner of a handed socket, with these options as far as they can
    /// change.
    ///
    /// # Errors
    /// The system's.
    pub fn owned(self, options: &BindOptions) -> io::Result<Self> {
        // On a listening socket, changes the length of its queue only.
        self.socket.listen(options.backlog)?;
        // An orderly stop of the last process may have left its filter.
        let _ = self.socket.detach_filter();
        Ok(BoundSocket { origin: SocketOrigin::Bound(options.clone()), ..self })
    }
}

pub(super) fn check(socket: &Socket) -> io::Result<BindSpec> {
    let invalid = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why.to_owned()));
    if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
        return invalid("not a listening stream socket");
    }
    rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC)?;
    match socket.domain()? {
        Domain::IPV4 | Domain::IPV6 => {
            socket.set_tcp_nodelay(true)?;
            Ok(BindSpec::Inet(local_inet(socket)?))
        }
        Domain::UNIX => {
            let path = socket.local_addr()?.as_pathname().map(PathBuf::from);
            Ok(BindSpec::Unix(path.unwrap_or_default()))
        }
        _ => invalid("neither an internet nor a unix socket"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    fn passed(pairs: &[(&str, &str)]) -> io::Result<Vec<(RawFd, Option<String>)>> {
        let variable = |name: &str| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        passed_descriptors(&variable, 42, 3)
    }

    #[test]
    fn variables_are_read() {
        let two = [("LISTEN_FDS", "2"), ("LISTEN_PID", "42"), ("LISTEN_FDNAMES", "web:")];
        assert_eq!(passed(&two).expect("two"), vec![(3, Some("web".to_owned())), (4, None)]);
        assert_eq!(passed(&two[..2]).expect("no names"), vec![(3, None), (4, None)]);
        assert_eq!(passed(&[]).expect("none"), vec![]);
        assert_eq!(passed(&[("LISTEN_FDS", "1"), ("LISTEN_PID", "41")]).expect("other"), vec![]);
        for count in ["-1", "x", "1025"] {
            assert!(passed(&[("LISTEN_FDS", count), ("LISTEN_PID", "42")]).is_err(), "{count}");
        }
        let most = passed(&[("LISTEN_FDS", "1024"), ("LISTEN_PID", "42")]).expect("the limit");
        assert_eq!(most.len(), 1_024);
    }

    #[test]
    fn a_listening_socket_is_adopted_and_nothing_else_is() {
        let spec = "127.0.0.1:0".parse().expect("spec");
        let bound = BoundSocket::bind(&spec, &BindOptions::default()).expect("bind");
        let address = bound.address().clone();
        let adopted = adopt(bound.socket.into_raw_fd(), Some("web".to_owned())).expect("adopt");
        assert_eq!(adopted.socket.address(), &address);
        assert_eq!(adopted.name.as_deref(), Some("web"));

        let file = tempfile::tempfile().expect("file");
        let error = adopt(file.into_raw_fd(), None).expect_err("a file");
        assert!(error.to_string().contains("inherited descriptor"), "{error}");
        let error = adopt(1_000_000, None).expect_err("closed");
        assert!(error.to_string().contains("1000000"), "{error}");
    }
}
