//! Removing a tree, from its leaves up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir};
use rustix::io::Errno;

use super::super::meta::FileKind;
use super::super::resolve::retry;
use super::{
    Cancel, EntryFailure, FAILURES_MAX, TREE_DEPTH_MAX, Tree, ends_all, look_at, open_dir,
};

/// A directory whose entries are being removed.
struct RemoveLevel {
    dir: OwnedFd,
    entries: Dir,
    /// Length of the directory's path, without its entries.
    path_len: usize,
    name: Vec<u8>,
    /// An entry could not be removed, so the directory stays too.
    stays: bool,
}

impl Tree {
    /// Removes an entry and everything beneath it. Links are removed, not followed. Entries that
    /// cannot be removed are reported, and stay with their parent directories.
    ///
    /// # Errors
    /// The name cannot be looked up.
    pub fn remove_all(&self, path: &[u8], cancel: &Cancel) -> io::Result<Vec<EntryFailure>> {
        let (parent, name) = self.parent(path)?;
        look_at(parent.as_fd(), name)?;
        let mut failures = Vec::new();
        remove_at(parent.as_fd(), name, cancel, &mut failures);
        Ok(failures)
    }
}

/// Removes an entry of a directory and everything beneath it.
pub(super) fn remove_at(
    parent: BorrowedFd<'_>,
    name: &[u8],
    cancel: &Cancel,
    failures: &mut Vec<EntryFailure>,
) {
    let mut levels = Vec::new();
    let mut path = Vec::new();
    if let Err(error) = begin(parent, name, &path, &mut levels) {
        return failures.push(EntryFailure { path, error });
    }
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path_len);
        let done = cancel.check().and_then(|()| next_name(level));
        match done {
            Ok(Some(entry)) => {
                let dir = level.dir.as_fd().try_clone_to_owned();
                push_name(&mut path, &entry);
                let begun = dir.and_then(|dir| begin(dir.as_fd(), &entry, &path, &mut levels));
                note(begun, &path, &mut levels, failures);
            }
            Ok(None) => {
                let ended = levels.pop().map_or(Ok(()), |ended| end(ended, &levels, parent));
                note(ended, &path, &mut levels, failures);
            }
            Err(error) => note(Err(error), &path, &mut levels, failures),
        }
        let hopeless = failures.last().is_some_and(|failure| ends_all(&failure.error));
        if hopeless || failures.len() >= FAILURES_MAX {
            return;
        }
    }
}

/// Removes a leaf, or descends into a directory.
fn begin(
    dir: BorrowedFd<'_>,
    name: &[u8],
    path: &[u8],
    levels: &mut Vec<RemoveLevel>,
) -> io::Result<()> {
    if look_at(dir, name)?.kind != FileKind::Directory {
        return retry(|| rustix::fs::unlinkat(dir, name, AtFlags::empty()));
    }
    if levels.len() >= TREE_DEPTH_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let dir = open_dir(dir, name)?;
    let entries = Dir::read_from(&dir)?;
    levels.push(RemoveLevel {
        dir,
        entries,
        path_len: path.len(),
        name: name.to_vec(),
        stays: false,
    });
    Ok(())
}

fn next_name(level: &mut RemoveLevel) -> io::Result<Option<Vec<u8>>> {
    while let Some(entry) = level.entries.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            return Ok(Some(name.to_vec()));
        }
    }
    Ok(None)
}

/// Removes a directory after its entries, if all of these could be removed.
fn end(level: RemoveLevel, above: &[RemoveLevel], parent: BorrowedFd<'_>) -> io::Result<()> {
    if level.stays {
        // The cause has been reported.
        return Err(Errno::NOTEMPTY.into());
    }
    let dir = above.last().map_or(parent, |above| above.dir.as_fd());
    retry(|| rustix::fs::unlinkat(dir, &*level.name, AtFlags::REMOVEDIR))
}

/// Records a failure, except for a directory that stays only because of its entries.
fn note(
    done: io::Result<()>,
    path: &[u8],
    levels: &mut [RemoveLevel],
    failures: &mut Vec<EntryFailure>,
) {
    let Err(error) = done else { return };
    if error.kind() == io::ErrorKind::NotFound {
        // Another process or thread removed it.
        return;
    }
    let follows = error.raw_os_error() == Some(Errno::NOTEMPTY.raw_os_error());
    if let Some(above) = levels.last_mut() {
        above.stays = true;
    }
    if !(follows && failures.iter().any(|known| known.path.starts_with(path))) {
        failures.push(EntryFailure { path: path.to_vec(), error });
    }
}

pub(super) fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
