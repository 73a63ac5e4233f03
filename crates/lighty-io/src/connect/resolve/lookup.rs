//! Answers one question from the hosts file, else from the name servers.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::config::ResolveHosts;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::{Hosts, TokioResolver};

pub(super) use super::system::Files;
use super::{
    ENDPOINTS_MAX, Endpoint, HOSTS_TTL_MS, LookupFamily, LookupQuery, LookupResult, ResolveError,
    ResolveOptions, SERVICE_HOSTS_MAX, unpoisoned,
};

/// Requests to a name server before it counts as silent.
const ATTEMPTS: u32 = 2;

/// Answers questions; reads its files again when they change.
pub(super) struct Asker {
    options: Arc<ResolveOptions>,
    sources: Mutex<Sources>,
}

struct Sources {
    files: Files,
    dns: Result<Arc<TokioResolver>, ResolveError>,
    hosts: Arc<Hosts>,
}

/// Addresses of one host and their TTL.
struct HostAddresses {
    addresses: Vec<IpAddr>,
    ttl_ms: u64,
}

impl Asker {
    pub(super) fn new(options: Arc<ResolveOptions>, files: Files) -> Asker {
        let sources = Mutex::new(Sources::new(&options, files));
        Asker { options, sources }
    }

    pub(super) async fn ask(&self, question: &LookupQuery) -> Result<LookupResult, ResolveError> {
        // Longer than the timeouts of single servers, whose number the system's file determines.
        let limit = Duration::from_millis(self.options.timeout_ms.saturating_mul(4));
        let looked_up = async {
            match question {
                LookupQuery::Host { host, port } => self.ask_host(host, *port).await,
                LookupQuery::Service(name) => self.ask_service(name).await,
            }
        };
        let (mut endpoints, ttl_ms) =
            tokio::time::timeout(limit, looked_up).await.unwrap_or(Err(ResolveError::Timeout))?;
        if endpoints.is_empty() {
            return Err(ResolveError::NoSuchName(question.to_string()));
        }
        // Servers rotate their answers; sorting distinguishes a change from a rotation.
        endpoints.sort_unstable();
        endpoints.dedup();
        endpoints.truncate(ENDPOINTS_MAX);
        let ttl_ms = ttl_ms.min(self.options.ttl_ms_max).max(self.options.ttl_ms_min);
        Ok(LookupResult { endpoints: endpoints.into(), ttl_ms: Some(ttl_ms) })
    }

    async fn ask_host(&self, host: &str, port: u16) -> Result<(Vec<Endpoint>, u64), ResolveError> {
        let found = self.addresses(&parse(host)?).await?;
        let shared: Arc<str> = host.into();
        let endpoint = |address| Endpoint {
            priority: 0,
            address: SocketAddr::new(address, port),
            weight: 0,
            host: Arc::clone(&shared),
        };
        Ok((found.addresses.into_iter().map(endpoint).collect(), found.ttl_ms))
    }

