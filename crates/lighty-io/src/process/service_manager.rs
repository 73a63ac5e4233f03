//! Messages to the service manager that started the process (sd_notify(3)): datagrams of lines
//! `NAME=value` to the unix socket that `NOTIFY_SOCKET` names.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::net::SendFlags;

use super::descriptors::{self, PER_MESSAGE};

/// Variables of the service manager, which programs that the server starts must not inherit.
pub(crate) const VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

/// Variables that name this process, and not one that takes its place.
pub(crate) const LEFT_OUT: [&str; 4] =
    ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"];

/// The service manager.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
}

impl ServiceManager {
    /// The one that the environment names. `None` without one.
    ///
    /// # Errors
    /// Its socket cannot be used.
    pub fn find() -> io::Result<Option<Self>> {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let address = match path.as_bytes().split_first() {
            Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A manager that reads nothing must not stop the server.
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket }))
    }

    /// Sends lines, each `NAME=value`, separated by line ends.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if the manager reads too slowly.
    pub fn tell(&self, lines: &str) -> io::Result<()> {
        self.socket.send(lines.as_bytes()).map(drop)
    }

    /// Gives the manager descriptors to keep for the next start of the service, under a name
    /// (sd_pid_notify_with_fds(3), FDSTORE). A unit with `FileDescriptorStoreMax=` keeps them.
    ///
    /// # Errors
    /// As for [`tell`](Self::tell).
    pub fn store(&self, name: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        for batch in descriptors.chunks(PER_MESSAGE) {
            descriptors::send(&self.socket, text.as_bytes(), batch, SendFlags::empty())?;
        }
        Ok(())
    }
}

/// The interval within which the manager expects signs of life, if it does
/// (sd_watchdog_enabled(3)). Not for a process that the variable does not mean.
pub fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.trim().parse::<u64>().ok();
    let is_ours = std::env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(std::process::id().into());
    number("WATCHDOG_USEC").filter(|us| is_ours && *us > 0).map(Duration::from_micros)
}

/// The time of a monotonic clock in microseconds, for `MONOTONIC_USEC=`.
pub fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
