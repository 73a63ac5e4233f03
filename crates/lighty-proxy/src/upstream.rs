//! An upstream at run time: addresses, the choice among them, the backlog. Shared by all workers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use lighty_io::connect::Target;
use tokio::sync::Notify;

use crate::address::{Address, AddressId, AddressSpec};
use crate::backlog::Backlog;
use crate::balance::{self, Balancer, Choice, Key};
use crate::health::passive::{Change, State};
use crate::names::NamedAddress;
use crate::spec::{BackendAddress, BackendSpec, UpstreamSpec};

/// Backends that answer for one another.
pub struct Upstream {
    pub spec: Arc<UpstreamSpec>,
    /// Its number among the process's upstreams, for statistics.
    pub index: usize,
    /// What statistics call it: its name, and the conditions that it is configured in.
    pub label: Arc<str>,
    pub backlog: Backlog,
    /// Tells every worker to let an idle connection go, because a request of another one waits.
    pub reclaim: Notify,
    pub requests: AtomicU64,
    /// Whether any backend is a program that the server starts: one of its processes may serve one
    /// connection at a time, and would be held by one that rests.
    pub is_spawned: bool,
    /// Whether the first look-up of its names is under way, and there is no address yet.
    unsettled: AtomicBool,
    settled: Notify,
    /// A backend refused: its name may stand for another address by now.
    refresh: Notify,
    balancer: Box<dyn Balancer>,
    addresses: RwLock<Arc<[Arc<Address>]>>,
}

/// What looking for an address came to.
pub enum Pick {
    Take(Arc<Address>),
    /// Every address that is up has as many connections as it may.
    Full,
    /// None is up; one that was up a moment ago may be back within milliseconds.
    Held,
    /// None is up.
    Down,
}

/// What a request brings to the choice.
pub struct Wanted<'a> {
    pub key: Key<'a>,
    pub now_ms: u64,
    /// Addresses that failed this request already.
    pub tried: &'a [AddressId],
    /// The one backend that may be chosen, where one is asked for by its name.
    pub only: Option<&'a str>,
}

impl Wanted<'_> {
    fn allows(&self, address: &Address) -> bool {
        self.only.is_none_or(|only| *address.spec.text == *only)
            && address.spec.weight > 0
            && !self.tried.contains(&address.id)
    }
}

impl Upstream {
    /// An upstream whose literal addresses are in use at once; names are filled in later.
    pub fn new(spec: Arc<UpstreamSpec>, index: usize, permit: &str) -> Self {
        let label = match permit {
            "" => Arc::clone(&spec.name),
            permit => format!("{} in {permit}", spec.name).into(),
        };
        let upstream = Self {
            index,
            label,
            backlog: Backlog::new(spec.backlog.length_max),
            reclaim: Notify::new(),
            requests: AtomicU64::new(0),
            is_spawned: spec.backends.iter().any(|backend| backend.spawn.is_some()),
            unsettled: AtomicBool::new(false),
            settled: Notify::new(),
            refresh: Notify::new(),
            balancer: balance::create(&spec.balancer),
            addresses: RwLock::new(Arc::from([])),
            spec,
        };
        let literal = upstream.spec.backends.iter().filter_map(|b| literal(b, &upstream.spec));
        upstream.set_addresses(literal.collect());
        upstream
    }

    /// Whether somebody must look after it besides its requests: names, checks, processes.
    pub fn needs_care(&self) -> bool {
        let is_alive = |b: &BackendSpec| b.spawn.is_some() || is_named(b);
        self.spec.health.check.is_some() || self.spec.backends.iter().any(is_alive)
    }

    /// Requests wait until [`settle`](Self::settle): the look-up of its names has begun.
    pub(crate) fn await_names(&self) {
        let wait = self.addresses().is_empty() && self.spec.backends.iter().any(is_named);
        self.unsettled.store(wait, Ordering::Release);
    }

    /// Requests wait no longer for addresses.
    pub(crate) fn settle(&self) {
        if self.unsettled.swap(false, Ordering::AcqRel) {
            self.settled.notify_waiters();
        }
    }

