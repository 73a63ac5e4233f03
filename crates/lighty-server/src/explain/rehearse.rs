//! Runs a request through the phases without a client, backend or program.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Config;
use lighty_core::log::{Level, Log};
use lighty_core::{Exchange, Generation, Machine, Settings, pipeline};
use lighty_http::{Fields, Known, Method, host};
use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::log_writer::{LogTarget, LogWriter};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};
use lighty_io::transport::Peer;
use lighty_proxy::route::WorkerProxy;
use lighty_proxy::upstream::registry::Registry;
use tokio::runtime::{Builder, LocalOptions};

use crate::followed;
use crate::modules::{self, Shared};

/// A request as it would arrive.
pub(super) struct SampleRequest<'a> {
    /// The method as sent; an unknown token leads to 501 (RFC 9110 section 15.6.2).
    pub(super) method: &'a str,
    /// Path and query, encoded.
    pub(super) target: &'a str,
    /// Host in lower case, with its port if it has one.
    pub(super) host: &'a str,
    /// Fields of the request; Host is added if it is absent.
    pub(super) fields: &'a Fields,
    /// The client's address.
    pub(super) from: std::net::IpAddr,
    /// The listener's address as in `$SERVER["socket"]`.
    pub(super) socket: &'a str,
    /// `http` or `https`.
    pub(super) scheme: &'static str,
}

/// Runs a request through the phases and passes the result to `read`.
///
/// # Errors
/// If the event loop or the URL is missing.
pub(super) fn rehearse<R>(
    config: &Arc<Config<Settings>>,
    sample: &SampleRequest<'_>,
    read: impl FnOnce(&Exchange) -> R,
) -> io::Result<R> {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let _files =
            followed::read(config).map_err(|faults| io::Error::other(faults.join("; ")))?;
        let mut ex = Exchange::new(&generation(config)?);
        fill(&mut ex, sample)?;
        ex.state.rehearsal = Some(Box::default());
        ex.resolve_settings();
        pipeline::respond(&mut ex).await;
        Ok(read(&ex))
    })
}

fn fill(ex: &mut Exchange, sample: &SampleRequest<'_>) -> io::Result<()> {
    let wrong = |fault: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {fault}", sample.target))
    };
    ex.set_target(sample.target.as_bytes()).map_err(|fault| wrong(&fault.message()))?;
    let request = &mut ex.request;
    request.method = Method::from_bytes(sample.method.as_bytes());
    request.scheme = sample.scheme;
    request.target_raw = sample.target.into();
    request.line = format!("{} {} HTTP/1.1", sample.method, sample.target).into();
    request.authority = host::without_default_port(sample.host.as_bytes(), sample.scheme).into();
    request.fields = sample.fields.clone();
    if !request.fields.contains(Known::Host) && !sample.host.is_empty() {
        request.fields.push_known(Known::Host, sample.host);
    }
    request.peer = Peer::Inet(SocketAddr::new(sample.from, 0));
    request.peer_text = sample.from.to_string().into();
    request.local_socket = sample.socket.into();
    let port = sample.socket.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    request.local_port = port.unwrap_or_default();
    Ok(())
}

/// Creates a worker's generation without the process's parts: no log, backend or program.
fn generation(config: &Arc<Config<Settings>>) -> io::Result<Rc<Generation>> {
    let clock = Clock::start();
    clock.install();
    let limits = EngineLimits::default();
    let engine = FileEngine::start_with_clock(EngineChoice::Threads, limits, clock.clone())?;
    let cache = StatCache::new(engine.clone(), CacheEngine::Simple, CacheLimits::default());
    let unheard = LogWriter::open(LogTarget::parse("/dev/null"))?;
    let log = Log::new(unheard.handle(), Level::Error, false);
    let upstreams = Arc::new(Registry::default());
    let naming = upstreams.name(&[]).map_err(io::Error::other)?;
    let shared = Shared::new(clock.unix_s(), naming)?;
    let modules = modules::instances(config, &shared, &WorkerProxy::new(upstreams));
    let machine = Rc::new(Machine::new(clock, engine, cache, log));
    Ok(Rc::new(Generation::new(machine, Arc::clone(config), modules)))
}
