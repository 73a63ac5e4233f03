//! The process's upstreams, shared by all workers, and their background tasks.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lighty_core::log::{About, Level, Log};
use lighty_io::clock::Clock;
use lighty_io::connect::resolve::{ResolveOptions, Resolver};
use lighty_io::listen::PrivateDir;
use lighty_io::tls::Materials;

use crate::upstream::Upstream;
use crate::upstream::backend::Backends;
use crate::upstream::configured::Configured;
use crate::upstream::former::{FormerCounts, UpstreamCounts};
use crate::upstream::preset::PresetBackend;
use crate::upstream::remembered::RememberedBackend;
use crate::upstream::spec::{BackendAddress, BackendSpec, SpawnSpec, UpstreamSpec};
use crate::upstream::start_error::StartError;
use crate::upstream::supervisor::{Care, Supervisor};

/// Beginning of the name of the directory for sockets of programs that were given none.
pub const SOCKET_DIRECTORY: &str = "lighty";

/// The process's upstreams. Equal specs of a generation share one upstream. An upstream stays while
/// a generation names it.
pub struct Registry {
    /// The resolver of the current naming.
    resolver: Mutex<Resolver>,
    workers: AtomicUsize,
    backends: Arc<Backends>,
    state: Mutex<RegistryState>,
    /// Counters of the processes before this one.
    pub(crate) former: FormerCounts,
}

#[derive(Default)]
struct RegistryState {
    entries: Vec<RegistryEntry>,
    /// Number of the last naming.
    named: u64,
    /// Number of the current naming.
    committed: u64,
    /// Index of the next upstream with a new name.
    next_index: usize,
    /// The log of the background tasks; none before the start.
    log: Option<Log>,
    supervisor: Option<Supervisor>,
    /// Directory of the sockets that have no path in the configuration.
    nameless: Option<PrivateDir>,
    /// The programs at these sockets, with the socket's number.
    programs: Vec<(u64, Arc<SpawnSpec>)>,
    last_program: u64,
    /// The abstract names at which programs have been started.
    abstract_names: HashSet<Arc<str>>,
}

struct RegistryEntry {
    requested: Arc<UpstreamSpec>,
    /// Looks its names up.
    resolver: Resolver,
    upstream: Arc<Upstream>,
    /// Numbers of the namings that include it.
    named_by: Vec<u64>,
}

/// The upstreams of a generation. They stay in the registry until this is dropped.
pub struct Naming {
    number: u64,
    resolver: Resolver,
    registry: Weak<Registry>,
}

impl Drop for Naming {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.release(self.number);
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(ResolveOptions::default())
    }
}

impl Registry {
    /// Creates an empty registry. Must be called before chroot, since it reads /etc/hosts and the
    /// name servers.
    pub fn new(options: ResolveOptions) -> Self {
        Self {
            resolver: Mutex::new(Resolver::new(options)),
            workers: AtomicUsize::new(0),
            backends: Arc::default(),
            state: Mutex::default(),
            former: FormerCounts::default(),
        }
    }

    /// Continues the counters of the process before this one, in place of those that were continued
    /// before.
    pub fn inherit(&self, counts: Vec<UpstreamCounts>) {
        self.former.replace(counts);
    }

    /// Returns the histories of all backends of the present configuration.
    pub fn remember(&self) -> Vec<RememberedBackend> {
        let now_ms = Clock::start().mono_ms();
        let mut all = Vec::new();
        for upstream in self.all() {
            let members = upstream.members.list();
            for address in upstream.addresses().iter() {
                let member = members.iter().find(|member| member.text == address.spec.text);
                all.push(RememberedBackend {
                    added: member.map(|member| member.weight),
                    upstream: (*upstream.label).to_owned(),
                    backend: (*address.spec.text).to_owned(),
                    ..address.remember(now_ms)
                });
            }
        }
        all
    }

    /// Gives backends that a configuration will name the histories that they had in the process
    /// before this one.
    pub fn recall(&self, histories: Vec<RememberedBackend>) {
        self.former.begin(&histories);
        self.backends.presets.add_members(&histories);
        self.backends.histories.fill(histories);
    }

    /// Starts the background tasks: names, health checks, processes. Must be called with the
    /// privileges that backends are to have.
    pub fn start(&self, log: Log) {
        self.lock().log = Some(log);
    }

