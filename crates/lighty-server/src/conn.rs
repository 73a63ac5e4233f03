//! A connection, whatever protocol it speaks: from accepting it to closing it.
//!
//! A connection passes through this module once: a PROXY header, if one is expected
//! (`proxy_header`), the TLS handshake (`tls`), then the protocol's own loop. `h1` is HTTP/1, `h2`
//! is HTTP/2. Each protocol parses requests and passes them to `driver`, which responds through a
//! `sink`. `client_tls` is the TLS state that requests can read.

mod client_tls;
mod content_length;
pub(crate) mod driver;
pub(crate) mod h1;
pub(crate) mod h2;
mod malformed;
mod meanwhile;
pub(crate) mod presence;
mod proxy_header;
mod request_head;
pub(crate) mod sink;
mod stream;
mod throttle;
mod tls;
mod tunnel;

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Poll, ready};

use lighty_core::exchange::stage::Stages;
use lighty_core::log::About;
use lighty_core::{Fault, Level, Request};
use lighty_io::threads::panics;
use lighty_io::transport::{LingerLimits, Peer, Stream};
use lighty_proxy::raw::{self, Caller, RawTunnel};

use self::client_tls::ClientTls;
use self::presence::Presence;
use self::tunnel::ReloadLimit;
use crate::listen::info::{CameBy, ListenerInfo};
use crate::worker::conn_table::ConnLimits;
use crate::worker::{TcpProxy, Worker};

/// Lingering after a GOAWAY for a client's fault, and for close_notify. Short, because a flood goes
/// on for as long as it is read.
const LINGER_BRIEFLY: LingerLimits = LingerLimits { bytes_max: 64 * 1024, ms_max: 5_000 };

/// An accepted connection.
pub(crate) struct Conn {
    /// The socket, or the TLS session over it.
    pub stream: Rc<Stream>,
    pub peer: Peer,
    /// The client's address as text. Formatted once, for conditions and logs.
    pub peer_text: Rc<str>,
    pub listener: CameBy,
    /// The client's TLS, its own or as a trusted proxy reports it; `None` in clear text.
    pub tls: Option<Box<ClientTls>>,
    /// Its entry in the worker's table, and the worker.
    pub entry: Presence,
    /// Bytes already read that belong to the protocol: they followed a PROXY header, or turned
    /// out to be of another protocol than expected. Boxed, because few connections have some.
    #[expect(clippy::box_collection, reason = "three words become one")]
    pub early: Cell<Option<Box<Vec<u8>>>>,
    /// Number of requests so far.
    pub requests: Cell<u32>,
    /// When it was accepted, in monotonic microseconds.
    accepted_us: u64,
}

/// Ways in which a connection ends or changes its protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Closes; no client bytes are unread.
    Close,
    /// Resets in the middle of a response, so that the client cannot mistake it for complete.
    Cut,
    /// Closes, but lingers so that a client that is still sending can read its response.
    Linger,
    /// Like `Linger`, but with tight limits, after a fault of the client.
    LingerBriefly,
    /// Continues as HTTP/2 with the bytes in [`Conn::early`].
    Http2,
}

/// Next step of a protocol's loop after a burst of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// Waits for the next request without holding a buffer.
    Idle,
    End(End),
}

impl Conn {
    /// Creates a connection that was just accepted and is already in the worker's table.
    pub(crate) fn new(
        stream: Stream,
        peer: Peer,
        peer_text: Rc<str>,
        listener: &Rc<ListenerInfo>,
        entry: Presence,
    ) -> Self {
        let accepted_us = entry.worker().machine.clock.mono_us();
        Self {
            stream: Rc::new(stream),
            peer,
            peer_text,
            listener: CameBy::new(listener),
            tls: None,
            entry,
            early: Cell::new(None),
            requests: Cell::new(0),
            accepted_us,
        }
    }

