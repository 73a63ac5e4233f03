//! Forwards programs' stderr to the error log. Programs may write any amount, so each has a quota
//! and all of them share a rate limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use lighty_io::clock::Clock;

use crate::limits;
use crate::log::{About, Level, Log};

/// Limit on what all programs together log per second. Clones share the count.
#[derive(Clone, Debug)]
pub struct ProgramRate(Arc<Second>);

#[derive(Debug)]
struct Second {
    bytes_max: AtomicU64,
    /// The current second and the bytes counted in it. Two workers that start a second at once may
    /// miss a line, which no limit is too tight for.
    second: AtomicI64,
    bytes: AtomicU64,
}

impl ProgramRate {
    /// A rate in KB per second; 0 = none.
    pub fn per_second(kbytes: u64) -> Self {
        let bytes_max = AtomicU64::new(bytes_of(kbytes));
        let (second, bytes) = (AtomicI64::new(i64::MIN), AtomicU64::new(0));
        Self(Arc::new(Second { bytes_max, second, bytes }))
    }

    /// Changes the rate, for all clones.
    pub(crate) fn change(&self, kbytes: u64) {
        self.0.bytes_max.store(bytes_of(kbytes), Ordering::Relaxed);
    }

    /// Counts a line, unless it exceeds the limit for this second.
    fn admits(&self, bytes: u64, now_s: i64) -> bool {
        let Second { bytes_max, second, bytes: counted } = &*self.0;
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

/// The stderr of one program, command or request. The log notes when lines start to be dropped and,
/// when that is over or at the latest on drop, how much was lost.
pub struct ErrorOutput {
    log: Log,
    clock: Clock,
    who: String,
    /// The quota in log bytes.
    bytes_max: u64,
    logged_bytes: u64,
    gap: Option<Gap>,
}

/// Lines currently being dropped.
struct Gap {
    limit: Limit,
    bytes: u64,
    /// The last second in which there was no room.
    second: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    Share,
    Rate,
}

impl ErrorOutput {
    /// For a program called `who` in the log, with a quota in KB; 0 = none.
    pub fn new(log: Log, clock: Clock, who: String, share_kbytes: u64) -> Self {
        let bytes_max =
            if share_kbytes == 0 { u64::MAX } else { share_kbytes.saturating_mul(1024) };
        Self { log, clock, who, bytes_max, logged_bytes: 0, gap: None }
    }

    /// Logs a line. Returns `false` if it was dropped, so the reader need not hurry.
    pub fn hear(&mut self, line: &[u8]) -> bool {
        let (now_s, said_bytes) = (self.clock.unix_s(), line.len() as u64 + 1);
        if let Some(gap) = &mut self.gap
            && (gap.limit == Limit::Share || gap.second == now_s)
        {
            gap.bytes += said_bytes;
            return false;
        }
        if !self.log.wants(Level::Warning) {
            return false;
        }
        let message = format!("{}: {}", self.who, line.escape_ascii());
        let text = self.log.render(Level::Warning, now_s, &message, About::default());
        match self.refuses(text.len() as u64, now_s) {
            None => {
                self.tell_gap();
                self.log.write(&text);
                true
            }
            Some(limit) => {
                self.leave_out(limit, said_bytes, now_s);
                false
            }
        }
    }

    /// The limit that a line exceeds.
    fn refuses(&mut self, bytes: u64, now_s: i64) -> Option<Limit> {
        if self.bytes_max - self.logged_bytes < bytes {
            return Some(Limit::Share);
        }
        if !self.log.program_rate().admits(bytes, now_s) {
            return Some(Limit::Rate);
        }
        self.logged_bytes += bytes;
        None
    }

    fn leave_out(&mut self, limit: Limit, bytes: u64, now_s: i64) {
        if let Some(gap) = self.gap.as_mut().filter(|gap| gap.limit == limit) {
            gap.bytes += bytes;
            gap.second = now_s;
            return;
        }
        self.tell_gap();
        self.gap = Some(Gap { limit, bytes, second: now_s });
        self.say("error output is left out from here on", limit);
    }

    /// Logs how much was dropped.
    fn tell_gap(&mut self) {
        if let Some(gap) = self.gap.take() {
            self.say(&format!("{} bytes of error output were left out", gap.bytes), gap.limit);
        }
    }

    fn say(&self, words: &str, limit: Limit) {
        let limit = match limit {
            Limit::Share => format!("server.errorlog-max-per-program = {}", self.bytes_max / 1024),
            Limit::Rate => {
                let rate = self.log.program_rate().0.bytes_max.load(Ordering::Relaxed) / 1024;
                format!("server.errorlog-program-rate = {rate}")
            }
        };
        let about = About { limit: &limit, ..About::default() };
        let message = format!("{}: {words}", self.who);
        self.log.line(Level::Warning, self.clock.unix_s(), &message, about);
    }
}

impl Drop for ErrorOutput {
    fn drop(&mut self) {
        self.tell_gap();
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
