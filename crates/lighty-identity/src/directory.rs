//! Directories of users and hosts (LDAP, RFC 4511).
//!
//! Reading order: `server` (addresses) · `options` · `filter` (names of users in filters) ·
//! `accounts` (logins and groups) · this file (searches and binds over all servers of a directory)
//! · `connection` (one connection to one server) · `channel` (its bytes) · `messages` (limits) ·
//! `results` · `idle` (connections that are kept) · `thread`.
//!
//! All network traffic happens on one thread with a runtime of its own. Callers may wait on any
//! runtime; dropping a call closes its connection.

mod accounts;
mod channel;
mod connection;
mod error;
mod filter;
mod idle;
pub mod messages;
mod options;
mod results;
mod server;
mod thread;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lighty_io::clock::deadline::Deadline;
use lighty_io::tls::library_config;
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub use accounts::{DirectoryAccounts, Login};
pub use error::{DirectoryError, FilterError};
pub use filter::{HostFilter, UserFilter};
pub use options::{BindPassword, ClientPair, DirectoryOptions, TIMEOUT_DEFAULT};
pub use server::{DirectoryServer, SERVERS_MAX, ServerTextError};

use connection::{BindAnswer, Connection};
use error::ServerFailure;
use idle::IdleConnections;
use thread::on_thread;

/// Time for which a server that failed comes after the others.
const AVOIDED: Duration = Duration::from_secs(30);

/// Maximum number of connections that search at the same time.
pub const SEARCHES_MAX: usize = 8;

/// Lifetime of files read for TLS, so that renewed certificates are used.
const TLS_LIFETIME: Duration = Duration::from_secs(60);

/// A search in a subtree.
#[derive(Clone, Debug)]
pub struct DirectorySearch {
    /// The name of the entry at the subtree's root.
    pub base: Arc<str>,
    /// The filter (RFC 4515).
    pub filter: String,
    /// The attribute that is wanted of each entry; `None`: only their names.
    pub attribute: Option<Arc<str>>,
    /// Maximum number of entries.
    pub entries_max: i32,
}

/// An entry that a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its distinguished name.
    pub dn: String,
    /// The values of the attribute.
    pub values: Vec<String>,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundEntries {
    /// The entries, at most as many as were asked for.
    pub entries: Vec<DirectoryEntry>,
    /// The directory has more of them.
    pub has_more: bool,
    /// The base does not exist, or may not be seen.
    pub is_without_base: bool,
}

/// A directory. Clones share its connections.
#[derive(Clone)]
pub struct Directory(Arc<Servers>);

/// The servers of a directory.
struct Servers {
    options: Arc<DirectoryOptions>,
    /// For each server the time until which it comes after the others.
    avoided: Mutex<Vec<Option<Deadline>>>,
    idle: IdleConnections,
    searches: Semaphore,
    tls: Mutex<Option<(Deadline, Arc<ClientConfig>)>>,
}

impl Directory {
    /// Creates a directory, without connecting.
    pub fn new(options: Arc<DirectoryOptions>) -> Self {
        Self(Arc::new(Servers {
            avoided: Mutex::new(vec![None; options.servers.len()]),
            options,
            idle: IdleConnections::default(),
            searches: Semaphore::new(SEARCHES_MAX),
            tls: Mutex::default(),
        }))
    }

    /// Its options.
    pub fn options(&self) -> &Arc<DirectoryOptions> {
        &self.0.options
    }

    /// Searches, as the user of the options.
    ///
    /// # Errors
    /// No server answers in time, or they refuse the search.
    pub async fn search(
        &self,
        search: DirectorySearch,
        deadline: Deadline,
    ) -> Result<FoundEntries, DirectoryError> {
        let servers = Arc::clone(&self.0);
        on_thread(async move { servers.search(&search, deadline).await }).await?
    }

    /// Checks the password of an entry: true if it is right. The connection is used for nothing
    /// else.
    ///
    /// # Errors
    /// No server answers in time, or they do not check passwords.
    pub async fn verify(
        &self,
        dn: String,
        password: String,
        deadline: Deadline,
    ) -> Result<bool, DirectoryError> {
        let servers = Arc::clone(&self.0);
        on_thread(async move { servers.verify(&dn, &password, deadline).await }).await?
    }
}

impl Servers {
    async fn search(
        self: &Arc<Self>,
        search: &DirectorySearch,
        deadline: Deadline,
    ) -> Result<FoundEntries, DirectoryError> {
        let turn = timeout(deadline.left(), self.searches.acquire()).await;
        let _turn = turn.map_err(|_| DirectoryError::Late)?;
        if let Some(mut kept) = self.idle.take() {
            // The server may have closed it meanwhile; a fresh one replaces it then.
            match kept.search(search, self.patience(deadline)).await {
                Err(failure) if failure.is_of_server() => {
                    if failure.is_timeout() {
                        self.avoid(kept.server);
                    }
                }
                done => return self.finish(kept, done),
            }
        }
        let mut failed = DirectoryError::Late;
        for _ in 0..self.options.servers.len() {
            let mut fresh = self.connect(deadline).await?;
            let mut done = fresh.bind_as_searcher(&self.options, self.patience(deadline)).await;
            if done.is_ok() {
                match fresh.search(search, self.patience(deadline)).await {
                    Err(failure) if failure.is_of_server() => done = Err(failure),
                    done => return self.finish(fresh, done),
                }
            }
            if let Err(failure) = done {
                failed = self.blame(fresh.server, failure)?;
            }
        }
        Err(failed)
    }

