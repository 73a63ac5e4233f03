//! Names of staged entries: unfinished, or waiting for removal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::super::meta::FileKind;
use super::super::resolve::{self, retry};
use super::remove::remove_at;
use super::{Cancel, DIRECTORY_MODE, Tree, look_at, open_dir};
use crate::entropy::random_bytes;

/// Prefix of staged names. Requests for them are refused.
pub const STAGING_PREFIX: &[u8] = b".lighty-dav-";

/// Number of random names to try.
const NAMES_MAX: usize = 16;

/// True if a name is a staged one.
pub fn is_staging(name: &[u8]) -> bool {
    name.starts_with(STAGING_PREFIX)
}

/// A random staging name.
pub(super) fn name() -> io::Result<Vec<u8>> {
    let number = u64::from_ne_bytes(random_bytes()?);
    let mut name = STAGING_PREFIX.to_vec();
    name.extend_from_slice(format!("{number:016x}").as_bytes());
    Ok(name)
}

/// Calls a function with a new staging name, and again with another one while the name is taken.
pub(super) fn with_name<T>(
    mut make: impl FnMut(&[u8]) -> io::Result<T>,
) -> io::Result<(Vec<u8>, T)> {
    for _ in 0..NAMES_MAX {
        let name = name()?;
        match make(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(made) => return Ok((name, made)),
        }
    }
    Err(Errno::EXIST.into())
}

/// Locks a staged entry until the descriptor is closed. On file systems without locks,
/// [`Tree::sweep`] removes nothing either.
pub(super) fn claim(fd: BorrowedFd<'_>) {
    let _ = rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive);
}

/// Creates and locks a directory with a staging name. Returns the name too.
pub(super) fn make_dir(parent: BorrowedFd<'_>) -> io::Result<(Vec<u8>, OwnedFd)> {
    let (name, ()) = with_name(|name| retry(|| rustix::fs::mkdirat(parent, name, DIRECTORY_MODE)))?;
    let dir = open_dir(parent, &name)?;
    claim(dir.as_fd());
    Ok((name, dir))
}

impl Tree {
    /// Removes staged entries that killed processes left in a directory. Locked ones are in use and
    /// stay. After an error the entry stays, too.
    pub fn sweep(&self, path: &[u8], names: &[Vec<u8>]) {
        let Ok((dir, _)) =
            resolve::find_parent(self.dir.as_fd(), &[path, b"/."].concat(), self.how)
        else {
            return;
        };
        for name in names.iter().filter(|name| is_staging(name)) {
            let _ = sweep_one(dir.as_fd(), name);
        }
    }
}

fn sweep_one(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let kind = look_at(dir, name)?.kind;
    if !matches!(kind, FileKind::File | FileKind::Directory) {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let found = retry(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
    rustix::fs::flock(&found, FlockOperation::NonBlockingLockExclusive)?;
    remove_at(dir, name, &Cancel::default(), &mut Vec::new());
    Ok(())
}
