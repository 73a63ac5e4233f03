//! The tables, and repairs when the database is opened.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use lighty_io::file::tree::canonical;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

use super::Db;

/// Time for which one request waits for another process that holds the database, in milliseconds.
/// Other requests do not wait meanwhile.
const BUSY_MS: u64 = 1_000;

/// Version of the schema. 1: paths as spelled by the configuration and the URL, without a version
/// table. 2: canonical paths, see [`lighty_io::file::tree::CanonicalPath`].
const FORM: u32 = 2;

/// Tables with names of our own, because lighttpd's tables may be in the same file. Paths are
/// canonical, without a slash at their end.
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
CREATE TABLE IF NOT EXISTS lighty_form (form INTEGER NOT NULL);
";

impl Db {
    /// Opens the file and creates missing tables. Completes a move that was interrupted between the
    /// file and its properties.
    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // Committed changes must survive a power failure.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.set_transaction_behavior(TransactionBehavior::Immediate);
        let transaction = connection.transaction()?;
        transaction.execute_batch(TABLES)?;
        let respelled = bring_to_form(&transaction)?;
        transaction.commit()?;
        let mut db = Self { connection, respelled };
        db.complete_moves()?;
        Ok(db)
    }

    /// Fails while another process writes.
    pub(super) fn try_to_write(&mut self) -> rusqlite::Result<()> {
        self.connection.transaction()?.rollback()
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

/// Migrates the data to the present version. Returns true if any path was changed.
fn bring_to_form(transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
    let form: Option<u32> =
        transaction.query_row("SELECT MAX(form) FROM lighty_form", [], |row| row.get(0))?;
    match form {
        Some(FORM) => Ok(false),
        Some(later) if later > FORM => Err(rusqlite::Error::InvalidParameterName(format!(
            "it is of form {later}, which a later lighty has made; this one knows form {FORM}"
        ))),
        _ => {
            let respelled = respell(transaction)?;
            transaction.execute("INSERT INTO lighty_form (form) VALUES (?1)", [FORM])?;
            Ok(respelled)
        }
    }
}

/// Migrates from version 1 to 2. If several paths have one canonical path, data stored by the
/// canonical path takes precedence, then the first path's.
fn respell(transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
    let before = transaction.total_changes();
    for path in spelled_otherwise(transaction, "path", "lighty_property")? {
        transaction.execute(
            "UPDATE OR IGNORE lighty_property SET path = ?2 WHERE path = ?1",
            params![path, canonical(&path)],
        )?;
        transaction.execute("DELETE FROM lighty_property WHERE path = ?1", [&path])?;
    }
    for path in spelled_otherwise(transaction, "path", "lighty_lock")? {
        transaction.execute(
            "DELETE FROM lighty_lock WHERE path = ?1 AND EXISTS
             (SELECT 1 FROM lighty_lock AS other WHERE other.path = ?2
              AND (other.exclusive OR lighty_lock.exclusive))",
            params![path, canonical(&path)],
        )?;
        transaction.execute(
            "UPDATE lighty_lock SET path = ?2 WHERE path = ?1",
            params![path, canonical(&path)],
        )?;
    }
    for column in ["source", "target"] {
        for path in spelled_otherwise(transaction, column, "lighty_move")? {
            let sql =
                format!("UPDATE OR REPLACE lighty_move SET {column} = ?2 WHERE {column} = ?1");
            transaction.execute(&sql, params![path, canonical(&path)])?;
        }
    }
    Ok(transaction.total_changes() != before)
}

/// Returns the paths that are not canonical.
fn spelled_otherwise(
    transaction: &Transaction<'_>,
    column: &str,
    table: &str,
) -> rusqlite::Result<Vec<Vec<u8>>> {
    let sql = format!("SELECT DISTINCT {column} FROM {table} ORDER BY {column}");
    let mut query = transaction.prepare(&sql)?;
    let paths = query.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
    paths.filter(|path| path.as_ref().map_or(true, |path| canonical(path) != *path)).collect()
}
