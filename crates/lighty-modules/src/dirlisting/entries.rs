//! The names of a directory in little memory: one arena for the names, 24 bytes for the rest.

use lighty_http::uri::ParseOpts;
use lighty_io::file::{DirEntry, FileKind};

/// Entries of one listing at most. A million take about 50 MB; a page of that length is of no use
/// to anybody, so what is beyond is left out and the page says so.
pub(super) const ENTRIES_MAX: usize = 1_000_000;

/// What a listing tells of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub(super) name: &'a [u8],
    pub(super) is_directory: bool,
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) mtime_s: i64,
}

/// Whether an entry can be asked for.
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

/// Entries of one segment while the directory is read.
const SEGMENT_ENTRIES: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Packed {
    name_start: u32,
    name_length: u8,
    is_directory: bool,
    size: u64,
    mtime_s: i64,
}

/// What is known of the whole directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) directories: usize,
    pub(super) files: usize,
    /// Bytes of all files together.
    pub(super) bytes: u64,
    /// Whether there were more than fit.
    pub(super) truncated: bool,
}

/// Some entries; where their names begin is counted from the first one's.
#[derive(Debug, Default)]
struct Segment {
    names: Vec<u8>,
    packed: Vec<Packed>,
}

/// Entries as they are read: many small pieces, because one that grew would leave behind twice
/// what it holds.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    full: Vec<Segment>,
    last: Segment,
    totals: Totals,
}

impl Gathered {
    /// Adds an entry. Links that lead nowhere, devices and the like are left out: they cannot be
    /// fetched. `false` when the listing is full.
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
            self.full.push(std::mem::take(&mut self.last));
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

    /// In one piece, directories first, then by the bytes of the name.
    pub(super) fn sorted(self) -> Entries {
        let totals = self.totals;
        let Segment { names, mut packed } = self.joined();
        let name = |packed: &Packed| name_of(&names, packed);
        packed.sort_unstable_by(|a, b| {
            b.is_directory.cmp(&a.is_directory).then_with(|| name(a).cmp(name(b)))
        });
        Entries { names, packed, totals }
    }

    fn joined(self) -> Segment {
        let mut whole = Segment {
            names: Vec::with_capacity(self.segments().map(|segment| segment.names.len()).sum()),
            packed: Vec::with_capacity(self.len()),
        };
        for Segment { names, packed } in self.full.into_iter().chain([self.last]) {
            let base = whole.names.len() as u32;
            whole.names.extend_from_slice(&names);
            let moved = |packed: Packed| Packed { name_start: base + packed.name_start, ..packed };
            whole.packed.extend(packed.into_iter().map(moved));
        }
        whole
    }

    fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.full.iter().chain([&self.last])
    }
}

/// The entries of a directory, sorted, and their totals.
#[derive(Debug)]
pub(super) struct Entries {
    names: Vec<u8>,
    packed: Vec<Packed>,
    pub(super) totals: Totals,
}

impl Entries {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.packed.len()
    }

    /// The entry at an index.
    pub(super) fn get(&self, index: usize) -> Option<Item<'_>> {
        let packed = self.packed.get(index)?;
        Some(Item {
            name: name_of(&self.names, packed),
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
        let entries = gathered.sorted();
        assert_eq!(names(&entries), [&b"y"[..], b"z", b"a.txt", b"b.txt"]);
        let Totals { directories, files, bytes, .. } = entries.totals;
        assert_eq!((directories, files, bytes), (2, 2, 14));
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
            let entries = gathered.sorted();
            assert!(names(&entries).into_iter().eq(expected.iter().map(String::as_bytes)));
            assert_eq!(entries.packed.capacity(), count);
            assert_eq!(entries.names.capacity(), expected.concat().len());
        }
        assert_eq!(size_of::<Packed>(), 24);
    }

    #[test]
    fn the_limit_holds_and_is_told() {
        let mut gathered = Gathered::default();
        for name in ["a", "b", "c"] {
            assert!(gathered.push_within(&entry(name.as_bytes(), FileKind::File, 1), 3));
        }
        assert!(!gathered.totals.truncated);
        assert!(!gathered.push_within(&entry(b"d", FileKind::File, 1), 3));
        let entries = gathered.sorted();
        assert!(entries.totals.truncated);
        assert_eq!(entries.len(), 3);
    }

    #[test]
    fn arenas_stay_addressable() {
        assert!(ENTRIES_MAX * 255 < u32::MAX as usize);
    }
}
