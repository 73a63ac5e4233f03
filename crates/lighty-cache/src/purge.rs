//! Purges: rules with the moment at which they were made. An object is invalid under each rule that
//! fits it and is younger than its request.
//!
//! A moment is the time of the last purge in milliseconds since 1970, and later than each earlier
//! one: a hit compares one number unless a purge has happened since the object was last compared. A
//! purge covers requests to backends that are under way, and what an earlier process has stored.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::disk::hash::{Seed, short_hash};
use crate::key::Key;
use crate::object::Object;

/// Maximum number of rules. Beyond, a rule for everything takes their place: too much is purged
/// rather than too little.
pub const RULES_MAX: usize = 100_000;

/// Maximum number of rules for prefixes, which are compared one after the other.
pub const PREFIX_RULES_MAX: usize = 1_024;

/// Uses of hashes of names.
const HOST: u8 = 3;
const URL: u8 = 4;
const TAG: u8 = 5;

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

impl KeyPlaces {
    /// Host and target of a key.
    pub(crate) fn of(self, key: &Key) -> (&[u8], &[u8]) {
        let part = |index: usize| key.parts().nth(index).unwrap_or_default();
        (part(self.host), part(self.target))
    }
}

/// The hash of host and target.
pub(crate) fn url_hash(seed: &Seed, host: &[u8], target: &[u8]) -> u64 {
    short_hash(seed, URL, &[host, target])
}

/// Result of comparing an object with the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Purged {
    pub(crate) hard: bool,
    pub(crate) soft: bool,
}

/// A rule, as it is kept on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PurgeEntry {
    pub(crate) kind: PurgeKind,
    pub(crate) moment: u64,
    pub(crate) target: PurgeTarget,
}

/// The objects of a rule on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PurgeTarget {
    All,
    /// A hash of scope and name.
    Named(u64),
    /// Host and path.
    Prefix(Box<[u8]>, Box<[u8]>),
}

/// Moments of the last hard and the last soft purge; 0: none.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    hard: u64,
    soft: u64,
}

impl Moments {
    fn set(&mut self, kind: PurgeKind, moment: u64) {
        let last = match kind {
            PurgeKind::Hard => &mut self.hard,
            PurgeKind::Soft => &mut self.soft,
        };
        *last = moment.max(*last);
    }

    fn entries(self, target: PurgeTarget) -> impl Iterator<Item = PurgeEntry> {
        let moments = [(PurgeKind::Hard, self.hard), (PurgeKind::Soft, self.soft)];
        let moments = moments.into_iter().filter(|(_, moment)| *moment > 0);
        moments.map(move |(kind, moment)| PurgeEntry { kind, moment, target: target.clone() })
    }
}

/// The rules of a store.
#[derive(Debug)]
pub(crate) struct Purges {
    places: KeyPlaces,
    seed: Seed,
    /// A purge from now on has at least this moment.
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
    pub(crate) fn new(places: KeyPlaces, seed: Seed) -> Self {
        Self { places, seed, moment: AtomicU64::new(1), rules: RwLock::default() }
    }

    /// The present moment.
    pub(crate) fn now(&self) -> u64 {
        self.moment.load(Ordering::Acquire)
    }

    /// The hash of a tag, which objects keep instead of it.
    pub(crate) fn tag(&self, tag: &[u8]) -> u64 {
        short_hash(&self.seed, TAG, &[tag])
    }

    /// The hash of host and target of a key.
    pub(crate) fn url(&self, key: &Key) -> u64 {
        let (host, target) = self.places.of(key);
        self.url_of(host, target)
    }

    pub(crate) fn url_of(&self, host: &[u8], target: &[u8]) -> u64 {
        url_hash(&self.seed, host, target)
    }

    fn host(&self, host: &[u8]) -> u64 {
        short_hash(&self.seed, HOST, &[host])
    }

