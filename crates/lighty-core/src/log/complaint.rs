//! Rate-limits messages that would otherwise repeat for every connection or request.

use std::cell::Cell;

/// Minimum seconds between two messages.
const EVERY_S: u32 = 10;

/// Rate limiter of one message.
#[derive(Default)]
pub struct Complaint {
    said_s: Cell<Option<u32>>,
}

impl Complaint {
    /// True if the message is due, by a monotonic clock in seconds; records it as sent.
    #[must_use]
    pub fn is_due(&self, now_s: u32) -> bool {
        let is_due = self.said_s.get().is_none_or(|said_s| now_s.saturating_sub(said_s) >= EVERY_S);
        if is_due {
            self.said_s.set(Some(now_s));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_and_then_now_and_again() {
        let complaint = Complaint::default();
        let due_times: Vec<u32> = (1..=22).filter(|now_s| complaint.is_due(*now_s)).collect();
        assert_eq!(due_times, [1, 11, 21]);
        assert!(!complaint.is_due(21));
    }
}
