//! Runs a seed: a server, and its simulated environment.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use lighty_core::{Level, Log, Module};
use lighty_io::clock::Clock;
use lighty_io::file::{Fault, FaultPlan};
use lighty_io::log_writer::LogHandle;
use lighty_io::simulated;
use lighty_io::transport::memory::{self, MemoryEnd};
use lighty_io::transport::{Peer, Stream};
use lighty_server::simulated::Simulated;
use tokio::runtime::LocalOptions;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::client::Client;
use super::h2_client::H2Client;
use super::proxy_header;
use super::raw;
use super::rng::Rng;
use super::sabotage::{Bug, Saboteur};
use super::sim::{Observer, Sim};
use super::site::{self, CHANGING_PORT, CLEAR_PORT, PATIENCE_S, PROXY_PORTS, RAW_PORTS, TLS_PORT};
use super::tunnel;
use super::wire::Wire;
use super::world::Machine;

/// Listeners of requests. The frequent ones are listed repeatedly.
const PORTS: [u16; 11] = [
    CLEAR_PORT,
    CLEAR_PORT,
    CLEAR_PORT,
    CLEAR_PORT,
    CLEAR_PORT,
    TLS_PORT,
    TLS_PORT,
    CHANGING_PORT,
    CHANGING_PORT,
    PROXY_PORTS[0],
    PROXY_PORTS[1],
];

/// Result of a run.
pub(crate) struct Report {
    pub(crate) trace_hash: u64,
    pub(crate) wrong: Vec<String>,
    pub(crate) log: String,
    pub(crate) requests: u64,
}

/// Runs a seed to its end.
pub(crate) fn run(seed: u64, root: &Path) -> Report {
    run_with(seed, root, None)
}

/// Runs a seed with a planted bug.
pub(crate) fn run_with(seed: u64, root: &Path, bug: Option<Bug>) -> Report {
    site::clean(root);
    let fds = open_fds();
    let sim = Sim::new(seed, root, bug);
    let log = LogHandle::in_memory();
    in_paused_time(live(&sim, &log));
    let left = open_fds();
    if left != fds {
        sim.wrong(format_args!("{fds} descriptors were open before, {left} are after"));
    }
    Report {
        trace_hash: sim.trace_hash(),
        requests: sim.done.borrow().len() as u64,
        wrong: sim.take_wrong(),
        log: String::from_utf8_lossy(&log.take_lines()).into_owned(),
    }
}

/// Runs a future on a runtime of its own, which advances its time when all tasks wait.
pub(crate) fn in_paused_time(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .on_thread_unpark(Clock::refresh_current)
        .build_local(LocalOptions::default());
    runtime.expect("a runtime").block_on(future);
}

async fn live(sim: &Rc<Sim>, log: &LogHandle) {
    let world = Machine::new(sim);
    let _inside = simulated::enter(world);
    let server = start(sim, log, if sim.is_crowded { 4 } else { 100 });
    server.worker.machine.engine.set_faults(Some(disk_faults(sim)));
    let clients = start_clients(sim, &server);
    start_reloads(sim, &server);
    for client in clients {
        let life = Duration::from_secs(PATIENCE_S * 10);
        match timeout(life, client).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => sim.wrong(format_args!("a client failed: {error}")),
            Err(_) => sim.wrong("a client that never ends"),
        }
    }
    check_end(sim, &server).await;
}

/// Starts a server. Must be called on a simulated thread.
pub(crate) fn start(sim: &Rc<Sim>, log: &LogHandle, connections_max: usize) -> Rc<Simulated> {
    let config = site::config(sim, 0);
    let log = Log::new(log.clone(), Level::Debug, false);
    // A seed that fails is explained by all of its lines.
    log.limit_repeats(0);
    let mut observers: Vec<Rc<dyn Module>> = vec![Rc::new(Observer(Rc::clone(sim)))];
    if let Some(bug) = sim.bug {
        observers.push(Rc::new(Saboteur(bug)));
    }
    let server = Simulated::start(&config, &log, connections_max, observers);
    Rc::new(server.expect("a worker"))
}

/// Ways in which a client uses its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Requests,
    Tunnel,
    Raw,
}

fn start_clients(sim: &Rc<Sim>, server: &Rc<Simulated>) -> Vec<tokio::task::JoinHandle<()>> {
    let count = sim.rng.between(1, 8) as usize;
    let start = |index: usize| {
        let (rng, sim, server) = (sim.rng.fork(), Rc::clone(sim), Rc::clone(server));
        let at = rng.ms(0, 3_000);
        tokio::task::spawn_local(async move {
            sleep(at).await;
            run_client(&sim, &server, &rng, index).await;
        })
    };
    (0..count).map(start).collect()
}

