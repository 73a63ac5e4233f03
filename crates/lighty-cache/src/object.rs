//! Stored responses.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use lighty_http::{Fields, Known, Status};

use crate::disk::BodyFile;
use crate::key::Key;
use crate::rules::{Freshness, selecting_key};
use crate::sums::{block_sums, sum_of_sums};

/// Uses that count; more say nothing about the next ones.
const USES_MAX: u8 = 3;

/// Bytes that an object takes beside its contents: itself, its place in the index and in a queue.
/// Measured; a test compares it with the memory of a process.
const OVERHEAD_BYTES: u64 = 928;

/// The body of a response: pieces in memory, or a part of a file.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pieces: Vec<Bytes>,
    length: u64,
    stored: Option<StoredBody>,
}

/// A body on the disk.
#[derive(Clone, Debug)]
pub struct StoredBody {
    /// Not there once the body has left the disk.
    file: Weak<BodyFile>,
    /// Its offset in the file.
    pub offset: u64,
    /// The checks that are still due.
    check: Option<Arc<BodyCheck>>,
    pub(crate) place: StoredPlace,
}

/// The place of a body on the disk.
#[derive(Clone, Debug)]
pub(crate) enum StoredPlace {
    /// In a segment, with its checksums.
    Segment(u32, Arc<[u32]>),
    /// In a file of its own with this number, and the checksum of its checksums.
    File(u64, u32),
}

/// Checksums of a body that was not compared with them yet.
#[derive(Debug)]
pub struct BodyCheck {
    /// CRC-32C of each block of [`crate::sums::BLOCK_BYTES`].
    pub sums: Box<[u32]>,
    /// It is compared each time.
    pub is_permanent: bool,
    is_done: AtomicBool,
}

impl BodyCheck {
    pub(crate) fn new(sums: Box<[u32]>, is_permanent: bool) -> Self {
        Self { sums, is_permanent, is_done: AtomicBool::new(false) }
    }

    /// True if a block is as it was written.
    pub fn proves(&self, block: u64, bytes: &[u8]) -> bool {
        let sum = usize::try_from(block).ok().and_then(|block| self.sums.get(block));
        sum.is_some_and(|sum| crc32c::crc32c(bytes) == *sum)
    }

    /// All blocks are as they were written.
    pub fn finish(&self) {
        self.is_done.store(!self.is_permanent, Ordering::Relaxed);
    }
}

impl StoredBody {
    pub(crate) fn new(file: &Arc<BodyFile>, offset: u64, place: StoredPlace) -> Self {
        Self { file: Arc::downgrade(file), offset, check: None, place }
    }

    pub(crate) fn with_check(mut self, check: BodyCheck) -> Self {
        self.check = Some(Arc::new(check));
        self
    }

    /// The file, unless the body has left the disk.
    pub fn file(&self) -> Option<Arc<BodyFile>> {
        self.file.upgrade()
    }

    /// The checks that readers have to make.
    pub fn check(&self) -> Option<&Arc<BodyCheck>> {
        self.check.as_ref().filter(|check| !check.is_done.load(Ordering::Relaxed))
    }
}

