//! Listening sockets of the server before this one: handed over in an upgrade, or kept by the
//! service manager since a crash.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use lighty_io::listen::{BindOptions, BindSpec, BoundSocket};

/// Sockets that listeners of this process may take.
#[derive(Default)]
pub(crate) struct HandedSockets {
    sockets: Vec<HandedSocket>,
    /// Addresses that the configuration names.
    named: Vec<BindSpec>,
}

pub(crate) struct HandedSocket {
    socket: BoundSocket,
    /// The service manager owns it.
    is_inherited: bool,
}

impl HandedSocket {
    /// # Errors
    /// The descriptor is not a listening stream socket.
    pub(crate) fn new(descriptor: OwnedFd, is_inherited: bool) -> io::Result<Self> {
        Ok(Self { socket: BoundSocket::handed(descriptor)?, is_inherited })
    }

    /// A socket that the service manager kept for this server.
    pub(crate) fn kept(socket: BoundSocket) -> Self {
        Self { socket, is_inherited: false }
    }

    /// The socket, which gets these options unless the service manager owns it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn into_socket(self, options: &BindOptions) -> io::Result<BoundSocket> {
        if self.is_inherited { Ok(self.socket) } else { self.socket.owned(options) }
    }

    /// Its address.
    pub(crate) fn address(&self) -> &BindSpec {
        self.socket.address()
    }
}

impl HandedSockets {
    pub(crate) fn new(sockets: Vec<HandedSocket>) -> Self {
        Self { sockets, named: Vec::new() }
    }

    pub(crate) fn push(&mut self, socket: HandedSocket) {
        self.sockets.push(socket);
    }

    /// Sets the addresses that the configuration names.
    pub(crate) fn keep_for<'a>(&mut self, named: impl Iterator<Item = &'a BindSpec>) {
        self.named = named.cloned().collect();
    }

    /// Takes all sockets of an address. Those of a port that the kernel chose go to the listener
    /// with port 0.
    pub(crate) fn take(&mut self, spec: &BindSpec) -> Option<Vec<HandedSocket>> {
        let address = match spec {
            BindSpec::Inet(wanted) if wanted.port() == 0 => self.chosen(wanted)?,
            named => named.clone(),
        };
        let (taken, left) = std::mem::take(&mut self.sockets)
            .into_iter()
            .partition::<Vec<_>, _>(|one| *one.address() == address);
        self.sockets = left;
        Some(taken).filter(|taken| !taken.is_empty())
    }

    /// The first address with this IP that the configuration does not name.
    fn chosen(&self, wanted: &SocketAddr) -> Option<BindSpec> {
        let fits = |one: &&HandedSocket| match one.address() {
            BindSpec::Inet(real) => real.ip() == wanted.ip() && !self.named.contains(one.address()),
            BindSpec::Unix(_) => false,
        };
        self.sockets.iter().find(fits).map(|one| one.address().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> BindOptions {
        BindOptions { reuse_port: true, ..BindOptions::default() }
    }

    /// So many sockets of one address, as another process would hand them over.
    fn handed(count: usize) -> (BindSpec, Vec<HandedSocket>) {
        let any: BindSpec = "127.0.0.1:0".parse().expect("an address");
        let first = BoundSocket::bind(&any, &options()).expect("bound");
        let address = first.address().clone();
        let mut all = vec![first];
        while all.len() < count {
            all.push(BoundSocket::bind(&address, &options()).expect("bound"));
        }
        let pass = |one: BoundSocket| {
            HandedSocket::new(one.duplicate().expect("a descriptor"), false).expect("a socket")
        };
        (address, all.into_iter().map(pass).collect())
    }

    #[test]
    fn sockets_go_to_the_listener_of_their_address() {
        let ((one, first), (other, second)) = (handed(2), handed(1));
        let mut all = HandedSockets::new(first.into_iter().chain(second).collect());
        let any: BindSpec = "127.0.0.1:0".parse().expect("an address");
        all.keep_for([&other, &any].into_iter());
        let chosen = all.take(&any).expect("those of a port that nothing names");
        assert_eq!((chosen.len(), chosen[0].address()), (2, &one));
        assert!(all.take(&any).is_none());
        assert_eq!(all.take(&other).expect("those of the named port").len(), 1);
        assert!(all.take(&other).is_none());
    }
}
