//! Swaps a thousand generations in one worker, one after the other and under load: each request
//! ends under its first generation, a backend stays the same, and nothing is left of earlier
//! generations.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lighty_config::{Config, LoadOptions, Main, MemoryLoader, Table, load};
use lighty_core::log::{Level, Log};
use lighty_core::module::{Hooks, Module, ModuleList, Step, Traits};
use lighty_core::{Exchange, Generation, Machine, Settings};
use lighty_http::Status;
use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::listen::{BindOptions, BindSpec, BoundSocket};
use lighty_io::log_writer::{LogTarget, LogWriter};
use lighty_io::send::{SendOptions, Sender};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};
use lighty_io::threads::pool::ThreadPool;
use lighty_proxy::route::{ProxyCore, WorkerProxy};
use lighty_proxy::upstream::configured;
use lighty_proxy::upstream::registry::Registry;
use lighty_proxy::upstream::stats;
use lighty_server::listen::info::ListenerInfo;
use lighty_server::listen::live::LiveListeners;
use lighty_server::modules;
use lighty_server::worker::Worker;
use lighty_testkit::client::Client;
use lighty_testkit::wait_until;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const SWAPS: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// Responds with the number of the generation, once it has the request's body.
struct Teller;

impl Module for Teller {
    fn name(&self) -> &'static str {
        "mod_teller"
    }

    fn traits(&self) -> Traits {
        Hooks { physical: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<lighty_config::Directive<Settings>> {
        Vec::new()
    }

    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if ex.request.path != b"/number" {
            return Step::Next;
        }
        Step::Wait(Box::pin(async {
            while ex.body.next().await.is_some() {}
            let number = ex.generation.global.core.tag.to_string();
            ex.response.set_text(Status::OK, "text/plain", number);
            Step::Answered
        }))
    }
}

/// Serves requests, and counts its connections.
fn backend() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, opened) = (listener.local_addr().expect("known"), Arc::<AtomicUsize>::default());
    let counted = Arc::clone(&opened);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || {
                while let Ok(1..) = stream.read(&mut [0; 4096]) {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nup");
                }
            });
        }
    });
    (address, opened)
}

fn config(number: usize, backend: SocketAddr) -> Arc<Config<Settings>> {
    let table: Table<Settings> = Table::new().rows(modules::directives());
    let text = format!(
        "server.tag = \"{number}\"\nproxy-core.protocol = \"http\"\n\
         proxy-core.backends = ( \"{backend}\" )\nproxy-core.weights = ( \"{backend}\" => {} )\n\
         proxy-core.max-keep-alive-requests = 100000\nserver.max-keep-alive-requests = 100000\n\
         $HTTP[\"host\"] == \"{number}\" {{ server.tag = \"host\" }}\n",
        1 + number % 5
    );
    let main = Main::Text { name: "test", text: text.as_bytes() };
    let (config, ..) = load(&MemoryLoader::default(), &main, &table, LoadOptions::default());
    Arc::new(config.expect("a good configuration"))
}

/// Number of live objects after a generation was swapped in.
#[derive(Debug)]
struct Alive {
    generations: usize,
    upstreams: usize,
    /// Requests that the backend of the current generation has counted.
    requests: u64,
}

/// Creates generations, on the worker's thread.
struct Maker {
    backend: SocketAddr,
    registry: Arc<Registry>,
    proxy: Rc<WorkerProxy>,
    made: Vec<Weak<Generation>>,
}

impl Maker {
    fn make(&mut self, machine: &Rc<Machine>, number: usize) -> Rc<Generation> {
        let config = config(number, self.backend);
        let naming = self.registry.name(&configured::upstreams(&config)).expect("nothing starts");
        self.proxy.adopt(&naming);
        let proxy: Rc<dyn Module> = Rc::new(ProxyCore::new(&self.proxy, &naming));
        let modules = ModuleList::new(vec![Rc::new(Teller) as Rc<dyn Module>, proxy]);
        self.registry.commit(&naming);
        let generation = Rc::new(Generation::new(Rc::clone(machine), config, modules));
        self.made.retain(|made| made.strong_count() > 0);
        self.made.push(Rc::downgrade(&generation));
        generation
    }

    fn alive(&self) -> Alive {
        let figures = stats::figures(&self.registry, 0);
        Alive {
            generations: self.made.iter().filter(|made| made.strong_count() > 0).count(),
            upstreams: self.registry.kept(),
            requests: figures.iter().flat_map(|one| &one.addresses).map(|a| a.requests).sum(),
        }
    }
}

