//! A directory for sockets that only this user may connect to.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};

use crate::entropy;

/// Number of random names to try.
const TRIES_MAX: usize = 16;

/// Access bits: owner only.
const MODE: u32 = 0o700;

/// Number of hexadecimal digits after a name's prefix.
const DIGITS: usize = 16;

/// A directory that no other user may enter, so that only this user reaches the sockets in it.
/// Dropping it removes it with its sockets. The next process that creates one removes the
/// directories of killed processes.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
    /// Locked as long as the process lives, however it ends.
    _lock: OwnedFd,
}

/// A directory that was created before it was needed.
static PREPARED: Mutex<Option<PrivateDir>> = Mutex::new(None);

impl PrivateDir {
    /// Creates the directory that the next [`create`](Self::create) returns, for a process that
    /// gives up the right to make it then. Returns its path.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn prepare(prefix: &str) -> io::Result<PathBuf> {
        let prepared = Self::create_in(&std::env::temp_dir(), prefix)?;
        let path = prepared.path.clone();
        *PREPARED.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared);
        Ok(path)
    }

    /// Creates one with an unpredictable name, in the directory for temporary files.
    ///
    /// # Errors
    /// The kernel's error from the last attempt.
    pub fn create(prefix: &str) -> io::Result<Self> {
        match PREPARED.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(prepared) => Ok(prepared),
            None => Self::create_in(&std::env::temp_dir(), prefix),
        }
    }

    fn create_in(parent: &Path, prefix: &str) -> io::Result<Self> {
        remove_abandoned(parent, prefix);
        Self::create_numbered(parent, prefix, || Ok(u64::from_ne_bytes(entropy::random_bytes()?)))
    }

    /// Creates one with the first number of `next` that is free.
    fn create_numbered(
        parent: &Path,
        prefix: &str,
        mut next: impl FnMut() -> io::Result<u64>,
    ) -> io::Result<Self> {
        let mut tries = 0;
        loop {
            let number = next()?;
            let path = parent.join(format!("{prefix}-{number:0DIGITS$x}"));
            tries += 1;
            match DirBuilder::new().mode(MODE).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES_MAX => {
                    continue;
                }
                made => made?,
            }
            // Another process may have taken it for an abandoned one before it was locked.
            match lock(&path) {
                Ok(_lock) => return Ok(Self { path, _lock }),
                Err(error) if tries == TRIES_MAX => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // If it cannot be removed, it stays: it is empty, or holds dead sockets.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks a directory; fails if another process has locked it or it no longer exists.
fn lock(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = open(path, flags, Mode::empty())?;
    flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    let (held, there) = (fstat(&dir)?, fs::symlink_metadata(path)?);
    if (held.st_dev, held.st_ino) != (there.dev(), there.ino()) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(dir)
}

/// Removes directories that killed processes of this user left behind. Removes only sockets and
/// directories, and nothing that a living process has locked.
fn remove_abandoned(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_prefix('-'));
        let is_named = |digits: &str| {
            digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        if digits.is_some_and(is_named) && entry.metadata().is_ok_and(|meta| is_ours(&meta)) {
            remove_unlocked(&entry.path());
        }
    }
}

fn is_ours(meta: &fs::Metadata) -> bool {
    let owner = rustix::process::geteuid().as_raw();
    meta.is_dir() && meta.uid() == owner && meta.permissions().mode() & 0o777 == MODE
}

fn remove_unlocked(path: &Path) {
    let Ok(_lock) = lock(path) else { return };
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".socket") {
            let _ = fs::remove_file(entry.path());
        }
    }
    // Fails if it contains anything else; then it stays.
    let _ = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_may_not_enter_and_nothing_stays() {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = PrivateDir::create_in(parent.path(), "x").expect("a directory");
        let other = PrivateDir::create_in(parent.path(), "x").expect("another");
        assert_ne!(dir.path(), other.path());
        let mode = fs::metadata(dir.path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(dir.path().join("left"), "behind").expect("a file");
        drop((dir, other));
        assert_eq!(fs::read_dir(parent.path()).expect("the parent").count(), 0);
    }

    #[test]
    fn only_directories_of_killed_processes_are_removed() {
        let parent = tempfile::tempdir().expect("a directory");
        let living = PrivateDir::create_in(parent.path(), "x").expect("a directory");
        let make = |name: &str, mode: u32, file: &str| {
            let path = parent.path().join(name);
            DirBuilder::new().mode(mode).create(&path).expect("a directory");
            fs::write(path.join(file), "").expect("a file");
            path
        };
        let left = make("x-00112233445566ff", 0o700, "0.socket");
        let others = [
            make("x-00112233445566fe", 0o700, "precious"),
            make("x-00112233445566fd", 0o755, "0.socket"),
            make("y-00112233445566ff", 0o700, "0.socket"),
            make("x-00112233445566", 0o700, "0.socket"),
            make("x-0011223344556677-", 0o700, "0.socket"),
        ];
        let next = PrivateDir::create_in(parent.path(), "x").expect("a directory");
        assert!(!left.exists());
        assert!(living.path().exists() && next.path().exists());
        for other in others {
            assert_eq!(fs::read_dir(&other).expect("it stays").count(), 1, "{other:?}");
        }
    }

    #[test]
    fn names_are_tried_up_to_a_limit() {
        let parent = tempfile::tempdir().expect("a directory");
        for number in 1..TRIES_MAX {
            fs::create_dir(parent.path().join(format!("x-{number:016x}"))).expect("a directory");
        }
        let create = || {
            let mut number = 0;
            PrivateDir::create_numbered(parent.path(), "x", || {
                number += 1;
                Ok(number)
            })
        };
        let last = create().expect("the last name is free");
        assert!(last.path().ends_with(format!("x-{TRIES_MAX:016x}")));
        let error = create().expect_err("no name is free");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_parent_that_is_missing_is_an_error() {
        assert!(PrivateDir::create_in(Path::new("/nonexistent/x"), "x").is_err());
    }
}
