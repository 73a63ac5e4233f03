//! The clock of locks.

use lighty_core::Exchange;

/// Seconds since 1970: the wall clock at the start of the process, advanced by the monotonic clock.
/// A step of the wall clock neither ends nor extends locks.
pub(super) fn lock_clock(ex: &Exchange) -> i64 {
    ex.machine.clock.steady_unix_s().cast_signed()
}
