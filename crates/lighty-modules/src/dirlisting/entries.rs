//! A compact list of directory entries: arenas for the names, 28 bytes for the rest.

use std::cmp::Ordering;

use lighty_http::uri::ParseOpts;
use lighty_io::file::{DirEntry, FileKind};

use super::room::Held;

/// Maximum entries of one listing. A million take some 40 MB; a longer page is useless, so the rest
/// is left out and the page says so.
pub(super) const ENTRIES_MAX: usize = 1_000_000;

/// An entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub(super) name: &'a [u8],
    pub(super) is_directory: bool,
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) mtime_s: i64,
}

/// Reachability of an entry by URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Url,
    /// `server.http-parseopts` refuses every URL with this name.
    Refused,
}

impl Reach {
    pub(super) fn of(name: &[u8], parse: &ParseOpts) -> Self {
        if parse.accepts_segment(name) { Reach::Url } else { Reach::Refused }
    }
}

/// Entries of one segment.
const SEGMENT_ENTRIES: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Packed {
    name_start: u32,
    name_length: u8,
    is_directory: bool,
    size: u64,
    mtime_s: i64,
}

/// Totals of the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) directories: usize,
    pub(super) files: usize,
    /// Bytes of all files together.
    pub(super) bytes: u64,
    /// True if entries were left out because of a limit.
    pub(super) truncated: bool,
}

/// A segment of [`SEGMENT_ENTRIES`] entries; the last one may be shorter. Offsets of names are
/// relative to the segment.
#[derive(Debug, Default)]
struct Segment {
    names: Vec<u8>,
    packed: Vec<Packed>,
}

/// Collects entries in small segments. A growing vector would leave freed blocks of twice its size.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    full: Vec<Segment>,
    last: Segment,
    full_bytes: u64,
    totals: Totals,
}

impl Gathered {
    /// Adds an entry. Broken links and special files are left out, because they cannot be fetched.
    /// Returns `false` when the listing is full.
    pub(super) fn push(&mut self, entry: &DirEntry) -> bool {
        self.push_within(entry, ENTRIES_MAX)
    }

    fn push_within(&mut self, entry: &DirEntry, entries_max: usize) -> bool {
        let is_directory = match entry.meta.kind {
            FileKind::Directory => true,
            FileKind::File => false,
            _ => return true,
        };
        // A name of Linux has at most 255 bytes; a longer one could not be opened by its URL.
        let Ok(name_length) = u8::try_from(entry.name.len()) else { return true };
        if self.len() >= entries_max {
            self.totals.truncated = true;
            return false;
        }
        if self.last.packed.len() >= SEGMENT_ENTRIES {
            self.close_segment();
        }
        let (size, mtime_s) = (entry.meta.size, entry.meta.mtime_s);
        let name_start = self.last.names.len() as u32;
        self.last.names.extend_from_slice(&entry.name);
        self.last.packed.push(Packed { name_start, name_length, is_directory, size, mtime_s });
        if is_directory {
            self.totals.directories += 1;
        } else {
            self.totals.files += 1;
            self.totals.bytes = self.totals.bytes.saturating_add(size);
        }
        true
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.totals.directories + self.totals.files
    }

    /// Their memory in bytes, sorted or not.
    pub(super) fn bytes(&self) -> u64 {
        self.full_bytes + self.last.bytes()
    }

    fn close_segment(&mut self) {
        let mut segment = std::mem::take(&mut self.last);
        segment.names.shrink_to_fit();
        segment.packed.shrink_to_fit();
        self.full_bytes += segment.bytes();
        self.full.push(segment);
    }