    /// Whether the first answer to its names is still to come.
    pub fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::Acquire)
    }

    /// Waits for the first answer to its names.
    pub async fn settled(&self) {
        let settled = self.settled.notified();
        tokio::pin!(settled);
        settled.as_mut().enable();
        if self.is_unsettled() {
            settled.await;
        }
    }

    /// Waits until a backend refused, so that names are better looked up again.
    pub(crate) async fn wants_refresh(&self) {
        self.refresh.notified().await;
    }

    /// The addresses there are now.
    pub fn addresses(&self) -> Arc<[Arc<Address>]> {
        Arc::clone(&self.addresses.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a new list. What is known of addresses that stay, stays.
    pub fn set_addresses(&self, specs: Vec<AddressSpec>) {
        let before = self.addresses();
        let kept = |spec: AddressSpec| {
            let known = before.iter().find(|address| address.spec == spec).cloned();
            known.unwrap_or_else(|| Arc::new(Address::new(spec, &self.spec.health)))
        };
        let after: Arc<[Arc<Address>]> = specs.into_iter().map(kept).collect();
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = after;
        self.backlog.call_all();
    }

    /// Chooses an address that is up and has room; `has_idle` tells where the caller has a
    /// connection already. `scratch` saves an allocation.
    pub fn pick(
        &self,
        wanted: &Wanted<'_>,
        has_idle: impl Fn(&Address) -> bool,
        scratch: &mut Vec<Choice>,
    ) -> Pick {
        let addresses = self.addresses();
        let mut seen = Seen::default();
        for backup in [false, true] {
            scratch.clear();
            let of_rank = addresses.iter().enumerate().filter(|(_, a)| a.spec.backup == backup);
            for (permit, address) in of_rank {
                if !wanted.allows(address) {
                    continue;
                }
                if let Some(choice) = seen.judge(permit, address, wanted.now_ms, &has_idle) {
                    scratch.push(choice);
                }
            }
            if let Some(address) = self.choose(&addresses, scratch, &wanted.key) {
                return Pick::Take(address);
            }
            if seen.full {
                break;
            }
        }
        match (seen.full, seen.held) {
            (true, _) => Pick::Full,
            (false, true) => Pick::Held,
            (false, false) => Pick::Down,
        }
    }

    fn choose(
        &self,
        addresses: &[Arc<Address>],
        choices: &[Choice],
        key: &Key<'_>,
    ) -> Option<Arc<Address>> {
        let chosen = match choices {
            [] => return None,
            [only] => only,
            several => several.get(self.balancer.pick(several, key))?,
        };
        addresses.get(chosen.permit as usize).cloned()
    }

    /// While every address is down that was up a moment ago: one to try before its time, so that a
    /// backend that restarts is found within milliseconds.
    pub fn pick_held(&self, now_ms: u64) -> Option<Arc<Address>> {
        let addresses = self.addresses();
        let mut held = addresses.iter().filter(|a| a.health.held_until(now_ms).is_some());
        held.find(|address| address.health.begin_held(now_ms)).cloned()
    }

    /// Whether no address is up or held that was not tried yet.
    pub fn is_down(&self, now_ms: u64, tried: &[AddressId]) -> bool {
        self.addresses().iter().all(|address| {
            let health = &address.health;
            tried.contains(&address.id)
                || address.spec.weight == 0
                || (matches!(health.state(now_ms), State::Down { .. })
                    && health.held_until(now_ms).is_none())
        })
    }

    /// An address answered a request that began there at `began_ms`. What that changed is worth a
    /// line in the log.
    pub fn succeeded(&self, address: &Address, began_ms: u64, now_ms: u64) -> Change {
        let change = address.health.record_success(began_ms, now_ms);
        if change == Change::CameBack {
            self.backlog.call_all();
        }
        change
    }

    /// An address refused, or failed in a way that is its own fault.
    pub fn failed(&self, address: &Address, began_ms: u64, now_ms: u64) -> Change {
        address.failed.fetch_add(1, Ordering::Relaxed);
        let change = address.health.record_failure(began_ms, now_ms);
        if matches!(change, Change::WentDown { .. }) {
            self.refresh.notify_one();
        }
        change
    }
}

/// What was seen of the addresses that cannot be chosen.
#[derive(Default)]
struct Seen {
    full: bool,
    held: bool,
}

impl Seen {
    fn judge(
        &mut self,
        permit: usize,
        address: &Address,
        now_ms: u64,
        has_idle: impl Fn(&Address) -> bool,
    ) -> Option<Choice> {
        let has_room = address.has_room() || has_idle(address);
        match address.health.state(now_ms) {
            State::Up | State::Probing => {}
            State::Down { .. } => {
                self.held |= address.health.held_until(now_ms).is_some();
                return None;
            }
        }
        if !has_room {
            self.full = true;
            return None;
        }
        Some(Choice {
            permit: permit as u32,
            name_hash: address.name_hash,
            weight: address
                .spec
                .weight
                .saturating_mul(address.health.slow_start_permille(now_ms))
                .max(1),
            busy: address.busy(),
            first_byte_us: address.first_byte_us(),
        })
    }
}

/// The address of a backend that is not a name.
fn literal(backend: &BackendSpec, upstream: &UpstreamSpec) -> Option<AddressSpec> {
    let target = match &backend.address {
        BackendAddress::Inet(address) => Target::Tcp(*address),
        BackendAddress::Unix(path) => Target::unix(std::path::Path::new(&**path)),
        BackendAddress::Name { .. } | BackendAddress::Srv(_) => return None,
    };
    Some(address_spec(backend, upstream, Arc::clone(&backend.text), target))
}

fn is_named(backend: &BackendSpec) -> bool {
    matches!(backend.address, BackendAddress::Name { .. } | BackendAddress::Srv(_))
}

/// The address of a backend that is a name, or one of many.
pub(crate) fn of_named(named: NamedAddress, upstream: &UpstreamSpec) -> AddressSpec {
    let size_max = upstream.pool.size_max;
    let backend = upstream.backends.get(named.backend);
    let own = backend.and_then(|backend| backend.max_connections);
    AddressSpec {
        http_host: backend.and_then(|backend| backend.http_host.clone()),
        label: backend.and_then(|backend| backend.label.clone()),
        text: named.text,
        target: named.target,
        weight: named.weight,
        backup: named.backup,
        connections_max: own.map_or(size_max, |own| own.min(size_max)),
    }
}

/// What an address of a backend is like.
pub(crate) fn address_spec(
    backend: &BackendSpec,
    upstream: &UpstreamSpec,
    text: Arc<str>,
    target: Target,
) -> AddressSpec {
    let size_max = upstream.pool.size_max;
    AddressSpec {
        text,
        label: backend.label.clone(),
        target,
        weight: backend.weight,
        backup: backend.backup,
        http_host: backend.http_host.clone(),
        connections_max: backend.max_connections.map_or(size_max, |own| own.min(size_max)),
    }
}
