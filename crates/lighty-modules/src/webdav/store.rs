//! Data stored beside the files: client properties and locks.
//!
//! One SQLite database and one thread serve all workers. A change is on the disk before its
//! response is sent. The key is the canonical path (see [`CanonicalPath`]), so that a file with
//! several URLs, by aliases or by links, has one set of properties and locks.
//!
//! Reading order: this file (the thread, and the writes in progress), `database` (the file, and its
//! use while another process holds it), `schema`, `properties`, `locks`.

mod database;
mod locks;
mod properties;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_core::pipeline::protected_files::keep;
#[cfg(doc)]
use lighty_io::file::tree::CanonicalPath;
use lighty_io::threads::blocking_actor::BlockingActor;
use rusqlite::Connection;

use database::{Database, Gate, Tell};

pub(super) use locks::{Covered, Lock, NewLock, Refresh, Taken, WriteClaim};
pub(super) use properties::{Changed, Dead, Described, PropertyChange};

/// The databases of the process.
#[derive(Clone)]
pub struct Stores {
    all: Arc<Mutex<HashMap<PathBuf, Store>>>,
    tell: Tell,
}

impl Stores {
    /// Creates an empty set. `tell` logs events that belong to no single request.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { all: Arc::default(), tell: Arc::new(tell) }
    }

    /// Registers a database's files before its first use, so that they are never served.
    pub fn expect(&self, path: &Path) {
        keep(path, database::ADDED);
    }

    /// Closes the databases that are not in `named`, except ones in use by a request. Returns true
    /// if only databases in `named` remain open.
    pub fn close_others(&self, named: &[&Path]) -> bool {
        let mut stores = unpoisoned(&self.all);
        stores.retain(|path, store| named.contains(&path.as_path()) || store.is_in_use());
        stores.keys().all(|path| named.contains(&path.as_path()))
    }

    /// Returns the store in this file. The file is opened on first use.
    pub(super) fn at(&self, path: &str) -> io::Result<Store> {
        let mut stores = unpoisoned(&self.all);
        if let Some(store) = stores.get(Path::new(path)) {
            return Ok(store.clone());
        }
        let owned = PathBuf::from(path);
        let (file, tell) = (owned.clone(), Arc::clone(&self.tell));
        let actor =
            BlockingActor::start("webdav", move || Ok(Database::new(&file, Arc::clone(&tell))))?;
        let store = Store {
            actor,
            writers: Writers::default(),
            reads: Arc::default(),
            writes: Arc::default(),
        };
        stores.insert(owned, store.clone());
        Ok(store)
    }
}

/// A handle to a store. Clones share it.
#[derive(Clone)]
pub(super) struct Store {
    actor: BlockingActor<Database>,
    writers: Writers,
    /// Separate gates: another process may block only the writers, or the readers too.
    reads: Arc<Gate>,
    writes: Arc<Gate>,
}

impl Store {
    /// Returns true if a handle exists outside the shared table, or a job is not finished.
    fn is_in_use(&self) -> bool {
        let gates = [&self.reads, &self.writes];
        gates.into_iter().any(|gate| Arc::strong_count(gate) > 1)
            || Arc::strong_count(&self.writers.0) > 1
    }

    /// Reads from the database.
    ///
    /// # Errors
    /// `WouldBlock` if the queue is full, `TimedOut` if another process holds the database,
    /// otherwise SQLite's error.
    pub(super) async fn read<T, F>(&self, job: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    {
        self.pass(&self.reads, job).await
    }

    /// Writes to the database. The change is on the disk when this returns.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub(super) async fn write<T, F>(&self, job: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    {
        self.pass(&self.writes, job).await
    }

