//! Locks: RFC 4918 sections 6 and 7.

use lighty_io::file::tree::CanonicalPath;
use rusqlite::{Row, params};

use super::{Db, below};

/// A lock held by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Lock {
    /// `urn:uuid:...`.
    pub(in super::super) token: String,
    /// The canonical path of the locked file.
    pub(in super::super) path: Vec<u8>,
    /// The decoded path of the URL by which it was locked.
    pub(in super::super) url: Vec<u8>,
    /// The lock covers all members too.
    pub(in super::super) infinite: bool,
    pub(in super::super) exclusive: bool,
    /// The client's XML description of the owner.
    pub(in super::super) owner: String,
    /// The authenticated user; empty without authentication.
    pub(in super::super) user: Vec<u8>,
    /// Seconds since 1970.
    pub(in super::super) expires_s: i64,
}

/// A requested lock.
#[derive(Clone, Debug)]
pub(in super::super) struct NewLock {
    pub(in super::super) lock: Lock,
    /// Links on the path to the file.
    pub(in super::super) links: Vec<Vec<u8>>,
}

/// A file to be changed.
#[derive(Clone, Debug)]
pub(in super::super) struct Covered {
    pub(in super::super) canonical: CanonicalPath,
    /// All members are included.
    pub(in super::super) tree: bool,
}

/// Files that a client wants to change, and the lock tokens it submitted.
#[derive(Clone, Debug)]
pub(in super::super) struct WriteClaim {
    pub(in super::super) paths: Vec<Covered>,
    /// Submitted lock tokens.
    pub(in super::super) tokens: Vec<String>,
    pub(in super::super) user: Vec<u8>,
}

/// Result of a lock request.
#[derive(Debug)]
pub(in super::super) enum Taken {
    Yes,
    /// Conflicting locks.
    Conflict(Vec<Lock>),
    /// A write to the file is in progress.
    Busy,
    /// `webdav.max-locks` is reached.
    TooMany,
}

/// Result of a refresh request.
#[derive(Debug)]
pub(in super::super) enum Refresh {
    Done(Lock),
    /// The path has no such lock.
    Unknown,
    /// The lock belongs to another user.
    NotYours,
}

const COLUMNS: &str = "token, path, url, infinite, exclusive, owner, user, expires_s";

fn lock_of(row: &Row<'_>) -> rusqlite::Result<Lock> {
    Ok(Lock {
        token: row.get(0)?,
        path: row.get(1)?,
        url: row.get(2)?,
        infinite: row.get(3)?,
        exclusive: row.get(4)?,
        owner: row.get(5)?,
        user: row.get(6)?,
        expires_s: row.get(7)?,
    })
}

