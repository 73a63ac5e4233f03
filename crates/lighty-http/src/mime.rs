//! Media types by file name.
//!
//! `mimetype.assign` differs between lighttpd's versions: 1.5 takes the first entry, in file order,
//! that the name ends with; 1.4 looks the longest dotted suffix up in a hash. Here dotted keys
//! match by the longest suffix, case-insensitively (so `.tar.gz` wins over `.gz` in any order),
//! then the other keys (`README`, `_conf`) by file order, then `""`, the catch-all. A sensible file
//! for 1.5 gives the same results, because with `.gz` before `.tar.gz` the latter has no effect
//! there. Of two keys that differ only in case the first wins.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::mime_table::BUILTIN;

/// The type of a file of unknown type.
pub const DEFAULT_TYPE: &str = "application/octet-stream";

/// The longest dotted suffix that is looked up; only contrived file names have longer ones.
pub const SUFFIX_BYTES_MAX: usize = 32;

/// The built-in type of a file by the longest dotted suffix of its name, in any case.
#[must_use]
pub fn builtin(path: &[u8]) -> Option<&'static str> {
    by_dotted_suffix(path, |suffix| {
        let extension = core::str::from_utf8(&suffix[1..]).ok()?;
        let index = BUILTIN.binary_search_by_key(&extension, |entry| entry.0).ok()?;
        Some(BUILTIN[index].1)
    })
}

/// A compiled `mimetype.assign`.
#[derive(Clone, Debug, Default)]
pub struct MimeAssign {
    /// Keys of the form `.x`, lower-case, sorted.
    dotted: Vec<(Box<[u8]>, Box<str>)>,
    /// All other keys, lower-case, in file order.
    others: Vec<(Box<[u8]>, Box<str>)>,
    catch_all: Option<Box<str>>,
}

impl MimeAssign {
    /// Compiles keys and types in the order in which the configuration gives them.
    pub fn new<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut assign = Self::default();
        for (key, media_type) in entries {
            let lower = key.to_ascii_lowercase().into_bytes().into_boxed_slice();
            match lower.first() {
                None => _ = assign.catch_all.get_or_insert_with(|| media_type.into()),
                Some(b'.') if lower.len() <= SUFFIX_BYTES_MAX => {
                    assign.dotted.push((lower, media_type.into()));
                }
                Some(_) => assign.others.push((lower, media_type.into())),
            }
        }
        // The sort is stable: of equal keys the first stays first, and survives.
        assign.dotted.sort_by(|a, b| a.0.cmp(&b.0));
        assign.dotted.dedup_by(|later, kept| later.0 == kept.0);
        assign
    }

    /// The type of a file; `None` when no key matches and there is no catch-all, or the type is
    /// empty.
    #[must_use]
    pub fn lookup(&self, path: &[u8]) -> Option<&str> {
        let found = self.by_dotted(path).or_else(|| self.by_other(path));
        found.or(self.catch_all.as_deref()).filter(|media_type| !media_type.is_empty())
    }

    /// True if nothing was assigned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dotted.is_empty() && self.others.is_empty() && self.catch_all.is_none()
    }

    fn by_dotted(&self, path: &[u8]) -> Option<&str> {
        by_dotted_suffix(path, |suffix| {
            let index = self.dotted.binary_search_by(|entry| (*entry.0).cmp(suffix)).ok()?;
            Some(&*self.dotted[index].1)
        })
    }

    fn by_other(&self, path: &[u8]) -> Option<&str> {
        let found = self.others.iter().find(|(key, _)| ends_with_in_any_case(path, key));
        found.map(|(_, media_type)| &**media_type)
    }
}

/// Tries each dotted suffix of the last path segment, in lower case, the longest first.
fn by_dotted_suffix<'a>(path: &[u8], find: impl Fn(&[u8]) -> Option<&'a str>) -> Option<&'a str> {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    let name = &path[slash.map_or(0, |at| at + 1)..];
    let tail = &name[name.len().saturating_sub(SUFFIX_BYTES_MAX)..];
    let mut buf = [0; SUFFIX_BYTES_MAX];
    let lower = &mut buf[..tail.len()];
    lower.copy_from_slice(tail);
    lower.make_ascii_lowercase();
    let dots = lower.iter().enumerate().filter(|(_, byte)| **byte == b'.');
    dots.map(|(at, _)| &lower[at..]).find_map(find)
}

fn ends_with_in_any_case(path: &[u8], lower_suffix: &[u8]) -> bool {
    path.len() >= lower_suffix.len()
        && path[path.len() - lower_suffix.len()..].eq_ignore_ascii_case(lower_suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_without_repetition() {
        assert!(BUILTIN.is_sorted_by(|a, b| a.0 < b.0));
        for (extension, media_type) in BUILTIN {
            assert!(extension.len() < SUFFIX_BYTES_MAX && !extension.starts_with('.'));
            assert_eq!(*extension, extension.to_ascii_lowercase());
            assert_eq!(media_type.split(';').next().map(|t| t.split('/').count()), Some(2));
        }
    }

    #[test]
    fn builtin_types() {
        for (path, expected) in [
            ("/a/b.html", Some("text/html")),
            ("INDEX.HTML", Some("text/html")),
            ("/x.min.css", Some("text/css")),
            ("/x.png", Some("image/png")),
            ("/x.tar.bz2", Some("application/x-bzip-compressed-tar")),
            ("/x.bz2", Some("application/x-bzip2")),
            ("/a.html/x", None),
            ("/x.nosuch", None),
            ("/x.", None),
            ("/.html", Some("text/html")),
            ("", None),
            ("html", None),
        ] {
            assert_eq!(builtin(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn assigned_types() {
        let assign = MimeAssign::new([
            (".gz", "a/gz"),
            (".tar.gz", "a/tgz"),
            (".GZ", "a/never"),
            ("README", "text/readme"),
            ("me", "text/me"),
            ("", "a/all"),
            ("", "a/never"),
        ]);
        for (path, expected) in [
            ("/x.tar.gz", "a/tgz"),
            ("/X.TAR.GZ", "a/tgz"),
            ("/x.gz", "a/gz"),
            ("/docs/ReadMe", "text/readme"),
            ("/some", "text/me"),
            ("/x.png", "a/all"),
        ] {
            assert_eq!(assign.lookup(path.as_bytes()), Some(expected), "{path}");
        }
        let small = MimeAssign::new([(".a", "x/a")]);
        assert_eq!(small.lookup(b"/b.b"), None);
        assert!(!small.is_empty() && MimeAssign::default().is_empty());
    }

    #[test]
    fn suffixes_up_to_the_limit_are_found() {
        let key = |len: usize| alloc::format!(".{}", "x".repeat(len - 1));
        for len in [SUFFIX_BYTES_MAX, SUFFIX_BYTES_MAX + 1] {
            let key = key(len);
            let assign = MimeAssign::new([(key.as_str(), "a/b")]);
            let path = alloc::format!("/y{key}");
            assert_eq!(assign.lookup(path.as_bytes()), Some("a/b"), "{len}");
            // A key one byte too long is not in the hash table, but still matches as a suffix.
            assert_eq!(assign.dotted.len(), usize::from(len == SUFFIX_BYTES_MAX));
        }
    }
}
