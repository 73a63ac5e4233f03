//! Properties that clients have set ("dead" ones, RFC 4918 section 3).

use lighty_io::file::tree::CanonicalPath;
use rusqlite::{OptionalExtension, Transaction, params};

use super::{Db, Lock, below};

/// A property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Dead {
    pub(in super::super) ns: String,
    pub(in super::super) name: String,
    /// The whole element.
    pub(in super::super) xml: String,
}

/// Stored data of one path.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Described {
    pub(in super::super) dead: Vec<Dead>,
    pub(in super::super) locks: Vec<Lock>,
}

/// A change of one property.
#[derive(Clone, Debug)]
pub(in super::super) enum PropertyChange {
    Set(Dead),
    Remove { ns: String, name: String },
}

/// Result of a set of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Changed {
    All,
    /// No change was made: together the properties would be too large.
    TooLarge,
}

/// Bytes of properties after which [`Db::describe`] ends a batch.
const BATCH_BYTES: usize = 1 << 20;

impl Db {
    /// Returns properties and locks of these paths, in order. Stops early once the batch is large,
    /// but describes at least one path.
    pub(in super::super) fn describe(
        &mut self,
        canonical_paths: &[CanonicalPath],
        now_s: i64,
    ) -> rusqlite::Result<Vec<Described>> {
        let has_locks = self.has_locks()?;
        let mut bytes = 0;
        let mut all = Vec::with_capacity(canonical_paths.len());
        for canonical in canonical_paths {
            let dead = self.properties(&canonical.path)?;
            let locks = if has_locks { self.locks_at(canonical, now_s)? } else { Vec::new() };
            bytes += dead.iter().map(|dead| dead.xml.len()).sum::<usize>();
            bytes += locks.iter().map(|lock| lock.owner.len() + lock.url.len()).sum::<usize>();
            all.push(Described { dead, locks });
            if bytes > BATCH_BYTES {
                break;
            }
        }
        Ok(all)
    }

    /// Returns the properties of a path.
    pub(super) fn properties(&self, path: &[u8]) -> rusqlite::Result<Vec<Dead>> {
        let sql = "SELECT ns, name, xml FROM lighty_property WHERE path = ?1";
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map([path], |row| {
            Ok(Dead { ns: row.get(0)?, name: row.get(1)?, xml: row.get(2)? })
        })?;
        rows.collect()
    }

    /// Makes all changes in order, or none.
    pub(in super::super) fn change(
        &mut self,
        path: &[u8],
        changes: &[PropertyChange],
        bytes_max: usize,
    ) -> rusqlite::Result<Changed> {
        let transaction = self.connection.transaction()?;
        for change in changes {
            match change {
                PropertyChange::Set(dead) => transaction.execute(
                    "INSERT INTO lighty_property (path, ns, name, xml) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT DO UPDATE SET xml = excluded.xml",
                    params![path, dead.ns, dead.name, dead.xml],
                )?,
                PropertyChange::Remove { ns, name } => transaction.execute(
                    "DELETE FROM lighty_property WHERE path = ?1 AND ns = ?2 AND name = ?3",
                    params![path, ns, name],
                )?,
            };
        }
        let sql = "SELECT SUM(LENGTH(CAST(xml AS BLOB)) + LENGTH(CAST(ns AS BLOB)) + LENGTH(CAST(name AS BLOB)))
                   FROM lighty_property WHERE path = ?1";
        let sum: Option<Option<i64>> =
            transaction.query_row(sql, [path], |row| row.get(0)).optional()?;
        let bytes = usize::try_from(sum.flatten().unwrap_or(0)).unwrap_or(usize::MAX);
        if bytes > bytes_max {
            return Ok(Changed::TooLarge);
        }
        transaction.commit()?;
        Ok(Changed::All)
    }

    /// Removes the stored data of a path and all paths beneath it, as far as the files no longer
    /// exist.
    pub(in super::super) fn forget_gone(
        &mut self,
        path: &[u8],
        exists: fn(&[u8]) -> bool,
    ) -> rusqlite::Result<()> {
        let mut gone = self.known_paths(path)?;
        gone.retain(|path| !exists(path));
        if gone.is_empty() {
            return Ok(());
        }
        let transaction = self.connection.transaction()?;
        for path in &gone {
            transaction
                .prepare_cached("DELETE FROM lighty_property WHERE path = ?1")?
                .execute([path])?;
            transaction
                .prepare_cached("DELETE FROM lighty_lock WHERE path = ?1")?
                .execute([path])?;
        }
        transaction.commit()
    }

