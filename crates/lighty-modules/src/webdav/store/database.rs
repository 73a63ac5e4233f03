//! The database file: opened on first use, closed if its name is gone, and protected from clients.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lighty_core::pipeline::protected_files::{is_protected, keep};
use lighty_io::file::Meta;
use lighty_io::file::tree::{canonical_through, meta_of_path, remove_path};

use super::{Db, io_error};

/// Logs events that belong to no single request.
pub(super) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// State of the store's thread.
pub(super) struct Database {
    path: PathBuf,
    open: Option<(Db, Meta)>,
    tell: Tell,
}

impl Database {
    pub(super) fn new(path: &Path, tell: Tell) -> Self {
        Self { path: path.to_owned(), open: None, tell }
    }

    /// Returns the database that has the name now; reopens it if the file was replaced.
    pub(super) fn db(&mut self) -> io::Result<&mut Db> {
        let there = meta_of_path(&self.path).ok();
        let same = |(_, meta): &(Db, Meta)| there.is_some_and(|there| there.same_file(meta));
        if self.open.as_ref().is_some_and(|open| !same(open)) {
            let what = if there.is_some() { "was replaced" } else { "was removed" };
            (self.tell)(&format!(
                "webdav.sqlite-db-name = \"{}\": the file {what} while the server ran; the locks and \
                 properties in it are lost, and what has the name now is used",
                self.path.display()
            ));
            self.give_up();
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => self.make()?,
        };
        Ok(&mut self.open.insert(open).0)
    }

    /// Closes a file that has lost its name. Checkpoints the write-ahead log first: a remaining log
    /// would be taken for that of the next file with the name.
    fn give_up(&mut self) {
        let Some((db, _)) = self.open.take() else { return };
        // Fails if the disk does. The loss concerns a file that has no name any more.
        let _ = db.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        drop(db);
        for name in added_names(&self.path) {
            if meta_of_path(&name).is_ok_and(|meta| is_protected(&meta)) {
                // If the removal is not permitted, opening the next file reports it.
                let _ = remove_path(&name);
            }
        }
    }

    fn make(&self) -> io::Result<(Db, Meta)> {
        let db = Db::open(&self.path).map_err(io_error)?;
        if db.respelled {
            (self.tell)(&format!(
                "webdav.sqlite-db-name = \"{}\": brought to the present form",
                self.path.display()
            ));
        }
        keep(&self.path, ADDED);
        Ok((db, meta_of_path(&self.path)?))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.open.take().is_some() {
            // SQLite has removed its auxiliary files. The database itself stays protected.
            keep(&self.path, ADDED);
        }
    }
}

/// Suffixes of SQLite's auxiliary files, appended to the path with all links resolved. SQLite
/// trusts files of these names: it replays a journal that it finds.
pub(super) const ADDED: &[&str] = &["-wal", "-shm", "-journal"];

/// Returns the paths of the auxiliary files.
fn added_names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let path = canonical_through(path.as_os_str().as_bytes());
    ADDED.iter().map(move |end| OsString::from_vec([&*path, end.as_bytes()].concat()).into())
}

/// Remembers that another process holds the database, so that callers fail at once instead of
/// waiting. Only one caller at a time tries again.
#[derive(Default)]
pub(super) struct Gate {
    held: AtomicBool,
    tried: AtomicBool,
}

/// Permission to use the database.
pub(super) struct Pass {
    gate: Arc<Gate>,
    tries: bool,
}

impl Gate {
    /// Returns true if the database was held at the last try.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Records that the database is held, after work that bypassed the gate.
    pub(super) fn note_held<T>(&self, done: &io::Result<T>) {
        if done.as_ref().is_err_and(is_held) {
            self.held.store(true, Ordering::Release);
        }
    }

    /// Returns `None` while the database is held and another caller is trying.
    pub(super) fn enter(gate: &Arc<Self>) -> Option<Pass> {
        let tries = gate.is_held();
        if tries && gate.tried.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Pass { gate: Arc::clone(gate), tries })
    }
}

impl Pass {
    /// Returns true if the database was found to be held while this pass was queued.
    pub(super) fn is_late(&self) -> bool {
        !self.tries && self.gate.is_held()
    }

    /// Records the result of a try.
    pub(super) fn note<T>(&self, done: &io::Result<T>) {
        self.gate.held.store(done.as_ref().is_err_and(is_held), Ordering::Release);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.tries {
            self.gate.tried.store(false, Ordering::Release);
        }
    }
}

/// Returns true if the error means that another process holds the database.
fn is_held(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}