impl Db {
    pub(super) fn has_locks(&self) -> rusqlite::Result<bool> {
        let mut query =
            self.connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM lighty_lock)")?;
        query.query_row([], |row| row.get(0))
    }

    /// Returns the locks that cover a path: its own, and infinite ones of collections that contain
    /// it through a link.
    pub(in super::super) fn locks_at(
        &self,
        canonical: &CanonicalPath,
        now_s: i64,
    ) -> rusqlite::Result<Vec<Lock>> {
        let mut locks = self.locks_on(&canonical.path, now_s)?;
        for link in &canonical.links {
            locks.extend(self.locks_around(link, &locks, now_s)?);
        }
        Ok(locks)
    }

    /// Returns the locks that cover a link, without the ones in `known`.
    fn locks_around(&self, link: &[u8], known: &[Lock], now_s: i64) -> rusqlite::Result<Vec<Lock>> {
        let mut locks = self.locks_on(link, now_s)?;
        locks.retain(|lock| known.iter().all(|known| known.token != lock.token));
        Ok(locks)
    }

    /// Returns the locks that cover a path: its own, and infinite ones of its ancestors.
    pub(super) fn locks_on(&self, path: &[u8], now_s: i64) -> rusqlite::Result<Vec<Lock>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM lighty_lock
             WHERE path = ?1 AND expires_s > ?2 AND (infinite OR ?3)"
        );
        let mut query = self.connection.prepare_cached(&sql)?;
        let mut locks = Vec::new();
        let mut end = path.len();
        loop {
            let own = end == path.len();
            let rows = query.query_map(params![&path[..end], now_s, own], lock_of)?;
            for lock in rows {
                locks.push(lock?);
            }
            match path[..end].iter().rposition(|byte| *byte == b'/') {
                Some(slash) if slash > 0 => end = slash,
                _ => return Ok(locks),
            }
        }
    }

    /// Returns the locks beneath a path.
    fn locks_below(&self, path: &[u8], now_s: i64) -> rusqlite::Result<Vec<Lock>> {
        let (from, to) = below(path);
        let sql = format!(
            "SELECT {COLUMNS} FROM lighty_lock WHERE path > ?1 AND path < ?2 AND expires_s > ?3"
        );
        let mut query = self.connection.prepare_cached(&sql)?;
        let rows = query.query_map(params![from, to, now_s], lock_of)?;
        rows.collect()
    }

    /// Returns the locks that block a claim. If a file has several shared locks, one token is
    /// enough (RFC 4918 section 6.2).
    pub(super) fn locks_against(
        &self,
        claim: &WriteClaim,
        now_s: i64,
    ) -> rusqlite::Result<Vec<Lock>> {
        let mut blocking = Vec::new();
        if !self.has_locks()? {
            return Ok(blocking);
        }
        let held = |lock: &Lock| claim.tokens.contains(&lock.token) && lock.user == claim.user;
        let mut note = |locks: Vec<Lock>| {
            if !locks.iter().any(held) {
                blocking.extend(locks);
            }
        };
        for Covered { canonical, tree } in &claim.paths {
            let own = self.locks_on(&canonical.path, now_s)?;
            for link in &canonical.links {
                note(self.locks_around(link, &own, now_s)?);
            }
            note(own);
            if *tree {
                let mut beneath = self.locks_below(&canonical.path, now_s)?;
                beneath.sort_by(|a, b| a.path.cmp(&b.path));
                beneath.chunk_by(|a, b| a.path == b.path).for_each(|locks| note(locks.to_vec()));
            }
        }
        Ok(blocking)
    }

    /// Takes a lock if no other conflicts, in one transaction: of two concurrent requests only one
    /// succeeds.
    pub(super) fn take_lock(
        &mut self,
        lock: &NewLock,
        now_s: i64,
        locks_max: u32,
    ) -> rusqlite::Result<Taken> {
        // Explicit SQL instead of a transaction object: the look-ups borrow the connection.
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let taken = self.take_lock_within(lock, now_s, locks_max);
        let end = if matches!(taken, Ok(Taken::Yes)) { "COMMIT" } else { "ROLLBACK" };
        match self.connection.execute_batch(end) {
            Err(error) if taken.is_ok() => {
                // The lock did not reach the disk, so it was not taken.
                let _ = self.connection.execute_batch("ROLLBACK");
                Err(error)
            }
            _ => taken,
        }
    }

    fn take_lock_within(
        &self,
        NewLock { lock, links }: &NewLock,
        now_s: i64,
        locks_max: u32,
    ) -> rusqlite::Result<Taken> {
        self.connection
            .prepare_cached("DELETE FROM lighty_lock WHERE expires_s <= ?1")?
            .execute([now_s])?;
        let canonical = CanonicalPath { path: lock.path.clone(), links: links.clone() };
        let mut others = self.locks_at(&canonical, now_s)?;
        if lock.infinite {
            others.extend(self.locks_below(&lock.path, now_s)?);
        }
        others.retain(|other| other.exclusive || lock.exclusive);
        if !others.is_empty() {
            return Ok(Taken::Conflict(others));
        }
        let count: u32 =
            self.connection.query_row("SELECT COUNT(*) FROM lighty_lock", [], |row| row.get(0))?;
        if count >= locks_max {
            return Ok(Taken::TooMany);
        }
        let sql =
            format!("INSERT INTO lighty_lock ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
        let Lock { token, path, url, infinite, exclusive, owner, user, expires_s } = lock;
        self.connection
            .prepare_cached(&sql)?
            .execute(params![token, path, url, infinite, exclusive, owner, user, expires_s])?;
        Ok(Taken::Yes)
    }

    /// Extends the lock that covers a path and has one of these tokens; it then lasts until
    /// `expires_s`.
    pub(in super::super) fn refresh_lock(
        &mut self,
        canonical: &CanonicalPath,
        tokens: &[String],
        user: &[u8],
        (now_s, expires_s): (i64, i64),
    ) -> rusqlite::Result<Refresh> {
        let mut locks = self.locks_at(canonical, now_s)?;
        locks.retain(|lock| tokens.contains(&lock.token));
        let Some(mut lock) = locks.into_iter().next() else { return Ok(Refresh::Unknown) };
        if lock.user != user {
            return Ok(Refresh::NotYours);
        }
        lock.expires_s = expires_s;
        let sql = "UPDATE lighty_lock SET expires_s = ?2 WHERE token = ?1";
        self.connection.prepare_cached(sql)?.execute(params![lock.token, expires_s])?;
        Ok(Refresh::Done(lock))
    }

    /// Removes a lock that covers a path.
    pub(in super::super) fn unlock(
        &mut self,
        canonical: &CanonicalPath,
        token: &str,
        user: &[u8],
        now_s: i64,
    ) -> rusqlite::Result<Refresh> {
        let mut locks = self.locks_at(canonical, now_s)?;
        locks.retain(|lock| lock.token == token);
        let Some(lock) = locks.into_iter().next() else { return Ok(Refresh::Unknown) };
        if lock.user != user {
            return Ok(Refresh::NotYours);
        }
        let sql = "DELETE FROM lighty_lock WHERE token = ?1";
        self.connection.prepare_cached(sql)?.execute([token])?;
        Ok(Refresh::Done(lock))
    }
}
