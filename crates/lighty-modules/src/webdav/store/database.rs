//! The database file: opened when it is needed, given up when it is gone, and kept from everybody
//! else.

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

/// Who is told of what concerns no single request.
pub(super) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// What the thread of a store keeps.
pub(super) struct Database {
    path: PathBuf,
    open: Option<(Db, Meta)>,
    tell: Tell,
}

impl Database {
    pub(super) fn new(path: &Path, tell: Tell) -> Self {
        Self { path: path.to_owned(), open: None, tell }
    }

    /// The database: the one that has its name now.
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

    /// Closes a file that has lost its name. What was written last is brought into it; else what
    /// has the name next would be taken for the file that it belongs to.
    fn give_up(&mut self) {
        let Some((db, _)) = self.open.take() else { return };
        // It fails where the disk does; then that much is lost of a file that nobody finds.
        let _ = db.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        drop(db);
        for name in added_names(&self.path) {
            if meta_of_path(&name).is_ok_and(|meta| is_protected(&meta)) {
                // Nobody may remove it: opening what comes next says so.
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
            // SQLite has removed its other files. The database itself stays protected.
            keep(&self.path, ADDED);
        }
    }
}

/// How SQLite ends the names of the files that it has beside a database, at the end of all links.
/// It believes what it finds there: a journal is played back.
pub(super) const ADDED: &[&str] = &["-wal", "-shm", "-journal"];

/// What it calls them.
fn added_names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let path = canonical_through(path.as_os_str().as_bytes());
    ADDED.iter().map(move |end| OsString::from_vec([&*path, end.as_bytes()].concat()).into())
}

/// Whether another process holds the database, so that a caller need not wait to learn
/// it: one at a time tries.
#[derive(Default)]
pub(super) struct Gate {
    held: AtomicBool,
    tried: AtomicBool,
}

/// Leave to ask the database.
pub(super) struct Pass {
    gate: Arc<Gate>,
    tries: bool,
}

impl Gate {
    /// Whether it was held when somebody tried last.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Notes that it is held, if that came of work that may or may not have asked for it.
    pub(super) fn note_held<T>(&self, done: &io::Result<T>) {
        if done.as_ref().is_err_and(is_held) {
            self.held.store(true, Ordering::Release);
        }
    }

    /// `None` while it is held and somebody tries.
    pub(super) fn enter(gate: &Arc<Self>) -> Option<Pass> {
        let tries = gate.is_held();
        if tries && gate.tried.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Pass { gate: Arc::clone(gate), tries })
    }
}

impl Pass {
    /// Whether it turned out to be held while this one waited for its turn.
    pub(super) fn is_late(&self) -> bool {
        !self.tries && self.gate.is_held()
    }

    /// Notes what came of it.
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

/// Whether an error says that another process holds the database.
fn is_held(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}
