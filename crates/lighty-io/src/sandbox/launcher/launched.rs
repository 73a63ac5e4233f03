//! The server's end of a program that the launcher has started.

use std::cell::Cell;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::Signal;

use super::ServerEnd;
use super::messages::{ChildOrder, LaunchReply};
use crate::process::descriptors;
use crate::process::program::Exit;

/// A process that the launcher has started. It stays a zombie until [`reap`](Self::reap), so that
/// its process id is not used again.
#[derive(Debug)]
pub(crate) struct LaunchedProcess {
    pid: i32,
    /// Signals go out, the end of the process comes in. Once it is closed, the launcher reaps the
    /// process.
    control: OwnedFd,
    exit: Cell<Option<Exit>>,
    /// The launcher, which must not end before.
    _launcher: Arc<ServerEnd>,
}

impl LaunchedProcess {
    /// Waits until the launcher has started the program: until `exec`, which closes the writing
    /// end of `status`.
    ///
    /// # Errors
    /// The system's error of the start, or a refusal.
    pub(super) fn started(
        launcher: Arc<ServerEnd>,
        control: OwnedFd,
        mut status: impl Read,
    ) -> io::Result<Self> {
        let mut failure = Vec::new();
        status.read_to_end(&mut failure)?;
        let pid = match receive(control.as_fd(), RecvFlags::empty())? {
            Some(LaunchReply::Started(pid)) => pid,
            Some(LaunchReply::Failed(error)) => return Err(io::Error::from_raw_os_error(error)),
            Some(LaunchReply::Refused(refusal)) => {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal));
            }
            Some(LaunchReply::Ended(_)) | None => return Err(launcher_ended()),
        };
        match <[u8; 4]>::try_from(failure) {
            // Without its socket, the launcher reaps it.
            Ok(error) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
            Err(_) => Ok(Self { pid, control, exit: Cell::new(None), _launcher: launcher }),
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> i32 {
        self.pid
    }

    /// Its exit status, if it has ended. Does not block.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn look(&self) -> io::Result<Option<Exit>> {
        if self.exit.get().is_none() {
            let reply = receive(self.control.as_fd(), RecvFlags::DONTWAIT);
            match reply {
                Ok(Some(LaunchReply::Ended(exit))) => self.exit.set(Some(exit)),
                Ok(Some(_)) => {}
                // The launcher has ended, and with it its children.
                Ok(None) => self.exit.set(Some(Exit::Unseen)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.exit.get())
    }

    /// Ready if [`look`](Self::look) has something to see.
    ///
    /// # Errors
    /// `WouldBlock` if it has not.
    pub(crate) fn has_stirred(&self) -> io::Result<()> {
        if self.exit.get().is_some() {
            return Ok(());
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.control, &mut [0; 1], flags).map(drop).map_err(io::Error::from)
    }

    /// Sends a signal to its process group; false if that is not possible.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        self.order(ChildOrder::Signal(signal.as_raw()))
    }

    /// Frees its process id.
    pub(crate) fn reap(&self) {
        self.order(ChildOrder::Reap);
    }

    /// Kills it and its process group.
    pub(crate) fn abandon(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn wait(&self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.look()? {
                self.reap();
                return Ok(exit);
            }
            let mut watched = [PollFd::new(&self.control, PollFlags::IN)];
            rustix::io::retry_on_intr(|| rustix::event::poll(&mut watched, None))?;
        }
    }

    fn order(&self, order: ChildOrder<'_>) -> bool {
        let message = order.encode();
        descriptors::send(&self.control, &message, &[], SendFlags::DONTWAIT).is_ok()
    }
}

impl AsRawFd for LaunchedProcess {
    fn as_raw_fd(&self) -> RawFd {
        self.control.as_raw_fd()
    }
}

/// The launcher's next message; `None` if it has ended.
fn receive(control: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Option<LaunchReply>> {
    let mut message = [0; LaunchReply::BYTES_MAX];
    match descriptors::receive(control, &mut message, &mut Vec::new(), flags)? {
        0 => Ok(None),
        length => LaunchReply::decode(&message[..length]).map(Some).ok_or_else(launcher_ended),
    }
}

pub(super) fn launcher_ended() -> io::Error {
    io::Error::other("the launcher of the sandbox does not answer")
}
