//! Statistics of upstreams and their addresses.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lighty_io::clock::Clock;

use crate::upstream::Upstream;
use crate::upstream::address::Address;
use crate::upstream::backend_tls::BackendTls;
use crate::upstream::former::{BackendCounts, FormerCounts, UpstreamCounts};
use crate::upstream::health::passive::AddressState;
use crate::upstream::operator::OperatorState;
use crate::upstream::registry::Registry;

/// The figures of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFigures {
    /// Its index, in order of first use.
    pub index: usize,
    /// The directive and its key, and the conditions around it.
    pub name: Arc<str>,
    /// Number of requests so far, also the ones in progress.
    pub requests: u64,
    /// Number of requests in the backlog now.
    pub backlogged: u32,
    /// The figures of its addresses.
    pub addresses: Vec<AddressFigures>,
}

/// The figures of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressFigures {
    /// The address's text in logs.
    pub text: Arc<str>,
    /// The backend's label in the configuration, if any.
    pub label: Option<Arc<str>>,
    /// Its current standing.
    pub state: AddressUse,
    /// Reason why it is not up, if known.
    pub last_failure: Option<Arc<str>>,
    /// Number of requests sent to it.
    pub requests: u64,
    /// Number of attempts that failed by its fault.
    pub failed: u64,
    /// Number of requests in progress.
    pub load: u32,
    /// Number of connections, busy and idle.
    pub pool_size: u32,
    /// Number of connections without a request.
    pub idle: u32,
    /// Mean time to the first byte of a response in microseconds; 0 = unknown.
    pub first_byte_us: u32,
    /// Its share of requests; 0: it is drained.
    pub weight: u32,
    /// Maximum number of connections.
    pub connections_max: u32,
    /// True if it was added at run time.
    pub is_added: bool,
    /// True if it is used only while no other address is up.
    pub backup: bool,
    /// For TLS backends, the number of handshakes and of resumed ones among them.
    pub handshakes: Option<(u64, u64)>,
}

/// Use of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// Requests go to it.
    Up,
    /// A single request may try it.
    Probing,
    /// It failed too often: no request goes to it for now.
    Down,
    /// It gets no new request: its weight is 0, or an operator drains it.
    Drained,
    /// An operator has taken it out, health checks included.
    Maintenance,
}

impl AddressUse {
    /// Returns it in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Probing => "probing",
            Self::Down => "down",
            Self::Drained => "drained",
            Self::Maintenance => "maintenance",
        }
    }
}

/// Returns the statistics of all upstreams at one moment.
pub fn figures(registry: &Registry, now_ms: u64) -> Vec<UpstreamFigures> {
    let of = |upstream: &Arc<Upstream>| of_upstream(upstream, now_ms);
    let mut all: Vec<_> = registry.all().iter().map(of).collect();
    add_former(&registry.former, &mut all);
    all
}

/// Returns the counters of all upstreams, for the process that takes this one's place.
pub fn counts(registry: &Registry) -> Vec<UpstreamCounts> {
    let all = figures(registry, Clock::start().mono_ms());
    all.into_iter().map(UpstreamCounts::from).collect()
}

impl From<UpstreamFigures> for UpstreamCounts {
    fn from(figures: UpstreamFigures) -> Self {
        let backend = |address: AddressFigures| {
            let AddressFigures { requests, failed, .. } = address;
            let (handshakes, resumed) = address.handshakes.unwrap_or_default();
            let backend = address.text.to_string();
            BackendCounts { backend, requests, failed, handshakes, resumed }
        };
        Self {
            upstream: figures.name.to_string(),
            requests: figures.requests,
            backends: figures.addresses.into_iter().map(backend).collect(),
        }
    }
}

