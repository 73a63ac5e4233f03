//! Stored responses.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use bytes::Bytes;
use lighty_http::{Fields, Status};

use crate::key::Key;
use crate::rules::{Freshness, selecting_key};

/// Uses that count; more say nothing about the next ones.
const USES_MAX: u8 = 3;

/// Bytes that an object takes beside its contents: itself, its place in the index and in a queue.
const OVERHEAD_BYTES: u64 = 512;

/// The body of a response, in pieces.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pieces: Vec<Bytes>,
    length: u64,
}

impl Content {
    /// Adds a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.length += piece.len() as u64;
            self.pieces.push(piece);
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

    /// The pieces in order; none is empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Joins the pieces, if they are many and small.
    pub(crate) fn pack(&mut self) {
        if self.pieces.len() < 2 {
            return;
        }
        self.pieces = vec![Bytes::from(self.pieces.concat())];
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
            flags: crate::rules::FreshnessFlags::default(),
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
}

impl Object {
    pub(crate) fn new(
        (key, selecting): (Key, Box<[u8]>),
        head: StoredHead,
        mut content: Content,
        sent_at: u64,
    ) -> Self {
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
        }
    }

    /// True if it is the response to a request for its key.
    pub fn fits(&self, request: &Fields) -> bool {
        *selecting_key(&self.head.names, request) == *self.selecting
    }

    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> u64 {
        let fields = self.head.fields.as_bytes().len() + 24 * self.head.fields.len();
        let language = self.head.language.as_ref().map_or(0, |language| language.len());
        let selecting = self.selecting.len() + language;
        let around = self.key.bytes() + selecting + fields + 8 * self.head.tags.len();
        self.content.len() + around as u64 + OVERHEAD_BYTES
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
