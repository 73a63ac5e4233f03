//! Detects dead backends on silent connections by PING.
//!
//! A connection to a backend that vanished without a FIN accepts requests and never responds. So a
//! connection that was silent for a while gets a PING before another request begins on it, and
//! while requests wait on it.

use crate::upstream::spec::PoolSpec;

/// Factor by which the time until the next PING grows while only replies arrive. gRPC libraries end
/// a connection after the third PING without content between them, unless five minutes lie between
/// two.
const GROWTH: u64 = 4;

/// Limit of that time, in milliseconds: a little more than five minutes.
const WAIT_MS_MAX: u64 = 301_000;

/// Next action on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Wait for so many milliseconds; `None`: until something happens.
    Wait(Option<u64>),
    /// Send a PING.
    Ask,
    /// Give it up.
    Gone,
}

/// Liveness of the other end.
pub(super) struct Liveness {
    /// `proxy-core.ping-interval`; 0: no PING is ever sent.
    interval_ms: u64,
    /// `proxy-core.ping-timeout`.
    timeout_ms: u64,
    /// Silence after which a PING is sent while a request waits.
    wait_ms: u64,
    heard_ms: u64,
    /// Time of the last PING, unless bytes have arrived since then.
    pinged_ms: Option<u64>,
}

impl Liveness {
    /// Creates the state of a connection that has just been opened.
    pub(super) fn new(pool: &PoolSpec, now_ms: u64) -> Self {
        Self {
            interval_ms: pool.ping_ms,
            timeout_ms: pool.ping_timeout_ms,
            wait_ms: pool.ping_ms,
            heard_ms: now_ms,
            pinged_ms: None,
        }
    }

    /// Records that bytes have arrived.
    pub(super) fn hear(&mut self, now_ms: u64) {
        debug_assert!(now_ms >= self.heard_ms, "{now_ms} after {}", self.heard_ms);
        self.heard_ms = now_ms;
        self.pinged_ms = None;
    }

    /// Records that part of a response has arrived.
    pub(super) fn hear_response(&mut self) {
        self.wait_ms = self.interval_ms;
    }

    /// Returns true if no request may begin before bytes have arrived.
    pub(super) fn is_in_doubt(&self, now_ms: u64) -> bool {
        self.interval_ms > 0
            && (self.pinged_ms.is_some() || self.silent_ms(now_ms) >= self.interval_ms)
    }

    fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms)
    }

    /// Returns the next action. The connection carries requests; `to_begin` if some have not begun.
    pub(super) fn judge(&self, now_ms: u64, to_begin: bool) -> Verdict {
        if self.interval_ms == 0 {
            return Verdict::Wait(None);
        }
        if let Some(pinged_ms) = self.pinged_ms {
            let waited_ms = now_ms.saturating_sub(pinged_ms);
            return match self.timeout_ms.saturating_sub(waited_ms) {
                0 => Verdict::Gone,
                left_ms => Verdict::Wait(Some(left_ms)),
            };
        }
        let wait_ms = if to_begin { self.interval_ms } else { self.wait_ms };
        match wait_ms.saturating_sub(self.silent_ms(now_ms)) {
            0 => Verdict::Ask,
            left_ms => Verdict::Wait(Some(left_ms)),
        }
    }

    /// Records that a PING is sent.
    pub(super) fn ask(&mut self, now_ms: u64) {
        debug_assert!(self.interval_ms > 0 && self.pinged_ms.is_none(), "{:?}", self.pinged_ms);
        self.pinged_ms = Some(now_ms);
        let longer_ms = self.wait_ms.saturating_mul(GROWTH).min(WAIT_MS_MAX);
        self.wait_ms = longer_ms.max(self.interval_ms);
    }

    /// Returns the reason for giving the connection up.
    pub(super) fn reason(&self) -> String {
        format!("no reply to PING for {} ms, proxy-core.ping-timeout", self.timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn liveness(ping_ms: u64, ping_timeout_ms: u64) -> Liveness {
        let pool = PoolSpec { ping_ms, ping_timeout_ms, ..PoolSpec::default() };
        Liveness::new(&pool, 1000)
    }

    #[test]
    fn silent_backend_is_pinged_and_given_up_after_the_time_out() {
        let mut other = liveness(100, 50);
        assert_eq!(other.judge(1099, false), Verdict::Wait(Some(1)));
        assert!(!other.is_in_doubt(1099));
        assert_eq!(other.judge(1100, false), Verdict::Ask);
        assert!(other.is_in_doubt(1100));
        other.ask(1100);
        assert_eq!(other.judge(1149, false), Verdict::Wait(Some(1)));
        assert_eq!(other.judge(1150, false), Verdict::Gone);
        assert!(other.reason().contains("50 ms, proxy-core.ping-timeout"));
        other.hear(1149);
        assert!(!other.is_in_doubt(1150));
    }

    #[test]
    fn replies_alone_make_pings_of_the_backend_rarer() {
        let mut other = liveness(10_000, 5000);
        let mut waits = Vec::new();
        let mut now_ms = 1000;
        for _ in 0..5 {
            let Verdict::Wait(Some(left_ms)) = other.judge(now_ms, false) else { panic!() };
            waits.push(left_ms);
            now_ms += left_ms;
            assert_eq!(other.judge(now_ms, false), Verdict::Ask);
            other.ask(now_ms);
            other.hear(now_ms);
        }
        assert_eq!(waits, [10_000, 40_000, 160_000, WAIT_MS_MAX, WAIT_MS_MAX]);
        // But a new request does not begin without a PING, and any received bytes end the silence.
        assert_eq!(other.judge(now_ms + 10_000, true), Verdict::Ask);
        other.hear_response();
        assert_eq!(other.judge(now_ms + 9999, false), Verdict::Wait(Some(1)));
    }

    #[test]
    fn an_interval_beyond_the_longest_stays_as_it_is() {
        let mut other = liveness(WAIT_MS_MAX * 2, 1);
        other.ask(1000);
        other.hear(1000);
        assert_eq!(other.judge(1000, false), Verdict::Wait(Some(WAIT_MS_MAX * 2)));
    }

    #[test]
    fn without_an_interval_the_backend_is_never_pinged() {
        let other = liveness(0, 50);
        assert!(!other.is_in_doubt(u64::MAX));
        assert_eq!(other.judge(u64::MAX, true), Verdict::Wait(None));
    }
}