/// Adds the counters of the processes before this one, once for each name.
fn add_former(former: &FormerCounts, all: &mut [UpstreamFigures]) {
    let former = former.lock();
    if former.is_empty() {
        return;
    }
    let mut seen = HashSet::new();
    for upstream in all {
        let Some(known) = former.get(&*upstream.name) else { continue };
        if seen.insert((Arc::clone(&upstream.name), None)) {
            upstream.requests = upstream.requests.saturating_add(known.requests);
        }
        for address in &mut upstream.addresses {
            let Some(known) = known.backends.get(&*address.text) else { continue };
            if seen.insert((Arc::clone(&upstream.name), Some(Arc::clone(&address.text)))) {
                address.add(known);
            }
        }
    }
}

fn of_upstream(upstream: &Upstream, now_ms: u64) -> UpstreamFigures {
    let members = upstream.members.list();
    let is_added = |text: &Arc<str>| members.iter().any(|member| member.text == *text);
    let of = |address: &Arc<Address>| AddressFigures {
        is_added: is_added(&address.spec.text),
        ..of_address(address, now_ms)
    };
    UpstreamFigures {
        index: upstream.index,
        name: Arc::clone(&upstream.label),
        requests: upstream.requests.load(Ordering::Relaxed),
        backlogged: upstream.backlog.len(),
        addresses: upstream.addresses().iter().map(of).collect(),
    }
}

fn of_address(address: &Address, now_ms: u64) -> AddressFigures {
    let state = match address.health.state(now_ms) {
        _ if address.operator_state() == OperatorState::Maintenance => AddressUse::Maintenance,
        _ if !address.takes_requests() => AddressUse::Drained,
        AddressState::Up => AddressUse::Up,
        AddressState::Probing => AddressUse::Probing,
        AddressState::Down { .. } => AddressUse::Down,
    };
    AddressFigures {
        text: Arc::clone(&address.spec.text),
        label: address.spec.label.clone(),
        state,
        last_failure: address.last_failure().filter(|_| state != AddressUse::Up),
        requests: address.requests.load(Ordering::Relaxed),
        failed: address.failed.load(Ordering::Relaxed),
        load: address.busy(),
        pool_size: address.open(),
        idle: address.idle(),
        first_byte_us: address.first_byte_us(),
        weight: address.weight(),
        connections_max: address.ordered_connections_max(),
        is_added: false,
        backup: address.spec.backup,
        handshakes: address.tls.as_ref().map(BackendTls::handshakes),
    }
}

/// Returns the requests of all upstreams together: `proxy-core.requests` of lighttpd 1.5.
pub fn requests(all: &[UpstreamFigures]) -> u64 {
    all.iter().fold(0, |sum, upstream| sum.saturating_add(upstream.requests))
}

impl UpstreamFigures {
    /// Returns keys and values. `requests`, `backlogged`, and `requests`, `requests_failed`, `load`
    /// and `pool_size` of the backends are named as in lighttpd 1.5.
    pub fn pairs(&self) -> impl Iterator<Item = (String, String)> + '_ {
        let index = self.index;
        let own = [
            ("name", self.name.to_string()),
            ("requests", self.requests.to_string()),
            ("backlogged", self.backlogged.to_string()),
        ];
        let own =
            own.into_iter().map(move |(key, value)| (format!("proxy-core.{index}.{key}"), value));
        let of_addresses = self.addresses.iter().flat_map(move |address| {
            let front = format!("proxy-core.{index}.backends.\"{}\"", address.text);
            address.pairs().map(move |(key, value)| (format!("{front}.{key}"), value))
        });
        own.chain(of_addresses)
    }
}

