//! Purges: rules with the moment at which they were made. An object is invalid under each rule that
//! fits it and is younger than its request.
//!
//! A moment is the time of the last purge in milliseconds since 1970, and later than each earlier
//! one: a hit compares one number unless a purge has happened since the object was last compared. A
//! purge covers requests to backends that are under way, and what an earlier process has stored.
//!
//! Rules go once no response is left that is older than they are. Of too many, the older half
//! becomes one rule for everything that was not used since.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::disk::hash::{Seed, short_hash};
use crate::key::Key;
use crate::object::Object;
use crate::store::{rebuild_map, table_bytes};

/// Maximum number of rules, in a store with much memory. Beyond, a rule for everything takes the
/// place of the older half: too much is purged rather than too little.
pub const RULES_MAX: usize = 100_000;

/// Rules that any store has room for.
const RULES_MIN: usize = 448;

/// Share of the budget that rules for names may take, and rules for prefixes: one part in so many
/// each.
const RULES_SHARE: u64 = 40;

/// Bytes of prefix rules that any store has room for.
const PREFIX_BYTES_MIN: u64 = 16 << 10;

/// New rules, as a part of the most, after which the old ones are looked through.
const SWEEP_SHARE: usize = 32;

/// Maximum number of rules for prefixes, which are compared one after the other.
pub const PREFIX_RULES_MAX: usize = 1_024;

/// No name has this hash: it stands for the moment of the last rule, whether or not that has gone.
const LAST_RULE: PurgeTarget = PurgeTarget::Named(0);

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

    /// Forgets purges before a moment. Returns false if none is left.
    fn expire(&mut self, before: u64) -> bool {
        for last in [&mut self.hard, &mut self.soft] {
            if *last < before {
                *last = 0;
            }
        }
        self.last() > 0
    }

    fn last(self) -> u64 {
        self.hard.max(self.soft)
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
    /// Bytes that the rules take.
    bytes: AtomicU64,
    /// Rules since the last sweep.
    added: AtomicUsize,
    rules_max: AtomicUsize,
    prefix_bytes_max: AtomicU64,
}

#[derive(Debug, Default)]
struct Rules {
    all: Moments,
    /// By hash of scope and name.
    named: HashMap<u64, Moments, foldhash::fast::RandomState>,
    prefixes: Vec<PrefixRule>,
    prefix_bytes: u64,
}

#[derive(Debug)]
struct PrefixRule {
    host: Box<[u8]>,
    path: Box<[u8]>,
    moments: Moments,
}

/// Bytes of a rule for a name in its table.
const NAMED_BYTES: usize = size_of::<(u64, Moments)>();

impl PrefixRule {
    /// Bytes of memory that it takes.
    fn bytes(&self) -> u64 {
        // Its place may be in a list that is half full.
        (2 * size_of::<Self>() + self.host.len() + self.path.len() + 32) as u64
    }
}

impl Purges {
    pub(crate) fn new(places: KeyPlaces, seed: Seed) -> Self {
        Self {
            places,
            seed,
            moment: AtomicU64::new(1),
            rules: RwLock::default(),
            bytes: AtomicU64::new(0),
            added: AtomicUsize::new(0),
            rules_max: AtomicUsize::new(RULES_MAX),
            prefix_bytes_max: AtomicU64::new(u64::MAX),
        }
    }

    /// Sets the budget of the store.
    pub(crate) fn limit(&self, memory: u64) {
        let share = memory / RULES_SHARE;
        let fits = |places: &usize| table_bytes(places / 8 * 7, NAMED_BYTES) <= share;
        let sizes = (9..24).map(|bits| 1 << bits);
        let places = sizes.take_while(fits).last().unwrap_or(0);
        // A table that is full is rebuilt in one of twice the size.
        let rules_max = (places / 8 * 7 - places / 64).clamp(RULES_MIN, RULES_MAX);
        self.rules_max.store(rules_max, Ordering::Relaxed);
        self.prefix_bytes_max.store(share.max(PREFIX_BYTES_MIN), Ordering::Relaxed);
    }

