//! System calls that may be unavailable. If a sandbox (seccomp) returns EPERM, or an old kernel
//! ENOSYS, a fallback is used, the call is not tried again, and the operator is warned once.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;

/// A system call with a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syscall {
    Sendfile,
    MemfdCreate,
    IoSubmit,
    /// A socket of Multipath TCP.
    Mptcp,
}

impl Syscall {
    const ALL: [Syscall; 4] =
        [Syscall::Sendfile, Syscall::MemfdCreate, Syscall::IoSubmit, Syscall::Mptcp];

    fn warning(self) -> &'static str {
        match self {
            Syscall::Sendfile => "the system refuses sendfile: files are read and written instead",
            Syscall::MemfdCreate => {
                "the system refuses memfd_create: linux-aio-sendfile reads through the page cache"
            }
            Syscall::IoSubmit => {
                "the system refuses io_submit: linux-aio-sendfile reads through the page cache"
            }
            Syscall::Mptcp => {
                "the system has no MPTCP, or it is switched off (net.mptcp.enabled): listeners \
                 with server.mptcp speak plain TCP"
            }
        }
    }

    fn state(self) -> &'static AtomicU8 {
        static STATES: [AtomicU8; Syscall::ALL.len()] =
            [const { AtomicU8::new(POSSIBLE) }; Syscall::ALL.len()];
        &STATES[self as usize]
    }

    /// True if it was refused before.
    pub(crate) fn is_refused(self) -> bool {
        self.state().load(Ordering::Relaxed) != POSSIBLE
    }

    /// Records a refusal.
    pub(crate) fn refuse(self) {
        self.change(POSSIBLE, REFUSED);
    }

    /// Records the refusal, if the error is one.
    pub(crate) fn note(self, error: &io::Error) {
        if matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::PERM)) {
            self.change(POSSIBLE, REFUSED);
        }
    }

    fn change(self, from: u8, to: u8) -> bool {
        let order = Ordering::Relaxed;
        self.state().compare_exchange(from, to, order, order).is_ok()
    }
}

const POSSIBLE: u8 = 0;
const REFUSED: u8 = 1;
const WARNED: u8 = 2;

/// Warnings about calls refused since the last call, for the log.
pub fn take_warnings() -> impl Iterator<Item = &'static str> {
    Syscall::ALL.into_iter().filter(|call| call.change(REFUSED, WARNED)).map(Syscall::warning)
}
