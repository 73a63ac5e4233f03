//! Backends given as DNS names: their current addresses, and notification of changes.
//!
//! lighty-io does the look-ups; this module turns endpoints into weighted addresses. [`addresses`]
//! holds all the rules and needs no DNS.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

use lighty_io::connect::Target;
use lighty_io::connect::resolve::{Endpoint, LookupQuery, NameWatch, Resolved, Resolver, Standing};

use crate::upstream::spec::{BackendAddress, BackendSpec, UpstreamSpec};

/// Maximum weight of an address.
pub(crate) const WEIGHT_MAX: u32 = 1_000;

/// A current address of a backend: as written, or found under its DNS name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedAddress {
    /// The backend's index in its upstream.
    pub backend: usize,
    /// Its name in logs and statistics: the backend as written; for a DNS name followed by `/` and
    /// the address.
    pub text: Arc<str>,
    pub target: Target,
    /// 0 to [`WEIGHT_MAX`]; 0 drains it.
    pub weight: u32,
    /// Used only while no other address is up.
    pub backup: bool,
}

/// Returns the DNS query for a backend; `None` for a literal address.
pub(crate) fn question(address: &BackendAddress) -> Option<LookupQuery> {
    match address {
        BackendAddress::Inet(_) | BackendAddress::Unix(_) => None,
        BackendAddress::Name { host, port } => {
            Some(LookupQuery::Host { host: host.as_ref().to_owned(), port: *port })
        }
        BackendAddress::Srv(name) => Some(LookupQuery::Service(name.as_ref().to_owned())),
    }
}

/// Returns the addresses of an upstream: `endpoints` maps a backend to the results of its look-up.
///
/// A host's addresses share the backend's requests if `split_hostnames` is set; otherwise the first
/// is used and the others are its backups. A service's records have weights and priorities (RFC
/// 2782): the lowest existing priority takes the requests, the others are backups. An address of
/// two names appears once, with the first name's values.
pub(crate) fn addresses(
    upstream: &UpstreamSpec,
    endpoints: impl Fn(usize) -> Arc<[Endpoint]>,
) -> Vec<NamedAddress> {
    let mut all: Vec<NamedAddress> = Vec::new();
    for (index, backend) in upstream.backends.iter().enumerate() {
        let of_backend = match &backend.address {
            BackendAddress::Inet(address) => vec![literal(index, backend, Target::Tcp(*address))],
            BackendAddress::Unix(path) => {
                vec![literal(index, backend, Target::unix(Path::new(path.as_ref())))]
            }
            BackendAddress::Name { .. } => {
                of_host(index, backend, &endpoints(index), upstream.split_hostnames)
            }
            BackendAddress::Srv(_) => of_service(index, backend, &endpoints(index)),
        };
        for address in of_backend {
            if !all.iter().any(|known| known.target == address.target) {
                all.push(address);
            }
        }
    }
    all
}

fn literal(index: usize, backend: &BackendSpec, target: Target) -> NamedAddress {
    NamedAddress {
        backend: index,
        text: Arc::clone(&backend.text),
        target,
        weight: backend.weight,
        backup: backend.backup,
    }
}

fn of_host(
    index: usize,
    backend: &BackendSpec,
    endpoints: &[Endpoint],
    is_split: bool,
) -> Vec<NamedAddress> {
    let of_endpoint = |(rank, endpoint): (usize, &Endpoint)| NamedAddress {
        text: text_of(backend, endpoint),
        backup: backend.backup || (!is_split && rank > 0),
        ..literal(index, backend, Target::Tcp(endpoint.address))
    };
    endpoints.iter().enumerate().map(of_endpoint).collect()
}

fn of_service(index: usize, backend: &BackendSpec, endpoints: &[Endpoint]) -> Vec<NamedAddress> {
    let lowest_priority = endpoints.iter().map(|endpoint| endpoint.priority).min();
    let heaviest = endpoints.iter().map(|e| service_weight(backend, e)).max().unwrap_or(1);
    let of_endpoint = |endpoint: &Endpoint| NamedAddress {
        text: text_of(backend, endpoint),
        weight: scaled(service_weight(backend, endpoint), heaviest),
        backup: backend.backup || Some(endpoint.priority) != lowest_priority,
        ..literal(index, backend, Target::Tcp(endpoint.address))
    };
    endpoints.iter().map(of_endpoint).collect()
}

/// A record's weight times the backend's. A record's 0 means a very small share (RFC 2782); a
/// backend's 0 drains it.
fn service_weight(backend: &BackendSpec, endpoint: &Endpoint) -> u64 {
    u64::from(endpoint.weight.max(1)) * u64::from(backend.weight)
}

