//! A tunnel outlives the configuration under which it began.

use std::io;
use std::pin::{Pin, pin};

use lighty_core::{Exchange, TunnelSummary};

use crate::worker::Worker;

/// A tunnel under way.
pub(super) type RunningTunnel = Pin<Box<dyn Future<Output = io::Result<TunnelSummary>>>>;

/// Runs a tunnel to its end. Each reload gives its exchange the new configuration, so that a tunnel
/// of days keeps none of the earlier ones. Returns `None` if a stop of the worker ends it.
pub(super) async fn run_through_reloads(
    worker: &Worker,
    ex: &mut Exchange,
    running: &mut RunningTunnel,
) -> Option<io::Result<TunnelSummary>> {
    let mut ends = pin!(worker.ends_tunnels());
    loop {
        ex.renew(&worker.generation());
        tokio::select! {
            biased;
            ended = &mut *running => return Some(ended),
            () = &mut ends => return None,
            () = worker.swaps() => {}
        }
    }
}
