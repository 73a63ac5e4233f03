//! Raw connections (`sockproxy.server`): bytes are copied both ways unchanged.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use lighty_core::log::Level;
use lighty_core::{Fault, FaultReport, TunnelSummary};
use lighty_io::transport::{ByteStream, Peer};

use crate::connect::checkout::{Checkout, CheckoutRequest, Refusal, Reuse};
use crate::connect::dial::Dial;
use crate::connect::pool::{ConnPermit, Connection};
use crate::request::proxy_header;
use crate::response::reply;
use crate::route::rules::Route;
use crate::route::settings::ProxySettings;
use crate::route::tunnel_route::BackendRoute;
use crate::serve::local::Local;
use crate::upstream::Upstream;
use crate::upstream::address::AddressId;
use crate::upstream::balance::BalanceKey;
use crate::upstream::fault_log::Logged;
use crate::upstream::spec::{Protocol, ProxyProtocol};

/// Maximum number of addresses tried for a connection.
const TRIES_MAX: usize = 16;

/// Returns the route of a listener's raw connections, if its settings have one.
pub fn route(settings: &lighty_core::Settings) -> Option<Arc<Route>> {
    let routes = ProxySettings::routes(settings);
    let is_raw =
        |route: &&Arc<Route>| route.upstream.protocol == Protocol::Raw && route.websocket.is_none();
    routes.servers.iter().find(is_raw).cloned()
}

/// An accepted connection.
pub struct Caller {
    /// Its bytes, both ways.
    pub stream: Rc<dyn ByteStream>,
    /// The client's address.
    pub peer: Peer,
    /// The local address it connected to; none for a unix socket.
    pub local: Option<SocketAddr>,
}

/// A tunnel of a raw connection.
pub struct RawTunnel {
    /// Relays until both sides have closed, or nothing moved for `proxy-core.tunnel-timeout`.
    pub running: Pin<Box<dyn Future<Output = io::Result<TunnelSummary>>>>,
    /// Its route, for reloads.
    pub route: BackendRoute,
}

/// Opens a connection to a backend for a caller. If none can be reached, the reason is logged.
pub async fn open(local: Rc<Local>, route: Arc<Route>, caller: Caller) -> Option<RawTunnel> {
    let upstream = local.upstream_now(&route.upstream);
    upstream.requests.fetch_add(1, Ordering::Relaxed);
    match reach(&local, &route, &upstream, &caller.peer).await {
        Ok(connection) => {
            let greeting = upstream.spec.proxy_protocol.map(|version| greet(version, &caller));
            let route = BackendRoute::new(&local, &connection.permit, None);
            let tunnel = reply::tunnel(connection, Bytes::new(), &local, None);
            let running = tunnel.run(caller.stream, greeting.unwrap_or_default());
            Some(RawTunnel { running, route })
        }
        Err(report) => {
            let logged = upstream.fault_log.log(report.fault, local.clock.mono_ms());
            let what = report.fault.verdict().message;
            let mut report = report.about(what);
            let level = match logged {
                Logged::No => Level::Debug,
                Logged::Yes { hushed } => {
                    report.add_repeats(hushed);
                    Level::Error
                }
            };
            local.say(level, &format!("{}: {report}", upstream.spec.name));
            None
        }
    }
}

/// Connects to a backend.
///
/// # Errors
/// None of the tried addresses accepts a connection.
pub(crate) async fn reach(
    local: &Rc<Local>,
    route: &Route,
    upstream: &Arc<Upstream>,
    peer: &Peer,
) -> Result<Connection, FaultReport> {
    let mut tried = Vec::new();
    loop {
        let permit = try_acquire(local, route, upstream, peer, &tried).await?;
        let began_ms = local.clock.mono_ms();
        let limit_ms = upstream.spec.timeouts.connect_ms;
        let dial = Dial {
            target: &permit.address.spec.target,
            tls: None,
            greeting: &[],
            options: &local.connect,
            clock: &local.clock,
            tls_began_us: Cell::new(None),
        };
        let report = match Box::pin(dial.open(limit_ms)).await {
            Ok(stream) => {
                local.note_success(&permit, began_ms);
                return Ok(Connection::new(stream, permit, None, local.clock.mono_ms()));
            }
            Err(fault) => fault.report(),
        };
        local.note_failure(&permit, began_ms, &report.detail);
        tried.push(permit.address.id);
        if tried.len() >= TRIES_MAX {
            return Err(report.about(format!("backend {}", permit.address.spec.text)));
        }
    }
}

async fn try_acquire(
    local: &Rc<Local>,
    route: &Route,
    upstream: &Arc<Upstream>,
    peer: &Peer,
    tried: &[AddressId],
) -> Result<ConnPermit, FaultReport> {
    let client = match peer {
        Peer::Inet(address) => Some(address.ip()),
        Peer::Unix => None,
    };
    let key =
        BalanceKey { authority: b"", target: b"", client, sticky: None, random: local.random() };
    let ask = CheckoutRequest {
        upstream,
        key,
        class: route.class,
        tried,
        only: None,
        reuse: Reuse::None,
    };
    let checkout = match local.checkout_at_once(&ask) {
        Some(checkout) => Ok(checkout),
        None => Box::pin(local.wait_for_checkout(&ask)).await,
    };
    match checkout {
        Ok(Checkout::Fresh(permit)) => Ok(permit),
        Ok(Checkout::Reused(_)) => {
            Err(FaultReport::new(Fault::Internal, "a connection that was used before"))
        }
        Err(Refusal::Down) => Err(Fault::BackendsDown.into()),
        Err(Refusal::BacklogFull) => Err(Fault::BacklogFull.into()),
        Err(Refusal::BacklogTimeout) => Err(Fault::BacklogTimeout.into()),
    }
}

/// Returns the PROXY protocol header for the caller.
fn greet(version: ProxyProtocol, caller: &Caller) -> Bytes {
    let mut header = Vec::new();
    proxy_header::push_for(&caller.peer, caller.local, version, &mut header);
    header.into()
}
