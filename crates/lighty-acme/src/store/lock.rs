//! Locks by which one of all processes that share a store orders a certificate.
//!
//! A lock is a file with its owner's token. The owner touches it every few seconds. A lock that was
//! not touched for long is abandoned, and is taken over. Ages are measured by the clock of the
//! store's file system, so machines need not agree on the time.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lighty_io::clock::deadline::Deadline;
use lighty_io::entropy::random_bytes;

use crate::error::OrderError;

/// Interval at which the owner touches its lock.
pub(crate) const TOUCH_EVERY: Duration = Duration::from_secs(5);

/// Age of an abandoned lock. Many intervals, because a busy machine may stall for a while.
const STALE: Duration = Duration::from_secs(120);

/// A held lock.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    token: String,
    touch: Deadline,
}

impl Lock {
    /// Takes the lock; `None` if another process has it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        Self::take_if_older(path, STALE)
    }

    fn take_if_older(path: &Path, stale: Duration) -> io::Result<Option<Self>> {
        let token = format!("{:032x}", u128::from_ne_bytes(random_bytes()?));
        let touch = Deadline::after(TOUCH_EVERY);
        let lock = Self { path: path.to_owned(), token, touch };
        match lock.put(path) {
            Ok(()) => Ok(Some(lock)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(lock.take_over(stale)?.then_some(lock))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the lock over from a silent owner. Of all processes that try, the one succeeds that
    /// creates the file named after the owner's token, and then still finds that token in the lock.
    fn take_over(&self, stale: Duration) -> io::Result<bool> {
        let Ok(owner) = fs::read_to_string(&self.path) else { return Ok(false) };
        // The token becomes part of a path.
        if !owner.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return self.remove_stale(&self.path, stale).map(|()| false);
        }
        let heir = self.path.with_extension(format!("{owner}.heir"));
        match self.put(&heir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return self.remove_stale(&heir, stale).map(|()| false);
            }
            Err(error) => return Err(error),
        }
        let is_over = self.is_stale(&self.path, &heir, stale)
            && fs::read(&self.path).is_ok_and(|token| token == owner.as_bytes());
        let renamed = if is_over { self.replace() } else { Ok(()) };
        let _ = fs::remove_file(&heir);
        renamed.map(|()| is_over)
    }

    fn replace(&self) -> io::Result<()> {
        let beside = self.path.with_extension(&self.token);
        self.put(&beside)?;
        fs::rename(&beside, &self.path)
    }

    /// True if a file is at least `stale` older than `new`, which was just written.
    fn is_stale(&self, path: &Path, new: &Path, stale: Duration) -> bool {
        let changed = |path: &Path| fs::metadata(path)?.modified();
        let age = changed(new).and_then(|now| {
            let changed: SystemTime = changed(path)?;
            Ok(now.duration_since(changed).unwrap_or_default())
        });
        age.is_ok_and(|age| age >= stale)
    }

    /// Removes a file left by a process that ended during a takeover.
    fn remove_stale(&self, path: &Path, stale: Duration) -> io::Result<()> {
        let now = self.path.with_extension(&self.token);
        self.put(&now)?;
        if self.is_stale(path, &now, stale) {
            let _ = fs::remove_file(path);
        }
        fs::remove_file(&now)
    }

    fn put(&self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.token.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))
    }

    fn is_mine(&self) -> bool {
        fs::read(&self.path).is_ok_and(|token| token == self.token.as_bytes())
    }

    /// Touches the lock, if due.
    pub(crate) fn refresh(&mut self) -> Result<(), OrderError> {
        if !self.touch.is_over() {
            return Ok(());
        }
        if !self.is_mine() {
            return Err(OrderError::LockLost);
        }
        self.touch = Deadline::after(TOUCH_EVERY);
        // Changing a time also works on a full disk.
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        let flags = rustix::fs::AtFlags::empty();
        let _ = rustix::fs::utimensat(rustix::fs::CWD, &self.path, &times, flags);
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_mine() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_has_one_holder_until_it_is_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.test.lock");
        let mut first = Lock::take(&path).expect("no error").expect("it is free");
        assert!(Lock::take(&path).expect("no error").is_none());
        first.refresh().expect("still there");
        drop(first);
        assert!(!path.exists());
        let _second = Lock::take(&path).expect("no error").expect("it is free again");
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1);
    }

    #[test]
    fn holder_that_does_not_refresh_its_lock_loses_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.test.lock");
        let mut silent = Lock::take(&path).expect("no error").expect("it is free");
        let taken = Lock::take_if_older(&path, Duration::ZERO).expect("no error");
        let taken = taken.expect("it was stale");
        silent.touch = Deadline::after(Duration::ZERO);
        assert!(silent.refresh().is_err());
        drop(silent);
        assert!(path.exists(), "what belongs to another stays");
        drop(taken);
        assert!(!path.exists());
    }

    #[test]
    fn stale_lock_is_taken_over_by_one_of_many() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.test.lock");
        fs::write(&path, "dead").expect("written");
        let old = SystemTime::now() - Duration::from_secs(3_600);
        fs::File::options().write(true).open(&path).expect("open").set_modified(old).expect("set");
        let takers: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || Lock::take(&path).expect("no error"))
            })
            .collect();
        let taken: Vec<_> =
            takers.into_iter().filter_map(|taker| taker.join().expect("no panic")).collect();
        assert_eq!(taken.len(), 1);
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1);
    }

    #[test]
    fn a_lock_that_nobody_can_have_written_goes_once_it_is_stale() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.test.lock");
        fs::write(&path, "../x").expect("written");
        assert!(Lock::take(&path).expect("no error").is_none());
        assert!(Lock::take_if_older(&path, Duration::ZERO).expect("no error").is_none());
        assert!(Lock::take(&path).expect("no error").is_some());
    }
}