    /// Sorts directories first, then by name; numbers in names are compared by value. The entries
    /// keep `held`, the reservation of their memory.
    pub(super) fn sorted(mut self, held: Option<Held>) -> Entries {
        self.close_segment();
        let Self { full: segments, totals, .. } = self;
        let place = |index: u32| place_of(&segments, index as usize);
        let count = segments.iter().map(|segment| segment.packed.len()).sum::<usize>();
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.sort_unstable_by(|a, b| {
            let ((a_is, a_name), (b_is, b_name)) = (sort_key(place(*a)), sort_key(place(*b)));
            b_is.cmp(&a_is).then_with(|| natural_order(a_name, b_name))
        });
        Entries { segments, order, totals, _held: held }
    }
}

impl Segment {
    /// Size in memory in bytes, including the sort index.
    fn bytes(&self) -> u64 {
        let each = size_of::<Packed>() + size_of::<u32>();
        (size_of::<Self>() + self.names.capacity() + self.packed.capacity() * each) as u64
    }
}

type EntryPlace<'a> = Option<(&'a Segment, &'a Packed)>;

fn place_of(segments: &[Segment], index: usize) -> EntryPlace<'_> {
    let segment = segments.get(index / SEGMENT_ENTRIES)?;
    Some((segment, segment.packed.get(index % SEGMENT_ENTRIES)?))
}

fn sort_key(place: EntryPlace<'_>) -> (bool, &[u8]) {
    place.map_or((false, &[]), |(segment, packed)| {
        (packed.is_directory, name_of(&segment.names, packed))
    })
}

/// Orders names as people count: `9.txt` before `10.txt`. Digits are compared as one number,
/// everything else byte by byte; of equal numbers the one with fewer leading zeros comes first.
fn natural_order(a: &[u8], b: &[u8]) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let same = common_prefix(left, right);
        let (ends, other_ends) = (digits_of(&left[same..]), digits_of(&right[same..]));
        if ends == other_ends && ends > 0 {
            // Two numbers of the same length.
            return left[same].cmp(&right[same]);
        }
        // If the common prefix ends in digits, compares the numbers from their first digit.
        let digits = left[..same].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        (left, right) = (&left[same - digits..], &right[same - digits..]);
        let is_number = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
        if !is_number(left) || !is_number(right) {
            return left.cmp(right).then_with(|| a.len().cmp(&b.len())).then_with(|| a.cmp(b));
        }
        let (number, after) = split_number(left);
        let (other, other_after) = split_number(right);
        let order = number.len().cmp(&other.len()).then_with(|| number.cmp(other));
        if order.is_ne() {
            return order;
        }
        (left, right) = (after, other_after);
    }
}

/// Number of digits at the start of a text.
fn digits_of(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Length of the common prefix. Names in a long directory often differ only at their ends.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const STEP: usize = 16;
    let is_same = |at: usize| {
        let part = a.get(at..at + STEP);
        part.is_some() && part == b.get(at..at + STEP)
    };
    let mut same = 0;
    while is_same(same) {
        same += STEP;
    }
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

/// The digits that a text begins with, without leading zeros, and the rest.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    (&digits[zeros..], rest)
}

/// The entries of a directory, sorted, and their totals.
#[derive(Debug)]
pub(super) struct Entries {
    segments: Vec<Segment>,
    order: Vec<u32>,
    pub(super) totals: Totals,
    _held: Option<Held>,
}

impl Entries {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The entry at an index.
    pub(super) fn get(&self, index: usize) -> Option<Item<'_>> {
        let (segment, packed) = place_of(&self.segments, *self.order.get(index)? as usize)?;
        Some(Item {
            name: name_of(&segment.names, packed),
            is_directory: packed.is_directory,
            size: packed.size,
            mtime_s: packed.mtime_s,
        })
    }
}

fn name_of<'a>(names: &'a [u8], packed: &Packed) -> &'a [u8] {
    let start = packed.name_start as usize;
    &names[start..start + usize::from(packed.name_length)]
}

#[cfg(test)]
pub(super) mod tests {
    use lighty_io::file::Meta;

    use super::*;

