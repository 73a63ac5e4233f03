//! Wakes a connection from outside, so that the timeout sweep can end it without owning it.

use std::cell::Cell;
use std::os::fd::{BorrowedFd, RawFd};
use std::rc::Rc;

use rustix::net::{RecvFlags, Shutdown, recv};

use super::ShutdownHow;
use super::memory::MemoryShutdown;

/// A handle to a connection with another owner. It does not keep the connection open, and does
/// nothing once the owner has closed it.
#[derive(Clone, Debug)]
pub struct ShutdownHandle(ShutdownTarget);

/// The owner's half of [`ShutdownHandle`].
#[derive(Debug)]
pub(super) struct ShutdownCell(ShutdownTarget);

#[derive(Clone, Debug)]
enum ShutdownTarget {
    Fd(Rc<Cell<RawFd>>),
    // Boxed, because every connection has two of these.
    Memory(Box<MemoryShutdown>),
}

const CLOSED: RawFd = -1;

impl ShutdownHandle {
    /// Shuts the connection down in the given direction. Returns true if it was still open.
    pub fn shut_down(&self, how: ShutdownHow) -> bool {
        let fd = match &self.0 {
            ShutdownTarget::Fd(fd) => fd.get(),
            ShutdownTarget::Memory(end) => return end.shut_down(how),
        };
        if fd == CLOSED {
            return false;
        }
        // SAFETY: `ShutdownCell` sets the cell to CLOSED before its stream closes the descriptor,
        // and both live on this thread (`Rc` is not `Send`), so the descriptor is open and is ours.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let how = match how {
            ShutdownHow::Read => Shutdown::Read,
            ShutdownHow::Both => Shutdown::Both,
        };
        // ENOTCONN: the peer closed first, which the owner will notice.
        let _ = rustix::net::shutdown(socket, how);
        true
    }
}

impl ShutdownHandle {
    /// Shuts reading down unless there are unread bytes: they are a request whose rest would be
    /// lost. Their owner closes the connection after the response. Returns true if the connection
    /// was shut down.
    pub fn shut_down_idle(&self) -> bool {
        let is_idle = match &self.0 {
            ShutdownTarget::Fd(fd) if fd.get() == CLOSED => return false,
            ShutdownTarget::Fd(fd) => {
                // SAFETY: as in `shut_down`.
                let socket = unsafe { BorrowedFd::borrow_raw(fd.get()) };
                let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                !matches!(recv(socket, &mut [0; 1], flags), Ok((1.., _)))
            }
            ShutdownTarget::Memory(end) => !end.has_unread(),
        };
        is_idle && self.shut_down(ShutdownHow::Read)
    }
}

impl ShutdownCell {
    pub(super) fn of_fd(fd: RawFd) -> Self {
        ShutdownCell(ShutdownTarget::Fd(Rc::new(Cell::new(fd))))
    }

    pub(super) fn of_memory(end: MemoryShutdown) -> Self {
        ShutdownCell(ShutdownTarget::Memory(Box::new(end)))
    }

    pub(super) fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle(self.0.clone())
    }
}

impl Drop for ShutdownCell {
    fn drop(&mut self) {
        if let ShutdownTarget::Fd(fd) = &self.0 {
            fd.set(CLOSED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::tcp_pair;
    use std::io::{Read, Write};

    #[tokio::test]
    async fn a_shutdown_ends_a_read_and_leaves_the_write_side() {
        let (ours, mut peer) = tcp_pair().await;
        let shutdown = ours.shutdown_handle();
        ours.writable().await.expect("writable");
        let mut buffer = [0; 4];
        let (read, was_open) = tokio::join!(ours.read(&mut buffer), async {
            tokio::task::yield_now().await;
            shutdown.shut_down(ShutdownHow::Read)
        });
        assert_eq!((read.expect("end"), was_open), (0, true));
        assert_eq!(ours.try_write(b"408").expect("still writable"), 3);
        drop(ours);
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).expect("read");
        assert_eq!(heard, b"408");
    }

    #[tokio::test]
    async fn an_idle_connection_with_unread_bytes_stays_open() {
        let (ours, mut peer) = tcp_pair().await;
        let shutdown = ours.shutdown_handle();
        peer.write_all(b"PO").expect("sent");
        ours.readable().await.expect("readable");
        assert!(!shutdown.shut_down_idle());
        let mut buffer = [0; 4];
        assert_eq!(ours.read(&mut buffer).await.expect("read"), 2);
        let (read, ()) = tokio::join!(ours.read(&mut buffer), async {
            tokio::task::yield_now().await;
            peer.write_all(b"ST").expect("sent");
        });
        assert_eq!((read.expect("read"), &buffer[..2]), (2, &b"ST"[..]));
        assert!(shutdown.shut_down_idle());
        assert_eq!(ours.read(&mut buffer).await.expect("end"), 0);
    }

    #[tokio::test]
    async fn a_shutdown_in_both_directions_fails_a_stuck_writer() {
        let (ours, _peer) = tcp_pair().await;
        let shutdown = ours.shutdown_handle();
        ours.writable().await.expect("writable");
        while ours.try_write(&[0; 65_536]).is_ok() {}
        let (waited, was_open) = tokio::join!(ours.writable(), async {
            tokio::task::yield_now().await;
            shutdown.shut_down(ShutdownHow::Both)
        });
        waited.expect("woken");
        assert!(was_open);
        let error = ours.try_write(b"x").expect_err("shut down");
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_closed_connection_is_not_reached() {
        let (ours, _peer) = tcp_pair().await;
        let shutdown = ours.shutdown_handle();
        drop(ours);
        let (other, _other_peer) = tcp_pair().await;
        assert!(!shutdown.shut_down(ShutdownHow::Both));
        other.writable().await.expect("untouched");
        assert_eq!(other.try_write(b"x").expect("untouched"), 1);
    }
}