    /// Keeps the connection of a search that has ended.
    fn finish(
        self: &Arc<Self>,
        connection: Connection,
        done: Result<FoundEntries, ServerFailure>,
    ) -> Result<FoundEntries, DirectoryError> {
        let server = connection.server;
        if done.is_ok() {
            self.idle.keep(connection, self);
        }
        done.map_err(|failure| failure.of(&self.options.servers[server]))
    }

    async fn verify(
        &self,
        dn: &str,
        password: &str,
        deadline: Deadline,
    ) -> Result<bool, DirectoryError> {
        let mut failed = DirectoryError::Late;
        for _ in 0..self.options.servers.len() {
            let mut connection = self.connect(deadline).await?;
            match connection.bind(dn, password, self.patience(deadline)).await {
                Ok(BindAnswer::Accepted) => return Ok(true),
                Ok(BindAnswer::Denied(_)) => return Ok(false),
                Err(failure) => failed = self.blame(connection.server, failure)?,
            }
        }
        Err(failed)
    }

    /// Connects to the first server that can be reached.
    async fn connect(&self, deadline: Deadline) -> Result<Connection, DirectoryError> {
        let mut failed = DirectoryError::Late;
        for at in self.order() {
            if deadline.is_over() {
                break;
            }
            let server = &self.options.servers[at];
            let tls = match server.needs_tls(self.options.starttls) {
                true => Some(self.tls()?),
                false => None,
            };
            let starts_tls = self.options.starttls;
            match Connection::open(at, server, starts_tls, tls, self.patience(deadline)).await {
                Ok(connection) => {
                    self.avoided()[at] = None;
                    return Ok(connection);
                }
                Err(failure) => failed = self.blame(at, failure)?,
            }
        }
        Err(failed)
    }

    /// Records the failure of a server, which comes after the others for a while.
    ///
    /// # Errors
    /// The failure, if no other server can do better.
    fn blame(&self, at: usize, failure: ServerFailure) -> Result<DirectoryError, DirectoryError> {
        let is_of_server = failure.is_of_server();
        let error = failure.of(&self.options.servers[at]);
        if !is_of_server {
            return Err(error);
        }
        self.avoid(at);
        Ok(error)
    }

    fn avoid(&self, at: usize) {
        self.avoided()[at] = Some(Deadline::after(AVOIDED));
    }

    /// The servers as written, failed ones at the end.
    fn order(&self) -> Vec<usize> {
        let avoided = self.avoided();
        let mut order: Vec<usize> = (0..avoided.len()).collect();
        order.sort_by_key(|at| avoided[*at].is_some_and(|until| !until.is_over()));
        order
    }

    fn avoided(&self) -> std::sync::MutexGuard<'_, Vec<Option<Deadline>>> {
        self.avoided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time for the next step.
    fn patience(&self, deadline: Deadline) -> Duration {
        self.options.timeout.min(deadline.left())
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, DirectoryError> {
        let mut kept = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((until, config)) = &*kept
            && !until.is_over()
        {
            return Ok(Arc::clone(config));
        }
        let pair = self.options.pair.as_ref().map(ClientPair::files);
        let config = library_config(self.options.ca_file.as_deref(), pair.as_ref())?;
        *kept = Some((Deadline::after(TLS_LIFETIME), Arc::clone(&config)));
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(text: &str) -> Servers {
        let servers = DirectoryServer::parse_list(text).expect("servers").into();
        let options = Arc::new(DirectoryOptions { servers, ..DirectoryOptions::default() });
        Arc::into_inner(Directory::new(options).0).expect("one owner")
    }

    #[test]
    fn server_that_failed_comes_last() {
        let servers = servers("a.test, b.test, c.test");
        assert_eq!(servers.order(), [0, 1, 2]);
        servers.avoid(0);
        assert_eq!(servers.order(), [1, 2, 0]);
        servers.avoid(2);
        assert_eq!(servers.order(), [1, 0, 2]);
        servers.avoided()[0] = Some(Deadline::after(Duration::ZERO));
        assert_eq!(servers.order(), [0, 1, 2]);
    }

    #[test]
    fn refusal_is_final_and_lost_connection_is_not() {
        let servers = servers("a.test, b.test");
        let refused = servers.blame(0, ServerFailure::Refused("no".to_owned()));
        assert_eq!(refused.expect_err("final").to_string(), "ldap://a.test: no");
        assert_eq!(servers.order(), [0, 1]);
        let lost = servers.blame(0, ServerFailure::Lost("gone".to_owned())).expect("another one");
        assert!(lost.is_unreachable(), "{lost}");
        assert_eq!(servers.order(), [1, 0]);
    }
}
