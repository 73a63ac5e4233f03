//! A worker's thread: its runtime, its parts, its shutdown, and its replacement after a panic.

mod succession;

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use lighty_config::{Active, Config};
use lighty_core::log::{About, Level, Log};
use lighty_core::{Generation, Machine, Settings};
use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::listen::{BindSpec, BoundSocket};
use lighty_io::send::{SendOptions, Sender};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};
use lighty_io::threads;
use lighty_io::threads::pool::ThreadPool;
use lighty_io::threads::slice;
use lighty_io::threads::{keep, panics};
use lighty_proxy::raw;
use lighty_proxy::route::WorkerProxy;
use lighty_proxy::upstream::registry::Registry;
use tokio::runtime::LocalOptions;
use tokio::sync::watch;

use crate::boot::error::BootError;
use crate::listen::info::ListenerInfo;
use crate::listen::listeners;
use crate::listen::live::{LiveListeners, LiveSocket};
use crate::modules::{self, Shared};
use crate::reload::Plan;
use crate::report;
use crate::report::counts;
use crate::tls;
use crate::worker::idle::Activity;
use crate::worker::{Listening, TcpProxy, Worker};

use succession::Successor;
pub(crate) use succession::{Restarts, Succession};

/// Order of the main thread to the workers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    #[default]
    Serve,
    /// Serve open connections, and leave new ones to another process that has the listeners.
    Hold,
    /// Like `Drain`, but the listeners belong to another process now.
    Leave,
    /// Accept nothing new; exit after the last response.
    Drain,
    /// Exit now.
    Stop,
}

/// The current order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub command: Command,
    /// Number of times that logs were reopened and caches dropped.
    pub reopened: u32,
    /// Number of times that a line of counters was requested.
    pub reported: u32,
}

/// Arguments of a worker's start.
pub(crate) struct Setup {
    pub index: usize,
    /// Plans from which generations are made; the first one is already there.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// Reports the generation under which requests now begin.
    pub swapped: tokio::sync::mpsc::UnboundedSender<u64>,
    pub sockets: Vec<(String, BoundSocket)>,
    pub stat_entries_max: usize,
    pub roots_max: usize,
    pub log: Log,
    pub upstreams: Arc<Registry>,
    pub live_listeners: LiveListeners,
    /// Set if the server ends after a time without work.
    pub activity: Option<Activity>,
    pub order: watch::Receiver<Order>,
    pub ready: mpsc::Sender<Ready>,
    pub done: mpsc::Sender<usize>,
    pub succession: Succession,
}

impl Setup {
    /// The same arguments, for another start with these sockets.
    fn copy(&self, sockets: Vec<(String, BoundSocket)>, succession: Succession) -> Self {
        Self {
            index: self.index,
            plans: self.plans.clone(),
            swapped: self.swapped.clone(),
            sockets,
            stat_entries_max: self.stat_entries_max,
            roots_max: self.roots_max,
            log: self.log.clone(),
            upstreams: Arc::clone(&self.upstreams),
            live_listeners: self.live_listeners.clone(),
            activity: self.activity.clone(),
            order: self.order.clone(),
            ready: self.ready.clone(),
            done: self.done.clone(),
            succession,
        }
    }

    /// Reports that the worker cannot start.
    fn fail(&self, why: BootError) {
        if self.succession.is_successor {
            let text = format!("worker {} cannot start again: {why}", self.index);
            self.log.line(Level::Error, Clock::start().unix_s(), &text, About::default());
            self.live_listeners.lose(self.index);
        }
        let _ = self.ready.send(Ready::Failed(why));
    }
}

/// A worker's report once it has started.
pub(crate) enum Ready {
    Serving {
        engine: String,
        /// Reason why inotify does not watch files although it was configured.
        unwatched: Option<String>,
    },
    Failed(BootError),
}

/// Worker stack size: nested pages (`ssi.recursion-max`) are nested requests. Only the used part
/// takes memory.
const STACK_BYTES: usize = 8 << 20;

/// Starts the thread.
pub(crate) fn spawn(setup: Setup) -> std::io::Result<()> {
    let name = format!("worker-{}", setup.index);
    threads::start(&name, Some(STACK_BYTES), move || main(setup)).map(drop)
}

fn main(mut setup: Setup) {
    let done = setup.done.clone();
    let index = setup.index;
    let successor = Successor::of(&mut setup);
    // If refused, the worker waits for others to use up their slices.
    let _ = slice::ask_for_slice(slice::LOOP_SLICE);
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_unpark(Clock::refresh_current)
        .build_local(LocalOptions::default());
    let is_replaced = match built {
        Ok(runtime) => {
            let has_started = Cell::new(false);
            match runtime.block_on(panics::catch(serve(setup, &has_started))) {
                Ok(()) => {
                    runtime.shutdown_background();
                    false
                }
                Err(panicked) => successor.take_over(&panicked, runtime, has_started.get()),
            }
        }
        Err(error) => {
            setup.fail(BootError::Step("starting the event loop".to_owned(), error));
            false
        }
    };
    if !is_replaced {
        let _ = done.send(index);
    }
}

