//! Tables of counters and rates by key, with a maximum number of keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lighty_core::exchange::throttle::Bucket;

/// A hash of an address, a user name or a field value.
pub(super) type EvasiveKey = u128;

/// A map of at most `most` keys. A full map first drops idle values, at most once a second because
/// the search visits all keys; if none is idle, it drops an arbitrary key.
#[derive(Debug)]
pub(super) struct Keys<V> {
    most: usize,
    swept_us: u64,
    values: HashMap<EvasiveKey, V, foldhash::fast::RandomState>,
}

const SWEEP_US: u64 = 1_000_000;

/// Counts of a limit, which the limit of the next configuration continues. They are made at the
/// first use, so that another limit can pass on its own before.
#[derive(Debug)]
pub(super) struct ContinuedCounts<T>(OnceLock<Arc<T>>);

impl<T> Default for ContinuedCounts<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> ContinuedCounts<T> {
    #[inline]
    pub(super) fn get(&self, make: impl FnOnce() -> T) -> &Arc<T> {
        self.0.get_or_init(|| Arc::new(make()))
    }

    /// Continues the counts of another limit, unless these are in use already.
    pub(super) fn continue_from(&self, before: &Self) {
        if let Some(counts) = before.0.get() {
            let _ = self.0.set(Arc::clone(counts));
        }
    }
}

impl<V> Keys<V> {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), swept_us: 0, values: HashMap::default() }
    }

    /// Sets the maximum number of keys. Keys beyond it go one by one.
    pub(super) fn limit(&mut self, most: usize) {
        self.most = most.max(1);
    }

    /// Returns the value of a key, created by `make` if the key is new.
    pub(super) fn entry(
        &mut self,
        key: EvasiveKey,
        now_us: u64,
        is_idle: impl Fn(&V) -> bool,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        if self.values.len() >= self.most && !self.values.contains_key(&key) {
            self.make_room(now_us, is_idle);
        }
        self.values.entry(key).or_insert_with(make)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Lists the keys with their values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EvasiveKey, &V)> {
        self.values.iter().map(|(key, value)| (*key, value))
    }

    /// Returns the value of a known key.
    pub(super) fn get(&self, key: EvasiveKey) -> Option<&V> {
        self.values.get(&key)
    }

    /// Forgets a key. Returns false if it is unknown.
    pub(super) fn forget(&mut self, key: EvasiveKey) -> bool {
        self.values.remove(&key).is_some()
    }

    fn make_room(&mut self, now_us: u64, is_idle: impl Fn(&V) -> bool) {
        if now_us.saturating_sub(self.swept_us) >= SWEEP_US {
            self.swept_us = now_us;
            self.values.retain(|_, value| !is_idle(value));
        }
        while self.values.len() >= self.most
            && let Some(any) = self.values.keys().next().copied()
        {
            self.values.remove(&any);
        }
    }
}

/// Number of current requests of each key. Only keys with current requests use memory.
#[derive(Debug)]
pub(super) struct KeyTable {
    most: u32,
    here: ContinuedCounts<PresentKeys>,
}

type PresentKeys = Mutex<HashMap<EvasiveKey, u32, foldhash::fast::RandomState>>;

/// A counted request; dropping it decrements the count.
pub(super) struct CountedRequest {
    counts: Arc<PresentKeys>,
    key: EvasiveKey,
}

impl KeyTable {
    pub(super) fn new(most: u32) -> Self {
        Self { most, here: ContinuedCounts::default() }
    }

    /// Returns the number of keys with current requests.
    pub(super) fn keys(&self) -> usize {
        let counts = self.here.get(PresentKeys::default);
        counts.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the number of current requests of a key.
    pub(super) fn count(&self, key: EvasiveKey) -> u32 {
        let counts = self.here.get(PresentKeys::default);
        let here = counts.lock().unwrap_or_else(PoisonError::into_inner);
        here.get(&key).copied().unwrap_or(0)
    }

    /// Counts another request. `None` if the key has reached the limit.
    pub(super) fn enter(&self, key: EvasiveKey) -> Option<CountedRequest> {
        let counts = self.here.get(PresentKeys::default);
        let mut here = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = here.get(&key).copied().unwrap_or(0);
        if count >= self.most {
            return None;
        }
        here.insert(key, count + 1);
        drop(here);
        Some(CountedRequest { counts: Arc::clone(counts), key })
    }

    /// Counts on with the requests that another limit has counted.
    pub(super) fn continue_from(&self, before: &Self) {
        self.here.continue_from(&before.here);
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let mut here = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(here.contains_key(&self.key), "no request was counted");
        match here.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = here.remove(&self.key),
        }
    }
}

