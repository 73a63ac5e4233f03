//! A file that arrives in pieces and gets its name when it is complete.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::super::meta::{FileKind, Meta};
use super::super::resolve::{self, retry};
use super::copy::{copy_bytes, copy_mode, open_file, write_at};
use super::{Cancel, FILE_MODE, Tree, is_one_of, look_at, staging, sync_dir};
use crate::threads::pool::{Lane, ThreadPool};

/// Precondition for replacing the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// None: any file is replaced.
    Anything,
    /// The target must not exist.
    Nothing,
    /// The target must still be this file with the same content.
    Unchanged(Meta),
}

/// Locks by hash of the name, each held from the last check of a name until the rename.
static TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// An unfinished file. Dropping it leaves nothing behind. A killed process leaves nothing either if
/// the file system supports unnamed files; otherwise see [`Tree::sweep`].
pub struct Upload(Option<UploadParts>);

struct UploadParts {
    parent: OwnedFd,
    /// The final name.
    name: Vec<u8>,
    file: OwnedFd,
    /// Its temporary name, if the file system does not support unnamed files.
    temporary: Option<Vec<u8>>,
    written: u64,
}

impl Upload {
    /// Starts a file with the final name `path`.
    ///
    /// # Errors
    /// Errors of the system: `NotFound` if the parent is missing.
    pub fn begin(tree: &Tree, path: &[u8]) -> io::Result<Self> {
        let (parent, name) = tree.parent(path)?;
        let name = name.to_vec();
        let (file, temporary) = create(&parent)?;
        staging::claim(file.as_fd());
        Ok(Self(Some(UploadParts { parent, name, file, temporary, written: 0 })))
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// Errors of the system, after which the file may have a part of the bytes.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let parts = self.0.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        write_at(parts.file.as_fd(), bytes, parts.written)?;
        parts.written += bytes.len() as u64;
        Ok(())
    }

    /// Copies the first `offset` bytes of the existing file, and continues there. `offset` must not
    /// lie beyond its end.
    ///
    /// # Errors
    /// `InvalidInput` for such an offset; errors of the system.
    pub fn continue_at(&mut self, offset: u64, cancel: &Cancel) -> io::Result<()> {
        let parts = self.0.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let old = match open_file(parts.parent.as_fd(), &parts.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && offset == 0 => return Ok(()),
            old => old?,
        };
        if resolve::meta_of(old.as_fd(), false)?.size < offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        copy_bytes(&old, &parts.file, cancel)?;
        parts.written = offset;
        Ok(())
    }

    /// Copies another file.
    ///
    /// # Errors
    /// Errors of the system; `PermissionDenied` if it is not a regular file.
    pub fn copy_from(&mut self, tree: &Tree, path: &[u8], cancel: &Cancel) -> io::Result<()> {
        let parts = self.0.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let (parent, name) = tree.parent(path)?;
        let from = open_file(parent.as_fd(), name)?;
        // First, because an unfinished file may have a name under which other users find it.
        copy_mode(parts.file.as_fd(), &resolve::meta_of(from.as_fd(), false)?);
        copy_bytes(&from, &parts.file, cancel)
    }

    /// Syncs the complete file to its disk and gives it its name, atomically.
    ///
    /// # Errors
    /// `AlreadyExists` if the precondition does not hold, `IsADirectory`; errors of the system.
    pub fn commit(mut self, expected: Expected) -> io::Result<Meta> {
        let Some(mut parts) = self.0.take() else { return Err(io::ErrorKind::NotConnected.into()) };
        let done = parts.commit(expected);
        if done.is_err() {
            self.0 = Some(parts);
        }
        done
    }

    /// Syncs the complete file to its disk and gives it a temporary name. `place` exchanges that
    /// for the final name, replacing an existing entry.
    ///
    /// # Errors
    /// Errors of the system, after which an existing entry keeps the name.
    pub(super) fn commit_over(
        mut self,
        place: impl FnOnce(BorrowedFd<'_>, &[u8], &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let parts = self.0.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        retry(|| rustix::fs::fsync(&parts.file))?;
        let staged = match parts.temporary.take() {
            Some(staged) => staged,
            None => staging::with_name(|name| parts.link(name))?.0,
        };
        let staged = parts.temporary.insert(staged);
        place(parts.parent.as_fd(), staged, &parts.name)?;
        parts.temporary = None;
        Ok(())
    }
}

impl UploadParts {
    fn commit(&mut self, expected: Expected) -> io::Result<Meta> {
        // Checked before the sync too, so that a doomed commit does not wait for the disk.
        self.check(expected)?;
        retry(|| rustix::fs::fsync(&self.file))?;
        {
            let _turn = self.turn()?;
            let now = self.check(expected)?;
            if let Some(meta) = now.as_ref().filter(|meta| meta.kind == FileKind::File) {
                copy_mode(self.file.as_fd(), meta);
            }
            self.take_name(now.is_some() || expected == Expected::Anything)?;
        }
        sync_dir(self.parent.as_fd())?;
        resolve::meta_of(self.file.as_fd(), false)
    }