    /// Adds the upstreams that a configuration names, and starts their programs. Changes nothing
    /// that is in use before [`commit`](Self::commit).
    ///
    /// # Errors
    /// A backend program does not start, or a socket cannot be bound.
    pub fn name(self: &Arc<Self>, named: &[Configured]) -> Result<Arc<Naming>, StartError> {
        self.name_with(named, self.resolver())
    }

    /// Like [`name`](Self::name), with other options for the names of backends. Reads the system's
    /// files if they differ from the present ones.
    ///
    /// # Errors
    /// As for [`name`](Self::name).
    pub fn name_resolving(
        self: &Arc<Self>,
        named: &[Configured],
        options: ResolveOptions,
    ) -> Result<Arc<Naming>, StartError> {
        let present = self.resolver();
        let is_same = *present.options() == options;
        self.name_with(named, if is_same { present } else { Resolver::new(options) })
    }

    fn name_with(
        self: &Arc<Self>,
        named: &[Configured],
        resolver: Resolver,
    ) -> Result<Arc<Naming>, StartError> {
        let number = {
            let mut state = self.lock();
            state.named += 1;
            state.named
        };
        let naming = Arc::new(Naming { number, resolver, registry: Arc::downgrade(self) });
        for one in named {
            let begun = {
                let mut state = self.lock();
                let (upstream, is_new) = self.find(&mut state, &one.spec, &one.place, &naming);
                if is_new { state.begin(&upstream, number) } else { None }
            };
            begun.map_or(Ok(()), Care::wait)?;
        }
        Ok(naming)
    }

    /// Returns the naming of a generation without upstreams.
    pub(crate) fn nothing_named(self: &Arc<Self>) -> Arc<Naming> {
        let resolver = self.resolver();
        Arc::new(Naming { number: 0, resolver, registry: Arc::downgrade(self) })
    }

    /// Sets the orders with which backends begin that are not in use yet.
    pub fn preset(&self, presets: Arc<[PresetBackend]>) {
        self.backends.presets.set(presets);
    }

    /// Sets the certificates with which backends are verified from now on.
    pub fn trust(&self, materials: Arc<Materials>) {
        self.backends.materials.set(materials);
    }

    /// Makes the upstreams of a naming the current ones: the others take no new requests, and their
    /// background tasks end.
    pub fn commit(&self, naming: &Naming) {
        // Before any request of the new generation, so that its programs are at their sockets.
        let moved = self.lock().supervisor.as_ref().map(|one| one.commit(naming.number));
        let moved = moved.map_or(Ok(()), Care::wait);
        let mut state = self.lock();
        if let (Err(why), Some(log)) = (moved, &state.log) {
            log.line(Level::Error, Clock::start().unix_s(), &why.to_string(), About::default());
        }
        state.committed = naming.number;
        *self.resolver.lock().unwrap_or_else(PoisonError::into_inner) = naming.resolver.clone();
        let is_old = |entry: &&RegistryEntry| !entry.named_by.contains(&naming.number);
        state.entries.iter().filter(is_old).for_each(|entry| entry.upstream.retire());
        let entries = state.entries.iter().filter(|entry| !is_old(entry));
        let current: Vec<_> = entries.map(|entry| Arc::clone(&entry.upstream)).collect();
        for upstream in current {
            if upstream.take_over() {
                state.warn_of_unverified(&upstream);
                state.care(&upstream, &naming.resolver);
            }
        }
    }

    /// Stops the background tasks: processes get their signal, and KILL if they do not exit. Waits
    /// for them for at most `patience`.
    pub fn stop(&self, patience: Duration) {
        let supervisor = self.lock().supervisor.take();
        if let Some(supervisor) = supervisor {
            supervisor.stop(patience);
        }
        self.lock().nameless = None;
    }

    /// Returns the upstream for a spec of a naming's generation, created at first use.
    pub fn upstream(&self, spec: &Arc<UpstreamSpec>, naming: &Naming) -> Arc<Upstream> {
        let mut state = self.lock();
        let (upstream, is_new) = self.find(&mut state, spec, "", naming);
        if is_new && state.committed > naming.number {
            upstream.retire();
        } else if is_new {
            drop(state.begin(&upstream, naming.number));
            if upstream.take_over() {
                state.care(&upstream, &naming.resolver);
            }
        }
        upstream
    }

