//! Accepts connections, makes room for them and spawns a task for each.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use lighty_core::log::Level;
use lighty_io::listen::{ACCEPT_PAUSE, AcceptError, CLOSING_TIME, Listener};
use lighty_io::threads::{keep, panics};
use lighty_io::transport::{Peer, Stream};
use tokio::time::{Sleep, sleep};

use crate::conn::Conn;
use crate::conn::presence::Presence;
use crate::listen::info::ListenerInfo;
use crate::listen::live::ListenerGuard;
use crate::listen::recovery::ListenerRecovery;
use crate::worker::conn_table::wait_s;
use crate::worker::{Listening, Worker};

/// Retry interval for making room while no connection can be closed.
const ROOM_LOOK: Duration = Duration::from_millis(250);

/// Maximum size of the future that serves a connection. With the runtime's header, it takes up 512
/// bytes as long as the connection is open.
const SERVING_BYTES_MAX: usize = 408;

/// Consecutive panics in `accept` before a listener is given up, so that a process that accepts no
/// connections does not look alive.
const ACCEPT_PANICS_MAX: u32 = 5;

impl Worker {
    /// Accepts connections until the worker stops or the listener closes, then drains the listen
    /// backlog. `guard` counts the listener for as long as it listens.
    pub async fn accept(
        self: Rc<Self>,
        listener: Listener,
        listener_info: Rc<ListenerInfo>,
        guard: ListenerGuard,
    ) {
        // Dropped after the listener.
        let _open = listener_info.hold.while_open();
        let (mut listener, mut in_vain) = (Some(listener), 0);
        loop {
            let accepting = self.accept_until_the_end(&mut listener, &listener_info, &mut in_vain);
            let Err(panicked) = panics::catch(accepting).await else { break };
            in_vain += 1;
            if listener.is_none() || in_vain >= ACCEPT_PANICS_MAX {
                let message = &panicked.0;
                let text = format!("giving up on listener {}: {message}", listener_info.name);
                self.log(Level::Error, &text);
                break;
            }
            keep::pause_after("accept", &panicked).await;
        }
        drop(guard);
    }

    /// Resets `in_vain` for each connection admitted.
    async fn accept_until_the_end(
        self: &Rc<Self>,
        listening: &mut Option<Listener>,
        listener_info: &Rc<ListenerInfo>,
        in_vain: &mut u32,
    ) {
        let mut end = None;
        let mut recovery = ListenerRecovery::default();
        while let Some(listener) = listening {
            let next = self.next_connection(listener, listener_info, &mut end).await;
            let Some(accepted) = next else { break };
            match accepted {
                Ok((stream, peer)) => {
                    recovery.start_anew();
                    self.make_room().await;
                    panics::point("accept");
                    self.admit(stream, peer, listener_info);
                    *in_vain = 0;
                }
                Err(AcceptError::OutOfResources(error)) => self.pause_accepting(&error).await,
                Err(AcceptError::Broken(_))
                    if self.stopping.get() || listener_info.is_closing() =>
                {
                    break;
                }
                Err(AcceptError::Broken(error)) => {
                    if let Some(broken) = listening.take() {
                        *listening = recovery.mend(self, listener_info, broken, &error).await;
                    }
                }
            }
        }
    }

    /// Returns the next connection; `None` once the worker stops, or the listener closes, and the
    /// listen backlog is empty or another worker's. As long as listeners are held, connections are
    /// left to the other process that has the sockets.
    async fn next_connection(
        &self,
        listener: &mut Listener,
        listener_info: &ListenerInfo,
        end: &mut Option<Pin<Box<Sleep>>>,
    ) -> Option<Result<(Stream, Peer), AcceptError>> {
        if end.is_none() {
            while !self.stopping.get() && !listener_info.is_closing() {
                if self.listening.get() == Listening::Held {
                    tokio::select! {
                        biased;
                        () = self.stop.notified() => {}
                        () = listener_info.closes() => {}
                    }
                    continue;
                }
                tokio::select! {
                    biased;
                    () = self.stops_accepting() => {}
                    () = listener_info.closes() => {}
                    accepted = listener.accept() => return Some(accepted),
                }
            }
            if listener_info.hold.is_passed_on() {
                return None;
            }
            listener.refuse_new();
        }
        let end = end.get_or_insert_with(|| Box::pin(sleep(CLOSING_TIME)));
        tokio::select! {
            biased;
            accepted = listener.accept() => {
                // Without resources for the rest of the backlog, do not wait forever.
                Some(accepted).filter(|accepted| accepted.is_ok() || !end.is_elapsed())
            }
            () = end.as_mut() => None,
        }
    }

