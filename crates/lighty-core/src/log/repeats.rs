//! Counts repeated lines. A message may come from the same place a thousand times a second; the log
//! has the first ones of a minute, and then their number.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::quality::FixedState;

use crate::log::{ErrorLine, Level, SourcePlace};
use crate::settings::limits::ERROR_LOG_REPEATS_MAX;

/// Seconds for which the lines of a message are counted together.
pub(super) const WINDOW_S: i64 = 60;

/// Messages that are counted at the same time. The lines of others are written.
const MESSAGES_MAX: usize = 256;

/// Bytes of a message that the line with its count repeats.
const MESSAGE_BYTES_MAX: usize = 512;

/// The repeats of a log.
pub(super) struct Repeats {
    /// Lines per message, place and window; 0: no limit.
    lines_max: AtomicU32,
    /// True if a line was left out, so that the table has to be looked through.
    has_omitted: AtomicBool,
    table: Mutex<Vec<Repeated>>,
}

/// A message from one place, within a window.
struct Repeated {
    /// Hash of place and message.
    hash: u64,
    since_s: i64,
    lines: u32,
    summary: Summary,
}

/// Lines that were left out.
pub(super) struct Summary {
    pub(super) place: SourcePlace,
    pub(super) level: Level,
    /// The beginning of the message.
    pub(super) message: String,
    pub(super) omitted: u64,
}

impl Default for Repeats {
    fn default() -> Self {
        Self {
            lines_max: AtomicU32::new(ERROR_LOG_REPEATS_MAX),
            has_omitted: AtomicBool::new(false),
            table: Mutex::default(),
        }
    }
}

impl Repeats {
    pub(super) fn set_max(&self, lines_max: u32) {
        self.lines_max.store(lines_max, Ordering::Relaxed);
    }

    pub(super) fn lines_max(&self) -> u32 {
        self.lines_max.load(Ordering::Relaxed)
    }

    fn table(&self) -> MutexGuard<'_, Vec<Repeated>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a line. Returns false if it is to be left out.
    pub(super) fn admit(&self, place: SourcePlace, line: &ErrorLine<'_>) -> bool {
        let ErrorLine { level, now_s, message, .. } = *line;
        let lines_max = self.lines_max();
        if lines_max == 0 {
            return true;
        }
        let hash = FixedState::default().hash_one((place.file(), place.line(), message));
        let mut table = self.table();
        if let Some(known) = table.iter_mut().find(|known| known.hash == hash) {
            if known.is_over(now_s) && known.summary.omitted == 0 {
                (known.since_s, known.lines) = (now_s, 0);
            }
            // Lines after the window count as repeats until the count is written.
            if known.lines < lines_max {
                known.lines += 1;
                return true;
            }
            known.summary.omitted += 1;
            self.has_omitted.store(true, Ordering::Relaxed);
            return false;
        }
        if table.len() >= MESSAGES_MAX {
            table.retain(|known| !known.is_over(now_s) || known.summary.omitted > 0);
        }
        if table.len() < MESSAGES_MAX {
            let message = beginning(message);
            let summary = Summary { place, level, message, omitted: 0 };
            table.push(Repeated { hash, since_s: now_s, lines: 1, summary });
        }
        true
    }

    /// Takes the counts of the windows that are over; of all windows at the end of the process.
    pub(super) fn settle(&self, now_s: i64, is_end: bool) -> Vec<Summary> {
        if !self.has_omitted.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut table = self.table();
        let is_due =
            |known: &mut Repeated| known.summary.omitted > 0 && (is_end || known.is_over(now_s));
        let due = table.extract_if(.., is_due).map(|known| known.summary).collect();
        let is_left = table.iter().any(|known| known.summary.omitted > 0);
        self.has_omitted.store(is_left, Ordering::Relaxed);
        due
    }
}

impl Repeated {
    /// Also after the clock was set back.
    fn is_over(&self, now_s: i64) -> bool {
        !(0..WINDOW_S).contains(&now_s.saturating_sub(self.since_s))
    }
}

fn beginning(message: &str) -> String {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let more = if end < message.len() { "…" } else { "" };
    format!("{}{more}", &message[..end])
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::log::About;

    fn limited(lines_max: u32) -> Repeats {
        let repeats = Repeats::default();
        repeats.set_max(lines_max);
        repeats
    }

    fn admits(repeats: &Repeats, place: SourcePlace, now_s: i64, message: &str) -> bool {
        let about = About::default();
        repeats.admit(place, &ErrorLine { level: Level::Error, now_s, message, about })
    }

    fn counts(summaries: &[Summary]) -> Vec<(String, u64)> {
        summaries.iter().map(|one| (one.message.clone(), one.omitted)).collect()
    }

    #[test]
    fn a_minute_has_n_lines_of_a_message_and_then_their_count() {
        let (repeats, place) = (limited(2), here());
        let is_written = |now_s, message| admits(&repeats, place, now_s, message);
        assert!(is_written(100, "a") && is_written(100, "a") && is_written(101, "b"));
        assert!(!is_written(101, "a") && !is_written(159, "a"));
        assert!(counts(&repeats.settle(159, false)).is_empty());
        assert_eq!(counts(&repeats.settle(160, false)), [("a".to_owned(), 2)]);
        assert!(repeats.settle(160, false).is_empty());
        assert!(is_written(160, "a") && is_written(160, "a") && !is_written(160, "a"));
        assert_eq!(counts(&repeats.settle(161, true)), [("a".to_owned(), 1)]);
    }

    #[test]
    fn places_are_counted_by_themselves() {
        let repeats = limited(1);
        let one = here();
        let other = here();
        assert!(admits(&repeats, one, 0, "a"));
        assert!(admits(&repeats, other, 0, "a"));
        assert!(!admits(&repeats, one, 0, "a"));
    }

    #[track_caller]
    fn here() -> SourcePlace {
        Location::caller()
    }

    #[test]
    fn messages_without_repeats_begin_anew_after_a_minute() {
        let (repeats, place) = (limited(1), here());
        for now_s in [0, 60, 120, 30] {
            assert!(admits(&repeats, place, now_s, "a"), "{now_s}");
            assert!(repeats.settle(now_s, false).is_empty());
        }
    }

    #[test]
    fn table_has_a_limit_beyond_which_lines_are_written() {
        let (repeats, place) = (limited(1), here());
        for number in 0..MESSAGES_MAX {
            assert!(admits(&repeats, place, 0, &number.to_string()));
        }
        assert!(!admits(&repeats, place, 0, "0"));
        assert!(admits(&repeats, place, 0, "new") && repeats.table().len() == 256);
        assert!(admits(&repeats, place, 0, "new"), "it is not counted");
        // After the window there is room, and the omitted line is still known.
        assert!(admits(&repeats, place, 60, "new"));
        assert_eq!(repeats.table().len(), 2);
        assert_eq!(counts(&repeats.settle(60, false)), [("0".to_owned(), 1)]);
    }

    #[test]
    fn no_limit_counts_nothing() {
        let repeats = limited(0);
        assert!((0..1000).all(|_| admits(&repeats, here(), 0, "a")));
        assert!(repeats.settle(60, true).is_empty());
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(beginning(&"x".repeat(MESSAGE_BYTES_MAX)).len(), MESSAGE_BYTES_MAX);
        let long = beginning(&"é".repeat(MESSAGE_BYTES_MAX));
        assert!(long.ends_with('…') && long.len() == MESSAGE_BYTES_MAX + "…".len());
    }
}
