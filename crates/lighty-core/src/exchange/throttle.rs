//! Bandwidth limits: `connection.kbytes-per-second` and `server.kbytes-per-second`.

use std::sync::Mutex;

/// A token bucket in bytes, refilled by the caller's clock. Workers share it and their clocks may
/// differ by a few milliseconds, so time that seems to go backwards adds nothing.
///
/// It holds at most a quarter of a second's worth, so that a limit of 100 KB/s is a steady stream
/// and not a burst every second.
#[derive(Debug)]
pub struct Bucket {
    kbytes_per_second: u64,
    bytes_per_second: u64,
    level: Mutex<TokenLevel>,
}

#[derive(Debug)]
struct TokenLevel {
    tokens: u64,
    refilled_ms: u64,
}

/// The bucket's depth in milliseconds.
const DEPTH_MS: u64 = 250;

/// Minimum bytes worth a system call; with less the caller waits.
const GRAIN_BYTES: u64 = 1024;

impl Bucket {
    /// A full bucket for a rate in KB (1024 bytes, as lighttpd counts) per second.
    pub fn per_second(kbytes: u64, now_ms: u64) -> Self {
        let bytes_per_second = kbytes.saturating_mul(1024).max(GRAIN_BYTES);
        let level = TokenLevel { tokens: depth(bytes_per_second), refilled_ms: now_ms };
        Self { kbytes_per_second: kbytes, bytes_per_second, level: Mutex::new(level) }
    }

    /// The configured rate in KB per second.
    pub fn kbytes_per_second(&self) -> u64 {
        self.kbytes_per_second
    }

    /// Takes up to `wanted` bytes of tokens, or returns the milliseconds to wait. Callers return
    /// the tokens of unsent bytes.
    pub fn take(&self, wanted: u64, now_ms: u64) -> Result<u64, u64> {
        let mut level = self.lock();
        let elapsed_ms = now_ms.saturating_sub(level.refilled_ms);
        let earned = elapsed_ms.saturating_mul(self.bytes_per_second) / 1000;
        if earned > 0 {
            level.refilled_ms = now_ms;
            level.tokens = (level.tokens + earned).min(depth(self.bytes_per_second));
        }
        debug_assert!(level.tokens <= depth(self.bytes_per_second), "{}", level.tokens);
        let least = GRAIN_BYTES.min(depth(self.bytes_per_second)).min(wanted);
        if level.tokens >= least {
            let taken = level.tokens.min(wanted);
            level.tokens -= taken;
            Ok(taken)
        } else {
            Err(((least - level.tokens) * 1000).div_ceil(self.bytes_per_second).max(1))
        }
    }

    /// Returns unused tokens.
    pub fn give_back(&self, bytes: u64) {
        debug_assert!(bytes <= depth(self.bytes_per_second), "{bytes} were not taken at once");
        let mut level = self.lock();
        level.tokens = (level.tokens + bytes).min(depth(self.bytes_per_second));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, TokenLevel> {
        // The two numbers are consistent even after a panic.
        self.level.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
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
            match bucket.take(u64::MAX, now) {
                Ok(bytes) => sent += bytes,
                Err(wait_ms) => now += wait_ms,
            }
        }
        let rate = sent / 10;
        assert!((100 * 1024..=105 * 1024).contains(&rate), "{rate}");
    }

    #[test]
    fn an_idle_hour_does_not_save_up() {
        let bucket = Bucket::per_second(100, 0);
        assert_eq!(bucket.take(u64::MAX, 3_600_000), Ok(25_600));
    }

    #[test]
    fn unsent_bytes_are_given_back_to_the_bucket() {
        let bucket = Bucket::per_second(100, 0);
        assert_eq!(bucket.take(u64::MAX, 0), Ok(25_600));
        bucket.give_back(20_000);
        assert_eq!(bucket.take(u64::MAX, 0), Ok(20_000));
    }

    #[test]
    fn the_smallest_rate_still_moves() {
        let bucket = Bucket::per_second(1, 0);
        assert!(bucket.take(u64::MAX, 0).is_ok());
        let wait = bucket.take(u64::MAX, 0).unwrap_err();
        assert!(wait <= 1000);
        assert!(bucket.take(u64::MAX, wait).is_ok());
    }
}
