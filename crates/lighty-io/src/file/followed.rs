//! Files of data that are held in memory, and read again when they change: lists of addresses,
//! databases of places. One thread of the process looks at all of them; no event loop waits.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use super::small_file::{SmallFile, Stamp};
use crate::clock::Clock;
use crate::log_writer;

/// Interval at which the thread looks for changes.
const LOOK: Duration = Duration::from_secs(2);

/// A file that changed within so many seconds may change again under the same stamp.
const SETTLED_S: i64 = 3;

/// Makes the contents of a file's bytes.
pub type ParseContents<T> = fn(Vec<u8>) -> io::Result<T>;

/// Contents of a file.
pub trait FollowedContents: Send + Sync + 'static {
    /// The kind of data, for operators.
    const KIND: &'static str;

    /// The number of its entries.
    fn entries(&self) -> u64;

    /// The contents of a file that does not exist; `None` if it must exist. A file that goes later
    /// leaves its contents.
    fn absent() -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// A file with its contents. Equal paths are one file in the whole process.
pub struct Followed<T> {
    path: PathBuf,
    bytes_max: u64,
    parse: ParseContents<T>,
    contents: RwLock<Option<Arc<T>>>,
    /// Number of the contents; 0 before the first read.
    version: AtomicU64,
    /// The version that was read, once it can no longer change unnoticed. Locked during a read.
    stamp: Mutex<Option<Stamp>>,
    outcome: Mutex<ReadOutcome>,
}

/// The outcome of the latest look at a file.
#[derive(Default)]
struct ReadOutcome {
    /// Wall-clock second at which the contents were read; 0: not yet.
    read_s: i64,
    /// The fault since then.
    fault: Option<String>,
}

/// The state of a file, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedState {
    /// The file's path.
    pub path: PathBuf,
    /// The kind of data.
    pub kind: &'static str,
    /// The number of entries of the contents in use.
    pub entries: u64,
    /// Wall-clock second at which they were read.
    pub read_s: i64,
    /// The reason why they are not those of the file.
    pub fault: Option<String>,
}

/// A file whatever its contents are.
trait FollowedFile: Any + Send + Sync {
    fn path(&self) -> &Path;
    fn look(&self);
    fn state(&self) -> Option<FollowedState>;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// The files of the process.
static FILES: Mutex<Vec<Weak<dyn FollowedFile>>> = Mutex::new(Vec::new());

static NEXT_VERSION: AtomicU64 = AtomicU64::new(1);

/// True once the thread runs.
static FOLLOWS: Mutex<bool> = Mutex::new(false);

impl<T: FollowedContents> Followed<T> {
    /// The file with this path. It is not read yet, unless another part of the process uses it.
    pub fn at(path: &Path, bytes_max: u64, parse: ParseContents<T>) -> Arc<Self> {
        let mut files = unpoisoned(&FILES);
        files.retain(|file| file.strong_count() > 0);
        let known = files.iter().filter_map(Weak::upgrade).filter(|file| file.path() == path);
        let known = known.map(FollowedFile::into_any).find_map(|file| file.downcast::<Self>().ok());
        known.unwrap_or_else(|| {
            let file = Arc::new(Self {
                path: path.to_owned(),
                bytes_max,
                parse,
                contents: RwLock::default(),
                version: AtomicU64::default(),
                stamp: Mutex::default(),
                outcome: Mutex::default(),
            });
            let weak: Weak<Self> = Arc::downgrade(&file);
            files.push(weak);
            file
        })
    }

    /// The contents; `None` before the first [`read`](Self::read).
    pub fn contents(&self) -> Option<Arc<T>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of the contents, which no other contents of any file in the process have; 0 before
    /// the first [`read`](Self::read). Contents that are taken afterwards are of this version or
    /// a later one.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file if it has changed since it was read. Blocks. If it fails, the former contents
    /// stay.
    ///
    /// # Errors
    /// Errors of the system and of the contents, with the path.
    pub fn read(&self) -> io::Result<()> {
        let read = self.read_changed(&mut unpoisoned(&self.stamp));
        read.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{}: {}", self.path.display(), crate::os_text(&error)),
            )
        })
    }

    fn read_changed(&self, known: &mut Option<Stamp>) -> io::Result<()> {
        let file = match SmallFile::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.adopt_absent(error);
            }
            opened => opened?,
        };
        let stamp = file.stamp();
        if *known == Some(stamp) {
            return Ok(());
        }
        let bytes = file.read(self.bytes_max).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                let (limit, unit) = match self.bytes_max {
                    bytes if bytes >= 1 << 20 => (bytes >> 20, "MiB"),
                    bytes if bytes >= 1 << 10 => (bytes >> 10, "KiB"),
                    bytes => (bytes, "bytes"),
                };
                io::Error::other(format!("larger than {limit} {unit}"))
            }
            _ => error,
        })?;
        self.adopt((self.parse)(bytes)?);
        let now_s = Clock::start().unix_s();
        *known = (now_s - stamp.changed_s() >= SETTLED_S).then_some(stamp);
        unpoisoned(&self.outcome).read_s = now_s;
        Ok(())
    }

    fn adopt(&self, contents: T) {
        *self.contents.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(contents));
        self.version.store(NEXT_VERSION.fetch_add(1, Ordering::Relaxed), Ordering::Release);
    }

    fn adopt_absent(&self, error: io::Error) -> io::Result<()> {
        let absent = T::absent().ok_or(error)?;
        if self.contents().is_none() {
            self.adopt(absent);
        }
        Ok(())
    }
}

