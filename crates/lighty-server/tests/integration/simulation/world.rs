//! The simulated machine: the network beyond the server, processes, and the thread pool.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lighty_io::connect::Target;
use lighty_io::process::spawn::{Program, SimulatedChild};
use lighty_io::simulated::{Connecting, World};
use lighty_io::threads::pool::Lane;
use lighty_io::transport::{Stream, memory};
use rustls::ServerConfig;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::backend::{Backend, Witness};
use super::h2_backend;
use super::program;
use super::raw;
use super::rng::Rng;
use super::scgi::Unframed;
use super::sim::Sim;
use super::site::{
    self, AJP13, AUTH_SERVICE, BACKENDS, FASTCGI, HTTP2, HTTP2_TLS, HTTPS, RAW, SCGI, TUNNELS,
    UWSGI,
};
use super::tunnel;
use super::wire::Wire;

pub(crate) struct Machine {
    pub(crate) sim: Rc<Sim>,
    /// Connects and their backends.
    pub(crate) network: Rng,
    pub(crate) pool: Rng,
    pub(crate) entropy: Rng,
    pub(crate) programs: Rng,
    /// Configuration of backends that speak TLS.
    tls: Arc<ServerConfig>,
}

impl Machine {
    pub(crate) fn new(sim: &Rc<Sim>) -> Rc<Machine> {
        let fork = || sim.rng.fork();
        let tls = site::tls_server(&sim.root);
        Rc::new(Machine {
            network: fork(),
            pool: fork(),
            entropy: fork(),
            programs: fork(),
            sim: Rc::clone(sim),
            tls,
        })
    }

    fn accept(&self, address: SocketAddr) -> Stream {
        let rng = self.network.fork();
        let port = 32_768 + rng.below(20_000) as u16;
        let room = rng.pick(&[500, 4_096, 65_536, 300_000]);
        let (ours, theirs) = memory::pair(([10, 0, 0, 1], port).into(), address, room);
        let name = format!("backend {address} from {port}");
        let sim = Rc::clone(&self.sim);
        let witness = Witness { sim, rng, name };
        let wire = match address {
            _ if address == TUNNELS[1] => Wire::accept(theirs, &self.tls),
            HTTPS | HTTP2_TLS => Wire::accept(theirs, &self.tls),
            _ => Wire::plain(theirs),
        };
        if matches!(address, HTTP2 | HTTP2_TLS) {
            spawn_local(h2_backend::serve(witness, wire));
            return Stream::from_memory(ours);
        }
        if address == RAW {
            spawn_local(raw::serve(witness, wire, None));
            return Stream::from_memory(ours);
        }
        if TUNNELS.contains(&address) {
            spawn_local(tunnel::serve(witness, wire));
            return Stream::from_memory(ours);
        }
        let backend = Backend::new(witness, wire);
        match address {
            FASTCGI => spawn_local(backend.serve_fastcgi()),
            SCGI => spawn_local(backend.serve_unframed(Unframed::Scgi)),
            UWSGI => spawn_local(backend.serve_unframed(Unframed::Uwsgi)),
            AJP13 => spawn_local(backend.serve_ajp13()),
            AUTH_SERVICE => spawn_local(backend.serve_verdicts()),
            _ => spawn_local(backend.serve_http()),
        };
        Stream::from_memory(ours)
    }
}

impl World for Machine {
    fn connect(&self, target: &Target) -> Connecting {
        self.sim.event(format_args!("connect to {target}"));
        let Target::Tcp(address) = *target else {
            return Box::pin(async { Err(io::ErrorKind::NotFound.into()) });
        };
        if !BACKENDS.contains(&address) {
            self.sim.wrong(format_args!("a connect to {address}"));
        }
        let fate = if self.sim.is_calm { 99 } else { self.network.below(30) };
        let late = self.network.ms(0, 20);
        match fate {
            0 => Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) }),
            1 => Box::pin(std::future::pending()),
            2 => Box::pin(async { Err(io::Error::from_raw_os_error(24)) }),
            3.. if late.as_millis().is_multiple_of(2) => {
                let stream = self.accept(address);
                Box::pin(async move {
                    sleep(late).await;
                    Ok(stream)
                })
            }
            _ => Box::pin(std::future::ready(Ok(self.accept(address)))),
        }
    }

    fn start(&self, program: &Program) -> io::Result<SimulatedChild> {
        program::start(&self.sim, self.programs.fork(), program)
    }

    fn random(&self) -> u64 {
        self.entropy.next()
    }

    fn job(&self, lane: Lane) -> io::Result<Option<Duration>> {
        let no_space = lane == Lane::Write && !self.sim.is_calm && self.pool.once_in(40);
        if no_space {
            self.sim.event("a write meets a full disk");
            return Err(io::Error::from_raw_os_error(28));
        }
        Ok(match self.pool.below(8) {
            0 => Some(self.pool.ms(1, 300)),
            1..4 => Some(self.pool.ms(0, 3)),
            _ => None,
        })
    }
}
