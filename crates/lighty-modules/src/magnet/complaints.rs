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

/// Where an error is: the script and its line. The words may be a client's, and differ each time.
pub(super) fn place(path: &str, text: &str) -> String {
    // The traceback first: it is no one's but Lua's.
    let trace = text.rfind("stack traceback:").map_or("", |at| &text[at..]);
    let line = line_in(trace, path).or_else(|| line_in(text, path)).unwrap_or_default();
    format!("{path}:{line}")
}

/// The number that follows the path and a colon.
fn line_in<'a>(text: &'a str, path: &str) -> Option<&'a str> {
    let mut matches = text.match_indices(path);
    matches.find_map(|(at, _)| {
        let rest = text[at + path.len()..].strip_prefix(':')?;
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        (end > 0).then(|| &rest[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_script_and_a_line_whatever_the_words() {
        let error = |words: &str| format!("{words}\nstack traceback:\n\t/a.lua:7: in main chunk");
        assert_eq!(place("/a.lua", &error("/a.lua:3: x")), "/a.lua:7");
        assert_eq!(place("/a.lua", &error("table: 0x1234")), "/a.lua:7");
        assert_eq!(place("/a.lua", "/a.lua:2: unexpected symbol"), "/a.lua:2");
        assert_eq!(place("/a.lua", "/a.lua: not there"), "/a.lua:");
        assert_eq!(place("/a.lua", ""), "/a.lua:");
    }

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
