//! A connection to one server.

use std::sync::Arc;
use std::time::Duration;

use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, Scope, SearchEntry, SearchOptions, StdStream};
use lighty_io::connect::resolve::{LookupQuery, ResolveOptions, Resolver};
use lighty_io::connect::{ConnectOptions, DetachedSocket, Target, connect_detached};
use rustls::ClientConfig;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::channel::{ChannelFault, ChannelTls, relay, secure};
use super::error::ServerFailure;
use super::options::DirectoryOptions;
use super::results::{code, failed_call, lost, shown};
use super::server::DirectoryServer;
use super::thread::EndOnDrop;
use super::{DirectoryEntry, DirectorySearch, FoundEntries};

/// Name servers and hosts of the system; one for all directories.
static RESOLVER: std::sync::LazyLock<Resolver> =
    std::sync::LazyLock::new(|| Resolver::new(ResolveOptions::default()));

/// The answer to a bind.
pub(super) enum BindAnswer {
    Accepted,
    /// The password is wrong, or the entry may not bind; with the server's message.
    Denied(String),
}

/// A connection. Dropping it closes it.
pub(super) struct Connection {
    ldap: Ldap,
    driver: tokio::task::JoinHandle<()>,
    fault: ChannelFault,
    _ends: [EndOnDrop; 2],
    /// Its server's place in the list.
    pub(super) server: usize,
}

impl Connection {
    /// Connects, and performs the TLS handshake if there is to be one: if it fails, nothing is sent
    /// in the clear.
    pub(super) async fn open(
        at: usize,
        server: &DirectoryServer,
        starttls: bool,
        tls: Option<Arc<ClientConfig>>,
        patience: Duration,
    ) -> Result<Self, ServerFailure> {
        let tls = tls.zip(server.host());
        let tls = tls.map(|(config, host)| ChannelTls {
            config,
            host: host.to_owned(),
            starts_clear: starttls && !server.is_tls(),
        });
        let opened = timeout(patience, async {
            let channel = secure(connect_to(server, patience).await?, tls).await?;
            let (ours, theirs) = UnixStream::pair().map_err(lost)?;
            let fault = ChannelFault::default();
            let relay = tokio::spawn(relay(channel, ours, fault.clone()));
            let relay = EndOnDrop(relay.abort_handle());
            let theirs = StdStream::Unix(theirs.into_std().map_err(lost)?);
            let settings = LdapConnSettings::new().set_std_stream(theirs);
            let opened = LdapConnAsync::with_settings(settings, "ldapi:///").await;
            let (connection, ldap) = opened.map_err(failed_call)?;
            Ok((connection, ldap, fault, relay))
        });
        let opened = opened.await.map_err(|_| ServerFailure::Timeout)?;
        let (connection, ldap, fault, relay) = opened?;
        let driver = tokio::spawn(async move { drop(connection.drive().await) });
        let ends = [EndOnDrop(driver.abort_handle()), relay];
        Ok(Self { ldap, driver, fault, _ends: ends, server: at })
    }

    /// True if the server has not closed it, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }

    /// Binds as the user that searches, unless there is none.
    pub(super) async fn bind_as_searcher(
        &mut self,
        options: &DirectoryOptions,
        patience: Duration,
    ) -> Result<(), ServerFailure> {
        if options.bind_dn.is_empty() {
            return Ok(());
        }
        let password = options.bind_password.read()?;
        match self.bind(&options.bind_dn, &password, patience).await? {
            BindAnswer::Accepted => Ok(()),
            BindAnswer::Denied(reason) => {
                Err(ServerFailure::Refused(format!("bind as \"{}\": {reason}", options.bind_dn)))
            }
        }
    }