    /// Bytes of memory that the rules take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// True if so many rules are new that the old ones are to be looked through.
    pub(crate) fn is_sweep_due(&self) -> bool {
        let most = self.rules_max.load(Ordering::Relaxed);
        self.added.load(Ordering::Relaxed) > most / SWEEP_SHARE
    }

    /// Removes the rules before a moment. No response is left that was requested earlier.
    pub(crate) fn expire(&self, before: u64) {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        self.added.store(0, Ordering::Relaxed);
        rules.expire(before);
        self.bytes.store(rules.bytes(), Ordering::Relaxed);
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

    /// The moment of the last rule as one that fits nothing: if it is lost, so are rules.
    pub(crate) fn last_rule(&self) -> PurgeEntry {
        let moment = self.now().saturating_sub(1);
        PurgeEntry { kind: PurgeKind::Soft, moment, target: LAST_RULE }
    }

    fn insert(&self, rules: &mut Rules, entry: &PurgeEntry) {
        if entry.target == LAST_RULE {
            return;
        }
        let most = self.prefix_bytes_max.load(Ordering::Relaxed);
        let moments = match &entry.target {
            PurgeTarget::All => &mut rules.all,
            PurgeTarget::Named(name) => rules.named_rule(*name),
            PurgeTarget::Prefix(host, path) => match rules.prefix_rule(host, path, most) {
                Some(moments) => moments,
                None => rules.named_rule(self.host(host)),
            },
        };
        moments.set(entry.kind, entry.moment);
        if entry.target == PurgeTarget::All && entry.kind == PurgeKind::Hard {
            // All of them concern responses that are gone.
            rules.expire(entry.moment);
        }
        if rules.named.len() > self.rules_max.load(Ordering::Relaxed) {
            rules.merge_older_half();
        }
        self.added.fetch_add(1, Ordering::Relaxed);
        self.bytes.store(rules.bytes(), Ordering::Relaxed);
    }

    /// Compares an object with the rules, if there are new ones.
    pub(crate) fn check(&self, object: &Object) -> Purged {
        let now = self.now();
        let checked_at = object.checked_at.load(Ordering::Relaxed);
        if checked_at == now {
            return Purged::default();
        }
        // It has passed the rules before.
        let purged = self.compare(&object.key, &object.head.tags, checked_at);
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

    /// Bytes of memory that they take.
    fn bytes(&self) -> u64 {
        table_bytes(self.named.capacity(), NAMED_BYTES) + self.prefix_bytes
    }

    /// Removes the rules before a moment.
    fn expire(&mut self, before: u64) {
        self.all.expire(before);
        rebuild_map(&mut self.named, |moments| moments.expire(before));
        self.prefixes.retain_mut(|rule| rule.moments.expire(before));
        self.prefixes.shrink_to_fit();
        self.prefix_bytes = self.prefixes.iter().map(PrefixRule::bytes).sum();
    }

    /// Has a rule for everything take the place of the older half of the rules for names. Responses
    /// that have been compared with them since are not concerned.
    fn merge_older_half(&mut self) {
        let mut moments: Vec<u64> = self.named.values().map(|moments| moments.last()).collect();
        let half = moments.len() / 2;
        let (_, middle, _) = moments.select_nth_unstable(half);
        let middle = *middle;
        let mut merged = self.all;
        rebuild_map(&mut self.named, |moments| {
            let is_kept = moments.last() > middle;
            if !is_kept {
                merged.set(PurgeKind::Hard, moments.hard);
                merged.set(PurgeKind::Soft, moments.soft);
            }
            is_kept
        });
        self.all = merged;
    }

    /// The rule of a prefix; `None` if there are too many, or they would take more bytes than
    /// `most`.
    fn prefix_rule(&mut self, host: &[u8], path: &[u8], most: u64) -> Option<&mut Moments> {
        let known = |rule: &PrefixRule| *rule.host == *host && *rule.path == *path;
        let at = match self.prefixes.iter().position(known) {
            Some(at) => at,
            None if self.prefixes.len() >= PREFIX_RULES_MAX => return None,
            None => {
                let moments = Moments::default();
                let rule = PrefixRule { host: host.into(), path: path.into(), moments };
                let bytes = self.prefix_bytes + rule.bytes();
                if bytes > most {
                    return None;
                }
                self.prefix_bytes = bytes;
                self.prefixes.push(rule);
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
    use crate::object::{Content, StoredHead};

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
        assert!(purges.count() > RULES_MAX / 2, "the younger ones stay");
    }

    #[test]
    fn too_many_rules_spare_responses_that_were_used_since() {
        let purges = purges();
        purges.limit(0);
        let object = |target| {
            let place = (key("a", target), Box::default());
            let (head, content) = (StoredHead::empty(), Content::default());
            Object::new(place, head, content, purges.now())
        };
        let (used, unused) = (object("/used"), object("/unused"));
        for number in 0..10 * RULES_MIN {
            purges.add(PurgeScope::Tag(number.to_string().as_bytes()), PurgeKind::Hard, 0);
            assert!(!purges.check(&used).hard, "{number}");
            assert!(purges.count() <= RULES_MIN);
        }
        assert!(purges.check(&unused).hard);
        purges.add(PurgeScope::Url(b"a", b"/used"), PurgeKind::Hard, 0);
        assert!(purges.check(&used).hard);
    }

    #[test]
    fn rules_before_a_moment_go() {
        let purges = purges();
        let before = purges.now();
        purges.add(PurgeScope::All, PurgeKind::Soft, 0);
        purges.add(PurgeScope::Tag(b"a"), PurgeKind::Hard, 0);
        purges.add(PurgeScope::Prefix(b"a", b"/x/"), PurgeKind::Hard, 0);
        let between = purges.now();
        purges.add(PurgeScope::Tag(b"a"), PurgeKind::Soft, 0);
        purges.add(PurgeScope::Prefix(b"a", b"/y/"), PurgeKind::Hard, 0);
        purges.expire(before);
        assert_eq!(purges.entries().len(), 5, "all are needed");
        purges.expire(between);
        let mut moments: Vec<u64> = purges.entries().iter().map(|entry| entry.moment).collect();
        moments.sort_unstable();
        assert_eq!(moments, [between, between + 1]);
        assert!(purges.compare(&key("a", "/y/1"), &[], between).hard);
        purges.expire(purges.now());
        assert_eq!((purges.count(), purges.entries().len()), (0, 0));
        assert_eq!(purges.bytes(), 0);
    }

    #[test]
    fn rules_stay_within_their_share_of_the_budget() {
        for memory in [0, 2 << 20, 16 << 20] {
            let purges = purges();
            purges.limit(memory);
            let most = (memory / RULES_SHARE).max(table_bytes(448, NAMED_BYTES));
            let (mut names, mut all) = (0, 0);
            for number in 0..20_000 {
                let tag = number.to_string();
                purges.add(PurgeScope::Tag(tag.as_bytes()), PurgeKind::Hard, 0);
                names = names.max(purges.bytes());
            }
            for number in 0..2_000 {
                let path = format!("/{number}/{}", "x".repeat(1000));
                purges.add(PurgeScope::Prefix(b"a", path.as_bytes()), PurgeKind::Hard, 0);
                all = all.max(purges.bytes());
            }
            assert!(names <= most, "{memory}: {names}");
            let prefixes = (memory / RULES_SHARE).max(PREFIX_BYTES_MIN);
            assert!(all > names && all <= most + prefixes, "{memory}: {all}");
        }
    }
}
