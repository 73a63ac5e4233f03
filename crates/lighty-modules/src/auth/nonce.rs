//! Nonces of digest authentication. A nonce needs no state until a user authenticates with it; from
//! then on its counts are recorded to reject replays.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use hmac::{Hmac, KeyInit, Mac};
use lighty_http::base64;
use sha2::Sha256;

/// Lifetime of a nonce in seconds, as in lighttpd 1.4. An expired nonce is reported as stale, and
/// the client continues with a new one without a password prompt.
pub(super) const AGE_SECONDS_MAX: u64 = 600;

/// Maximum number of nonces with recorded counts. Each is a client of the last ten minutes.
pub(super) const USED_MAX: usize = 16_384;

/// Maximum lag of a count behind the highest one. Requests on several connections can overtake
/// each other.
const WINDOW: u64 = 64;

const PLAIN_BYTES: usize = 16;
const MAC_BYTES: usize = 16;

/// The verdict on a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Ours, not expired, with an unused count.
    First,
    /// Must be replaced: expired, not ours, or a replayed count.
    Stale,
}

/// Creates and checks nonces, for all workers.
pub(super) struct Nonces {
    secret: [u8; 32],
    serial: AtomicU64,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    counts: HashMap<[u8; PLAIN_BYTES], Counts, foldhash::fast::RandomState>,
    /// Nonces created up to this time and not in `counts` are stale: they may have been evicted.
    forgotten_s: u64,
}

/// The highest count, and a bit set of the used counts just below it.
#[derive(Clone, Copy)]
struct Counts {
    highest: u64,
    seen: u64,
}

impl Nonces {
    /// Creates the state; `secret` serves rules without one. Nonces that another process made with
    /// a shared secret are valid only from `started_s` on: their use is not known here.
    pub(super) fn new(secret: [u8; 32], started_s: u64) -> Self {
        let used = Used { forgotten_s: started_s.saturating_sub(1), ..Used::default() };
        Self { secret, serial: AtomicU64::new(0), used: Mutex::new(used) }
    }

    /// Creates a nonce. A random number keeps the `serial` of servers with a shared secret
    /// distinct.
    pub(super) fn make(&self, given: &str, realm: &str, now_s: u64) -> String {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let seed = u64::from_be_bytes(std::array::from_fn(|at| self.secret[at]));
        let mut plain = [0; PLAIN_BYTES];
        plain[..8].copy_from_slice(&now_s.to_be_bytes());
        plain[8..].copy_from_slice(&serial.wrapping_add(seed).to_be_bytes());
        let mut whole = plain.to_vec();
        whole.extend_from_slice(&self.mac(given, realm, &plain));
        let mut text = Vec::new();
        base64::encode_url(&whole, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The opaque value, which the client returns unchanged.
    pub(super) fn opaque(&self, given: &str, realm: &str) -> String {
        let mut text = Vec::new();
        base64::encode_url(&self.mac(given, realm, b"opaque"), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn mac(&self, given: &str, realm: &str, plain: &[u8]) -> [u8; MAC_BYTES] {
        let key = if given.is_empty() { &self.secret[..] } else { given.as_bytes() };
        let mut mac =
            <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(plain);
        mac.update(realm.as_bytes());
        let sum = mac.finalize().into_bytes();
        std::array::from_fn(|at| sum[at])
    }

    /// Checks the nonce and the count of a request with a correct password.
    pub(super) fn check(
        &self,
        given: &str,
        realm: &str,
        nonce: &[u8],
        count: u64,
        now_s: u64,
    ) -> Use {
        let Some(whole) = base64::decode_url(nonce) else { return Use::Stale };
        let Some((plain, mac)) = whole.split_first_chunk::<PLAIN_BYTES>() else {
            return Use::Stale;
        };
        if verify_slices_are_equal(mac, &self.mac(given, realm, plain)).is_err() {
            return Use::Stale;
        }
        let made_s = made_s(plain);
        if made_s > now_s || now_s - made_s >= AGE_SECONDS_MAX {
            return Use::Stale;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).count(*plain, count, now_s)
    }
}

fn made_s(plain: &[u8; PLAIN_BYTES]) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| plain[at]))
}

impl Used {
    fn count(&mut self, plain: [u8; PLAIN_BYTES], count: u64, now_s: u64) -> Use {
        if let Some(counts) = self.counts.get_mut(&plain) {
            return counts.take(count);
        }
        if made_s(&plain) <= self.forgotten_s || count == 0 {
            return Use::Stale;
        }
        if self.counts.len() >= USED_MAX {
            self.forget(now_s);
        }
        self.counts.insert(plain, Counts { highest: count, seen: 1 });
        Use::First
    }

