//! The names of a directory in little memory: one arena for the names, 32 bytes for the rest.

use lighty_io::file::{DirEntry, FileKind};

/// Entries of one listing at most. A million take about 60 MB; a page of that length is of no use
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

#[derive(Clone, Copy, Debug)]
struct Packed {
    name_start: u32,
    name_length: u8,
    is_directory: bool,
    size: u64,
    mtime_s: i64,
}

/// The entries of a directory, and their totals.
#[derive(Debug, Default)]
pub(super) struct Entries {
    names: Vec<u8>,
    packed: Vec<Packed>,
    pub(super) directories: usize,
    pub(super) files: usize,
    /// Bytes of all files together.
    pub(super) bytes: u64,
    /// Whether there were more than fit.
    pub(super) truncated: bool,
}

impl Entries {
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
        let (Ok(name_length), Ok(name_start)) =
            (u8::try_from(entry.name.len()), u32::try_from(self.names.len()))
        else {
            return true;
        };
        if self.packed.len() >= entries_max {
            self.truncated = true;
            return false;
        }
        let (size, mtime_s) = (entry.meta.size, entry.meta.mtime_s);
        self.names.extend_from_slice(&entry.name);
        self.packed.push(Packed { name_start, name_length, is_directory, size, mtime_s });
        if is_directory {
            self.directories += 1;
        } else {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(size);
        }
        true
    }

    /// Directories first, then by the bytes of the name.
    pub(super) fn sort(&mut self) {
        let names = std::mem::take(&mut self.names);
        let name = |packed: &Packed| name_of(&names, packed);
        self.packed.sort_unstable_by(|a, b| {
            b.is_directory.cmp(&a.is_directory).then_with(|| name(a).cmp(name(b)))
        });
        self.names = names;
    }

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

    #[test]
    fn directories_come_first_then_names() {
        let mut entries = Entries::default();
        for (name, kind) in [
            ("b.txt", FileKind::File),
            ("z", FileKind::Directory),
            ("a.txt", FileKind::File),
            ("y", FileKind::Directory),
            ("dangling", FileKind::Symlink),
            ("fifo", FileKind::Other),
        ] {
            assert!(entries.push(&entry(name.as_bytes(), kind, 7)));
        }
        entries.sort();
        let names: Vec<_> =
            (0..entries.len()).filter_map(|i| entries.get(i)).map(|i| i.name).collect();
        assert_eq!(names, [&b"y"[..], b"z", b"a.txt", b"b.txt"]);
        assert_eq!((entries.directories, entries.files, entries.bytes), (2, 2, 14));
    }

    #[test]
    fn the_limit_holds_and_is_told() {
        let mut entries = Entries::default();
        for name in ["a", "b", "c"] {
            assert!(entries.push_within(&entry(name.as_bytes(), FileKind::File, 1), 3));
        }
        assert!(!entries.truncated);
        assert!(!entries.push_within(&entry(b"d", FileKind::File, 1), 3));
        assert!(entries.truncated);
        assert_eq!(entries.len(), 3);
    }

    #[test]
    fn arenas_stay_addressable() {
        assert!(ENTRIES_MAX * 255 < u32::MAX as usize);
    }
}
