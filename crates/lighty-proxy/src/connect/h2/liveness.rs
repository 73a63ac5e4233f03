//! Whether a backend is still there that says nothing: it is asked with PING.
//!
//! A connection whose other end is gone without a word takes requests and answers none. One from
//! which nothing has come for a while is asked before another request is begun on it, and while
//! requests wait on it.

use crate::upstream::spec::PoolSpec;

/// By how much the time until the next PING grows while only replies come. Libraries of gRPC end a
/// connection after the third PING without content of theirs between them, unless five minutes lie
/// between two.
const GROWTH: u64 = 4;

/// Up to which time, in milliseconds: a little more than those five minutes.
const WAIT_MS_MAX: u64 = 301_000;

/// What is to be done about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing for so many milliseconds; `None`: until something happens.
    Wait(Option<u64>),
    /// Send a PING.
    Ask,
    /// Give it up.
    Gone,
}

/// What is known of the other end.
pub(super) struct Liveness {
    /// `proxy-core.ping-interval`; 0: it is never asked.
    interval_ms: u64,
    /// `proxy-core.ping-timeout`.
    timeout_ms: u64,
    /// How long nothing may come while a request waits, until it is asked.
    wait_ms: u64,
    heard_ms: u64,
    /// When it was asked, unless something has come since then.
    asked_ms: Option<u64>,
}

impl Liveness {
    /// Of a connection that has just been opened.
    pub(super) fn new(pool: &PoolSpec, now_ms: u64) -> Self {
        Self {
            interval_ms: pool.ping_ms,
            timeout_ms: pool.ping_timeout_ms,
            wait_ms: pool.ping_ms,
            heard_ms: now_ms,
            asked_ms: None,
        }
    }

    /// Bytes have come.
    pub(super) fn hear(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.asked_ms = None;
    }

    /// Part of a response has come.
    pub(super) fn hear_response(&mut self) {
        self.wait_ms = self.interval_ms;
    }

    /// True if no request is to be begun before something has come.
    pub(super) fn is_in_doubt(&self, now_ms: u64) -> bool {
        self.interval_ms > 0
            && (self.asked_ms.is_some() || self.silent_ms(now_ms) >= self.interval_ms)
    }

    fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms)
    }

    /// What is to be done, with requests on the connection and maybe some `to_begin`.
    pub(super) fn judge(&self, now_ms: u64, to_begin: bool) -> Verdict {
        if self.interval_ms == 0 {
            return Verdict::Wait(None);
        }
        if let Some(asked_ms) = self.asked_ms {
            let waited_ms = now_ms.saturating_sub(asked_ms);
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

    /// It was asked.
    pub(super) fn ask(&mut self, now_ms: u64) {
        self.asked_ms = Some(now_ms);
        let longer_ms = self.wait_ms.saturating_mul(GROWTH).min(WAIT_MS_MAX);
        self.wait_ms = longer_ms.max(self.interval_ms);
    }

    /// Why the connection was given up.
    pub(super) fn complaint(&self) -> String {
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
    fn it_is_asked_after_the_interval_and_given_up_after_the_time_out() {
        let mut other = liveness(100, 50);
        assert_eq!(other.judge(1099, false), Verdict::Wait(Some(1)));
        assert!(!other.is_in_doubt(1099));
        assert_eq!(other.judge(1100, false), Verdict::Ask);
        assert!(other.is_in_doubt(1100));
        other.ask(1100);
        assert_eq!(other.judge(1149, false), Verdict::Wait(Some(1)));
        assert_eq!(other.judge(1150, false), Verdict::Gone);
        assert!(other.complaint().contains("50 ms, proxy-core.ping-timeout"));
        other.hear(1149);
        assert!(!other.is_in_doubt(1150));
    }

    #[test]
    fn replies_alone_make_it_be_asked_less_often() {
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
        // But a new request is not begun on faith, and what is said makes up for all silence.
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
    fn without_an_interval_it_is_never_asked() {
        let other = liveness(0, 50);
        assert!(!other.is_in_doubt(u64::MAX));
        assert_eq!(other.judge(u64::MAX, true), Verdict::Wait(None));
    }
}
