//! An upstream at run time: its addresses, balancer and backlog. Shared by all workers.

pub(crate) mod address;
pub(crate) mod backend;
pub(crate) mod backend_tls;
pub(crate) mod balance;
pub mod configured;
pub(crate) mod fault_log;
pub mod former;
pub(crate) mod health;
pub mod members;
pub(crate) mod names;
pub mod operator;
pub mod order;
pub mod preset;
pub(crate) mod protocol;
pub mod registry;
pub mod remembered;
pub mod spec;
pub mod start_error;
pub mod stats;
pub(crate) mod supervisor;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use lighty_io::clock::Clock;
use lighty_io::connect::Target;
use tokio::sync::Notify;

use crate::connect::backlog::Backlog;
use crate::upstream::address::{Address, AddressId, AddressSpec};
use crate::upstream::backend::{BackendKey, Backends};
use crate::upstream::balance::{BalanceKey, Balancer, Choice};
use crate::upstream::fault_log::FaultLog;
use crate::upstream::health::passive::{AddressState, HealthChange};
use crate::upstream::members::{Member, Members};
use crate::upstream::names::NamedAddress;
use crate::upstream::operator::OperatorOrder;
use crate::upstream::spec::{BackendAddress, BackendSpec, UpstreamSpec};

/// A group of interchangeable backends.
pub struct Upstream {
    /// The upstream's configuration.
    pub spec: Arc<UpstreamSpec>,
    /// Index among the process's upstreams, for statistics.
    pub index: usize,
    /// Label in statistics: the upstream's name and the conditions around it.
    pub label: Arc<str>,
    /// Shared with the upstreams of this name in other generations, like the next three fields.
    pub backlog: Arc<Backlog>,
    /// Tells every worker to close an idle connection, because a request of another worker waits.
    pub reclaim: Arc<Notify>,
    /// Number of requests so far, also the ones in progress.
    pub requests: Arc<AtomicU64>,
    /// Backends added at run time.
    pub(crate) members: Arc<Members>,
    /// True if the server spawns any of its backends. Such a process may serve one connection at a
    /// time, and an idle connection would block it.
    pub is_spawned: bool,
    /// True while the first DNS look-up runs and no address is known yet.
    unsettled: AtomicBool,
    settled: Notify,
    /// Signals that a backend refused a connection: its name may resolve to another address by now.
    refresh: Notify,
    balancer: Box<dyn Balancer>,
    /// The addresses without those of added backends.
    configured: Mutex<Vec<AddressSpec>>,
    /// Signals that backends were added or removed.
    has_other_members: Notify,
    addresses: RwLock<Arc<[Arc<Address>]>>,
    backends: Arc<Backends>,
    stage: AtomicU8,
    /// Signals that its configuration is outdated.
    retirement: Notify,
    pub(crate) fault_log: FaultLog,
}

/// Stage of an upstream's configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// Not current yet: the upstream does not change shared state.
    Prepared,
    Current,
    /// Outdated: only its remaining requests use it.
    Retired,
}

/// The outcome of choosing an address.
pub enum Pick {
    /// This address.
    Take(Arc<Address>),
    /// Every address that is up has reached its connection limit.
    Full,
    /// None is up, but one that was up a moment ago may return within milliseconds.
    Held,
    /// None is up.
    Down,
}

/// The parameters of the choice.
pub struct PickParameters<'a> {
    /// The parts of the request that the balancer may use.
    pub key: BalanceKey<'a>,
    /// Milliseconds of the worker's clock.
    pub now_ms: u64,
    /// Addresses that have already failed this request.
    pub tried: &'a [AddressId],
    /// Restricts the choice to the backend of this name.
    pub only: Option<&'a str>,
}

impl PickParameters<'_> {
    fn allows(&self, address: &Address) -> bool {
        self.only.is_none_or(|only| *address.spec.text == *only)
            && address.takes_requests()
            && !self.tried.contains(&address.id)
    }
}