    /// Returns the upstreams of the current generation, in order of first use.
    pub fn all(&self) -> Vec<Arc<Upstream>> {
        let state = self.lock();
        let current = state.entries.iter().filter(|entry| entry.upstream.is_current());
        let mut all: Vec<_> = current.map(|entry| Arc::clone(&entry.upstream)).collect();
        all.sort_by_key(|upstream| upstream.index);
        all
    }

    /// Returns the number of kept upstreams, also of old generations.
    pub fn kept(&self) -> usize {
        self.lock().entries.len()
    }

    /// Returns the index of a new worker.
    pub(crate) fn enlist(&self) -> usize {
        self.workers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the upstream for a spec, and whether it is new. A retired one is only used by the
    /// generations that name it.
    fn find(
        &self,
        state: &mut RegistryState,
        spec: &Arc<UpstreamSpec>,
        place: &str,
        naming: &Naming,
    ) -> (Arc<Upstream>, bool) {
        let (naming, resolver) = (naming.number, &naming.resolver);
        let is_it = |entry: &&mut RegistryEntry| {
            let may_be_had = !entry.upstream.is_retired() || entry.named_by.contains(&naming);
            may_be_had && entry.requested == *spec && entry.resolver.is_same(resolver)
        };
        if let Some(known) = state.entries.iter_mut().find(is_it) {
            if !known.named_by.contains(&naming) {
                known.named_by.push(naming);
            }
            return (Arc::clone(&known.upstream), false);
        }
        // A copy of the spec, because the configuration's own is dropped with the configuration.
        let requested = Arc::new(UpstreamSpec::clone(spec));
        let label = Upstream::label(&requested.name, place);
        let located = state.locate(&requested, naming);
        let mut older = state.entries.iter().rev().map(|entry| &entry.upstream);
        let before = older.find(|one| one.label == label && one.is_in_use()).cloned();
        let index = before.as_ref().map_or(state.next_index, |one| one.index);
        state.next_index = state.next_index.max(index + 1);
        let made = Upstream::new(located, index, label, &self.backends, before.as_deref());
        let upstream = Arc::new(made);
        let named_by = vec![naming];
        let (resolver, named) = (resolver.clone(), Arc::clone(&upstream));
        state.entries.push(RegistryEntry { requested, resolver, upstream: named, named_by });
        (upstream, true)
    }

    /// Removes the upstreams that only this naming names.
    fn release(&self, naming: u64) {
        let mut state = self.lock();
        state.entries.iter_mut().for_each(|entry| entry.named_by.retain(|n| *n != naming));
        let over: Vec<RegistryEntry> =
            state.entries.extract_if(.., |entry| entry.named_by.is_empty()).collect();
        for entry in &over {
            entry.upstream.retire();
            for address in entry.upstream.addresses().iter() {
                let mut kept = state.entries.iter().map(|entry| entry.upstream.addresses());
                if !kept.any(|others| others.iter().any(|other| other.id == address.id)) {
                    address.set_gone(true);
                }
            }
            if let Some(supervisor) =
                state.supervisor.as_ref().filter(|_| entry.upstream.is_spawned)
            {
                supervisor.release(Arc::clone(&entry.upstream));
            }
        }
        state.forget_programs();
        drop(state);
        // Their addresses may hold the last reference to a listen queue.
        drop(over);
    }

    fn resolver(&self) -> Resolver {
        self.resolver.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    /// Starts the programs of an upstream.
    fn begin(&mut self, upstream: &Arc<Upstream>, naming: u64) -> Option<Care> {
        if !upstream.is_spawned {
            return None;
        }
        Some(self.supervisor()?.begin(Arc::clone(upstream), naming))
    }

    /// Starts the background tasks of an upstream that becomes the current one.
    fn care(&mut self, upstream: &Arc<Upstream>, resolver: &Resolver) {
        if !upstream.needs_care() {
            return;
        }
        if let Some(supervisor) = self.supervisor() {
            upstream.await_names();
            supervisor.care(Arc::clone(upstream), resolver.clone());
        }
    }

    /// Warns that certificates are not verified, which nothing else shows.
    fn warn_of_unverified(&self, upstream: &Upstream) {
        let Some(log) = &self.log else { return };
        let tls = |backend: &&BackendSpec| backend.tls.as_ref().is_some_and(|t| !t.is_verified);
        for backend in upstream.spec.backends.iter().filter(tls) {
            let (name, text) = (&upstream.label, &backend.text);
            let message = format!(
                "{name}: backend {text} may be anyone: its certificate is not verified \
                 (proxy-core.tls-verify)"
            );
            log.line(Level::Warning, Clock::start().unix_s(), &message, About::default());
        }
    }

    fn supervisor(&mut self) -> Option<&Supervisor> {
        let log = self.log.as_ref()?;
        let start = || Supervisor::new(log.clone());
        Some(self.supervisor.get_or_insert_with(start))
    }

    /// Removes the programs that no upstream uses.
    fn forget_programs(&mut self) {
        let entries = &self.entries;
        let has = |entry: &RegistryEntry, program: &Arc<SpawnSpec>| {
            entry.requested.backends.iter().any(|b| b.spawn.as_ref() == Some(program))
        };
        self.programs.retain(|(_, program)| entries.iter().any(|entry| has(entry, program)));
    }

    /// The spec with a socket for each spawned program that has none by name, and with a name of
    /// its own for a changed program at an abstract socket. Equal programs share one socket.
    fn locate(&mut self, spec: &Arc<UpstreamSpec>, naming: u64) -> Arc<UpstreamSpec> {
        if !spec.backends.iter().any(needs_location) {
            return Arc::clone(spec);
        }
        let mut located = UpstreamSpec::clone(spec);
        for at in 0..located.backends.len() {
            let backend = &spec.backends[at];
            let (true, Some(spawn)) = (needs_location(backend), &backend.spawn) else { continue };
            let path = match &backend.address {
                BackendAddress::Unix(name) if name.starts_with('@') => {
                    let before = spec.backends[..at].iter().zip(&located.backends);
                    let same = |(requested, _): &(&BackendSpec, _)| is_spawned_at(requested, name);
                    let known = before.clone().find(same).map(|(_, found)| found.address.clone());
                    known.or_else(|| Some(self.abstract_name(name, spawn, naming)))
                }
                _ => {
                    let path = self.socket_of(spawn);
                    path.map(|path| BackendAddress::Unix(path.to_string_lossy().into()))
                }
            };
            if let Some(path) = path {
                located.backends[at].address = path;
            }
        }
        Arc::new(located)
    }

    /// The abstract socket of a program. No file can be moved into the place of another, as at a
    /// path, so a changed program gets the name with a number behind it. An address has one program
    /// in each generation.
    fn abstract_name(
        &mut self,
        name: &Arc<str>,
        spawn: &Arc<SpawnSpec>,
        naming: u64,
    ) -> BackendAddress {
        let found = |is_it: &dyn Fn(&RegistryEntry, &BackendSpec) -> bool| {
            self.entries.iter().rev().find_map(|entry| {
                let requested = entry.requested.backends.iter().zip(&entry.upstream.spec.backends);
                let mut same = requested.filter(|(requested, _)| is_spawned_at(requested, name));
                same.find(|(requested, _)| is_it(entry, requested))
                    .map(|(_, found)| found.address.clone())
            })
        };
        let of_generation = found(&|entry, _| entry.named_by.contains(&naming));
        let of_program = || found(&|_, requested| requested.spawn.as_ref() == Some(spawn));
        if let Some(known) = of_generation.or_else(of_program) {
            return known;
        }
        // A program that is ending may still listen at a name that no entry has.
        if self.abstract_names.insert(Arc::clone(name)) {
            return BackendAddress::Unix(Arc::clone(name));
        }
        self.last_program += 1;
        BackendAddress::Unix(format!("{name}.{}", self.last_program).into())
    }

    /// The socket of a program that was given none. A program that a new configuration puts in the
    /// place of another has its own: requests that wait for the other one are answered by it.
    fn socket_of(&mut self, spawn: &Arc<SpawnSpec>) -> Option<PathBuf> {
        if self.nameless.is_none() {
            // If this fails, binding reports it.
            self.nameless = PrivateDir::create(SOCKET_DIRECTORY).ok();
        }
        let known = self.programs.iter().find(|(_, known)| known == spawn);
        let number = known.map(|(number, _)| *number).unwrap_or_else(|| {
            self.last_program += 1;
            self.programs.push((self.last_program, Arc::clone(spawn)));
            self.last_program
        });
        Some(self.nameless.as_ref()?.path().join(format!("{number}.socket")))
    }
}

/// True for a program whose socket the registry chooses.
fn needs_location(backend: &BackendSpec) -> bool {
    match &backend.address {
        BackendAddress::Unix(path) => {
            backend.spawn.is_some() && (path.is_empty() || path.starts_with('@'))
        }
        _ => false,
    }
}

/// True for a program at this unix socket.
fn is_spawned_at(backend: &BackendSpec, name: &Arc<str>) -> bool {
    backend.spawn.is_some() && backend.address == BackendAddress::Unix(Arc::clone(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::spec::{BackendSpec, Protocol};

    fn program(name: &str) -> BackendSpec {
        let spawn = SpawnSpec {
            command: vec![name.into()],
            environment: Vec::new(),
            copy_environment: None,
            min_procs: 1,
            max_procs: 1,
            idle_timeout_s: 60,
            kill_signal: 15,
            listen_backlog: 16,
        };
        BackendSpec {
            text: name.into(),
            label: None,
            address: BackendAddress::Unix("".into()),
            weight: 1,
            max_connections: None,
            backup: false,
            spawn: Some(Arc::new(spawn)),
            http_host: None,
            tls: None,
        }
    }

    fn spec(backends: Vec<BackendSpec>) -> Arc<UpstreamSpec> {
        Arc::new(UpstreamSpec {
            name: "proxy.server".into(),
            protocol: Protocol::Scgi {},
            balancer: Default::default(),
            backends,
            pool: Default::default(),
            backlog: Default::default(),
            timeouts: Default::default(),
            health: Default::default(),
            split_hostnames: true,
            proxy_protocol: None,
        })
    }

    fn paths(upstream: &Upstream) -> Vec<String> {
        upstream.addresses().iter().map(|address| address.spec.target.to_string()).collect()
    }

    fn registry() -> (Arc<Registry>, Arc<Naming>) {
        let registry = Arc::new(Registry::default());
        let naming = registry.name(&[]).expect("nothing to start");
        registry.commit(&naming);
        (registry, naming)
    }

    #[test]
    fn equal_specs_are_one_upstream() {
        let (registry, naming) = registry();
        let first = registry.upstream(&spec(vec![program("a")]), &naming);
        let second = registry.upstream(&spec(vec![program("a")]), &naming);
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(registry.all().len(), 1);
    }

    #[test]
    fn every_program_has_a_socket_and_equal_ones_have_one() {
        let (registry, naming) = registry();
        let first = paths(&registry.upstream(&spec(vec![program("a"), program("b")]), &naming));
        assert!(first.len() == 2 && first[0] != first[1], "{first:?}");
        assert!(first.iter().all(|path| path.ends_with(".socket")), "{first:?}");
        let second = paths(&registry.upstream(&spec(vec![program("b")]), &naming));
        assert_eq!(second, first[1..]);
    }

    #[test]
    fn a_program_in_the_place_of_another_has_a_socket_of_its_own() {
        let (registry, naming) = registry();
        let first = paths(&registry.upstream(&spec(vec![program("a")]), &naming));
        let second_naming = registry.name(&[]).expect("nothing to start");
        registry.commit(&second_naming);
        let second = paths(&registry.upstream(&spec(vec![program("b")]), &second_naming));
        assert_ne!(second, first);
    }

    /// Connections to the old program must not serve requests of the new generation.
    #[test]
    fn a_changed_program_at_the_same_socket_is_another_backend() {
        let (registry, _) = registry();
        let at_socket = |name: &str, weight: u32| {
            let address = BackendAddress::Unix("/nonexistent/s".into());
            vec![BackendSpec { text: "s".into(), address, weight, ..program(name) }]
        };
        let ids = |backends: Vec<BackendSpec>| {
            let naming = next(&registry, backends);
            (registry.all()[0].addresses()[0].id, naming)
        };
        let (first, _first) = ids(at_socket("a", 1));
        let (again, _again) = ids(at_socket("a", 2));
        let (other, _other) = ids(at_socket("b", 2));
        assert!(first == again && again != other);
    }

    fn at_abstract(name: &str, weight: u32) -> BackendSpec {
        let address = BackendAddress::Unix("@lighty".into());
        BackendSpec { text: "@lighty".into(), address, weight, ..program(name) }
    }

    /// An abstract name cannot be taken over, and one queue for both would lose requests.
    #[test]
    fn a_changed_program_at_an_abstract_socket_has_a_name_of_its_own() {
        let (registry, _) = registry();
        let at = |name: &str, weight: u32| {
            let naming = next(&registry, vec![at_abstract(name, weight)]);
            (paths(&registry.all()[0]), naming)
        };
        let (first, naming) = at("a", 1);
        assert_eq!(first, ["unix:@lighty"]);
        let (again, second) = at("a", 2);
        assert_eq!(again, first, "an unchanged program");
        let (changed, third) = at("b", 2);
        assert!(changed != first && changed[0].starts_with("unix:@lighty."), "{changed:?}");
        let (back, fourth) = at("a", 1);
        assert_eq!(back, first, "the program that still runs");
        drop((naming, second, fourth));
        let (later, _later) = at("a", 1);
        assert!(later != first && later != changed, "the first may still be ending: {later:?}");
        drop(third);
    }

    #[test]
    fn programs_of_one_generation_share_an_abstract_socket() {
        let (registry, naming) = registry();
        let both = spec(vec![at_abstract("a", 1), at_abstract("b", 1)]);
        assert_eq!(paths(&registry.upstream(&both, &naming)), ["unix:@lighty", "unix:@lighty"]);
        let other = paths(&registry.upstream(&spec(vec![at_abstract("c", 1)]), &naming));
        assert_eq!(other, ["unix:@lighty"]);
    }

    fn literal(port: u16, weight: u32) -> BackendSpec {
        let address = format!("127.0.0.1:{port}");
        BackendSpec {
            text: address.as_str().into(),
            address: BackendAddress::Inet(address.parse().expect("an address")),
            weight,
            spawn: None,
            ..program("")
        }
    }

    fn configured(backends: Vec<BackendSpec>) -> Configured {
        Configured { spec: spec(backends), place: String::new() }
    }

    fn next(registry: &Arc<Registry>, backends: Vec<BackendSpec>) -> Arc<Naming> {
        let naming = registry.name(&[configured(backends)]).expect("nothing to start");
        registry.commit(&naming);
        naming
    }

    #[test]
    fn a_changed_weight_keeps_backend_backlog_and_index() {
        let (registry, _) = registry();
        let first = next(&registry, vec![literal(1, 1), literal(2, 1)]);
        let old = registry.all().remove(0);
        let second = next(&registry, vec![literal(2, 7)]);
        let new = registry.all().remove(0);
        assert_eq!(registry.kept(), 2);
        assert!(!Arc::ptr_eq(&old, &new) && Arc::ptr_eq(&old.backlog, &new.backlog));
        assert_eq!(old.addresses()[1].id, new.addresses()[0].id);
        assert_eq!((old.index, new.addresses()[0].spec.weight), (new.index, 7));
        drop(first);
        assert_eq!(registry.kept(), 1);
        assert!(old.addresses()[0].is_gone() && !new.addresses()[0].is_gone());
        drop(second);
        assert_eq!(registry.kept(), 0);
    }

    #[test]
    fn other_name_servers_keep_backends_and_counters() {
        let (registry, _) = registry();
        let first = next(&registry, vec![literal(1, 1)]);
        let old = registry.all().remove(0);
        let options = ResolveOptions { timeout_ms: 7, ..ResolveOptions::default() };
        let named = [configured(vec![literal(1, 1)])];
        let second = registry.name_resolving(&named, options.clone()).expect("nothing to start");
        registry.commit(&second);
        let new = registry.all().remove(0);
        assert!(!Arc::ptr_eq(&old, &new) && old.is_retired());
        assert_eq!(old.addresses()[0].id, new.addresses()[0].id);
        let third = registry.name_resolving(&named, options).expect("nothing to start");
        registry.commit(&third);
        assert!(Arc::ptr_eq(&new, &registry.all()[0]), "the same options");
        drop((first, second, third));
    }

    #[test]
    fn a_naming_that_is_refused_leaves_nothing() {
        let (registry, _) = registry();
        let _first = next(&registry, vec![literal(1, 1)]);
        let before = registry.all().remove(0);
        let refused = registry.name(&[configured(vec![literal(1, 5)])]).expect("nothing to start");
        drop(refused);
        assert!(registry.kept() == 1 && Arc::ptr_eq(&before, &registry.all()[0]));
        assert!(!before.is_retired() && !before.addresses()[0].is_gone());
    }
}
