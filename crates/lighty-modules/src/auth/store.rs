//! A file that is reloaded when it changes, never on an event loop.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_io::file::small_file::{SmallFile, Stamp};

use super::users::{Parsed, sum};

/// Time for which file contents count as fresh, in milliseconds.
pub(super) const FRESH_MS: u64 = 1000;

/// Maximum file size in bytes: the file is read into memory.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub(super) struct StoreError {
    path: Arc<str>,
    error: io::Error,
}

/// Contents of a file, with a generation that changes when they do.
pub(super) struct Loaded<T> {
    pub(super) generation: u64,
    pub(super) table: T,
}

/// A file and its cached contents; shared by all workers.
pub(super) struct Store<T> {
    pub(super) path: Arc<str>,
    parse: fn(&Self, &[u8]) -> Parsed<T>,
    pub(super) kind: super::users::UserFileFormat,
    state: Mutex<StoreState<T>>,
    /// Held while the file is read: one reader at a time.
    reading: Mutex<()>,
    /// Held by the request that triggers the read: others wait without a thread.
    pub(super) turn: tokio::sync::Mutex<()>,
}

struct StoreState<T> {
    checked_ms: u64,
    stamp: Option<Stamp>,
    sum: [u8; 16],
    loaded: Option<Arc<Loaded<T>>>,
}

/// The cached contents.
pub(super) enum Look<T> {
    /// Fresh, or being checked by another request.
    Fresh(Arc<Loaded<T>>),
    /// The caller must call [`Store::refresh`] where it may block.
    Stale,
}

impl<T> Store<T> {
    /// Creates a store for a file, without reading it.
    pub(super) fn new(
        path: Arc<str>,
        kind: super::users::UserFileFormat,
        parse: fn(&Self, &[u8]) -> Parsed<T>,
    ) -> Self {
        let state = StoreState { checked_ms: 0, stamp: None, sum: [0; 16], loaded: None };
        Self {
            path,
            parse,
            kind,
            state: Mutex::new(state),
            reading: Mutex::default(),
            turn: Default::default(),
        }
    }

    /// The contents, if they are fresh. If not, one of the concurrent callers gets [`Look::Stale`]
    /// and checks the file; the others get the old contents.
    pub(super) fn look(&self, now_ms: u64) -> Look<T> {
        let mut state = unpoisoned(self.state.lock());
        let Some(loaded) = &state.loaded else { return Look::Stale };
        let fresh = Look::Fresh(Arc::clone(loaded));
        if now_ms.saturating_sub(state.checked_ms) < FRESH_MS {
            return fresh;
        }
        state.checked_ms = now_ms;
        Look::Stale
    }

    /// The contents, if they are fresh; never triggers a check.
    pub(super) fn peek(&self, now_ms: u64) -> Option<Arc<Loaded<T>>> {
        let state = unpoisoned(self.state.lock());
        let is_fresh = now_ms.saturating_sub(state.checked_ms) < FRESH_MS;
        state.loaded.clone().filter(|_| is_fresh)
    }

    /// Reads the file if it has changed. Blocks. Also returns the errors in its lines, once.
    ///
    /// # Errors
    /// The file cannot be read: then there are no users.
    pub(super) fn refresh(
        &self,
        now_ms: u64,
        now_s: i64,
    ) -> Result<Parsed<Arc<Loaded<T>>>, StoreError> {
        let _reading = unpoisoned(self.reading.lock());
        let read = self.read(now_s);
        let mut state = unpoisoned(self.state.lock());
        state.checked_ms = now_ms;
        match read {
            Ok(Change::None(loaded)) => Ok((loaded, Vec::new())),
            Ok(Change::New(change)) => {
                let New { stamp, sum, loaded, problems } = *change;
                state.stamp = stamp;
                state.sum = sum;
                state.loaded = Some(Arc::clone(&loaded));
                let named = |problem| format!("{}: {problem}", self.path);
                Ok((loaded, problems.into_iter().map(named).collect()))
            }
            Err(error) => {
                state.loaded = None;
                state.stamp = None;
                Err(StoreError { path: Arc::clone(&self.path), error })
            }
        }
    }

