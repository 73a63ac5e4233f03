//! The latest lines of the error log, for reports about bugs: the log may go to a terminal or to
//! another machine.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Maximum number of lines.
const LINES_MAX: usize = 200;

/// Maximum bytes kept of a line.
const LINE_BYTES_MAX: usize = 1024;

/// The latest lines.
#[derive(Debug, Default)]
pub(super) struct RecentLines(Mutex<VecDeque<String>>);

impl RecentLines {
    pub(super) fn add(&self, line: &str) {
        let line = line.trim_end();
        let line = beginning(line, LINE_BYTES_MAX);
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The memory of the oldest line serves the new one.
        let mut kept = match lines.len() >= LINES_MAX {
            true => lines.pop_front().unwrap_or_default(),
            false => String::new(),
        };
        kept.clear();
        kept.push_str(line);
        lines.push_back(kept);
    }

    pub(super) fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// The beginning of a text, of at most `bytes_max` bytes.
pub(crate) fn beginning(text: &str, bytes_max: usize) -> &str {
    let is_end = |at: &usize| text.is_char_boundary(*at);
    let end = (0..=bytes_max.min(text.len())).rev().find(is_end).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_lines_are_kept_up_to_their_limits() {
        let lines = RecentLines::default();
        for number in 0..=LINES_MAX {
            lines.add(&format!("{number}\n"));
        }
        let list = lines.list();
        assert_eq!((list.len(), list[0].as_str()), (LINES_MAX, "1"));
        lines.add(&"\u{e9}".repeat(LINE_BYTES_MAX));
        assert_eq!(lines.list()[LINES_MAX - 1].len(), LINE_BYTES_MAX);
    }
}
