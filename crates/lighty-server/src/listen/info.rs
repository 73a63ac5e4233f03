//! Data that a listener shares with its connections, and counters of them.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use lighty_core::machine::status_board::ListenerReport;
use tokio::sync::Notify;

use crate::listen::hold::SocketHold;
use crate::worker::TcpProxy;

/// A listener as its connections see it.
pub struct ListenerInfo {
    /// The listener's address as in `$SERVER["socket"]`.
    pub name: Rc<str>,
    /// Its port, 0 for a unix socket.
    pub port: u16,
    /// Connections begin with a TLS handshake.
    pub speaks_tls: Cell<bool>,
    /// Backend for raw connections that carry no HTTP (`sockproxy.server`).
    pub raw: RefCell<Option<TcpProxy>>,
    /// Identifies the listener across configurations.
    pub(crate) id: u64,
    /// The main thread's handle on its socket.
    pub(crate) hold: SocketHold,
    is_closing: Cell<bool>,
    closing: Notify,
    accepted: Cell<u64>,
    open: Cell<u64>,
}

impl ListenerInfo {
    /// Creates the data of a listener that has no connections yet.
    pub fn new(name: &str, port: u16, speaks_tls: bool, raw: Option<TcpProxy>) -> Self {
        Self {
            name: name.into(),
            port,
            speaks_tls: Cell::new(speaks_tls),
            raw: RefCell::new(raw),
            id: 0,
            hold: SocketHold::default(),
            is_closing: Cell::new(false),
            closing: Notify::new(),
            accepted: Cell::new(0),
            open: Cell::new(0),
        }
    }

    /// Adds its identity and the main thread's handle on its socket.
    pub(crate) fn with_hold(self, id: u64, hold: &SocketHold) -> Self {
        Self { id, hold: hold.clone(), ..self }
    }

    /// Ends accepting, because no configuration has it any more. Its connections stay.
    pub(crate) fn close(&self) {
        self.is_closing.set(true);
        self.closing.notify_waiters();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// Resolves when it closes.
    pub(crate) async fn closes(&self) {
        while !self.is_closing.get() {
            self.closing.notified().await;
        }
    }

    pub(crate) fn report(&self) -> ListenerReport {
        let (accepted, open) = (self.accepted.get(), self.open.get());
        ListenerReport { name: self.name.to_string(), accepted, open }
    }
}

/// A connection's listener, which counts it until this is dropped.
pub(crate) struct CameBy(Rc<ListenerInfo>);

impl CameBy {
    pub(crate) fn new(listener: &Rc<ListenerInfo>) -> Self {
        listener.accepted.set(listener.accepted.get() + 1);
        listener.open.set(listener.open.get() + 1);
        Self(Rc::clone(listener))
    }
}

impl Deref for CameBy {
    type Target = ListenerInfo;

    fn deref(&self) -> &ListenerInfo {
        &self.0
    }
}

impl Drop for CameBy {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_while_they_are_open() {
        let listener = Rc::new(ListenerInfo::new("[::]:80", 80, false, None));
        let (one, two) = (CameBy::new(&listener), CameBy::new(&listener));
        assert_eq!(one.port, 80);
        drop(two);
        let name = "[::]:80".to_owned();
        assert_eq!(listener.report(), ListenerReport { name, accepted: 2, open: 1 });
    }
}
