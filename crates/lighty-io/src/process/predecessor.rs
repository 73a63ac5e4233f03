//! The server whose place this process takes: the new process's end of an upgrade.
//!
//! The old server starts the new one with a socket as its standard input and its own process id in
//! `LIGHTY_UPGRADE_OF`. Both are needed: a variable that was inherited by accident means nothing.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::net::{RecvFlags, SocketType};
use rustix::process::Pid;

use super::succession::{self, FrameHead, HEAD_BYTES, SuccessionFrame, SuccessionLink};

/// Time limit for each part of a frame of the old server.
const PATIENCE: Duration = Duration::from_secs(60);

/// A second descriptor of the link, for [`is_beside_us`].
static LINK: OnceLock<UnixStream> = OnceLock::new();

/// The old server's process.
static OLD: OnceLock<Pid> = OnceLock::new();

/// The link to the old server.
#[derive(Debug)]
pub struct Predecessor {
    link: UnixStream,
}

/// True in a process that an old server has started to take its place.
pub fn is_expected() -> bool {
    expected().is_some()
}

/// The process that the environment names, if the socket on standard input is its own.
fn expected() -> Option<Pid> {
    let named = std::env::var(succession::VARIABLE).ok()?.parse().ok()?;
    let peer = rustix::net::sockopt::socket_peercred(io::stdin().as_fd()).ok()?.pid;
    Pid::from_raw(named).filter(|named| *named == peer)
}

/// True as long as the old server runs beside this process: it drains, and may still hold paths
/// and ports that this process needs.
pub fn is_beside_us() -> bool {
    let Some(link) = LINK.get() else { return false };
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    // Anything but the end of the stream: it is there.
    !matches!(rustix::net::recv(link, &mut [0], flags), Ok((_, 0)))
}

/// True if the old server runs, and the unix socket at this path is its own.
pub fn listens_on(path: &Path) -> bool {
    if !is_beside_us() {
        return false;
    }
    let Ok(connected) = UnixStream::connect(path) else { return false };
    // A connection has the identity of the process that called `listen`.
    let owner = rustix::net::sockopt::socket_peercred(&connected).ok().map(|peer| peer.pid);
    owner.is_some() && owner == OLD.get().copied()
}

impl Predecessor {
    /// Takes the link from standard input, which becomes empty. `None` in a process that no old
    /// server has started.
    ///
    /// # Errors
    /// EMFILE; standard input is no such socket.
    pub fn take() -> io::Result<Option<Self>> {
        let Some(old) = expected().filter(|_| LINK.get().is_none()) else { return Ok(None) };
        let stdin = io::stdin();
        if rustix::net::sockopt::socket_type(stdin.as_fd())? != SocketType::STREAM {
            return Err(io::Error::other("standard input is no socket of the old server"));
        }
        let link = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
        let null = std::fs::OpenOptions::new().read(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        let _ = (LINK.set(link.try_clone()?), OLD.set(old));
        Self::over(link).map(Some)
    }

    fn over(link: UnixStream) -> io::Result<Self> {
        link.set_read_timeout(Some(PATIENCE))?;
        link.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { link })
    }

    /// Waits for the next frame.
    ///
    /// # Errors
    /// The old server has ended or takes longer than a minute; the frame is malformed.
    pub fn receive(&mut self) -> io::Result<SuccessionFrame> {
        let mut head = [0; HEAD_BYTES];
        self.link.read_exact(&mut head)?;
        let head = FrameHead::decode(head)?;
        let mut descriptors = Vec::new();
        for _ in 0..head.descriptors.div_ceil(succession::BATCH) {
            succession::receive_batch(&self.link, &mut descriptors)?;
        }
        if descriptors.len() != head.descriptors {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors are missing"));
        }
        let mut text = vec![0; head.text_bytes];
        self.link.read_exact(&mut text)?;
        Ok(SuccessionFrame { text, descriptors })
    }

    /// The link for a task.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn into_link(self) -> io::Result<SuccessionLink> {
        self.link.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(self.link).map(SuccessionLink::over)
    }

    /// Sends a frame without descriptors.
    ///
    /// # Errors
    /// The old server has ended.
    pub fn send(&mut self, text: &[u8]) -> io::Result<()> {
        let head = FrameHead { text_bytes: text.len(), descriptors: 0 }.encode()?;
        self.link.write_all(&head)?;
        self.link.write_all(text)
    }
}

/// Makes a descriptor of the old server's standard error output this process's.
///
/// # Errors
/// The system's.
pub fn adopt_stderr(theirs: &OwnedFd) -> io::Result<()> {
    rustix::stdio::dup2_stderr(theirs).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_without_a_predecessor_expects_none() {
        assert!(!is_expected());
        assert!(!is_beside_us());
        assert!(Predecessor::take().expect("no error").is_none());
    }
}