impl AddressFigures {
    fn add(&mut self, former: &BackendCounts) {
        self.requests = self.requests.saturating_add(former.requests);
        self.failed = self.failed.saturating_add(former.failed);
        if let Some((handshakes, resumed)) = &mut self.handshakes {
            *handshakes = handshakes.saturating_add(former.handshakes);
            *resumed = resumed.saturating_add(former.resumed);
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        let name = self.label.as_ref().map(|label| ("name", label.to_string()));
        let figures = [
            ("state", self.state.word().to_owned()),
            ("requests", self.requests.to_string()),
            ("requests_failed", self.failed.to_string()),
            ("load", self.load.to_string()),
            ("pool_size", self.pool_size.to_string()),
            ("idle", self.idle.to_string()),
            ("first_byte_us", self.first_byte_us.to_string()),
            ("weight", self.weight.to_string()),
            ("backup", u8::from(self.backup).to_string()),
        ];
        let tls = self.handshakes.map(|(all, resumed)| {
            [("tls_handshakes", all.to_string()), ("tls_resumed", resumed.to_string())]
        });
        name.into_iter().chain(figures).chain(tls.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_lighttpd_and_more() {
        let address = AddressFigures {
            text: "10.0.0.1:80".into(),
            label: Some("main".into()),
            state: AddressUse::Down,
            last_failure: Some("refused".into()),
            requests: 7,
            failed: 2,
            load: 1,
            pool_size: 3,
            idle: 2,
            first_byte_us: 900,
            weight: 1,
            connections_max: 256,
            is_added: false,
            backup: false,
            handshakes: Some((4, 3)),
        };
        let upstream = UpstreamFigures {
            index: 4,
            name: "proxy-core.backends".into(),
            requests: 9,
            backlogged: 5,
            addresses: vec![address],
        };
        let pairs: Vec<String> = upstream.pairs().map(|(k, v)| format!("{k}: {v}")).collect();
        assert_eq!(pairs.len(), 15);
        for line in [
            "proxy-core.4.backlogged: 5",
            "proxy-core.4.requests: 9",
            "proxy-core.4.backends.\"10.0.0.1:80\".name: main",
            "proxy-core.4.backends.\"10.0.0.1:80\".state: down",
            "proxy-core.4.backends.\"10.0.0.1:80\".requests: 7",
            "proxy-core.4.backends.\"10.0.0.1:80\".requests_failed: 2",
            "proxy-core.4.backends.\"10.0.0.1:80\".load: 1",
            "proxy-core.4.backends.\"10.0.0.1:80\".pool_size: 3",
            "proxy-core.4.backends.\"10.0.0.1:80\".tls_handshakes: 4",
            "proxy-core.4.backends.\"10.0.0.1:80\".tls_resumed: 3",
        ] {
            assert!(pairs.iter().any(|pair| pair == line), "{line} of {pairs:?}");
        }
        assert_eq!(requests(&[upstream.clone(), upstream]), 18);
    }

    fn counted(name: &str, requests: u64) -> UpstreamFigures {
        let address = AddressFigures {
            text: "b".into(),
            label: None,
            state: AddressUse::Up,
            last_failure: None,
            requests,
            failed: 0,
            load: 0,
            pool_size: 0,
            idle: 0,
            first_byte_us: 0,
            weight: 1,
            connections_max: 1,
            is_added: false,
            backup: false,
            handshakes: Some((requests, 0)),
        };
        let addresses = vec![address];
        UpstreamFigures { index: 0, name: name.into(), requests, backlogged: 0, addresses }
    }

    #[test]
    fn counters_before_are_added_once_for_each_name() {
        let former = FormerCounts::default();
        former.replace(vec![counted("u", 3).into(), counted("u", u64::MAX - 5).into()]);
        // As of two configurations, one of which still has requests.
        let mut all = [counted("v", 1), counted("u", 1), counted("u", 1)];
        add_former(&former, &mut all);
        let sums = all.map(|one| (one.requests, one.addresses[0].requests));
        assert_eq!(sums, [(1, 1), (u64::MAX - 1, u64::MAX - 1), (1, 1)]);
        former.replace(vec![counted("v", 2).into()]);
        let mut all = [counted("v", 1)];
        add_former(&former, &mut all);
        let address = &all[0].addresses[0];
        assert_eq!((all[0].requests, address.requests, address.handshakes), (3, 3, Some((3, 0))));
    }
}
