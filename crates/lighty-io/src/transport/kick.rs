//! Wakes a connection from outside, so that the timeout sweep can end it without owning it.

use std::cell::Cell;
use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;

use rustix::net::Shutdown;

use super::memory::MemoryKick;

/// The direction that a kick shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KickHow {
    /// Reading: the reader sees the end of the stream and may still respond.
    Read,
    /// Both: all waits wake up, and writes fail.
    Both,
}

/// A handle to a connection with another owner. It does not keep the connection open, and does
/// nothing once the owner has closed it.
#[derive(Clone, Debug)]
pub struct Kick(Target);

/// The owner's half of [`Kick`].
#[derive(Debug)]
pub(super) struct KickCell(Target);

#[derive(Clone, Debug)]
enum Target {
    Fd(Rc<Cell<RawFd>>),
    // Boxed, because every connection has two of these.
    Memory(Box<MemoryKick>),
}

const CLOSED: RawFd = -1;

impl Kick {
    /// Shuts the connection down in the given direction. Returns true if it was still open.
    pub fn kick(&self, how: KickHow) -> bool {
        let fd = match &self.0 {
            Target::Fd(fd) => fd.get(),
            Target::Memory(end) => return end.kick(how),
        };
        if fd == CLOSED {
            return false;
        }
        // SAFETY: `KickCell` sets the cell to CLOSED before its stream closes the descriptor, and
        // both live on this thread (`Rc` is not `Send`), so the descriptor is open and is ours.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let how = match how {
            KickHow::Read => Shutdown::Read,
            KickHow::Both => Shutdown::Both,
        };
        // ENOTCONN: the peer closed first, which the owner will notice.
        let _ = rustix::net::shutdown(socket, how);
        true
    }
}

impl KickCell {
    pub(super) fn of_fd(fd: RawFd) -> Self {
        KickCell(Target::Fd(Rc::new(Cell::new(fd))))
    }

    pub(super) fn of_memory(end: MemoryKick) -> Self {
        KickCell(Target::Memory(Box::new(end)))
    }

    pub(super) fn kick_handle(&self) -> Kick {
        Kick(self.0.clone())
    }
}

impl Drop for KickCell {
    fn drop(&mut self) {
        if let Target::Fd(fd) = &self.0 {
            fd.set(CLOSED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::tcp_pair;
    use std::io::Read;

    #[tokio::test]
    async fn a_kick_ends_a_read_and_leaves_the_write_side() {
        let (ours, mut peer) = tcp_pair().await;
        let kick = ours.kick_handle();
        ours.writable().await.expect("writable");
        let mut buffer = [0; 4];
        let (read, kicked) = tokio::join!(ours.read(&mut buffer), async {
            tokio::task::yield_now().await;
            kick.kick(KickHow::Read)
        });
        assert_eq!((read.expect("end"), kicked), (0, true));
        assert_eq!(ours.try_write(b"408").expect("still writable"), 3);
        drop(ours);
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).expect("read");
        assert_eq!(heard, b"408");
    }

    #[tokio::test]
    async fn a_kick_in_both_directions_fails_a_stuck_writer() {
        let (ours, _peer) = tcp_pair().await;
        let kick = ours.kick_handle();
        ours.writable().await.expect("writable");
        while ours.try_write(&[0; 65_536]).is_ok() {}
        let (waited, kicked) = tokio::join!(ours.writable(), async {
            tokio::task::yield_now().await;
            kick.kick(KickHow::Both)
        });
        waited.expect("woken");
        assert!(kicked);
        let error = ours.try_write(b"x").expect_err("shut down");
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_closed_connection_is_not_reached() {
        let (ours, _peer) = tcp_pair().await;
        let kick = ours.kick_handle();
        drop(ours);
        let (other, _other_peer) = tcp_pair().await;
        assert!(!kick.kick(KickHow::Both));
        other.writable().await.expect("untouched");
        assert_eq!(other.try_write(b"x").expect("untouched"), 1);
    }
}