impl<T: FollowedContents> FollowedFile for Followed<T> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn look(&self) {
        let fault = self.read().err().map(|error| error.to_string());
        let mut outcome = unpoisoned(&self.outcome);
        if let Some(text) = fault.as_ref().filter(|_| outcome.fault != fault) {
            log_writer::report(&format!("{text}; the contents that were read before stay in use"));
        }
        outcome.fault = fault;
    }

    fn state(&self) -> Option<FollowedState> {
        let entries = self.contents()?.entries();
        let outcome = unpoisoned(&self.outcome);
        let (read_s, fault) = (outcome.read_s, outcome.fault.clone());
        Some(FollowedState { path: self.path.clone(), kind: T::KIND, entries, read_s, fault })
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// States of all files that were read, in the order of their paths. Does not wait for the disk.
pub fn states() -> Vec<FollowedState> {
    let files: Vec<_> = unpoisoned(&FILES).iter().filter_map(Weak::upgrade).collect();
    let mut states: Vec<_> = files.iter().filter_map(|file| file.state()).collect();
    states.sort_by(|one, other| one.path.cmp(&other.path));
    states
}

/// Starts the thread that looks for changes, if there are files and it does not run yet. Call it
/// when threads may start.
///
/// # Errors
/// The thread cannot be started.
pub fn follow() -> io::Result<()> {
    let mut follows = unpoisoned(&FOLLOWS);
    if *follows || unpoisoned(&FILES).iter().all(|file| file.strong_count() == 0) {
        return Ok(());
    }
    std::thread::Builder::new().name("files".into()).spawn(|| {
        loop {
            std::thread::sleep(LOOK);
            let files: Vec<_> = unpoisoned(&FILES).iter().filter_map(Weak::upgrade).collect();
            files.iter().for_each(|file| file.look());
        }
    })?;
    *follows = true;
    Ok(())
}

// The guarded state is consistent between any two statements.
fn unpoisoned<T: ?Sized>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl FollowedContents for String {
        const KIND: &'static str = "text";

        fn entries(&self) -> u64 {
            self.len() as u64
        }
    }

    fn text(bytes: Vec<u8>) -> io::Result<String> {
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    #[test]
    fn changed_file_is_read_again_and_broken_one_leaves_the_contents() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("list");
        let file = Followed::at(&path, 8, text);
        assert!(file.contents().is_none() && file.version() == 0);
        let mut versions = std::collections::BTreeSet::new();
        let error = file.read().expect_err("it is missing").to_string();
        assert!(error.contains("list: No such file"), "{error}");
        for (bytes, now) in [
            (&b"one"[..], "one"),
            (b"two", "two"),
            (b"\xff", "two"),
            (b"12345678", "12345678"),
            (b"123456789", "12345678"),
        ] {
            std::fs::write(&path, bytes).expect("written");
            let _ = file.read();
            assert_eq!(*file.contents().expect("contents"), now);
            versions.insert(file.version());
        }
        assert_eq!(versions.len(), 3, "each contents have a version: {versions:?}");
        let state = || states().into_iter().find(|state| state.path == path).expect("a state");
        assert!(state().fault.is_none() && state().read_s > 0);
        std::fs::remove_file(&path).expect("removed");
        file.look();
        assert_eq!(*file.contents().expect("contents"), "12345678");
        assert_eq!((state().kind, state().entries), ("text", 8));
        assert!(state().fault.is_some_and(|text| text.contains("No such file")));
    }

    #[test]
    fn settled_file_is_parsed_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("list");
        std::fs::write(&path, "one").expect("written");
        let file = Followed::at(&path, 8, text);
        file.read().expect("read");
        *unpoisoned(&file.stamp) = Some(SmallFile::open(&path).expect("open").stamp());
        let first = file.contents().expect("contents");
        file.read().expect("read");
        assert!(Arc::ptr_eq(&first, &file.contents().expect("contents")));
    }

    #[test]
    fn equal_paths_are_one_file_as_long_as_it_is_used() {
        let path = Path::new("/nowhere/followed-list");
        let one = Followed::at(path, 8, text);
        assert!(Arc::ptr_eq(&one, &Followed::at(path, 8, text)));
        assert!(!Arc::ptr_eq(&one, &Followed::at(Path::new("/nowhere/other"), 8, text)));
        drop(one);
        assert_eq!(unpoisoned(&FILES).iter().filter_map(Weak::upgrade).count(), 0);
    }
}
