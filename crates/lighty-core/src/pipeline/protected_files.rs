//! The server's own files in directories that URLs may reach. They are never served under any name,
//! and no request may create a file that would be mistaken for one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use lighty_io::file::Meta;
use lighty_io::file::tree::{PinnedFile, canonical, canonical_through};

/// Error message for a protected file.
pub const REFUSAL: &str = "the server keeps this file for itself";

/// A protected file, and files that may appear beside it.
struct Kept {
    name: PathBuf,
    /// Its paths: with links in the directories resolved, and with the file's own link resolved
    /// too.
    paths: Vec<Vec<u8>>,
    beside: &'static [&'static str],
    /// Pinned, so that a later file cannot be mistaken for one of them: a file system reuses inode
    /// numbers.
    files: Vec<PinnedFile>,
}

/// True if there are protected files. Nearly always there are none.
static ANY: AtomicBool = AtomicBool::new(false);

static ALL: RwLock<Vec<Kept>> = RwLock::new(Vec::new());

/// Protects a file as it is now, and files with its name plus one of the given endings. Call again
/// after the files change. Blocks on the disk.
pub fn keep(name: &Path, beside: &'static [&'static str]) {
    use std::os::unix::ffi::OsStrExt;
    let given = name.as_os_str().as_bytes();
    let mut paths = vec![canonical(given), canonical_through(given)];
    paths.dedup();
    let endings = || std::iter::once("").chain(beside.iter().copied());
    let names = paths.iter().flat_map(|path| endings().map(move |end| with_ending(path, end)));
    let files = names.filter_map(|name| PinnedFile::at(&name).ok()).collect();
    let kept = Kept { name: name.to_owned(), paths, beside, files };
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    all.retain(|kept| kept.name != name);
    all.push(kept);
    ANY.store(true, Ordering::Release);
}

fn with_ending(path: &[u8], ending: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec([path, ending.as_bytes()].concat()))
}

/// True if the file is protected.
pub fn is_protected(meta: &Meta) -> bool {
    any(|kept| kept.files.iter().any(|file| file.meta.same_file(meta)))
}

/// Admits a file that is not protected.
///
/// # Errors
/// `PermissionDenied`, with [`REFUSAL`].
pub fn admit(meta: &Meta) -> io::Result<()> {
    match is_protected(meta) {
        true => Err(io::Error::new(io::ErrorKind::PermissionDenied, REFUSAL)),
        false => Ok(()),
    }
}

/// True if a path, with directory links resolved, is that of a protected file, which need not
/// exist.
pub fn names_protected(path: &[u8]) -> bool {
    any(|Kept { paths, beside, .. }| {
        let mut rests = paths.iter().filter_map(|kept| path.strip_prefix(&**kept));
        rests.any(|rest| rest.is_empty() || beside.iter().any(|end| rest == end.as_bytes()))
    })
}

/// True if a protected file lies beneath a directory, given with its links resolved.
pub fn holds_protected(directory: &[u8]) -> bool {
    let is_below = |path: &[u8]| path.strip_prefix(directory).is_some_and(|p| p.starts_with(b"/"));
    any(|kept| kept.paths.iter().any(|path| is_below(path)))
}

fn any(holds: impl FnMut(&Kept) -> bool) -> bool {
    ANY.load(Ordering::Acquire)
        && ALL.read().unwrap_or_else(PoisonError::into_inner).iter().any(holds)
}

#[cfg(test)]
mod tests {
    use lighty_io::file::tree::meta_of_path;

    use super::*;

    #[test]
    fn new_file_with_the_inode_of_a_removed_one_is_not_protected() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let made = |name: &str| {
            std::fs::write(at(name), "").expect("written");
            meta_of_path(&at(name)).expect("there")
        };
        let (own, beside, other) = (made("own"), made("own-wal"), made("other"));
        keep(&at("own"), &["-wal"]);
        assert!(is_protected(&own) && is_protected(&beside) && !is_protected(&other));
        // A file system reuses the inode number of a deleted file.
        for name in ["own", "own-wal"] {
            std::fs::remove_file(at(name)).expect("removed");
        }
        for number in 0..100 {
            assert!(!is_protected(&made(&number.to_string())), "file {number}");
        }
    }
}
