//! Distribution of new connections among sockets that share a port (`SO_REUSEPORT`).

use std::io;
use std::net::Shutdown;

use super::{BindSpec, BoundSocket};

impl BoundSocket {
    /// Directs all new connections of this port to one socket: the `nth`, from 0, in the order in
    /// which they began to listen. If there is no such socket, the kernel distributes connections.
    /// Connections in the queues of the other sockets stay there.
    ///
    /// # Errors
    /// `Unsupported` for a unix socket; the kernel's error if the socket does not share its port.
    pub fn direct_connections(&self, nth: u32) -> io::Result<()> {
        if let BindSpec::Unix(_) = self.address() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // A program of one instruction, which returns the number.
        let code = (libc::BPF_RET | libc::BPF_K) as u16;
        self.attach_choice(&mut [libc::sock_filter { code, jt: 0, jf: 0, k: nth }])
    }

    /// Stops listening, even if other processes hold the socket: it leaves the group of sockets
    /// that share its port, and the kernel resets the connections in its queue.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn stop_listening(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Both)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::super::BindOptions;
    use super::*;

    fn bind(spec: &BindSpec) -> BoundSocket {
        let options = BindOptions { reuse_port: true, ..BindOptions::default() };
        BoundSocket::bind(spec, &options).expect("bind")
    }

    fn listener(bound: &BoundSocket) -> TcpListener {
        let listener = TcpListener::from(bound.duplicate().expect("a descriptor"));
        listener.set_nonblocking(true).expect("nonblocking");
        listener
    }

    /// Counts the connections that each listener gets out of 20.
    fn shares(address: SocketAddr, listeners: &[&TcpListener]) -> Vec<usize> {
        let clients: Vec<_> =
            (0..20).map(|_| TcpStream::connect(address).expect("connect")).collect();
        let accepted =
            |listener: &&TcpListener| std::iter::from_fn(|| listener.accept().ok()).count();
        let shares = listeners.iter().map(accepted).collect();
        drop(clients);
        shares
    }

    #[test]
    fn new_connections_go_to_one_of_the_sockets() {
        for spec in ["127.0.0.1:0", "[::1]:0"] {
            let first = bind(&spec.parse().expect("an address"));
            let BindSpec::Inet(address) = *first.address() else { panic!("{spec}") };
            first.direct_connections(0).expect("before there is another");
            let second = bind(first.address());
            let (one, two) = (listener(&first), listener(&second));
            assert_eq!(shares(address, &[&one, &two]), [20, 0], "{spec}");
            second.direct_connections(1).expect("a switch");
            assert_eq!(shares(address, &[&one, &two]), [0, 20], "{spec}");
            // Another descriptor of it stays open.
            first.stop_listening().expect("a socket that listens");
            assert_eq!(shares(address, &[&two]), [20], "{spec}: the only one that is left");
            second.direct_connections(0).expect("for the next one");
            assert_eq!(shares(address, &[&two]), [20], "{spec}");
        }
    }

    #[test]
    fn socket_with_a_port_of_its_own_is_refused() {
        let spec: BindSpec = "127.0.0.1:0".parse().expect("an address");
        let bound = BoundSocket::bind(&spec, &BindOptions::default()).expect("bind");
        assert!(bound.direct_connections(0).is_err());
    }
}