    /// The existing entry with the name, if it fulfils the precondition.
    fn check(&self, expected: Expected) -> io::Result<Option<Meta>> {
        let now = match look_at(self.parent.as_fd(), &self.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            now => Some(now?),
        };
        let as_expected = match (&expected, &now) {
            (Expected::Anything, _) | (Expected::Nothing, None) => true,
            (Expected::Unchanged(before), Some(now)) => before.same_content(now),
            _ => false,
        };
        match &now {
            _ if !as_expected => Err(Errno::EXIST.into()),
            Some(meta) if meta.kind == FileKind::Directory => Err(Errno::ISDIR.into()),
            _ => Ok(now),
        }
    }

    /// Locks the name for the check and the rename: of two uploads over the same file, the second
    /// one finds it changed.
    fn turn(&self) -> io::Result<MutexGuard<'static, ()>> {
        let parent = resolve::meta_of(self.parent.as_fd(), false)?;
        let mut hasher = DefaultHasher::new();
        (parent.dev, parent.ino, &self.name).hash(&mut hasher);
        let turn = &TURNS[hasher.finish() as usize % TURNS.len()];
        Ok(turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_name(&mut self, replaces: bool) -> io::Result<()> {
        if self.temporary.is_none() {
            match self.link(&self.name) {
                Err(error) if replaces && error.kind() == io::ErrorKind::AlreadyExists => {
                    let (temporary, ()) = staging::with_name(|name| self.link(name))?;
                    self.temporary = Some(temporary);
                }
                done => return done,
            }
        }
        let Some(temporary) = &self.temporary else { return Ok(()) };
        rename(self.parent.as_fd(), temporary, &self.name, replaces)?;
        self.temporary = None;
        Ok(())
    }

    fn link(&self, name: &[u8]) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = AtFlags::SYMLINK_FOLLOW;
        retry(|| rustix::fs::linkat(rustix::fs::CWD, &*path, &self.parent, name, flags))
    }

    fn remove(self) {
        if let Some(temporary) = &self.temporary {
            let _ = rustix::fs::unlinkat(&self.parent, &**temporary, AtFlags::empty());
        }
    }
}

fn rename(parent: BorrowedFd<'_>, from: &[u8], to: &[u8], replaces: bool) -> io::Result<()> {
    if replaces {
        return retry(|| rustix::fs::renameat(parent, from, parent, to));
    }
    let flags = RenameFlags::NOREPLACE;
    match retry(|| rustix::fs::renameat_with(parent, from, parent, to, flags)) {
        // renameat2(2): the file system lacks the flag. The name was checked a moment ago.
        Err(error) if is_one_of(&error, &[Errno::INVAL, Errno::NOSYS]) => {
            retry(|| rustix::fs::renameat(parent, from, parent, to))
        }
        done => done,
    }
}

/// Creates an unnamed file if possible, else one with a temporary name.
fn create(parent: &OwnedFd) -> io::Result<(OwnedFd, Option<Vec<u8>>)> {
    if can_link() {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match retry(|| rustix::fs::openat(parent, c".", flags, FILE_MODE)) {
            // open(2): errors of file systems and kernels without O_TMPFILE.
            Err(error) if is_one_of(&error, &[Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL]) => {}
            done => return Ok((done?, None)),
        }
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let open = |name: &[u8]| retry(|| rustix::fs::openat(parent, name, flags, FILE_MODE));
    let (name, file) = staging::with_name(open)?;
    Ok((file, Some(name)))
}

/// Linking an unnamed file requires /proc, which a chroot may lack.
fn can_link() -> bool {
    static ANSWER: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ANSWER.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::open("/proc/self/fd", flags, Mode::empty()).is_ok()
    })
}

impl Drop for Upload {
    /// Discards the file in the pool, without waiting for the disk.
    fn drop(&mut self) {
        if let Some(parts) = self.0.take() {
            // If no thread is available, the job is dropped here, and the file with it.
            let _ = ThreadPool::global().spawn(Lane::Write, move || parts.remove());
        }
    }
}
