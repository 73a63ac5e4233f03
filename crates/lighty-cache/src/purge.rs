//! Purges: rules with the moment at which they were made. An object is invalid under each rule that
//! fits it and is younger than its request.
//!
//! Moments are counted by purges, so that a hit compares one number unless a purge has happened
//! since the object was last compared. A purge covers requests to backends that are under way.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use foldhash::quality::RandomState;

use crate::key::Key;
use crate::object::Object;

/// Maximum number of rules. Beyond, a rule for everything takes their place: too much is purged
/// rather than too little.
pub const RULES_MAX: usize = 100_000;

/// Maximum number of rules for prefixes, which are compared one after the other.
pub const PREFIX_RULES_MAX: usize = 1_024;

/// The objects that a purge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeScope<'a> {
    /// All objects.
    All,
    /// All objects of a host.
    Host(&'a [u8]),
    /// The URLs of a host that begin with a path.
    Prefix(&'a [u8], &'a [u8]),
    /// All variants of a URL of a host: path and query.
    Url(&'a [u8], &'a [u8]),
    /// The objects with a tag.
    Tag(&'a [u8]),
}

/// Effect of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeKind {
    /// The objects are gone.
    Hard,
    /// They are stale.
    Soft,
}

/// The place of host and target among the parts of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyPlaces {
    /// Index of the part with the host.
    pub host: usize,
    /// Index of the part with path and query.
    pub target: usize,
}

/// Result of comparing an object with the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Purged {
    pub(crate) hard: bool,
    pub(crate) soft: bool,
}

/// Moments of the last hard and the last soft purge; 0: none.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    hard: u64,
    soft: u64,
}

impl Moments {
    fn set(&mut self, kind: PurgeKind, moment: u64) {
        match kind {
            PurgeKind::Hard => self.hard = moment,
            PurgeKind::Soft => self.soft = moment,
        }
    }
}

/// The rules of a store.
#[derive(Debug)]
pub(crate) struct Purges {
    places: KeyPlaces,
    hasher: RandomState,
    /// Number of purges so far.
    moment: AtomicU64,
    rules: RwLock<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    all: Moments,
    /// By hash of scope and name.
    named: HashMap<u64, Moments, foldhash::fast::RandomState>,
    prefixes: Vec<PrefixRule>,
}

#[derive(Debug)]
struct PrefixRule {
    host: Box<[u8]>,
    path: Box<[u8]>,
    moments: Moments,
}

impl Purges {
    pub(crate) fn new(places: KeyPlaces) -> Self {
        Self {
            places,
            hasher: RandomState::default(),
            moment: AtomicU64::new(1),
            rules: RwLock::default(),
        }
    }

    /// The present moment.
    pub(crate) fn now(&self) -> u64 {
        self.moment.load(Ordering::Acquire)
    }

    /// The hash of a tag, which objects keep instead of it.
    pub(crate) fn tag(&self, tag: &[u8]) -> u64 {
        self.hasher.hash_one((2_u8, tag))
    }

    /// The hash of host and target of a key.
    pub(crate) fn url(&self, key: &Key) -> u64 {
        let part = |index: usize| key.parts().nth(index).unwrap_or_default();
        self.url_of(part(self.places.host), part(self.places.target))
    }

    pub(crate) fn url_of(&self, host: &[u8], target: &[u8]) -> u64 {
        self.hasher.hash_one((1_u8, host, target))
    }

    /// Adds a rule for all requests sent so far. Returns its moment.
    pub(crate) fn add(&self, scope: PurgeScope<'_>, kind: PurgeKind) -> u64 {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let moment = self.now();
        let moments = match scope {
            PurgeScope::All => &mut rules.all,
            PurgeScope::Host(host) => rules.named_rule(self.hasher.hash_one((0_u8, host))),
            PurgeScope::Url(host, url) => rules.named_rule(self.hasher.hash_one((1_u8, host, url))),
            PurgeScope::Tag(tag) => rules.named_rule(self.tag(tag)),
            PurgeScope::Prefix(host, path) => match rules.prefix_rule(host, path) {
                Some(moments) => moments,
                None => rules.named_rule(self.hasher.hash_one((0_u8, host))),
            },
        };
        moments.set(kind, moment);
        if rules.named.len() > RULES_MAX {
            rules.named.clear();
            rules.all.hard = moment;
        }
        self.moment.store(moment + 1, Ordering::Release);
        moment
    }

    /// Compares an object with the rules, if there are new ones.
    pub(crate) fn check(&self, object: &Object) -> Purged {
        let now = self.now();
        if object.checked_at.load(Ordering::Relaxed) == now {
            return Purged::default();
        }
        let purged = self.compare(&object.key, &object.head.tags, object.sent_at);
        if !purged.hard {
            object.checked_at.store(now, Ordering::Relaxed);
        }
        purged
    }

