//! The tables, and what is put right when the database is opened.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::Db;

/// How long another process may hold the database, in milliseconds.
const BUSY_MS: u64 = 5_000;

/// Names of our own: tables of lighttpd may be in the same file. Paths are physical, absolute and
/// without a slash at their end.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS lighty_property (
    path BLOB NOT NULL,
    ns TEXT NOT NULL,
    name TEXT NOT NULL,
    xml TEXT NOT NULL,
    PRIMARY KEY (path, ns, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lighty_lock (
    token TEXT NOT NULL PRIMARY KEY,
    path BLOB NOT NULL,
    url BLOB NOT NULL,
    infinite INTEGER NOT NULL,
    exclusive INTEGER NOT NULL,
    owner TEXT NOT NULL,
    user BLOB NOT NULL,
    expires_s INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lighty_lock_path ON lighty_lock (path);
CREATE TABLE IF NOT EXISTS lighty_move (
    source BLOB NOT NULL PRIMARY KEY,
    target BLOB NOT NULL
) WITHOUT ROWID;
";

impl Db {
    /// Opens the file, and makes what is missing. A move that was cut off between the file and its
    /// properties is completed.
    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // What was answered stays, also when the machine loses its power.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.set_transaction_behavior(TransactionBehavior::Immediate);
        let transaction = connection.transaction()?;
        transaction.execute_batch(TABLES)?;
        transaction.commit()?;
        let mut db = Self { connection };
        db.complete_moves()?;
        Ok(db)
    }

    fn complete_moves(&mut self) -> rusqlite::Result<()> {
        let cut_off: Vec<(Vec<u8>, Vec<u8>)> = {
            let mut query = self.connection.prepare("SELECT source, target FROM lighty_move")?;
            let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<_>>()?
        };
        let exists = |path: &[u8]| {
            lighty_io::file::tree::exists(Path::new(std::ffi::OsStr::from_bytes(path)))
        };
        for (source, target) in cut_off {
            match !exists(&source) && exists(&target) {
                true => self.moved(&source, &target)?,
                false => self.not_moved(&source)?,
            }
        }
        Ok(())
    }
}
