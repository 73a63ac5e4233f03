//! Reading a directory, batch by batch, in the pool.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::meta::{FileKind, Meta, STATX_MASK};
use super::resolve::{self, Follow, How};
use super::root::RootDir;
use super::stat_lane;
use crate::threads::pool::{Lane, ThreadPool};

/// Entries in one batch.
pub const READ_DIR_BATCH: usize = 512;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without its directory; any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// Its metadata. Links that may be followed are; a link with a missing or forbidden target is
    /// reported as itself.
    pub meta: Meta,
}

/// A directory being read. `.` and `..` are skipped; the order is that of the file system.
pub struct ReadDir {
    pool: ThreadPool,
    lane: Lane,
    place: Arc<DirectoryLocation>,
    /// `None` at the end, or while a batch is being read.
    dir: Option<Dir>,
}

/// The directory's location, for following links.
struct DirectoryLocation {
    root: OwnedFd,
    rel: Vec<u8>,
    how: How,
}

impl ReadDir {
    pub(super) async fn open(
        pool: ThreadPool,
        root: &RootDir,
        rel: &[u8],
        how: How,
    ) -> io::Result<ReadDir> {
        let lane = stat_lane(root.fs);
        let root = root.as_fd().try_clone_to_owned()?;
        let place = Arc::new(DirectoryLocation { root, rel: rel.to_vec(), how });
        let job_place = place.clone();
        let dir = pool.run_anyhow(lane, move || job_place.open()).await??;
        Ok(ReadDir { pool, lane, place, dir: Some(dir) })
    }

    /// Returns the next entries, at most [`READ_DIR_BATCH`]; `None` at the end. Entries that
    /// disappear meanwhile are skipped.
    ///
    /// # Errors
    /// Errors of the system; the directory then counts as read to the end.
    pub async fn next_batch(&mut self) -> io::Result<Option<Vec<DirEntry>>> {
        let Some(dir) = self.dir.take() else { return Ok(None) };
        let place = self.place.clone();
        let (dir, batch) = self.pool.run_anyhow(self.lane, move || place.read(dir)).await??;
        self.dir = dir;
        Ok(if batch.is_empty() { None } else { Some(batch) })
    }
}

impl DirectoryLocation {
    fn open(&self) -> io::Result<Dir> {
        let found = resolve::open(self.root.as_fd(), &self.rel, self.how)?;
        if found.meta.kind != FileKind::Directory {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        // A new open file description: the position in a directory belongs to it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&found.fd, c".", flags, Mode::empty());
        Ok(Dir::new(resolve::retry(open)?)?)
    }

    /// Reads a batch; returns the directory too if there may be more.
    fn read(&self, mut dir: Dir) -> io::Result<(Option<Dir>, Vec<DirEntry>)> {
        let mut batch = Vec::new();
        while batch.len() < READ_DIR_BATCH {
            let Some(entry) = dir.read() else { return Ok((None, batch)) };
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if let Some(meta) = self.stat(&dir, name, entry.file_type())? {
                batch.push(DirEntry { name: name.to_vec(), meta });
            }
        }
        Ok((Some(dir), batch))
    }

    fn stat(&self, dir: &Dir, name: &[u8], file_type: FileType) -> io::Result<Option<Meta>> {
        let own = || {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let stat = resolve::retry(|| rustix::fs::statx(dir.fd()?, name, flags, STATX_MASK))?;
            Ok(Meta::from_statx(&stat))
        };
        let meta: io::Result<Meta> = own();
        let meta = match meta {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let may_be_link = matches!(file_type, FileType::Symlink | FileType::Unknown);
        if !may_be_link || meta.kind != FileKind::Symlink || self.how.follow == Follow::None {
            return Ok(Some(meta));
        }
        let mut path = self.rel.clone();
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Ok(Some(resolve::stat(self.root.as_fd(), &path, self.how).unwrap_or(meta)))
    }
}
