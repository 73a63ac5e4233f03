//! Detects whether a peer is still there, or has sent something, while no one reads.
//!
//! The reactor reports every end and error, so most questions are answered from memory. Nothing
//! here consumes bytes that a reader would get.

use std::future::poll_fn;
use std::io;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{Interest, Ready};

use super::{Socket, Stream};

/// The state of a connection that should be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing has arrived: the connection is usable.
    Quiet,
    /// Unexpected bytes have arrived, which would be taken for the next response.
    Unsolicited,
    /// Closed, at least half, or broken.
    Closed,
}

/// Extent of the peer's close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerClose {
    /// It will send nothing more but may still read. Over TCP this looks like a full close until
    /// something is sent.
    Half,
    /// It is gone: a reset or, on a unix socket, a close of both directions.
    Full,
}

impl Stream {
    /// True if a pooled connection is still usable, as far as the reactor knows. Costs no system
    /// call unless an event was reported, and then one [`probe`](Self::probe).
    pub fn is_idle_alive(&self) -> bool {
        let heard = each!(&self.socket, socket => socket.try_io(Interest::READABLE, || Ok(())),
            end => return end.probe() == Idle::Quiet);
        (heard.is_err() && !self.has_tls_input()) || self.probe() == Idle::Quiet
    }

    /// Checks the socket with one system call, without consuming application data. On a TLS
    /// connection it processes records without application data.
    pub fn probe(&self) -> Idle {
        match &self.tls {
            None => self.peek(),
            Some(tls) => tls.probe(self),
        }
    }

