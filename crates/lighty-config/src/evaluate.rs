//! Evaluates which blocks apply to a request.
//!
//! A thousand virtual hosts must not cost a thousand comparisons. On every nesting level,
//! conditions that compare a field with a whole text are found by hashing the field's value, and
//! conditions that match a part of it by one search for all such parts. The remaining conditions
//! are tried one by one, and only inside blocks that are true.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;

use crate::block::{Block, Capture, CaptureSource};
use crate::condition::{Matcher, split_port};
use crate::context::CaptureId;
use crate::field::{Facts, Field, SHARED_SLOTS, SLOTS};
use crate::pattern::{Places, Undecided};
use crate::screen::{Letters, SCREENED_MIN, Texts};

/// Minimum number of comparisons of one field on one level to use a hash table. Fewer are cheaper
/// to try one by one.
const HASHED_MIN: usize = 8;

type Map<K> = HashMap<K, Box<[u32]>, FixedState>;

/// Search index of all conditions.
struct Index {
    /// Levels by enclosing block.
    levels: Vec<IndexLevel>,
    /// The chains that a block is a branch of (several, if it was continued in several ways).
    chains_of: Vec<Box<[u32]>>,
    /// The chain that decides about a block, and the fields of the preceding branches.
    before: Vec<Option<Before>>,
    /// Fields that a chain's branches test, without duplicates, by chain.
    fields: Vec<Vec<Field>>,
}

struct Before {
    chain: u32,
    /// Number of the chain's fields that the preceding branches test.
    fields: usize,
}

#[derive(Default)]
struct IndexLevel {
    /// Blocks to try one by one, in file order.
    one_by_one: Vec<u32>,
    hosts: Map<Box<str>>,
    addresses: Map<IpAddr>,
    texts: Vec<(Field, Map<Box<str>>)>,
    /// Conditions by a text that every matching value contains.
    parts: Vec<(Field, Texts)>,
}

impl Index {
    fn build<S>(blocks: &[Block<S>]) -> Index {
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); blocks.len()];
        for (id, block) in blocks.iter().enumerate().skip(1) {
            children[block.parent as usize].push(id as u32);
        }
        let levels = children.iter().map(|children| IndexLevel::build(blocks, children)).collect();
        let (chains_of, before, fields) = chains(blocks);
        Index { levels, chains_of, before, fields }
    }
}

type Chains = (Vec<Box<[u32]>>, Vec<Option<Before>>, Vec<Vec<Field>>);

/// Numbers the `else` chains. If two blocks continue the same block, two chains begin there.
fn chains<S>(blocks: &[Block<S>]) -> Chains {
    let mut of: Vec<Vec<u32>> = vec![Vec::new(); blocks.len()];
    let mut before: Vec<Option<Before>> = Vec::with_capacity(blocks.len());
    let mut chains: Vec<Chain> = Vec::new();
    for (id, block) in (0u32..).zip(blocks) {
        let Some(prev) = block.prev else {
            before.push(None);
            continue;
        };
        let open = of[prev as usize].iter().find(|c| chains[**c as usize].last == prev);
        let number = open.copied().unwrap_or_else(|| {
            let branches = branches_to(blocks, prev);
            let mut chain = Chain { last: prev, ..Chain::default() };
            for branch in branches {
                of[branch as usize].push(chains.len() as u32);
                chain.look_at(&blocks[branch as usize]);
            }
            chains.push(chain);
            chains.len() as u32 - 1
        });
        let chain = &mut chains[number as usize];
        before.push(Some(Before { chain: number, fields: chain.fields.len() }));
        chain.look_at(block);
        chain.last = id;
        of[id as usize].push(number);
    }
    let fields = chains.into_iter().map(|chain| chain.fields).collect();
    (of.into_iter().map(Into::into).collect(), before, fields)
}

/// A chain being numbered.
#[derive(Default)]
struct Chain {
    last: u32,
    fields: Vec<Field>,
    known: HashSet<Field>,
}

impl Chain {
    fn look_at<S>(&mut self, block: &Block<S>) {
        if let Some(cond) = &block.cond
            && self.known.insert(cond.field.clone())
        {
            self.fields.push(cond.field.clone());
        }
    }
}

/// A branch and the preceding ones, first branch first.
fn branches_to<S>(blocks: &[Block<S>], last: u32) -> Vec<u32> {
    let before = |branch: &u32| blocks[*branch as usize].prev;
    let mut list: Vec<u32> = std::iter::successors(Some(last), before).collect();
    list.reverse();
    list
}

