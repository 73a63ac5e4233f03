//! The process's upstreams, shared by all workers, and their background tasks.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lighty_core::log::Log;
use lighty_io::listen::PrivateDir;
use lighty_io::resolve::{ResolveOptions, Resolver};

use crate::configured::Configured;
use crate::spec::{BackendAddress, SpawnSpec, UpstreamSpec};
use crate::supervisor::{Care, Supervisor};
use crate::upstream::Upstream;

/// The process's upstreams. Equal specs share one upstream.
pub struct Registry {
    resolver: Resolver,
    workers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// The log of the background tasks; none before the start.
    log: Option<Log>,
    supervisor: Option<Supervisor>,
    /// The directory of the sockets that the configuration does not name.
    nameless: Option<PrivateDir>,
    /// The programs behind these sockets, by the socket's number.
    programs: Vec<Arc<SpawnSpec>>,
}

struct Entry {
    asked: Arc<UpstreamSpec>,
    upstream: Arc<Upstream>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(ResolveOptions::default())
    }
}

impl Registry {
    /// Creates an empty registry. It reads /etc/hosts and the name servers, so create it before
    /// chroot.
    pub fn new(options: ResolveOptions) -> Self {
        Self {
            resolver: Resolver::new(options),
            workers: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// Starts the background tasks of upstreams: names, health checks, processes. Call it with the
    /// privileges that backends are to have; `named` are the upstreams that the configuration
    /// names.
    ///
    /// # Errors
    /// A backend program does not start, or a socket cannot be bound.
    pub fn start(&self, log: Log, named: &[Configured]) -> Result<(), String> {
        self.lock().log = Some(log);
        named.iter().try_for_each(|one| match self.find(&one.spec, &one.place) {
            (_, Some(care)) => care.wait(),
            (_, None) => Ok(()),
        })
    }

    /// Stops the background tasks: processes get their signal, and KILL if they do not exit. Waits
    /// for them at most `patience`.
    pub fn stop(&self, patience: Duration) {
        let supervisor = self.lock().supervisor.take();
        if let Some(supervisor) = supervisor {
            supervisor.stop(patience);
        }
        self.lock().nameless = None;
    }

    /// The upstream for a spec, created at first use.
    pub fn upstream(&self, spec: &Arc<UpstreamSpec>) -> Arc<Upstream> {
        self.find(spec, "").0
    }

    /// All upstreams, in order of first use.
    pub fn all(&self) -> Vec<Arc<Upstream>> {
        self.lock().entries.iter().map(|entry| Arc::clone(&entry.upstream)).collect()
    }

    /// The index of a new worker.
    pub(crate) fn enlist(&self) -> usize {
        self.workers.fetch_add(1, Ordering::Relaxed)
    }

    fn find(&self, spec: &Arc<UpstreamSpec>, place: &str) -> (Arc<Upstream>, Option<Care>) {
        let mut state = self.lock();
        if let Some(known) = state.entries.iter().find(|known| known.asked == *spec) {
            return (Arc::clone(&known.upstream), None);
        }
        let located = state.locate(spec);
        let made = Arc::new(Upstream::new(located, state.entries.len(), place));
        let entry = Entry { asked: Arc::clone(spec), upstream: Arc::clone(&made) };
        state.entries.push(entry);
        let care = if made.needs_care() { state.care(&made, &self.resolver) } else { None };
        (made, care)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn care(&mut self, upstream: &Arc<Upstream>, resolver: &Resolver) -> Option<Care> {
        let log = self.log.as_ref()?;
        upstream.await_names();
        let supervisor =
            self.supervisor.get_or_insert_with(|| Supervisor::new(log.clone(), resolver.clone()));
        Some(supervisor.care(Arc::clone(upstream)))
    }

    /// The spec with a socket for each spawned program that has none by name. Equal programs share
    /// one socket.
    fn locate(&mut self, spec: &Arc<UpstreamSpec>) -> Arc<UpstreamSpec> {
        let is_nameless = |address: &BackendAddress| matches!(address, BackendAddress::Unix(path) if path.is_empty());
        if !spec.backends.iter().any(|backend| is_nameless(&backend.address)) {
            return Arc::clone(spec);
        }
        let mut located = UpstreamSpec::clone(spec);
        for backend in located.backends.iter_mut().filter(|b| is_nameless(&b.address)) {
            if let Some(path) = backend.spawn.as_ref().and_then(|spawn| self.socket_of(spawn)) {
                backend.address = BackendAddress::Unix(path.to_string_lossy().into());
            }
        }
        Arc::new(located)
    }

    fn socket_of(&mut self, spawn: &Arc<SpawnSpec>) -> Option<PathBuf> {
        if self.nameless.is_none() {
            // If this fails, binding reports it.
            self.nameless = PrivateDir::create("lighty").ok();
        }
        let at = self.programs.iter().position(|known| known == spawn).unwrap_or_else(|| {
            self.programs.push(Arc::clone(spawn));
            self.programs.len() - 1
        });
        Some(self.nameless.as_ref()?.path().join(format!("{at}.socket")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{BackendSpec, Protocol};

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
        }
    }

    fn spec(backends: Vec<BackendSpec>) -> Arc<UpstreamSpec> {
        Arc::new(UpstreamSpec {
            name: "proxy.server".into(),
            protocol: Protocol::Scgi,
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

    #[test]
    fn equal_specs_are_one_upstream() {
        let registry = Registry::default();
        let first = registry.upstream(&spec(vec![program("a")]));
        let second = registry.upstream(&spec(vec![program("a")]));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(registry.all().len(), 1);
    }

    #[test]
    fn every_program_has_a_socket_and_equal_ones_have_one() {
        let registry = Registry::default();
        let first = paths(&registry.upstream(&spec(vec![program("a"), program("b")])));
        assert!(first.len() == 2 && first[0] != first[1], "{first:?}");
        assert!(first.iter().all(|path| path.ends_with(".socket")), "{first:?}");
        let second = paths(&registry.upstream(&spec(vec![program("b")])));
        assert_eq!(second, first[1..]);
    }
}