impl Upstream {
    /// Creates an upstream. Literal addresses are usable at once; names are resolved later, unless
    /// the previous upstream of the same name knows their addresses. The new upstream takes over
    /// the backlog and the backends of the previous one.
    pub(crate) fn new(
        spec: Arc<UpstreamSpec>,
        index: usize,
        label: Arc<str>,
        backends: &Arc<Backends>,
        before: Option<&Upstream>,
    ) -> Self {
        let fresh_backlog = || Arc::new(Backlog::new(spec.backlog.length_max));
        let kept_members = || Arc::new(Members::new(backends.presets.members(&label)));
        let members = before.map_or_else(kept_members, |one| Arc::clone(&one.members));
        let upstream = Self {
            index,
            label,
            backlog: before.map_or_else(fresh_backlog, |one| Arc::clone(&one.backlog)),
            reclaim: before.map_or_else(Arc::default, |one| Arc::clone(&one.reclaim)),
            requests: before.map_or_else(Arc::default, |one| Arc::clone(&one.requests)),
            members,
            is_spawned: spec.backends.iter().any(|backend| backend.spawn.is_some()),
            unsettled: AtomicBool::new(false),
            settled: Notify::new(),
            refresh: Notify::new(),
            balancer: balance::create(&spec.balancer),
            configured: Mutex::default(),
            has_other_members: Notify::new(),
            addresses: RwLock::new(Arc::from([])),
            backends: Arc::clone(backends),
            stage: AtomicU8::new(Stage::Prepared as u8),
            retirement: Notify::new(),
            fault_log: FaultLog::default(),
            spec,
        };
        let literal = upstream.spec.backends.iter().filter_map(|b| literal(b, &upstream.spec));
        let known = before.map_or_else(Vec::new, |one| named_before(one, &upstream.spec));
        upstream.set_addresses(literal.chain(known).collect());
        upstream
    }

    /// Returns its label in statistics.
    pub(crate) fn label(name: &Arc<str>, scope: &str) -> Arc<str> {
        match scope {
            "" => Arc::clone(name),
            scope => format!("{name} in {scope}").into(),
        }
    }

    /// Applies its limits to the state that it shares with earlier upstreams. Returns false if it
    /// has done so before.
    pub(crate) fn take_over(&self) -> bool {
        if self.stage.swap(Stage::Current as u8, Ordering::AcqRel) == Stage::Current as u8 {
            return false;
        }
        self.backlog.limit(self.spec.backlog.length_max);
        self.addresses().iter().for_each(|address| address.health.adopt(&self.spec.health));
        true
    }

    /// Ends its background tasks, because its configuration is outdated.
    pub(crate) fn retire(&self) {
        self.stage.store(Stage::Retired as u8, Ordering::Release);
        self.retirement.notify_waiters();
        self.settle();
    }

    /// True if its configuration is the current one.
    pub(crate) fn is_current(&self) -> bool {
        self.stage.load(Ordering::Acquire) == Stage::Current as u8
    }

    /// Returns true if its configuration is, or was, the current one.
    pub(crate) fn is_in_use(&self) -> bool {
        self.stage.load(Ordering::Acquire) != Stage::Prepared as u8
    }

    /// Returns true once its configuration is outdated.
    pub(crate) fn is_retired(&self) -> bool {
        self.stage.load(Ordering::Acquire) == Stage::Retired as u8
    }

    /// Waits until its configuration is outdated.
    pub(crate) async fn retired(&self) {
        let mut retirement = std::pin::pin!(self.retirement.notified());
        retirement.as_mut().enable();
        if !self.is_retired() {
            retirement.await;
        }
    }

    /// True if the upstream needs background tasks: name look-ups, health checks, processes.
    pub fn needs_care(&self) -> bool {
        let is_alive = |b: &BackendSpec| b.spawn.is_some() || is_named(b);
        self.spec.health.check.is_some() || self.spec.backends.iter().any(is_alive)
    }

    /// True if the configuration has names instead of addresses.
    pub(crate) fn has_names(&self) -> bool {
        self.spec.backends.iter().any(is_named)
    }

