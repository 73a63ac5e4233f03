//! A worker of its own thread, with the modules that a test chooses.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

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
    let (address, known) = mpsc::channel();
    let text = settings.to_owned();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().on_thread_unpark(Clock::refresh_current);
        let runtime = runtime.build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (worker, socket) = worker(rows, &text, modules);
            let BindSpec::Inet(bound) = socket.address().clone() else { panic!("not an address") };
            let listener = socket.into_listener().expect("a listener");
            let info = Rc::new(ListenerInfo::new("test", bound.port(), false, None));
            tokio::task::spawn_local(Rc::clone(&worker).sweep());
            address.send(bound).expect("the test waits");
            worker.accept(listener, info, LiveListeners::default().guard()).await;
        });
    });
    known.recv().expect("an address")
}

fn worker(
    rows: Vec<Directive<Settings>>,
    text: &str,
    modules: impl FnOnce(&TestConfig) -> ModuleList,
) -> (Rc<Worker>, BoundSocket) {
    let table: Table<Settings> = Table::new().rows(modules::directives()).rows(rows);
    let main = Main::Text { name: "test", text: text.as_bytes() };
    let (config, findings, _) =
        load(&MemoryLoader::default(), &main, &table, LoadOptions::default());
    let config = Arc::new(config.unwrap_or_else(|| panic!("{findings:?}")));
    let clock = Clock::start();
    clock.install();
    tokio::task::spawn_local(clock.clone().tick());
    let engine = FileEngine::start(EngineChoice::Threads, EngineLimits::default()).expect("engine");
    let cache = StatCache::new(engine.clone(), CacheEngine::Simple, CacheLimits::default());
    let stderr = LogWriter::open(LogTarget::stderr()).expect("stderr");
    let log = Log::new(stderr.handle(), Level::Error, false);
    let list = modules(&config);
    let machine = Rc::new(Machine::new(clock, engine.clone(), cache, log));
    let generation = Rc::new(Generation::new(machine, config, list));
    let sender = Sender::start(engine, ThreadPool::global().clone(), SendOptions::default())
        .expect("a sender");
    let any = BindSpec::parse("127.0.0.1:0", None).expect("an address");
    let socket = BoundSocket::bind(&any, &BindOptions::default()).expect("a socket");
    (Rc::new(Worker::new(generation, sender, 100)), socket)
}