/// Search key of a condition.
enum SearchKey<'a> {
    Host(&'a str),
    Address(IpAddr),
    Text(&'a Field, &'a str),
    Part(&'a Field, Letters, Vec<u8>),
}

/// A text to search for, and its block.
type SearchText = (Vec<u8>, u32);

fn key<S>(block: &Block<S>) -> Option<SearchKey<'_>> {
    let cond = block.cond.as_ref().filter(|cond| !cond.op.is_negative())?;
    match &cond.matcher {
        Matcher::Host { name, .. } => Some(SearchKey::Host(name)),
        Matcher::Exact(text) => Some(SearchKey::Text(&cond.field, text)),
        Matcher::Net { address: IpAddr::V4(ip), bits: 32 } => {
            Some(SearchKey::Address((*ip).into()))
        }
        Matcher::Net { address: IpAddr::V6(ip), bits: 128 } => {
            Some(SearchKey::Address((*ip).into()))
        }
        Matcher::Net { .. } | Matcher::List(_) => None,
        Matcher::Prefix { .. } | Matcher::Suffix { .. } | Matcher::Pattern(_) => {
            let (letters, part) = cond.matcher.part(&cond.text)?;
            Some(SearchKey::Part(&cond.field, letters, part))
        }
    }
}

impl IndexLevel {
    fn build<S>(blocks: &[Block<S>], children: &[u32]) -> IndexLevel {
        let mut hosts: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        let mut addresses: HashMap<IpAddr, Vec<u32>> = HashMap::new();
        let mut texts: HashMap<Field, HashMap<Box<str>, Vec<u32>>> = HashMap::new();
        let mut parts: HashMap<(Field, Letters), Vec<SearchText>> = HashMap::new();
        let mut level = IndexLevel::default();
        for &id in children {
            match key(&blocks[id as usize]) {
                Some(SearchKey::Host(name)) => hosts.entry(name.into()).or_default().push(id),
                Some(SearchKey::Address(ip)) => addresses.entry(ip).or_default().push(id),
                Some(SearchKey::Text(field, text)) => {
                    let map = texts.entry(field.clone()).or_default();
                    map.entry(text.into()).or_default().push(id);
                }
                Some(SearchKey::Part(field, letters, part)) => {
                    parts.entry((field.clone(), letters)).or_default().push((part, id));
                }
                None => level.one_by_one.push(id),
            }
        }
        level.hosts = level.freeze(hosts);
        level.addresses = level.freeze(addresses);
        for (field, map) in texts {
            let map = level.freeze(map);
            if !map.is_empty() {
                level.texts.push((field, map));
            }
        }
        for ((field, letters), parts) in parts {
            level.search(field, letters, parts);
        }
        level.one_by_one.sort_unstable();
        level
    }

    /// Adds one search for all parts if there are enough of them to be worthwhile. Otherwise their
    /// blocks are tried one by one.
    fn search(&mut self, field: Field, letters: Letters, parts: Vec<SearchText>) {
        let few = parts.len() < SCREENED_MIN;
        let texts = if few { None } else { Texts::build(parts.iter().cloned(), letters) };
        match texts {
            Some(texts) => self.parts.push((field, texts)),
            None => self.one_by_one.extend(parts.iter().map(|(_, id)| id)),
        }
    }

    /// Builds a hash table if it is large enough to be worthwhile. Otherwise the blocks are tried
    /// one by one.
    fn freeze<K: std::hash::Hash + Eq>(&mut self, map: HashMap<K, Vec<u32>>) -> Map<K> {
        if map.values().map(Vec::len).sum::<usize>() < HASHED_MIN {
            self.one_by_one.extend(map.into_values().flatten());
            return Map::default();
        }
        map.into_iter().map(|(key, ids)| (key, ids.into())).collect()
    }

    /// Adds the blocks that the request's values select.
    fn candidates<'f>(&'f self, run: &mut Evaluation<'f, '_>) {
        if !self.hosts.is_empty()
            && let Some(host) = run.value(&Field::Host)
        {
            let (name, _) = split_port(host);
            let found = if name.bytes().any(|b| b.is_ascii_uppercase()) {
                self.hosts.get(name.to_ascii_lowercase().as_str())
            } else {
                self.hosts.get(name)
            };
            run.active.candidates.extend(found.into_iter().flatten());
        }
        if !self.addresses.is_empty()
            && let Some(ip) = run.facts.remote_ip()
        {
            let found = self.addresses.get(&ip.to_canonical());
            run.active.candidates.extend(found.into_iter().flatten());
        }
        for (field, map) in &self.texts {
            let found = run.value(field).and_then(|value| map.get(value));
            run.active.candidates.extend(found.into_iter().flatten());
        }
        for (field, texts) in &self.parts {
            let mut found = std::mem::take(&mut run.active.found);
            texts.find(run.value(field).unwrap_or_default().as_bytes(), &mut found);
            run.active.candidates.extend(found.iter().flat_map(|text| texts.of(*text)));
            run.active.found = found;
        }
    }
}