    pub(super) async fn bind(
        &mut self,
        dn: &str,
        password: &str,
        patience: Duration,
    ) -> Result<BindAnswer, ServerFailure> {
        let bound = timeout(patience, self.ldap.simple_bind(dn, password)).await;
        let bound = bound.map_err(|_| ServerFailure::Timeout)?;
        let result = bound.map_err(|error| self.fault.or(failed_call(error)))?;
        match result.rc {
            code::SUCCESS => Ok(BindAnswer::Accepted),
            code::BUSY | code::UNAVAILABLE => Err(ServerFailure::Busy(shown(&result))),
            code::OPERATIONS_ERROR
            | code::PROTOCOL_ERROR
            | code::AUTH_METHOD_NOT_SUPPORTED
            | code::STRONGER_AUTH_REQUIRED
            | code::REFERRAL
            | code::CONFIDENTIALITY_REQUIRED
            | code::OTHER => Err(ServerFailure::Refused(shown(&result))),
            _ => Ok(BindAnswer::Denied(shown(&result))),
        }
    }

    pub(super) async fn search(
        &mut self,
        search: &DirectorySearch,
        patience: Duration,
    ) -> Result<FoundEntries, ServerFailure> {
        // "1.1": no attributes (RFC 4511 section 4.5.1.8).
        let attribute = search.attribute.as_deref().unwrap_or("1.1");
        let seconds = i32::try_from(patience.as_secs() + 1).unwrap_or(i32::MAX);
        let options = SearchOptions::new().sizelimit(search.entries_max).timelimit(seconds);
        let ldap = self.ldap.with_search_options(options);
        let searched = ldap.search(&search.base, Scope::Subtree, &search.filter, [attribute]);
        let searched = timeout(patience, searched).await.map_err(|_| ServerFailure::Timeout)?;
        let searched = searched.map_err(|error| self.fault.or(failed_call(error)));
        let ldap3::SearchResult(entries, result) = searched?;
        match result.rc {
            code::SUCCESS | code::SIZE_LIMIT_EXCEEDED => {}
            code::NO_SUCH_OBJECT => {
                return Ok(FoundEntries { is_without_base: true, ..FoundEntries::default() });
            }
            code::TIME_LIMIT_EXCEEDED
            | code::ADMIN_LIMIT_EXCEEDED
            | code::BUSY
            | code::UNAVAILABLE => return Err(ServerFailure::Busy(shown(&result))),
            _ => return Err(ServerFailure::Refused(shown(&result))),
        }
        let entry = |entry| {
            let SearchEntry { dn, attrs, .. } = SearchEntry::construct(entry);
            let of_attribute =
                attrs.into_iter().filter(|(name, _)| name.eq_ignore_ascii_case(attribute));
            DirectoryEntry { dn, values: of_attribute.flat_map(|(_, values)| values).collect() }
        };
        Ok(FoundEntries {
            entries: entries.into_iter().map(entry).collect(),
            has_more: result.rc == code::SIZE_LIMIT_EXCEEDED,
            is_without_base: false,
        })
    }
}

async fn connect_to(
    server: &DirectoryServer,
    patience: Duration,
) -> Result<DetachedSocket, ServerFailure> {
    let options = ConnectOptions::default();
    let (host, port) = match server {
        DirectoryServer::Unix(path) => {
            return connect_detached(&Target::unix(path), &options).await.map_err(lost);
        }
        DirectoryServer::Tcp { host, port, .. } => (host.clone(), *port),
    };
    let found = RESOLVER.lookup(&LookupQuery::Host { host, port }).await;
    let endpoints = found.map_err(|error| ServerFailure::Lost(error.to_string()))?.endpoints;
    // One address must not take the time of the others.
    let share = patience / u32::try_from(endpoints.len().max(1)).unwrap_or(u32::MAX);
    let mut failed = ServerFailure::Timeout;
    for endpoint in endpoints.iter() {
        let target = Target::Tcp(endpoint.address);
        match timeout(share, connect_detached(&target, &options)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => failed = lost(error),
            Err(_) => failed = ServerFailure::Timeout,
        }
    }
    Err(failed)
}
