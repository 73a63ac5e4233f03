//! Sockets of programs that succeed each other at a port.
//!
//! Each program has a listen queue of its own, as with unix sockets: the old one must not take
//! connections that are meant for its successor. The sockets share the port (`SO_REUSEPORT`), and
//! the kernel is directed to give new connections to one of them, by its index. When a socket stops
//! listening, the last one moves to its index.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use lighty_io::listen::{BindOptions, BindSpec, BoundSocket};
use lighty_io::process::predecessor;

/// A port and its listening sockets, in the kernel's order.
pub(super) struct Port {
    sockets: RefCell<Vec<(u64, BoundSocket)>>,
    /// The socket that gets new connections.
    current: Cell<u64>,
    next: Cell<u64>,
}

/// A socket's seat at its port. Dropping it, after the program's processes have ended, stops the
/// socket, even if leftover processes hold it open.
pub(super) struct PortShare {
    port: Rc<Port>,
    number: u64,
}

impl Port {
    /// Listens on a port that has no other listener.
    pub(super) fn bind(
        address: SocketAddr,
        backlog: i32,
    ) -> io::Result<(BoundSocket, Rc<PortShare>)> {
        // With a shared port, bind would succeed beside another server, too.
        if !predecessor::is_beside_us() {
            BoundSocket::refuse_taken(address, &BindOptions::default())?;
        }
        let port = Self { sockets: RefCell::default(), current: Cell::new(0), next: Cell::new(0) };
        Rc::new(port).add(address, backlog)
    }

    fn add(
        self: Rc<Self>,
        address: SocketAddr,
        backlog: i32,
    ) -> io::Result<(BoundSocket, Rc<PortShare>)> {
        let options = BindOptions { backlog, reuse_port: true, ..BindOptions::default() };
        let socket = BoundSocket::bind(&BindSpec::Inet(address), &options)?;
        let number = self.next.replace(self.next.get() + 1);
        self.sockets.borrow_mut().push((number, socket.try_clone()?));
        Ok((socket, Rc::new(PortShare { port: self, number })))
    }

    /// Directs connections to the current socket.
    fn direct(&self) -> io::Result<()> {
        let sockets = self.sockets.borrow();
        let is_current = |(number, _): &(u64, BoundSocket)| *number == self.current.get();
        match sockets.iter().position(is_current) {
            Some(place) => sockets[place].1.direct_connections(place as u32),
            None => Ok(()),
        }
    }
}

impl PortShare {
    /// Listens beside the socket of this seat, which keeps getting the connections. Returns `None`
    /// if that is impossible.
    pub(super) fn add_beside(&self, backlog: i32) -> Option<(BoundSocket, Rc<PortShare>)> {
        let address = {
            let sockets = self.port.sockets.borrow();
            let (_, first) = sockets.first()?;
            let BindSpec::Inet(address) = *first.address() else { return None };
            address
        };
        self.port.direct().ok()?;
        Rc::clone(&self.port).add(address, backlog).ok()
    }

    /// Directs all new connections to this socket.
    pub(super) fn take_over(&self) -> io::Result<()> {
        let before = self.port.current.replace(self.number);
        self.port.direct().inspect_err(|_| self.port.current.set(before))
    }
}

impl Drop for PortShare {
    fn drop(&mut self) {
        let mut sockets = self.port.sockets.borrow_mut();
        if let Some(place) = sockets.iter().position(|(number, _)| *number == self.number) {
            // The kernel moves the last one in the same way.
            let (_, socket) = sockets.swap_remove(place);
            let _ = socket.stop_listening();
        }
        drop(sockets);
        // The kernel distributes connections while this fails.
        let _ = self.port.direct();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn listener(socket: BoundSocket) -> TcpListener {
        let listener = TcpListener::from(socket.duplicate().expect("a descriptor"));
        listener.set_nonblocking(true).expect("nonblocking");
        listener
    }

    /// Returns how many of some connections each of these listeners gets.
    fn shares(address: SocketAddr, listeners: &[&TcpListener]) -> Vec<usize> {
        let clients: Vec<_> =
            (0..20).map(|_| TcpStream::connect(address).expect("connect")).collect();
        let accepted = |one: &&TcpListener| std::iter::from_fn(|| one.accept().ok()).count();
        let shares = listeners.iter().map(accepted).collect();
        drop(clients);
        shares
    }

    #[test]
    fn connections_follow_the_current_socket_whoever_leaves() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let (first, one) = Port::bind(any, 100).expect("a port");
        let BindSpec::Inet(address) = *first.address() else { panic!("{first:?}") };
        let first = listener(first);
        let (second, two) = one.add_beside(100).expect("a second");
        let second = listener(second);
        assert_eq!(shares(address, &[&first, &second]), [20, 0]);
        two.take_over().expect("the second");
        assert_eq!(shares(address, &[&first, &second]), [0, 20]);
        let (third, three) = two.add_beside(100).expect("a third");
        let third = listener(third);
        assert_eq!(shares(address, &[&first, &second, &third]), [0, 20, 0]);
        three.take_over().expect("the third");
        assert_eq!(shares(address, &[&first, &second, &third]), [0, 0, 20]);
        drop((first, one));
        assert_eq!(shares(address, &[&second, &third]), [0, 20]);
        drop((second, two));
        assert_eq!(shares(address, &[&third]), [20]);
        let (fourth, four) = three.add_beside(100).expect("a fourth");
        let fourth = listener(fourth);
        assert_eq!(shares(address, &[&third, &fourth]), [20, 0]);
        // It is not used in the end.
        drop((fourth, four));
        assert_eq!(shares(address, &[&third]), [20]);
    }

    #[test]
    fn socket_that_a_process_holds_stops_with_its_seat() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let (first, one) = Port::bind(any, 100).expect("a port");
        let address = *inet(&first);
        assert!(Port::bind(address, 100).is_err(), "taken");
        let (second, two) = one.add_beside(100).expect("a second");
        two.take_over().expect("the second");
        // A descriptor of the first stays open.
        drop(one);
        let (third, three) = two.add_beside(100).expect("a third");
        let (second, third) = (listener(second), listener(third));
        assert_eq!(shares(address, &[&second, &third]), [20, 0]);
        three.take_over().expect("the third");
        drop(two);
        assert_eq!(shares(address, &[&third]), [20]);
        drop(first);
    }

    fn inet(socket: &BoundSocket) -> &SocketAddr {
        match socket.address() {
            BindSpec::Inet(address) => address,
            BindSpec::Unix(path) => panic!("{}", path.display()),
        }
    }
}
