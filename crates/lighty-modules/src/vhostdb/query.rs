//! Lookups, on threads of their own.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_identity::directory::{Directory, DirectoryError, DirectorySearch};
use lighty_io::clock::deadline::Deadline;

use super::settings::{LdapVhosts, SqliteVhosts, VhostSource};
use super::sqlite::{self, Sqlite};

/// Databases and directories in use.
#[derive(Default)]
pub(super) struct HostSources {
    databases: Mutex<ByOptions<SqliteVhosts, Sqlite>>,
    directories: Mutex<ByOptions<LdapVhosts, Directory>>,
}

type ByOptions<K, T> = HashMap<Arc<K>, T, foldhash::fast::RandomState>;

/// Reason why a host's document root is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostLookupError {
    /// The thread of the database.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The database.
    #[error("{0}")]
    Sql(#[from] rusqlite::Error),
    /// The directory.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// More than one entry matches.
    #[error("vhostdb.ldap finds several entries for the host")]
    Ambiguous,
    /// The base of the search.
    #[error("vhostdb.ldap: the base \"{0}\" does not exist or may not be read")]
    NoBase(Arc<str>),
}

impl HostSources {
    /// The document root of a host; `None` if it has no entry.
    pub(super) async fn look_up(
        &self,
        source: VhostSource<'_>,
        host: &str,
    ) -> Result<Option<String>, HostLookupError> {
        match source {
            VhostSource::Sqlite(options) => {
                let database = shared(&self.databases, options, || sqlite::start(&options.path))?;
                let (options, host) = (Arc::clone(options), host.to_owned());
                let found =
                    database.run(move |database| sqlite::first(database, &options.sql, &host));
                Ok(found.await??)
            }
            VhostSource::Ldap(options) => {
                let make = || Ok(Directory::new(Arc::new(options.directory.clone())));
                let directory = shared(&self.directories, options, make)?;
                from_directory(&directory, options, host).await
            }
        }
    }
}

async fn from_directory(
    directory: &Directory,
    options: &LdapVhosts,
    host: &str,
) -> Result<Option<String>, HostLookupError> {
    let search = DirectorySearch {
        base: Arc::clone(&options.base),
        filter: options.filter.search(host),
        attribute: Some(Arc::clone(&options.attribute)),
        entries_max: 2,
    };
    let deadline = Deadline::after(options.directory.timeout * 2);
    let mut found = directory.search(search, deadline).await?;
    if found.is_without_base {
        return Err(HostLookupError::NoBase(Arc::clone(&options.base)));
    }
    if found.has_more || found.entries.len() > 1 {
        return Err(HostLookupError::Ambiguous);
    }
    let root = found.entries.pop().and_then(|entry| entry.values.into_iter().next());
    Ok(root.filter(|root| !root.is_empty()))
}

/// The one for these options. Entries of configurations that have ended are dropped.
fn shared<K: Eq + Hash, T: Clone>(
    all: &Mutex<ByOptions<K, T>>,
    options: &Arc<K>,
    make: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(one) = all.get(options) {
        return Ok(one.clone());
    }
    let one = make()?;
    all.retain(|options, _| Arc::strong_count(options) > 1);
    all.insert(Arc::clone(options), one.clone());
    Ok(one)
}
