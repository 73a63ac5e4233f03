//! Second descriptors of the sockets that a worker listens on. They keep the sockets, and the
//! connections in their queues, if the worker ends by a panic.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_io::listen::BoundSocket;

/// A second descriptor of one listener's socket.
pub(crate) struct SpareSocket {
    /// The listener's address as in `$SERVER["socket"]`.
    name: String,
    /// `None` once the listener is closed.
    socket: Mutex<Option<BoundSocket>>,
}

impl SpareSocket {
    /// Duplicates the socket.
    ///
    /// # Errors
    /// EMFILE and other errors of the system.
    pub(crate) fn of(name: &str, socket: &BoundSocket) -> io::Result<Arc<Self>> {
        let socket = Mutex::new(Some(socket.try_clone()?));
        Ok(Arc::new(Self { name: name.to_owned(), socket }))
    }

    fn socket(&self) -> MutexGuard<'_, Option<BoundSocket>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the descriptor, because the listener is closed, or listens on another socket.
    pub(crate) fn close(&self) {
        let socket = self.socket().take();
        drop(socket);
    }

    /// A socket for another worker, with its listener's name; `None` if the listener is closed, or
    /// no descriptor is free.
    pub(crate) fn share(&self) -> Option<(String, BoundSocket)> {
        let copy = self.socket().as_ref()?.try_clone().ok()?;
        Some((self.name.clone(), copy))
    }
}

#[cfg(test)]
mod tests {
    use lighty_io::listen::{BindOptions, BindSpec};

    use super::*;

    #[test]
    fn closed_listener_has_no_socket_for_another_worker() {
        let spec: BindSpec = "127.0.0.1:0".parse().expect("an address");
        let socket = BoundSocket::bind(&spec, &BindOptions::default()).expect("bound");
        let spare = SpareSocket::of("a", &socket).expect("a descriptor");
        let (name, copy) = spare.share().expect("a socket");
        assert_eq!((name.as_str(), copy.address()), ("a", socket.address()));
        spare.close();
        assert!(spare.share().is_none());
    }
}
