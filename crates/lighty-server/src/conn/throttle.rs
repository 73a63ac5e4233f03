//! Bandwidth limits of a response.

use std::sync::Arc;

use lighty_core::Exchange;
use lighty_core::exchange::throttle::Bucket;

use crate::worker::conn_table::ConnEntry;

/// Returns true if the response is subject to `server.kbytes-per-second`,
/// `connection.kbytes-per-second` or
/// `limit.bandwidth`.
pub(super) fn is_throttled(ex: &Exchange) -> bool {
    let core = &ex.settings.core;
    core.shared_bucket.is_some()
        || core.connection_kbytes_per_second > 0
        || ex.state.key_bucket.is_some()
}

/// The buckets from which a response takes its bytes.
pub(super) struct Throttle(Vec<Arc<Bucket>>);

impl Throttle {
    /// Returns the buckets of a response on the connection of `entry`.
    pub(super) fn of(ex: &Exchange, entry: &ConnEntry) -> Self {
        let core = &ex.settings.core;
        let own = (core.connection_kbytes_per_second > 0).then(|| {
            entry.bucket(core.connection_kbytes_per_second, ex.generation.machine.clock.mono_ms())
        });
        let shared = core.shared_bucket.clone();
        Self(shared.into_iter().chain(own).chain(ex.state.key_bucket.clone()).collect())
    }

    /// Takes the same amount from each bucket, or returns the milliseconds to wait.
    pub(super) fn take(&self, wanted: u64, now_ms: u64) -> Result<u64, u64> {
        let mut granted = wanted;
        for (index, bucket) in self.0.iter().enumerate() {
            match bucket.take(granted, now_ms) {
                Ok(less) => {
                    self.0[..index].iter().for_each(|b| b.give_back(granted - less));
                    granted = less;
                }
                Err(wait_ms) => {
                    self.0[..index].iter().for_each(|b| b.give_back(granted));
                    return Err(wait_ms);
                }
            }
        }
        Ok(granted)
    }

    /// Returns the bytes that were taken and not sent to the buckets.
    pub(super) fn give_back(&self, bytes: u64) {
        self.0.iter().for_each(|bucket| bucket.give_back(bytes));
    }
}
