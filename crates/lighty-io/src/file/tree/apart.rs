//! Checks that source and target of a copy or move do not contain each other. Links and mounts give
//! one directory several paths, so comparing paths is not enough.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::super::meta::{FileKind, Meta};
use super::super::resolve::{self, LOOK_FLAGS, retry};
use super::look_at;

/// Checks that two names denote different directories, neither of which contains the other.
///
/// # Errors
/// `ResourceBusy` otherwise; errors of the system.
pub(super) fn check_apart(
    (parent, name): (BorrowedFd<'_>, &[u8]),
    (new_parent, new_name): (BorrowedFd<'_>, &[u8]),
) -> io::Result<()> {
    let (above, new_above) =
        (resolve::meta_of(parent, false)?, resolve::meta_of(new_parent, false)?);
    let same = name == new_name && above.same_file(&new_above);
    if same || lies_in(new_parent, (parent, name))? || lies_in(parent, (new_parent, new_name))? {
        return Err(Errno::BUSY.into());
    }
    Ok(())
}

/// True if a directory has this name, or lies beneath it.
fn lies_in(dir: BorrowedFd<'_>, (parent, name): (BorrowedFd<'_>, &[u8])) -> io::Result<bool> {
    match look_at(parent, name) {
        Ok(meta) if meta.kind == FileKind::Directory => is_beneath(dir, &meta),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Walks up from a directory, looking for another one.
pub(super) fn is_beneath(dir: BorrowedFd<'_>, other: &Meta) -> io::Result<bool> {
    let mut dir: OwnedFd = dir.try_clone_to_owned()?;
    let mut here = resolve::meta_of(dir.as_fd(), false)?;
    loop {
        if here.same_file(other) {
            return Ok(true);
        }
        let flags = LOOK_FLAGS | OFlags::DIRECTORY;
        dir = retry(|| rustix::fs::openat(&dir, c"..", flags, Mode::empty()))?;
        let above = resolve::meta_of(dir.as_fd(), false)?;
        if above.same_file(&here) {
            // The root of the file system.
            return Ok(false);
        }
        here = above;
    }
}
