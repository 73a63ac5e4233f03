//! Closes a listener without losing a connection.
//!
//! When a listening socket is closed, the kernel resets the connections in its queue and the
//! unfinished handshakes. Therefore new handshakes are blocked first, the unfinished ones get time
//! to complete, and the queue is emptied.

use std::os::fd::AsFd;
use std::time::Duration;

use super::handshakes;
use super::{Accepting, Listener, SocketOrigin};
use crate::sandbox::launcher;

/// Time for unfinished handshakes to complete: a round trip to a distant client.
pub const CLOSING_TIME: Duration = Duration::from_millis(250);

impl Listener {
    /// Blocks new handshakes. A client that starts one retries a second later, and is then refused
    /// or reaches another server. Connections in progress are still accepted: continue to call
    /// [`accept`](Self::accept) for [`CLOSING_TIME`], and until the queue is empty.
    ///
    /// An inherited socket is left as it is: its owner may pass it to another server. A unix socket
    /// has no handshake; remove its file before.
    pub fn refuse_new(&mut self) {
        if let (Accepting::Tcp(socket), SocketOrigin::Bound(_)) = (&self.socket, &self.origin) {
            // Some kernels permit it to root alone. If nobody may attach it, a few handshakes are
            // lost.
            if handshakes::refuse(socket).is_err() {
                let _ = launcher::refuse_handshakes(socket.as_fd());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::listen::{BindOptions, BindSpec, BoundSocket};

    fn listener(is_inherited: bool) -> (Listener, SocketAddr) {
        let spec = "127.0.0.1:0".parse().expect("spec");
        let mut bound = BoundSocket::bind(&spec, &BindOptions::default()).expect("bind");
        if is_inherited {
            bound.origin = SocketOrigin::Inherited;
        }
        let BindSpec::Inet(address) = *bound.address() else { panic!("not an address") };
        (bound.into_listener().expect("listen"), address)
    }

    fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
        TcpStream::connect_timeout(&address, Duration::from_millis(300))
    }

    #[tokio::test]
    async fn only_waiting_connections_are_accepted() {
        let (mut listener, address) = listener(false);
        let waiting: Vec<_> = (0..10).map(|_| connect(address).expect("a place")).collect();
        listener.refuse_new();
        let error = connect(address).expect_err("nobody begins to connect");
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        for _ in &waiting {
            listener.accept().await.expect("a connection");
        }
        let none = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(none.is_err(), "none is left");
        drop(listener);
        let refused = connect(address).expect_err("nobody listens");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn bytes_still_arrive_on_what_was_accepted() {
        use std::io::{Read, Write};
        let (mut listener, address) = listener(false);
        let mut waiting = connect(address).expect("a place");
        listener.refuse_new();
        let (stream, _) = listener.accept().await.expect("a connection");
        waiting.write_all(b"ask").expect("sent");
        let mut requested = [0; 3];
        let read = std::future::poll_fn(|cx| stream.poll_read(cx, &mut requested)).await;
        assert_eq!((read.expect("read"), &requested), (3, b"ask"));
        assert_eq!(stream.try_write(b"told").expect("sent"), 4);
        let mut received = [0; 4];
        waiting.read_exact(&mut received).expect("a response");
    }

    #[tokio::test]
    async fn a_socket_that_was_inherited_is_left_as_it_is() {
        let (mut listener, address) = listener(true);
        listener.refuse_new();
        connect(address).expect("a place");
        listener.accept().await.expect("a connection");
    }
}
