//! Bandwidth limits: `connection.kbytes-per-second` and `server.kbytes-per-second`.

use std::cell::Cell;

/// A token bucket in bytes, refilled by the clock that its caller passes in.
///
/// It holds at most a quarter of a second's worth, so that a limit of 100 KB/s is a stream and not
/// a burst once a second.
#[derive(Debug)]
pub struct Bucket {
    bytes_per_second: u64,
    tokens: Cell<u64>,
    refilled_ms: Cell<u64>,
}

/// The bucket's depth, as a part of a second.
const DEPTH_MS: u64 = 250;

/// Least bytes worth a system call; a bucket with less says wait.
const GRAIN_BYTES: u64 = 1024;

impl Bucket {
    /// A full bucket for a rate in KB (1000 bytes would surprise a lighttpd user: 1024) per second.
    pub fn per_second(kbytes: u64, now_ms: u64) -> Self {
        let bytes_per_second = kbytes.saturating_mul(1024).max(GRAIN_BYTES);
        Self {
            bytes_per_second,
            tokens: Cell::new(depth(bytes_per_second)),
            refilled_ms: Cell::new(now_ms),
        }
    }

    /// Bytes that may be sent now, or how long to wait in milliseconds.
    pub fn available(&self, now_ms: u64) -> Result<u64, u64> {
        let elapsed_ms = now_ms.saturating_sub(self.refilled_ms.get());
        let earned = elapsed_ms.saturating_mul(self.bytes_per_second) / 1000;
        if earned > 0 {
            self.refilled_ms.set(now_ms);
            self.tokens.set((self.tokens.get() + earned).min(depth(self.bytes_per_second)));
        }
        let tokens = self.tokens.get();
        let wanted = GRAIN_BYTES.min(depth(self.bytes_per_second));
        if tokens >= wanted {
            Ok(tokens)
        } else {
            Err(((wanted - tokens) * 1000).div_ceil(self.bytes_per_second).max(1))
        }
    }

    /// Takes what was sent.
    pub fn take(&self, bytes: u64) {
        self.tokens.set(self.tokens.get().saturating_sub(bytes));
    }
}

fn depth(bytes_per_second: u64) -> u64 {
    (bytes_per_second * DEPTH_MS / 1000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_yields_the_rate_and_no_more() {
        let bucket = Bucket::per_second(100, 0);
        let mut sent = 0;
        let mut now = 0;
        while now < 10_000 {
            match bucket.available(now) {
                Ok(bytes) => {
                    bucket.take(bytes);
                    sent += bytes;
                }
                Err(wait_ms) => now += wait_ms,
            }
        }
        let rate = sent / 10;
        assert!((100 * 1024..=105 * 1024).contains(&rate), "{rate}");
    }

    #[test]
    fn an_idle_hour_does_not_save_up() {
        let bucket = Bucket::per_second(100, 0);
        assert_eq!(bucket.available(3_600_000), Ok(25_600));
    }

    #[test]
    fn the_smallest_rate_still_moves() {
        let bucket = Bucket::per_second(1, 0);
        bucket.take(bucket.available(0).unwrap());
        let wait = bucket.available(0).unwrap_err();
        assert!(wait <= 1000);
        assert!(bucket.available(wait).is_ok());
    }
}
