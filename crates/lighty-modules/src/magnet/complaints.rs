//! What scripts do wrong, logged once per place and minute.

use std::cell::RefCell;
use std::collections::HashMap;

/// Seconds for which a place is not mentioned again.
const EVERY_S: u64 = 60;

/// Places remembered; with more, all are forgotten and may be mentioned again.
const PLACES_MAX: usize = 256;

/// The places mentioned lately.
#[derive(Default)]
pub(super) struct Complaints(RefCell<HashMap<Box<str>, u64, foldhash::fast::RandomState>>);

impl Complaints {
    /// True if the error at this place is due to be logged, by a monotonic clock in seconds.
    pub(super) fn is_due(&self, place: &str, now_s: u64) -> bool {
        let mut places = self.0.borrow_mut();
        if places.get(place).is_some_and(|said_s| now_s.saturating_sub(*said_s) < EVERY_S) {
            return false;
        }
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        places.insert(place.into(), now_s);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_mentioned_once_a_minute() {
        let complaints = Complaints::default();
        assert!(complaints.is_due("/a.lua:1", 5));
        assert!(complaints.is_due("/a.lua:2", 5));
        assert!(!complaints.is_due("/a.lua:1", 64));
        assert!(complaints.is_due("/a.lua:1", 65));
        for n in 0..=PLACES_MAX {
            assert!(complaints.is_due(&n.to_string(), 65));
        }
        assert!(complaints.0.borrow().len() <= PLACES_MAX);
    }
}