    async fn ask_service(&self, name: &str) -> Result<(Vec<Endpoint>, u64), ResolveError> {
        let records = self.query(&parse(name)?, RecordType::SRV).await?;
        let mut ttl_ms = lifetime_ms(&records);
        let mut endpoints = Vec::new();
        let mut failed = None;
        let hosts = records.iter().filter_map(|record| match &record.data {
            // RFC 2782: a target of "." means that the service is not available here.
            RData::SRV(service) if !service.target.is_root() => Some(service),
            _ => None,
        });
        for service in hosts.take(SERVICE_HOSTS_MAX) {
            match self.addresses(&service.target).await {
                Ok(found) => {
                    ttl_ms = ttl_ms.min(found.ttl_ms);
                    endpoints.extend(service_endpoints(service, found.addresses));
                }
                // Hosts that resolve replace the ones that do not.
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if endpoints.is_empty() => Err(error),
            // Retry the missing hosts soon.
            Some(_) => Ok((endpoints, ttl_ms.min(self.options.retry_ms_max))),
            None => Ok((endpoints, ttl_ms)),
        }
    }

    /// The addresses of a host: of the configured family, or of any.
    async fn addresses(&self, name: &Name) -> Result<HostAddresses, ResolveError> {
        if let Some(found) = self.listed(name) {
            return Ok(found);
        }
        let records = match self.options.family {
            LookupFamily::V4 => self.query(name, RecordType::A).await?,
            LookupFamily::V6 => self.query(name, RecordType::AAAA).await?,
            LookupFamily::Any => {
                let (v4, v6) = tokio::join!(
                    self.query(name, RecordType::A),
                    self.query(name, RecordType::AAAA)
                );
                either(v4, v6)?
            }
        };
        let addresses = records.iter().filter_map(|record| record.data.ip_addr()).collect();
        Ok(HostAddresses { addresses, ttl_ms: lifetime_ms(&records) })
    }

    /// Looks a name up in the hosts file.
    fn listed(&self, name: &Name) -> Option<HostAddresses> {
        let hosts = Arc::clone(&self.fresh_sources().hosts);
        let kinds: &[RecordType] = match self.options.family {
            LookupFamily::V4 => &[RecordType::A],
            LookupFamily::V6 => &[RecordType::AAAA],
            LookupFamily::Any => &[RecordType::A, RecordType::AAAA],
        };
        let lookups = kinds
            .iter()
            .filter_map(|kind| hosts.lookup_static_host(&Query::query(name.to_lowercase(), *kind)));
        let records: Vec<Record> = lookups.flat_map(|lookup| lookup.answers().to_vec()).collect();
        let addresses: Vec<IpAddr> =
            records.iter().filter_map(|record| record.data.ip_addr()).collect();
        (!addresses.is_empty()).then_some(HostAddresses { addresses, ttl_ms: HOSTS_TTL_MS })
    }

    async fn query(&self, name: &Name, kind: RecordType) -> Result<Vec<Record>, ResolveError> {
        let dns = self.fresh_sources().dns.clone()?;
        match dns.lookup(name.clone(), kind).await {
            Ok(lookup) => Ok(lookup.answers().to_vec()),
            Err(error) => Err(blame(&error)),
        }
    }

    fn fresh_sources(&self) -> std::sync::MutexGuard<'_, Sources> {
        let mut sources = unpoisoned(&self.sources);
        if sources.files.is_outdated(&self.options) {
            *sources = Sources::new(&self.options, Files::read(&self.options));
        }
        sources
    }
}

impl Sources {
    fn new(options: &ResolveOptions, mut files: Files) -> Sources {
        let dns = connect_to_servers(options, &files).map(Arc::new);
        let hosts = Arc::new(std::mem::take(&mut files.hosts));
        Sources { files, dns, hosts }
    }
}

fn connect_to_servers(
    options: &ResolveOptions,
    files: &Files,
) -> Result<TokioResolver, ResolveError> {
    let (config, system) = files.servers.clone();
    let provider = TokioRuntimeProvider::default();
    let mut builder = TokioResolver::builder_with_config(config, provider);
    let opts = builder.options_mut();
    *opts = system;
    opts.timeout = Duration::from_millis(options.timeout_ms.max(1));
    opts.attempts = ATTEMPTS as usize - 1;
    // The watches cache answers, with limits of their own, and read the hosts file themselves.
    opts.cache_size = 0;
    opts.use_hosts_file = ResolveHosts::Never;
    // The lifetime of an answer is that of the shortest-lived link in the chain of aliases.
    opts.preserve_intermediates = true;
    builder.build().map_err(|error| ResolveError::Failed(error.to_string()))
}

fn parse(name: &str) -> Result<Name, ResolveError> {
    Name::from_utf8(name).map_err(|error| ResolveError::BadName(format!("{name}: {error}")))
}

/// Merges the records of two answers; an error only if both are errors, the more specific one.
fn either(
    v4: Result<Vec<Record>, ResolveError>,
    v6: Result<Vec<Record>, ResolveError>,
) -> Result<Vec<Record>, ResolveError> {
    match (v4, v6) {
        (Ok(mut records), Ok(more)) => {
            records.extend(more);
            Ok(records)
        }
        (Ok(records), Err(_)) | (Err(_), Ok(records)) => Ok(records),
        (Err(ResolveError::NoSuchName(_)), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

fn service_endpoints(service: &SRV, addresses: Vec<IpAddr>) -> impl Iterator<Item = Endpoint> {
    let written = service.target.to_utf8();
    let host: Arc<str> = written.trim_end_matches('.').into();
    let (priority, weight, port) = (service.priority, service.weight, service.port);
    addresses.into_iter().map(move |address| Endpoint {
        priority,
        address: SocketAddr::new(address, port),
        weight,
        host: Arc::clone(&host),
    })
}

fn lifetime_ms(records: &[Record]) -> u64 {
    records.iter().map(|record| u64::from(record.ttl) * 1_000).min().unwrap_or(0)
}

fn blame(error: &NetError) -> ResolveError {
    match error {
        NetError::Timeout => ResolveError::Timeout,
        NetError::Dns(DnsError::NoRecordsFound(none)) => {
            ResolveError::NoSuchName(format!("{} ({})", none.query.name(), none.response_code))
        }
        other => ResolveError::Failed(other.to_string()),
    }
}