    /// Compares the key and the tags of a response to a request that was sent at a moment.
    pub(crate) fn compare(&self, key: &Key, tags: &[u64], sent_at: u64) -> Purged {
        let part = |index: usize| key.parts().nth(index).unwrap_or_default();
        let (host, url) = (part(self.places.host), part(self.places.target));
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let mut purged = Purged::default();
        let mut fit = |moments: Moments| {
            purged.hard |= moments.hard >= sent_at;
            purged.soft |= moments.soft >= sent_at;
        };
        fit(rules.all);
        let names = [self.hasher.hash_one((0_u8, host)), self.url_of(host, url)];
        for name in names.iter().chain(tags) {
            rules.named.get(name).copied().map(&mut fit);
        }
        let prefixes = rules.prefixes.iter();
        prefixes
            .filter(|rule| *rule.host == *host && url.starts_with(&rule.path))
            .for_each(|rule| fit(rule.moments));
        purged
    }

    /// Number of rules.
    pub(crate) fn count(&self) -> usize {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.named.len() + rules.prefixes.len()
    }
}

impl Rules {
    fn named_rule(&mut self, name: u64) -> &mut Moments {
        self.named.entry(name).or_default()
    }

    /// The rule of a prefix; `None` if there are too many.
    fn prefix_rule(&mut self, host: &[u8], path: &[u8]) -> Option<&mut Moments> {
        let known = |rule: &PrefixRule| *rule.host == *host && *rule.path == *path;
        let at = match self.prefixes.iter().position(known) {
            Some(at) => at,
            None if self.prefixes.len() >= PREFIX_RULES_MAX => return None,
            None => {
                let moments = Moments::default();
                self.prefixes.push(PrefixRule { host: host.into(), path: path.into(), moments });
                self.prefixes.len() - 1
            }
        };
        self.prefixes.get_mut(at).map(|rule| &mut rule.moments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyWriter;

    fn key(host: &str, target: &str) -> Key {
        KeyWriter::default().part(host.as_bytes()).part(target.as_bytes()).finish()
    }

    fn purges() -> Purges {
        Purges::new(KeyPlaces { host: 0, target: 1 })
    }

    #[test]
    fn rules_fit_objects_whose_request_was_sent_before() {
        let at = |scope| {
            let purges = purges();
            let before = purges.now();
            purges.add(scope, PurgeKind::Hard);
            let tags = [purges.tag(b"news")];
            let fits = move |host: &str, target: &str, tags: &[u64]| {
                assert!(!purges.compare(&key(host, target), tags, purges.now()).hard, "sent after");
                purges.compare(&key(host, target), tags, before).hard
            };
            (fits, tags)
        };
        let (fits, _) = at(PurgeScope::All);
        assert!(fits("a", "/", &[]));
        let (fits, _) = at(PurgeScope::Host(b"a"));
        assert!(fits("a", "/x", &[]) && !fits("b", "/x", &[]));
        let (fits, _) = at(PurgeScope::Url(b"a", b"/x?y"));
        assert!(fits("a", "/x?y", &[]) && !fits("a", "/x", &[]) && !fits("b", "/x?y", &[]));
        let (fits, _) = at(PurgeScope::Prefix(b"a", b"/x/"));
        assert!(fits("a", "/x/1", &[]) && !fits("a", "/x", &[]) && !fits("b", "/x/1", &[]));
        let (fits, tags) = at(PurgeScope::Tag(b"news"));
        assert!(fits("a", "/", &tags) && !fits("a", "/", &[tags[0] ^ 1]));
    }

    #[test]
    fn soft_purge_is_not_a_hard_one() {
        let purges = purges();
        let before = purges.now();
        purges.add(PurgeScope::Url(b"a", b"/"), PurgeKind::Soft);
        let purged = purges.compare(&key("a", "/"), &[], before);
        assert_eq!(purged, Purged { hard: false, soft: true });
    }

    #[test]
    fn too_many_rules_purge_more_and_never_less() {
        let purges = purges();
        let before = purges.now();
        for number in 0..=PREFIX_RULES_MAX {
            let path = format!("/{number}/");
            purges.add(PurgeScope::Prefix(b"a", path.as_bytes()), PurgeKind::Hard);
        }
        assert!(purges.compare(&key("a", "/other"), &[], before).hard, "the whole host");
        assert!(!purges.compare(&key("b", "/0/"), &[], before).hard);
        for number in 0..=RULES_MAX {
            purges.add(PurgeScope::Tag(number.to_string().as_bytes()), PurgeKind::Hard);
        }
        assert!(purges.compare(&key("b", "/"), &[], before).hard, "everything");
        assert!(purges.count() <= RULES_MAX + PREFIX_RULES_MAX);
    }
}