/// The blocks that are true for a request. Reusable: once warm, evaluating allocates nothing.
#[derive(Default)]
pub struct Active {
    bits: Vec<u64>,
    /// Chains with a true branch.
    taken: Vec<u64>,
    /// A stack of candidate blocks, one section per level.
    candidates: Vec<u32>,
    /// Texts found in the value that was searched last.
    found: Vec<u32>,
    captures: CaptureSet,
    /// The first condition that could not be decided.
    undecided: Option<Undecided>,
    config: u64,
}

/// The captures of one evaluation. Reusable, and owned by a request: the [`Active`] that filled it
/// may serve another request meanwhile.
#[derive(Default)]
pub struct CaptureSet {
    slots: Vec<CaptureSlot>,
    config: u64,
    /// Number of evaluations.
    turn: u64,
}

#[derive(Default)]
struct CaptureSlot {
    /// The evaluation that filled it.
    turn: u64,
    text: String,
    places: Option<Places>,
    around: Option<CaptureId>,
}

/// Captures of a condition.
#[derive(Clone, Copy)]
pub struct Captures<'a> {
    set: &'a CaptureSet,
    slot: &'a CaptureSlot,
}

impl<'a> Captures<'a> {
    /// `%n`: 0 is the whole match, or the text of a condition without an expression, whose other
    /// groups come from the enclosing expression. `None` if the group did not participate.
    pub fn get(&self, n: usize) -> Option<&'a str> {
        if let Some(around) = self.slot.around.filter(|_| n > 0) {
            return self.set.get(around)?.get(n);
        }
        let (start, end) = self.slot.places.as_ref()?.get(n)?;
        self.slot.text.get(start..end)
    }
}

impl CaptureSet {
    /// True if no condition has captures.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The captures of a condition, if it was true.
    pub fn get(&self, id: CaptureId) -> Option<Captures<'_>> {
        let slot = self.slots.get(id.0 as usize)?;
        (slot.turn == self.turn).then_some(Captures { set: self, slot })
    }

    fn reset<S>(&mut self, of: &Conditions<S>) {
        if self.config != of.id {
            *self = CaptureSet { config: of.id, ..CaptureSet::default() };
            self.slots.resize_with(of.capture_count, CaptureSlot::default);
        }
        self.turn += 1;
    }
}

impl Active {
    /// An empty set.
    pub fn new() -> Self {
        Active::default()
    }

    /// True if the block applies.
    pub fn contains(&self, block: u32) -> bool {
        bit(&self.bits, block)
    }

    /// The true blocks in file order, without the global one.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = self.bits.iter().enumerate();
        bits.flat_map(|(at, &word)| Ones(word).map(move |bit| at as u32 * 64 + bit))
    }

    /// The set as 64-bit integers, for memoising.
    pub fn as_bits(&self) -> &[u64] {
        &self.bits
    }

    /// The captures of a condition, if it is true now.
    pub fn captures(&self, id: CaptureId) -> Option<Captures<'_>> {
        self.captures.get(id)
    }

    /// Swaps out the captures, so that their memory is reused.
    pub fn swap_captures(&mut self, kept: &mut CaptureSet) {
        std::mem::swap(&mut self.captures, kept);
    }

    /// The reason why a condition could not be decided, if so: the set of true blocks is then
    /// unknown.
    pub fn take_undecided(&mut self) -> Option<Undecided> {
        self.undecided.take()
    }

    fn reset<S>(&mut self, of: &Conditions<S>) {
        if self.config != of.id {
            *self = Active { config: of.id, ..Active::default() };
            self.bits.resize(of.blocks.len().div_ceil(64), 0);
            self.taken.resize(of.index.fields.len().div_ceil(64), 0);
        }
        self.bits.fill(0);
        self.taken.fill(0);
        self.candidates.clear();
        self.undecided = None;
        self.captures.reset(of);
    }
}

struct Ones(u64);

impl Iterator for Ones {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let at = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(at)
    }
}

