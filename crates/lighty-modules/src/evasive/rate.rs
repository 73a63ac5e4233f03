//! Request rate: the generic cell rate algorithm, one number per key.

use std::sync::{Mutex, PoisonError};

use super::table::{ContinuedCounts, EvasiveKey, Keys};

/// Admits up to `burst` requests at once, then one in each interval.
#[derive(Debug)]
pub(super) struct Rate {
    interval_us: u64,
    burst: u64,
    /// The algorithm's theoretical arrival time for each key, in microseconds: the time at which
    /// all admitted requests would have passed at the configured rate.
    due_us: ContinuedCounts<Mutex<Keys<u64>>>,
    keys_max: usize,
}

impl Rate {
    /// Limits to `count` requests in `per_s` seconds, and up to `burst` of them at once. All values
    /// are at least 1.
    pub(super) fn new(count: u64, per_s: u64, burst: u64, keys_max: usize) -> Self {
        let interval_us = (per_s.saturating_mul(1_000_000) / count.max(1)).max(1);
        Self { interval_us, burst: burst.max(1), due_us: ContinuedCounts::default(), keys_max }
    }

    fn all(&self) -> &Mutex<Keys<u64>> {
        self.due_us.get(|| Mutex::new(Keys::new(self.keys_max)))
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> usize {
        self.all().lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the microseconds until a request of the key is admitted, without counting one.
    pub(super) fn wait_us(&self, key: EvasiveKey, now_us: u64) -> u64 {
        let keys = self.all().lock().unwrap_or_else(PoisonError::into_inner);
        let from_us = keys.get(key).map_or(now_us, |due_us| (*due_us).max(now_us));
        let ahead_us = self.interval_us.saturating_mul(self.burst - 1);
        from_us.saturating_sub(now_us).saturating_sub(ahead_us)
    }

    /// Returns the keys whose admitted requests are ahead of the rate, with the microseconds.
    pub(super) fn ahead_us(&self, now_us: u64) -> Vec<(EvasiveKey, u64)> {
        let keys = self.all().lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = keys.iter().map(|(key, due_us)| (key, due_us.saturating_sub(now_us)));
        ahead.filter(|(_, ahead_us)| *ahead_us > 0).collect()
    }

    /// Continues with a key of another process, unless this one has admitted more of it.
    pub(super) fn recall(&self, key: EvasiveKey, ahead_us: u64, now_us: u64) {
        let ahead_us = ahead_us.min(self.interval_us.saturating_mul(self.burst));
        let due_us = now_us.saturating_add(ahead_us);
        let mut keys = self.all().lock().unwrap_or_else(PoisonError::into_inner);
        let known = keys.entry(key, now_us, |due_us| *due_us <= now_us, || due_us);
        *known = (*known).max(due_us);
    }

    /// Forgets a key. Returns false if it is unknown.
    pub(super) fn clear(&self, key: EvasiveKey) -> bool {
        self.all().lock().unwrap_or_else(PoisonError::into_inner).forget(key)
    }

    /// Admits a request, or returns the microseconds until one is admitted.
    pub(super) fn take(&self, key: EvasiveKey, now_us: u64) -> Result<(), u64> {
        let mut keys = self.all().lock().unwrap_or_else(PoisonError::into_inner);
        let due_us = keys.entry(key, now_us, |due_us| *due_us <= now_us, || now_us);
        let from_us = (*due_us).max(now_us);
        let ahead_us = self.interval_us.saturating_mul(self.burst - 1);
        let wait_us = from_us.saturating_sub(now_us).saturating_sub(ahead_us);
        if wait_us > 0 {
            return Err(wait_us);
        }
        *due_us = from_us.saturating_add(self.interval_us);
        Ok(())
    }

    /// Continues with the times of another limit.
    pub(super) fn continue_from(&self, before: &Self) {
        self.due_us.continue_from(&before.due_us);
        self.all().lock().unwrap_or_else(PoisonError::into_inner).limit(self.keys_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let rate = Rate::new(2, 1, 3, 10);
        let start = 5 * SECOND;
        for _ in 0..3 {
            assert_eq!(rate.take(1, start), Ok(()));
        }
        assert_eq!((rate.wait_us(1, start), rate.keys()), (SECOND / 2, 1));
        assert_eq!(rate.take(1, start), Err(SECOND / 2));
        assert_eq!(rate.take(2, start), Ok(()), "another key");
        assert_eq!(rate.take(1, start + SECOND / 2 - 1), Err(1));
        assert_eq!(rate.take(1, start + SECOND / 2), Ok(()));
        assert!(rate.take(1, start + SECOND / 2).is_err());
        for _ in 0..3 {
            assert_eq!(rate.take(1, start + 100 * SECOND), Ok(()));
        }
        assert!(rate.take(1, start + 100 * SECOND).is_err(), "waiting does not save up");
        assert!(rate.clear(1) && !rate.clear(1) && rate.take(1, start + 100 * SECOND).is_ok());
    }

    #[test]
    fn another_rate_knows_who_has_used_it_up() {
        let (before, next) = (Rate::new(1, 1, 1, 10), Rate::new(2, 1, 1, 10));
        assert_eq!(before.take(1, SECOND), Ok(()));
        next.continue_from(&before);
        assert_eq!(next.take(1, SECOND), Err(SECOND));
        assert_eq!(next.take(2, SECOND), Ok(()));
    }

    #[test]
    fn rate_of_a_key_goes_on_in_another_process() {
        let (before, next) = (Rate::new(1, 10, 2, 10), Rate::new(1, 10, 2, 10));
        for key in [1, 1, 2] {
            assert_eq!(before.take(key, SECOND), Ok(()));
        }
        let later = 4 * SECOND;
        for (key, ahead_us) in before.ahead_us(later) {
            // Another origin of the clock.
            next.recall(key, ahead_us, 100 * SECOND);
        }
        assert_eq!(next.wait_us(1, 100 * SECOND), before.wait_us(1, later));
        assert_eq!(next.wait_us(1, 100 * SECOND), 7 * SECOND);
        assert_eq!((next.wait_us(2, 100 * SECOND), next.keys()), (0, 2));
        next.recall(4, u64::MAX, u64::MAX - 1);
        next.recall(1, u64::MAX, 100 * SECOND);
        assert_eq!(next.wait_us(1, 100 * SECOND), 10 * SECOND, "no longer than the limit has it");
        next.recall(1, 0, 100 * SECOND);
        assert_eq!(next.wait_us(1, 100 * SECOND), 10 * SECOND);
    }

    #[test]
    fn over_time_the_rate_is_what_it_says() {
        let rate = Rate::new(100, 60, 1, 10);
        let passed = (0..600_000).filter(|ms| rate.take(1, SECOND + ms * 1000).is_ok()).count();
        assert!((995..=1001).contains(&passed), "{passed}");
    }
}
