//! A worker without listeners and other threads, for simulations, which pass it connections.
//!
//! See [`lighty_io::simulated`] for its thread's replacements of the machine's services.

use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lighty_config::Config;
use lighty_core::log::Log;
use lighty_core::settings::limits;
use lighty_core::{Generation, Module, Settings};
use lighty_io::transport::{Peer, Stream};
use lighty_proxy::route::WorkerProxy;
use lighty_proxy::upstream::configured;
use lighty_proxy::upstream::registry::Registry;
use tokio::sync::watch;

use crate::boot::error::BootError;
use crate::listen::info::ListenerInfo;
use crate::listen::live::LiveListeners;
use crate::listen::planned::PlannedSockets;
use crate::modules::{self, Shared};
use crate::reload::Plan;
use crate::tls::{self, Tls};
use crate::worker::Worker;
use crate::worker::shares::WorkerShares;
use crate::worker::thread::{self, Order, Setup, Started, WorkerParts};

/// Listeners of a simulated worker, by name and port. `$SERVER["socket"]` decides which speak TLS.
const LISTENERS: [(&str, u16); 7] = [
    ("10.0.0.1:80", 80),
    ("10.0.0.1:443", 443),
    ("10.0.0.1:8080", 8080),
    ("10.0.0.1:81", 81),
    ("10.0.0.1:444", 444),
    ("10.0.0.1:25", 25),
    ("10.0.0.1:465", 465),
];

/// A worker, with the state that the process around it would hold.
pub struct Simulated {
    /// The state of the simulated thread.
    pub worker: Rc<Worker>,
    /// The upstreams that the worker reaches.
    pub upstreams: Arc<Registry>,
    shared: Shared,
    proxy: Rc<WorkerProxy>,
    observers: Vec<Rc<dyn Module>>,
    listeners: Vec<Rc<ListenerInfo>>,
    connections_max: usize,
    // Kept, because dropping it would order the worker to stop.
    _order: watch::Sender<Order>,
}

impl Simulated {
    /// Starts a worker on a simulated thread. `observers` are called after all other modules.
    ///
    /// # Errors
    /// The worker cannot start.
    pub fn start(
        config: &Arc<Config<Settings>>,
        log: &Log,
        connections_max: usize,
        observers: Vec<Rc<dyn Module>>,
    ) -> Result<Self, BootError> {
        let upstreams = Arc::new(Registry::default());
        upstreams.start(log.clone());
        let naming = upstreams.name(&configured::upstreams(config))?;
        let shared = Shared::new(0, naming)?;
        let shared = Shared { tls: load_tls(config, &shared.tls)?, ..shared };
        upstreams.trust(Arc::clone(&shared.tls.materials));
        upstreams.commit(&shared.naming);
        let (order, orders) = watch::channel(Order::default());
        let shares =
            WorkerShares { connections_max, stat_entries_max: 64, roots_max: limits::ROOTS_MAX };
        let plan = Arc::new(Plan {
            number: 0,
            config: Arc::clone(config),
            shared: shared.clone(),
            shares,
            sockets: PlannedSockets::default(),
        });
        let parts = WorkerParts {
            plans: watch::channel(Arc::clone(&plan)).1,
            swapped: tokio::sync::mpsc::unbounded_channel().0,
            log: log.clone(),
            upstreams: Arc::clone(&upstreams),
            live_listeners: LiveListeners::default(),
            activity: None,
        };
        let mut setup = Setup {
            index: 0,
            ticket: 0,
            parts,
            order: orders,
            ready: mpsc::channel().0,
            done: mpsc::channel().0,
        };
        let Started { worker, proxy, .. } = thread::start(&mut setup, plan)?;
        let listeners = LISTENERS
            .map(|(name, port)| Rc::new(ListenerInfo::new(name, port, false, None)))
            .into();
        let started = Self {
            worker,
            upstreams,
            shared,
            proxy,
            observers,
            listeners,
            connections_max,
            _order: order,
        };
        started.swap(config)?;
        Ok(started)
    }

    /// Sets the configuration for new requests, like a reload.
    ///
    /// # Errors
    /// An upstream of the configuration cannot be started, or a certificate not be loaded.
    pub fn swap(&self, config: &Arc<Config<Settings>>) -> Result<(), BootError> {
        let naming = self.upstreams.name(&configured::upstreams(config))?;
        let tls = load_tls(config, &self.shared.tls)?;
        thread::set_protocols(&self.listeners, config, &self.worker, &self.proxy);
        self.worker.tls.adopt(&tls);
        self.upstreams.trust(Arc::clone(&tls.materials));
        let shared = Shared { naming: Arc::clone(&naming), tls, ..self.shared.clone() };
        let built_in = modules::instances(config, &shared, &self.proxy);
        let modules = built_in.followed_by(&self.observers);
        let machine = Rc::clone(&self.worker.machine);
        let generation = Generation::new(machine, Arc::clone(config), modules);
        self.worker.swap(Rc::new(generation), self.connections_max);
        self.upstreams.commit(&naming);
        Ok(())
    }

    /// Returns true if the listener of this port speaks TLS with new connections.
    pub fn speaks_tls(&self, port: u16) -> bool {
        let mut listeners = self.listeners.iter();
        listeners.any(|listener| listener.port == port && listener.speaks_tls.get())
    }

    /// Accepts a connection, like the listener of this port. Without one, the connection closes.
    pub async fn accept(&self, stream: Stream, peer: Peer, port: u16) {
        self.worker.make_room().await;
        if let Some(listener) = self.listeners.iter().find(|listener| listener.port == port) {
            self.worker.admit(stream, peer, listener);
        }
    }

    /// Stops the worker. Returns whether all its connections ended within `patience`.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.worker.stop();
        tokio::time::timeout(patience, self.worker.drain()).await.is_ok()
    }
}

/// Loads the certificates of a configuration.
fn load_tls(config: &Config<Settings>, before: &Tls) -> Result<Tls, BootError> {
    let materials = tls::load(config, &before.materials).map_err(|problems| {
        BootError::Certificates(problems.into_iter().map(|problem| problem.message).collect())
    })?;
    Ok(Tls { materials: Arc::new(materials), ..before.clone() })
}
