//! Rate-limits messages that would otherwise repeat for every connection or request.

use std::cell::Cell;

/// Minimum seconds between two messages.
const EVERY_S: u32 = 10;

/// Rate limiter of one message.
#[derive(Default)]
pub struct LogThrottle {
    logged_s: Cell<Option<u32>>,
}

impl LogThrottle {
    /// True if the message is due, by a monotonic clock in seconds; records it as sent.
    #[must_use]
    pub fn is_due(&self, now_s: u32) -> bool {
        let is_due =
            self.logged_s.get().is_none_or(|logged_s| now_s.saturating_sub(logged_s) >= EVERY_S);
        if is_due {
            self.logged_s.set(Some(now_s));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_message_is_due_and_then_one_every_ten_seconds() {
        let throttle = LogThrottle::default();
        let due_times: Vec<u32> = (1..=22).filter(|now_s| throttle.is_due(*now_s)).collect();
        assert_eq!(due_times, [1, 11, 21]);
        assert!(!throttle.is_due(21));
    }
}