    fn read(&self, now_s: i64) -> io::Result<Change<T>> {
        let file = SmallFile::open(Path::new(&*self.path))?;
        let stamp = file.stamp();
        let known = {
            let state = unpoisoned(self.state.lock());
            state
                .loaded
                .clone()
                .map(|loaded| (loaded, state.sum, state.stamp.as_ref() == Some(&stamp)))
        };
        if let Some((loaded, _, true)) = &known {
            return Ok(Change::None(Arc::clone(loaded)));
        }
        let text = file.read(FILE_BYTES_MAX).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => io::Error::other("larger than 64 MiB"),
            _ => error,
        })?;
        // A file changed just now may change again with the same metadata.
        let settled = now_s.saturating_sub(stamp.changed_s()) > 2;
        let sum = sum(&text);
        let stamp = settled.then_some(stamp);
        let (loaded, problems) = match known {
            Some((loaded, old, _)) if old == sum => (loaded, Vec::new()),
            _ => self.load(&text),
        };
        Ok(Change::New(Box::new(New { stamp, sum, loaded, problems })))
    }

    fn load(&self, text: &[u8]) -> Parsed<Arc<Loaded<T>>> {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        let (table, problems) = (self.parse)(self, text);
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        (Arc::new(Loaded { generation, table }), problems)
    }
}

enum Change<T> {
    None(Arc<Loaded<T>>),
    New(Box<New<T>>),
}

struct New<T> {
    stamp: Option<Stamp>,
    sum: [u8; 16],
    loaded: Arc<Loaded<T>>,
    problems: Vec<String>,
}

// The guarded state is consistent between any two statements.
fn unpoisoned<'a, T>(
    lock: Result<MutexGuard<'a, T>, PoisonError<MutexGuard<'a, T>>>,
) -> MutexGuard<'a, T> {
    lock.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::users::UserFileFormat;

    fn store(path: &Path) -> Store<Vec<u8>> {
        let path = path.to_str().expect("text").into();
        Store::new(path, UserFileFormat::Plain, |_, text| {
            (text.to_vec(), vec!["line 1: x".to_owned()])
        })
    }

    #[test]
    fn a_changed_file_is_read_again_and_an_unchanged_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("users");
        std::fs::write(&path, "one").expect("written");
        let store = store(&path);
        assert!(matches!(store.look(5000), Look::Stale));
        let (first, problems) = store.refresh(5000, i64::MAX).expect("read");
        assert_eq!((&*first.table, problems.len()), (&b"one"[..], 1));
        assert!(matches!(store.look(5000 + FRESH_MS - 1), Look::Fresh(_)));
        assert!(matches!(store.look(5000 + FRESH_MS), Look::Stale));
        assert!(matches!(store.look(5000 + FRESH_MS), Look::Fresh(_)), "one is sent");
        let (again, problems) = store.refresh(6000, i64::MAX).expect("read");
        assert_eq!((again.generation, problems.len()), (first.generation, 0));
        std::fs::write(&path, "two!").expect("written");
        let (second, _) = store.refresh(7000, 0).expect("read");
        assert_eq!(&*second.table, b"two!");
        assert_ne!(second.generation, first.generation);
        let (same, problems) = store.refresh(8000, 0).expect("read");
        assert_eq!((same.generation, problems.len()), (second.generation, 0));
    }

    #[test]
    fn without_its_file_no_user_is_known() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("users");
        std::fs::write(&path, "one").expect("written");
        let store = store(&path);
        store.refresh(1, 0).expect("read");
        std::fs::remove_file(&path).expect("removed");
        let error = store.refresh(2, 0).err().expect("gone");
        assert!(error.to_string().contains("users"), "{error}");
        assert!(matches!(store.look(3), Look::Stale));
    }
}