    /// Removes properties of an earlier file with a new file's path. Its locks stay.
    pub(in super::super) fn created(&mut self, path: &[u8]) -> rusqlite::Result<()> {
        let sql = "SELECT EXISTS (SELECT 1 FROM lighty_property WHERE path = ?1)";
        if !self.connection.prepare_cached(sql)?.query_row([path], |row| row.get(0))? {
            return Ok(());
        }
        let sql = "DELETE FROM lighty_property WHERE path = ?1";
        self.connection.prepare_cached(sql)?.execute([path]).map(drop)
    }

    /// Returns the path and the paths beneath it that have stored data.
    fn known_paths(&self, path: &[u8]) -> rusqlite::Result<Vec<Vec<u8>>> {
        let (from, to) = below(path);
        let sql = "SELECT path FROM lighty_property WHERE path = ?1 OR (path > ?2 AND path < ?3)
                   UNION SELECT path FROM lighty_lock WHERE path = ?1 OR (path > ?2 AND path < ?3)";
        let mut query = self.connection.prepare_cached(sql)?;
        let rows = query.query_map(params![path, from, to], |row| row.get(0))?;
        rows.collect()
    }

    /// Records a copy: the target gets the properties of the source and loses its own data, except
    /// a lock on itself.
    pub(in super::super) fn copied(
        &mut self,
        source: &[u8],
        target: &[u8],
        whole: bool,
    ) -> rusqlite::Result<()> {
        if self.known_paths(source)?.is_empty() && self.known_paths(target)?.is_empty() {
            return Ok(());
        }
        let transaction = self.connection.transaction()?;
        replace_target(&transaction, target)?;
        let (from, to) = below(source);
        let columns = "CAST(?1 || substr(path, ?2) AS BLOB), ns, name, xml FROM lighty_property";
        let rest = i64::try_from(source.len() + 1).unwrap_or(i64::MAX);
        transaction.execute(
            &format!("INSERT INTO lighty_property SELECT {columns} WHERE path = ?3"),
            params![target, rest, source],
        )?;
        if whole {
            transaction.execute(
                &format!(
                    "INSERT INTO lighty_property SELECT {columns} WHERE path > ?3 AND path < ?4"
                ),
                params![target, rest, from, to],
            )?;
        }
        transaction.commit()
    }

    /// Records a move before it happens. If the process dies after the move, its properties follow
    /// when the database is opened again.
    pub(in super::super) fn moving(
        &mut self,
        source: &[u8],
        target: &[u8],
    ) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO lighty_move (source, target) VALUES (?1, ?2)";
        self.connection.execute(sql, params![source, target]).map(drop)
    }

    /// Removes the record of a move that failed.
    pub(in super::super) fn not_moved(&mut self, source: &[u8]) -> rusqlite::Result<()> {
        let sql = "DELETE FROM lighty_move WHERE source = ?1";
        self.connection.execute(sql, [source]).map(drop)
    }

    /// Records the move of a file and all its members: properties follow, locks do not (RFC 4918
    /// section 7.6).
    pub(in super::super) fn moved(&mut self, source: &[u8], target: &[u8]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        replace_target(&transaction, target)?;
        let (from, to) = below(source);
        let rest = i64::try_from(source.len() + 1).unwrap_or(i64::MAX);
        transaction.execute(
            "UPDATE lighty_property SET path = CAST(?1 || substr(path, ?2) AS BLOB)
             WHERE path = ?3 OR (path > ?4 AND path < ?5)",
            params![target, rest, source, from, to],
        )?;
        transaction.execute(
            "DELETE FROM lighty_lock WHERE path = ?1 OR (path > ?2 AND path < ?3)",
            params![source, from, to],
        )?;
        transaction.execute("DELETE FROM lighty_move WHERE source = ?1", [source])?;
        transaction.commit()
    }
}

fn replace_target(transaction: &Transaction<'_>, target: &[u8]) -> rusqlite::Result<()> {
    forget_properties(transaction, target)?;
    let (from, to) = below(target);
    transaction
        .execute("DELETE FROM lighty_lock WHERE path > ?1 AND path < ?2", params![from, to])
        .map(drop)
}

fn forget_properties(transaction: &Transaction<'_>, path: &[u8]) -> rusqlite::Result<()> {
    let (from, to) = below(path);
    transaction
        .execute(
            "DELETE FROM lighty_property WHERE path = ?1 OR (path > ?2 AND path < ?3)",
            params![path, from, to],
        )
        .map(drop)
}
