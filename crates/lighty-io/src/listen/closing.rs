//! Closes a listener without losing a connection.
//!
//! When a listening socket is closed, the kernel resets the connections in its queue and the
//! unfinished handshakes. Therefore new handshakes are blocked first, the unfinished ones get time
//! to complete, and the queue is emptied.

use std::time::Duration;

use socket2::{SockFilter, SockRef};

use super::{Accepting, Listener, SocketOrigin};

/// Time for unfinished handshakes to complete: a round trip to a distant client.
pub const CLOSING_TIME: Duration = Duration::from_millis(250);

/// Classic BPF over a TCP header: segments with SYN and without ACK, which begin a handshake, are
/// dropped. linux/bpf_common.h: BPF_LD|BPF_B|BPF_ABS, BPF_ALU|BPF_AND|BPF_K, BPF_JMP|BPF_JEQ|BPF_K,
/// BPF_RET|BPF_K.
const NO_HANDSHAKES: [SockFilter; 5] = {
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    [
        SockFilter::new(0x30, 0, 0, FLAGS_AT),
        SockFilter::new(0x54, 0, 0, SYN | ACK),
        SockFilter::new(0x15, 0, 1, SYN),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ]
};

impl Listener {
    /// Blocks new handshakes. A client that starts one retries a second later, and is then refused
    /// or reaches another server. Connections in progress are still accepted: continue to call
    /// [`accept`](Self::accept) for [`CLOSING_TIME`], and until the queue is empty.
    ///
    /// An inherited socket is left as it is: its owner may pass it to another server. A unix socket
    /// has no handshake; remove its file before.
    pub fn refuse_new(&mut self) {
        if let (Accepting::Tcp(socket), SocketOrigin::Bound(_)) = (&self.socket, &self.origin) {
            // If the filter is not permitted (a sandbox), a few handshakes are lost.
            let _ = SockRef::from(socket).attach_filter(&NO_HANDSHAKES);
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
