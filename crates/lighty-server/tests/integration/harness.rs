//! A worker of its own thread, with the modules that a test chooses.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lighty_config::{Config, Directive, LoadOptions, Main, MemoryLoader, Table, load};
use lighty_core::log::{Level, Log};
use lighty_core::{Generation, Machine, Module, ModuleList, Settings};
use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::listen::{BindOptions, BindSpec, BoundSocket};
use lighty_io::log_writer::{LogTarget, LogWriter};
use lighty_io::send::{SendOptions, Sender};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};
use lighty_io::threads::pool::ThreadPool;
use lighty_proxy::route::WorkerProxy;
use lighty_proxy::upstream::registry::Registry;
use lighty_server::listen::info::ListenerInfo;
use lighty_server::listen::live::LiveListeners;
use lighty_server::modules::{self, Shared};
use lighty_server::worker::Worker;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Configuration of a worker.
pub(crate) type TestConfig = Arc<Config<Settings>>;

/// Starts a worker with a single module. It ends with the process. Returns its address.
pub(crate) fn start_one<M: Module + Send + 'static>(module: M, settings: &str) -> SocketAddr {
    let only = move |_: &TestConfig| ModuleList::new(vec![Rc::new(module) as Rc<dyn Module>]);
    start(M::directives(), settings, only)
}

/// The modules of the server that a configuration uses, without upstreams.
pub(crate) fn built_in(config: &TestConfig) -> ModuleList {
    let upstreams = Arc::new(Registry::default());
    let naming = upstreams.name(&[]).expect("no upstream");
    let shared = Shared::new(0, naming).expect("a thread");
    modules::instances(config, &shared, &WorkerProxy::new(upstreams))
}

/// Starts a worker that ends with the process. `rows` are directives beside the server's. Returns
/// its address.
pub(crate) fn start(
    rows: Vec<Directive<Settings>>,
    settings: &str,
    modules: impl FnOnce(&TestConfig) -> ModuleList + Send + 'static,
) -> SocketAddr {
    let setup = WorkerSetup { rows, settings: settings.to_owned(), ..WorkerSetup::default() };
    start_worker(setup, modules).address
}

/// Setup of a worker.
pub(crate) struct WorkerSetup {
    /// Directives beside the server's.
    pub(crate) rows: Vec<Directive<Settings>>,
    pub(crate) settings: String,
    pub(crate) log: LogTarget,
    /// Limit on its connections.
    pub(crate) conns_max: usize,
}

impl Default for WorkerSetup {
    fn default() -> Self {
        let (rows, settings) = (Vec::new(), String::new());
        Self { rows, settings, log: LogTarget::stderr(), conns_max: 100 }
    }
}

/// A running worker. It ends with the process unless it is stopped before.
pub(crate) struct RunningWorker {
    pub(crate) address: SocketAddr,
    stop: UnboundedSender<()>,
    stopped: mpsc::Receiver<usize>,
}

impl RunningWorker {
    /// Stops the worker. Returns the number of connections that are open after an orderly stop.
    pub(crate) fn stop(self, patience: Duration) -> Result<usize, mpsc::RecvTimeoutError> {
        self.stop.send(()).expect("it runs");
        self.stopped.recv_timeout(patience)
    }
}

/// Starts a worker with these modules.
pub(crate) fn start_worker(
    setup: WorkerSetup,
    modules: impl FnOnce(&TestConfig) -> ModuleList + Send + 'static,
) -> RunningWorker {
    let (address, known) = mpsc::channel();
    let (stop, mut stops) = unbounded_channel();
    let (tell, stopped) = mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().on_thread_unpark(Clock::refresh_current);
        let runtime = runtime.build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (worker, socket) = worker(setup, modules);
            let BindSpec::Inet(bound) = socket.address().clone() else { panic!("not an address") };
            let listener = socket.into_listener().expect("a listener");
            let info = Rc::new(ListenerInfo::new("test", bound.port(), false, None));
            tokio::task::spawn_local(Rc::clone(&worker).sweep());
            let guard = LiveListeners::default().guard();
            let accepting = Rc::clone(&worker).accept(listener, info, guard);
            let accepting = tokio::task::spawn_local(accepting);
            address.send(bound).expect("the test waits");
            if stops.recv().await.is_some() {
                worker.stop();
            }
            accepting.await.expect("no panic");
            worker.drain().await;
            tell.send(worker.conns.open()).expect("the test waits");
        });
    });
    RunningWorker { address: known.recv().expect("an address"), stop, stopped }
}

/// Parses a configuration. `rows` are directives beside the server's.
pub(crate) fn config(rows: Vec<Directive<Settings>>, text: &str) -> TestConfig {
    let table: Table<Settings> = Table::new().rows(modules::directives()).rows(rows);
    let main = Main::Text { name: "test", text: text.as_bytes() };
    let (config, findings, _) =
        load(&MemoryLoader::default(), &main, &table, LoadOptions::default());
    Arc::new(config.unwrap_or_else(|| panic!("a good configuration: {findings:?}")))
}

fn worker(
    setup: WorkerSetup,
    modules: impl FnOnce(&TestConfig) -> ModuleList,
) -> (Rc<Worker>, BoundSocket) {
    let config = config(setup.rows, &setup.settings);
    let clock = Clock::start();
    clock.install();
    tokio::task::spawn_local(clock.clone().tick());
    let engine = FileEngine::start(EngineChoice::Threads, EngineLimits::default()).expect("engine");
    let cache = StatCache::new(engine.clone(), CacheEngine::Simple, CacheLimits::default());
    // It writes until the process ends.
    let writer = Box::leak(Box::new(LogWriter::open(setup.log).expect("a log")));
    let log = Log::new(writer.handle(), Level::Error, false);
    let list = modules(&config);
    let machine = Rc::new(Machine::new(clock, engine.clone(), cache, log));
    let generation = Rc::new(Generation::new(machine, config, list));
    let sender = Sender::start(engine, ThreadPool::global().clone(), SendOptions::default())
        .expect("a sender");
    let any = BindSpec::parse("127.0.0.1:0", None).expect("an address");
    let socket = BoundSocket::bind(&any, &BindOptions::default()).expect("a socket");
    (Rc::new(Worker::new(generation, sender, setup.conns_max)), socket)
}