async fn serve(mut setup: Setup, has_started: &Cell<bool>) {
    let started = match start(&mut setup) {
        Ok(started) => started,
        Err(why) => return setup.fail(why),
    };
    has_started.set(true);
    let worker = &started.worker;
    let report = worker.machine.engine.report();
    let engine = format!("{} ({})", report.name, report.why);
    let (_, unwatched) = worker.machine.stat_cache.engine();
    if !setup.succession.is_successor {
        let _ = setup.ready.send(Ready::Serving { engine, unwatched });
    }
    let worker = Rc::clone(worker);
    obey(&mut setup, started).await;
    worker.log(Level::Info, &counts::line(setup.index, &worker));
}

/// Follows the main thread's orders until the worker ends.
async fn obey(setup: &mut Setup, started: Started) {
    let worker = Rc::clone(&started.worker);
    // The orders of the past do not concern the successor of another worker.
    let mut followed = Order { command: Command::Serve, ..*setup.order.borrow() };
    loop {
        match follow(setup, &worker, &mut followed) {
            Command::Serve => worker.set_listening(Listening::Accepts),
            Command::Hold => worker.set_listening(Listening::Held),
            Command::Stop => return,
            command @ (Command::Drain | Command::Leave) => {
                if command == Command::Leave {
                    worker.set_listening(Listening::Left);
                }
                worker.stop();
                let mut draining = pin!(drain(&worker, started.accepting));
                loop {
                    tokio::select! {
                        biased;
                        changed = setup.order.changed() => if changed.is_err() { return },
                        () = &mut draining => return,
                    }
                    if follow(setup, &worker, &mut followed) == Command::Stop {
                        return;
                    }
                }
            }
        }
        tokio::select! {
            biased;
            changed = setup.order.changed() => if changed.is_err() { return },
            Ok(()) = setup.plans.changed() => swap(setup, &started),
        }
    }
}

/// Reopens and reports as often as the orders say. Returns the command.
fn follow(setup: &mut Setup, worker: &Worker, followed: &mut Order) -> Command {
    let order = *setup.order.borrow_and_update();
    if order != Order::default() {
        panics::point("worker");
    }
    if order.reopened != followed.reopened {
        worker.machine.drop_caches();
        worker.generation().modules.iter().for_each(|module| module.reopen());
    }
    if order.reported != followed.reported {
        worker.log(Level::Notice, &counts::line(setup.index, worker));
    }
    *followed = order;
    order.command
}

/// Switches new requests to the newest generation.
fn swap(setup: &mut Setup, started: &Started) {
    let plan = Arc::clone(&setup.plans.borrow_and_update());
    let Started { worker, proxy, listeners, .. } = started;
    let generation = generation(&plan, &worker.machine, proxy);
    set_protocols(listeners, &plan.config, worker, proxy);
    worker.tls.adopt(&plan.shared.tls);
    worker.swap(generation, plan.connections_max);
    let _ = setup.swapped.send(plan.number);
}

/// Sets what listeners speak from their next connection on.
pub(crate) fn set_protocols(
    listeners: &[Rc<ListenerInfo>],
    config: &Config<Settings>,
    worker: &Worker,
    proxy: &WorkerProxy,
) {
    for listener in listeners {
        *listener.raw.borrow_mut() = tcp_proxy(config, worker, proxy, &listener.name);
        listener.speaks_tls.set(tls::is_spoken_at(config, &listener.name));
    }
}

fn generation(plan: &Plan, machine: &Rc<Machine>, proxy: &Rc<WorkerProxy>) -> Rc<Generation> {
    let modules = modules::instances(&plan.config, &plan.shared, proxy);
    Rc::new(Generation::new(Rc::clone(machine), Arc::clone(&plan.config), modules))
}

/// Returns the TCP proxy of a listener for raw connections; `None` for HTTP listeners.
fn tcp_proxy(
    config: &Config<Settings>,
    worker: &Worker,
    proxy: &WorkerProxy,
    name: &str,
) -> Option<TcpProxy> {
    let route = raw::route(&listeners::settings_at(config, name))?;
    Some(TcpProxy { local: Rc::clone(proxy.local(&worker.machine)), route })
}

/// Resolves when the listen backlogs are empty and all connections have closed.
async fn drain(worker: &Worker, accepting: Accepting) {
    for task in accepting {
        let _ = task.await;
    }
    worker.drain().await;
}

type Accepting = Vec<tokio::task::JoinHandle<()>>;

