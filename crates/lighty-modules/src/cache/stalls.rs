//! Checks for clients that stop reading a body too large to be stored: it goes on at the rate of
//! its slowest reader, so that they would hold up the others.

use std::future::Future;

use lighty_cache::store::Pilot;
use lighty_core::Machine;
use lighty_io::clock::alarms::Alarm;

/// Time between two checks, in milliseconds.
pub(super) const STALL_MS: u64 = 10_000;

/// The checks for one body.
pub(super) struct StallChecks {
    next_ms: u64,
}

impl StallChecks {
    pub(super) fn begin(machine: &Machine) -> Self {
        Self { next_ms: machine.clock.mono_ms() + STALL_MS }
    }

    /// The output of a future, or `None` if the next check is due first.
    pub(super) async fn limit<T>(
        &self,
        machine: &Machine,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let left_ms = self.next_ms.saturating_sub(machine.clock.mono_ms()).max(1);
        Alarm::limit(&machine.alarms, left_ms, future).await
    }

    /// Cuts off clients that have read almost nothing since the last check and hold up others.
    /// Returns their number.
    pub(super) fn check(&mut self, machine: &Machine, pilot: &Pilot) -> usize {
        self.next_ms = machine.clock.mono_ms() + STALL_MS;
        pilot.drop_stalled()
    }
}
