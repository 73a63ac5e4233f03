//! The clock of locks.

use lighty_core::Exchange;

/// Seconds since 1970 by the wall clock at the start of the process, counted on by the monotonic
/// clock. A step of the wall clock neither ends locks nor keeps them.
pub(super) fn lock_clock(ex: &Exchange) -> i64 {
    ex.machine.clock.steady_unix_s().cast_signed()
}