/// Bandwidth limit for the responses to each key.
#[derive(Debug)]
pub(super) struct Speed {
    kbytes_per_second: u64,
    keys_max: usize,
    buckets: ContinuedCounts<Mutex<Keys<Arc<Bucket>>>>,
}

impl Speed {
    pub(super) fn new(kbytes_per_second: u64, keys_max: usize) -> Self {
        Self { kbytes_per_second, keys_max, buckets: ContinuedCounts::default() }
    }

    fn all(&self) -> &Mutex<Keys<Arc<Bucket>>> {
        self.buckets.get(|| Mutex::new(Keys::new(self.keys_max)))
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> usize {
        self.all().lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Forgets a key. Its responses under way keep their bucket. Returns false if it is unknown.
    pub(super) fn clear(&self, key: EvasiveKey) -> bool {
        self.all().lock().unwrap_or_else(PoisonError::into_inner).forget(key)
    }

    /// Returns the token bucket that all responses to a key share. A bucket without a response is
    /// idle, because it is full again soon.
    pub(super) fn bucket(&self, key: EvasiveKey, now_ms: u64) -> Arc<Bucket> {
        let mut buckets = self.all().lock().unwrap_or_else(PoisonError::into_inner);
        let make = || Arc::new(Bucket::per_second(self.kbytes_per_second, now_ms));
        let is_idle = |bucket: &Arc<Bucket>| Arc::strong_count(bucket) == 1;
        Arc::clone(buckets.entry(key, now_ms.saturating_mul(1000), is_idle, make))
    }

    /// Continues with the buckets of another limit if they have the same rate.
    pub(super) fn continue_from(&self, before: &Self) {
        if self.kbytes_per_second == before.kbytes_per_second {
            self.buckets.continue_from(&before.buckets);
            self.all().lock().unwrap_or_else(PoisonError::into_inner).limit(self.keys_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_keys_is_limited() {
        let mut keys = Keys::new(3);
        for key in 0..3 {
            assert_eq!(*keys.entry(key, 0, |_| false, || key), key);
        }
        keys.entry(3, 0, |_| false, || 3);
        assert_eq!(keys.values.len(), 3, "any one goes");
        keys.entry(4, SWEEP_US, |value| *value != 3, || 4);
        assert_eq!(keys.values.len(), 2, "the idle go");
        assert!(keys.values.contains_key(&3) && keys.values.contains_key(&4));
    }

    #[test]
    fn number_of_holders_of_a_key_is_limited() {
        let crowd = KeyTable::new(2);
        let (first, second) = (crowd.enter(1), crowd.enter(1));
        assert!(first.is_some() && second.is_some());
        assert!(crowd.enter(1).is_none());
        assert!(crowd.enter(2).is_some(), "another key");
        drop(first);
        assert!(crowd.enter(1).is_some());
        drop(second);
        let counts = crowd.here.get(PresentKeys::default);
        assert!(counts.lock().expect("whole").is_empty(), "nobody leaves a trace");
    }

    #[test]
    fn next_limit_counts_on() {
        let before = KeyTable::new(1);
        let held = before.enter(1);
        let next = KeyTable::new(2);
        next.continue_from(&before);
        let another = next.enter(1);
        assert!(another.is_some() && next.enter(1).is_none(), "one is still of the other limit");
        drop(held);
        assert!(next.enter(1).is_some());
        let (slow, same, fast) = (Speed::new(1, 2), Speed::new(1, 1), Speed::new(2, 2));
        let bucket = slow.bucket(1, 0);
        same.continue_from(&slow);
        fast.continue_from(&slow);
        assert!(Arc::ptr_eq(&bucket, &same.bucket(1, 0)));
        assert!(!Arc::ptr_eq(&bucket, &fast.bucket(1, 0)));
    }

    #[test]
    fn answers_to_one_key_share_a_bucket() {
        let speed = Speed::new(1, 2);
        let one = speed.bucket(1, 0);
        assert!(Arc::ptr_eq(&one, &speed.bucket(1, 0)));
        assert!(!Arc::ptr_eq(&one, &speed.bucket(2, 0)));
    }
}
