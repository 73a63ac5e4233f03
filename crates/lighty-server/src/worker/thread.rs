//! A worker's thread: its runtime, its parts and its shutdown.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use lighty_config::{Active, Config};
use lighty_core::log::{Level, Log};
use lighty_core::machine::status_board::{ReportParts, StatusBoard};
use lighty_core::{Generation, Machine, Settings};
use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::sandbox;
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
use crate::listen::accepting::{AcceptingListeners, ListenerProtocol};
use crate::listen::info::ListenerInfo;
use crate::listen::listeners;
use crate::listen::live::{ListenerGuard, LiveListeners};
use crate::modules;
use crate::reload::Plan;
use crate::report;
use crate::report::counts;
use crate::tls;
use crate::worker::idle::Activity;
use crate::worker::orders;
use crate::worker::{Listening, TcpProxy, Worker};

/// Order of the main thread to the workers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    #[default]
    Serve,
    /// Serve open connections, and leave new ones to another process that has the listeners.
    Hold,
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

/// State that every worker gets at its start.
#[derive(Clone)]
pub(crate) struct WorkerParts {
    pub plans: watch::Receiver<Arc<Plan>>,
    /// Each worker sends its index and the generation with which it has begun.
    pub swapped: tokio::sync::mpsc::UnboundedSender<(usize, u64)>,
    pub log: Log,
    pub upstreams: Arc<Registry>,
    pub live_listeners: LiveListeners,
    /// Set if the server ends after a time without work.
    pub activity: Option<Activity>,
}