    /// Records a change of files that has happened already. It bypasses the gate, because it must
    /// be tried even if the database was held.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub(super) async fn note<T, F>(&self, job: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    {
        let gate = Arc::clone(&self.writes);
        let work = self.actor.run(move |database| {
            let done = database.db().and_then(|db| job(db).map_err(io_error));
            gate.note_held(&done);
            done
        });
        work.await?
    }

    async fn pass<T, F>(&self, gate: &Arc<Gate>, job: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    {
        let held = || io::Error::new(io::ErrorKind::TimedOut, "database is locked");
        let pass = Gate::enter(gate).ok_or_else(held)?;
        let work = self.actor.run(move |database| {
            if pass.is_late() {
                return Err(held());
            }
            let done = database.db().and_then(|db| job(db).map_err(io_error));
            pass.note(&done);
            done
        });
        work.await?
    }

    /// Begins to change files. Returns the locks that block the claim, if any; otherwise no file
    /// gets a new lock before the [`Writing`] is dropped.
    pub(super) async fn begin_writing(
        &self,
        claim: WriteClaim,
        now_s: i64,
    ) -> io::Result<Result<Writing, Vec<Lock>>> {
        // Changes of whole trees are recorded afterwards: fail now if the database is held.
        if self.writes.is_held() && claim.paths.iter().any(|covered| covered.tree) {
            self.write(Db::try_to_write).await?;
        }
        let writers = self.writers.clone();
        self.read(move |db| {
            let blocking = db.locks_against(&claim, now_s)?;
            Ok(if blocking.is_empty() { Ok(writers.enter(claim.paths)) } else { Err(blocking) })
        })
        .await
    }

    /// Takes a lock, unless another lock or a write in progress conflicts with it.
    pub(super) async fn take_lock(
        &self,
        lock: NewLock,
        now_s: i64,
        locks_max: u32,
    ) -> io::Result<Taken> {
        let writers = self.writers.clone();
        self.write(move |db| {
            // All database jobs run on this thread, so no write can begin in between.
            if writers.touch(&lock.lock.path, lock.lock.infinite) {
                return Ok(Taken::Busy);
            }
            db.take_lock(&lock, now_s, locks_max)
        })
        .await
    }
}

/// Converts an SQLite error, keeping the kind of an underlying disk error.
fn io_error(error: rusqlite::Error) -> io::Error {
    use rusqlite::ErrorCode as Code;
    let kind = match error.sqlite_error_code() {
        Some(Code::DiskFull) => io::ErrorKind::StorageFull,
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => io::ErrorKind::TimedOut,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// The writes in progress.
#[derive(Clone, Default)]
struct Writers(Arc<Mutex<WritersTable>>);

#[derive(Default)]
struct WritersTable {
    next: u64,
    at_work: HashMap<u64, Vec<Covered>>,
}

impl Writers {
    fn enter(&self, paths: Vec<Covered>) -> Writing {
        let mut table = unpoisoned(&self.0);
        let number = table.next;
        table.next += 1;
        table.at_work.insert(number, paths);
        Writing { number, writers: self.clone() }
    }

    /// Returns true if a write in progress would be covered by a lock of `path`.
    fn touch(&self, path: &[u8], infinite: bool) -> bool {
        let table = unpoisoned(&self.0);
        table.at_work.values().flatten().any(|Covered { canonical, tree }| {
            let mut ways = canonical.links.iter().chain([&canonical.path]);
            canonical.path == path
                || (infinite && ways.any(|way| is_below(way, path)))
                || (*tree && is_below(path, &canonical.path))
        })
    }
}

/// Guard of files that are being changed.
pub(super) struct Writing {
    number: u64,
    writers: Writers,
}

impl Drop for Writing {
    fn drop(&mut self) {
        unpoisoned(&self.writers.0).at_work.remove(&self.number);
    }
}

/// Returns true if `path` lies beneath `above`.
pub(super) fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/') && rest.len() > 1)
}

// The tables are consistent between any two statements.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The database.
pub(super) struct Db {
    connection: Connection,
    /// Paths of an earlier schema version were converted on opening.
    respelled: bool,
}

/// Returns the key range of all paths beneath a directory. In byte order `/` is followed by `0`.
fn below(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    ([path, b"/"].concat(), [path, b"0"].concat())
}
