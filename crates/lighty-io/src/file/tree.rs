//! Changing what is beneath a directory: making, removing, copying, moving, uploading.
//!
//! Every function waits for the disk: they are for threads of the pool. Paths are resolved beneath
//! the held directory and never leave it; the last name of a path is never followed, so what is
//! changed is what has the name.
//!
//! What takes more than one step is made under a name of its own beside the place where it belongs
//! ([`STAGING_PREFIX`]), and gets its name when it is whole. Whoever works on such a thing holds a
//! lock on it that ends with the process: what nobody holds was left by a crash, see
//! [`Tree::sweep`].
//!
//! Reading order: this file (one thing), `whereabouts` (which place a path leads to), `upload` (a file from a client), `remove` and `copy` (whole
//! trees), `place` (moving, and putting what was made where it belongs) with `apart`, `staging` (its
//! names), `survey` (who has to see all of it).

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

/// Directories within directories that are copied or removed in one go: each level holds
/// descriptors.
pub const TREE_DEPTH_MAX: usize = 64;

/// Things that may go wrong within one tree before the rest is given up.
pub const TROUBLES_MAX: usize = 256;

/// Mode of a new directory, before the umask.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);
/// Mode of a new file, before the umask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);

/// A directory beneath which things are changed. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Tree {
    dir: Arc<OwnedFd>,
    /// The path that it was opened by.
    path: Arc<Path>,
    how: How,
}

/// What went wrong with one thing of a tree.
#[derive(Debug)]
pub struct Trouble {
    /// Its path beneath what was to be copied or removed; empty for that itself.
    pub path: Vec<u8>,
    /// What the system said.
    pub error: io::Error,
}

/// Ends work on a tree before it is done, from another thread. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends the work at its next step.
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

    /// What has this name; a link is reported as itself. Empty: the directory itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn look(&self, path: &[u8]) -> io::Result<Meta> {
        if path.is_empty() {
            return resolve::meta_of(self.dir.as_fd(), false);
        }
        let (parent, name) = self.parent(path)?;
        look_at(parent.as_fd(), name)
    }

    /// What a name leads to, links followed as far as the tree allows.
    ///
    /// # Errors
    /// What the system says.
    pub fn look_through(&self, path: &[u8]) -> io::Result<Meta> {
        resolve::stat(self.dir.as_fd(), path, self.how)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// What the system says: `AlreadyExists`, `NotFound` where the parent is missing.
    pub fn make_dir(&self, path: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        retry(|| rustix::fs::mkdirat(&parent, name, DIRECTORY_MODE))?;
        sync_dir(parent.as_fd())
    }

    /// Makes an empty file that was not there.
    ///
    /// # Errors
    /// What the system says: `AlreadyExists`, `NotFound` where the parent is missing.
    pub fn make_file(&self, path: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        retry(|| rustix::fs::openat(&parent, name, flags, FILE_MODE))?;
        sync_dir(parent.as_fd())
    }

    /// The directory of a name and the name there. The directory itself has none: it stays.
    fn parent<'a>(&self, path: &'a [u8]) -> io::Result<(OwnedFd, &'a [u8])> {
        let (parent, name) = resolve::find_parent(self.dir.as_fd(), path, self.how)?;
        if name.is_empty() || name == b"." || name == b".." || path.contains(&0) {
            return Err(Errno::BUSY.into());
        }
        Ok((parent, name))
    }
}

/// What a path leads to, links followed.
///
/// # Errors
/// What the system says.
pub fn meta_of_path(path: &Path) -> io::Result<Meta> {
    let stat = retry(|| rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), STATX_MASK))?;
    Ok(Meta::from_statx(&stat))
}

/// A file that stays itself: while this is held, no other gets its number, whatever becomes of its
/// name.
#[derive(Debug)]
pub struct Pinned {
    /// What it was when it was pinned.
    pub meta: Meta,
    /// Closing an `O_PATH` descriptor, unlike any other, takes nobody's POSIX locks away. None
    /// where there was no descriptor to be had: the file is known, and may be mistaken.
    _fd: Option<OwnedFd>,
}

impl Pinned {
    /// Pins what a path leads to, links followed.
    ///
    /// # Errors
    /// What the system says.
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
/// What the system says.
pub fn remove_path(path: &Path) -> io::Result<()> {
    retry(|| rustix::fs::unlinkat(rustix::fs::CWD, path, AtFlags::empty()))
}

/// Whether anything has this path, links not followed.
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

/// What was named or renamed in a directory is found there after the machine lost its power.
fn sync_dir(dir: BorrowedFd<'_>) -> io::Result<()> {
    match open_dir(dir, b".") {
        Ok(dir) => match retry(|| rustix::fs::fsync(&dir)) {
            // fsync(2): file systems that cannot say so.
            Err(error) if is_one_of(&error, &[Errno::INVAL, Errno::ROFS]) => Ok(()),
            done => done,
        },
        // A directory that may be written and not read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_one_of(error: &io::Error, list: &[Errno]) -> bool {
    list.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Whether it is no use to go on: the rest of a tree would fail alike.
fn ends_all(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
        || is_one_of(error, &[Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::MFILE, Errno::NFILE])
}
