//! Databases of SQLite: a thread for each, which reads only.

use std::io;
use std::path::Path;
use std::time::Duration;

use lighty_core::pipeline::protected_files::keep;
use lighty_io::threads::blocking_actor::BlockingActor;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

/// Time for which a writer of the database is waited for.
const BUSY: Duration = Duration::from_secs(1);

/// Files beside a database.
const BESIDE: &[&str] = &["-journal", "-wal", "-shm"];

/// A database that answers one statement.
pub(super) type Sqlite = BlockingActor<Connection>;

/// Opens a database on first use, on a thread of its own.
pub(super) fn start(path: &str) -> io::Result<Sqlite> {
    let path = path.to_owned();
    keep(Path::new(&path), BESIDE);
    BlockingActor::start("vhostdb", move || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(&path, flags);
        let database = opened.map_err(|error| io::Error::other(format!("{path}: {error}")))?;
        database.busy_timeout(BUSY).map_err(io::Error::other)?;
        Ok(database)
    })
}

/// The first column of the first row; `None` without a row, or if it is NULL or empty.
pub(super) fn first(
    database: &Connection,
    sql: &str,
    host: &str,
) -> rusqlite::Result<Option<String>> {
    let mut statement = database.prepare_cached(sql)?;
    let first = statement.query_row([host], |row| {
        Ok(match row.get_ref(0)? {
            ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Null => None,
            other => Some(other.as_str()?.to_owned()),
        })
    });
    Ok(first.optional()?.flatten().filter(|root| !root.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_column_of_the_first_row_is_the_root() {
        let database = Connection::open_in_memory().expect("a database");
        let made = database.execute_batch(
            "CREATE TABLE v (h TEXT, r);
             INSERT INTO v VALUES ('a', '/a'), ('b', NULL), ('c', ''), ('d', 7), ('a', '/b');",
        );
        made.expect("a table");
        let of = |host: &str| first(&database, "SELECT r FROM v WHERE h = ?1", host);
        assert_eq!(of("a"), Ok(Some("/a".to_owned())));
        for none in ["b", "c", "x", "' OR 1=1 --", ""] {
            assert_eq!(of(none), Ok(None), "{none}");
        }
        assert!(of("d").is_err(), "a number is no path");
        assert!(first(&database, "SELECT r FROM w WHERE h = ?1", "a").is_err());
    }
}