    fn peek(&self) -> Idle {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0; 1];
        let peeked = each!(&self.socket,
            socket => rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut byte, flags)),
            end => return end.probe());
        match peeked {
            Ok((1.., _)) => Idle::Unsolicited,
            Err(Errno::AGAIN) => {
                self.forget_readable();
                Idle::Quiet
            }
            Ok(_) | Err(_) => Idle::Closed,
        }
    }

    /// Waits until the peer closes, even if unread bytes come before.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn peer_close(&self) -> io::Result<PeerClose> {
        // Interest in urgent data, which never arrives (the reactor does not ask for it), reports
        // the read end without an event for each byte.
        let interest = Interest::PRIORITY | Interest::ERROR;
        loop {
            let ready = each!(&self.socket, socket => socket.ready(interest).await,
                end => return Ok(poll_fn(|cx| end.poll_peer_close(cx)).await))?;
            if ready.is_error() {
                return Ok(PeerClose::Full);
            }
            if ready.is_read_closed() {
                return Ok(self.how_closed().await);
            }
        }
    }

    /// Waits until the connection breaks: a reset or a kernel timeout. Earlier bytes may still be
    /// readable.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn reset(&self) -> io::Result<()> {
        each!(&self.socket, socket => socket.ready(Interest::ERROR).await.map(drop),
            end => { poll_fn(|cx| end.poll_reset(cx)).await; Ok(()) })
    }

    async fn how_closed(&self) -> PeerClose {
        let heard = self.readiness(Interest::WRITABLE);
        if heard.is_write_closed() { PeerClose::Full } else { PeerClose::Half }
    }

    /// The current readiness for an interest.
    fn readiness(&self, interest: Interest) -> Ready {
        use std::future::Future;
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        let mut cx = Context::from_waker(Waker::noop());
        let known = each!(&self.socket, socket => pin!(socket.ready(interest)).poll(&mut cx),
            _end => Poll::Pending);
        match known {
            Poll::Ready(Ok(ready)) => ready,
            // The runtime is shutting down, or the reactor has reported nothing.
            Poll::Ready(Err(_)) | Poll::Pending => Ready::EMPTY,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream as StdUnixStream;
    use std::time::Duration;

    use super::*;
    use crate::transport::tests::{tcp_pair, unix_pair};

    /// Waits until the reactor has seen the peer's action.
    async fn until(what: impl Fn() -> bool) {
        let turn = Duration::from_millis(1);
        let waited = async {
            while !what() {
                tokio::time::sleep(turn).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waited).await.expect("it comes to pass");
    }

    fn reset_by(peer: std::net::TcpStream) {
        let socket = socket2::Socket::from(peer);
        socket.set_linger(Some(Duration::ZERO)).expect("linger");
    }

    #[tokio::test]
    async fn an_idle_connection_is_alive_until_the_peer_closes_or_speaks() {
        let (ours, peer) = tcp_pair().await;
        assert!(ours.is_idle_alive());
        assert_eq!(ours.probe(), Idle::Quiet);
        drop(peer);
        until(|| !ours.is_idle_alive()).await;
        assert_eq!(ours.probe(), Idle::Closed);

        let (ours, mut peer) = unix_pair();
        peer.write_all(b"!").expect("write");
        until(|| !ours.is_idle_alive()).await;
        assert_eq!(ours.probe(), Idle::Unsolicited);
        assert_eq!(ours.read(&mut [0; 4]).await.expect("still there"), 1);
        assert!(ours.is_idle_alive());
    }

    #[tokio::test]
    async fn a_probe_sees_what_the_reactor_has_not_heard() {
        let (ours, peer) = tcp_pair().await;
        drop(peer);
        assert_eq!(ours.probe(), Idle::Closed);
        let (ours, peer) = tcp_pair().await;
        reset_by(peer);
        assert_eq!(ours.probe(), Idle::Closed);
    }

    #[tokio::test]
    async fn a_read_that_filled_its_buffer_leaves_the_connection_usable() {
        let (ours, mut peer) = tcp_pair().await;
        peer.write_all(b"1234").expect("write");
        assert_eq!(ours.read(&mut [0; 4]).await.expect("read"), 4);
        assert!(ours.is_idle_alive());
        peer.write_all(b"5678").expect("write");
        assert_eq!(ours.read(&mut [0; 8]).await.expect("read"), 4);
    }

    #[tokio::test]
    async fn a_half_close_differs_from_a_reset_with_bytes_unread() {
        let (ours, mut peer) = tcp_pair().await;
        peer.write_all(b"pipelined").expect("write");
        peer.shutdown(Shutdown::Write).expect("shutdown");
        assert_eq!(ours.peer_close().await.expect("heard"), PeerClose::Half);
        let mut buffer = [0; 16];
        assert_eq!(ours.read(&mut buffer).await.expect("unread before"), 9);
        reset_by(peer);
        ours.reset().await.expect("heard");
    }

    #[tokio::test]
    async fn a_reset_is_noticed_at_once() {
        let (ours, mut peer) = tcp_pair().await;
        peer.write_all(b"pipelined").expect("write");
        let (gone, ()) = tokio::join!(ours.peer_close(), async { reset_by(peer) });
        assert_eq!(gone.expect("heard"), PeerClose::Full);
    }

    #[tokio::test]
    async fn bytes_do_not_look_like_a_close() {
        let (ours, mut peer) = tcp_pair().await;
        let talk = async {
            for _ in 0..3 {
                peer.write_all(b"more").expect("write");
                ours.readable().await.expect("readable");
                assert!(ours.read(&mut [0; 16]).await.expect("read") > 0);
            }
        };
        tokio::select! {
            biased;
            closed = ours.peer_close() => panic!("{closed:?}"),
            () = talk => {}
        }
    }

    #[tokio::test]
    async fn a_unix_peer_that_closes_is_gone_and_one_that_half_closes_is_not() {
        let (ours, mut peer) = unix_pair();
        peer.shutdown(Shutdown::Write).expect("shutdown");
        assert_eq!(ours.peer_close().await.expect("heard"), PeerClose::Half);
        ours.try_write(b"answer").expect("write");
        ours.shutdown_write().expect("shutdown");
        let mut heard = String::new();
        peer.read_to_string(&mut heard).expect("read");
        assert_eq!(heard, "answer");
        let (ours, peer): (_, StdUnixStream) = unix_pair();
        drop(peer);
        assert_eq!(ours.peer_close().await.expect("heard"), PeerClose::Full);
    }
}
