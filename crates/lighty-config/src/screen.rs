//! Screening of many patterns: finds the ones that can match.
//!
//! A pattern that requires a certain text is tried only if that text occurs in the subject. One
//! pass over the subject finds all such texts.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use regex_syntax::hir::{Hir, HirKind};

/// Minimum number of patterns for which a pass over the subject is cheaper than trying them one by
/// one.
pub(crate) const SCREENED_MIN: usize = 16;

/// Maximum bytes of a searched text: longer ones do not distinguish patterns better.
const NEEDLE_BYTES_MAX: usize = 32;

/// Minimum bytes of a searched text: shorter ones rule out too little.
const NEEDLE_BYTES_MIN: usize = 2;

/// The longest text contained in every match, if it is long enough to search for.
pub fn required_text(hir: &Hir) -> Option<Vec<u8>> {
    let mut best = Vec::new();
    longest(hir, &mut best);
    (best.len() >= NEEDLE_BYTES_MIN).then_some(best)
}

/// The part of a text to search for; `None` if the text is too short.
pub(crate) fn needle(text: &[u8]) -> Option<&[u8]> {
    // Patterns usually differ at the end of their texts.
    let from = text.len().saturating_sub(NEEDLE_BYTES_MAX);
    (text.len() >= NEEDLE_BYTES_MIN).then(|| &text[from..])
}

fn longest(hir: &Hir, best: &mut Vec<u8>) {
    match hir.kind() {
        HirKind::Literal(literal) => {
            if let Some(text) = needle(&literal.0).filter(|text| text.len() > best.len()) {
                *best = text.to_vec();
            }
        }
        HirKind::Concat(parts) => parts.iter().for_each(|part| longest(part, best)),
        HirKind::Capture(group) => longest(&group.sub, best),
        HirKind::Repetition(repetition) if repetition.min > 0 => longest(&repetition.sub, best),
        _ => {}
    }
}

/// Patterns in order, with their required texts.
#[derive(Default)]
pub struct Screen {
    count: u32,
    texts: Option<Texts>,
    /// Patterns without a known text, in order.
    always: Box<[u32]>,
}

impl Screen {
    /// Builds a screen from the text that each pattern [requires](required_text).
    pub fn build(needles: &[Option<Vec<u8>>]) -> Screen {
        let count = u32::try_from(needles.len()).unwrap_or(u32::MAX);
        let numbered = || (0u32..).zip(needles);
        let known = numbered().filter_map(|(at, needle)| Some((needle.clone()?, at)));
        let texts = match needles.len() < SCREENED_MIN {
            true => None,
            false => Texts::build(known, Letters::Exact),
        };
        let always = numbered().filter(|(_, needle)| needle.is_none()).map(|(at, _)| at).collect();
        Screen { count, texts, always }
    }

    /// The first pattern for which `matches` holds. Allocates only if a text occurs.
    pub fn first(&self, subject: &[u8], matches: impl Fn(u32) -> bool) -> Option<u32> {
        let Some(texts) = &self.texts else { return (0..self.count).find(|at| matches(*at)) };
        let mut occur = Vec::new();
        texts.find(subject, &mut occur);
        let mut found: Vec<u32> = occur.iter().flat_map(|text| texts.of(*text)).copied().collect();
        found.sort_unstable();
        let (mut found, mut always) = (found.iter().peekable(), self.always.iter().peekable());
        loop {
            let from_found = match (found.peek(), always.peek()) {
                (Some(one), Some(other)) => one < other,
                (one, None) => one.is_some(),
                (None, Some(_)) => false,
            };
            let next = if from_found { found.next() } else { always.next() };
            match next {
                None => return None,
                Some(at) if matches(*at) => return Some(*at),
                Some(_) => {}
            }
        }
    }
}

/// Case sensitivity of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Letters {
    Exact,
    Folded,
}

/// A search for many texts at once, with the owners of each text.
pub(crate) struct Texts {
    search: AhoCorasick,
    /// Owners by text, in the order in which they were added.
    owners: Vec<Box<[u32]>>,
}

impl Texts {
    /// Builds a search. `None` if that fails; the caller then tries all patterns.
    pub(crate) fn build(
        texts: impl Iterator<Item = (Vec<u8>, u32)>,
        letters: Letters,
    ) -> Option<Texts> {
        let mut by_text: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        for (text, owner) in texts {
            by_text.entry(text).or_default().push(owner);
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .ascii_case_insensitive(letters == Letters::Folded)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(by_text.keys())
            .ok()?;
        Some(Texts { search, owners: by_text.into_values().map(Into::into).collect() })
    }

    /// Writes the texts that occur to `found`, without duplicates.
    pub(crate) fn find(&self, subject: &[u8], found: &mut Vec<u32>) {
        found.clear();
        found.extend(self.search.find_overlapping_iter(subject).map(|hit| hit.pattern().as_u32()));
        // A text that occurs often counts once, so that its owners are not collected repeatedly.
        found.sort_unstable();
        found.dedup();
    }

    /// The owners of a found text.
    pub(crate) fn of(&self, text: u32) -> &[u32] {
        &self.owners[text as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn required(pattern: &str) -> Option<String> {
        let hir = regex_syntax::parse(pattern).expect(pattern);
        required_text(&hir).map(|text| String::from_utf8(text).expect("text"))
    }

    #[test]
    fn a_required_text_is_found_where_there_is_one() {
        assert_eq!(required(r"^/old/(\d+)/page\.html$").as_deref(), Some("/page.html"));
        assert_eq!(required(r"(?:ab)+c?").as_deref(), Some("ab"));
        assert_eq!(required(r"^/(?:foo|bar)"), None);
        assert_eq!(required(r"(abcdef)?xy").as_deref(), Some("xy"));
        assert_eq!(required(r".*"), None);
        assert_eq!(required(r"(?i)abc"), None);
        let long = format!("^{}tail", "x".repeat(100));
        let found = required(&long).expect("one");
        assert!(found.len() == NEEDLE_BYTES_MAX && found.ends_with("tail"), "{found}");
    }

    fn needles(count: u32) -> Vec<Option<Vec<u8>>> {
        // Every tenth pattern has no required text.
        (0..count).map(|i| (i % 10 != 9).then(|| format!("/{i}/").into_bytes())).collect()
    }

    #[test]
    fn only_patterns_that_can_match_are_tried_and_in_order() {
        let screen = Screen::build(&needles(100));
        let tried = RefCell::new(Vec::new());
        let found = screen.first(b"/42/x/17/42/", |at| {
            tried.borrow_mut().push(at);
            at == 42
        });
        assert_eq!(found, Some(42));
        assert_eq!(*tried.borrow(), [9, 17, 19, 29, 39, 42]);
        assert_eq!(screen.first(b"/nothing", |_| false), None);
    }

    #[test]
    fn few_patterns_are_tried_one_by_one() {
        let screen = Screen::build(&needles(SCREENED_MIN as u32 - 1));
        assert!(screen.texts.is_none());
        assert_eq!(screen.first(b"", |at| at == 14), Some(14));
        assert!(Screen::build(&needles(SCREENED_MIN as u32)).texts.is_some());
    }

    #[test]
    fn a_text_of_many_patterns_that_occurs_often_is_cheap() {
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
