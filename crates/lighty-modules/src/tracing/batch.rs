//! Batches of records for a collector.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use lighty_io::clock::deadline::Deadline;

use super::delivery::Delivery;
use super::partial_success::PartialSuccess;

/// Records per request to the collector.
const BATCH_LENGTH: usize = 256;

/// Maximum time for which a record waits for others.
const BATCH_PATIENCE: Duration = Duration::from_secs(1);

/// Waits for records, and for more of them for a moment. `None` once there is no sender any more.
pub(super) fn next_batch<T>(records: &Receiver<T>, delivery: &mut Delivery) -> Option<Vec<T>> {
    let mut batch = vec![records.recv().ok()?];
    let deadline = Deadline::after(BATCH_PATIENCE);
    while batch.len() < BATCH_LENGTH {
        match records.recv_timeout(deadline.left()) {
            Ok(record) => batch.push(record),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => {
                delivery.end();
                break;
            }
        }
    }
    Some(batch)
}

/// Returns the number of items that the collector has taken of `count`; logs its reason for
/// rejecting others.
pub(super) fn count_taken(count: u64, items: &str, answer: &[u8], delivery: &mut Delivery) -> u64 {
    let partial = PartialSuccess::of(answer);
    let rejected = partial.rejected.min(count);
    if rejected > 0 {
        delivery.warn(&format!("it rejects {rejected} of {count} {items}: {}", partial.message));
    } else if !partial.message.is_empty() {
        delivery.warn(&format!("it warns: {}", partial.message));
    }
    count - rejected
}
