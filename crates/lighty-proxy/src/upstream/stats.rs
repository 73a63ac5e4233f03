//! Statistics of upstreams and their addresses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::upstream::Upstream;
use crate::upstream::address::Address;
use crate::upstream::backend_tls::BackendTls;
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
    registry.all().iter().map(|upstream| of_upstream(upstream, now_ms)).collect()
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
}