    /// Serves the connection from its first byte to its close.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps its arguments twice in its future, and ten thousand idle \
                  connections keep ten thousand futures"
    )]
    pub(crate) fn serve(mut self) -> impl Future<Output = ()> {
        async move {
            let is_raw = self.listener.raw.borrow().is_some();
            // A reload may change it while the client is silent.
            let speaks_tls = self.listener.speaks_tls.get();
            let needs_header = !is_raw && self.worker().generation().needs.proxy_header;
            if needs_header && !self.take_proxy_header().await {
                return;
            }
            let mut met = None;
            if speaks_tls {
                met = Box::pin(self.secure()).await;
            }
            if is_raw {
                return if met.is_none() {
                    Box::pin(self.relay()).await
                };
            }
            let mut end = match met {
                Some(end) => end,
                None => h1::serve(&mut self).await,
            };
            if end == End::Http2 {
                end = h2::serve(&self).await;
            }
            match end {
                End::Close => {
                    self.stream.close_notify();
                    // The response has filled the socket's buffer, or a reset must not overtake it.
                    if self.stream.has_unsent_records() || self.stream.ends_with_reset() {
                        Box::pin(self.linger(LINGER_BRIEFLY)).await;
                    }
                }
                End::Cut | End::Http2 => {}
                End::Linger => Box::pin(self.linger(LingerLimits::default())).await,
                End::LingerBriefly => Box::pin(self.linger(LINGER_BRIEFLY)).await,
            }
        }
    }

    /// Performs the TLS handshake. Returns `None` to continue with HTTP/1.
    async fn secure(&mut self) -> Option<End> {
        match panics::catch(Box::pin(tls::secure(self))).await {
            Ok(end) => end,
            Err(_) => Some(End::Cut),
        }
    }

    /// Returns the worker that the connection belongs to.
    pub(crate) fn worker(&self) -> &Rc<Worker> {
        self.entry.worker()
    }

    /// Returns true if bytes of the protocol have been read already.
    fn has_early(&self) -> bool {
        let early = self.early.take();
        let has_some = early.is_some();
        self.early.set(early);
        has_some
    }

    /// Returns `http` or `https`, as the client sees it.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Waits without a buffer until bytes may have arrived; the caller may then find none. `false`
    /// if the connection ended first.
    fn wait_for_bytes(&self) -> impl Future<Output = bool> {
        self.begin_idle();
        let mut woken = false;
        std::future::poll_fn(move |cx| {
            // Reported once without probing the socket.
            let readable = match std::mem::replace(&mut woken, true) {
                true => Ok(()),
                false => ready!(self.stream.poll_readable(cx)),
            };
            let is_open = readable.is_ok() && self.entry.shut_down_for().is_none();
            if !is_open {
                self.log_idle_end();
            }
            Poll::Ready(is_open)
        })
    }

    /// Applies the idle limits before the first request and between requests.
    fn begin_idle(&self) {
        let worker = self.worker();
        if self.requests.get() == 0 {
            let global = worker.global();
            let core = &global.core;
            let (idle_s, log_idle) = (core.max_connection_idle_s, core.log_timeouts);
            self.entry.limit(ConnLimits { idle_s, log_idle, ..self.entry.limits() });
        }
        worker.idle(&self.entry);
        if self.entry.is_closing() {
            self.entry.close_soon(worker.now_s());
        }
    }

    /// Logs the end of an idle connection, which is routine and so needs `debug.log-timeouts`.
    fn log_idle_end(&self) {
        let limits = self.entry.limits();
        if !limits.log_idle || self.entry.shut_down_for() != Some(Fault::ClientGone) {
            return;
        }
        let requests = self.requests.get();
        let limit = match requests {
            0 => "server.max-connection-idle",
            _ => "server.max-keep-alive-idle",
        };
        let about = About { client: &self.peer_text, limit, ..About::default() };
        self.log(&format!("no request within {} s after {requests}", limits.idle_s), about);
    }

    /// Reads the PROXY header, if one is expected. `false` if the connection must close.
    async fn take_proxy_header(&mut self) -> bool {
        if !self.wait_for_bytes().await {
            return false;
        }
        let reading = Box::pin(proxy_header::read(self));
        panics::catch(reading).await.unwrap_or(false)
    }

    /// Copies bytes between the client and the listener's backend, if it has one.
    async fn relay(&self) {
        let raw = self.listener.raw.borrow().clone();
        let Some(raw) = raw else { return };
        if self.entry.is_closing() {
            // Closed for room, or by a stop, before its task ran.
            return;
        }
        self.entry.begin_request();
        panics::point("raw tunnel");
        let local = match self.stream.local() {
            Ok(Peer::Inet(address)) => Some(address),
            _ => None,
        };
        let caller = Caller { stream: Rc::clone(&self.stream) as _, peer: self.peer, local };
        tokio::select! {
            biased;
            () = self.tunnel_raw(raw, caller) => {}
            () = self.worker().ends_tunnels() => {}
        }
    }

    /// Opens a raw connection's tunnel, and runs it to its end.
    async fn tunnel_raw(&self, raw: TcpProxy, caller: Caller) {
        let Some(tunnel) = raw::open(raw.local, raw.route, caller).await else { return };
        let RawTunnel { mut running, route } = tunnel;
        let (worker, mut limit) = (self.worker(), ReloadLimit::default());
        loop {
            let raw = self.listener.raw.borrow().clone().filter(|_| !self.listener.is_closing());
            limit.review(worker, || route.among(raw.iter().map(|raw| &raw.route)));
            tokio::select! {
                biased;
                ended = &mut running => {
                    worker.machine.counters.bytes_out.add(ended.map_or(0, |end| end.sent_bytes));
                    return;
                }
                () = worker.swaps() => {}
                () = limit.ends(&worker.machine.clock) => {
                    let about = About { client: &self.peer_text, ..About::default() };
                    return self.log(limit.reason(), about);
                }
            }
        }
    }

    /// Closes once the client has had time to read its response. Until then the connection counts
    /// towards the limit and may be closed to make room.
    async fn linger(self, limits: LingerLimits) {
        self.worker().idle(&self.entry);
        self.entry.linger();
        if let Some(stream) = Rc::into_inner(self.stream) {
            // The connection ends in either case.
            let _ = stream.linger_close(limits).await;
        }
    }

    /// Begins the stages of a request when its first byte has arrived.
    #[inline]
    fn begin_stages(&self, stages: &mut Stages) {
        let now_us = self.worker().machine.clock.mono_us();
        match self.requests.get() {
            0 => {
                let tls_us = self.tls.as_ref().and_then(|tls| tls.handshake_us);
                stages.begin_first(self.accepted_us, now_us, tls_us);
            }
            _ => stages.begin(now_us),
        }
    }

    /// Copies the connection's properties into a request.
    #[inline]
    fn describe(&self, request: &mut Request) {
        request.peer = self.peer;
        if !Rc::ptr_eq(&request.peer_text, &self.peer_text) {
            request.peer_text = Rc::clone(&self.peer_text);
        }
        request.scheme = self.scheme();
        if !Rc::ptr_eq(&request.local_socket, &self.listener.name) {
            request.local_socket = Rc::clone(&self.listener.name);
        }
        request.local_port = self.listener.port;
    }

    #[track_caller]
    fn log(&self, message: &str, about: About<'_>) {
        let machine = &self.worker().machine;
        machine.log.line(Level::Notice, machine.clock.unix_s(), message, about);
    }
}