    pub(crate) fn admit(
        self: &Rc<Self>,
        stream: Stream,
        peer: Peer,
        listener_info: &Rc<ListenerInfo>,
    ) {
        self.machine.counters.connections.add(1);
        if let Peer::Inet(address) = peer
            && self.machine.bans.refuse_connections(address.ip(), self.machine.clock.unix_s())
        {
            self.machine.counters.banned.add(1);
            return;
        }
        let peer_text: Rc<str> = match peer {
            Peer::Inet(address) => address.ip().to_canonical().to_string().into(),
            // The listener's path, as in lighttpd: clients choose their own paths.
            Peer::Unix => {
                let name = &listener_info.name;
                name.strip_prefix("unix:").unwrap_or(name).into()
            }
        };
        let since_s = wait_s(&self.machine.clock);
        let entry = self.conns.enter(stream.shutdown_handle(), Rc::clone(&peer_text), since_s);
        let entry = Presence::new(entry, self);
        if self.stopping.get() {
            entry.close_soon(self.now_s());
        }
        let serving = Conn::new(stream, peer, peer_text, listener_info, entry).serve();
        debug_assert!(size_of_val(&serving) <= SERVING_BYTES_MAX, "{}", size_of_val(&serving));
        tokio::task::spawn_local(serving);
    }

    /// Enforces `server.max-connections`. Closes idle connections first, the longest idle before
    /// others, then the ones slow to send a head. If there are none, the new connection waits, and
    /// later ones wait in the listen backlog.
    pub(crate) async fn make_room(&self) {
        let (mut reaped, mut is_counted) = (0, false);
        while self.conns.open() >= self.connections_max.get() + reaped && !self.stopping.get() {
            // New connections look idle until they have had a chance to read.
            tokio::task::yield_now().await;
            if self.conns.open() < self.connections_max.get() + reaped {
                break;
            }
            let closed = self.room.notified();
            reaped = self.reap();
            if reaped == 0 {
                if !std::mem::replace(&mut is_counted, true) {
                    self.machine.counters.accept_pauses.add(1);
                    if self.crowded.is_due(self.now_s()) {
                        self.log(Level::Warning, "server.max-connections reached and none is idle");
                    }
                }
                self.crowding.set(self.crowding.get() + 1);
                // Partial heads become eligible over time.
                let _ = tokio::time::timeout(ROOM_LOOK, closed).await;
                self.crowding.set(self.crowding.get() - 1);
            }
        }
    }

    fn reap(&self) -> usize {
        let reaped = self.conns.reap(self.connections_max.get() / 32 + 1, self.now_s());
        self.machine.counters.reaped.add(reaped as u64);
        reaped
    }

    /// Pauses accepting after descriptors ran out, until a connection closes. Cached files are
    /// closed first. If no connection closes, idle ones are. The pause also gives new connections
    /// time to send a request.
    async fn pause_accepting(&self, error: &std::io::Error) {
        self.machine.counters.accept_pauses.add(1);
        if self.short_of_descriptors.is_due(self.now_s()) {
            self.log(Level::Error, &format!("accepting pauses: {error} (server.max-fds)"));
        }
        let closed = self.room.notified();
        self.machine.shed();
        if tokio::time::timeout(ACCEPT_PAUSE, closed).await.is_err() {
            self.reap();
        }
    }
}