/// Connects a client, and runs it to its end.
async fn run_client(sim: &Rc<Sim>, server: &Simulated, rng: &Rng, index: usize) {
    let purpose = match rng.below(12) {
        0 | 1 => Use::Raw,
        2 => Use::Tunnel,
        _ => Use::Requests,
    };
    let port = if purpose == Use::Raw { rng.pick(&RAW_PORTS) } else { rng.pick(&PORTS) };
    let is_proxied = PROXY_PORTS.contains(&port);
    let is_trusted = !is_proxied || sim.is_calm || !rng.once_in(12);
    let host = if is_trusted { 2 } else { 3 };
    let address = ([10, 0, host, 1], 40_000 + index as u16).into();
    let room = rng.pick(&[300, 2_000, 16_384, 100_000]);
    let is_tls = server.speaks_tls(port);
    sim.event(format_args!("client {index} connects to {port}"));
    let (ours, theirs) = memory::pair(([10, 0, 0, 1], port).into(), address, room);
    let accepting = async {
        let changes = u32::from(port == CHANGING_PORT);
        sim.accepting.set(sim.accepting.get() + changes);
        server.accept(Stream::from_memory(ours), Peer::Inet(address), port).await;
        // The connection's task begins with its listener's protocol.
        yield_now().await;
        sim.accepting.set(sim.accepting.get() - changes);
    };
    let talking = async {
        let mut origin = address;
        if !is_trusted {
            return proxy_header::pretend(sim, rng, &theirs, index).await;
        } else if is_proxied {
            let introduced = proxy_header::introduce(sim, rng, &theirs, (index, address)).await;
            let Some(believed) = introduced else { return };
            origin = believed;
        }
        talk(sim, rng, theirs, is_tls, (index, origin), purpose).await;
    };
    tokio::join!(biased; accepting, talking);
}

async fn talk(
    sim: &Rc<Sim>,
    rng: &Rng,
    end: MemoryEnd,
    is_tls: bool,
    (index, origin): (usize, SocketAddr),
    purpose: Use,
) {
    let is_h2 = purpose != Use::Raw && rng.once_in(2);
    let wire = match is_tls {
        false => Wire::plain(end),
        true => Wire::secure(end, &site::tls_client(&sim.root, alpn(rng, is_h2))),
    };
    let wire = wire.with_bug(sim.bug, is_h2);
    let rng = rng.fork();
    match purpose {
        Use::Raw => raw::run_client(sim, rng, wire, index).await,
        Use::Tunnel => tunnel::run_client(sim, rng, wire, (index, origin), is_h2).await,
        Use::Requests if is_h2 => H2Client::new(sim, rng, wire, (index, origin)).run().await,
        Use::Requests => Client::new(sim, rng, wire, (index, origin)).run().await,
    }
}

/// Returns the protocols that a client offers.
fn alpn(rng: &Rng, is_h2: bool) -> &'static [&'static str] {
    match is_h2 {
        true => rng.pick(&[&["h2"][..], &["h2", "http/1.1"]]),
        false => rng.pick(&[&[][..], &["http/1.1"]]),
    }
}

/// Swaps generations while clients are served.
fn start_reloads(sim: &Rc<Sim>, server: &Rc<Simulated>) {
    let (rng, sim, server) = (sim.rng.fork(), Rc::clone(sim), Rc::clone(server));
    let count = if rng.once_in(3) { rng.between(1, 4) } else { 0 };
    tokio::task::spawn_local(async move {
        for number in 1..=count {
            sleep(rng.ms(0, 2_500)).await;
            while sim.accepting.get() > 0 {
                // A client does not know that its listener has begun to speak something else.
                sleep(Duration::from_millis(1)).await;
            }
            sim.event(format_args!("generation {number}"));
            if let Err(why) = server.swap(&site::config(&sim, rng.below(3))) {
                sim.wrong(format_args!("no swap: {why}"));
            }
        }
    });
}

/// Returns the faults of the disk: random ones, or none. A plan is always set, so that no look-up
/// depends on the kernel's caches.
fn disk_faults(sim: &Sim) -> FaultPlan {
    let rng = sim.rng.fork();
    let is_sound = sim.is_calm || rng.once_in(2);
    FaultPlan::drawn(move || {
        if is_sound {
            return None;
        }
        match rng.below(60) {
            0 => Some(Fault::Errno(rng.pick(&[2, 5, 24, 28]))),
            1 => Some(Fault::Short(rng.below(5_000))),
            2..6 => Some(Fault::Delay(rng.ms(1, 2_000))),
            _ => None,
        }
    })
}

/// Checks that the clients have left nothing behind.
async fn check_end(sim: &Sim, server: &Simulated) {
    // Longer than every limit: idle connections, pools, timeouts.
    sleep(Duration::from_secs(30)).await;
    let machine = &server.worker.machine;
    let open = server.worker.conns.open();
    if open > 0 {
        sim.wrong(format_args!("{open} connections are left"));
    }
    let in_flight = machine.engine.counters().in_flight.get();
    if in_flight > 0 {
        sim.wrong(format_args!("{in_flight} operations on files are left"));
    }
    for upstream in server.upstreams.all() {
        for address in upstream.addresses().iter() {
            if address.open() > 0 || address.idle() > 0 {
                let (open, idle) = (address.open(), address.idle());
                sim.wrong(format_args!("{}: {open} open, {idle} idle", address.spec.text));
            }
        }
        if !upstream.backlog.is_empty() {
            sim.wrong("requests are left in a backlog");
        }
    }
    raw::judge(sim);
    for number in sim.seen.borrow().keys() {
        if sim.ending(*number).is_none() {
            sim.wrong(format_args!("{number}: a backend got it, and it never ended"));
        }
    }
    let programs = sim.programs.get();
    if programs > 0 {
        sim.wrong(format_args!("{programs} programs are left"));
    }
    let counters = &machine.counters;
    let cut = sim.done.borrow().values().flatten().filter(|done| !done.is_complete).count() as u64;
    if counters.cut.get() < cut {
        sim.wrong(format_args!("{cut} responses were cut, {} were counted", counters.cut.get()));
    }
    if !server.stop(Duration::from_secs(20)).await {
        sim.wrong("the worker does not stop");
    }
    machine.drop_caches();
}

/// Counts the open descriptors of this process.
fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