    /// An entry as the file engine gives it.
    pub(in super::super) fn entry(name: &[u8], kind: FileKind, size: u64) -> DirEntry {
        let meta = Meta {
            kind,
            dev: 1,
            ino: 2,
            links: 1,
            size,
            mtime_s: 784_111_777,
            mtime_ns: 0,
            ctime_s: 784_111_777,
            ctime_ns: 0,
            mode: 0,
            uid: 0,
            gid: 0,
        };
        DirEntry { name: name.to_vec(), meta }
    }

    fn names(entries: &Entries) -> Vec<&[u8]> {
        (0..entries.len()).filter_map(|i| entries.get(i)).map(|i| i.name).collect()
    }

    #[test]
    fn directories_come_first_then_names() {
        let mut gathered = Gathered::default();
        for (name, kind) in [
            ("b.txt", FileKind::File),
            ("z", FileKind::Directory),
            ("a.txt", FileKind::File),
            ("y", FileKind::Directory),
            ("dangling", FileKind::Symlink),
            ("fifo", FileKind::Other),
        ] {
            assert!(gathered.push(&entry(name.as_bytes(), kind, 7)));
        }
        let entries = gathered.sorted(None);
        assert_eq!(names(&entries), [&b"y"[..], b"z", b"a.txt", b"b.txt"]);
        let Totals { directories, files, bytes, .. } = entries.totals;
        assert_eq!((directories, files, bytes), (2, 2, 14));
    }

    #[test]
    fn numbers_in_names_are_ordered_by_value() {
        let sorted = [
            "",
            "0",
            "00",
            "1",
            "01",
            "1a",
            "2",
            "9.txt",
            "10.txt",
            "a",
            "a1",
            "a1b2",
            "a1b10",
            "a2",
            "a10",
            "b",
            "v1.9.0",
            "v1.10.0",
            "x99999999999999999999998",
            "x99999999999999999999999",
            "\u{e4}1",
            "\u{e4}10",
        ];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                let order = natural_order(one.as_bytes(), other.as_bytes());
                assert_eq!(order, at.cmp(&other_at), "{one} {other}");
            }
        }
    }

    #[test]
    fn many_entries_are_joined_and_take_no_more_than_they_need() {
        let name = |number: usize| format!("{}{number:07}", "x".repeat(number % 200));
        for count in [0, 1, SEGMENT_ENTRIES, SEGMENT_ENTRIES + 1, 5 * SEGMENT_ENTRIES] {
            let mut gathered = Gathered::default();
            for number in 0..count {
                assert!(gathered.push(&entry(name(number).as_bytes(), FileKind::File, 1)));
            }
            let mut expected: Vec<_> = (0..count).map(name).collect();
            expected.sort();
            gathered.close_segment();
            let taken = gathered.bytes();
            let entries = gathered.sorted(None);
            assert!(names(&entries).into_iter().eq(expected.iter().map(String::as_bytes)));
            let (names, entries) = (expected.concat().len(), count as u64);
            let segments = entries / SEGMENT_ENTRIES as u64 + 1;
            let least = names as u64 + 28 * entries;
            assert!((least..=least + 64 * (segments + 1)).contains(&taken), "{taken} of {least}");
        }
        assert_eq!(size_of::<Packed>(), 24);
    }

    #[test]
    fn the_limit_holds_and_is_named() {
        let mut gathered = Gathered::default();
        for name in ["a", "b", "c"] {
            assert!(gathered.push_within(&entry(name.as_bytes(), FileKind::File, 1), 3));
        }
        assert!(!gathered.totals.truncated);
        assert!(!gathered.push_within(&entry(b"d", FileKind::File, 1), 3));
        let entries = gathered.sorted(None);
        assert!(entries.totals.truncated);
        assert_eq!(entries.len(), 3);
    }

    #[test]
    fn arenas_stay_addressable() {
        assert!(SEGMENT_ENTRIES * 255 < u32::MAX as usize);
        assert!(ENTRIES_MAX < u32::MAX as usize);
    }
}
