//! Whether a request that got no response was never read: only then may it be sent again for
//! certain.
//!
//! The kernel of a backend that has closed a connection throws away what still arrives for it and
//! answers with a reset. Bytes that were not confirmed prove nothing by themselves: a backend that
//! reads half of a request and then closes resets the connection as well, and its kernel confirms
//! late what was read (measured: so does a close with `SO_LINGER` 0 of one that read everything).
//! But the end of the stream (FIN), like every segment before the reset, confirms whatever had
//! come by then. So: the end was read, afterwards came the reset, and of all that was written
//! nothing is confirmed. Then it met a closed connection. Or one whose peer had ended its own half,
//! read on, and reset the connection before its kernel confirmed what was read, 40 ms later at
//! most: who can no longer answer throws away what it reads (RFC 9112 section 9.6).

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use super::{Socket, Stream};

impl Stream {
    /// Whether the last `written` bytes are unread. To be asked when
    /// [`poll_read`](Self::poll_read) has told the end of the stream, and no call an
    /// [`io::ErrorKind::ConnectionReset`]. The reset that proves it may be on its way: it is waited
    /// for as long as `patience`.
    ///
    /// `false` is no proof of the contrary, and over a unix socket all there is: that refuses what
    /// nobody would read when it is written.
    pub async fn went_unread(&self, written: u64, patience: Duration) -> bool {
        // A response came before the request: what was sent since then holds all of it.
        let written = self.tls.as_ref().map_or(written, |tls| tls.sent_since_read().max(written));
        if let Socket::Memory(end) = &self.socket {
            return end.lost_bytes() >= written;
        }
        if !self.is_tcp() || !self.is_unconfirmed(written) {
            return false;
        }
        self.is_shut_by_peer(patience).await && self.is_unconfirmed(written)
    }

    /// If the process at the other end has not read all that was written; `None` where the socket
    /// does not tell. Of TCP only the kernel's confirmation is known, which says nothing of the
    /// process.
    pub fn has_unread(&self) -> Option<bool> {
        self.tells_unread().then(|| self.unconfirmed_bytes().is_ok_and(|bytes| bytes > 0))
    }

    /// True if [`has_unread`](Self::has_unread) knows.
    pub fn tells_unread(&self) -> bool {
        matches!(self.socket, Socket::Unix(_))
    }

    /// Whether the kernel has given the connection up, now or soon.
    async fn is_shut_by_peer(&self, patience: Duration) -> bool {
        let is_over = || self.peer().is_err();
        is_over() || (tokio::time::timeout(patience, self.reset()).await.is_ok() && is_over())
    }

    /// Whether no byte of the last `written` ones was confirmed. Bytes are confirmed in their
    /// order, and a connection that broke remembers how many are left.
    fn is_unconfirmed(&self, written: u64) -> bool {
        self.unconfirmed_bytes().is_ok_and(|bytes| bytes >= written)
    }

    /// Bytes that the other end's kernel has not confirmed.
    fn unconfirmed_bytes(&self) -> io::Result<u64> {
        let socket: RawFd = each!(&self.socket, socket => socket.as_raw_fd(),
            _end => return Err(io::ErrorKind::Unsupported.into()));
        let mut bytes: libc::c_int = 0;
        // SAFETY: the descriptor is open for as long as `self` lives; SIOCOUTQ (the same number as
        // TIOCOUTQ) writes one int, to which the pointer points.
        let done = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes) };
        match done {
            0 => Ok(u64::try_from(bytes).unwrap_or(0)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};

    use super::*;
    use crate::transport::tests::{tcp_pair, unix_pair};

    const REQUEST: &[u8] = &[b'r'; 1000];
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A pair that has exchanged something, so that its kernels confirm late.
    async fn used_pair() -> (Stream, TcpStream) {
        let (ours, mut peer) = tcp_pair().await;
        ours.set_nodelay(true).expect("nodelay");
        for _ in 0..4 {
            write(&ours).await;
            peer.read_exact(&mut [0; REQUEST.len()]).expect("read");
            peer.write_all(b"answer").expect("write");
            assert_eq!(ours.read(&mut [0; 64]).await.expect("read"), 6);
        }
        (ours, peer)
    }

    async fn write(ours: &Stream) {
        ours.writable().await.expect("writable");
        assert_eq!(ours.try_write(REQUEST).expect("write"), REQUEST.len());
    }

    async fn reads_the_end(ours: &Stream) {
        assert_eq!(ours.read(&mut [0; 64]).await.expect("an end, no error"), 0);
    }

    #[tokio::test]
    async fn what_meets_a_closed_connection_was_not_read() {
        let (ours, peer) = used_pair().await;
        drop(peer);
        write(&ours).await;
        reads_the_end(&ours).await;
        assert!(ours.went_unread(1000, PATIENCE).await);
        // Nor was the beginning of it, if the reset came between two writes.
        let late = ours.try_write(REQUEST).expect_err("closed");
        assert_eq!(late.kind(), io::ErrorKind::BrokenPipe);
        assert!(ours.went_unread(1000, PATIENCE).await);
        // Something before it was confirmed, or was not written at all.
        assert!(!ours.went_unread(1001, PATIENCE).await);
    }

    #[tokio::test]
    async fn what_was_read_is_known_by_its_confirmation() {
        let (ours, mut peer) = used_pair().await;
        write(&ours).await;
        peer.read_exact(&mut [0; REQUEST.len()]).expect("read");
        drop(peer);
        reads_the_end(&ours).await;
        assert!(!ours.went_unread(1000, PATIENCE).await);
    }

    #[tokio::test]
    async fn what_lay_in_the_queue_may_have_been_read() {
        let (ours, mut peer) = used_pair().await;
        write(&ours).await;
        peer.shutdown(Shutdown::Both).expect("shutdown");
        peer.read_exact(&mut [0; 500]).expect("what lay there");
        drop(peer);
        reads_the_end(&ours).await;
        assert!(!ours.went_unread(1000, PATIENCE).await);
    }

    #[tokio::test]
    async fn a_reset_without_an_end_before_it_proves_nothing() {
        let (ours, mut peer) = used_pair().await;
        write(&ours).await;
        peer.read_exact(&mut [0; 500]).expect("read");
        drop(peer);
        // The kernel may not have confirmed what was read: it is the error that tells.
        let error = ours.read(&mut [0; 64]).await.expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn who_has_closed_one_half_may_read_yet() {
        let (ours, peer) = used_pair().await;
        peer.shutdown(Shutdown::Write).expect("shutdown");
        write(&ours).await;
        reads_the_end(&ours).await;
        assert!(!ours.went_unread(1000, Duration::from_millis(20)).await);
    }

    #[tokio::test]
    async fn a_unix_socket_refuses_instead() {
        let (ours, peer) = unix_pair();
        write(&ours).await;
        drop(peer);
        assert!(!ours.went_unread(1000, PATIENCE).await);
        let (ours, peer) = unix_pair();
        drop(peer);
        ours.writable().await.expect("writable");
        let refused = ours.try_write(REQUEST).expect_err("closed");
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }
}
