//! Which of many rules can match at all.
//!
//! A rule whose matches all hold some text is tried only where that text occurs; one pass over the
//! subject finds every such text at once.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// Rules from which on a pass over the subject is cheaper than trying them one by one.
const SCREENED_MIN: usize = 16;

/// Rules in their order, and what rules them out.
#[derive(Default)]
pub(super) struct Screen {
    count: u32,
    texts: Option<Texts>,
}

struct Texts {
    search: AhoCorasick,
    /// By text: the rules that hold it, in order.
    rules_of: Vec<Box<[u32]>>,
    /// Rules of which no text is known, in order.
    always: Box<[u32]>,
}

impl Screen {
    /// A screen of rules by the text that each of them requires.
    pub(super) fn build(needles: &[Option<Vec<u8>>]) -> Screen {
        let count = u32::try_from(needles.len()).unwrap_or(u32::MAX);
        let texts = if needles.len() < SCREENED_MIN { None } else { Texts::build(needles) };
        Screen { count, texts }
    }

    /// The first rule for which `matches` holds.
    pub(super) fn first(&self, subject: &[u8], matches: impl Fn(u32) -> bool) -> Option<u32> {
        let Some(texts) = &self.texts else { return (0..self.count).find(|rule| matches(*rule)) };
        let candidates = texts.candidates(subject);
        let (mut hits, mut always) = (candidates.iter().peekable(), texts.always.iter().peekable());
        loop {
            let from_hits = match (hits.peek(), always.peek()) {
                (Some(hit), Some(other)) => hit < other,
                (hit, None) => hit.is_some(),
                (None, Some(_)) => false,
            };
            let next = if from_hits { hits.next() } else { always.next() };
            match next {
                None => return None,
                Some(rule) if matches(*rule) => return Some(*rule),
                Some(_) => {}
            }
        }
    }
}

impl Texts {
    /// `None` where no search can be made: then every rule is tried.
    fn build(needles: &[Option<Vec<u8>>]) -> Option<Texts> {
        let mut by_text: std::collections::BTreeMap<&[u8], Vec<u32>> = Default::default();
        let mut always = Vec::new();
        for (rule, needle) in (0u32..).zip(needles) {
            match needle {
                Some(text) => by_text.entry(text).or_default().push(rule),
                None => always.push(rule),
            }
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(by_text.keys())
            .ok()?;
        let rules_of = by_text.into_values().map(Into::into).collect();
        Some(Texts { search, rules_of, always: always.into() })
    }

    /// Rules whose text occurs, in order. Allocates only if there is one.
    fn candidates(&self, subject: &[u8]) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        for hit in self.search.find_overlapping_iter(subject) {
            found.push(hit.pattern().as_u32());
        }
        // A text that occurs often counts once: its rules are not gathered again and again.
        found.sort_unstable();
        found.dedup();
        if let [only] = found.as_slice() {
            return self.rules_of[*only as usize].to_vec();
        }
        let mut rules: Vec<u32> =
            found.iter().flat_map(|text| self.rules_of[*text as usize].iter().copied()).collect();
        rules.sort_unstable();
        rules
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn needles(count: u32) -> Vec<Option<Vec<u8>>> {
        // Every tenth rule requires nothing.
        (0..count).map(|i| (i % 10 != 9).then(|| format!("/{i}/").into_bytes())).collect()
    }

    #[test]
    fn only_rules_that_can_match_are_tried_and_in_order() {
        let screen = Screen::build(&needles(100));
        let tried = RefCell::new(Vec::new());
        let found = screen.first(b"/42/x/17/42/", |rule| {
            tried.borrow_mut().push(rule);
            rule == 42
        });
        assert_eq!(found, Some(42));
        assert_eq!(*tried.borrow(), [9, 17, 19, 29, 39, 42]);
        assert_eq!(screen.first(b"/nothing", |_| false), None);
    }

    #[test]
    fn few_rules_are_tried_one_by_one() {
        let screen = Screen::build(&needles(SCREENED_MIN as u32 - 1));
        assert!(screen.texts.is_none());
        assert_eq!(screen.first(b"", |rule| rule == 14), Some(14));
        assert!(Screen::build(&needles(SCREENED_MIN as u32)).texts.is_some());
    }

    #[test]
    fn a_text_of_many_rules_that_occurs_often_is_cheap() {
        let screen = Screen::build(&vec![Some(b"ab".to_vec()); 5000]);
        let tried = std::cell::Cell::new(0);
        let subject = b"ab".repeat(4000);
        screen.first(&subject, |_| {
            tried.set(tried.get() + 1);
            false
        });
        assert_eq!(tried.get(), 5000);
    }
}