/// Scales a weight to [`WEIGHT_MAX`]; a nonzero share stays nonzero.
fn scaled(weight: u64, heaviest: u64) -> u32 {
    let limit = u64::from(WEIGHT_MAX);
    let fits = if heaviest > limit { weight.saturating_mul(limit) / heaviest } else { weight };
    let fits = if weight > 0 { fits.max(1) } else { 0 };
    u32::try_from(fits).unwrap_or(WEIGHT_MAX)
}

fn text_of(backend: &BackendSpec, endpoint: &Endpoint) -> Arc<str> {
    Arc::from(format!("{}/{}", backend.text, endpoint.address))
}

/// The names of an upstream, kept resolved until this is dropped.
#[derive(Debug)]
pub(crate) struct UpstreamNames {
    upstream: Arc<UpstreamSpec>,
    /// Watches by backend; `None` for a literal address.
    watches: Vec<Option<NameWatch>>,
    /// Generation of each watch when the addresses were returned last.
    seen: Vec<u64>,
    /// Last reported standing of each watch.
    heard: Vec<Standing>,
}

impl UpstreamNames {
    /// Starts resolving the names of an upstream. Returns at once: unresolved names have no
    /// addresses yet.
    pub(crate) fn watch(upstream: Arc<UpstreamSpec>, resolver: &Resolver) -> UpstreamNames {
        let of_backend = |backend: &BackendSpec| {
            question(&backend.address).map(|requested| resolver.watch(&requested))
        };
        let watches: Vec<_> = upstream.backends.iter().map(of_backend).collect();
        let (seen, heard) = (vec![0; watches.len()], vec![Standing::Pending; watches.len()]);
        UpstreamNames { upstream, watches, seen, heard }
    }

    /// Returns the current addresses.
    pub(crate) fn current(&mut self) -> Vec<NamedAddress> {
        let resolved: Vec<Option<Arc<Resolved>>> =
            self.watches.iter().map(|watch| watch.as_ref().map(NameWatch::current)).collect();
        for (seen, now) in self.seen.iter_mut().zip(&resolved) {
            *seen = now.as_ref().map_or(0, |now| now.generation);
        }
        addresses(&self.upstream, |index| match resolved.get(index) {
            Some(Some(now)) => Arc::clone(&now.endpoints),
            _ => Arc::new([]),
        })
    }

    /// Returns the addresses, if any name has changed since the last call. Without a change this
    /// costs one load per name.
    pub(crate) fn changed(&mut self) -> Option<Vec<NamedAddress>> {
        let is_new = |(watch, seen): (&Option<NameWatch>, &u64)| {
            watch.as_ref().is_some_and(|watch| watch.generation() != *seen)
        };
        self.watches.iter().zip(&self.seen).any(is_new).then(|| self.current())
    }

    /// Waits until a name's addresses or standing change. Returns the backends with a new standing,
    /// perhaps none. Call [`changed`](Self::changed) before the next call: until then, a change of
    /// addresses ends the wait at once. Never returns if there is no name.
    pub(crate) async fn news(&mut self) -> Vec<(Arc<str>, Standing)> {
        let pairs = self.watches.iter().zip(self.seen.iter().zip(&self.heard));
        let mut changes: Vec<_> = pairs
            .filter_map(|(watch, (seen, heard))| {
                let is_news = |now: &Resolved| now.generation != *seen || now.standing != *heard;
                Some(Box::pin(watch.as_ref()?.until(is_news)))
            })
            .collect();
        poll_fn(|cx| {
            let mut polled = changes.iter_mut().map(|change| change.as_mut().poll(cx));
            if polled.any(|poll| poll.is_ready()) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(changes);
        let backends = self.upstream.backends.iter().zip(&self.watches).zip(&mut self.heard);
        let news = backends.filter_map(|((backend, watch), heard)| {
            let now = watch.as_ref()?.current().standing.clone();
            let is_new = *heard != now;
            heard.clone_from(&now);
            is_new.then(|| (Arc::clone(&backend.text), now))
        });
        news.collect()
    }

    /// Returns true if every name has been looked up once, successfully or not.
    pub(crate) fn are_settled(&self) -> bool {
        self.standings().all(|(_, standing)| standing != Standing::Pending)
    }

    /// Requests one early look-up of each name, because a backend may have moved. The resolver
    /// limits how often.
    pub(crate) fn refresh(&self) {
        self.watches.iter().flatten().for_each(NameWatch::refresh);
    }

    /// Returns the standing of each name's DNS response, for the log and the status page.
    pub(crate) fn standings(&self) -> impl Iterator<Item = (&str, Standing)> {
        let named = self.upstream.backends.iter().zip(&self.watches);
        named.filter_map(|(backend, watch)| {
            Some((backend.text.as_ref(), watch.as_ref()?.current().standing.clone()))
        })
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
