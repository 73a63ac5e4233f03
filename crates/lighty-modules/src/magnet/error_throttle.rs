//! Log limiter for script errors: each place in a script logs at most once a minute.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasher;

/// Interval between messages of a place, in seconds.
const EVERY_S: u64 = 60;

/// Maximum number of recorded places. If it is exceeded, all are removed and can be logged again.
const PLACES_MAX: usize = 256;

/// Maximum number of different messages of a place within a minute. During debugging, a line may
/// have a new error; the maximum is needed because messages may contain client input.
const TEXTS_MAX: usize = 4;

/// A recently logged error.
struct LoggedError {
    logged_s: u64,
    /// Hashes of its texts.
    texts: Vec<u64>,
    left_out: u32,
}

/// The recently logged places.
#[derive(Default)]
pub(super) struct ErrorThrottle {
    places: RefCell<HashMap<Box<str>, LoggedError, foldhash::fast::RandomState>>,
    hasher: foldhash::fast::RandomState,
}

impl ErrorThrottle {
    /// Returns `Some` if an error at this place should be logged, with the number of suppressed
    /// errors at this place. `now_s` is monotonic.
    pub(super) fn due(&self, place: &str, text: &str, now_s: u64) -> Option<u32> {
        let text = self.hasher.hash_one(text);
        let mut places = self.places.borrow_mut();
        if let Some(known) = places.get_mut(place) {
            if now_s.saturating_sub(known.logged_s) < EVERY_S {
                if known.texts.contains(&text) || known.texts.len() >= TEXTS_MAX {
                    known.left_out = known.left_out.saturating_add(1);
                    return None;
                }
                known.texts.push(text);
                return Some(std::mem::take(&mut known.left_out));
            }
            let left_out = known.left_out;
            *known = LoggedError { logged_s: now_s, texts: vec![text], left_out: 0 };
            return Some(left_out);
        }
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        let first = LoggedError { logged_s: now_s, texts: vec![text], left_out: 0 };
        places.insert(place.into(), first);
        Some(0)
    }
}

/// Returns the script and line of an error. The message itself cannot be the key, because it may
/// contain client input and differ each time.
pub(super) fn place(path: &str, text: &str) -> String {
    // The traceback first, because only Lua writes it.
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
    fn a_place_is_a_script_and_a_line_whatever_the_message() {
        let error =
            |message: &str| format!("{message}\nstack traceback:\n\t/a.lua:7: in main chunk");
        assert_eq!(place("/a.lua", &error("/a.lua:3: x")), "/a.lua:7");
        assert_eq!(place("/a.lua", &error("table: 0x1234")), "/a.lua:7");
        assert_eq!(place("/a.lua", "/a.lua:2: unexpected symbol"), "/a.lua:2");
        assert_eq!(place("/a.lua", "/a.lua: not there"), "/a.lua:");
        assert_eq!(place("/a.lua", ""), "/a.lua:");
    }

    #[test]
    fn an_error_is_mentioned_once_a_minute() {
        let throttle = ErrorThrottle::default();
        assert_eq!(throttle.due("/a.lua:1", "x", 5), Some(0));
        assert_eq!(throttle.due("/a.lua:2", "x", 5), Some(0));
        assert_eq!(throttle.due("/a.lua:1", "x", 64), None);
        assert_eq!(throttle.due("/a.lua:1", "x", 65), Some(1));
        for n in 0..=PLACES_MAX {
            assert_eq!(throttle.due(&n.to_string(), "x", 65), Some(0));
        }
        assert!(throttle.places.borrow().len() <= PLACES_MAX);
    }

    #[test]
    fn another_error_of_the_same_line_is_mentioned_too() {
        let throttle = ErrorThrottle::default();
        for n in 0..TEXTS_MAX {
            assert_eq!(throttle.due("/a.lua:1", &n.to_string(), 5), Some(0));
        }
        // Messages with client input are limited.
        assert_eq!(throttle.due("/a.lua:1", "more", 5), None);
        assert_eq!(throttle.due("/a.lua:1", "0", 5), None);
        assert_eq!(throttle.due("/a.lua:1", "0", 65), Some(2));
    }
}