    /// Makes requests wait until [`settle`](Self::settle): the look-up of the names has begun.
    pub(crate) fn await_names(&self) {
        let wait = self.addresses().is_empty() && self.has_names();
        self.unsettled.store(wait, Ordering::Release);
    }

    /// Ends the wait for addresses.
    pub(crate) fn settle(&self) {
        if self.unsettled.swap(false, Ordering::AcqRel) {
            self.settled.notify_waiters();
        }
    }

    /// True while the first DNS response is outstanding.
    pub fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::Acquire)
    }

    /// Waits for the first DNS response.
    pub async fn settled(&self) {
        let settled = self.settled.notified();
        tokio::pin!(settled);
        settled.as_mut().enable();
        if self.is_unsettled() {
            settled.await;
        }
    }

    /// Waits until a refused connection suggests another look-up.
    pub(crate) async fn wants_refresh(&self) {
        self.refresh.notified().await;
    }

    /// Returns the current addresses.
    pub fn addresses(&self) -> Arc<[Arc<Address>]> {
        Arc::clone(&self.addresses.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the list of addresses; added backends stay. Addresses in both lists keep their
    /// state.
    pub fn set_addresses(&self, specs: Vec<AddressSpec>) {
        let mut configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner);
        *configured = specs;
        self.put_addresses(&configured);
    }

    /// Adds a backend, which takes requests at once. Returns false if there are too many.
    pub(crate) fn add_member(&self, member: Member) -> bool {
        let has_room = self.members.add(member);
        self.use_members();
        has_room
    }

    /// Removes an added backend: it gets no new requests, and those under way go on. Returns false
    /// if it was not added.
    pub(crate) fn remove_member(&self, text: &str) -> bool {
        let is_removed = self.members.remove(text);
        let before = self.addresses();
        self.use_members();
        let after = self.addresses();
        let is_over = |old: &&Arc<Address>| !after.iter().any(|new| new.id == old.id);
        // Its idle connections end.
        before.iter().filter(is_over).for_each(|address| address.set_gone(true));
        is_removed
    }

    fn use_members(&self) {
        let configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner);
        self.put_addresses(&configured);
        self.has_other_members.notify_one();
    }

    /// Waits until backends are added or removed.
    pub(crate) async fn other_members(&self) {
        self.has_other_members.notified().await;
    }

    /// Returns the specs of added backends.
    fn added(&self) -> Vec<AddressSpec> {
        let Some(first) = self.spec.backends.first() else { return Vec::new() };
        let spec = |member: Member| {
            let text = Arc::clone(&member.text);
            address_spec(&member.spec(first), &self.spec, text, member.target)
        };
        self.members.list().into_iter().map(spec).collect()
    }

    fn put_addresses(&self, configured: &[AddressSpec]) {
        let mut specs = configured.to_vec();
        for added in self.added() {
            // The configuration may have it by now.
            if !specs.iter().any(|known| known.target == added.target) {
                specs.push(added);
            }
        }
        let before = self.addresses();
        let is_current = self.is_current();
        let mut after: Vec<Arc<Address>> = Vec::with_capacity(specs.len());
        for spec in specs {
            let known = before.iter().find(|address| address.spec == spec).cloned();
            let address = known.unwrap_or_else(|| {
                let repeat = after.iter().filter(|a| a.spec.target == spec.target).count();
                let address = self.address(spec, repeat);
                if is_current {
                    address.health.adopt(&self.spec.health);
                }
                address
            });
            after.push(address);
        }
        *self.addresses.write().unwrap_or_else(PoisonError::into_inner) = after.into();
        self.backlog.call_all();
    }

    fn address(&self, spec: AddressSpec, repeat: usize) -> Arc<Address> {
        let key = BackendKey {
            upstream: Arc::clone(&self.label),
            protocol: self.spec.protocol.clone(),
            target: spec.target.clone(),
            program: spec.program.clone(),
            proxy_protocol: self.spec.proxy_protocol,
            tls: spec.tls.clone(),
            repeat,
        };
        let backend = self.backends.get(key, &spec.text, &self.spec.health);
        let address = Arc::new(Address::new(spec, backend));
        if let Some(history) = self.backends.histories.take(&self.label, &address.spec.text) {
            address.recall(&history, Clock::start().mono_ms());
        }
        address
    }

    /// Chooses an address that is up and has room; `has_idle` returns true for addresses to which
    /// the caller has an idle connection. `scratch` saves an allocation.
    pub fn pick(
        &self,
        wanted: &PickParameters<'_>,
        has_idle: impl Fn(&Address) -> bool,
        scratch: &mut Vec<Choice>,
    ) -> Pick {
        let addresses = self.addresses();
        let mut seen = SkipReasons::default();
        for backup in [false, true] {
            scratch.clear();
            let of_rank = addresses.iter().enumerate().filter(|(_, a)| a.spec.backup == backup);
            for (at, address) in of_rank {
                if !wanted.allows(address) {
                    continue;
                }
                if let Some(choice) = seen.consider(at, address, wanted.now_ms, &has_idle) {
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
        key: &BalanceKey<'_>,
    ) -> Option<Arc<Address>> {
        let chosen = match choices {
            [] => return None,
            [only] => only,
            several => {
                let picked = self.balancer.pick(several, key);
                debug_assert!(picked < several.len(), "{picked} of {}", several.len());
                several.get(picked)?
            }
        };
        debug_assert!((chosen.index as usize) < addresses.len(), "{}", chosen.index);
        addresses.get(chosen.index as usize).cloned()
    }

    /// True if some address has shown that it accepts a limited number of connections.
    pub(crate) fn is_limited(&self) -> bool {
        self.addresses().iter().any(|address| address.queue.is_limited())
    }

    /// Returns the number of times that a connection came free after a response; wraps around.
    pub(crate) fn freed(&self) -> u32 {
        let addresses = self.addresses();
        addresses.iter().fold(0, |freed, address| freed.wrapping_add(address.queue.freed()))
    }

    /// Permits more connections to addresses that are believed to accept no more: one now and then,
    /// to learn, and several if requests wait in vain. Returns true if the caller may open one now.
    pub(crate) fn open_more(&self, now_ms: u64, is_patient: bool) -> bool {
        let mut more = 0;
        for address in self.addresses().iter().filter(|address| address.queue.is_limited()) {
            // A full pool waits for a response, however many connections its backend accepts.
            let room = address.room_of_pool();
            if room == 0 {
                continue;
            }
            more += u32::from(address.queue.raise(now_ms));
            if !is_patient && !address.has_room() {
                more += address.queue.overflow(room);
            }
        }
        // One of these is for the caller.
        (1..more).for_each(|_| self.backlog.call());
        more > 0
    }

    /// While every address is down, returns a held one to try before its time, so that a restarted
    /// backend is found within milliseconds.
    pub fn pick_held(&self, now_ms: u64) -> Option<Arc<Address>> {
        let addresses = self.addresses();
        let is_held = |a: &&Arc<Address>| a.health.held_until(now_ms).is_some();
        let mut held = addresses.iter().filter(|a| a.takes_requests()).filter(is_held);
        held.find(|address| address.health.begin_held(now_ms)).cloned()
    }

    /// Gives an address another use. Requests that wait for it, or for a better one, look again.
    pub(crate) fn order(&self, address: &Address, order: OperatorOrder) {
        address.obey(order);
        self.backlog.call_all();
    }

    /// True if no address is up or held, `tried` ones aside.
    pub fn is_down(&self, now_ms: u64, tried: &[AddressId]) -> bool {
        self.addresses().iter().all(|address| {
            let health = &address.health;
            tried.contains(&address.id)
                || !address.takes_requests()
                || address.is_broken()
                || (matches!(health.state(now_ms), AddressState::Down { .. })
                    && health.held_until(now_ms).is_none())
        })
    }

    /// Records that an address responded to a request that began at `began_ms`. The caller logs the
    /// change.
    pub fn succeeded(&self, address: &Address, began_ms: u64, now_ms: u64) -> HealthChange {
        let change = address.health.record_success(began_ms, now_ms);
        if change == HealthChange::CameBack {
            self.backlog.call_all();
        }
        change
    }

    /// Records that an address refused, or failed by its own fault.
    pub fn failed(&self, address: &Address, began_ms: u64, now_ms: u64) -> HealthChange {
        address.count_failure();
        let change = address.health.record_failure(began_ms, now_ms);
        if matches!(change, HealthChange::WentDown { .. }) {
            self.refresh.notify_one();
        }
        change
    }
}

/// Reasons for skipping addresses.
#[derive(Default)]
struct SkipReasons {
    full: bool,
    held: bool,
}

impl SkipReasons {
    fn consider(
        &mut self,
        at: usize,
        address: &Address,
        now_ms: u64,
        has_idle: impl Fn(&Address) -> bool,
    ) -> Option<Choice> {
        if address.is_broken() {
            return None;
        }
        let has_room = address.has_room() || has_idle(address);
        match address.health.state(now_ms) {
            AddressState::Up | AddressState::Probing => {}
            AddressState::Down { .. } => {
                self.held |= address.health.held_until(now_ms).is_some();
                return None;
            }
        }
        if !has_room {
            self.full = true;
            return None;
        }
        Some(Choice {
            index: at as u32,
            name_hash: address.name_hash,
            weight: address
                .weight()
                .saturating_mul(address.health.slow_start_permille(now_ms))
                .max(1),
            busy: address.busy(),
            first_byte_us: address.first_byte_us(),
        })
    }
}

/// Returns the address of a backend that is not a DNS name.
fn literal(backend: &BackendSpec, upstream: &UpstreamSpec) -> Option<AddressSpec> {
    let target = match &backend.address {
        BackendAddress::Inet(address) => Target::Tcp(*address),
        BackendAddress::Unix(path) => Target::unix(std::path::Path::new(&**path)),
        BackendAddress::Name { .. } | BackendAddress::Srv(_) => return None,
    };
    Some(address_spec(backend, upstream, Arc::clone(&backend.text), target))
}

/// Returns the addresses that the previous upstream knows for the names of the next one.
fn named_before(before: &Upstream, after: &UpstreamSpec) -> Vec<AddressSpec> {
    let addresses = before.addresses();
    let kept = |backend: &&BackendSpec| {
        is_named(backend) && before.spec.backends.iter().any(|b| b.address == backend.address)
    };
    let of_backend = |backend: &BackendSpec| -> Vec<AddressSpec> {
        let front = format!("{}/", backend.text);
        let own = addresses.iter().filter(|address| address.spec.text.starts_with(&front));
        let spec = |known: &Arc<Address>| {
            let (text, target) = (Arc::clone(&known.spec.text), known.spec.target.clone());
            let (weight, backup) = (known.spec.weight, known.spec.backup);
            AddressSpec { weight, backup, ..address_spec(backend, after, text, target) }
        };
        own.map(spec).collect()
    };
    after.backends.iter().filter(kept).flat_map(of_backend).collect()
}

fn is_named(backend: &BackendSpec) -> bool {
    matches!(backend.address, BackendAddress::Name { .. } | BackendAddress::Srv(_))
}

/// Creates an address of a backend that is a DNS name.
pub(crate) fn of_named(named: NamedAddress, upstream: &UpstreamSpec) -> AddressSpec {
    let size_max = upstream.pool.size_max;
    let backend = upstream.backends.get(named.backend);
    let own = backend.and_then(|backend| backend.max_connections);
    AddressSpec {
        http_host: backend.and_then(|backend| backend.http_host.clone()),
        tls: backend.and_then(|backend| backend.tls.clone()),
        label: backend.and_then(|backend| backend.label.clone()),
        text: named.text,
        target: named.target,
        program: None,
        weight: named.weight,
        backup: named.backup,
        connections_max: own.map_or(size_max, |own| own.min(size_max)),
    }
}

/// Returns the spec of one address of a backend.
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
        program: backend.spawn.clone(),
        weight: backend.weight,
        backup: backend.backup,
        http_host: backend.http_host.clone(),
        tls: backend.tls.clone(),
        connections_max: backend.max_connections.map_or(size_max, |own| own.min(size_max)),
    }
}
