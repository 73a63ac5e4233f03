//! Detects that a backend has not read a request to which it did not respond. Only then is it
//! certain that the request can be sent again.
//!
//! After a backend has closed a connection, its kernel discards data that still arrives for it, and
//! replies with a reset. Unacknowledged bytes alone prove nothing: a backend that reads half of a
//! request and then closes resets the connection as well, and its kernel acknowledges data late
//! (measured: so does a close with `SO_LINGER` 0 after reading everything). But the end of the
//! stream (FIN), like every segment before the reset, acknowledges all data that had arrived by
//! then. So if the end was read, then the reset came, and none of the written bytes is
//! acknowledged, the request met a closed connection. The only alternative is a peer that closed
//! its own half, continued to read, and reset the connection before its kernel acknowledged the
//! data, within 40 ms. Such a peer cannot respond any more, and discards the data (RFC 9112 section
//! 9.6).

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use super::{Socket, Stream};

impl Stream {
    /// True if the last `written` bytes are certainly unread. Call it after
    /// [`poll_read`](Self::poll_read) has returned the end of the stream, and no call has returned
    /// [`io::ErrorKind::ConnectionReset`]. The reset that proves it may still be in flight, so this
    /// waits for it, at most for `patience`.
    ///
    /// `false` does not prove that the bytes were read. It is the only result on a unix socket,
    /// which refuses a write if no process will read it.
    pub async fn went_unread(&self, written: u64, patience: Duration) -> bool {
        // A response precedes the request, so the bytes sent since then include all of the request.
        let written = self.tls.as_ref().map_or(written, |tls| tls.sent_since_read().max(written));
        if let Socket::Memory(end) = &self.socket {
            return end.lost_bytes() >= written;
        }
        if !self.is_tcp() || !self.is_unconfirmed(written) {
            return false;
        }
        self.is_shut_by_peer(patience).await && self.is_unconfirmed(written)
    }

    /// True if the process at the other end has not read all written bytes; `None` if the socket
    /// does not tell. For TCP only the kernel's acknowledgement is known, which does not mean that
    /// the process has read them.
    pub fn has_unread(&self) -> Option<bool> {
        self.tells_unread().then(|| self.unconfirmed_bytes().is_ok_and(|bytes| bytes > 0))
    }

    /// True if [`has_unread`](Self::has_unread) has a result.
    pub fn tells_unread(&self) -> bool {
        matches!(self.socket, Socket::Unix(_))
    }

    /// True if the kernel has ended the connection, or does so within `patience`.
    async fn is_shut_by_peer(&self, patience: Duration) -> bool {
        let is_over = || self.peer().is_err();
        is_over() || (tokio::time::timeout(patience, self.reset()).await.is_ok() && is_over())
    }

    /// True if none of the last `written` bytes was acknowledged. Bytes are acknowledged in order,
    /// and a broken connection remembers how many are left.
    fn is_unconfirmed(&self, written: u64) -> bool {
        self.unconfirmed_bytes().is_ok_and(|bytes| bytes >= written)
    }

    /// Number of bytes that the other end's kernel has not acknowledged.
    pub(super) fn unconfirmed_bytes(&self) -> io::Result<u64> {
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

    /// A pair that has exchanged data, so that the kernels delay acknowledgements.
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
    async fn bytes_sent_to_a_closed_connection_went_unread() {
        let (ours, peer) = used_pair().await;
        drop(peer);
        write(&ours).await;
        reads_the_end(&ours).await;
        assert!(ours.went_unread(1000, PATIENCE).await);
        // The first write was not read either, although the reset came between two writes.
        let late = ours.try_write(REQUEST).expect_err("closed");
        assert_eq!(late.kind(), io::ErrorKind::BrokenPipe);
        assert!(ours.went_unread(1000, PATIENCE).await);
        // A byte before it was acknowledged, or was not written at all.
        assert!(!ours.went_unread(1001, PATIENCE).await);
    }

    #[tokio::test]
    async fn acknowledged_bytes_count_as_read() {
        let (ours, mut peer) = used_pair().await;
        write(&ours).await;
        peer.read_exact(&mut [0; REQUEST.len()]).expect("read");
        drop(peer);
        reads_the_end(&ours).await;
        assert!(!ours.went_unread(1000, PATIENCE).await);
    }

    #[tokio::test]
    async fn bytes_left_in_the_queue_may_have_been_read() {
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
        // The kernel may not have acknowledged the bytes read: only the error shows that they were.
        let error = ours.read(&mut [0; 64]).await.expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn half_closed_peer_may_still_read() {
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