/// A started worker.
pub(crate) struct Started {
    pub worker: Rc<Worker>,
    pub proxy: Rc<WorkerProxy>,
    listeners: Vec<Rc<ListenerInfo>>,
    accepting: Accepting,
}

pub(crate) fn start(setup: &mut Setup) -> Result<Started, BootError> {
    let plan = Arc::clone(&setup.plans.borrow_and_update());
    let global = plan.config.settings(&Active::default());
    let machine = Rc::new(machine(setup, &plan.shared, &global)?);
    let server = &global.server;
    let backend = server.network_backend;
    let options = SendOptions {
        backend,
        read_chunk_bytes: server.read_chunk_bytes,
        aio_requests_max: server.max_read_threads,
        ..SendOptions::default()
    };
    let pool = ThreadPool::global().clone();
    let sender = Sender::start(machine.engine.clone(), pool, options)
        .map_err(|error| BootError::value("server.network-backend", &backend, &error))?;
    let proxy = WorkerProxy::new(Arc::clone(&setup.upstreams));
    let generation = generation(&plan, &machine, &proxy);
    let worker = Rc::new(Worker::new(generation, sender, plan.connections_max));
    worker.tls.adopt(&plan.shared.tls);
    let mut listeners = Vec::new();
    let mut tasks = Vec::new();
    let mut spares = std::mem::take(&mut setup.succession.spares).into_iter();
    for (name, socket) in std::mem::take(&mut setup.sockets) {
        let port = match socket.address() {
            BindSpec::Inet(address) => address.port(),
            BindSpec::Unix(_) => 0,
        };
        let failed = |error| BootError::Step(name.to_string(), error);
        let listener = socket.into_listener().map_err(failed)?;
        let live = LiveSocket::of(&name, &listener).map_err(failed)?;
        let raw = tcp_proxy(&plan.config, &worker, &proxy, &name);
        let speaks_tls = tls::is_spoken_at(&plan.config, &name);
        let listener_info = Rc::new(ListenerInfo::new(&name, port, speaks_tls, raw));
        listeners.push(Rc::clone(&listener_info));
        let guard = setup.live_listeners.guard(Some(live)).with_spare(spares.next().flatten());
        tasks.push(tokio::task::spawn_local(Rc::clone(&worker).accept(
            listener,
            listener_info,
            guard,
        )));
    }
    let swept = Rc::clone(&worker);
    keep::keep("sweep", move || Rc::clone(&swept).sweep());
    if let Some(activity) = setup.activity.take() {
        tokio::task::spawn_local(activity.watch(Rc::clone(&worker)));
    }
    let (reported, index) = (Rc::clone(&worker), setup.index);
    let (responder, listening) = (plan.shared.board.join(), listeners.clone());
    tokio::task::spawn_local(
        responder.respond(move |wanted| report::report(index, &reported, &listening, wanted)),
    );
    setup.succession.bridge = None;
    if setup.succession.is_successor {
        // A reload may wait for the worker that this one replaces.
        let _ = setup.swapped.send(plan.number);
    }
    Ok(Started { worker, proxy, listeners, accepting: tasks })
}

fn machine(setup: &Setup, shared: &Shared, global: &Settings) -> Result<Machine, BootError> {
    let server = &global.server;
    let clock = Clock::start();
    clock.install();
    clock.spawn_tick();
    let choice = match &*server.io_engine {
        "io-uring" => EngineChoice::Uring,
        "threads" => EngineChoice::Threads,
        _ => EngineChoice::Auto,
    };
    let limits = EngineLimits {
        stat_threads_max: server.max_stat_threads,
        read_threads_max: server.max_read_threads,
        read_chunk_bytes: server.read_chunk_bytes,
        ..EngineLimits::default()
    };
    let engine = FileEngine::start_with_clock(choice, limits, clock.clone())
        .map_err(|error| BootError::value("server.io-engine", &server.io_engine, &error))?;
    let cache = match &*server.stat_cache_engine {
        "inotify" => CacheEngine::Inotify,
        "disable" => CacheEngine::Disable,
        _ => CacheEngine::Simple,
    };
    let cache_limits = CacheLimits {
        entries_max: setup.stat_entries_max,
        small_file_bytes_max: server.stat_cache_small_file_bytes,
        small_total_bytes_max: shared.memory_share.map_or(
            server.stat_cache_small_total_bytes,
            // In a control group with little memory, requests need most of it.
            |share| server.stat_cache_small_total_bytes.min(share / 8),
        ),
        ..CacheLimits::default()
    };
    let stat_cache = StatCache::new(engine.clone(), cache, cache_limits);
    let mut machine = Machine::new(clock, engine, stat_cache, setup.log.clone());
    machine.roots_max = setup.roots_max;
    Ok(machine)
}
