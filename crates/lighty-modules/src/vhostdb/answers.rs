//! Document roots found so far. The name of a host is the client's input, so the number of answers
//! is bounded, and hosts without an entry are forgotten soon.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of answers.
pub(super) const ANSWERS_MAX: usize = 10_000;

/// Time for which a host without an entry is remembered, in milliseconds.
const NONE_MS: u64 = 10_000;

/// A source and a host.
pub(super) type HostKey = Box<[u8]>;

/// A document root; `None`: the host has no entry.
type FoundRoot = Option<Arc<[u8]>>;

/// The answers of all sources.
#[derive(Default)]
pub(super) struct HostAnswers(Mutex<HashMap<HostKey, HostAnswer, foldhash::fast::RandomState>>);

struct HostAnswer {
    root: FoundRoot,
    made_ms: u64,
}

/// The key of a host at a source.
pub(super) fn key(source: &str, host: &[u8]) -> HostKey {
    // No host has a line end.
    [host, b"\n", source.as_bytes()].concat().into()
}

impl HostAnswer {
    fn is_fresh(&self, now_ms: u64, age_ms: u64) -> bool {
        let age_ms = if self.root.is_some() { age_ms } else { NONE_MS.min(age_ms) };
        now_ms.saturating_sub(self.made_ms) < age_ms
    }
}

impl HostAnswers {
    /// The fresh answer, if there is one.
    pub(super) fn find(&self, key: &[u8], now_ms: u64, age_ms: u64) -> Option<FoundRoot> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers.get(key).filter(|answer| answer.is_fresh(now_ms, age_ms))?;
        Some(answer.root.clone())
    }

    /// Adds an answer. If there is no room, old ones are evicted first, then hosts without an
    /// entry, then any.
    pub(super) fn insert(&self, key: HostKey, root: FoundRoot, now_ms: u64, age_ms: u64) {
        if age_ms == 0 {
            return;
        }
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS_MAX && !answers.contains_key(&key) {
            answers.retain(|_, answer| answer.is_fresh(now_ms, age_ms));
        }
        if answers.len() >= ANSWERS_MAX && !answers.contains_key(&key) {
            answers.retain(|_, answer| answer.root.is_some());
        }
        if answers.len() >= ANSWERS_MAX
            && !answers.contains_key(&key)
            && let Some(any) = answers.keys().next().cloned()
        {
            answers.remove(&any);
        }
        answers.insert(key, HostAnswer { root, made_ms: now_ms });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(text: &str) -> FoundRoot {
        Some(text.as_bytes().into())
    }

    #[test]
    fn answers_expire_and_hosts_without_an_entry_soon() {
        let answers = HostAnswers::default();
        let (some, none) = (key("s", b"a"), key("s", b"b"));
        answers.insert(some.clone(), root("/a"), 0, 60_000);
        answers.insert(none.clone(), None, 0, 60_000);
        assert_eq!(answers.find(&some, 59_999, 60_000), Some(root("/a")));
        assert_eq!(answers.find(&some, 60_000, 60_000), None);
        assert_eq!(answers.find(&none, NONE_MS - 1, 60_000), Some(None));
        assert_eq!(answers.find(&none, NONE_MS, 60_000), None);
        assert_eq!(answers.find(&key("t", b"a"), 0, 60_000), None, "another source");
        answers.insert(key("s", b"c"), root("/c"), 0, 0);
        assert_eq!(answers.find(&key("s", b"c"), 0, 0), None, "off");
    }

    #[test]
    fn number_is_bounded_and_hosts_with_an_entry_stay() {
        let answers = HostAnswers::default();
        let number = |n: usize| key("s", n.to_string().as_bytes());
        answers.insert(number(0), root("/0"), 0, 60_000);
        for n in 1..=ANSWERS_MAX {
            answers.insert(number(n), None, 0, 60_000);
        }
        assert!(answers.0.lock().expect("a lock").len() <= ANSWERS_MAX);
        assert_eq!(answers.find(&number(0), 0, 60_000), Some(root("/0")));
        for n in 0..=ANSWERS_MAX {
            answers.insert(number(n), root("/x"), 0, 60_000);
        }
        assert_eq!(answers.0.lock().expect("a lock").len(), ANSWERS_MAX);
    }
}
