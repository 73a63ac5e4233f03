//! Files that cache results which cost time to produce: written beside, then renamed.
//!
//! For pool threads. After any error (no space, no permission) the file is not kept; there are no
//! other consequences, as the writer serves its result without the file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A cache file, visible under its name only once it is complete.
#[derive(Debug)]
pub struct CacheFile {
    directory: PathBuf,
    name: PathBuf,
    state: CacheFileState,
}

#[derive(Debug)]
enum CacheFileState {
    /// Nothing was written yet.
    New,
    Open(File, PathBuf),
    Failed,
}

impl CacheFile {
    /// Prepares the file `name` beneath `directory`. Missing directories, parents of `directory`
    /// included, are created. Only the server's user may read the file and the directories, because
    /// the original may be private. Touches nothing before the first byte.
    pub fn new(directory: &Path, name: &Path) -> Self {
        let name = directory.join(name);
        Self { directory: directory.to_owned(), name, state: CacheFileState::New }
    }

    /// Adds bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || matches!(self.state, CacheFileState::Failed) {
            return;
        }
        if let Err(error) = self.try_append(bytes) {
            self.fail(&error);
        }
    }

    /// Gives the complete file its name.
    pub fn commit(mut self) {
        if let CacheFileState::Open(_, temporary) = &self.state {
            let made = self.name.parent().map_or(Ok(()), make_directories);
            match made.and_then(|()| fs::rename(temporary, &self.name)) {
                // Nothing is left to remove.
                Ok(()) => self.state = CacheFileState::New,
                Err(error) => self.fail(&error),
            }
        }
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if let CacheFileState::New = self.state {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!(".{}-{number}.tmp", std::process::id());
            let temporary = self.directory.join(name);
            let open = || {
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(0o600).open(&temporary)
            };
            let file = match open() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    make_directories(&self.directory).and_then(|()| open())?
                }
                opened => opened?,
            };
            self.state = CacheFileState::Open(file, temporary);
        }
        match &mut self.state {
            CacheFileState::Open(file, _) => file.write_all(bytes),
            CacheFileState::New | CacheFileState::Failed => Ok(()),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        note_failure(&self.directory, error);
        self.remove();
        self.state = CacheFileState::Failed;
    }

    fn remove(&self) {
        if let CacheFileState::Open(_, temporary) = &self.state {
            let _ = fs::remove_file(temporary);
        }
    }
}

impl Drop for CacheFile {
    /// Removes the file if it is incomplete.
    fn drop(&mut self) {
        self.remove();
    }
}

fn make_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The last error, until [`take_failure`] returns it.
static FAILURE: std::sync::Mutex<Option<String>> = std::sync::Mutex::new(None);

fn note_failure(directory: &Path, error: &io::Error) {
    let message = format!("{}: {error}", directory.display());
    *FAILURE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(message);
}

/// Returns and clears the last error, for the log.
pub fn take_failure() -> Option<String> {
    FAILURE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn missing_directory_is_made_for_the_first_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("cache/deflate");
        let mut file = CacheFile::new(&directory, Path::new("page-gzip-1"));
        assert!(names(dir.path()).is_empty());
        file.append(b"text");
        file.commit();
        assert_eq!(fs::read(directory.join("page-gzip-1")).expect("it is there"), b"text");
        let mode = |path: &Path| fs::metadata(path).expect("made").permissions().mode() & 0o777;
        assert_eq!([mode(&dir.path().join("cache")), mode(&directory)], [0o700, 0o700]);
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = Path::new("a/b/page-gzip-1");
        let mut file = CacheFile::new(dir.path(), name);
        assert!(names(dir.path()).is_empty());
        file.append(b"one ");
        file.append(b"two");
        assert!(!dir.path().join(name).exists());
        file.commit();
        assert_eq!(fs::read(dir.path().join(name)).expect("it is there"), b"one two");
        let mode = |name: &str| {
            let meta = fs::metadata(dir.path().join(name)).expect("it is there");
            meta.permissions().mode() & 0o777
        };
        assert_eq!([mode("a"), mode("a/b"), mode("a/b/page-gzip-1")], [0o700, 0o700, 0o600]);
        let mut given_up = CacheFile::new(dir.path(), Path::new("other"));
        given_up.append(b"half");
        drop(given_up);
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn failures_are_reported_and_leave_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        // It cannot be created either, beneath a file.
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut nowhere = CacheFile::new(&file.path().join("missing"), Path::new("x"));
        nowhere.append(b"bytes");
        nowhere.append(b"more");
        nowhere.commit();
        assert!(take_failure().expect("said").contains("missing"));
        // A directory has the file's name.
        fs::create_dir_all(dir.path().join("taken/below")).expect("directories");
        let mut taken = CacheFile::new(dir.path(), Path::new("taken"));
        taken.append(b"bytes");
        taken.commit();
        assert_eq!(names(dir.path()), ["taken"]);
    }
}
