//! Scenarios that random runs have found, each as a test of its own.

use std::rc::Rc;
use std::time::Duration;

use lighty_io::log_writer::LogHandle;
use lighty_io::simulated;
use lighty_io::transport::memory::{self, MemoryEnd};
use lighty_io::transport::{Peer, Stream};
use lighty_server::simulated::Simulated;
use tokio::time::sleep;

use super::Site;
use super::run::{in_paused_time, start};
use super::sim::Sim;
use super::world::Machine;

/// Runs a scenario with a server that takes `connections_max` connections.
fn scenario(connections_max: usize, play: impl AsyncFnOnce(Rc<Simulated>)) {
    let site = Site::new();
    let sim = Sim::calm(site.path());
    in_paused_time(async {
        let _inside = simulated::enter(Machine::new(&sim));
        let server = start(&sim, site.path(), &LogHandle::in_memory(), connections_max);
        play(server).await;
    });
    assert_eq!(sim.take_wrong(), Vec::<String>::new());
}

/// Connects a client with a response buffer of `room` bytes.
fn connect(server: &Rc<Simulated>, room: usize) -> MemoryEnd {
    let address = ([10, 0, 2, 1], 40_000).into();
    let (ours, theirs) = memory::pair(([10, 0, 0, 1], 80).into(), address, room);
    let server = Rc::clone(server);
    tokio::task::spawn_local(async move {
        server.accept(Stream::from_memory(ours), Peer::Inet(address)).await;
    });
    theirs
}

#[test]
fn a_refused_client_that_reads_nothing_does_not_stay() {
    scenario(10, async |server| {
        let client = connect(&server, 100);
        client.write_all(b"\x01 garbage\r\n\r\n").await.expect("written");
        sleep(Duration::from_secs(30)).await;
        assert_eq!(server.worker.conns.open(), 0);
        assert_eq!(server.worker.machine.counters.cut.get(), 1);
        drop(client);
    });
}