/// Runs a worker. Each number received is a generation to swap in; 0 only requests the number of
/// live objects.
async fn run(
    backend: SocketAddr,
    address: mpsc::Sender<SocketAddr>,
    mut numbers: UnboundedReceiver<usize>,
    results: mpsc::Sender<Alive>,
) {
    let clock = Clock::start();
    clock.install();
    clock.spawn_tick();
    let engine = FileEngine::start(EngineChoice::Threads, EngineLimits::default()).expect("engine");
    let cache = StatCache::new(engine.clone(), CacheEngine::Simple, CacheLimits::default());
    let errors = LogWriter::open(LogTarget::stderr()).expect("stderr");
    let log = Log::new(errors.handle(), Level::Error, false);
    let machine = Rc::new(Machine::new(clock, engine.clone(), cache, log));
    let registry = Arc::new(Registry::default());
    let proxy = WorkerProxy::new(Arc::clone(&registry));
    let mut maker = Maker { backend, registry, proxy, made: Vec::new() };
    let first = maker.make(&machine, 1);
    let sender = Sender::start(engine, ThreadPool::global().clone(), SendOptions::default());
    let worker = Rc::new(Worker::new(first, sender.expect("a sender"), 100));
    let any = BindSpec::parse("127.0.0.1:0", None).expect("an address");
    let socket = BoundSocket::bind(&any, &BindOptions::default()).expect("a socket");
    let BindSpec::Inet(bound) = socket.address().clone() else { panic!("not an address") };
    let listener_info = ListenerInfo::new("test", bound.port(), false, None);
    let listener = socket.into_listener().expect("a listener");
    let guard = LiveListeners::default().guard();
    tokio::task::spawn_local(Rc::clone(&worker).accept(listener, listener_info.into(), guard));
    address.send(bound).expect("the test waits");
    while let Some(number) = numbers.recv().await {
        if number > 0 {
            let generation = maker.make(&machine, number);
            worker.swap(generation, 100);
        }
        results.send(maker.alive()).expect("the test waits");
    }
}

/// The test's handle of the worker.
struct Swapped {
    address: SocketAddr,
    numbers: UnboundedSender<usize>,
    alive: mpsc::Receiver<Alive>,
}

impl Swapped {
    fn start(backend: SocketAddr) -> Self {
        let (give_address, address) = mpsc::channel();
        let (numbers, taken) = unbounded_channel();
        let (results, alive) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let local = tokio::task::LocalSet::new();
            local
                .block_on(&runtime.expect("a runtime"), run(backend, give_address, taken, results));
        });
        Self { address: address.recv().expect("an address"), numbers, alive }
    }

    fn swap(&self, number: usize) -> Alive {
        self.numbers.send(number).expect("it runs");
        self.alive.recv().expect("it runs")
    }
}

fn ask(client: &mut Client, target: &str) -> String {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
    let response = client.response();
    assert!(response.status == 200 && !response.says_close(), "{response:?}");
    response.text().to_owned()
}

/// Sends requests on one connection until `stop` is set: generations must never decrease.
fn keep_asking(address: SocketAddr, stop: &AtomicBool) {
    let (mut client, mut last) = (Client::tcp(address), 0);
    while !stop.load(Ordering::Relaxed) {
        let number = ask(&mut client, "/number").parse().expect("a number");
        assert!(number >= last, "{number} after {last}");
        last = number;
        assert_eq!(ask(&mut client, "/up"), "up");
    }
}

#[test]
fn a_thousand_generations_leave_nothing_and_lose_nothing() {
    let (busy, _) = backend();
    let worker = Swapped::start(busy);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (stop, address) = (Arc::clone(&stop), worker.address);
            std::thread::spawn(move || keep_asking(address, &stop))
        })
        .collect();
    let mut held = Client::tcp(worker.address);
    held.send(
        "POST /number HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(held.interim(), 100);
    let mut most = (0, 0, 0);
    for number in 2..=SWAPS {
        let alive = worker.swap(number);
        most = (most.0.max(alive.generations), most.1.max(alive.upstreams), most.2 + 1);
    }
    // Each client may be between two requests under a generation of its own.
    assert!(most.0 <= 4 + 2 && most.1 <= 4 + 2, "{most:?}");
    held.send("x");
    assert_eq!(held.response().text(), "1", "it ends under the generation it began with");
    assert_eq!(ask(&mut held, "/number"), SWAPS.to_string());
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("nothing was lost"));
    let is_clean = || {
        let alive = worker.swap(0);
        alive.generations == 1 && alive.upstreams == 1
    };
    assert!(wait_until(PATIENCE, is_clean), "{:?}", worker.swap(0));
}

#[test]
fn a_backend_keeps_its_connection_and_its_counter() {
    let (address, opened) = backend();
    let worker = Swapped::start(address);
    let mut client = Client::tcp(worker.address);
    assert_eq!(ask(&mut client, "/up"), "up");
    for number in 2..=SWAPS {
        let alive = worker.swap(number);
        assert_eq!(alive.requests as usize, number - 1);
        assert_eq!(ask(&mut client, "/up"), "up");
    }
    assert_eq!(opened.load(Ordering::Relaxed), 1, "the pool was kept");
}