impl Content {
    /// Adds a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.length += piece.len() as u64;
            self.pieces.push(piece);
        }
    }

    /// A body on the disk.
    pub(crate) fn on_disk(stored: StoredBody, length: u64) -> Self {
        Self { pieces: Vec::new(), length, stored: Some(stored) }
    }

    /// The body on the disk, if it is not in memory.
    pub fn stored(&self) -> Option<&StoredBody> {
        self.stored.as_ref()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// The checksum of the checksums of its blocks, the same in memory and on the disk.
    fn sum(&self) -> u32 {
        match self.stored.as_ref().map(|stored| &stored.place) {
            Some(StoredPlace::Segment(_, sums)) => sum_of_sums(sums),
            Some(StoredPlace::File(_, sum)) => *sum,
            None => sum_of_sums(&block_sums(self.pieces.iter().map(|piece| &**piece))),
        }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// True if there is no byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The pieces in memory, in order; none is empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Joins the pieces, and releases memory that they do not need.
    pub(crate) fn pack(&mut self) {
        if self.pieces.len() > 1 {
            self.pieces = vec![Bytes::from(self.pieces.concat())];
        }
        self.pieces.shrink_to_fit();
    }

    /// The bytes from `start` to `end`, or up to the end of the content.
    pub fn slice(&self, start: u64, end: u64) -> Vec<Bytes> {
        let mut at = 0;
        let mut found = Vec::new();
        for piece in &self.pieces {
            let (from, to) = (at, at + piece.len() as u64);
            at = to;
            let (first, last) = (start.max(from), end.min(to));
            if first < last {
                // Within the piece: its length is a `usize`.
                found.push(piece.slice((first - from) as usize..(last - from) as usize));
            }
        }
        found
    }
}

/// The head of a stored response.
#[derive(Clone, Debug)]
pub struct StoredHead {
    /// Its status.
    pub status: Status,
    /// Its fields, without Age and the fields of one connection.
    pub fields: Fields,
    /// Its times.
    pub freshness: Freshness,
    /// Names of the request fields that its Vary names.
    pub names: Box<[Box<[u8]>]>,
    /// The [key](crate::rules::language_key) for requests that prefer its language to all others.
    pub language: Option<Box<[u8]>>,
    /// Hashes of its tags.
    pub tags: Box<[u64]>,
}

impl StoredHead {
    /// Bytes of memory that it takes beside itself. The index has the names once more.
    pub(crate) fn bytes(&self) -> u64 {
        let fields = self.fields.as_bytes().len() + 24 * self.fields.len();
        let names: usize = self.names.iter().map(|name| 2 * (name.len() + 40)).sum();
        let language = self.language.as_ref().map_or(0, |language| language.len());
        (fields + names + language + 8 * self.tags.len()) as u64
    }
}

#[cfg(test)]
impl StoredHead {
    /// A head for tests of other things.
    pub(crate) fn empty() -> Self {
        let freshness = Freshness {
            received_s: 0,
            initial_age_s: 0,
            lifetime_s: 60,
            stale_while_revalidate_s: 0,
            stale_if_error_s: 0,
            // Of use at any time.
            flags: crate::rules::FreshnessFlags::HAS_VALIDATOR,
        };
        Self {
            status: Status::OK,
            fields: Fields::default(),
            freshness,
            names: Box::default(),
            language: None,
            tags: Box::default(),
        }
    }
}

/// A stored response. Nothing in it changes but its counters.
#[derive(Debug)]
pub struct Object {
    pub(crate) key: Key,
    /// Normalised values of the request fields that its Vary names.
    pub(crate) selecting: Box<[u8]>,
    /// Status, fields and times.
    pub head: StoredHead,
    /// The whole body.
    pub content: Content,
    /// Moment at which its request was sent, see [`crate::purge`].
    pub(crate) sent_at: u64,
    /// Moment up to which it was compared with the purge rules.
    pub(crate) checked_at: AtomicU64,
    uses: AtomicU8,
    is_in_main: AtomicBool,
    /// A purge has made it stale.
    is_stale: AtomicBool,
    /// It has left the index.
    is_removed: AtomicBool,
    /// It is in a queue of [`crate::eviction`], or was.
    is_held: AtomicBool,
    /// It was written to the disk, or comes from there.
    is_on_disk: AtomicBool,
    /// It was used since it is in memory.
    was_used: AtomicBool,
    /// Another object has taken its place, or it is not valid any more.
    is_obsolete: AtomicBool,
    /// The checksum of its body, once it was needed.
    body_sum: OnceLock<u32>,
}

impl Object {
    pub(crate) fn new(
        (key, selecting): (Key, Box<[u8]>),
        mut head: StoredHead,
        mut content: Content,
        sent_at: u64,
    ) -> Self {
        head.fields.shrink_to_fit();
        content.pack();
        Self {
            key,
            selecting,
            head,
            content,
            sent_at,
            checked_at: AtomicU64::new(sent_at),
            uses: AtomicU8::new(0),
            is_in_main: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            is_on_disk: AtomicBool::new(false),
            was_used: AtomicBool::new(false),
            is_obsolete: AtomicBool::new(false),
            body_sum: OnceLock::new(),
        }
    }

    /// True if another object has taken its place, or it is not valid any more.
    pub(crate) fn is_obsolete(&self) -> bool {
        self.is_obsolete.load(Ordering::Relaxed)
    }

    pub(crate) fn make_obsolete(&self) {
        self.is_obsolete.store(true, Ordering::Relaxed);
    }

    /// True if it was written to the disk, or comes from there.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.is_on_disk.load(Ordering::Relaxed)
    }

    pub(crate) fn set_on_disk(&self) {
        self.is_on_disk.store(true, Ordering::Relaxed);
    }

    /// True if it was used since it is in memory.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    /// The key of its resource.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Normalised values of the request fields that its Vary names.
    #[must_use]
    pub fn selecting(&self) -> &[u8] {
        &self.selecting
    }

    /// True if it is the response to a request for its key.
    pub fn fits(&self, request: &Fields) -> bool {
        *selecting_key(&self.head.names, request) == *self.selecting
    }

    /// Identifies the body: its length, the checksum of all of it, and its validator. After a
    /// change, an equal one is an accident of two to the power of -32.
    pub(crate) fn body_version(&self) -> Vec<u8> {
        let sum = self.body_sum.get_or_init(|| self.content.sum());
        let fields = &self.head.fields;
        let validator = fields.get(Known::ETag).or(fields.get(Known::LastModified));
        let mut version = format!("{:x}-{sum:x}-", self.content.len()).into_bytes();
        version.extend_from_slice(validator.unwrap_or_default());
        version
    }

    /// Bytes that are to be read before encoded forms of the body can be looked up.
    pub fn unsummed_bytes(&self) -> u64 {
        if self.body_sum.get().is_some() { 0 } else { self.content.memory_bytes() }
    }

    /// Reads the body for its checksum.
    pub fn take_body_sum(&self) {
        self.body_sum.get_or_init(|| self.content.sum());
    }

    /// Times that it was served lately, up to three.
    pub fn recent_uses(&self) -> u8 {
        self.uses()
    }

    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> u64 {
        let around = self.key.as_bytes().len() + self.selecting.len();
        self.content.memory_bytes() + self.head.bytes() + around as u64 + OVERHEAD_BYTES
    }

    /// True if a soft purge has made it stale.
    pub fn is_purged_softly(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    pub(crate) fn make_stale(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// Counts a use.
    pub(crate) fn touch(&self) {
        let uses = self.uses.load(Ordering::Relaxed);
        // A lost count between two threads does no harm.
        if uses < USES_MAX {
            self.uses.store(uses + 1, Ordering::Relaxed);
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn uses(&self) -> u8 {
        self.uses.load(Ordering::Relaxed)
    }

    pub(crate) fn set_uses(&self, uses: u8) {
        self.uses.store(uses, Ordering::Relaxed);
    }

    /// True if it is in the main queue of [`crate::eviction`].
    pub(crate) fn is_in_main(&self) -> bool {
        self.is_in_main.load(Ordering::Relaxed)
    }

    pub(crate) fn set_in_main(&self, is_in_main: bool) {
        self.is_in_main.store(is_in_main, Ordering::Relaxed);
    }

    /// True if it is in a queue of [`crate::eviction`], or was.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    pub(crate) fn set_held(&self) {
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// Marks it as removed. Returns false if it was already.
    pub(crate) fn remove(&self) -> bool {
        !self.is_removed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_cut_across_its_pieces() {
        let mut content = Content::default();
        for piece in ["abc", "", "d", "efgh"] {
            content.push(Bytes::from(piece));
        }
        assert_eq!((content.len(), content.pieces().len()), (8, 3));
        for (start, end, expected) in
            [(0, 8, "abcdefgh"), (2, 5, "cde"), (3, 4, "d"), (7, 99, "h"), (8, 9, ""), (5, 5, "")]
        {
            assert_eq!(content.slice(start, end).concat(), expected.as_bytes(), "{start}-{end}");
        }
        content.pack();
        assert_eq!(content.pieces(), [Bytes::from("abcdefgh")]);
    }
}
