//! Forwards programs' stderr to the error log. Programs may write any amount, so each has a quota
//! and all of them share a rate limit.

use std::panic::Location;

use lighty_io::clock::Clock;

use crate::log::{About, ErrorLine, Level, Log, Repeating, SourcePlace};

/// The stderr of one program, command or request. Logs a line when it starts to drop output, and
/// the number of dropped bytes when it stops or at the latest on drop.
pub struct ErrorOutput {
    log: Log,
    clock: Clock,
    who: String,
    /// The owner of the program, whose module the lines belong to.
    place: SourcePlace,
    /// The quota in log bytes.
    bytes_max: u64,
    logged_bytes: u64,
    gap: Option<Gap>,
}

/// Lines currently being dropped.
struct Gap {
    limit: Limit,
    bytes: u64,
    /// The last second in which a line exceeded the limit.
    second: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    Share,
    Rate,
}

impl ErrorOutput {
    /// For a program that the log calls `who`, with a quota in KB; 0 = none. Its lines belong to
    /// the caller's module.
    #[track_caller]
    pub fn new(log: Log, clock: Clock, who: String, share_kbytes: u64) -> Self {
        let bytes_max =
            if share_kbytes == 0 { u64::MAX } else { share_kbytes.saturating_mul(1024) };
        let place = Location::caller();
        Self { log, clock, who, place, bytes_max, logged_bytes: 0, gap: None }
    }

    /// Logs a line. Returns `false` if it was dropped, so that the reader can slow down.
    pub fn take_line(&mut self, line: &[u8]) -> bool {
        let (now_s, line_bytes) = (self.clock.unix_s(), line.len() as u64 + 1);
        if let Some(gap) = &mut self.gap
            && (gap.limit == Limit::Share || gap.second == now_s)
        {
            gap.bytes += line_bytes;
            return false;
        }
        if !self.log.wants_at(self.place, Level::Warning) {
            return false;
        }
        let message = format!("{}: {}", self.who, line.escape_ascii());
        let (level, about) = (Level::Warning, About::default());
        let line = ErrorLine { level, now_s, message: &message, about };
        let text = self.log.render(self.place, &line);
        match self.refuses(text.len() as u64, now_s) {
            None => {
                self.report_gap();
                self.log.write(self.place, &line, &text);
                true
            }
            Some(limit) => {
                self.leave_out(limit, line_bytes, now_s);
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
        self.report_gap();
        self.gap = Some(Gap { limit, bytes, second: now_s });
        self.say("error output is left out from here on", limit);
    }

    /// Logs the number of dropped bytes.
    fn report_gap(&mut self) {
        if let Some(gap) = self.gap.take() {
            self.say(&format!("{} bytes of error output were left out", gap.bytes), gap.limit);
        }
    }

    fn say(&self, detail: &str, limit: Limit) {
        let limit = match limit {
            Limit::Share => format!("server.errorlog-max-per-program = {}", self.bytes_max / 1024),
            Limit::Rate => {
                let rate = self.log.program_rate().kbytes_per_second();
                format!("server.errorlog-program-rate = {rate}")
            }
        };
        let about = About { limit: &limit, ..About::default() };
        let message = format!("{}: {detail}", self.who);
        let (level, now_s) = (Level::Warning, self.clock.unix_s());
        let line = ErrorLine { level, now_s, message: &message, about };
        self.log.line_at(self.place, Repeating::Free, &line);
    }
}

impl Drop for ErrorOutput {
    fn drop(&mut self) {
        self.report_gap();
    }
}