fn bit(bits: &[u64], at: u32) -> bool {
    bits.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

fn set_bit(bits: &mut [u64], at: u32) {
    bits[at as usize / 64] |= 1 << (at % 64);
}

/// An evaluation. Each field is queried once.
struct Evaluation<'f, 'a> {
    facts: &'f dyn Facts,
    values: [Option<Option<Cow<'f, str>>>; SLOTS],
    /// The names of the fields in the slots that many fields share.
    names: [Option<&'f str>; SHARED_SLOTS],
    active: &'a mut Active,
}

impl<'f> Evaluation<'f, '_> {
    fn value<'s>(&'s mut self, field: &'f Field) -> Option<&'s str> {
        let slot = field.slot();
        if let Some((shared, name)) = field.in_shared_slot()
            && self.names[shared] != Some(name)
        {
            self.names[shared] = Some(name);
            self.values[slot] = None;
        }
        self.values[slot].get_or_insert_with(|| self.facts.get(field)).as_deref()
    }
}

/// The blocks of a configuration, with their search index.
pub(crate) struct Conditions<S> {
    pub(crate) blocks: Vec<Block<S>>,
    index: Index,
    /// Distinguishes configurations, so that an [`Active`] detects a reload.
    id: u64,
    pub(crate) capture_count: usize,
}

impl<S> Conditions<S> {
    pub(crate) fn new(blocks: Vec<Block<S>>, capture_count: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let index = Index::build(&blocks);
        Self { blocks, index, id, capture_count }
    }

    /// Rebuilds the index after matchers have changed.
    pub(crate) fn rebuild_index(&mut self) {
        self.index = Index::build(&self.blocks);
    }

    /// Finds the active blocks. Conditions on an unknown field do not apply; evaluate again when
    /// more fields are known.
    pub(crate) fn evaluate(&self, facts: &dyn Facts, out: &mut Active) {
        out.reset(self);
        if self.blocks.len() > 1 {
            let values = [const { None }; SLOTS];
            let mut run = Evaluation { facts, values, names: [None; SHARED_SLOTS], active: out };
            self.visit_level(0, &mut run);
        }
    }

    /// Tries the blocks inside a true block in file order: an `else` depends on the preceding
    /// branches.
    fn visit_level<'f>(&'f self, parent: u32, run: &mut Evaluation<'f, '_>) {
        let level = &self.index.levels[parent as usize];
        let from = run.active.candidates.len();
        level.candidates(run);
        run.active.candidates[from..].sort_unstable();
        let to = run.active.candidates.len();
        let (mut next, mut rest) = (from, level.one_by_one.as_slice());
        loop {
            let candidate = (next < to).then(|| run.active.candidates[next]);
            let id = match (candidate, rest.first()) {
                (Some(candidate), Some(&first)) if candidate > first => first,
                (None, Some(&first)) => first,
                (Some(candidate), _) => candidate,
                (None, None) => break,
            };
            if candidate == Some(id) {
                next += 1;
            } else {
                rest = &rest[1..];
            }
            self.visit(id, run);
        }
        run.active.candidates.truncate(from);
    }

    fn visit<'f>(&'f self, id: u32, run: &mut Evaluation<'f, '_>) {
        if !self.holds(id, run) {
            return;
        }
        set_bit(&mut run.active.bits, id);
        for &chain in &self.index.chains_of[id as usize] {
            set_bit(&mut run.active.taken, chain);
        }
        let block = &self.blocks[id as usize];
        if let (Some(capture), Some(cond)) = (&block.capture, &block.cond) {
            record(capture, &cond.field, run);
        }
        self.visit_level(id, run);
    }

    fn holds<'f>(&'f self, id: u32, run: &mut Evaluation<'f, '_>) -> bool {
        let before = self.index.before[id as usize].as_ref();
        if before.is_some_and(|before| bit(&run.active.taken, before.chain)) {
            return false;
        }
        if let Some(cond) = &self.blocks[id as usize].cond {
            let facts = run.facts;
            let Some(value) = run.value(&cond.field) else { return false };
            match cond.matcher.is_match(value, facts) {
                Ok(is_match) if is_match != cond.op.is_negative() => {}
                Ok(_) => return false,
                Err(undecided) => {
                    run.active.undecided.get_or_insert(undecided);
                    return false;
                }
            }
        }
        // A preceding branch that cannot be decided yet might still be true.
        before.is_none_or(|before| {
            let fields = &self.index.fields[before.chain as usize][..before.fields];
            fields.iter().all(|field| run.value(field).is_some())
        })
    }
}

fn record<'f>(capture: &Capture, field: &'f Field, run: &mut Evaluation<'f, '_>) {
    let mut slot = std::mem::take(&mut run.active.captures.slots[capture.id.0 as usize]);
    slot.text.clear();
    slot.text.push_str(match &capture.found {
        CaptureSource::Text(text) => text,
        _ => run.value(field).unwrap_or(""),
    });
    slot.around = capture.around;
    let matched = match &capture.found {
        CaptureSource::Match(pattern) => {
            let places = slot.places.get_or_insert_with(|| pattern.places());
            pattern.read(places, &slot.text).unwrap_or_else(|undecided| {
                run.active.undecided.get_or_insert(undecided);
                false
            })
        }
        _ => {
            slot.places.get_or_insert_with(Places::none).set_whole(slot.text.len());
            true
        }
    };
    slot.turn = if matched { run.active.captures.turn } else { 0 };
    run.active.captures.slots[capture.id.0 as usize] = slot;
}
