//! Changes beneath a directory: creating, removing, copying, moving, uploading.
//!
//! Every function blocks on the disk and is meant for pool threads. Paths are resolved beneath the
//! held directory and never leave it. The last name of a path is never followed, so the change
//! applies to the name itself.
//!
//! Changes in several steps are built under a temporary name beside the target ([`STAGING_PREFIX`])
//! and renamed when complete. A writer holds a lock on the staged file that ends with the process:
//! an unlocked one was left by a crash, see [`Tree::sweep`].
//!
//! Reading order: this file (single entries), `whereabouts` (the location of a path), `upload` (a
//! file from a client), `remove` and `copy` (whole trees), `place` (moving, and renaming staged
//! files to their targets) with `apart`, `staging` (their names), `survey` (listing a whole tree).

mod apart;
mod copy;
mod place;
mod remove;
mod staging;
mod survey;
#[cfg(test)]
mod tests;
mod upload;
mod whereabouts;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::meta::{Meta, STATX_MASK};
use super::resolve::{self, How};
use resolve::retry;

pub use place::{Reach, Replace};
pub use staging::{STAGING_PREFIX, is_staging};
pub use survey::{Extent, Member, Survey};
pub use upload::{Expected, Upload};
pub use whereabouts::{CanonicalPath, canonical, canonical_through};

/// Maximum nesting of directories copied or removed in one go; each level holds descriptors.
pub const TREE_DEPTH_MAX: usize = 64;

/// Failures within one tree before the rest is abandoned.
pub const FAILURES_MAX: usize = 256;

/// Mode of a new directory, before the umask.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);
/// Mode of a new file, before the umask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);

/// A directory beneath which changes are made. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Tree {
    dir: Arc<OwnedFd>,
    /// The path it was opened by.
    path: Arc<Path>,
    how: How,
}

/// A failure of one entry in a tree.
#[derive(Debug)]
pub struct EntryFailure {
    /// Its path beneath the tree that was copied or removed; empty for the tree itself.
    pub path: Vec<u8>,
    /// The system's error.
    pub error: io::Error,
}

/// Cancels work on a tree from another thread. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Stops the work at its next step.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// `Interrupted` once it was cancelled.
    fn check(&self) -> io::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(io::Error::new(io::ErrorKind::Interrupted, "nobody waits for it")),
        }
    }
}

impl Tree {
    pub(super) fn new(dir: OwnedFd, path: &Path, how: How) -> Self {
        Self { dir: Arc::new(dir), path: path.into(), how }
    }

    /// The entry with this name; a link is reported as itself. Empty: the directory itself.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn look(&self, path: &[u8]) -> io::Result<Meta> {
        if path.is_empty() {
            return resolve::meta_of(self.dir.as_fd(), false);
        }
        let (parent, name) = self.parent(path)?;
        look_at(parent.as_fd(), name)
    }

    /// The target of a name, following links as far as the tree allows.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn look_through(&self, path: &[u8]) -> io::Result<Meta> {
        resolve::stat(self.dir.as_fd(), path, self.how)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// Errors of the system: `AlreadyExists`, `NotFound` if the parent is missing.
    pub fn make_dir(&self, path: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        retry(|| rustix::fs::mkdirat(&parent, name, DIRECTORY_MODE))?;
        sync_dir(parent.as_fd())
    }

    /// Creates a new empty file.
    ///
    /// # Errors
    /// Errors of the system: `AlreadyExists`, `NotFound` if the parent is missing.
    pub fn make_file(&self, path: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        retry(|| rustix::fs::openat(&parent, name, flags, FILE_MODE))?;
        sync_dir(parent.as_fd())
    }

    /// The parent directory of a name and its last component. The root directory has no parent and
    /// cannot be changed.
    fn parent<'a>(&self, path: &'a [u8]) -> io::Result<(OwnedFd, &'a [u8])> {
        let (parent, name) = resolve::find_parent(self.dir.as_fd(), path, self.how)?;
        if name.is_empty() || name == b"." || name == b".." || path.contains(&0) {
            return Err(Errno::BUSY.into());
        }
        Ok((parent, name))
    }
}

/// The metadata of a path's target, links followed.
///
/// # Errors
/// Errors of the system.
pub fn meta_of_path(path: &Path) -> io::Result<Meta> {
    let stat = retry(|| rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), STATX_MASK))?;
    Ok(Meta::from_statx(&stat))
}

/// A pinned file: while this is held, its inode number cannot be reused, whatever happens to its
/// name.
#[derive(Debug)]
pub struct PinnedFile {
    /// Its metadata when it was pinned.
    pub meta: Meta,
    /// Closing an `O_PATH` descriptor, unlike any other, releases no POSIX locks. `None` if no
    /// descriptor was available: the file is known, but may be mistaken for another.
    _fd: Option<OwnedFd>,
}

impl PinnedFile {
    /// Pins a path's target, links followed.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn at(path: &Path) -> io::Result<Self> {
        let open = || rustix::fs::openat(rustix::fs::CWD, path, resolve::LOOK_FLAGS, Mode::empty());
        let Ok(fd) = retry(open) else {
            return Ok(Self { meta: meta_of_path(path)?, _fd: None });
        };
        let stat = retry(|| rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, STATX_MASK))?;
        Ok(Self { meta: Meta::from_statx(&stat), _fd: Some(fd) })
    }
}

/// Removes a file by its path.
///
/// # Errors
/// Errors of the system.
pub fn remove_path(path: &Path) -> io::Result<()> {
    retry(|| rustix::fs::unlinkat(rustix::fs::CWD, path, AtFlags::empty()))
}

/// True if the path exists, links not followed.
pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn look_at(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Meta> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let stat = retry(|| rustix::fs::statx(dir, name, flags, STATX_MASK))?;
    Ok(Meta::from_statx(&stat))
}

fn open_dir(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry(|| rustix::fs::openat(dir, name, flags, Mode::empty()))
}

/// Makes names created or renamed in a directory survive a power failure.
fn sync_dir(dir: BorrowedFd<'_>) -> io::Result<()> {
    match open_dir(dir, b".") {
        Ok(dir) => match retry(|| rustix::fs::fsync(&dir)) {
            // fsync(2): the file system does not support it.
            Err(error) if is_one_of(&error, &[Errno::INVAL, Errno::ROFS]) => Ok(()),
            done => done,
        },
        // A directory that is writable but not readable.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_one_of(error: &io::Error, list: &[Errno]) -> bool {
    list.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// True if continuing is pointless because the rest of the tree would fail in the same way.
fn ends_all(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
        || is_one_of(error, &[Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::MFILE, Errno::NFILE])
}
