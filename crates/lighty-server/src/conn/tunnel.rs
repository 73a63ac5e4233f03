//! A tunnel outlives the configuration under which it began, unless `server.tunnel-reload` ends it.

use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use lighty_core::log::Level;
use lighty_core::settings::tunnel_reload::{RouteFate, TunnelReload};
use lighty_core::{Exchange, TunnelRoute, TunnelSummary};
use lighty_io::clock::Clock;

use crate::worker::Worker;

/// A tunnel under way.
pub(super) type RunningTunnel = Pin<Box<dyn Future<Output = io::Result<TunnelSummary>>>>;

/// Runs a tunnel to its end. Each reload gives its exchange the new configuration, so that a tunnel
/// of days keeps none of the earlier ones. Returns `None` if a stop of the worker or a reload cuts
/// it.
pub(super) async fn run_through_reloads(
    worker: &Worker,
    ex: &mut Exchange,
    running: &mut RunningTunnel,
    route: Option<Rc<dyn TunnelRoute>>,
) -> Option<io::Result<TunnelSummary>> {
    let mut ends = pin!(worker.ends_tunnels());
    let mut limit = ReloadLimit::default();
    loop {
        ex.renew(&worker.generation());
        if let Some(route) = &route {
            limit.review(worker, || route.fate(ex));
        }
        tokio::select! {
            biased;
            ended = &mut *running => return Some(ended),
            () = &mut ends => return None,
            () = worker.swaps() => {}
            () = limit.ends(&worker.machine.clock) => {
                ex.log(Level::Notice, limit.reason());
                if !route.as_ref().is_some_and(|route| route.close()) {
                    return None;
                }
                limit = ReloadLimit::Closed;
            }
        }
    }
}

/// Time limit of a tunnel by `server.tunnel-reload`.
#[derive(Default)]
pub(super) enum ReloadLimit {
    /// The tunnel stays.
    #[default]
    None,
    /// The tunnel ends at this monotonic millisecond, because its route has this fate.
    At(u64, RouteFate),
    /// The tunnel was asked to close.
    Closed,
}

impl ReloadLimit {
    /// Sets or lifts the limit after a reload. A limit of an earlier reload stays.
    pub(super) fn review(&mut self, worker: &Worker, fate: impl FnOnce() -> RouteFate) {
        let policy = worker.global().server.tunnels.reload;
        if matches!(self, Self::Closed) {
            return;
        }
        // The look-up has no use then.
        let fate = if policy == TunnelReload::Keep { RouteFate::Same } else { fate() };
        let now_ms = worker.machine.clock.mono_ms();
        let end_ms = policy.limit_s(fate).map(|seconds| now_ms + u64::from(seconds) * 1000);
        *self = match (&*self, end_ms) {
            (_, None) => Self::None,
            (Self::At(before_ms, _), Some(end_ms)) => Self::At(end_ms.min(*before_ms), fate),
            (_, Some(end_ms)) => Self::At(end_ms, fate),
        };
    }

    /// Resolves when the tunnel has to end.
    pub(super) async fn ends(&self, clock: &Clock) {
        match self {
            Self::At(end_ms, _) => {
                let left_ms = end_ms.saturating_sub(clock.mono_ms());
                tokio::time::sleep(Duration::from_millis(left_ms)).await;
            }
            Self::None | Self::Closed => std::future::pending().await,
        }
    }

    /// The reason of the end, for the log.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::At(_, RouteFate::Changed) => {
                "server.tunnel-reload ends a tunnel: a reload has changed its upstream"
            }
            _ => "server.tunnel-reload ends a tunnel: a reload has removed its route",
        }
    }
}
