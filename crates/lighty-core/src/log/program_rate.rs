//! Rate limit on the error-log output of programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::settings::limits;

/// Rate limit on the log output of all programs together. Clones share the count.
#[derive(Clone, Debug)]
pub struct ProgramRate(Arc<RateSecond>);

#[derive(Debug)]
struct RateSecond {
    bytes_max: AtomicU64,
    /// The current second; `bytes` counts its bytes. Two workers that start a second at the same
    /// moment may lose a count, which the limit tolerates.
    second: AtomicI64,
    bytes: AtomicU64,
}

impl ProgramRate {
    /// A rate in KB per second; 0 = none.
    pub fn per_second(kbytes: u64) -> Self {
        let bytes_max = AtomicU64::new(bytes_of(kbytes));
        let (second, bytes) = (AtomicI64::new(i64::MIN), AtomicU64::new(0));
        Self(Arc::new(RateSecond { bytes_max, second, bytes }))
    }

    /// The rate in KB per second.
    pub(crate) fn kbytes_per_second(&self) -> u64 {
        self.0.bytes_max.load(Ordering::Relaxed) / 1024
    }

    /// Changes the rate, for all clones.
    pub(crate) fn change(&self, kbytes: u64) {
        self.0.bytes_max.store(bytes_of(kbytes), Ordering::Relaxed);
    }

    /// Counts a line; false if it exceeds the limit of this second.
    pub(crate) fn admits(&self, bytes: u64, now_s: i64) -> bool {
        let RateSecond { bytes_max, second, bytes: counted } = &*self.0;
        if second.swap(now_s, Ordering::Relaxed) != now_s {
            counted.store(0, Ordering::Relaxed);
        }
        let more = |sum: u64| {
            sum.checked_add(bytes).filter(|sum| *sum <= bytes_max.load(Ordering::Relaxed))
        };
        counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

fn bytes_of(kbytes: u64) -> u64 {
    if kbytes == 0 { u64::MAX } else { kbytes.saturating_mul(1024) }
}

impl Default for ProgramRate {
    fn default() -> Self {
        Self::per_second(limits::PROGRAM_LOG_KBYTES_PER_SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_takes_n_bytes_and_no_more() {
        let rate = ProgramRate::per_second(1);
        assert!(rate.admits(1000, 7));
        assert!(rate.clone().admits(24, 7));
        assert!(!rate.admits(1, 7));
        assert!(rate.admits(1024, 8));
        assert!(!rate.admits(1, 8));
        assert!(!rate.admits(1025, 9));
    }

    #[test]
    fn no_limit_is_none() {
        let rate = ProgramRate::per_second(0);
        assert!(rate.admits(u64::MAX / 2, 7) && rate.admits(u64::MAX / 2, 7));
    }
}
