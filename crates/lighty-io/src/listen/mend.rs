//! Makes a listener that no longer accepts listen again.
//!
//! Any process that shares a socket can shut it down for all (shutdown(2), SOCK_DESTROY of
//! sock_diag(7)); then `accept` fails with EINVAL forever. A socket with a fixed port still
//! has its address, so `listen` works on it even without the privilege to bind, which may have been
//! dropped. If that does not help, a new socket is bound.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;

use socket2::Socket;

use super::local_inet;
use super::{BindOptions, BindSpec, BoundSocket, LISTEN_BACKLOG_DEFAULT, Listener, SocketOrigin};

/// Address and options of a listener, to bind it again.
#[derive(Clone, Debug)]
pub struct RebindSpec {
    address: BindSpec,
    options: BindOptions,
}

impl Listener {
    /// Calls `listen` on the socket again and registers it anew, because the runtime remembers that
    /// it was shut down.
    ///
    /// # Errors
    /// The kernel's error, or `AddrNotAvailable` if the port is lost. The listener is still broken.
    pub fn listen_again(&mut self) -> io::Result<()> {
        // Frees a reserved descriptor for the copy, in case the process has no other.
        self.reserve.pop();
        let socket = Socket::from(OwnedFd::from(self.spare_descriptor()?));
        socket.listen(match &self.origin {
            SocketOrigin::Bound(options) => options.backlog,
            SocketOrigin::Inherited => LISTEN_BACKLOG_DEFAULT,
        })?;
        self.check_address(&socket)?;
        let (address, origin) = (self.address.clone(), self.origin.clone());
        *self = BoundSocket { socket, address, origin }.into_listener()?;
        Ok(())
    }

    /// A second descriptor of the socket.
    ///
    /// # Errors
    /// EMFILE and other errors of the system.
    pub fn another(&self) -> io::Result<BoundSocket> {
        let socket = Socket::from(OwnedFd::from(self.spare_descriptor()?));
        Ok(BoundSocket { socket, address: self.address.clone(), origin: self.origin.clone() })
    }

    /// Checks that the address is the same. If the kernel chose the port, a shutdown has lost it,
    /// and listening again picks another one; then the socket is shut down again.
    fn check_address(&self, socket: &Socket) -> io::Result<()> {
        match &self.address {
            BindSpec::Inet(address) if local_inet(socket)? != *address => {
                socket.shutdown(Shutdown::Read)?;
                Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the port is lost"))
            }
            _ => Ok(()),
        }
    }

    /// Address and options for a new socket that replaces this one after it is closed. `None` for
    /// an inherited socket, and for a unix socket: its path may lead elsewhere now, and other
    /// sockets may have taken it.
    pub fn rebind_spec(&self) -> Option<RebindSpec> {
        match (&self.origin, &self.address) {
            (SocketOrigin::Bound(options), BindSpec::Inet(_)) => {
                Some(RebindSpec { address: self.address.clone(), options: options.clone() })
            }
            _ => None,
        }
    }
}

impl RebindSpec {
    /// Binds and listens again.
    ///
    /// # Errors
    /// The kernel's error: after dropping root, a port below 1024 cannot be bound.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn bind_again(&self) -> io::Result<Listener> {
        BoundSocket::bind(&self.address, &self.options)?.into_listener()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::listen::AcceptError;

    fn bound() -> (BoundSocket, SocketAddr) {
        let spec = "127.0.0.1:0".parse().expect("spec");
        let bound = BoundSocket::bind(&spec, &BindOptions::default()).expect("bind");
        let BindSpec::Inet(address) = *bound.address() else { panic!("not an address") };
        (bound, address)
    }

    fn shut_down(socket: &Socket) {
        socket.shutdown(Shutdown::Read).expect("shut down");
    }

    async fn is_broken(listener: &mut Listener) -> bool {
        matches!(listener.accept().await, Err(AcceptError::Broken(_)))
    }

    #[tokio::test]
    async fn a_socket_that_was_shut_down_listens_again() {
        // A bound socket that does not listen reserves the port for sockets of the same user.
        let held = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("socket");
        held.set_reuse_address(true).expect("option");
        held.bind(&"127.0.0.1:0".parse::<SocketAddr>().expect("address").into()).expect("bind");
        let address = local_inet(&held).expect("an address");
        let spec = BindSpec::Inet(address);
        let bound = BoundSocket::bind(&spec, &BindOptions::default()).expect("bind");
        let shared = bound.socket.try_clone().expect("clone");
        let mut listener = bound.into_listener().expect("listener");
        for _ in 0..3 {
            shut_down(&shared);
            assert!(is_broken(&mut listener).await);
            listener.listen_again().expect("again");
            TcpStream::connect(address).expect("connect");
            listener.accept().await.expect("a connection");
        }
    }

    #[tokio::test]
    async fn a_port_that_the_kernel_chose_is_not_left_for_another() {
        let (bound, _) = bound();
        let shared = bound.socket.try_clone().expect("clone");
        let mut listener = bound.into_listener().expect("listener");
        shut_down(&shared);
        assert!(is_broken(&mut listener).await);
        let error = listener.listen_again().expect_err("another port");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        assert!(!shared.is_listener().expect("option"));
    }

    #[tokio::test]
    async fn a_new_socket_takes_the_place_of_one_that_is_closed() {
        let (bound, address) = bound();
        let listener = bound.into_listener().expect("listener");
        let spec = listener.rebind_spec().expect("a bound socket");
        spec.bind_again().expect_err("the place is taken");
        drop(listener);
        let mut listener = spec.bind_again().expect("bound");
        TcpStream::connect(address).expect("connect");
        listener.accept().await.expect("a connection");
    }

    #[tokio::test]
    async fn inherited_and_unix_sockets_are_not_bound_again() {
        let (mut passed, _) = bound();
        passed.origin = SocketOrigin::Inherited;
        assert!(passed.into_listener().expect("listener").rebind_spec().is_none());
        let dir = tempfile::tempdir().expect("tempdir");
        let spec = BindSpec::Unix(dir.path().join("s"));
        let bound = BoundSocket::bind(&spec, &BindOptions::default()).expect("bind");
        assert!(bound.into_listener().expect("listener").rebind_spec().is_none());
    }
}