/// Arguments of a worker's start.
pub(crate) struct Setup {
    pub index: usize,
    /// Reported at its end.
    pub ticket: u64,
    pub parts: WorkerParts,
    pub order: watch::Receiver<Order>,
    pub ready: mpsc::Sender<Ready>,
    pub done: mpsc::Sender<u64>,
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

/// Starts the thread. If the plan of its first generation is not published yet, the worker waits
/// for that with its listeners.
pub(crate) fn spawn(setup: Setup, first: Arc<Plan>) -> std::io::Result<()> {
    let name = format!("worker-{}", setup.index);
    threads::start(&name, Some(STACK_BYTES), move || main(setup, first)).map(drop)
}

fn main(setup: Setup, first: Arc<Plan>) {
    let done = setup.done.clone();
    let (index, ticket) = (setup.index, setup.ticket);
    // If refused, the worker waits for others to use up their slices.
    let _ = slice::ask_for_slice(slice::LOOP_SLICE);
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_unpark(Clock::refresh_current)
        .build_local(LocalOptions::default());
    match built {
        Ok(runtime) => {
            let (ready, live_listeners) = (setup.ready.clone(), setup.parts.live_listeners.clone());
            let is_serving = Rc::new(Cell::new(false));
            let serving = serve(setup, first, Rc::clone(&is_serving));
            if let Err(panicked) = runtime.block_on(panics::catch(serving)) {
                let _ = ready.send(Ready::Failed(BootError::Panicked(panicked.0)));
                // One that has not served yet refuses a start or a reload.
                if is_serving.get() {
                    live_listeners.lose(index);
                }
            }
            runtime.shutdown_background();
        }
        Err(error) => {
            let why = BootError::Step("starting the event loop".to_owned(), error);
            let _ = setup.ready.send(Ready::Failed(why));
        }
    }
    let _ = done.send(ticket);
}

async fn serve(mut setup: Setup, first: Arc<Plan>, is_serving: Rc<Cell<bool>>) {
    let started = match start(&mut setup, first) {
        Ok(started) => started,
        Err(why) => {
            let _ = setup.ready.send(Ready::Failed(why));
            return;
        }
    };
    let worker = &started.worker;
    let report = worker.machine.engine.report();
    let engine = format!("{} ({})", report.name, report.why);
    let (_, unwatched) = worker.machine.stat_cache.engine();
    let _ = setup.ready.send(Ready::Serving { engine, unwatched });
    is_serving.set(true);
    obey(&mut setup, &started).await;
    let Started { worker, board, listeners, .. } = &started;
    let wanted = ReportParts { durations: true, ..ReportParts::default() };
    board.leave(report::report(setup.index, worker, &listeners.infos(), wanted));
    worker.log(Level::Info, &counts::line(setup.index, worker));
}

/// Follows the main thread's orders until the worker ends.
async fn obey(setup: &mut Setup, started: &Started) {
    let worker = Rc::clone(&started.worker);
    // The orders of the past do not concern a worker that replaces another one.
    let mut followed = Order { command: Command::Serve, ..*setup.order.borrow() };
    loop {
        match follow(setup, &worker, &mut followed) {
            Command::Serve => worker.set_listening(Listening::Accepts),
            Command::Hold => worker.set_listening(Listening::Held),
            Command::Stop => return,
            Command::Drain => {
                worker.stop();
                let mut draining = pin!(drain(&worker, &started.listeners));
                loop {
                    tokio::select! {
                        biased;
                        changed = setup.order.changed() => if changed.is_err() { return },
                        // So that it does not keep an old configuration.
                        Ok(()) = setup.parts.plans.changed() => swap(setup, started),
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
            Ok(()) = setup.parts.plans.changed() => swap(setup, started),
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

/// Switches new requests to the newest generation, and to its listeners.
fn swap(setup: &mut Setup, started: &Started) {
    let plan = Arc::clone(&setup.parts.plans.borrow_and_update());
    let Started { worker, proxy, listeners, number, .. } = started;
    if number.replace(plan.number) != plan.number {
        let generation = generation(&plan, &worker.machine, proxy);
        set_protocols(&listeners.infos(), &plan.config, worker, proxy);
        worker.tls.adopt(&plan.shared.tls);
        worker.swap(generation, plan.shares.connections_max);
        worker.machine.roots_max.set(plan.shares.roots_max);
        worker.machine.stat_cache.limit_entries(plan.shares.stat_entries_max);
    }
    if let Err(failures) = open_listeners(setup.index, started, &plan) {
        for (name, error) in failures {
            worker.log(Level::Error, &format!("giving up on listener {name}: {error}"));
        }
    }
    let _ = setup.parts.swapped.send((setup.index, plan.number));
}

/// Opens the worker's listeners of a plan, and closes all others.
fn open_listeners(
    index: usize,
    started: &Started,
    plan: &Plan,
) -> Result<(), Vec<(Arc<str>, std::io::Error)>> {
    let Started { worker, proxy, listeners, .. } = started;
    let opened = listeners.follow(worker, plan.sockets.of(index), |name| ListenerProtocol {
        speaks_tls: tls::is_spoken_at(&plan.config, name),
        raw: tcp_proxy(&plan.config, worker, proxy, name),
    });
    drop(started.expects_listeners.take());
    opened
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
    let generation = Generation::new(Rc::clone(machine), Arc::clone(&plan.config), modules);
    Rc::new(generation.with_number(plan.number))
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
async fn drain(worker: &Worker, listeners: &AcceptingListeners) {
    listeners.ended().await;
    worker.drain().await;
}

/// A started worker.
pub(crate) struct Started {
    pub worker: Rc<Worker>,
    pub proxy: Rc<WorkerProxy>,
    listeners: Rc<AcceptingListeners>,
    /// Number of its generation.
    number: Cell<u64>,
    /// Counts as a listener until the worker has opened its own: the present workers may close
    /// theirs before.
    expects_listeners: Cell<Option<ListenerGuard>>,
    board: StatusBoard,
}

/// Starts the parts of a worker under a plan.
pub(crate) fn start(setup: &mut Setup, plan: Arc<Plan>) -> Result<Started, BootError> {
    let is_published = Arc::ptr_eq(&plan, &setup.parts.plans.borrow_and_update());
    let global = plan.config.settings(&Active::default());
    let machine = Rc::new(machine(setup, &plan, &global)?);
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
    // The file engine's ring and the contexts of a network backend exist now.
    sandbox::restrict_thread();
    let proxy = WorkerProxy::new(Arc::clone(&setup.parts.upstreams));
    let generation = generation(&plan, &machine, &proxy);
    let worker = Rc::new(Worker::new(generation, sender, plan.shares.connections_max));
    worker.tls.adopt(&plan.shared.tls);
    let listeners = Rc::new(AcceptingListeners::new(setup.parts.live_listeners.clone()));
    let (number, board) = (Cell::new(plan.number), plan.shared.board.clone());
    let expects_listeners = Cell::new(Some(setup.parts.live_listeners.guard()));
    let started = Started { worker, proxy, listeners, number, expects_listeners, board };
    if is_published && let Err(failures) = open_listeners(setup.index, &started, &plan) {
        let failure = failures.into_iter().next();
        let failed = failure.map(|(name, error)| BootError::Step(name.to_string(), error));
        return Err(failed.unwrap_or(BootError::WorkerEnded));
    }
    start_tasks(setup, &started);
    Ok(started)
}

/// Starts the worker's tasks that belong to no connection.
fn start_tasks(setup: &mut Setup, started: &Started) {
    let worker = &started.worker;
    let swept = Rc::clone(worker);
    keep::keep("sweep", move || Rc::clone(&swept).sweep());
    if let Some(activity) = setup.parts.activity.take() {
        tokio::task::spawn_local(activity.watch(Rc::clone(worker)));
    }
    let (reported, index) = (Rc::clone(worker), setup.index);
    let (responder, listeners) = (started.board.join(setup.index), Rc::clone(&started.listeners));
    let ordered = Rc::clone(worker);
    tokio::task::spawn_local(responder.respond(
        move |wanted| report::report(index, &reported, &listeners.infos(), wanted),
        move |order| orders::obey(index, &ordered, order),
    ));
}

fn machine(setup: &Setup, plan: &Plan, global: &Settings) -> Result<Machine, BootError> {
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
        disk_reads: server.max_bulk_reads,
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
        entries_max: plan.shares.stat_entries_max,
        small_file_bytes_max: server.stat_cache_small_file_bytes,
        small_total_bytes_max: plan.shared.memory_share.map_or(
            server.stat_cache_small_total_bytes,
            // In a control group with little memory, requests need most of it.
            |share| server.stat_cache_small_total_bytes.min(share / 8),
        ),
        ..CacheLimits::default()
    };
    let stat_cache = StatCache::new(engine.clone(), cache, cache_limits);
    let mut machine = Machine::new(clock, engine, stat_cache, setup.parts.log.clone());
    machine.roots_max.set(plan.shares.roots_max);
    machine.bans = Arc::clone(plan.shared.board.bans());
    Ok(machine)
}
