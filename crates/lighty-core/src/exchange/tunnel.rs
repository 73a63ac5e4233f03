//! Tunnels: the connection after a 101.

use std::io;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use lighty_buf::BufPool;
use lighty_io::clock::Clock;
use lighty_io::transport::{self, ByteStream};

use crate::exchange::Exchange;
use crate::fault::{Fault, FaultReport};
use crate::settings::tunnel_reload::RouteFate;

/// Takes over from the response after a 101. From then on the bytes are not HTTP (RFC 9110 section
/// 7.8).
pub trait Tunnel {
    /// The route that leads to the far end. `None` if no configuration names the far end.
    fn route(&self) -> Option<Rc<dyn TunnelRoute>> {
        None
    }

    /// Relays bytes both ways until both ends are done or one is lost. `early` holds client bytes
    /// received after the request.
    ///
    /// # Errors
    /// The client is lost.
    fn run(
        self: Box<Self>,
        client: Rc<dyn ByteStream>,
        early: Bytes,
    ) -> Pin<Box<dyn Future<Output = io::Result<TunnelSummary>>>>;
}

/// The route of a running tunnel.
pub trait TunnelRoute {
    /// Looks the route up in the configuration that the exchange has now.
    fn fate(&self, ex: &Exchange) -> RouteFate;

    /// Has the tunnel end by its own protocol, within seconds. Returns false if its protocol is not
    /// known, so that the caller drops it.
    fn close(&self) -> bool;
}

/// Result of a tunnel.
#[derive(Debug)]
pub struct TunnelSummary {
    /// Bytes sent to the client.
    pub sent_bytes: u64,
    /// The failure of the far end before the end of its bytes. The client's stream was aborted.
    pub fault: Option<FaultReport>,
}

/// The far end of a tunnel, kept as long as the tunnel lasts.
pub trait FarEnd {
    /// The byte stream of the far end.
    fn bytes(&self) -> &dyn ByteStream;

    /// Called when the tunnel ends, unless its idle limit ended it.
    fn complete(self)
    where
        Self: Sized,
    {
    }
}

/// A tunnel between the client and a far end.
pub struct Relay<F> {
    /// The far end, such as a backend's connection.
    pub far: F,
    /// Bytes already received from the far end.
    pub early: Bytes,
    /// Milliseconds without a byte after which the tunnel ends; 0: no limit.
    pub idle_ms: u64,
    /// The route to the far end.
    pub route: Option<Rc<dyn TunnelRoute>>,
    /// The clock that `idle_ms` is measured by.
    pub clock: Clock,
    /// Pool for the buffers of both directions.
    pub buffers: BufPool,
}

impl<F: FarEnd + 'static> Tunnel for Relay<F> {
    fn route(&self) -> Option<Rc<dyn TunnelRoute>> {
        self.route.clone()
    }

    fn run(
        self: Box<Self>,
        client: Rc<dyn ByteStream>,
        early: Bytes,
    ) -> Pin<Box<dyn Future<Output = io::Result<TunnelSummary>>>> {
        Box::pin(async move {
            let ends = transport::Tunnel {
                near: &*client,
                far: self.far.bytes(),
                early_near: early,
                early_far: self.early,
            };
            let end = ends.run_while_active(&self.buffers, &self.clock, self.idle_ms).await;
            if !end.was_idle {
                self.far.complete();
            }
            let cut = || FaultReport::new(Fault::BackendCut, "the tunnel was reset");
            let fault = end.is_near_cut.then(cut);
            Ok(TunnelSummary { sent_bytes: end.to_near_bytes, fault })
        })
    }
}