    /// Adds a rule for all requests sent so far, at a time in milliseconds since 1970.
    pub(crate) fn add(&self, scope: PurgeScope<'_>, kind: PurgeKind, now_ms: u64) -> PurgeEntry {
        let target = match scope {
            PurgeScope::All => PurgeTarget::All,
            PurgeScope::Host(host) => PurgeTarget::Named(self.host(host)),
            PurgeScope::Url(host, url) => PurgeTarget::Named(self.url_of(host, url)),
            PurgeScope::Tag(tag) => PurgeTarget::Named(self.tag(tag)),
            PurgeScope::Prefix(host, path) => PurgeTarget::Prefix(host.into(), path.into()),
        };
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let moment = self.now().max(now_ms);
        let entry = PurgeEntry { kind, moment, target };
        self.insert(&mut rules, &entry);
        self.moment.store(moment.saturating_add(1), Ordering::Release);
        entry
    }

    /// Adds rules of an earlier process.
    pub(crate) fn merge(&self, entries: &[PurgeEntry]) {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        for entry in entries {
            self.insert(&mut rules, entry);
        }
        let latest = entries.iter().map(|entry| entry.moment).max().unwrap_or(0);
        self.moment.store(self.now().max(latest.saturating_add(1)), Ordering::Release);
    }

    /// All rules.
    pub(crate) fn entries(&self) -> Vec<PurgeEntry> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let mut entries: Vec<_> = rules.all.entries(PurgeTarget::All).collect();
        for (name, moments) in &rules.named {
            entries.extend(moments.entries(PurgeTarget::Named(*name)));
        }
        for rule in &rules.prefixes {
            let target = PurgeTarget::Prefix(rule.host.clone(), rule.path.clone());
            entries.extend(rule.moments.entries(target));
        }
        entries
    }

    fn insert(&self, rules: &mut Rules, entry: &PurgeEntry) {
        let moments = match &entry.target {
            PurgeTarget::All => &mut rules.all,
            PurgeTarget::Named(name) => rules.named_rule(*name),
            PurgeTarget::Prefix(host, path) => match rules.prefix_rule(host, path) {
                Some(moments) => moments,
                None => rules.named_rule(self.host(host)),
            },
        };
        moments.set(entry.kind, entry.moment);
        if rules.named.len() > RULES_MAX {
            rules.named.clear();
            rules.all.set(PurgeKind::Hard, entry.moment.max(self.now()));
        }
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
        let (host, url) = self.places.of(key);
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let mut purged = Purged::default();
        let mut fit = |moments: Moments| {
            purged.hard |= moments.hard >= sent_at;
            purged.soft |= moments.soft >= sent_at;
        };
        fit(rules.all);
        let names = [self.host(host), self.url_of(host, url)];
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
        Purges::new(KeyPlaces { host: 0, target: 1 }, [1; 16])
    }

    #[test]
    fn rules_fit_objects_whose_request_was_sent_before() {
        let at = |scope| {
            let purges = purges();
            let before = purges.now();
            purges.add(scope, PurgeKind::Hard, 0);
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
        purges.add(PurgeScope::Url(b"a", b"/"), PurgeKind::Soft, 0);
        let purged = purges.compare(&key("a", "/"), &[], before);
        assert_eq!(purged, Purged { hard: false, soft: true });
    }

    #[test]
    fn too_many_rules_purge_more_and_never_less() {
        let purges = purges();
        let before = purges.now();
        for number in 0..=PREFIX_RULES_MAX {
            let path = format!("/{number}/");
            purges.add(PurgeScope::Prefix(b"a", path.as_bytes()), PurgeKind::Hard, 0);
        }
        assert!(purges.compare(&key("a", "/other"), &[], before).hard, "the whole host");
        assert!(!purges.compare(&key("b", "/0/"), &[], before).hard);
        for number in 0..=RULES_MAX {
            purges.add(PurgeScope::Tag(number.to_string().as_bytes()), PurgeKind::Hard, 0);
        }
        assert!(purges.compare(&key("b", "/"), &[], before).hard, "everything");
        assert!(purges.count() <= RULES_MAX + PREFIX_RULES_MAX);
    }
}