    /// Evicts expired nonces, or else the older half. Nonces created up to then without a record
    /// are rejected from now on.
    fn forget(&mut self, now_s: u64) {
        self.counts.retain(|plain, _| now_s.saturating_sub(made_s(plain)) < AGE_SECONDS_MAX);
        if self.counts.len() < USED_MAX {
            return;
        }
        let mut times: Vec<u64> = self.counts.keys().map(made_s).collect();
        let middle = times.len() / 2;
        let (_, limit, _) = times.select_nth_unstable(middle);
        self.forgotten_s = self.forgotten_s.max(*limit);
        let limit = *limit;
        self.counts.retain(|plain, _| made_s(plain) > limit);
    }
}

impl Counts {
    fn take(&mut self, count: u64) -> Use {
        if count > self.highest {
            let by = count - self.highest;
            self.seen = if by < WINDOW { self.seen << by | 1 } else { 1 };
            self.highest = count;
            return Use::First;
        }
        let behind = self.highest - count;
        if count == 0 || behind >= WINDOW || self.seen >> behind & 1 == 1 {
            return Use::Stale;
        }
        self.seen |= 1 << behind;
        Use::First
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_good_for_a_time_a_realm_and_a_secret() {
        let nonces = Nonces::new([3; 32], 0);
        let nonce = nonces.make("", "r", 1000);
        let check = |nonces: &Nonces, given, realm, count, now| {
            nonces.check(given, realm, nonce.as_bytes(), count, now)
        };
        assert_eq!(check(&nonces, "", "s", 1, 1000), Use::Stale);
        assert_eq!(check(&nonces, "g", "r", 1, 1000), Use::Stale);
        assert_eq!(check(&Nonces::new([4; 32], 0), "", "r", 1, 1000), Use::Stale);
        assert_eq!(check(&nonces, "", "r", 1, 999), Use::Stale);
        assert_eq!(check(&nonces, "", "r", 1, 1000 + AGE_SECONDS_MAX), Use::Stale);
        assert_eq!(check(&nonces, "", "r", 1, 999 + AGE_SECONDS_MAX), Use::First);
        for bad in ["", "x", "!", &nonce[1..], &format!("{nonce}A")] {
            assert_eq!(nonces.check("", "r", bad.as_bytes(), 1, 1000), Use::Stale, "{bad}");
        }
    }

    #[test]
    fn servers_that_share_a_secret_understand_each_other() {
        let (one, other) = (Nonces::new([3; 32], 1000), Nonces::new([4; 32], 1000));
        let nonce = one.make("shared", "r", 1000);
        assert_eq!(other.check("shared", "r", nonce.as_bytes(), 1, 1000), Use::First);
        let restarted = Nonces::new([5; 32], 1001);
        assert_eq!(restarted.check("shared", "r", nonce.as_bytes(), 1, 1001), Use::Stale);
        assert_eq!(one.opaque("shared", "r"), other.opaque("shared", "r"));
    }

    #[test]
    fn a_count_is_used_once_and_may_come_a_little_late() {
        let nonces = Nonces::new([3; 32], 0);
        let nonce = nonces.make("", "r", 1000);
        let take = |count| nonces.check("", "r", nonce.as_bytes(), count, 1000);
        assert_eq!(take(0), Use::Stale);
        assert_eq!(take(5), Use::First);
        assert_eq!(take(5), Use::Stale);
        assert_eq!(take(4), Use::First);
        assert_eq!(take(4), Use::Stale);
        assert_eq!(take(70), Use::First);
        assert_eq!(take(70 - WINDOW), Use::Stale, "too late");
        assert_eq!(take(71 - WINDOW), Use::First);
        assert_eq!(take(u64::from(u32::MAX)), Use::First);
        assert_eq!(take(69), Use::Stale);
    }

    #[test]
    fn forgotten_nonce_cannot_be_used_again() {
        let nonces = Nonces::new([3; 32], 0);
        let made: Vec<String> =
            (0..=USED_MAX as u64).map(|n| nonces.make("", "r", 1000 + n / 64)).collect();
        let now = 1300;
        for nonce in &made {
            assert_eq!(nonces.check("", "r", nonce.as_bytes(), 1, now), Use::First);
        }
        assert!(nonces.used.lock().expect("whole").counts.len() <= USED_MAX);
        for nonce in &made {
            assert_eq!(nonces.check("", "r", nonce.as_bytes(), 1, now), Use::Stale);
        }
        let fresh = nonces.make("", "r", now);
        assert_eq!(nonces.check("", "r", fresh.as_bytes(), 1, now), Use::First);
    }
}
