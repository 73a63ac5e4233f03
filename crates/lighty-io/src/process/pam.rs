//! Checks of passwords by PAM, in processes of their own.
//!
//! Modules of PAM block, fork, keep state and are not thread-safe. The ones for the system's own
//! users need root, or a program with more rights than its caller, which a sandbox forbids. So a
//! helper is forked before the server gives up its rights, and forks a worker for each check.
//!
//! The helper ends with the server: its socket is closed then. It does not depend on the program
//! of the server, so that a server that replaces this one may go on with it.
//!
//! Reading order: this file (the server's end), `message`, `guard` (the processes), `library`
//! (libpam).

mod guard;
mod library;
mod message;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{descriptors, forked};
use message::{PamReply, REPLY_BYTES_MAX};

pub use message::{FIELD_BYTES_MAX, PamRequest};

/// Maximum number of checks at the same time.
pub const WORKERS_MAX: usize = 4;

/// Time limit of a check, after which its worker is killed.
pub const CHECK_MAX: Duration = Duration::from_secs(10);

/// The server's end. None without a helper.
static HELPER: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PamVerdict {
    /// The password is right, and the account may be used.
    Accepted,
    /// It is not, with PAM's message.
    Denied(String),
}

/// Reason why a password was not checked.
#[derive(Debug, thiserror::Error)]
pub enum PamError {
    /// There is no helper.
    #[error("PAM is asked by a process that begins with the server: restart the server")]
    NoHelper,
    /// The worker or the helper ended.
    #[error("the process that asks PAM has ended")]
    Ended,
    /// PAM does not work.
    #[error("PAM: {0}")]
    Broken(String),
    /// PAM gets no answer from the source of its users.
    #[error("PAM: {0}")]
    Unavailable(String),
    /// A name or password is longer than [`FIELD_BYTES_MAX`], or holds a zero byte.
    #[error("a name or password that PAM cannot take")]
    Unfit,
    /// An error of the system.
    #[error("the helper for PAM: {0}")]
    System(#[from] io::Error),
}

impl PamError {
    /// True if another attempt may succeed.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Ended | Self::Unavailable(_) => true,
            // More checks wait than the socket holds.
            Self::System(error) => error.kind() == io::ErrorKind::WouldBlock,
            Self::NoHelper | Self::Broken(_) | Self::Unfit => false,
        }
    }
}

/// Starts the helper. Call it before the first thread, and with the rights that PAM's modules
/// need.
///
/// # Errors
/// No process can be created.
pub fn begin() -> io::Result<()> {
    let (ours, theirs) = pair()?;
    // SAFETY: the child runs only the helper's code, and this thread is the only one that runs.
    match unsafe { libc::fork() } {
        0 => {
            forked::leave_server(&theirs, c"lighty-pam");
            guard::run(theirs)
        }
        1.. => {
            adopt(ours);
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Goes on with the helper of the server that this one replaces.
pub fn adopt(socket: OwnedFd) {
    *HELPER.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
}

/// The server's end of the helper's socket, for the server that replaces this one.
///
/// # Errors
/// The system's.
pub fn hand_over() -> io::Result<Option<OwnedFd>> {
    let helper = HELPER.lock().unwrap_or_else(PoisonError::into_inner);
    helper.as_ref().map(OwnedFd::try_clone).transpose()
}

/// Checks a password. Dropping the future gives the check up.
///
/// # Errors
/// It was not checked.
pub async fn check(request: &PamRequest<'_>) -> Result<PamVerdict, PamError> {
    let message = request.encode().ok_or(PamError::Unfit)?;
    let (ours, theirs) = pair()?;
    send(&message, theirs.as_fd())?;
    // Its end must be seen here.
    drop(theirs);
    // SAFETY: the descriptor is open, and owned by the registration until the end.
    let ours = unsafe { AsyncFd::register_with_interest(ours, Interest::READABLE) };
    let ours = ours.map_err(io::Error::from)?;
    let mut reply = [0; REPLY_BYTES_MAX];
    let length = ours
        .async_io(Interest::READABLE, |socket| {
            descriptors::receive(socket, &mut reply, &mut Vec::new(), RecvFlags::DONTWAIT)
        })
        .await;
    match PamReply::decode(&reply[..length.unwrap_or(0)]) {
        Some(reply) => reply.verdict(),
        None => Err(PamError::Ended),
    }
}

fn send(message: &[u8], theirs: BorrowedFd<'_>) -> Result<(), PamError> {
    let helper = HELPER.lock().unwrap_or_else(PoisonError::into_inner);
    let socket = helper.as_ref().ok_or(PamError::NoHelper)?;
    match descriptors::send(socket, message, &[theirs], SendFlags::DONTWAIT) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(PamError::Ended),
        Err(error) => Err(error.into()),
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}
