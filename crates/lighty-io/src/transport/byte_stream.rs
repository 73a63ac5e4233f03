//! One end of a tunnel, over any transport.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{ShutdownHow, Stream};

/// Bytes in both directions. A trait and not an enum like a response's body, because the streams of
/// a multiplexed connection are defined above this crate, and a tunnel makes few calls for many
/// bytes.
pub trait ByteStream: Debug {
    /// Ready once bytes or the end may have arrived. Holds no buffer.
    ///
    /// # Errors
    /// If the connection broke, or the runtime is shutting down.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads into `buffer` and returns the number of bytes; 0 at the end.
    ///
    /// # Errors
    /// Errors of the connection.
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes as many bytes as are accepted now, at least one.
    ///
    /// # Errors
    /// Errors of the connection; `WriteZero` if it accepts nothing any more.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ends the written direction; the peer sees the end of its bytes. Ready once the connection
    /// has taken everything that belongs to the end.
    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Resolves when the connection breaks, even though it is not read any more.
    fn reset(&self) -> Pin<Box<dyn Future<Output = ()> + '_>>;

    /// Ends both directions; all waits wake up. After [`abort`](Self::abort) the peer sees no end
    /// before the reset.
    fn shut_down(&self);

    /// Makes the connection's end a reset, where it has one (a unix socket has none), so that the
    /// peer knows that its bytes are incomplete.
    fn abort(&self);
}

impl ByteStream for Stream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_readable(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match ready!(self.poll_read(cx, buffer)) {
            // A unix socket reports this at the end of a peer that closed before it had read
            // everything. All bytes of the peer have been read by then.
            Err(error) if !self.is_tcp() && error.kind() == io::ErrorKind::ConnectionReset => {
                Poll::Ready(Ok(0))
            }
            read => Poll::Ready(read),
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_writable(cx))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                // As in `poll_read`: the peer has closed, and its bytes end in order.
                Err(error) if !self.is_tcp() && error.kind() == io::ErrorKind::ConnectionReset => {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.close_notify();
        // The bytes before it may have filled the socket's buffer.
        while let Err(error) = self.try_send_records() {
            let may_wait = error.kind() == io::ErrorKind::WouldBlock;
            if !may_wait || ready!(self.poll_writable(cx)).is_err() {
                break;
            }
        }
        // If the peer is already gone, its reset reports the error.
        let _ = self.shutdown_write();
        Poll::Ready(())
    }

    fn reset(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async {
            // An error means that the runtime is shutting down, and the tunnel with it.
            let _ = self.reset().await;
        })
    }

    fn shut_down(&self) {
        let how = if self.ends_with_reset() { ShutdownHow::Read } else { ShutdownHow::Both };
        self.shutdown_handle().shut_down(how);
    }

    fn abort(&self) {
        self.reset_at_end();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;

    use super::*;
    use crate::transport::tests::unix_pair;

    #[tokio::test]
    async fn unix_peer_that_leaves_bytes_unread_ends_its_stream() {
        let (ours, mut peer) = unix_pair();
        ours.writable().await.expect("writable");
        assert_eq!(ours.try_write(b"unread").expect("accepted"), 6);
        peer.write_all(b"answer").expect("written");
        drop(peer);
        let stream: &dyn ByteStream = &ours;
        for expected in [6, 0] {
            let mut buffer = [0; 16];
            let count = poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await.expect("no reset");
            assert_eq!(count, expected);
        }
    }
}
